"""`kafka-drain republish`: send an archive's records to Kafka."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import add_archive, add_kafka, add_spark, pairs, the_cluster
from kafka_drain.cli.commands.pipeline_arguments import the_pipeline
from kafka_drain.cli.console import answer, print_fields, say, say_table
from kafka_drain.cli.exit_codes import OK
from kafka_drain.cli.foreground import runner_of
from kafka_drain.config.checks import integer
from kafka_drain.republish.engines.select import Engines
from kafka_drain.republish.planning.abandon import abandon_run
from kafka_drain.republish.planning.plan import (
    DELIVERIES,
    ENGINES,
    EXACTLY_ONCE,
    TRANSACTIONS,
    RepublishPlan,
)
from kafka_drain.republish.planning.request import RESTORED, RepublishRequest
from kafka_drain.republish.planning.selection import Selection
from kafka_drain.republish.run import Limits, plan_republish
from kafka_drain.spark.job import private_folder
from kafka_drain.storage.lease import utc_now

__all__ = ["add_arguments", "run"]


def run(options: argparse.Namespace) -> int:
    """Send an archive's records to Kafka."""
    if options.processes is not None:
        integer(1)("--processes", options.processes)
    archive = Archive.at(options.archive)
    if options.abandon:
        return _abandon(archive, options)
    cluster = the_cluster(options)
    limits = Limits(options.records_per_second, options.bytes_per_second)
    republish = plan_republish(
        archive,
        cluster,
        _request(options),
        now=utc_now(),
        say=say,
        run=options.run,
        follows=options.follow,
        is_dry_run=options.dry_run,
    )
    plan = republish.plan
    _say_plan(plan, limits)
    result = plan.summary()
    if options.dry_run:
        say(f"republish {plan.pipeline}: dry run, nothing was sent")
    else:
        with private_folder() as folder:
            engines = Engines(
                str(archive.root),
                cluster,
                the_pipeline(options),
                folder,
                runner_of(options.master),
                options.processes,
            )
            receipt = republish.execute(engines, utc_now, limits)
        result |= {
            name: value
            for name, value in receipt.items()
            if name not in ("sent", "through", "request")
        }
    shown = {k: v for k, v in result.items() if not isinstance(v, (dict, list))}
    answer(options, result, print_fields(shown))
    return OK


def _abandon(archive: Archive, options: argparse.Namespace) -> int:
    archive.require()
    run = abandon_run(archive, options.abandon, utc_now())
    say(
        f"abandon {archive.root}: run {run.key} has ended here; what it sent stays in its target, "
        "and maintenance may remove its files"
    )
    result = {"run": run.key, "abandoned": True}
    answer(options, result, print_fields(result))
    return OK


def _say_plan(plan: RepublishPlan, limits: Limits) -> None:
    lines, shards = plan.lines(limits.records_per_second, limits.bytes_per_second), plan.shards
    begin_list = len(lines) - len(shards)
    for line in lines[:begin_list]:
        say(line)
    say_table(
        lines[begin_list:],
        ("source", "target", "first offset", "last offset", "records"),
        (
            (str(shard.source), shard.target, shard.first, shard.end - 1, shard.records)
            for shard in shards
        ),
    )


def _request(options: argparse.Namespace) -> RepublishRequest:
    target = options.target_topic
    if target is None and not options.same_topics and not options.into_source:
        target = RESTORED
    return RepublishRequest(
        target_topic=target,
        rename=pairs("--rename", options.rename),
        selection=Selection.of(
            topics=options.topic,
            partitions=options.partition,
            offsets=options.offsets,
            from_time=options.from_time,
            to_time=options.to_time,
        ),
        delivery=options.delivery,
        transactions=options.transactions,
        engine=options.engine,
        placement=options.placement,
        adds_provenance=options.provenance,
        creates_target=options.create_target,
        # A follower takes what is sealed, and the rest next time.
        sealed_only=options.sealed_only or options.follow,
        repeats=options.repeat,
        into_source=options.into_source,
    )


def add_arguments(republish: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(republish)
    add_kafka(republish)
    add_spark(republish)
    target = republish.add_mutually_exclusive_group()
    target.add_argument(
        "--target-topic",
        help="target of all records; {topic} in it is the topic that a record came from "
        f"({RESTORED})",
    )
    target.add_argument(
        "--same-topics",
        action="store_true",
        help="send each record to the topic it came from, but for what --rename says: in another "
        "cluster, or where the source is gone or empty",
    )
    republish.add_argument(
        "--into-source",
        action="store_true",
        help="send also into a source that holds records: they will be there twice, and be drained "
        "again; without --target-topic, as --same-topics",
    )
    republish.add_argument(
        "--rename",
        metavar="TOPIC=TARGET",
        action="append",
        default=[],
        help="target of one source topic; can be repeated",
    )
    _selection(republish)
    _delivery(republish)
    republish.add_argument("--dry-run", action="store_true", help="show the plan, send nothing")


def _selection(republish: argparse.ArgumentParser) -> None:
    """Say which records."""
    which = republish.add_argument_group("which records (all of them, unless these say otherwise)")
    which.add_argument(
        "--topic", action="append", default=[], help="only of this topic; can be repeated"
    )
    which.add_argument(
        "--partition",
        metavar="NUMBER",
        action="append",
        default=[],
        help="only of this partition; can be repeated",
    )
    which.add_argument(
        "--offsets",
        metavar="TOPIC:PARTITION:START-END",
        action="append",
        default=[],
        help="only these offsets; the end is not part of them; can be repeated",
    )
    which.add_argument(
        "--from-time", metavar="TIME", help="only with this timestamp or a later one, in ISO 8601"
    )
    which.add_argument(
        "--to-time", metavar="TIME", help="only with a timestamp before this one, to the ms"
    )
    which.add_argument(
        "--sealed-only",
        action="store_true",
        help="leave out what no validation has sealed yet, instead of refusing",
    )
    which.add_argument(
        "--follow",
        action="store_true",
        help="only what was sealed since the last run with --follow: a mirror, run by run",
    )


def _delivery(republish: argparse.ArgumentParser) -> None:
    """Say how they are sent."""
    how = republish.add_argument_group("how they are sent")
    how.add_argument("--delivery", choices=list(DELIVERIES), default=EXACTLY_ONCE)
    how.add_argument(
        "--transactions",
        choices=TRANSACTIONS,
        default="strict",
        help="strict: one a producer epoch; fast: the producer is kept (%(default)s)",
    )
    how.add_argument("--engine", choices=ENGINES, default="auto")
    how.add_argument(
        "--placement",
        default="original",
        metavar="original|key|NUMBER",
        help="partition in the target: as it was, by key as Java producers do, or this one",
    )
    how.add_argument(
        "--provenance", action="store_true", help="add headers: source topic, partition, offset"
    )
    how.add_argument(
        "--create-target", action="store_true", help="make missing topics like their source"
    )
    how.add_argument(
        "--run", metavar="NAME", help="name of the run: the same name goes on with it, or is done"
    )
    how.add_argument(
        "--abandon",
        metavar="RUN",
        help="send nothing, but end a run that nobody goes on with: its files may go then; end its "
        "processes first",
    )
    how.add_argument(
        "--repeat",
        action="store_true",
        help="send also what an earlier run sent to the same topic: it will be there twice",
    )
    how.add_argument("--records-per-second", type=float, default=0, metavar="N", help="limit")
    how.add_argument("--bytes-per-second", type=float, default=0, metavar="N", help="limit")
    how.add_argument(
        "--processes", type=int, metavar="N", help="of engine worker (one a core, up to four)"
    )
