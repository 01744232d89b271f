"""`kafka-drain reprocess`: drain archived offsets again, and replace the old files."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import (
    add_apply,
    add_format,
    add_job,
    cluster_from,
)
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.cli.commands.plan_answer import answer_plan
from kafka_drain.cli.console import say
from kafka_drain.cli.foreground import runner_of
from kafka_drain.errors import ConfigError
from kafka_drain.windows.reprocess.abandon import abandon_reprocess, plan_abandon
from kafka_drain.windows.reprocess.plan import parse_cut
from kafka_drain.windows.reprocess.run import plan_reprocess, run_reprocess
from kafka_drain.windows.reprocess.state import newest_generation


def run(options: argparse.Namespace) -> int:
    """Show what a reprocess, or abandoning one, would do; with --apply, do it or resume it."""
    archive = Archive.at(options.archive)
    if options.abandon:
        return _abandon(archive, options)
    cut = parse_cut(
        options.from_batch,
        options.from_time,
        options.from_offset,
        newest_generation=lambda: newest_generation(archive),
    )
    archive.require()  # without one, there is no pipeline either
    pipeline, cluster = pipeline_from(options), cluster_from(options)
    plan = plan_reprocess(pipeline, cluster, cut)
    runner = runner_of(options)
    return answer_plan(
        options,
        plan,
        lambda: run_reprocess(plan, pipeline, cluster, runner, run="terminal", say=say),
    )


def _abandon(archive: Archive, options: argparse.Namespace) -> int:
    if options.from_batch or options.from_time or options.from_offset:
        raise ConfigError("--abandon ends the unfinished reprocess; omit where to start")
    plan = plan_abandon(archive)
    return answer_plan(options, plan, lambda: abandon_reprocess(plan, run="terminal", say=say))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    parser.add_argument(
        "--from-batch",
        metavar="[GENERATION:]BATCH",
        help="first batch to drain again; of the newest generation unless one is given",
    )
    parser.add_argument(
        "--from-time", metavar="TIME", help="the batch with the first record of this time or later"
    )
    parser.add_argument(
        "--from-offset",
        metavar="TOPIC:PARTITION:OFFSET",
        action="append",
        default=[],
        help="the batch with this offset; can be repeated",
    )
    add_format(parser, otherwise=("unchanged", "unchanged"))
    parser.add_argument(
        "--abandon",
        action="store_true",
        help="end an unfinished reprocess: its unsealed windows are removed, archived files stay",
    )
    add_apply(parser)
