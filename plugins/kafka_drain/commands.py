"""The commands of `kafka-drain`: from parsed arguments to an answer and an exit code."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kafka_drain import jars
from kafka_drain.archive import Archive
from kafka_drain.draining import finish_drain, nothing_new, open_drain
from kafka_drain.errors import ConfigError, SparkJobError
from kafka_drain.findings import errors
from kafka_drain.inspection import committed_files, inspect_archive
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.kafka_config import KafkaConfig
from kafka_drain.lease import hold_lease
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.pipeline import Pipeline
from kafka_drain.repairing import plan_repair, repair_manifest
from kafka_drain.report import Report, write_report
from kafka_drain.republishing.plan import make_plan
from kafka_drain.republishing.spark import finish_republish, prepare_republish
from kafka_drain.republishing.worker import republish_in_worker
from kafka_drain.rolling import plan_roll, roll
from kafka_drain.sealing import Identity
from kafka_drain.spark_submit import SparkApplication
from kafka_drain.validation import validate_archive
from kafka_drain.windows import finish_window, open_window, prepare_window

__all__ = [
    "drain_command",
    "files_command",
    "inspect_command",
    "jars_command",
    "repair_command",
    "republish_command",
    "roll_command",
    "say",
    "validate_command",
]

OK, FAILED, USAGE = 0, 1, 2
BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _answer(options: argparse.Namespace, document: Any, show: Callable[[Console], None]) -> None:
    """Print the answer: JSON when it was asked for, else as people read it."""
    if options.json:
        print(json.dumps(document, indent=2))
        return
    # Away from a terminal a line is as long as it has to be.
    show(Console(width=None if sys.stdout.isatty() else 240, highlight=False))


def _print_fields(document: dict[str, Any]) -> Callable[[Console], None]:
    def show(console: Console) -> None:
        for name, value in document.items():
            written = f"{value:,}" if isinstance(value, int) else value
            console.print(f"{name.replace('_', ' '):<24}{written}", markup=False)

    return show


def drain_command(options: argparse.Namespace) -> int:
    """Drain what Kafka holds now."""
    pipeline = _pipeline(options)
    if options.log_level:
        pipeline = pipeline.with_log_level(options.log_level)
    with (
        tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder,
        open_drain(
            pipeline,
            _cluster(options),
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
            _submit(job.application, options.master, lambda: finish_drain(job))
            result = finish_drain(job)
    _answer(options, result, _print_fields(result))
    return OK


def validate_command(options: argparse.Namespace) -> int:
    """Validate an archive and seal what is proven."""
    archive = Archive.at(options.archive)
    cluster = _cluster(options) if _bootstrap_servers(options) else None
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

    _answer(options, document, show)
    return FAILED if errors(report.findings) else OK


def roll_command(options: argparse.Namespace) -> int:
    """Close the open generation and open the next one."""
    archive = Archive.at(options.archive)
    cluster = _cluster(options)
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
    _answer(options, plan.to_dict(), _print_fields(plan.to_dict()))
    return OK


def repair_command(options: argparse.Namespace) -> int:
    """Drain lost offsets again and write a damaged manifest anew; then validate."""
    archive, cluster = Archive.at(options.archive), _cluster(options)

    def validated() -> Report:
        return validate_archive(archive, cluster, say, deep=options.deep)

    report = validated()
    plan = plan_repair(archive, report)
    for line in plan.lines():
        say(line)
    if options.dry_run:
        say("dry run: nothing was changed")
        _answer(options, plan.to_dict(), _print_fields(plan.to_dict()))
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
    pipeline = _pipeline(options)
    document = archive.document()
    identity = Identity(document["pipeline"], document["cluster_id"], document["topics"])
    window = open_window(archive, key, ranges, pipeline=pipeline, replaces=replaces)
    with tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder:
        job = prepare_window(window, pipeline, cluster, Path(folder))
        _submit(job.application, options.master, lambda: finish_window(job, cluster, identity, say))
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

    _answer(options, document, show)
    return OK


def files_command(options: argparse.Namespace) -> int:
    """List the files that readers take."""
    files = committed_files(Archive.at(options.archive))

    def show(_: Console) -> None:
        for file in files:
            print(file["path"])

    _answer(options, files, show)
    return OK


def republish_command(options: argparse.Namespace) -> int:
    """Send an archive's records to Kafka."""
    cluster = _cluster(options)
    plan = make_plan(
        Archive.at(options.archive),
        cluster,
        engine=options.engine,
        target_topic=options.target_topic,
        topics=options.topic,
        say=say,
    )
    for line in plan.lines():
        say(line)
    result = plan.to_dict()
    if options.dry_run:
        say("dry run: nothing was sent")
    elif plan.engine == "worker":
        result |= republish_in_worker(plan, cluster, say)
    else:
        pipeline = _pipeline(options)
        with tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder:
            job = prepare_republish(plan, pipeline, cluster, Path(folder))
            _submit(job.application, options.master, lambda: finish_republish(job))
            result |= finish_republish(job)
    _answer(options, result, _print_fields({k: v for k, v in result.items() if k != "shards"}))
    return OK


def jars_command(options: argparse.Namespace) -> int:
    """Fetch the jars."""
    found = {}
    for conf in (jars.CONNECTOR, jars.BROKER) if options.broker else (jars.CONNECTOR,):
        found[conf] = [str(path) for path in jars.fetch(conf)]
    folders = {conf: f"{len(paths)} in {Path(paths[0]).parent}" for conf, paths in found.items()}
    _answer(options, found, _print_fields(folders))
    return OK


def _submit(application: SparkApplication, master: str, explain: Callable[[], object]) -> None:
    """Run spark-submit; its output goes to standard error."""
    environment = {**os.environ, **application.environment}
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ended = subprocess.run(application.command(master), env=environment, stdout=sys.stderr)
    if ended.returncode:
        # The result says what went wrong; without one, the exit code has to do.
        explain()
        raise SparkJobError(f"spark-submit ended with exit code {ended.returncode}")


def _bootstrap_servers(options: argparse.Namespace) -> bool:
    return bool(options.bootstrap_servers or options.kafka_config)


def _cluster(options: argparse.Namespace) -> KafkaCluster:
    settings: dict[str, Any] = {}
    if options.kafka_config:
        settings |= _json_file(options.kafka_config)
    if options.bootstrap_servers:
        settings["bootstrap.servers"] = options.bootstrap_servers
    if not settings:
        raise ConfigError(
            f"no Kafka named; give --bootstrap-servers, --kafka-config or ${BOOTSTRAP_VARIABLE}"
        )
    return KafkaCluster(KafkaConfig(settings))


def _json_file(path: str) -> dict[str, Any]:
    try:
        document = json.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} isn't JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no JSON object")
    return document


def _pairs(option: str, pairs: Sequence[str]) -> dict[str, str]:
    parsed = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found:
            raise ConfigError(f"{option} {pair!r} is not acceptable; accepted: NAME=VALUE")
        parsed[name] = value
    return parsed


def _pipeline(options: argparse.Namespace) -> Pipeline:
    """Put a pipeline together: from the archive, then the file, then the flags."""
    archive = Archive.at(options.archive)
    keys: dict[str, Any] = {"archive": str(archive.root), "name": archive.root.name}
    if archive.exists:
        document = archive.document()
        keys |= {"name": document["pipeline"], **document["source"]}
        if document.get("isolation_level", "read_committed") != "read_committed":
            keys["source_options"] = {"kafka.isolation.level": document["isolation_level"]}
        generation = archive.open_generation()
        if generation is not None:
            written = generation.document()
            keys |= {"format": written["format"], "partition_by": written["partition_by"]}
    given: dict[str, Any] = {}
    if getattr(options, "pipeline", None):
        given |= _json_file(options.pipeline)
    if options.name == "drain" and options.topic:
        given["topics"] = options.topic
    for flag in ("topic_pattern", "format", "compression", "partition_by"):
        if getattr(options, flag, None) is not None:
            given[flag] = getattr(options, flag)
    for flag in ("source_options", "sink_options", "spark_conf"):
        pairs = _pairs(f"--{flag.rstrip('s').replace('_', '-')}", getattr(options, flag, ()))
        if pairs:
            given[flag] = given.get(flag, {}) | pairs
    sources = {"topics", "topic_pattern", "assign"}
    if given.keys() & sources:
        keys = {name: value for name, value in keys.items() if name not in sources}
    return Pipeline(**(keys | given))
