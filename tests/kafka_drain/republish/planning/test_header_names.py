"""Header names with a NUL: found in any format, among the selected records only."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from kafka_drain.data_files.reader import may_have_nul_names, offset_of_nul
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import DataFileError, SourceRecordError
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.planning.header_names import refuse_nul
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ShardFile

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

Header = tuple[str, bytes | None]

BINARY: Any = ["bytes", "null"]
HEADER = {
    "type": "record",
    "name": "header",
    "fields": [{"name": "key", "type": ["string", "null"]}, {"name": "value", "type": BINARY}],
}
AVRO_FIELDS: list[dict[str, Any]] = [
    {"name": "value", "type": BINARY},
    {"name": "headers", "type": [{"type": "array", "items": [HEADER, "null"]}, "null"]},
    {"name": "topic", "type": ["string", "null"]},
    {"name": "partition", "type": ["int", "null"]},
    {"name": "offset", "type": ["long", "null"]},
    {"name": "timestamp", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
]


def row(tp: TopicPartition, offset: int, *headers: Header) -> dict[str, Any]:
    return {
        "value": b"\0",
        "headers": [{"key": name, "value": value} for name, value in headers] or None,
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": offset,
        "timestamp": offset * 1000,
    }


#: Names with a NUL: offsets 7 and 8 of t-0, and 3 of u-0.
ROWS = [
    row(T0, 5, ("a", b"\0"), ("b", None)),
    row(T0, 6),
    row(T0, 7, ("a", b"1"), ("b\0c", b"1")),
    row(T0, 8, ("\0", b"")),
    row(T1, 7, ("a", b"1")),
    row(U0, 3, ("a\0", None)),
]


def write(root: Path, file_format: str, rows: list[dict[str, Any]], folder: str = "") -> ShardFile:
    path = root / folder / "x"
    path.parent.mkdir(exist_ok=True)
    names = [name for name in SCHEMA.names if any(name in r for r in rows)]
    table = pa.Table.from_pylist(rows, schema=pa.schema([SCHEMA.field(name) for name in names]))
    if file_format == "parquet":
        pq.write_table(table, path, row_group_size=2)
    elif file_format == "orc":
        times = table["timestamp"].cast(pa.timestamp("ns"))
        position = table.schema.get_field_index("timestamp")
        orc.write_table(table.set_column(position, "timestamp", times), str(path))
    elif file_format == "avro":
        fields = [field for field in AVRO_FIELDS if field["name"] in names]
        with path.open("wb") as target:
            fastavro.writer(target, {"type": "record", "name": "r", "fields": fields}, rows)
    else:
        path.write_text("".join(json.dumps(_json(r)) + "\n" for r in rows))
    return ShardFile(str(path.relative_to(root)), file_format, 1, "", 0, 9, 1, True)


def _json(row: dict[str, Any]) -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else b64encode(value).decode()

    headers = [h | {"value": text(h["value"])} for h in row.get("headers") or ()]
    time = f"1970-01-01T00:00:00.{row['timestamp'] // 1000:03d}Z"
    return row | {"value": text(row["value"]), "headers": headers or None, "timestamp": time}


each_format = pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "json"])


@each_format
@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ({T0: Rows()}, (T0, 7)),
        ({T1: Rows()}, None),
        ({U0: Rows()}, (U0, 3)),
        ({U0: Rows(), T1: Rows(), T0: Rows()}, (T0, 7)),
        ({T0: Rows((OffsetRange(0, 7),)), T1: Rows()}, None),
        ({T0: Rows((OffsetRange(0, 7), OffsetRange(8, 9)))}, (T0, 8)),
        ({T0: Rows(from_ms=8)}, (T0, 8)),
        ({T0: Rows(to_ms=7)}, None),
        ({T0: Rows(to_ms=7), U0: Rows()}, (U0, 3)),
        ({}, None),
    ],
    ids=str,
)
def test_refuse_nul(
    tmp_path: Path,
    file_format: str,
    selected: dict[TopicPartition, Rows],
    expected: tuple[TopicPartition, int] | None,
) -> None:
    """The first selected record with such a name is refused; other records don't count."""
    file = write(tmp_path, file_format, ROWS)

    if expected is None:
        refuse_nul(str(tmp_path), file, selected)
        return
    with pytest.raises(SourceRecordError) as refused:
        refuse_nul(str(tmp_path), file, selected)
    assert f"the record at offset {expected[1]} of {expected[0]} has" in str(refused.value)
    assert "nothing was sent. Leave the record out (offsets), or send" in str(refused.value)


@each_format
def test_refuse_nul_topic_folder(tmp_path: Path, file_format: str) -> None:
    """In a topic's folder, a file needs no column for it."""
    rows = [{name: v for name, v in r.items() if name != "topic"} for r in ROWS]
    file = write(tmp_path, file_format, rows, "topic=t")

    with pytest.raises(SourceRecordError, match="offset 3 of t-0"):
        refuse_nul(str(tmp_path), file, {T0: Rows((OffsetRange(0, 4),))})


@each_format
def test_refuse_nul_no_headers(tmp_path: Path, file_format: str) -> None:
    """A file without headers, or without a column for them, is fine."""
    rows = [r | {"headers": None} for r in ROWS]
    without = [{name: v for name, v in r.items() if name != "headers"} for r in ROWS]

    for number, some in enumerate([rows, without]):
        file = write(tmp_path, file_format, some, f"topic=t{number}")
        refuse_nul(str(tmp_path), file, {T0: Rows()})


@pytest.mark.parametrize(("file_format", "title"), [("parquet", "Parquet"), ("avro", "Avro")])
def test_refuse_nul_damaged(tmp_path: Path, file_format: str, title: str) -> None:
    """A file that can't be read is named."""
    file = write(tmp_path, file_format, ROWS)
    (tmp_path / "x").write_bytes(b"damaged")

    with pytest.raises(DataFileError, match=rf"^x: not readable as {title}"):
        refuse_nul(str(tmp_path), file, {T0: Rows()})


@each_format
@pytest.mark.parametrize("number", range(len(ROWS)))
def test_may_have_nul_names(tmp_path: Path, file_format: str, number: int) -> None:
    """Avro and JSON tell without their columns; NULs in values don't count."""
    file = write(tmp_path, file_format, [ROWS[number]])

    expected = ROWS[number] in (ROWS[2], ROWS[3], ROWS[5]) or file_format in ("parquet", "orc")
    assert may_have_nul_names(tmp_path / file.path, file_format) == expected


@pytest.mark.parametrize("shift", range(-7, 2))
def test_may_have_nul_names_chunks(tmp_path: Path, shift: int) -> None:
    """JSON's text is read in chunks of 1 MiB: a NUL at their border is found."""
    path = tmp_path / "x"
    path.write_bytes(b" " * ((1 << 20) + shift) + rb"\u0000" + b" " * 9)

    assert may_have_nul_names(path, "json")


def test_refuse_nul_backslash(tmp_path: Path) -> None:
    """A name with a backslash, then u0000, looks like a NUL in JSON's text, but isn't one."""
    file = write(tmp_path, "json", [row(T0, 5, (r"\u0000", None))])

    assert may_have_nul_names(tmp_path / file.path, "json")
    refuse_nul(str(tmp_path), file, {T0: Rows()})


def test_offset_of_nul() -> None:
    """The first record with a NUL in a header's name is found in any part of a batch."""
    batch = pa.RecordBatch.from_pylist(ROWS[:5], schema=SCHEMA)

    for start in range(batch.num_rows):
        for end in range(start, batch.num_rows + 1):
            with_nul = [r["offset"] for r in ROWS[start:end] if r in (ROWS[2], ROWS[3])]
            expected = with_nul[0] if with_nul else None
            assert offset_of_nul(batch.slice(start, end - start)) == expected
