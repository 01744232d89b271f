"""`kafka-drain`: the same functions as the operators, for people at a terminal.

Answers go to standard output (a table, or JSON with `--json`); progress and errors to standard
error. Exit codes: 0 done or complete, 1 failed or findings, 2 usage, configuration or wrong folder.
"""

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
from kafka_drain.draining import finish_drain, nothing_new, prepare_drain
from kafka_drain.errors import ArchiveError, ConfigError, KafkaDrainError, SparkJobError
from kafka_drain.findings import errors
from kafka_drain.inspection import committed_files, inspect_archive
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.kafka_config import KafkaConfig
from kafka_drain.pipeline import Pipeline
from kafka_drain.report import write_report
from kafka_drain.republishing.plan import ENGINES, make_plan
from kafka_drain.republishing.spark import finish_republish, prepare_republish
from kafka_drain.republishing.worker import republish_in_worker
from kafka_drain.spark_submit import SparkApplication
from kafka_drain.validation import validate_archive

__all__ = ["main"]

OK, FAILED, USAGE = 0, 1, 2
BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        return code
    except (ConfigError, ArchiveError) as error:
        _say(f"kafka-drain {options.name}: {error}")
        return USAGE
    except KafkaDrainError as error:
        _say(f"kafka-drain {options.name}: {error}")
        return FAILED
    except BrokenPipeError:
        # The reader (`head`) has seen enough.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - has to stay open until the end
        return OK
    except KeyboardInterrupt:
        return 130


def _say(line: str) -> None:
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


# --- commands -------------------------------------------------------------------------------


def _drain(options: argparse.Namespace) -> int:
    pipeline = _pipeline(options)
    if options.log_level:
        pipeline = pipeline.with_log_level(options.log_level)
    with tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder:
        job = prepare_drain(pipeline, _cluster(options), Path(folder))
        for line in job.plan.lines():
            _say(line)
        if job.plan.nothing_new:
            result = nothing_new(job.plan)
        else:
            _submit(job.application, options.master, lambda: finish_drain(job))
            result = finish_drain(job)
    _answer(options, result, _print_fields(result))
    return OK


def _validate(options: argparse.Namespace) -> int:
    archive = Archive.at(options.archive)
    cluster = _cluster(options) if _bootstrap_servers(options) else None
    report = validate_archive(archive, cluster, _say)
    document = report.to_dict() | {"report": write_report(archive, report)}

    def show(console: Console) -> None:
        for line in report.lines():
            console.print(line, markup=False)
        console.print(f"report: {document['report']}", markup=False)

    _answer(options, document, show)
    return FAILED if errors(report.findings) else OK


def _inspect(options: argparse.Namespace) -> int:
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


def _files(options: argparse.Namespace) -> int:
    files = committed_files(Archive.at(options.archive))

    def show(_: Console) -> None:
        for file in files:
            print(file["path"])

    _answer(options, files, show)
    return OK


def _republish(options: argparse.Namespace) -> int:
    cluster = _cluster(options)
    plan = make_plan(
        Archive.at(options.archive),
        cluster,
        engine=options.engine,
        target_topic=options.target_topic,
        topics=options.topic,
        say=_say,
    )
    for line in plan.lines():
        _say(line)
    result = plan.to_dict()
    if options.dry_run:
        _say("dry run: nothing was sent")
    elif plan.engine == "worker":
        result |= republish_in_worker(plan, cluster, _say)
    else:
        pipeline = _pipeline(options)
        with tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder:
            job = prepare_republish(plan, pipeline, cluster, Path(folder))
            _submit(job.application, options.master, lambda: finish_republish(job))
            result |= finish_republish(job)
    _answer(options, result, _print_fields({k: v for k, v in result.items() if k != "shards"}))
    return OK


def _jars(options: argparse.Namespace) -> int:
    found = {}
    for conf in (jars.CONNECTOR, jars.BROKER) if options.broker else (jars.CONNECTOR,):
        found[conf] = [str(path) for path in jars.fetch(conf)]
    folders = {conf: f"{len(paths)} in {Path(paths[0]).parent}" for conf, paths in found.items()}
    _answer(options, found, _print_fields(folders))
    return OK


def _submit(
    application: SparkApplication, master: str, explain: Callable[[], dict[str, Any]]
) -> None:
    """Run spark-submit; its output goes to standard error."""
    environment = {**os.environ, **application.environment}
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ended = subprocess.run(application.command(master), env=environment, stdout=sys.stderr)
    if ended.returncode:
        # The result says what went wrong; without one, the exit code has to do.
        explain()
        raise SparkJobError(f"spark-submit ended with exit code {ended.returncode}")


# --- arguments ------------------------------------------------------------------------------


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
        generation = archive.open_generation()
        if generation is not None:
            written = generation.document()
            keys |= {"format": written["format"], "partition_by": written["partition_by"]}
    given: dict[str, Any] = {}
    if getattr(options, "pipeline", None):
        given |= _json_file(options.pipeline)
    if options.topic and options.name == "drain":
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafka-drain",
        description="Drain Kafka topics to files, prove that every offset arrived, republish them.",
    )
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=run)
        added.add_argument("--json", action="store_true", help="print the answer as JSON")
        return added

    def archive(added: argparse.ArgumentParser) -> None:
        added.add_argument("archive", help="the archive's folder")

    def kafka(added: argparse.ArgumentParser) -> None:
        added.add_argument(
            "--bootstrap-servers",
            metavar="HOST:PORT",
            default=os.environ.get(BOOTSTRAP_VARIABLE),
            help=f"Kafka's brokers (default: ${BOOTSTRAP_VARIABLE})",
        )
        added.add_argument(
            "--kafka-config",
            metavar="FILE",
            help="JSON file with librdkafka's settings, for what must not stand on a command line",
        )

    def spark(added: argparse.ArgumentParser) -> None:
        added.add_argument("--master", default="local[*]", help="Spark's master (%(default)s)")
        added.add_argument(
            *("--spark-conf", "--conf"),
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help="Spark configuration; can be repeated",
        )

    drain = command("drain", _drain, "drain what Kafka holds now to the archive")
    archive(drain)
    kafka(drain)
    spark(drain)
    drain.add_argument(
        "--topic", action="append", default=[], help="topic to drain; can be repeated"
    )
    drain.add_argument("--topic-pattern", metavar="REGEX", help="drain the topics that match")
    drain.add_argument("--pipeline", metavar="FILE", help="JSON file with a pipeline's keys")
    drain.add_argument(
        "--log-level", metavar="LEVEL", help="of Spark's Kafka and sink classes, such as DEBUG"
    )
    drain.add_argument("--format", help="parquet, avro, json or orc (parquet)")
    drain.add_argument("--compression", help="zstd, or gzip for JSON, if not said")
    drain.add_argument(
        "--partition-by", nargs="*", metavar="COLUMN", help="topic, date, hour (topic date)"
    )
    drain.add_argument(
        "--source-option",
        dest="source_options",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="option of Spark's Kafka source; can be repeated",
    )
    drain.add_argument(
        "--sink-option",
        dest="sink_options",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="option of Spark's file sink; can be repeated",
    )

    validate = command("validate", _validate, "prove that every drained offset is there")
    archive(validate)
    kafka(validate)

    inspect = command("inspect", _inspect, "show what an archive holds")
    archive(inspect)

    files = command("files", _files, "list the committed data files, one a line")
    archive(files)

    republish = command("republish", _republish, "send an archive's records to Kafka")
    archive(republish)
    kafka(republish)
    spark(republish)
    target = republish.add_mutually_exclusive_group(required=True)
    target.add_argument("--target-topic", help="target of all records")
    target.add_argument(
        "--same-topics", action="store_true", help="send each record to the topic it came from"
    )
    republish.add_argument(
        "--topic", action="append", default=[], help="only records of this topic; can be repeated"
    )
    republish.add_argument("--engine", choices=sorted(ENGINES), default="worker")
    republish.add_argument("--dry-run", action="store_true", help="show the plan, send nothing")

    fetch = command("jars", _jars, "fetch the jars that Spark needs; the only command that does")
    fetch.add_argument("--broker", action="store_true", help="those of the local broker as well")
    return parser


if __name__ == "__main__":
    sys.exit(main())
