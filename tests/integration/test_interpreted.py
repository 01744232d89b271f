"""Spark interprets the queries of small drains and compiles those of large ones: the same files.

The other tests of values and formats run in the shared session, whose queries are compiled.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.group import open_group, raise_failures, run_group
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.runner import runner_for
from tests.fake_registry import FakeRegistry, fake_registry, in_wire_format
from tests.integration.test_round_trip import NOON, RECORDS

pytestmark = pytest.mark.integration

FORMATS = ("parquet", "avro", "json", "orc")
#: What a pipeline sets to have its small drains compiled as well.
COMPILED = {"spark.sql.codegen.factoryMode": "FALLBACK", "spark.sql.codegen.wholeStage": "true"}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


OLD = {"type": "record", "name": "Kinds", "fields": [{"name": "long", "type": "int"}]}
KINDS: dict[str, tuple[Any, Any]] = {
    "boolean": ("boolean", True),
    "int": ("int", -(1 << 31)),
    "float": ("float", 0.25),
    "double": ("double", float("-inf")),
    "bytes": ("bytes", b"\x00\xff"),
    "string": ("string", "Köln \U0001f600"),
    "enum": ({"type": "enum", "name": "Size", "symbols": ["S", "L"]}, "L"),
    "fixed": ({"type": "fixed", "name": "Four", "size": 4}, b"four"),
    "decimal": (logical("bytes", "decimal", precision=20, scale=3), Decimal("-12345678901.250")),
    "date": (logical("int", "date"), dt.date(1582, 10, 4)),
    "millis": (
        logical("long", "timestamp-millis"),
        dt.datetime(1960, 1, 1, 0, 0, 0, 123000, dt.timezone.utc),
    ),
    "micros": (
        logical("long", "timestamp-micros"),
        dt.datetime(2262, 5, 1, 1, 2, 3, 4, dt.timezone.utc),
    ),
    "local": (logical("long", "local-timestamp-micros"), dt.datetime(2013, 1, 1, 12)),
    "array": ({"type": "array", "items": ["null", "int"]}, [1, None]),
    "map": ({"type": "map", "values": "long"}, {"a": 1}),
    "record": (
        {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]},
        {"name": "Bonn"},
    ),
}
NEW = {
    "type": "record",
    "name": "Kinds",
    "fields": [
        {"name": "long", "type": "long"},
        *(
            {"name": name, "type": ["null", kind], "default": None}
            for name, (kind, _) in KINDS.items()
        ),
        {"name": "either", "type": ["null", "int", "string"], "default": None},
    ],
}
WHOLE = {"long": 1 << 62, **{name: value for name, (_, value) in KINDS.items()}, "either": "or"}
EMPTY: dict[str, Any] = {**dict.fromkeys(WHOLE), "long": 2}
AVRO_VALUES = [
    in_wire_format(5, OLD, {"long": 1}),
    in_wire_format(6, NEW, WHOLE),
    in_wire_format(6, NEW, EMPTY),
    in_wire_format(6, NEW, WHOLE)[:-1],
    in_wire_format(5, OLD, {"long": 1})[:5],
    in_wire_format(7, OLD, {"long": 1}),
]
#: What each Avro value is decoded to; columns of no record are null.
DECODED = [
    {**EMPTY, "long": 1},
    {**WHOLE, "map": [("a", 1)], "either": {"member0": None, "member1": "or"}},
    EMPTY,
    None,
    None,
    None,
]

COLUMNS = (
    "tiny TINYINT, small SMALLINT, int INT, big BIGINT, float FLOAT, double DOUBLE, "
    "decimal DECIMAL(12, 3), boolean BOOLEAN, string STRING, binary BINARY, date DATE, "
    "timestamp TIMESTAMP, local TIMESTAMP_NTZ, array ARRAY<STRUCT<a: INT>>, "
    "map MAP<STRING, DOUBLE>, record STRUCT<name: STRING>"
)
WHOLE_JSON = {
    "tiny": -128, "small": 1 << 14, "int": 1 << 30, "big": 1 << 62, "float": 0.1, "double": 1e300,
    "decimal": 12.345, "boolean": False, "string": "Köln", "binary": "AP8=", "date": "1582-10-04",
    "timestamp": "1960-01-01T00:00:00.123Z", "local": "2013-01-01T12:00:00",
    "array": [{"a": 1}, None, {}], "map": {"a": 1.5}, "record": {"name": "Bonn"}, "more": [1],
}  # fmt: skip
JSON_VALUES = [
    json.dumps(value).encode()
    for value in (
        WHOLE_JSON,
        {},
        [],
        dict.fromkeys(WHOLE_JSON),
        # Each with a single field of another type; a string can be anything.
        *(
            WHOLE_JSON | {name: [] if name != "array" else "no"}
            for name in WHOLE_JSON
            if name not in ("string", "more")
        ),
    )
]


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry without schemas."""
    with fake_registry() as running:
        yield running


@pytest.fixture
def drained(
    cluster: KafkaCluster, registry: FakeRegistry, tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """Drain pipelines by one spark-submit, as a group's operator does."""

    def run(pipelines: list[Pipeline], *, compiled: str) -> dict[str, Any]:
        folder = tmp_path / f"run {compiled}"
        folder.mkdir()
        client = SchemaRegistry(registry.settings)
        with open_group(
            pipelines,
            {"kafka_default": cluster},
            folder,
            run="tests",
            registry_of=lambda pipeline: client if pipeline.values.encoding == "avro" else None,
        ) as group:
            assert group.application is not None
            assert group.application.conf["spark.sql.codegen.wholeStage"] == compiled
            run_group(group, runner_for(SparkConnection("local[2]")))
        raise_failures(group)
        return group.results

    return run


def content(path: Path) -> Any:
    """Return what a file contains.

    Its bytes, unless some are random: Avro's marker, the order of encodings in Parquet's footer.
    """
    if path.suffix == ".avro":
        with path.open("rb") as file:
            return [*fastavro.reader(file)]
    return pq.ParquetFile(path).read() if path.suffix == ".parquet" else path.read_bytes()


def written(archive: Archive) -> list[Any]:
    """Return what an archive's files contain, by folder and task."""
    paths = [Path(file["path"]) for file in committed_files(archive)]
    assert paths
    # part-00000-<random>.c000.…
    paths.sort(key=lambda path: (path.parent, path.name[:10]))
    return [(path.parent.relative_to(archive.root), content(path)) for path in paths]


def test_drain_interpreted_as_compiled(
    drained: Callable[..., dict[str, Any]],
    registry: FakeRegistry,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    read: Any,
    republish: Any,
    tmp_path: Path,
) -> None:
    """Both write the same files, in each format and for typed columns of every kind."""
    topics = {name: make_topic(1, max_message_bytes=str(4 << 20)) for name in ("avro", "json")}
    registry.register(f"{topics['avro']}-value", 5, OLD)
    registry.register(f"{topics['avro']}-value", 6, NEW)
    for name, values in (("avro", AVRO_VALUES), ("json", JSON_VALUES)):
        send(topics[name], [(b"k", value, None, NOON) for value in values] + RECORDS)
    read_as = {
        "avro": {"encoding": "avro", "registry_conn_id": "registry"},
        "json": {"encoding": "json", "columns": COLUMNS},
    }

    def pipelines(way: str, conf: dict[str, str]) -> list[Pipeline]:
        return [
            Pipeline(
                name=f"{encoding}_in_{file_format}",
                topics=[topics[encoding]],
                archive=str(tmp_path / way / f"{encoding}_in_{file_format}"),
                format=file_format,
                values=values,
                spark_conf=conf,
            )
            for encoding, values in read_as.items()
            for file_format in FORMATS
        ]

    interpreted, compiled = pipelines("interpreted", {}), pipelines("compiled", COMPILED)

    results = drained(interpreted, compiled="false"), drained(compiled, compiled="true")

    for name, result in results[0].items():
        assert result["values"] == results[1][name]["values"], name
    for one, other in zip(interpreted, compiled, strict=True):
        archive = Archive.at(one.archive)
        assert written(archive) == written(Archive.at(other.archive)), one.name
        report = validate_archive(archive, cluster, deep=True)
        assert (report.complete, report.findings) == (True, []), one.name
    for one in interpreted[: len(FORMATS)]:
        target = make_topic(1, max_message_bytes=str(4 << 20))
        republish(Archive.at(one.archive), target)
        assert read(target) == read(topics["avro"]), one.name
    table = [
        row
        for file in committed_files(Archive.at(interpreted[0].archive))
        for row in pq.ParquetFile(file["path"]).read(["offset", "value_decoded"]).to_pylist()
    ]
    decoded = [row["value_decoded"] for row in sorted(table, key=lambda row: row["offset"])]
    assert decoded == [*DECODED, *[None] * len(RECORDS)]
    assert results[0]["json_in_parquet"]["values"]["decoded"] == 3
