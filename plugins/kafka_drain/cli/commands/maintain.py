"""`kafka-drain maintain`: roll, compact closed segments' small files, delete what is too old."""

from __future__ import annotations

import argparse
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plans import read_plan
from kafka_drain.cli.commands.arguments import add_apply, add_job, cluster_from
from kafka_drain.cli.commands.frozen import (
    add_frozen,
    answer_approved,
    answer_frozen,
    frozen_for,
    refuse_beside_plan,
)
from kafka_drain.cli.commands.pipeline_arguments import add_keys, pipeline_from
from kafka_drain.cli.commands.plan_answer import acts, answer_fields
from kafka_drain.cli.console import say_lines
from kafka_drain.cli.foreground import runner_of
from kafka_drain.cli.options import given_flags
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.maintenance.approved import (
    SETTINGS,
    freeze_maintenance,
    plan_approved,
    run_approved,
)
from kafka_drain.maintenance.maintain import plan_maintenance, run_maintenance


def run(options: argparse.Namespace) -> int:
    """Show the plan of a maintenance run; with --apply, carry it out."""
    Archive.at(options.archive).require()  # without one, there is no pipeline either
    pipeline, within = pipeline_from(options), frozen_for(options)
    if options.plan_id is not None:
        return _approved(pipeline, options)
    if within is not None:
        plan, frozen = freeze_maintenance(pipeline, now=utc_now(), lifetime=within)
        return answer_frozen(options, plan, frozen)
    if not acts(options):
        plan = plan_maintenance(pipeline)
        say_lines(plan.lines())
        return answer_fields(options, plan.to_dict())
    # It plans, and says its plan, after it has removed what a killed run left behind.
    figures = run_maintenance(pipeline, cluster_from(options), runner_of(options), run="terminal")
    return answer_fields(options, figures)


def _approved(pipeline: Pipeline, options: argparse.Namespace) -> int:
    """Carry out a plan that was made already, with the settings that it was made with."""
    refuse_beside_plan(given_flags(options, Pipeline, SETTINGS))
    asked = read_plan(Archive.at(options.archive).root, options.plan_id).asked
    pipeline = pipeline.model_copy(update={n: asked[n] for n in SETTINGS if n in asked})
    plan, frozen, decision = plan_approved(pipeline, options.plan_id, now=utc_now())

    def carry_out() -> dict[str, Any]:
        cluster, runner = cluster_from(options), runner_of(options)
        return run_approved(pipeline, cluster, runner, frozen, run="terminal")

    return answer_approved(options, plan, frozen, decision, carry_out)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    add_keys(parser, *SETTINGS, "scrub_days")
    parser.add_argument("--pipeline", metavar="FILE", help="JSON file with pipeline keys")
    add_frozen(parser)
    add_apply(parser)
