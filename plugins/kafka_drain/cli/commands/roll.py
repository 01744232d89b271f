"""`kafka-drain roll`: close the open generation, open the next one at exact offsets."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import (
    add_archive,
    add_dry_run,
    add_kafka,
    say_dry_run,
    the_cluster,
)
from kafka_drain.cli.console import answer, print_fields, say
from kafka_drain.cli.exit_codes import OK
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows.roll import RollPlan, plan_roll, roll

__all__ = ["add_arguments", "run"]


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
    add_dry_run(parser)


def run(options: argparse.Namespace) -> int:
    """Close the open generation and open the next one."""
    archive = Archive.at(options.archive)
    cluster = the_cluster(options)

    def planned() -> RollPlan:
        return plan_roll(archive, cluster, options.leave_out, leave_unsealed=options.leave_unsealed)

    plan = planned()
    if options.dry_run:
        for line in plan.lines():
            say(line)
    else:
        with hold_lease(archive.root, run="terminal", say=say):
            plan = planned()
            for line in plan.lines():
                say(line)
            roll(plan, say)
    answer(options, plan.to_dict(), print_fields(plan.to_dict()))
    if options.dry_run:
        say_dry_run("omit --dry-run to carry it out")
    return OK
