"""Counts of wanted rows: what the few columns say is what going through the rows finds."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from upath import UPath

from kafka_drain.data_files import parquet
from kafka_drain.data_files.reader import topic_of
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import DataFileError
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.republish.planning.row_counts import RowCount, count_rows
from kafka_drain.republish.planning.selection import Rows
from tests.fresh_process import printed_by
from tests.kafka_drain.golden import GOLDEN, P0, P1

Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
T0 = TopicPartition("t", 0)


def row(offset: int, ms: int | None, partition: int = 0, topic: str | None = "t") -> Row:
    time = None if ms is None else EPOCH + timedelta(milliseconds=ms)
    return {"partition": partition, "offset": offset, "timestamp": time, "topic": topic}


#: Of partition 0 of topic t: offsets 3 to 8, of which 4 and 6 are of the start of 1970.
ROWS = [
    row(3, -1),
    row(4, 0),
    row(5, 1),
    row(6, 0),
    row(7, None),
    row(8, 1_700_000_000_000),
    row(0, 0, partition=1),
    row(9, 0, topic="u"),
    row(10, 0, topic=None),
]

AVRO_FIELDS: list[dict[str, Any]] = [
    {"name": "partition", "type": ["int", "null"]},
    {"name": "offset", "type": ["long", "null"]},
    {
        "name": "timestamp",
        "type": [{"type": "long", "logicalType": "timestamp-micros"}, "null"],
    },
    {"name": "topic", "type": ["string", "null"]},
    {"name": "value", "type": ["bytes", "null"]},
]


def write(path: Path, file_format: str, rows: list[Row]) -> Path:
    rows = [{"value": b"v", **r} for r in rows]
    schema = pa.schema([f for f in SCHEMA if f.name in {name for r in rows for name in r}])
    if file_format == "parquet":
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=2)
    elif file_format == "orc":
        # As the drain's JVM does: local times, in UTC.
        table = pa.Table.from_pylist(rows, schema=schema)
        times = table["timestamp"].cast(pa.timestamp("ns"))
        position = table.schema.get_field_index("timestamp")
        orc.write_table(table.set_column(position, "timestamp", times), str(path))
    elif file_format == "avro":
        fields = [f for f in AVRO_FIELDS if f["name"] in schema.names]
        with path.open("wb") as target:
            fastavro.writer(target, {"type": "record", "name": "r", "fields": fields}, rows)
    else:
        lines = []
        for r in rows:
            plain = {name: value for name, value in r.items() if value is not None}
            if "timestamp" in plain:
                plain["timestamp"] = plain["timestamp"].isoformat(timespec="milliseconds")
            lines.append(json.dumps(plain | {"value": "dg=="}) + "\n")
        path.write_text("".join(lines))
    return path


each_format = pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "json"])


@each_format
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (Rows(), RowCount(6, 2, 3, 8)),
        (Rows((OffsetRange(0, 5),)), RowCount(2, 1, 3, 4)),
        (Rows((OffsetRange(5, 6), OffsetRange(7, 8))), RowCount(2, 0, 5, 7)),
        (Rows(()), RowCount(0, 0, None, None)),
        (Rows((OffsetRange(9, 99),)), RowCount()),
        (Rows(from_ms=0), RowCount(4, 2, 4, 8)),
        (Rows(from_ms=1), RowCount(2, 0, 5, 8)),
        (Rows(to_ms=0), RowCount(1, 0, 3, 3)),
        (Rows(from_ms=0, to_ms=1), RowCount(2, 2, 4, 6)),
        (Rows((OffsetRange(5, 8),), 0, 2), RowCount(2, 1, 5, 6)),
        # Farther away than 64 bits of nanoseconds reach.
        (Rows(from_ms=-62_135_596_800_000, to_ms=253_402_300_799_999), RowCount(5, 2, 3, 8)),
    ],
    ids=str,
)
def test_count_rows(tmp_path: Path, file_format: str, rows: Rows, expected: RowCount) -> None:
    """Rows are counted by partition, topic, offset and time, whatever the format."""
    path = write(tmp_path / "x", file_format, ROWS)

    assert expected == count_rows(UPath(path), file_format, None, T0, rows)


@each_format
def test_count_rows_topics(tmp_path: Path, file_format: str) -> None:
    """Each topic's rows are counted apart; a row without a topic is one of topic ""."""
    path = write(tmp_path / "x", file_format, ROWS)

    def counted(topic: str, partition: int) -> RowCount:
        return count_rows(path, file_format, None, TopicPartition(topic, partition), Rows())

    assert counted("t", 1) == RowCount(1, 1, 0, 0)
    assert counted("u", 0) == RowCount(1, 1, 9, 9)
    assert counted("", 0) == RowCount(1, 1, 10, 10)
    assert counted("v", 0) == RowCount()


@each_format
def test_count_rows_topic_folder(tmp_path: Path, file_format: str) -> None:
    """Where a folder names the topic, the file has no such column, and no other topic's rows."""
    rows = [{name: value for name, value in r.items() if name != "topic"} for r in ROWS[:6]]
    path = write(tmp_path / "x", file_format, rows)

    assert count_rows(path, file_format, "t", T0, Rows()) == RowCount(6, 2, 3, 8)
    assert count_rows(path, file_format, "u", T0, Rows()) == RowCount()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_count_rows_units(tmp_path: Path, unit: str, zone: str | None) -> None:
    """Times are compared exactly in the unit that the file has."""
    times = pa.array([-2, -1, 0, 1, 2], pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    table = pa.table({"partition": [0] * 5, "offset": range(5), "timestamp": times})
    pq.write_table(table, tmp_path / "x")

    def counted(from_ms: int | None, to_ms: int | None) -> RowCount:
        return count_rows(tmp_path / "x", "parquet", "t", T0, Rows(None, from_ms, to_ms))

    assert counted(None, None) == RowCount(5, 1, 0, 4)
    assert counted(1000, None) == RowCount(2, 0, 3, 4)
    assert counted(1001, None) == RowCount(1, 0, 4, 4)
    assert counted(-999, 1001) == RowCount(2, 1, 2, 3)
    assert counted(-1000, 1000) == RowCount(2, 1, 1, 2)
    assert counted(-(10**18), 10**18) == RowCount(5, 1, 0, 4)


def test_count_rows_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are added up, also where rows are out of order or some batches hold none."""
    monkeypatch.setattr(parquet, "COLUMN_ROWS", 3)
    offsets = [9, 2, 7, 40, 41, 42, 30, 1, 11]
    path = write(tmp_path / "x", "parquet", [row(o, o % 2) for o in offsets])

    assert count_rows(path, "parquet", None, T0, Rows()) == RowCount(9, 4, 1, 42)
    assert count_rows(path, "parquet", None, T0, Rows((OffsetRange(2, 31),))) == RowCount(
        5, 2, 2, 30
    )


def test_count_rows_empty(tmp_path: Path) -> None:
    """A file without rows has none that is wanted."""
    pq.write_table(SCHEMA.empty_table(), tmp_path / "x")

    assert count_rows(tmp_path / "x", "parquet", None, T0, Rows()) == RowCount()


@pytest.mark.parametrize("name", ["partition", "offset", "timestamp", "topic"])
def test_count_rows_missing_column(tmp_path: Path, name: str) -> None:
    """A file without one of the columns isn't one of ours."""
    table = pa.Table.from_pylist(ROWS, schema=SCHEMA).drop_columns([name])
    pq.write_table(table, tmp_path / "x")

    with pytest.raises(DataFileError, match="has columns"):
        count_rows(tmp_path / "x", "parquet", None, T0, Rows())


def test_count_rows_timestamp_not_time(tmp_path: Path) -> None:
    """Timestamps of another type aren't ours."""
    table = pa.table({"partition": [0], "offset": [0], "timestamp": [5]})
    pq.write_table(table, tmp_path / "x")

    with pytest.raises(DataFileError, match="column timestamp holds int64"):
        count_rows(tmp_path / "x", "parquet", "t", T0, Rows())


def test_count_rows_not_readable(tmp_path: Path) -> None:
    """A damaged file is a DataFileError, a missing one stays missing."""
    (tmp_path / "x").write_bytes(b"damaged")

    with pytest.raises(DataFileError, match="not readable as Parquet"):
        count_rows(tmp_path / "x", "parquet", "t", T0, Rows())
    with pytest.raises(FileNotFoundError):
        count_rows(tmp_path / "y", "parquet", "t", T0, Rows())


@pytest.mark.parametrize("tp", [P0, P1], ids=str)
def test_count_rows_golden(tp: TopicPartition) -> None:
    """The files that Spark wrote hold each wanted offset of the golden archive."""
    rows = Rows((OffsetRange(5, 20), OffsetRange(30, 31)))
    offsets: set[int] = set()
    for path in GOLDEN.glob("generations/0001/data/topic=*/*.parquet"):
        found = count_rows(path, "parquet", topic_of(path.as_posix()), tp, rows)
        if found.first is not None and found.last is not None:
            offsets |= {found.first, found.last}

    assert offsets <= {*range(5, 20), 30}
    assert {5, 19, 30} <= offsets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that every example writes its file to again."""
    return tmp_path_factory.mktemp("counts")


bounds = st.none() | st.integers(-4, 13)


@settings(max_examples=60)
@given(
    drawn=st.lists(
        st.tuples(st.integers(0, 30), st.none() | st.integers(-3, 12), st.integers(0, 1)),
        max_size=30,
    ),
    ranges=st.none() | st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=4),
    from_ms=bounds,
    to_ms=bounds,
)
def test_count_rows_property(
    folder: Path,
    drawn: list[tuple[int, int | None, int]],
    ranges: list[tuple[int, int]] | None,
    from_ms: int | None,
    to_ms: int | None,
) -> None:
    """Whatever a file holds and whatever is wanted, each wanted row counts once."""
    merged = None if ranges is None else tuple(merge(OffsetRange(a, a + n) for a, n in ranges))
    table = pa.Table.from_pylist([row(*r) for r in drawn], schema=SCHEMA)
    pq.write_table(table, folder / "x", row_group_size=7)
    wanted = [
        (offset, ms)
        for offset, ms, partition in drawn
        if partition == 0
        and (merged is None or any(offset in r for r in merged))
        and (from_ms is None or (ms is not None and ms >= from_ms))
        and (to_ms is None or (ms is not None and ms < to_ms))
    ]

    assert RowCount(
        len(wanted),
        sum(ms == 0 for _, ms in wanted),
        min((offset for offset, _ in wanted), default=None),
        max((offset for offset, _ in wanted), default=None),
    ) == count_rows(folder / "x", "parquet", None, T0, Rows(merged, from_ms, to_ms))


def test_count_rows_imports(tmp_path: Path) -> None:
    """Counting the rows of Parquet doesn't import pandas, which would take seconds."""
    path = write(tmp_path / "x", "parquet", ROWS)
    script = f"""
import sys
from pathlib import Path
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.planning.row_counts import count_rows
from kafka_drain.republish.planning.selection import Rows
rows = Rows((OffsetRange(0, 5), OffsetRange(6, 8)), 0, 5)
print(count_rows(Path({str(path)!r}), "parquet", None, TopicPartition("t", 0), rows))
print("pandas" in sys.modules)
"""
    assert printed_by(script) == [str(RowCount(2, 2, 4, 6)), "False"]
