"""`kafka-drain roll`: close the open generation, open the next one at exact offsets."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import (
    add_apply,
    add_archive,
    add_kafka,
    cluster_from,
)
from kafka_drain.cli.commands.plan_answer import acts, answer_fields
from kafka_drain.cli.console import say_lines
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.windows.options import ReplaceOptions
from kafka_drain.windows.roll import plan_roll, run_roll


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_kafka(parser)
    parser.add_argument(
        "--leave-out",
        metavar="TOPIC[:PARTITION]",
        action="append",
        default=[],
        help="stop draining it; can be repeated (topics that no longer exist are always left out)",
    )
    parser.add_argument(
        "--leave-unsealed",
        action="store_true",
        help="exclude what validation can't seal from what readers get; names what Kafka can no "
        "longer deliver, deletes none of its files",
    )
    parser.add_argument(
        "--rewritten",
        action="store_true",
        help="go on with a log that lost its end and grew again: what was drained stays, and the "
        "next generation starts at its first offset that has another record now",
    )
    add_options(parser, ReplaceOptions)
    add_apply(
        parser,
        "also carry out a roll that removes a window or gives up records; not needed for any other",
    )
    parser.set_defaults(needs_apply=False)


def run(options: argparse.Namespace) -> int:
    """Close the open generation and open the next one; with --apply, even if that discards."""
    archive, cluster = Archive.at(options.archive), cluster_from(options)
    replaceable = options_from(options, ReplaceOptions).replaceable
    if acts(options):
        plan = run_roll(
            archive,
            cluster,
            options.leave_out,
            leave_unsealed=options.leave_unsealed,
            rewritten=options.rewritten,
            replaceable=replaceable,
            may_discard=options.apply is True,
            run="terminal",
        )
    else:
        plan = plan_roll(
            archive,
            cluster,
            options.leave_out,
            leave_unsealed=options.leave_unsealed,
            rewritten=options.rewritten,
            replaceable=replaceable,
        )
        say_lines(plan.lines())
        options.needs_apply = plan.discards
    return answer_fields(options, plan.to_dict())
