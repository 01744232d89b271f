"""`kafka-drain backfill`: drain the missing offsets of a data interval."""

from __future__ import annotations

import argparse

from kafka_drain.cli.commands.arguments import (
    add_acknowledgement,
    add_apply,
    add_archive,
    add_kafka,
    add_spark,
    say_dry_run,
    the_cluster,
)
from kafka_drain.cli.commands.pipeline_arguments import the_pipeline
from kafka_drain.cli.console import answer, print_fields, say
from kafka_drain.cli.exit_codes import OK
from kafka_drain.cli.foreground import runner_of
from kafka_drain.intervals import Interval
from kafka_drain.windows.backfill import run_backfill
from kafka_drain.windows.backfill_plan import plan_backfill

__all__ = ["add_arguments", "run"]


def run(options: argparse.Namespace) -> int:
    """Drain the offsets of an interval that no receipt covers, prove and seal them.

    With --force it replaces archived files, and then requires --apply.
    """
    pipeline, cluster = the_pipeline(options), the_cluster(options)
    plan = plan_backfill(
        pipeline,
        cluster,
        Interval.parse((options.start, options.end)),
        force=options.force,
        acknowledge_expired=options.acknowledge_expired,
    )
    for line in plan.lines():
        say(line)
    document = plan.to_dict()
    acts = options.apply or not (options.force or options.dry_run)
    if acts and not plan.nothing_to_do:
        document = run_backfill(
            plan, pipeline, cluster, runner_of(options.master), run="terminal", say=say
        )
    answer(options, document, print_fields(document))
    if not acts:
        say_dry_run(
            "pass --apply to carry it out" if options.force else "omit --dry-run to carry it out"
        )
    return OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_kafka(parser)
    add_spark(parser)
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
    add_acknowledgement(parser)
    add_apply(parser, "carry out --force, which replaces files; not needed without --force")
