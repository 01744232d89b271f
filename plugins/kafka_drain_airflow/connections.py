"""Translate Airflow connections into the core's objects, and the core's errors into Airflow's."""

from __future__ import annotations

import json
import logging
import os
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    BaseHook,
    get_current_context,
)

from kafka_drain.errors import ConfigError, KafkaDrainError, TerminalError
from kafka_drain.outages import told_of_outages
from kafka_drain.output import OutageLine

if TYPE_CHECKING:
    from kafka_drain.config.pipeline import Pipeline
    from kafka_drain.schemas.registry import SchemaRegistry
    from kafka_drain.spark.place import SparkConnection

log = logging.getLogger(__name__)

#: XCom of a task that has failed: why, in the words of its log, and how long it may be.
PROBLEM_KEY, PROBLEM_LENGTH = "problem", 1000
#: XCom of a running task: which server it waits for, as `said` in its log; empty if it answers.
WAITING_KEY = "waiting"
#: XCom of a group's drain: the pipelines that it didn't drain, by name.
NOT_DRAINED_KEY = "not_drained"
#: Programs that a Spark connection may name, looked up on the PATH; the first is the default.
SPARK_BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")


def schema_registry(pipeline: Pipeline) -> SchemaRegistry | None:
    """Return the Schema Registry for a pipeline's values; None if the pipeline needs none.

    Raises:
        ConfigError: If the connection doesn't exist or a setting isn't accepted.
    """
    return _registry(pipeline.values.registry_conn_id if pipeline.values else None)


def kept_registry(pipeline: Pipeline) -> SchemaRegistry | None:
    """Return the Schema Registry whose schemas the archive keeps; None for none.

    Raises:
        ConfigError: If the connection doesn't exist or a setting isn't accepted.
    """
    return _registry(pipeline.schemas_conn_id)


def target_registry(pipeline: Pipeline, conn_id: str | None) -> SchemaRegistry:
    """Return the Schema Registry that an archive's schemas are restored to.

    Args:
        conn_id: The connection; None or empty for the pipeline's.

    Raises:
        ConfigError: If neither names one, it doesn't exist, or a setting isn't accepted.
    """
    registry = _registry(conn_id or pipeline.target_registry_conn_id)
    if registry is None:
        raise ConfigError(
            "no Schema Registry to restore to: set the pipeline's target_registry_conn_id, or "
            "registry_conn_id of the task"
        )
    return registry


def _registry(conn_id: str | None) -> SchemaRegistry | None:
    from kafka_drain.schemas.registry import SchemaRegistry

    if conn_id is None:
        return None
    require_connection(conn_id, "Generic", '{"url": "https://host:8081"} as its extra')
    return SchemaRegistry(extra_of(BaseHook.get_connection(conn_id), conn_id))


def hash_key(pipeline: Pipeline) -> bytes:
    """Return the key of pseudonyms, the password of the pipeline's connection; empty without one.

    Raises:
        ConfigError: If the connection doesn't exist, or its password is no key.
    """
    from kafka_drain.republish.changing.keys import check_key

    conn_id = pipeline.hash_key_conn_id
    if conn_id is None:
        return b""
    require_connection(conn_id, "Generic", "the key of pseudonyms as its password")
    password = BaseHook.get_connection(conn_id).password or ""
    return check_key(password.encode(), f"the Airflow connection {conn_id!r}")


def require_connection(conn_id: str, kind: str, needs: str) -> None:
    """Require that a connection exists.

    Raises:
        ConfigError: If it doesn't; the message says how to create it.
    """
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        variable = f"AIRFLOW_CONN_{conn_id.upper()}"
        if os.environ.get(variable):
            # Airflow keeps to itself why it can't read it.
            raise ConfigError(
                f"Airflow can't read the environment variable {variable}; expected a URI, or JSON "
                'with the fields of a connection, {"conn_type": …, "host": …, "extra": {…}}: of '
                f"type {kind}, with {needs}"
            ) from error
        raise ConfigError(
            f"there is no Airflow connection {conn_id!r}; create one of type {kind} with {needs} "
            f"(Admin, Connections), or set the environment variable {variable}"
        ) from error


def extra_of(connection: Any, conn_id: str) -> dict[str, Any]:
    """Return a connection's extra.

    Raises:
        ConfigError: If it isn't a JSON object; Airflow would take a text that isn't JSON for an
            empty one. Shows no value, which may be a secret.
    """
    extra = connection.extra_dejson
    try:
        is_json = bool(extra) or not connection.extra or json.loads(connection.extra) == extra
    except ValueError:
        is_json = False
    if not is_json or not isinstance(extra, dict):
        kind = type(extra).__name__ if is_json else "text that isn't JSON"
        raise ConfigError(
            f"the extra of the Airflow connection {conn_id!r} is a {kind}; expected a JSON object"
        )
    return extra


def spark_connection(conn_id: str) -> SparkConnection:
    """Return the settings of a connection of type Spark or Spark Connect.

    Airflow's own provider reads them in the same way.

    Raises:
        ConfigError: If the connection doesn't exist (Airflow's provider would fall back to YARN),
            it names no master, the master doesn't have the deploy mode, or a setting isn't
            accepted.
    """
    from kafka_drain.spark.connect import is_connect
    from kafka_drain.spark.place import SparkConnection

    require_connection(conn_id, "Spark", "the master as its host, for example local[*]")
    connection = BaseHook.get_connection(conn_id)
    extra = extra_of(connection, conn_id)
    who = f"the Airflow connection {conn_id!r}"
    if not connection.host:
        raise ConfigError(f"{who} has no host; expected the Spark master, for example local[*]")
    if connection.conn_type == "spark_connect" or is_connect(_master(connection)):
        return _connect_server(connection)
    binary = extra.get("spark-binary") or SPARK_BINARIES[0]
    if binary not in SPARK_BINARIES:
        accepted = ", ".join(SPARK_BINARIES)
        raise ConfigError(f"{who} has spark-binary {binary!r}; accepted: {accepted}")
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
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{who} has a keytab that isn't valid base64") from error
    try:
        mode = extra.get("deploy-mode") or "client"
        return SparkConnection(_master(connection), options, binary, keytab, deploy_mode=mode)
    except ConfigError as error:
        raise ConfigError(f"{who}: {error}") from error


def _connect_server(connection: Any) -> SparkConnection:
    """Return the settings of a Spark Connect server: the password is the token."""
    from kafka_drain.spark.connect import SCHEME, ConnectAddress
    from kafka_drain.spark.place import SparkConnection

    place = connection.host.removeprefix(SCHEME)
    host, found, rest = place.partition("/")
    port = f":{connection.port}" if connection.port else ""
    address = ConnectAddress.parse(f"{SCHEME}{host}{port}{found}{rest}")
    given = {"user_id": connection.login, "use_ssl": connection.extra_dejson.get("use_ssl")}
    more = {name: str(value) for name, value in given.items() if value not in (None, "")}
    address = ConnectAddress(address.host, address.port, {**address.parameters, **more})
    return SparkConnection(address.master, token=connection.password or "")


@contextmanager
def spark_engine(pipeline: Pipeline) -> Iterator[None]:
    """Let the body prepare applications for the master of the pipeline's Spark connection.

    A connection that doesn't exist or isn't accepted is reported when an application is run.
    """
    from kafka_drain.spark.submit import for_master

    master, mode = "", "client"
    with suppress(ConfigError):
        connection = spark_connection(pipeline.spark_conn_id)
        master, mode = connection.master, connection.deploy_mode
    with for_master(master, mode):
        yield


def require_spark_connect(pipeline: Pipeline) -> None:
    """Require that the pipeline's Spark Connect server, if it has one, answers with its token.

    A connection that doesn't exist or isn't accepted is reported when an application is run.

    Raises:
        SparkJobError: If it doesn't answer.
        ConfigError: If it refuses the token, or only one of both speaks TLS.
    """
    from kafka_drain.spark.connect_reaching import require_server

    try:
        connection = spark_connection(pipeline.spark_conn_id)
    except ConfigError:
        return
    require_server(connection)


def _master(connection: Any) -> str:
    """Return the Spark master; for a connection given as a URI, its scheme is the type."""
    host, port = connection.host, connection.port
    if connection.conn_type != "spark" or ("://" not in host and port):
        host = f"{connection.conn_type}://{host}"
    return f"{host}:{port}" if port else host


def listed(value: Any) -> list[str]:
    """Return the value of a form or template (nothing, one item or several) as a list of strings.

    Drops blank lines, which Airflow 3's form sends. Numbers are converted, because a template
    rendered to native objects turns `0` into a number.
    """
    several = value if isinstance(value, (list, tuple, set)) else [] if value is None else [value]
    return [text for each in several if (text := str(each).strip())]


def is_true(name: str, value: bool | str | None) -> bool:
    """Return the value of a form or template as a boolean.

    Raises:
        ConfigError: If it is neither true nor false; the message names the field.
    """
    # A template renders to a string unless the DAG renders native objects.
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} = {value!r} is not acceptable; accepted: true, false")
    return text == "true"


@contextmanager
def _told() -> Iterator[None]:
    """Store why a task fails as its XCom, which the pages show; nothing outside of a task.

    A retry begins without it. Errors that aren't ours may say anything: only their kind is told.
    """
    try:
        yield
    except AirflowException:
        # Such as a skipped task.
        raise
    except Exception as error:
        ours = isinstance(error, KafkaDrainError)
        _tell(str(error) if ours else f"{type(error).__name__}; its log says more")
        raise


def _tell(problem: str) -> None:
    task_instance = _task_instance()
    if task_instance is None:
        return
    try:
        task_instance.xcom_push(key=PROBLEM_KEY, value=problem[:PROBLEM_LENGTH])
    except Exception as error:
        # The task fails for its own reason.
        log.warning("can't store why this failed: %s: %s", type(error).__name__, error)


def _task_instance() -> Any:
    """Return the task instance that runs here; None if it is nobody's task."""
    try:
        return get_current_context()["ti"]
    except (AirflowException, RuntimeError):
        return None


def store_waiting(task_instance: Any, line: str) -> None:
    """Store for the pages which server a task waits for, if a line says so."""
    if not isinstance(line, OutageLine):
        return
    try:
        said = {} if line.is_over else {"said": line[:PROBLEM_LENGTH]}
        task_instance.xcom_push(key=WAITING_KEY, value=said)
    except Exception as error:
        # It may be Airflow that is away as well.
        log.warning("can't store what this waits for: %s: %s", type(error).__name__, error)


def waiting_said(value: object) -> str:
    """Return the wait that an XCom's value describes, if valid: any task may write any XCom."""
    said = value.get("said") if isinstance(value, dict) else None
    return said[:PROBLEM_LENGTH] if isinstance(said, str) else ""


def _hear_outages() -> Callable[[str], None]:
    """Return a callback that logs an outage and stores it for the pages, from any thread."""
    # Another thread has no context of a task.
    task_instance = _task_instance()

    def hear(line: str) -> None:
        log.warning("%s", line)
        if task_instance is not None:
            store_waiting(task_instance, line)

    return hear


@contextmanager
def terminal_errors_fail() -> Iterator[None]:
    """Fail the task without retries if a retry can't help, and log the reason in one line.

    Logs also what the task waits for while Kafka or a Spark Connect server doesn't answer, and
    stores it for the pages.

    Raises:
        AirflowFailException: Instead of a TerminalError, with its name and message, and of an exit.
    """
    with told_of_outages(_hear_outages()):
        try:
            with _told():
                yield
        except TerminalError as error:
            # Logged before the stack trace that Airflow prints.
            log.error("%s", error)
            raise AirflowFailException(f"{type(error).__name__}: {error}") from error
        except SystemExit as error:
            # To Airflow, code 0 is a success.
            raise AirflowFailException(
                f"something that this task called ended it by sys.exit({error.code!r}) before it "
                "was done; look for it in the stack trace"
            ) from error
