"""`kafka-drain reprocess`: drain archived offsets again, and replace the old files."""

from __future__ import annotations

import argparse
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plans import read_plan
from kafka_drain.cli.commands.arguments import (
    add_apply,
    add_job,
    cluster_from,
)
from kafka_drain.cli.commands.frozen import (
    add_frozen,
    answer_approved,
    answer_frozen,
    frozen_for,
    refuse_beside_plan,
    refuse_plan_beside,
)
from kafka_drain.cli.commands.pipeline_arguments import add_keys, pipeline_from
from kafka_drain.cli.commands.plan_answer import answer_plan
from kafka_drain.cli.foreground import runner_of
from kafka_drain.cli.options import add_options, given_flags, options_from
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.windows.options import ReplaceOptions
from kafka_drain.windows.reprocess.abandon import abandon_reprocess, plan_abandon
from kafka_drain.windows.reprocess.approved import freeze_reprocess, plan_approved, run_approved
from kafka_drain.windows.reprocess.options import ReprocessOptions
from kafka_drain.windows.reprocess.plan import parse_cut
from kafka_drain.windows.reprocess.run import plan_reprocess, run_reprocess
from kafka_drain.windows.reprocess.state import newest_generation

#: Keys of a pipeline that say how the new files are written.
WRITTEN = ("format", "compression", "partition_by")


def run(options: argparse.Namespace) -> int:
    """Show the plan of a reprocess or of abandoning it; with --apply, carry it out or resume it."""
    archive = Archive.at(options.archive)
    asked = options_from(options, ReprocessOptions)
    if asked.abandon:
        refuse_plan_beside(options, "--abandon")
        return _abandon(archive, options)
    within = frozen_for(options)
    if options.plan_id is not None:
        archive.require()
        return _approved(options)
    cut = parse_cut(asked, newest_generation=lambda: newest_generation(archive))
    archive.require()  # without one, there is no pipeline either
    pipeline, cluster = pipeline_from(options), cluster_from(options)
    if within is not None:
        plan, frozen = freeze_reprocess(pipeline, cluster, cut, now=utc_now(), lifetime=within)
        return answer_frozen(options, plan, frozen)
    plan = plan_reprocess(pipeline, cluster, cut)
    replaceable = options_from(options, ReplaceOptions).replaceable
    runner = runner_of(options)
    return answer_plan(
        options,
        plan,
        lambda: run_reprocess(
            plan, pipeline, cluster, runner, run="terminal", replaceable=replaceable
        ),
    )


def _approved(options: argparse.Namespace) -> int:
    """Carry out a plan that was made already, with the format that it was made with."""
    refuse_beside_plan(
        [*given_flags(options, ReprocessOptions), *given_flags(options, Pipeline, WRITTEN)]
    )
    pipeline, cluster = pipeline_from(options), cluster_from(options)
    seen = read_plan(Archive.at(options.archive).root, options.plan_id).seen
    kept = {name: seen[name] for name in WRITTEN if name in seen}
    pipeline = pipeline.model_copy(update=kept)
    replaceable = options_from(options, ReplaceOptions).replaceable
    plan, frozen, decision = plan_approved(pipeline, cluster, options.plan_id, now=utc_now())

    def carry_out() -> dict[str, Any]:
        runner = runner_of(options)
        removed = run_approved(
            plan, pipeline, cluster, runner, frozen, run="terminal", replaceable=replaceable
        )
        return plan.to_dict() | removed

    return answer_approved(options, plan, frozen, decision, carry_out)


def _abandon(archive: Archive, options: argparse.Namespace) -> int:
    plan = plan_abandon(archive)
    return answer_plan(options, plan, lambda: abandon_reprocess(plan, run="terminal"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    add_options(parser, ReprocessOptions)
    add_keys(parser, *WRITTEN, otherwise="unchanged")
    add_keys(parser, "source_options")
    add_options(parser, ReplaceOptions)
    add_frozen(parser)
    add_apply(parser)
