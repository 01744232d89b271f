"""Settings of Airflow's connections."""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from kafka_drain import outages
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, KafkaUnavailableError, MachineError, TopicError
from kafka_drain.output import OutageLine
from kafka_drain.spark.place import DriverPlace, SparkConnection
from kafka_drain.spark.submit import SparkApplication, prepare_application, spark_home
from kafka_drain_airflow import connections
from kafka_drain_airflow.connections import (
    kept_registry,
    listed,
    schema_registry,
    spark_connection,
    spark_engine,
    terminal_errors_fail,
)
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.store_connection import store_access
from tests.faults.injection import wait_for


@pytest.mark.parametrize("code", [0, None, 1])
def test_terminal_errors_fail_left(code: int | None) -> None:
    """A task that something ends by sys.exit has failed: Airflow takes code 0 for a success."""
    with (
        pytest.raises(AirflowFailException, match=rf"ended it by sys.exit\({code}\) before it was"),
        terminal_errors_fail(),
    ):
        raise SystemExit(code)


class FakeTask:
    """Keeps what a task stores."""

    def __init__(self) -> None:
        self.stored: dict[str, object] = {}

    def xcom_push(self, key: str, value: object) -> None:
        """Store a value."""
        self.stored[key] = value


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TopicError("orders doesn't exist"), "orders doesn't exist"),
        (KafkaUnavailableError("no broker answers"), "no broker answers"),
        (TopicError("x" * 5000), "x" * 1000),
        # Whatever it says isn't ours to show.
        (RuntimeError("password=hush"), "RuntimeError; its log says more"),
        (AirflowSkipException("nothing to do"), None),
    ],
)
def test_terminal_errors_fail_told(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str | None
) -> None:
    """A task that fails stores why, for the pages."""
    task = FakeTask()
    monkeypatch.setattr(connections, "get_current_context", lambda: {"ti": task})

    with pytest.raises((type(error), AirflowFailException)), terminal_errors_fail():
        raise error

    assert task.stored.get(connections.PROBLEM_KEY) == told


def test_terminal_errors_fail_shows_outages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a task waits for is in its log, and stored for the pages."""
    task = FakeTask()
    monkeypatch.setattr(connections, "get_current_context", lambda: {"ti": task})
    monkeypatch.setattr(outages, "LOOK_SECONDS", 0.01)
    away = KafkaUnavailableError("k1:9092 refuses connections, 100 % of the time")

    with terminal_errors_fail():
        outages.watch("Kafka at k1:9092", lambda: away)
        wait_for(lambda: "waiting" in task.stored, "a line")

    assert task.stored["waiting"] == {"said": f"waiting: {away}"}
    assert f"waiting: {away}" in caplog.messages


@pytest.mark.parametrize("stores", [True, False])
def test_store_waiting(stores: bool) -> None:
    """The pages show a task's newest wait until it is over; one that isn't stored fails nothing."""
    task = FakeTask()
    if not stores:
        task.xcom_push = None  # type: ignore[method-assign, assignment]
    shown = []
    for line in (
        OutageLine("k1 is away " + "x" * 2000, is_over=False),
        "an ordinary line",
        OutageLine("k1 is back", is_over=True),
    ):
        connections.store_waiting(task, line)
        shown.append(connections.waiting_said(task.stored.get("waiting")))

    away = ("k1 is away " + "x" * 2000)[:1000]
    assert shown == ([away, away, ""] if stores else ["", "", ""])


@pytest.mark.parametrize("value", [None, "text", {"said": 7}, ["said"], {}])
def test_waiting_said_of_others(value: object) -> None:
    """What another task has stored isn't taken for a wait."""
    assert connections.waiting_said(value) == ""


KEY = "0123456789abcdef0123456789abcdef"


def test_hash_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of pseudonyms is the connection's password; one that is too short isn't shown."""
    plain = Pipeline(name="p", topics=["t"], archive="/a")
    keyed = plain.model_copy(update={"hash_key_conn_id": "pseudonyms"})
    assert connections.hash_key(plain) == b""
    with pytest.raises(ConfigError, match="no Airflow connection 'pseudonyms'"):
        connections.hash_key(keyed)

    def define(password: str | None) -> None:
        connection = {"conn_type": "generic", "password": password}
        monkeypatch.setenv("AIRFLOW_CONN_PSEUDONYMS", json.dumps(connection))

    define(KEY)
    assert connections.hash_key(keyed) == KEY.encode()
    for password in ("hush", None):
        define(password)
        with pytest.raises(ConfigError, match="the Airflow connection 'pseudonyms'") as refused:
            connections.hash_key(keyed)
        assert "hush" not in str(refused.value)


def test_schema_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry is the connection's; a pipeline without one needs none."""
    settings = {"url": "https://registry:8081", "basic.auth.user.info": "me:s3cr3t"}
    monkeypatch.setenv(
        "AIRFLOW_CONN_REGISTRY", json.dumps({"conn_type": "generic", "extra": settings})
    )
    values = {"encoding": "avro", "registry_conn_id": "registry"}

    found = schema_registry(Pipeline(name="p", topics=["t"], archive="/a", values=values))

    assert found is not None
    assert dict(found.settings) == settings
    assert schema_registry(Pipeline(name="p", topics=["t"], archive="/a")) is None


@pytest.mark.parametrize(
    ("own", "of_values", "kept"),
    [("own", None, "own"), (None, "values", "values"), ("own", "values", "own")],
)
def test_kept_registry(
    monkeypatch: pytest.MonkeyPatch, own: str | None, of_values: str | None, kept: str
) -> None:
    """Schemas are kept of the pipeline's registry, or else its values'; values have their own."""
    for name in ("own", "values"):
        connection = {"conn_type": "generic", "extra": {"url": f"https://{name}"}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
    values = {"encoding": "avro", "registry_conn_id": of_values} if of_values else None
    pipeline = Pipeline(name="p", topics=["t"], archive="/a", registry_conn_id=own, values=values)

    found, of_its_values = kept_registry(pipeline), schema_registry(pipeline)

    assert found is not None
    assert found.settings["url"] == f"https://{kept}"
    url = of_its_values.settings["url"] if of_its_values else None
    assert url == (f"https://{of_values}" if of_values else None)


def test_schema_registry_unknown_connection() -> None:
    """A connection that doesn't exist is named, with how to create it."""
    values = {"encoding": "avro", "registry_conn_id": "nowhere"}

    with pytest.raises(
        ConfigError, match="no Airflow connection 'nowhere'; create one of type Gen"
    ):
        schema_registry(Pipeline(name="p", topics=["t"], archive="/a", values=values))


def spark(monkeypatch: pytest.MonkeyPatch, **connection: object) -> SparkConnection:
    """Return the settings of a Spark connection that is defined by an environment variable."""
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark"} | connection))
    return spark_connection("cluster")


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ({"host": "local[2]"}, "local[2]"),
        ({"host": "yarn"}, "yarn"),
        ({"host": "master", "port": 7077}, "spark://master:7077"),
        ({"host": "spark://master", "port": 7077}, "spark://master:7077"),
        ({"host": "spark://one:7077,two:7077"}, "spark://one:7077,two:7077"),
        ({"host": "k8s://https://api:6443"}, "k8s://https://api:6443"),
        ({"conn_type": "k8s", "host": "https://api", "port": 443}, "k8s://https://api:443"),
    ],
)
def test_spark_connection_master(
    connection: dict[str, object], master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master is the same as in Airflow's own provider."""
    assert spark(monkeypatch, **connection).master == master


@pytest.mark.parametrize(
    ("connection", "master", "token"),
    [
        ({"host": "sc://server"}, "sc://server:15002", ""),
        ({"host": "sc://server:15003"}, "sc://server:15003", ""),
        ({"host": "sc://server", "port": 15003}, "sc://server:15003", ""),
        ({"host": "sc://server/;use_ssl=true"}, "sc://server:15002/;use_ssl=true", ""),
        ({"conn_type": "sc", "host": "server", "port": 15003}, "sc://server:15003", ""),
        ({"conn_type": "spark_connect", "host": "server"}, "sc://server:15002", ""),
        ({"conn_type": "spark_connect", "host": "sc://server"}, "sc://server:15002", ""),
        (
            {
                "conn_type": "spark_connect",
                "host": "server",
                "port": 443,
                "login": "night",
                "password": "secret",
                "extra": {"use_ssl": True},
            },
            "sc://server:443/;user_id=night;use_ssl=True",
            "secret",
        ),
    ],
)
def test_spark_connection_of_connect_server(
    connection: dict[str, object], master: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server is named by type or by address; its token is in no text."""
    found = spark(monkeypatch, **connection)

    assert (found.master, found.token) == (master, token)
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("connection", "is_ours"), [({"host": "sc://server"}, False), ({"host": "local[2]"}, True)]
)
def test_spark_engine(
    connection: dict[str, object], is_ours: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For a Spark Connect server, an application is prepared without Java; for others, with it."""
    spark(monkeypatch, **connection)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    pipeline = Pipeline(name="p", topics=["t"], archive=str(tmp_path), spark_conn_id="cluster")

    def prepare() -> SparkApplication:
        return prepare_application(
            "p", kind="drain", spec_path=tmp_path / "spec", pipeline=pipeline, folder=tmp_path
        )

    with spark_engine(pipeline):
        if is_ours:
            with pytest.raises(MachineError, match="has no bin/java"):
                prepare()
        else:
            assert prepare().on_connect
    with pytest.raises(MachineError, match="has no bin/java"):
        prepare()


@pytest.mark.parametrize("extra", [{}, {"deploy-mode": "client"}, {"deploy-mode": ""}])
def test_spark_connection_client_mode(
    extra: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver runs next to the task, whatever the master."""
    found = spark(monkeypatch, host="yarn", extra=extra)

    assert found == SparkConnection("yarn", [])


@pytest.mark.parametrize("host", ["yarn", "k8s://https://h"])
def test_spark_connection_cluster_mode(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """On YARN and Kubernetes, the driver may run in the cluster."""
    found = spark(monkeypatch, host=host, extra={"deploy-mode": "cluster"})

    assert (found.deploy_mode, found.place) == ("cluster", DriverPlace.CLUSTER)


@pytest.mark.parametrize("host", ["yarn", "k8s://https://h"])
def test_spark_engine_cluster_mode(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str
) -> None:
    """A driver in the cluster gets nothing of this machine's paths and programs."""
    spark(monkeypatch, host=host, extra={"deploy-mode": "cluster"})
    pipeline = Pipeline(name="p", topics=["t"], archive=str(tmp_path), spark_conn_id="cluster")

    def prepare() -> SparkApplication:
        return prepare_application(
            *("p",),
            kind="validate",
            spec_path=tmp_path / "spec",
            pipeline=pipeline,
            folder=tmp_path,
            needs_connector=False,
        )

    with spark_engine(pipeline):
        there = prepare()
    here = prepare()

    assert "PYSPARK_PYTHON" in here.environment
    assert "PYSPARK_PYTHON" not in there.environment
    own = {"spark.yarn.maxAppAttempts", "spark.yarn.submit.waitAppCompletion"}
    assert there.conf.keys() - here.conf.keys() == own
    assert here.conf.keys() - there.conf.keys() >= {"spark.pyspark.driver.python"}
    paths = (sys.executable, str(spark_home()))
    assert not [value for value in there.conf.values() if value.startswith(paths)]
    # What Airflow's own Spark operator hands to the nodes: the worker's JAVA_HOME and PATH.
    for conf in (here.conf, there.conf):
        assert not [name for name in conf if "appMasterEnv" in name or "driverEnv" in name]
    assert "SharedArchiveFile" not in there.conf["spark.driver.extraJavaOptions"]
    assert "-Duser.timezone=UTC" in there.conf["spark.driver.extraJavaOptions"]
    assert there.archive == str(tmp_path)


def test_spark_connection_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings for YARN, Kubernetes and Kerberos become spark-submit options."""
    extra = {
        "queue": "night",
        "namespace": "jobs",
        "principal": "drain@EXAMPLE.ORG",
        "keytab": b64encode(b"secret").decode(),
        "spark-binary": "spark3-submit",
    }
    found = spark(monkeypatch, host="yarn", extra=extra)

    assert found == SparkConnection(
        "yarn",
        [
            *("--queue", "night", "--principal", "drain@EXAMPLE.ORG"),
            *("--conf", "spark.kubernetes.namespace=jobs"),
        ],
        "spark3-submit",
        b"secret",
    )
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("connection", "says"),
    [
        ({}, "'cluster' has no host; expected the Spark master"),
        (
            {"host": "local[2]", "extra": {"deploy-mode": "cluster"}},
            "'cluster': deploy mode 'cluster' isn't possible with the master local[2]",
        ),
        (
            {"host": "spark://h", "extra": {"deploy-mode": "cluster"}},
            "'cluster': deploy mode 'cluster' isn't possible with the master spark://h",
        ),
        (
            {"host": "yarn", "extra": {"deploy-mode": "far"}},
            "'cluster': deploy mode 'far' isn't possible with the master yarn",
        ),
        (
            {"host": "yarn", "extra": {"spark-binary": "/tmp/mine"}},
            "has spark-binary '/tmp/mine'; accepted: spark-submit, spark2-submit, spark3-submit",
        ),
        ({"host": "yarn", "extra": {"keytab": "no base64!"}}, "a keytab that isn't valid base64"),
        ({"host": "yarn", "extra": {"keytab": 5}}, "a keytab that isn't valid base64"),
    ],
)
def test_spark_connection_refused(
    connection: dict[str, object], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings with which no job can run are refused by name before anything starts."""
    with pytest.raises(ConfigError, match=re.escape(says)):
        spark(monkeypatch, **connection)


def registry_of(conn_id: str) -> object:
    """Open a Schema Registry by its connection."""
    values = {"encoding": "avro", "registry_conn_id": conn_id}
    return schema_registry(Pipeline(name="p", topics=["t"], archive="/a", values=values))


#: What opens a connection, by the type of it.
OPENED: dict[str, Callable[[str], object]] = {
    "kafka": kafka_cluster,
    "spark": spark_connection,
    "aws": store_access,
    "generic": registry_of,
}


# Airflow 2 takes such an extra, with a warning.
@pytest.mark.filterwarnings("ignore:Encountered .*JSON")
@pytest.mark.parametrize("kind", OPENED)
@pytest.mark.parametrize("extra", [["hush"], "hush"])
def test_extra_refused(kind: str, extra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra that is no JSON object is named, not taken for an empty one; it isn't shown."""
    connection = {"conn_type": kind, "host": "local[*]", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_ODD", json.dumps(connection))

    with pytest.raises(ConfigError, match=r"the Airflow connection 'odd' is a .*JSON o") as raised:
        OPENED[kind]("odd")
    assert "hush" not in str(raised.value)


def test_spark_connection_unknown() -> None:
    """A connection that doesn't exist is named; Airflow's provider would fall back to YARN."""
    with pytest.raises(
        ConfigError, match="no Airflow connection 'nowhere'; create one of type Spa"
    ):
        spark_connection("nowhere")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, []),
        ("", []),
        ("orders", ["orders"]),
        # Native rendering turns it into a number.
        (0, ["0"]),
        ([0, 2024], ["0", "2024"]),
        # Airflow 3's form sends this after Enter at the end of the last line.
        (["flights:0:1-2 ", ""], ["flights:0:1-2"]),
    ],
)
def test_listed(given: Any, found: list[str]) -> None:
    """A list has the items that were entered, however it was rendered."""
    assert listed(given) == found


@pytest.mark.parametrize("written", ['{"bootstrap.servers": "hush:1"}', '{"conn_type": "kafka",}'])
def test_connection_unreadable(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that Airflow can't read isn't asked for once more."""
    monkeypatch.setenv("AIRFLOW_CONN_ODD", written)

    with pytest.raises(ConfigError, match=r"read the environment .* AIRFLOW_CONN_ODD") as told:
        kafka_cluster("odd")

    assert "hush" not in str(told.value)
