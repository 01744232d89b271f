"""What the commands of `kafka-drain` share: from flags to clusters and pipelines, and answers."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from kafka_drain.archive import Archive
from kafka_drain.errors import ConfigError, SparkJobError
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.kafka_config import KafkaConfig
from kafka_drain.pipeline import Pipeline
from kafka_drain.spark_submit import SparkApplication

__all__ = [
    "BOOTSTRAP_VARIABLE",
    "FAILED",
    "OK",
    "USAGE",
    "answer",
    "bootstrap_servers",
    "json_file",
    "pairs",
    "print_fields",
    "run_environment",
    "say",
    "submit",
    "the_cluster",
    "the_pipeline",
]

OK, FAILED, USAGE = 0, 1, 2
#: Flags that are keys of a pipeline.
FLAGS = (
    "topic_pattern",
    "format",
    "compression",
    "partition_by",
    "target_file_bytes",
    "retention_days",
    "max_manifest_lines",
    "max_generation_days",
)
BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def answer(options: argparse.Namespace, document: Any, show: Callable[[Console], None]) -> None:
    """Print the answer: JSON when it was asked for, else as people read it."""
    if options.json:
        print(json.dumps(document, indent=2))
        return
    # Away from a terminal a line is as long as it has to be.
    show(Console(width=None if sys.stdout.isatty() else 240, highlight=False))


def print_fields(document: dict[str, Any]) -> Callable[[Console], None]:
    def show(console: Console) -> None:
        for name, value in document.items():
            written = f"{value:,}" if isinstance(value, int) else value
            console.print(f"{name.replace('_', ' '):<24}{written}", markup=False)

    return show


def submit(application: SparkApplication, master: str, explain: Callable[[], object]) -> None:
    """Run spark-submit; its output goes to standard error."""
    environment = run_environment(application, master)
    ended = subprocess.run(application.command(master), env=environment, stdout=sys.stderr)
    if ended.returncode:
        # The result says what went wrong; without one, the exit code has to do.
        explain()
        raise SparkJobError(f"spark-submit ended with exit code {ended.returncode}")


def run_environment(application: SparkApplication, master: str) -> dict[str, str]:
    """Return the environment of spark-submit."""
    environment = {**os.environ, **application.environment}
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment


def bootstrap_servers(options: argparse.Namespace) -> bool:
    return bool(options.bootstrap_servers or options.kafka_config)


def the_cluster(options: argparse.Namespace) -> KafkaCluster:
    settings: dict[str, Any] = {}
    if options.kafka_config:
        settings |= json_file(options.kafka_config)
    if options.bootstrap_servers:
        settings["bootstrap.servers"] = options.bootstrap_servers
    if not settings:
        raise ConfigError(
            f"no Kafka named; give --bootstrap-servers, --kafka-config or ${BOOTSTRAP_VARIABLE}"
        )
    return KafkaCluster(KafkaConfig(settings))


def json_file(path: str) -> dict[str, Any]:
    try:
        document = json.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} isn't JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no JSON object")
    return document


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    parsed = {}
    for pair in texts:
        name, found, value = pair.partition("=")
        if not found:
            raise ConfigError(f"{option} {pair!r} is not acceptable; accepted: NAME=VALUE")
        parsed[name] = value
    return parsed


def the_pipeline(options: argparse.Namespace) -> Pipeline:
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
        given |= json_file(options.pipeline)
    if options.name == "drain" and options.topic:
        given["topics"] = options.topic
    for flag in FLAGS:
        if getattr(options, flag, None) is not None:
            given[flag] = getattr(options, flag)
    for flag in ("source_options", "sink_options", "spark_conf"):
        given_pairs = pairs(f"--{flag.rstrip('s').replace('_', '-')}", getattr(options, flag, ()))
        if given_pairs:
            given[flag] = given.get(flag, {}) | given_pairs
    sources = {"topics", "topic_pattern", "assign"}
    if given.keys() & sources:
        keys = {name: value for name, value in keys.items() if name not in sources}
    return Pipeline(**(keys | given))
