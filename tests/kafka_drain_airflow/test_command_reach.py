"""A page's commands reach Kafka, Spark and registry as Airflow does, without its secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_drain.pages.commands import Reach
from kafka_drain_airflow.command_reach import reach_of

NONE = {"store": "", "kafka": "", "spark": "", "registry": ""}
KNOWN = {"store": "", "kafka": "kafka_x", "spark": "spark_x", "registry": "registry_x"}
SECRETS = ("hush", "me:")


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set Airflow connections; those of the place are there, without secrets."""

    def add(conn_id: str, **values: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(values))

    add("kafka_x", conn_type="kafka", extra={"bootstrap.servers": "b1:9092", "group.id": "g"})
    add("spark_x", conn_type="spark", host="local[2]")
    add("registry_x", conn_type="generic", extra={"url": "http://r:8081"})
    return add


def test_reach_of(connections: Any) -> None:
    """Without a login, everything is in the command's options."""
    assert reach_of("/a", **KNOWN) == Reach(
        "/a", "b1:9092", "", "local[2]", "client", "http://r:8081", notes=[]
    )


def test_reach_of_login_in_url(connections: Any) -> None:
    """A registry's login in its URL is in no command."""
    connections("registry_x", conn_type="generic", extra={"url": "https://me:hush@r:8081"})

    found = reach_of("/a", **KNOWN)

    assert found.registry == ""
    assert "`--registry-config`" in " ".join(found.notes)
    assert not any(secret in repr(found) for secret in SECRETS)


def test_reach_of_an_earlier_release(connections: Any) -> None:
    """Without the names of connections, nothing is made up."""
    assert reach_of("/a", **NONE) == Reach("/a", notes=[])


def test_reach_of_secured(connections: Any) -> None:
    """With logins, files and variables are named, and nothing of them is shown."""
    login = {"sasl.password": "hush", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    connections("kafka_x", conn_type="kafka", extra={"bootstrap.servers": "b1:9093", **login})
    connections("spark_x", conn_type="spark_connect", host="sc", port=15002, password="hush")
    extra = {"url": "http://r", "basic.auth.user.info": "me:hush"}
    connections("registry_x", conn_type="generic", extra=extra)

    found = reach_of("s3://b/a", **{**KNOWN, "store": "aws_x"})

    assert (found.kafka_config, found.registry) == ("kafka_x.json", "")
    assert found.master.startswith("sc://sc:15002")
    said = " ".join(found.notes)
    for named in ("`kafka_x`", "`spark_x`", "`registry_x`", "`aws_x`"):
        assert named in said
    assert not any(secret in repr(found) for secret in SECRETS)


def test_reach_of_unknown_connections() -> None:
    """Connections that only workers have are named."""
    found = reach_of("/a", **{**NONE, "kafka": "kafka_nowhere", "spark": "spark_nowhere"})

    assert (found.servers, found.kafka_config, found.master) == ("", "", "")
    assert "`kafka_nowhere`" in found.notes[0]
    assert "'spark_nowhere'" in found.notes[1]
