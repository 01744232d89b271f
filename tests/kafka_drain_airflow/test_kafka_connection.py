"""Kafka connections as Airflow's provider reads them."""

from __future__ import annotations

import json
import logging
from importlib.metadata import metadata
from typing import Any

import pytest
from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook

from kafka_drain.errors import ConfigError
from kafka_drain_airflow.kafka_connection import kafka_cluster

MSK = {
    "bootstrap.servers": "b-1.m.c2.kafka.eu-west-1.amazonaws.com:9098",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
}
ALLOWED = "AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST"


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Return what makes a connection with an extra, of a name of its own."""

    def connected(extra: dict[str, Any]) -> Any:
        conn_id = f"k{abs(hash(request.node.name))}"
        connection = {"conn_type": "kafka", "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
        return kafka_cluster(conn_id).config

    return connected


def test_kafka_cluster_plain(connect: Any) -> None:
    """The extra is the configuration; foreign settings aren't in the way."""
    config = connect({"bootstrap.servers": "k:1", "group.id": "airflow", "session.timeout.ms": 1})

    assert config.for_librdkafka() == {"bootstrap.servers": "k:1"}


def test_kafka_cluster_callback(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that this Airflow allows stays a dotted path: other processes import it too."""
    monkeypatch.setenv(ALLOWED, "json.loads, company.token,json.dumps")
    given = {"bootstrap.servers": "k:1", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": "json.dumps"}

    config = connect(given)

    assert config.for_librdkafka() == given


@pytest.mark.parametrize("allowed", ["", "json.loads", "json", "json.dump,s"])
@pytest.mark.parametrize("name", ["oauth_cb", "stats_cb", "error_cb"])
@pytest.mark.parametrize("brokers", ["bootstrap.servers", "metadata.broker.list"])
def test_kafka_cluster_callback_not_allowed(
    brokers: str, name: str, allowed: str, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that isn't in Airflow's list isn't imported, and it is said where to add it."""
    monkeypatch.setenv(ALLOWED, allowed)

    with pytest.raises(ConfigError) as raised:
        connect({brokers: "k:1", name: "json.dumps"})

    assert str(raised.value).endswith(
        f"{name} = 'json.dumps' isn't allowed in this Airflow: add it to [apache_kafka] "
        "callback_allowlist in airflow.cfg (AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST), a list of "
        "dotted paths with commas"
    )


@pytest.mark.skipif(
    "msk" not in metadata("apache-airflow-providers-apache-kafka").get_all("Provides-Extra", []),
    reason="this Airflow's Kafka provider knows nothing of Amazon MSK",
)
def test_kafka_cluster_msk_without_signer(connect: Any) -> None:
    """The provider's hook says which package Amazon MSK needs."""
    with pytest.raises(ConfigError, match=r"install the 'msk' extra: pip install apache-airflow-p"):
        connect(MSK)


def test_kafka_cluster_msk(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook's own function for MSK can't travel to other processes: the core's replaces it."""
    import sys
    from types import ModuleType

    signer: Any = ModuleType("aws_msk_iam_sasl_signer")
    signer.MSKAuthTokenProvider = object
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)

    assert connect(MSK).for_librdkafka() == MSK | {
        "oauth_cb": "kafka_drain.kafka.logins.msk_iam_token",
        "sasl.oauthbearer.config": "region=eu-west-1",
    }


def test_kafka_cluster_google(connect: Any) -> None:
    """Google's cluster needs neither its provider in Airflow nor a connection of that."""
    servers = "bootstrap.c.r.managedkafka.p.cloud.goog:9092"

    found = connect(MSK | {"bootstrap.servers": servers}).for_librdkafka()

    assert found["oauth_cb"] == "kafka_drain.kafka.logins.google_token"


@pytest.mark.parametrize("error", [ValueError, ImportError])
def test_kafka_cluster_refused_by_hook(
    connect: Any, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """What the provider's hook refuses is a setting to correct, which no retry can help."""

    def refuse(*_: object) -> None:
        raise error("no such cluster")

    monkeypatch.setattr(KafkaBaseHook, "__init__", refuse)

    with pytest.raises(ConfigError, match=r"^the Airflow connection 'k\d+': no such cluster$"):
        connect({"bootstrap.servers": "b:9092"})


def test_kafka_cluster_no_servers(connect: Any) -> None:
    """What is missing is said with the connection that lacks it."""
    with pytest.raises(ConfigError, match=r"^the Airflow connection 'k\d+': the Kafka connection "):
        connect({"client.id": "x"})


def test_kafka_cluster_list_of_servers(connect: Any) -> None:
    """A list of brokers is refused with what is expected instead."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is a list; expected text, addr"):
        connect({"bootstrap.servers": ["a:1", "b:2"]})


def test_kafka_cluster_unknown_connection() -> None:
    """A connection that doesn't exist is named, with how to create it."""
    with pytest.raises(ConfigError, match="no Airflow connection 'nowhere'; create one of type Ka"):
        kafka_cluster("nowhere")


def test_kafka_cluster_warns_once(connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What follows from a setting is logged by the first cluster, and the secret isn't."""
    caplog.set_level(logging.WARNING)
    extra = {"bootstrap.servers": "k:1", "ssl.crl.location": "/hunter2", "sasl.password": "hunter2"}

    for _ in range(2):
        connect(extra)

    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith(
        "ssl.crl.location: Spark's Java client doesn't check whether the broker's certificate was "
        "revoked"
    )
    assert "hunter2" not in caplog.text
