"""Values decoded into typed columns next to their raw bytes, with real Spark and a real broker."""

from __future__ import annotations

import gc
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.findings import errors
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.compact import finish_compaction, plan_compactions, prepare_compaction
from kafka_drain.proof.validation import validate_archive
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.spark.job_spec import CompactSpec, write_private
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows.roll import plan_roll, roll
from tests.conftest import Drain
from tests.fake_registry import LOGIN, FakeRegistry, fake_registry, in_wire_format

pytestmark = pytest.mark.integration

START = 1_700_000_000_000
CITY = {
    "type": "record",
    "name": "City",
    "fields": [{"name": "name", "type": "string"}],
}
AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
V1 = {
    "type": "record",
    "name": "Order",
    "namespace": "com.acme",
    "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}],
}
V2 = {
    "type": "record",
    "name": "Order",
    "namespace": "com.acme",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "City"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
         "default": None},
    ],
}  # fmt: skip
WHOLE = V2 | {"fields": [f if f["name"] != "city" else f | {"type": ["null", CITY | {
    "namespace": ""}]} for f in V2["fields"]]}  # fmt: skip
V3 = WHOLE | {"fields": [*WHOLE["fields"], {"name": "paid", "type": "boolean", "default": False}]}
AVRO = {"encoding": "avro", "registry_conn_id": "registry"}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry that knows two versions, the first of them deleted, one with a reference."""
    with fake_registry(LOGIN) as running:
        running.register("city", 3, CITY)
        yield running


def register_orders(registry: FakeRegistry, topic: str) -> None:
    registry.register(f"{topic}-value", 5, V1)
    registry.register(
        f"{topic}-value", 300, V2, references=[{"name": "City", "subject": "city", "version": 1}]
    )
    registry.delete(f"{topic}-value", 1)


GOOD = {
    0: in_wire_format(5, V1, {"id": 1, "gone": "x"}),
    1: in_wire_format(300, WHOLE, {"id": 2, "city": {"name": "Bonn"}, "tags": ["a"], "at": START}),
    2: in_wire_format(300, WHOLE, {"id": 3, "city": None, "tags": [], "at": None}),
}
LARGE = b"\xfe\xff\xff\xff\x0f"  # 2,147,483,647
BAD = {
    3: b"\0\0\0\0\5",  # nothing after the id
    4: b"\0\0\0\0\5\2" + LARGE + b"x",  # a string of 2 GiB
    5: b"\0" + (300).to_bytes(4, "big") + b"\6\0" + LARGE,  # an array of 2 Gi strings
    6: b"\0" + (300).to_bytes(4, "big") + b"\6\x7f\xff",  # a branch that doesn't exist
}
UNKNOWN = {7: b"\0\0\0\0\6abc", 8: b"\0\xff\xff\xff\xffabc"}
FOREIGN = {9: b'{"id": 1}', 10: b"", 11: b"\0\0\0"}
TOMBSTONE = {12: None}
# What looks like an id is the payload's own.
ID_IN_HEADER = {13: GOOD[0]}
VALUES = GOOD | BAD | UNKNOWN | FOREIGN | TOMBSTONE | ID_IN_HEADER
COUNTS = {
    "decoded": 3,
    "tombstones": 1,
    "not_decodable": 4,
    "not_in_wire_format": 4,
    "unknown_schema_id": 2,
    "lowest_unknown_id": 6,
    "highest_unknown_id": (1 << 32) - 1,
}
DECODED = {
    0: {"id": 1, "city": None, "tags": [], "at": None},
    1: {"id": 2, "city": {"name": "Bonn"}, "tags": ["a"], "at": START},
    2: {"id": 3, "city": None, "tags": [], "at": None},
}


def pipeline_of(topic: str, folder: str, values: Any, **keys: Any) -> Pipeline:
    return Pipeline(name="orders", topics=[topic], archive=folder, values=values, **keys)


def rows_of(spark: Any, folder: str) -> dict[int, Any]:
    """Read an archive with Spark: by offset, the raw value, the id and the decoded columns."""
    from kafka_drain_spark.reader import read_archive

    with warnings.catch_warnings():
        # pyspark leaves the socket of a collect() to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        rows = read_archive(spark, folder).collect()
        gc.collect()
    found = {row["offset"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def plain(decoded: Any) -> Any:
    """Return decoded columns as plain values, times in milliseconds since 1970."""
    if decoded is None:
        return None
    record = decoded.asDict(recursive=True)
    at = record.get("at")
    # Spark hands naive times of this process's zone to Python.
    return record | {"at": None if at is None else round(at.timestamp() * 1000)}


@pytest.mark.parametrize("file_format", ["parquet", "avro", "json", "orc"])
def test_drain_avro_values(
    file_format: str,
    spark: Any,
    drain: Drain,
    cluster: KafkaCluster,
    registry: FakeRegistry,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    archive_folder: str,
) -> None:
    """Each value is archived raw; decodable values have columns, and the others are counted."""
    topic = make_topic(1)
    register_orders(registry, topic)
    guid = [("__value_schema_id", b"\1" + bytes(16))]
    headers = dict.fromkeys(ID_IN_HEADER, guid)
    send(topic, [(b"k", value, headers.get(n), START) for n, value in VALUES.items()])
    pipeline = pipeline_of(topic, archive_folder, AVRO, format=file_format)

    result = drain(pipeline, registry=SchemaRegistry(registry.settings))

    assert result["values"] == COUNTS
    rows = rows_of(spark, archive_folder)
    assert {offset: row["value"] for offset, row in rows.items()} == VALUES
    assert {n: plain(row["value_decoded"]) for n, row in rows.items()} == {
        n: DECODED.get(n) for n in VALUES
    }
    ids = {**dict.fromkeys((0, 3, 4), 5), **dict.fromkeys((1, 2, 5, 6), 300), 7: 6, 8: 2**32 - 1}
    assert {n: row["value_schema_id"] for n, row in rows.items()} == {n: ids.get(n) for n in VALUES}
    report = validate_archive(Archive.at(archive_folder), cluster, deep=True)
    assert report.findings == []
    assert LOGIN.partition(":")[2] not in "".join(
        path.read_text(errors="replace")
        for path in Path(archive_folder).rglob("*.json")
        if path.is_file()
    )


def test_drain_avro_registry_gone(
    spark: Any,
    drain: Drain,
    cluster: KafkaCluster,
    registry: FakeRegistry,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    archive_folder: str,
    repair: Callable[..., Any],
) -> None:
    """A full life cycle: drained with a registry, without, rolled, repaired, compacted."""
    topic = make_topic(1)
    register_orders(registry, topic)
    pipeline = pipeline_of(topic, archive_folder, AVRO, partition_by=[])
    client, archive = SchemaRegistry(registry.settings), Archive.at(archive_folder)
    for value in (GOOD[0], GOOD[1]):
        send(topic, [(None, value, None, START)])
        drain(pipeline, registry=client)
        validate_archive(archive, cluster)

    # The registry is down, and a schema was registered meanwhile.
    registry.register(f"{topic}-value", 301, V3)
    newer = in_wire_format(301, V3, {"id": 9, "city": None, "tags": [], "at": None, "paid": True})
    send(topic, [(None, newer, None, START)])
    registry.fails = 503
    result = drain(pipeline, registry=client)

    assert (result["values"]["decoded"], result["values"]["unknown_schema_id"]) == (0, 1)
    assert rows_of(spark, archive_folder)[2]["value_decoded"] is None
    validate_archive(archive, cluster)

    # It is back, and the next generation has the newest columns.
    registry.fails = 0
    with hold_lease(archive.root, run="tests"):
        roll(plan_roll(archive, cluster))
    send(topic, [(None, newer, None, START)])
    assert drain(pipeline, registry=client)["values"]["decoded"] == 1
    validate_archive(archive, cluster)

    rows = rows_of(spark, archive_folder)
    assert rows[3]["value_decoded"]["paid"] is True
    assert rows[0]["value_decoded"]["paid"] is None
    assert rows[0]["value_decoded"]["id"] == 1

    # A repair's window has the open generation's columns, and unknown schemas are now known.
    files = Path(archive_folder, "generations/0001/data").glob("*.parquet")
    [lost] = [f for f in files if pq.read_table(f, columns=["offset"])[0][0].as_py() == 2]
    lost.unlink()
    repair(archive, pipeline)
    assert rows_of(spark, archive_folder)[2]["value_decoded"]["paid"] is True

    # A compaction decodes again.
    compact(spark, archive, pipeline)
    rows = rows_of(spark, archive_folder)
    assert [rows[n]["value_decoded"]["paid"] for n in range(4)] == [False, False, True, True]
    assert errors(validate_archive(archive, cluster, deep=True).findings) == []


def compact(spark: Any, archive: Archive, pipeline: Pipeline) -> None:
    """Compact the closed generation as the command does, but in the shared Spark session."""
    from kafka_drain_spark.compact import run_compact

    [compaction] = plan_compactions(
        archive.snapshot(), archive.snapshot().generations[:-1], 1 << 20
    )
    with tempfile.TemporaryDirectory() as folder:
        job = prepare_compaction(archive, compaction, pipeline, Path(folder))
        spec = CompactSpec.read(Path(folder) / "compact.json")
        write_private(job.result_path, run_compact(spark, spec))
        finish_compaction(archive, compaction, job, run="tests")


def test_drain_json_values(
    spark: Any,
    drain: Drain,
    cluster: KafkaCluster,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    archive_folder: str,
) -> None:
    """JSON has the columns that the pipeline names, plain or in the wire format."""
    values = {
        0: b'{"id": 1, "city": "Bonn", "more": 7}',
        1: b'\0\0\0\0\x07{"id": 2}',
        2: b'{"id": "two"}',
        3: b"nothing of the kind",
        4: b"\xff\xfe",
        5: None,
        6: b'{"city": "K\xc3\xb6ln"}',
    }
    topic = make_topic(1)
    send(topic, [(None, value, None, START) for value in values.values()])
    columns = {"encoding": "json", "columns": "id BIGINT, city STRING"}

    result = drain(pipeline_of(topic, archive_folder, columns))

    assert result["values"] == {"decoded": 3, "tombstones": 1, "not_decodable": 3}
    rows = rows_of(spark, archive_folder)
    assert {offset: row["value"] for offset, row in rows.items()} == values
    assert {n: tuple(row["value_decoded"] or ()) for n, row in rows.items()} == {
        **dict.fromkeys(values, ()),
        0: (1, "Bonn"),
        1: (2, None),
        6: (None, "Köln"),
    }
    assert {n: row["value_schema_id"] for n, row in rows.items() if n < 2} == {0: None, 1: 7}
    assert validate_archive(Archive.at(archive_folder), cluster, deep=True).findings == []


def test_drain_bad_columns(
    drain: Drain, make_topic: Callable[..., str], send: Callable[..., None], archive_folder: str
) -> None:
    """Column types that Spark can't parse are refused by key, before anything is read."""
    topic = make_topic(1)
    send(topic, [(None, b"{}", None, START)])
    columns = {"encoding": "json", "columns": "id BIGINTEGER"}

    says = r"values.columns can't be converted to columns: .*BIGINTEGER"
    with pytest.raises(ConfigError, match=says):
        drain(pipeline_of(topic, archive_folder, columns))
