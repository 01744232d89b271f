"""`kafka-drain maintain`: roll, compact closed segments' small files, delete what is too old."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import (
    add_apply,
    add_job,
    cluster_from,
)
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.cli.commands.plan_answer import acts, answer_fields
from kafka_drain.cli.console import say, say_lines
from kafka_drain.cli.foreground import runner_of
from kafka_drain.maintenance.maintain import plan_maintenance, run_maintenance


def run(options: argparse.Namespace) -> int:
    """Show what maintenance would do; with --apply, do it."""
    Archive.at(options.archive).require()  # without one, there is no pipeline either
    pipeline = pipeline_from(options)
    if not acts(options):
        plan = plan_maintenance(pipeline)
        say_lines(plan.lines())
        return answer_fields(options, plan.to_dict())
    # It plans, and says its plan, after it has removed what a killed run left behind.
    figures = run_maintenance(
        pipeline, cluster_from(options), runner_of(options), run="terminal", say=say
    )
    return answer_fields(options, figures)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    parser.add_argument(
        "--target-file-bytes",
        type=int,
        metavar="BYTES",
        help="target size of compacted files (268435456)",
    )
    parser.add_argument(
        "--retention-days",
        type=int,
        metavar="DAYS",
        help="delete files whose newest record is older than this (by default none are deleted)",
    )
    parser.add_argument(
        "--max-manifest-lines",
        type=int,
        metavar="FILES",
        help="close the open generation if it has more files than this (50000)",
    )
    parser.add_argument(
        "--max-generation-days",
        type=int,
        metavar="DAYS",
        help="close the open generation if it is older than this (7)",
    )
    parser.add_argument("--pipeline", metavar="FILE", help="JSON file with pipeline keys")
    add_apply(parser)
