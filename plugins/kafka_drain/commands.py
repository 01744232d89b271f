"""The commands of `kafka-drain`: from parsed arguments to an answer and an exit code."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kafka_drain import jars
from kafka_drain.archive import Archive
from kafka_drain.draining import finish_drain, nothing_new, open_drain
from kafka_drain.findings import errors
from kafka_drain.inspection import committed_files, inspect_archive
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.lease import hold_lease
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.repairing import plan_repair, repair_manifest
from kafka_drain.report import Report, write_report
from kafka_drain.rolling import plan_roll, roll
from kafka_drain.sealing import Identity
from kafka_drain.terminal import (
    FAILED,
    OK,
    answer,
    bootstrap_servers,
    print_fields,
    say,
    submit,
    the_cluster,
    the_pipeline,
)
from kafka_drain.validation import validate_archive
from kafka_drain.windows import finish_window, open_window, prepare_window

__all__ = [
    "drain_command",
    "files_command",
    "inspect_command",
    "jars_command",
    "repair_command",
    "roll_command",
    "validate_command",
]


def drain_command(options: argparse.Namespace) -> int:
    """Drain what Kafka holds now."""
    pipeline = the_pipeline(options)
    if options.log_level:
        pipeline = pipeline.with_log_level(options.log_level)
    with (
        tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder,
        open_drain(
            pipeline,
            the_cluster(options),
            Path(folder),
            run="terminal",
            say=say,
            acknowledge_expired=options.acknowledge_expired,
        ) as job,
    ):
        for line in job.plan.lines():
            say(line)
        if job.plan.nothing_new:
            result = nothing_new(job.plan)
        else:
            submit(job.application, options.master, lambda: finish_drain(job))
            result = finish_drain(job)
    answer(options, result, print_fields(result))
    return OK


def validate_command(options: argparse.Namespace) -> int:
    """Validate an archive and seal what is proven."""
    archive = Archive.at(options.archive)
    cluster = the_cluster(options) if bootstrap_servers(options) else None
    report = validate_archive(
        archive,
        cluster,
        say,
        scope=options.scope,
        deep=options.deep,
        acknowledge_expired=options.acknowledge_expired,
    )
    return _answer_report(options, archive, report)


def _answer_report(options: argparse.Namespace, archive: Archive, report: Report) -> int:
    document = report.to_dict() | {"report": write_report(archive, report)}

    def show(console: Console) -> None:
        for line in report.lines():
            console.print(line, markup=False)
        console.print(f"report: {document['report']}", markup=False)

    answer(options, document, show)
    return FAILED if errors(report.findings) else OK


def roll_command(options: argparse.Namespace) -> int:
    """Close the open generation and open the next one."""
    archive = Archive.at(options.archive)
    cluster = the_cluster(options)
    plan = plan_roll(archive, cluster)
    if options.dry_run:
        for line in plan.lines():
            say(line)
        say("dry run: nothing was changed")
    else:
        with hold_lease(archive.root, run="terminal", say=say):
            plan = plan_roll(archive, cluster)
            for line in plan.lines():
                say(line)
            roll(plan, say)
    answer(options, plan.to_dict(), print_fields(plan.to_dict()))
    return OK


def repair_command(options: argparse.Namespace) -> int:
    """Drain lost offsets again and write a damaged manifest anew; then validate."""
    archive, cluster = Archive.at(options.archive), the_cluster(options)

    def validated() -> Report:
        return validate_archive(archive, cluster, say, deep=options.deep)

    report = validated()
    plan = plan_repair(archive, report)
    for line in plan.lines():
        say(line)
    if options.dry_run:
        say("dry run: nothing was changed")
        answer(options, plan.to_dict(), print_fields(plan.to_dict()))
        return FAILED if errors(report.findings) else OK
    if plan.nothing_to_do:
        return _answer_report(options, archive, report)
    with hold_lease(archive.root, run="terminal", say=say):
        if plan.manifest is not None:
            say(f"repair {archive.root}: the manifest lists {repair_manifest(plan):,} files again")
            # What looked lost may only have been unlisted.
            plan = plan_repair(archive, validated())
        if plan.ranges:
            _drain_window(options, archive, cluster, plan.ranges, plan.window_key, plan.replaces)
    return _answer_report(options, archive, validated())


def _drain_window(
    options: argparse.Namespace,
    archive: Archive,
    cluster: KafkaCluster,
    ranges: dict[TopicPartition, list[OffsetRange]],
    key: str,
    replaces: list[str],
) -> None:
    pipeline = the_pipeline(options)
    document = archive.document()
    identity = Identity(document["pipeline"], document["cluster_id"], document["topics"])
    window = open_window(archive, key, ranges, pipeline=pipeline, replaces=replaces)
    with tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder:
        job = prepare_window(
            window, window.ranges(), pipeline=pipeline, cluster=cluster, folder=Path(folder)
        )
        submit(job.application, options.master, lambda: finish_window(job, cluster, identity, say))
        receipt = finish_window(job, cluster, identity, say)
    say(f"repair {archive.root}: window {window.key} holds {receipt.records:,} records, sealed")


def inspect_command(options: argparse.Namespace) -> int:
    """Show what an archive holds."""
    document = inspect_archive(Archive.at(options.archive))

    def show(console: Console) -> None:
        console.print(
            f"{document['archive']}: pipeline {document['pipeline']}, Kafka cluster "
            f"{document['cluster_id']}",
            markup=False,
        )
        for generation in document["generations"]:
            console.print(
                f"generation {generation['generation']}: {generation['format']}, opened "
                f"{generation['opened_at']} ({generation['reason']}), "
                f"{generation['batches']:,} batches, {generation['files']:,} files, "
                f"{generation['bytes'] / 1e6:,.1f} MB",
                markup=False,
            )
            table = Table("topic", "partition", "start", "end", "offsets")
            for row in generation["partitions"]:
                numbers = (f"{row[name]:,}" for name in ("start", "end", "offsets"))
                table.add_row(row["topic"], str(row["partition"]), *numbers)
            console.print(table)
        for window in document["windows"]:
            console.print(
                f"window {window['window']}: {window['format']}, {window['records']:,} records, "
                f"{window['files']:,} files, {window['bytes'] / 1e6:,.1f} MB",
                markup=False,
            )

    answer(options, document, show)
    return OK


def files_command(options: argparse.Namespace) -> int:
    """List the files that readers take."""
    files = committed_files(Archive.at(options.archive))

    def show(_: Console) -> None:
        for file in files:
            print(file["path"])

    answer(options, files, show)
    return OK


def jars_command(options: argparse.Namespace) -> int:
    """Fetch the jars."""
    found = {}
    for conf in (jars.CONNECTOR, jars.BROKER) if options.broker else (jars.CONNECTOR,):
        found[conf] = [str(path) for path in jars.fetch(conf)]
    folders = {conf: f"{len(paths)} in {Path(paths[0]).parent}" for conf, paths in found.items()}
    answer(options, found, print_fields(folders))
    return OK
