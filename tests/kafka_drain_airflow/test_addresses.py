"""Mistakes in a connection's address: operators say of them what commands say."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafka_drain_airflow
from kafka_drain_airflow.operators.preflight import PreflightOperator
from tests.addresses import NOT_HOST_AND_PORT, Mistake, mistakes_without_broker

#: What makes a client of Kafka, or its settings.
MAKERS = {"AdminClient", "Consumer", "KafkaCluster", "KafkaConfig", "Producer", "watched"}
NAMES = ["refused", "silent", "unknown host", "not Kafka", *NOT_HOST_AND_PORT]


@pytest.fixture(scope="module")
def mistakes() -> Iterator[dict[str, Mistake]]:
    """Mistakes by their names."""
    with mistakes_without_broker() as found:
        yield {mistake.name: mistake for mistake in found}


@pytest.mark.parametrize("name", NAMES)
def test_preflight_address(
    name: str, mistakes: dict[str, Mistake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task of a DAG run ends with the sentence of its mistake, and has made nothing."""
    mistake = mistakes[name]
    extra = {"bootstrap.servers": mistake.address, "socket.timeout.ms": 1000}
    connection = {"conn_type": "kafka", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_WRONG_ADDRESS", json.dumps(connection))
    archive = tmp_path / "archive"
    keys = {"name": "orders", "topics": ["t"], "archive": str(archive)}
    operator = PreflightOperator(
        task_id="preflight", pipeline={**keys, "kafka_conn_id": "wrong_address"}
    )
    context: Any = {"params": {}, "ti": None}
    operator.pre_execute(context)

    with pytest.raises(Exception, match=r"Kafka|HOST:PORT") as raised:
        operator.execute(context)

    before = "" if mistake.is_asked else "ConfigError: the Airflow connection 'wrong_address': "
    assert mistake.is_said_in(str(raised.value), before)
    assert not archive.exists()


def test_names_complete(mistakes: dict[str, Mistake]) -> None:
    """Every mistake is tried."""
    assert set(NAMES) == mistakes.keys()


def test_operators_ask_in_one_way() -> None:
    """Only `kafka_cluster`, which preflight uses, makes a client from an Airflow connection."""
    (folder,) = kafka_drain_airflow.__path__
    makes = {
        path.name
        for path in Path(folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in MAKERS
    }

    assert makes == {"kafka_connection.py"}
