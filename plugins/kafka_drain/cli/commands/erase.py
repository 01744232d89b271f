"""`kafka-drain erase`: erase records on request, and prove that all others are as they were."""

from __future__ import annotations

import argparse
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import add_apply, add_job, cluster_from
from kafka_drain.cli.commands.frozen import (
    add_frozen,
    answer_approved,
    answer_frozen,
    frozen_for,
    refuse_beside_plan,
    refuse_plan_beside,
)
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.cli.commands.plan_answer import acts, answer_fields
from kafka_drain.cli.console import say, say_lines
from kafka_drain.cli.foreground import runner_of
from kafka_drain.cli.options import add_options, given_flags, options_from
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.maintenance.approved_erasure import freeze_erasure, plan_approved, run_approved
from kafka_drain.maintenance.erase import lift_erasure, liftable, plan_erasure, run_erasure
from kafka_drain.maintenance.erase_options import EraseOptions
from kafka_drain.maintenance.erasure_request import ErasureRequest, read_headers, read_keys

#: Flags that say for which request, and name no records.
_FOR = {"--request", "--by"}


def run(options: argparse.Namespace) -> int:
    """Show the plan of an erasure; with --apply, carry it out."""
    archive = Archive.at(options.archive)
    archive.require()  # without one, there is no pipeline either
    if options.lift is not None:
        return _lift(archive, options)
    pipeline, within = pipeline_from(options), frozen_for(options)
    if options.plan_id is not None:
        return _approved(pipeline, options)
    request, cluster = _request(options), cluster_from(options)
    if within is not None:
        plan, frozen = freeze_erasure(pipeline, cluster, request, now=utc_now(), lifetime=within)
        return answer_frozen(options, plan, frozen)
    if not acts(options):
        plan = plan_erasure(pipeline, cluster, request)
        say_lines(plan.lines())
        return answer_fields(options, plan.to_dict())
    # It plans, and says its plan, after it has removed what a killed run left behind.
    figures = run_erasure(pipeline, cluster, runner_of(options), request, run="terminal")
    return answer_fields(options, {"archive": str(archive.root)} | figures)


def _approved(pipeline: Pipeline, options: argparse.Namespace) -> int:
    """Carry out a plan that was made already; it has what it needs of the keys."""
    refuse_beside_plan(_given(options))
    plan, frozen, decision = plan_approved(pipeline, options.plan_id, now=utc_now())

    def carry_out() -> dict[str, Any]:
        cluster, runner = cluster_from(options), runner_of(options)
        figures = run_approved(pipeline, cluster, runner, frozen, run="terminal")
        return {"archive": pipeline.archive} | figures

    return answer_approved(options, plan, frozen, decision, carry_out)


def _given(options: argparse.Namespace) -> set[str]:
    """Return the flags that were given of what to erase."""
    files = {f"--{name}" for name in ("keys", "headers") if getattr(options, name)}
    return files | {*given_flags(options, EraseOptions)}


def _request(options: argparse.Namespace) -> ErasureRequest | None:
    """Return the request; None without one: then the erasures in force go on."""
    if not (given := _given(options)) - _FOR:
        if given:
            raise ConfigError(
                "name the records: --keys, --headers, --topic, --from-time, --to-time"
            )
        return None
    return ErasureRequest.of(
        options_from(options, EraseOptions),
        read_keys(options.keys) if options.keys else None,
        read_headers(options.headers) if options.headers else None,
    )


def _lift(archive: Archive, options: argparse.Namespace) -> int:
    refuse_plan_beside(options, "--lift", _given(options) - {"--by"})
    say(f"erase {archive.root}: lifts {liftable(archive, options.lift)}")
    if acts(options):
        by = options_from(options, EraseOptions).by
        lift_erasure(archive, options.lift, by, run="terminal")
    return answer_fields(options, {"archive": str(archive.root), "lift": options.lift})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    add_options(parser, EraseOptions)
    parser.add_argument(
        "--keys",
        metavar="FILE",
        help="file with one key a line: text, or hex:… or base64:…; a record must have one of them",
    )
    parser.add_argument(
        "--headers",
        metavar="FILE",
        help="file with one header a line, name=value, the value like a key; a record must have "
        "one of them",
    )
    parser.add_argument(
        "--lift",
        type=int,
        metavar="NUMBER",
        help="withdraw this erasure if it has erased nothing yet; otherwise no longer apply it to "
        "other records: what was erased stays erased",
    )
    parser.add_argument("--pipeline", metavar="FILE", help="JSON file with pipeline keys")
    add_frozen(parser)
    add_apply(parser)
