"""A registration as a task: what it does, refuses and tries again."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

# For pyiceberg's SQL catalog. Airflow 2 pins SQLAlchemy 1.4.
pytest.importorskip("sqlalchemy", minversion="2")

from airflow.providers.common.compat.sdk import AirflowFailException
from pyiceberg.catalog.sql import SqlCatalog

from demo.broker.ports import free_ports
from kafka_drain.archive.archive import Archive
from kafka_drain.errors import TransientError
from kafka_drain_airflow.operators.register_table import RegisterTableOperator
from tests.kafka_drain.golden import END, add_batch, golden_pipeline, seal, sealed_copy


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return sealed_copy(tmp_path / "archive")


@pytest.fixture
def properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Properties of a catalog with a namespace, in the connection `iceberg`."""
    found = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/tables",
    }
    with closing(SqlCatalog("archives", **found)) as catalog:
        catalog.create_namespace("kafka")
    connect(monkeypatch, found)
    return found


def connect(monkeypatch: pytest.MonkeyPatch, extra: object) -> None:
    connection = json.dumps({"conn_type": "generic", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG", connection)


def register(archive: Archive, **changed: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "catalog": "archives",
        "table": "kafka.flights",
        "catalog_conn_id": "iceberg",
        "pipeline": golden_pipeline(archive),
    }
    operator = RegisterTableOperator(task_id="register", **(arguments | changed))
    return operator.execute({})


def test_register_table_operator(archive: Archive, properties: dict[str, str]) -> None:
    """One snapshot for each seal; none where nothing is new."""
    first, again = register(archive), register(archive)
    add_batch(archive.generation(1), 14, END, 50)
    seal(archive)
    later = register(archive)

    assert (first["added"], again["added"], later["added"]) == (28, 0, 2)
    assert again["snapshot_id"] == first["snapshot_id"]
    json.dumps(later)
    with closing(SqlCatalog("archives", **properties)) as catalog:
        table = catalog.load_table("kafka.flights")
        assert [each.snapshot_id for each in table.snapshots()] == [
            first["snapshot_id"],
            later["snapshot_id"],
        ]
        assert table.scan().count() == later["records"] == 100


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"table": "flights"}, "table = 'flights' is not acceptable; accepted: NAMESPACE.TABLE"),
        ({"table": "other.flights"}, "no namespace other"),
        ({"catalog": ""}, "catalog is missing"),
        ({"catalog_conn_id": "nowhere"}, "there is no Airflow connection 'nowhere'"),
        # The worker's own configuration has no such catalog.
        ({"catalog_conn_id": None}, "has no type and uri that pyiceberg knows"),
    ],
)
def test_register_table_operator_wrong(
    changed: dict[str, Any], words: str, archive: Archive, properties: dict[str, str]
) -> None:
    """What a retry can't help fails at once, in words."""
    with pytest.raises(AirflowFailException, match=words):
        register(archive, **changed)


def test_register_table_operator_not_installed(
    archive: Archive, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pyiceberg on the worker, the task fails and says which extra has it."""
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    monkeypatch.delitem(sys.modules, "kafka_drain.iceberg", raising=False)

    with pytest.raises(AirflowFailException, match=r"kafka-drain\[iceberg\]"):
        register(archive)


def test_register_table_operator_catalog_away(
    archive: Archive, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog that doesn't answer is asked again by a retry."""
    (port,) = free_ports(1, ())
    connect(monkeypatch, {"type": "rest", "uri": f"http://127.0.0.1:{port}"})

    with pytest.raises(TransientError, match="catalog 'archives' doesn't answer as it should"):
        register(archive)


def test_register_table_operator_bad_uri(
    archive: Archive, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URI that is none fails at once, and isn't shown: it may have a password."""
    connect(monkeypatch, {"type": "rest", "uri": "https//reader:hush@host"})

    with pytest.raises(AirflowFailException, match="has no type and uri") as raised:
        register(archive)

    assert "hush" not in str(raised.value)
