"""Airflow's connections as the core wants them, and the core's errors as Airflow wants them."""

from __future__ import annotations

import logging
import os
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowNotFoundException,
    BaseHook,
)

from kafka_drain.errors import ConfigError, TerminalError
from kafka_drain.storage.s3 import scheme_of, variables_of

if TYPE_CHECKING:
    from kafka_drain.config.pipeline import Pipeline
    from kafka_drain.kafka.cluster import KafkaCluster
    from kafka_drain.schemas.registry import SchemaRegistry
    from kafka_drain.spark.runner import SparkConnection

__all__ = [
    "archive_access",
    "is_true",
    "kafka_cluster",
    "listed",
    "require_connection",
    "schema_registry",
    "spark_connection",
    "terminal_errors_fail",
]

log = logging.getLogger(__name__)

#: The programs that a Spark connection may name, found on the PATH; the first one if it names none.
SPARK_BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")


def kafka_cluster(conn_id: str) -> KafkaCluster:
    """Return the Kafka cluster that a connection of type Kafka leads to.

    Raises:
        ConfigError: When there is no such connection, or a setting is not accepted.
    """
    # Not at the top: DAG files import this module, and confluent_kafka takes its time.
    from kafka_drain.kafka.client_config import KafkaConfig
    from kafka_drain.kafka.cluster import KafkaCluster

    require_connection(conn_id, "Kafka", '{"bootstrap.servers": "host:9092"} as its extra')
    return KafkaCluster(KafkaConfig(BaseHook.get_connection(conn_id).extra_dejson))


def schema_registry(pipeline: Pipeline) -> SchemaRegistry | None:
    """Return the Schema Registry of a pipeline's values; None when it needs none.

    Raises:
        ConfigError: When there is no such connection, or a setting is not accepted.
    """
    from kafka_drain.schemas.registry import SchemaRegistry

    conn_id = pipeline.values.registry_conn_id if pipeline.values else None
    if conn_id is None:
        return None
    require_connection(conn_id, "Generic", '{"url": "https://host:8081"} as its extra')
    return SchemaRegistry(BaseHook.get_connection(conn_id).extra_dejson)


@contextmanager
def archive_access(pipeline: Pipeline) -> Iterator[None]:
    """Open the archive's store by the pipeline's `archive_conn_id`, while the body runs.

    This process's environment has the connection's credentials meanwhile, as AWS's own variables:
    what it starts, such as Spark's driver, inherits them, and no command line shows them.

    Raises:
        ConfigError: When there is no such connection, or it has what isn't accepted.
    """
    conn_id = pipeline.archive_conn_id
    if conn_id is None:
        yield
        return
    needs = "the access key's id as its login and the secret key as its password"
    require_connection(conn_id, "Amazon Web Services", needs)
    connection = BaseHook.get_connection(conn_id)
    variables = variables_of(
        conn_id, connection.login, connection.password, connection.extra_dejson
    )
    before = dict(os.environ)
    if "AWS_ACCESS_KEY_ID" in variables:
        for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
            os.environ.pop(name, None)
    os.environ.update(variables)
    # fsspec keeps file systems, with the credentials that they have found.
    from fsspec import get_filesystem_class  # type: ignore[import-untyped]

    filesystem = get_filesystem_class(scheme_of(pipeline.archive))
    filesystem.clear_instance_cache()
    try:
        yield
    finally:
        filesystem.clear_instance_cache()
        for name in variables.keys() | {"AWS_SESSION_TOKEN", "AWS_PROFILE"}:
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


def require_connection(conn_id: str, kind: str, needs: str) -> None:
    """Refuse a connection id that doesn't exist.

    Raises:
        ConfigError: Says how to make one.
    """
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise ConfigError(
            f"there is no Airflow connection {conn_id!r}; make one of type {kind} with {needs} "
            f"(Admin, Connections), or set the variable AIRFLOW_CONN_{conn_id.upper()}"
        ) from error


def spark_connection(conn_id: str) -> SparkConnection:
    """Return what a connection of type Spark says, as Airflow's own provider reads it.

    Raises:
        ConfigError: When there is none (Airflow's provider would take YARN), it names no master,
            the driver wouldn't run on this machine, or something in it isn't accepted.
    """
    from kafka_drain.spark.runner import SparkConnection

    require_connection(conn_id, "Spark", "the master as its host, for example local[*]")
    connection = BaseHook.get_connection(conn_id)
    extra = connection.extra_dejson
    who = f"the Airflow connection {conn_id!r}"
    if not connection.host:
        raise ConfigError(f"{who} has no host; expected the Spark master, for example local[*]")
    if (mode := extra.get("deploy-mode")) not in (None, "", "client"):
        raise ConfigError(
            f"{who} has deploy-mode {mode!r}, accepted: client. The driver reads its job spec from "
            "this machine and writes its result here; executors may be anywhere"
        )
    binary = extra.get("spark-binary") or SPARK_BINARIES[0]
    if binary not in SPARK_BINARIES:
        accepted = ", ".join(SPARK_BINARIES)
        raise ConfigError(f"{who} has spark-binary {binary!r}, accepted: {accepted}")
    options = [
        part
        for name in ("queue", "principal")
        if extra.get(name)
        for part in (f"--{name}", str(extra[name]))
    ]
    if extra.get("namespace"):
        options += ["--conf", f"spark.kubernetes.namespace={extra['namespace']}"]
    try:
        keytab = b64decode(extra.get("keytab") or "", validate=True)
    except ValueError as error:
        raise ConfigError(f"{who} has a keytab that isn't base64 of one") from error
    return SparkConnection(_master(connection), options, binary, keytab)


def _master(connection: Any) -> str:
    """Return the Spark master; of a connection given as a URI, the scheme is its type."""
    host, port = connection.host, connection.port
    if connection.conn_type != "spark" or ("://" not in host and port):
        host = f"{connection.conn_type}://{host}"
    return f"{host}:{port}" if port else host


def listed(value: Any) -> list[str]:
    """Return what a form or a template gave as a list: none, one, or several.

    Blank lines are left out, which Airflow 3's form sends. A template that is rendered to native
    objects makes a number of `0`.
    """
    several = value if isinstance(value, (list, tuple, set)) else [] if value is None else [value]
    return [text for each in several if (text := str(each).strip())]


def is_true(name: str, value: bool | str | None) -> bool:
    """Return what a form or a template gave as yes or no.

    Raises:
        ConfigError: When it is neither; names it.
    """
    # A template renders to text unless the DAG renders native objects.
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} = {value!r} is not acceptable; accepted: true, false")
    return text == "true"


@contextmanager
def terminal_errors_fail() -> Iterator[None]:
    """Let a task fail without retries where a retry can't help; its log says why in one line.

    Raises:
        AirflowFailException: In place of a TerminalError; with its name and message.
    """
    try:
        yield
    except TerminalError as error:
        # Before the stack trace that Airflow prints.
        log.error("%s", error)
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error
