"""`kafka-drain backfill`: drain the missing offsets of a data interval."""

from __future__ import annotations

import argparse
from typing import Any

from kafka_drain.cli.commands.arguments import (
    add_acknowledgement,
    add_apply,
    add_job,
    add_replace_changed,
    add_source_option,
    cluster_from,
)
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.cli.commands.plan_answer import answer_plan
from kafka_drain.cli.foreground import runner_of
from kafka_drain.intervals import Interval
from kafka_drain.windows.backfill import run_backfill
from kafka_drain.windows.backfill_plan import plan_backfill


def run(options: argparse.Namespace) -> int:
    """Drain the offsets of an interval that no receipt covers, prove and seal them.

    With --force it replaces archived files, and then requires --apply.
    """
    pipeline, cluster = pipeline_from(options), cluster_from(options)
    plan = plan_backfill(
        pipeline,
        cluster,
        Interval.parse((options.start, options.end)),
        force=options.force,
        acknowledge_expired=options.acknowledge_expired,
    )
    options.needs_apply = options.force

    def carry_out() -> dict[str, Any]:
        if plan.nothing_to_do:
            return {}
        runner = runner_of(options)
        return run_backfill(
            plan, pipeline, cluster, runner, run="terminal", replace_changed=options.replace_changed
        )

    return answer_plan(options, plan, carry_out)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    for name, what in (
        ("start", "start of the interval"),
        ("end", "end of the interval, exclusive"),
    ):
        parser.add_argument(
            f"--{name}",
            required=True,
            metavar="TIME",
            help=f"{what}, such as 2026-01-31T13:00Z (UTC if no time zone is given)",
        )
    parser.add_argument(
        "--force",
        action="store_true",
        help="drain the interval's own window again and replace it; requires --apply; refused if "
        "Kafka no longer holds all of it",
    )
    add_source_option(parser)
    add_acknowledgement(parser)
    add_replace_changed(parser)
    add_apply(parser, "carry out --force, which replaces files; not needed without --force")
