"""Arguments that commands share: the archive, Kafka, Spark."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.console import say, say_lines
from kafka_drain.errors import ConfigError, NotWritableError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster, watched
from kafka_drain.schemas.registry import SchemaRegistry

if TYPE_CHECKING:
    from kafka_drain.evidence.signing import Signer

_BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
#: librdkafka's names of the setting.
_BOOTSTRAP_NAMES = {"bootstrap.servers", "metadata.broker.list"}


def add_archive(parser: argparse.ArgumentParser) -> None:
    """Add the archive, which every command takes."""
    parser.add_argument("archive", type=os.path.expanduser, help="the archive's folder")


def add_state(parser: argparse.ArgumentParser) -> None:
    """Add another place for what runs keep in the archive."""
    parser.add_argument(
        "--state",
        metavar="FOLDER",
        type=os.path.expanduser,
        help="keep plans, progress and results in this folder, an empty or a new one at first, for "
        "an archive that this user may only read (default: the archive's folder)",
    )


def archive_from(options: argparse.Namespace) -> Archive:
    """Return the archive, with the place that `add_state` names for what runs keep.

    Raises:
        ConfigError: When that place has something else in it, or results are to be signed.
        ArchiveError: When it belongs to another archive.
    """
    archive = Archive.at(options.archive)
    if options.state is None:
        return archive
    if getattr(options, "evidence_key", None) is not None:
        raise ConfigError(
            "--evidence-key signs what lies in the archive, and --state keeps it elsewhere; leave "
            "one of them out"
        )
    return archive.keeping_state_in(options.state)


@contextmanager
def naming_state(options: argparse.Namespace) -> Iterator[None]:
    """Name `--state` where an archive can't be written."""
    try:
        yield
    except NotWritableError as error:
        if options.state is not None:
            raise
        raise NotWritableError(
            f"{error}. For an archive that this user may only read, give a place for what a run "
            "keeps: --state FOLDER"
        ) from error


def add_kafka(parser: argparse.ArgumentParser) -> None:
    """Add where Kafka is, and how to connect."""
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help=f"Kafka's brokers (default: those of --kafka-config, or ${_BOOTSTRAP_VARIABLE})",
    )
    parser.add_argument(
        "--kafka-config",
        metavar="FILE",
        help="JSON file with librdkafka settings, for those that must not be on a command line",
    )


def add_target(parser: argparse.ArgumentParser, what: str) -> None:
    """Add another cluster than the source's.

    Args:
        parser: The command's parser.
        what: The cluster's purpose, such as "that gets the records".
    """
    parser.add_argument(
        "--to-bootstrap", metavar="HOST:PORT", help=f"brokers of the cluster {what}"
    )
    parser.add_argument(
        "--to-kafka-config",
        metavar="FILE",
        help="JSON file with librdkafka settings of that cluster, for those that must not be on a "
        "command line",
    )


def add_spark(parser: argparse.ArgumentParser, master: str = "Spark master (%(default)s)") -> None:
    """Add the Spark master and its configuration."""
    parser.add_argument("--master", default="local[*]", help=master)
    parser.add_argument(
        "--deploy-mode",
        choices=("client", "cluster"),
        default="client",
        help="where the driver runs: in this command (%(default)s), or in the cluster",
    )
    parser.add_argument(
        *("--spark-conf", "--conf"),
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="Spark configuration; can be repeated",
    )


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands whose Spark job drains to an archive or rewrites its files."""
    add_archive(parser)
    add_kafka(parser)
    add_spark(parser)


def add_deep(parser: argparse.ArgumentParser) -> None:
    """Add the flag that reads all bytes."""
    parser.add_argument("--deep", action="store_true", help="read all bytes of sealed files")


def add_evidence(parser: argparse.ArgumentParser, *, witness: bool = False) -> None:
    """Add the key that signs what the command finds, and the witness if it has one."""
    parser.add_argument(
        "--evidence-key",
        metavar="FILE",
        help="sign the result with this private key (see evidence-key), in the archive's evidence/",
    )
    if witness:
        parser.add_argument(
            "--witness",
            metavar="FILE|kafka:TOPIC",
            help="compare the archive with this file or topic outside of it, and append what it "
            "has now; needs --evidence-key",
        )
        parser.add_argument(
            "--former-key",
            metavar="FILE",
            action="append",
            default=[],
            help="public key that signed earlier lines of the witness; can be repeated",
        )


def add_apply(
    parser: argparse.ArgumentParser,
    what: str = "carry it out; without it, only the plan is shown and nothing is changed",
) -> None:
    """Add `--apply` to a command that sends, replaces or deletes: by default it does nothing.

    `options.apply` is None if the user says neither `--apply` nor `--dry-run`; then
    `options.needs_apply` decides, which a command may change: see `plan_answer.acts`.
    """
    told = parser.add_mutually_exclusive_group()
    told.add_argument("--apply", action="store_true", default=None, help=what)
    _add_dry_run(told)
    parser.set_defaults(needs_apply=True)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run` to a command that only adds to the archive, and acts by default."""
    _add_dry_run(parser)
    parser.set_defaults(needs_apply=False)


def _add_dry_run(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--dry-run",
        dest="apply",
        action="store_false",
        default=None,
        help="show the plan, change nothing",
    )


def names_kafka(options: argparse.Namespace) -> bool:
    """Return whether a Kafka cluster was given."""
    return bool(
        options.bootstrap_servers or options.kafka_config or os.environ.get(_BOOTSTRAP_VARIABLE)
    )


def connection_settings(
    bootstrap_servers: str | None,
    file: Mapping[str, Any],
    environment: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return librdkafka's settings: the command line's over the file's over the environment's.

    A file's logins go to the brokers that the file names, whatever the environment says.

    Args:
        bootstrap_servers: The brokers that the command line names; None for none.
        file: Settings in the file that it names; empty for none.
        environment: The environment's variables; none for a cluster that they don't mean.
    """
    settings = dict(file)
    if bootstrap_servers:
        for name in _BOOTSTRAP_NAMES:
            settings.pop(name, None)
        settings["bootstrap.servers"] = bootstrap_servers
    elif not settings.keys() & _BOOTSTRAP_NAMES and environment.get(_BOOTSTRAP_VARIABLE):
        settings["bootstrap.servers"] = environment[_BOOTSTRAP_VARIABLE]
    return settings


def cluster_from(options: argparse.Namespace) -> KafkaCluster:
    """Return the cluster that the options name."""
    settings = connection_settings(
        options.bootstrap_servers, file_or_nothing(options.kafka_config), os.environ
    )
    if not settings:
        raise ConfigError(
            f"no Kafka given; pass --bootstrap-servers or --kafka-config, or set "
            f"${_BOOTSTRAP_VARIABLE}"
        )
    config = KafkaConfig(settings)
    say_lines(f"Kafka connection: {warning}" for warning in config.warnings)
    cluster = options.cluster = watched(config, say)
    return cluster


def target_from(options: argparse.Namespace, why: str) -> KafkaCluster:
    """Return the cluster that the options of `add_target` name.

    Args:
        options: The command's arguments.
        why: Why it has to be named, for the error message.
    """
    settings = connection_settings(options.to_bootstrap, file_or_nothing(options.to_kafka_config))
    if not settings:
        raise ConfigError(f"no target given; pass --to-bootstrap or --to-kafka-config: {why}")
    cluster = options.cluster = watched(KafkaConfig(settings), say)
    return cluster


def registry_from(options: argparse.Namespace) -> SchemaRegistry | None:
    """Return the Schema Registry that the options name; None without one."""
    path = options.registry_config
    return SchemaRegistry(json_file(path)) if path else None


def file_or_nothing(path: str | None) -> dict[str, Any]:
    """Read a JSON object from a file, if an option names one."""
    return json_file(path) if path else {}


def json_file(path: str) -> dict[str, Any]:
    """Read a JSON object from a file that an option names."""

    def named_once(names: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in names:
            # Nobody would see which counts. Not the values, which may be secret.
            if found.setdefault(name, value) != value:
                raise ConfigError(f"{path} has {name!r} twice, with two values; give one of them")
        return found

    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=named_once)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} isn't JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} contains no JSON object")
    return document


def signer_from(options: argparse.Namespace) -> Signer | None:
    """Return the signer with its witness; None without a key.

    Raises:
        ConfigError: When there is a witness without a key, or a key that isn't acceptable.
    """
    witness = getattr(options, "witness", None)
    if witness is None and getattr(options, "former_key", None):
        raise ConfigError("--former-key needs --witness: its key signed lines of the witness")
    if options.evidence_key is None:
        if witness is not None:
            raise ConfigError("--witness needs --evidence-key: each of its lines is signed")
        return None
    # Not at the top: the library for it takes longer to import than most commands run.
    from kafka_drain.evidence.keys import PublicKey, SigningKey
    from kafka_drain.evidence.signing import Signer
    from kafka_drain.evidence.witness import open_witness

    return Signer(
        SigningKey.read(options.evidence_key),
        [PublicKey.read(path) for path in getattr(options, "former_key", ())],
        None
        if witness is None
        else open_witness(_absolute(witness), lambda: cluster_from(options)),
    )


def _absolute(witness: str) -> str:
    return witness if witness.startswith("kafka:") else str(Path(witness).absolute())
