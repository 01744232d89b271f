"""Arguments that commands share: the archive, Kafka, Spark."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka_drain.cli.console import say
from kafka_drain.errors import ConfigError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.schemas.registry import SchemaRegistry

__all__ = [
    "add_acknowledgement",
    "add_apply",
    "add_archive",
    "add_dry_run",
    "add_kafka",
    "add_spark",
    "json_file",
    "names_kafka",
    "pairs",
    "say_dry_run",
    "the_cluster",
    "the_registry",
]

_BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"


def add_archive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", help="the archive's folder")


def add_kafka(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        default=os.environ.get(_BOOTSTRAP_VARIABLE),
        help=f"Kafka's brokers (default: ${_BOOTSTRAP_VARIABLE})",
    )
    parser.add_argument(
        "--kafka-config",
        metavar="FILE",
        help="JSON file with librdkafka settings, for those that must not be on a command line",
    )


def add_spark(parser: argparse.ArgumentParser, master: str = "Spark master (%(default)s)") -> None:
    parser.add_argument("--master", default="local[*]", help=master)
    parser.add_argument(
        *("--spark-conf", "--conf"),
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="Spark configuration; can be repeated",
    )


def add_acknowledgement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--acknowledge-expired",
        metavar="TOPIC:PARTITION:START-END",
        action="append",
        default=[],
        help="accept that these offsets expired before they were drained; can be repeated",
    )


def add_apply(
    parser: argparse.ArgumentParser,
    what: str = "carry it out; without it, only the plan is shown and nothing is changed",
) -> None:
    """Add `--apply` to a command that sends, replaces or deletes: by default it does nothing."""
    told = parser.add_mutually_exclusive_group()
    told.add_argument("--apply", action="store_true", help=what)
    told.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run` to a command that only adds to the archive, and acts by default."""
    parser.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")


def say_dry_run(how: str = "pass --apply to carry it out") -> None:
    """Say that nothing was done, and how to do it."""
    say(f"dry run: nothing was changed; {how}")


def names_kafka(options: argparse.Namespace) -> bool:
    """Return whether a Kafka cluster was given."""
    return bool(options.bootstrap_servers or options.kafka_config)


def the_cluster(options: argparse.Namespace) -> KafkaCluster:
    settings: dict[str, Any] = {}
    if options.kafka_config:
        settings |= json_file(options.kafka_config)
    if options.bootstrap_servers:
        settings["bootstrap.servers"] = options.bootstrap_servers
    if not settings:
        raise ConfigError(
            f"no Kafka given; pass --bootstrap-servers or --kafka-config, or set "
            f"${_BOOTSTRAP_VARIABLE}"
        )
    return KafkaCluster(KafkaConfig(settings))


def the_registry(options: argparse.Namespace) -> SchemaRegistry | None:
    path = options.registry_config
    return SchemaRegistry(json_file(path)) if path else None


def json_file(path: str) -> dict[str, Any]:
    try:
        document = json.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} isn't JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} contains no JSON object")
    return document


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    parsed = {}
    for pair in texts:
        name, found, value = pair.partition("=")
        if not found:
            raise ConfigError(f"{option} {pair!r} is not acceptable; accepted: NAME=VALUE")
        parsed[name] = value
    return parsed
