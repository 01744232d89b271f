"""Data files of each format: what was written is read, and damage is named."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import random
import subprocess
import sys
import zlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise, product
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

from kafka_drain.data_files import avro, json_lines, parquet, reader
from kafka_drain.data_files.batch_sizes import STEP_ROWS
from kafka_drain.data_files.file_offsets import FileOffsets
from kafka_drain.data_files.reader import (
    as_client_reads,
    index_sha256,
    offset_of_nul,
    read_contents,
    read_offsets,
    read_records,
    rows_with_nul,
    topic_of,
)
from kafka_drain.data_files.records import SCHEMA, TimestampError, batches_of_rows
from kafka_drain.errors import (
    DataFileError,
    KeyUnavailableError,
    KmsUnavailableError,
    MachineError,
    StoreUnavailableError,
)
from kafka_drain.offsets import OffsetRange, TopicPartition, merge

Row = dict[str, Any]
Writer = Callable[[Path, list[Row]], UPath]

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
BATCH_BYTES = 1 << 20


def row(offset: int, partition: int = 0, **changes: Any) -> Row:
    return {
        "key": b"key",
        "value": b"value",
        "headers": None,
        "topic": "t",
        "partition": partition,
        "offset": offset,
        "timestamp": START + timedelta(milliseconds=offset),
        "timestampType": 0,
    } | changes


#: One row for each thing that a record may hold.
ROWS = [
    row(7),
    row(8, key=None),
    row(9, value=None),
    row(10, key=b"", value=b""),
    row(11, value=bytes(range(256)), key="é".encode()),
    row(12, headers=[{"key": "a", "value": b"1"}, {"key": "a", "value": b"\xff"}]),
    row(13, headers=[{"key": "none", "value": None}, {"key": "", "value": b""}]),
    row(20, timestampType=1, timestamp=START + timedelta(milliseconds=123)),
    row(3, partition=1),
    row(2, partition=1),
]

# As Spark writes them: with plain `binary` columns.
SPARK_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)


def columns_in(rows: list[Row]) -> pa.Schema:
    """Return the columns that the rows have; a partition column isn't in the file."""
    return pa.schema([field for field in SPARK_SCHEMA if any(field.name in r for r in rows)])


def write_parquet(folder: Path, rows: list[Row]) -> UPath:
    path = folder / "part-0.parquet"
    table = pa.Table.from_pylist(rows, schema=columns_in(rows))
    pq.write_table(table, path, row_group_size=4)
    return UPath(path)


def write_orc(folder: Path, rows: list[Row]) -> UPath:
    """Write ORC as Spark does: with local times of a JVM whose zone is UTC."""
    schema = columns_in(rows)
    position = schema.get_field_index("timestamp")
    if position >= 0:
        schema = schema.set(position, pa.field("timestamp", pa.timestamp("us")))
    naive = [
        r | {"timestamp": r["timestamp"].replace(tzinfo=None)} if "timestamp" in r else r
        for r in rows
    ]
    path = folder / "part-0.orc"
    orc.write_table(pa.Table.from_pylist(naive, schema=schema), str(path))
    return UPath(path)


def write_orc_instants(folder: Path, rows: list[Row]) -> UPath:
    path = folder / "part-0.orc"
    orc.write_table(pa.Table.from_pylist(rows, schema=columns_in(rows)), str(path))
    return UPath(path)


AVRO_TYPES: dict[str, Any] = {
    "key": ["bytes", "null"],
    "value": ["bytes", "null"],
    "headers": [
        {
            "type": "array",
            "items": [
                {
                    "type": "record",
                    "name": "headers",
                    "fields": [
                        {"name": "key", "type": ["string", "null"]},
                        {"name": "value", "type": ["bytes", "null"]},
                    ],
                },
                "null",
            ],
        },
        "null",
    ],
    "topic": ["string", "null"],
    "partition": ["int", "null"],
    "offset": ["long", "null"],
    "timestamp": [{"type": "long", "logicalType": "timestamp-micros"}, "null"],
    "timestampType": ["int", "null"],
}


def avro_bytes(rows: list[Row], codec: str) -> bytes:
    schema = {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [{"name": n, "type": AVRO_TYPES[n]} for n in columns_in(rows).names],
    }
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, rows, codec=codec, sync_interval=512)
    return buffer.getvalue()


AVRO_CODECS = ["null", "deflate", "zstandard", "snappy", "bzip2", "xz"]


def avro_writer(codec: str) -> Writer:
    def write(folder: Path, rows: list[Row]) -> UPath:
        (folder / "part-0.avro").write_bytes(avro_bytes(rows, codec))
        return UPath(folder / "part-0.avro")

    return write


def json_line(r: Row) -> bytes:
    """Write a record as Spark does: bytes in base64, nulls left out."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return b64encode(value).decode()
        if isinstance(value, datetime):
            return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
        if isinstance(value, list):
            return [plain(entry) for entry in value]
        if isinstance(value, dict):
            return {name: plain(entry) for name, entry in value.items() if entry is not None}
        return value

    return json.dumps(plain(r)).encode() + b"\n"


def json_writer(suffix: str, compress: Callable[[bytes], bytes]) -> Writer:
    def write(folder: Path, rows: list[Row]) -> UPath:
        path = folder / f"part-0.json{suffix}"
        path.write_bytes(compress(b"".join(map(json_line, rows))))
        return UPath(path)

    return write


JSON_COMPRESSIONS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("", bytes),
    (".gz", gzip.compress),
    (".bz2", bz2.compress),
    (".deflate", zlib.compress),
]

FORMATS = [
    pytest.param("parquet", write_parquet, id="parquet"),
    pytest.param("orc", write_orc, id="orc"),
    pytest.param("orc", write_orc_instants, id="orc-instants"),
    *(pytest.param("avro", avro_writer(codec), id=f"avro-{codec}") for codec in AVRO_CODECS),
    *(
        pytest.param("json", json_writer(suffix, compress), id=f"json{suffix}")
        for suffix, compress in JSON_COMPRESSIONS
    ),
]
each_format = pytest.mark.parametrize(("file_format", "write"), FORMATS)


def without(rows: list[Row], *names: str) -> list[Row]:
    return [{name: value for name, value in r.items() if name not in names} for r in rows]


def rows_read(path: UPath, file_format: str, batch_bytes: int = BATCH_BYTES) -> list[Row]:
    batches = list(read_records(path, file_format, batch_bytes))
    assert all(batch.schema == SCHEMA for batch in batches)
    return pa.Table.from_batches(batches, schema=SCHEMA).to_pylist()


# records


@each_format
def test_read_records(tmp_path: Path, file_format: str, write: Writer) -> None:
    """Every record comes out as it was written, in file order."""
    assert rows_read(write(tmp_path, ROWS), file_format) == ROWS


@each_format
def test_read_records_small_batches(tmp_path: Path, file_format: str, write: Writer) -> None:
    """Small batches hold the same records in the same order."""
    path = write(tmp_path, ROWS)

    assert rows_read(path, file_format, batch_bytes=1) == ROWS
    assert len(list(read_records(path, file_format, 1))) >= len(ROWS) - 2


@each_format
def test_read_records_topic_in_folder(tmp_path: Path, file_format: str, write: Writer) -> None:
    """A column that the folder names isn't in the file, and is null."""
    path = write(tmp_path, without(ROWS, "topic"))

    assert rows_read(path, file_format) == [r | {"topic": None} for r in ROWS]


@each_format
def test_read_records_no_headers(tmp_path: Path, file_format: str, write: Writer) -> None:
    """Files of a drain without headers have none."""
    path = write(tmp_path, without(ROWS, "headers"))

    assert rows_read(path, file_format) == [r | {"headers": None} for r in ROWS]


def test_read_records_deflate_large(tmp_path: Path) -> None:
    """A zlib stream that inflates to far more than it is long is read to its end."""
    rows = [row(offset, value=b"\0" * 10_000) for offset in range(300)]
    path = json_writer(".deflate", zlib.compress)(tmp_path, rows)

    assert rows_read(path, "json") == rows


# memory


#: Reads a file as a process of its own does: its peak also has what libraries keep.
READ = """
import json, re, sys
from pathlib import Path
from kafka_drain.data_files.reader import read_columns, read_offsets, read_records

def peak():
    # What getrusage says includes the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) << 10

path, file_format, part = Path(sys.argv[1]), *sys.argv[2:]
list(read_offsets(path, file_format, "t"))
before = peak()
found = {"rows": [], "largest": 0, "columns": 0}
for batch in read_records(path, file_format, 4 << 20):
    found["rows"].append(batch.num_rows)
    found["largest"] = max(found["largest"], batch.nbytes)
found["peak"] = peak() - before
for batch in read_columns(path, file_format, ["partition", "offset"], [part]):
    found["columns"] += batch.num_rows
    found["largest_column"] = batch.nbytes
print(json.dumps(found))
"""


def read_in_process(path: UPath, file_format: str, part: str) -> dict[str, Any]:
    """Return the batches' rows, the largest batch, the rows of a column, and the peak in bytes."""
    command = [sys.executable, "-c", READ, str(path), file_format, part]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=paths)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


LARGE = 100_000
LARGE_PARTS: dict[str, Any] = {
    "key": b"k" * LARGE,
    "value": b"v" * LARGE,
    "headers": [{"key": "h", "value": b"h" * LARGE}],
}


def large_rows(part: str, small: int, large: int) -> Iterator[list[Row]]:
    """Yield small rows, then rows with a part of 100 KB; as a drain's files, without topics."""
    for start in range(0, small + large, 50):
        offsets = range(start, min(start + 50, small + large))
        yield without(
            [row(n, **({} if n < small else {part: LARGE_PARTS[part]})) for n in offsets], "topic"
        )


def write_large(folder: Path, file_format: str, rows: Iterator[list[Row]]) -> UPath:
    """Write one row group or stripe, as Spark does of what takes few bytes."""
    path = UPath(folder / f"part-0.{file_format}{'.gz' * (file_format == 'json')}")
    names = [field for field in SPARK_SCHEMA if field.name != "topic"]
    if file_format == "parquet":
        parts = [pa.RecordBatch.from_pylist(some, pa.schema(names)) for some in rows]
        pq.write_table(pa.Table.from_batches(parts), path, row_group_size=1 << 30)
    elif file_format == "orc":
        at = next(n for n, field in enumerate(names) if field.name == "timestamp")
        names[at] = pa.field("timestampMillis", pa.int64())
        with orc.ORCWriter(str(path), compression="zstd", stripe_size=1 << 30) as orc_writer:
            for some in rows:
                exact = [{**r, "timestampMillis": r["offset"]} for r in some]
                orc_writer.write(pa.Table.from_pylist(exact, pa.schema(names)))
    elif file_format == "avro":
        fields = [{"name": n, "type": AVRO_TYPES[n]} for n in AVRO_TYPES if n != "topic"]
        schema = {"type": "record", "name": "topLevelRecord", "fields": fields}
        with path.open("wb") as target:
            fastavro.writer(target, schema, (r for some in rows for r in some), codec="zstandard")
    else:
        with gzip.open(path, "wb", compresslevel=1) as lines:
            lines.writelines(json_line(r) for some in rows for r in some)
    return path


@pytest.mark.parametrize(
    ("file_format", "part"),
    # A line of JSON is read as a whole, whichever part is large.
    [*product(["parquet", "orc", "avro"], LARGE_PARTS), ("json", "value")],
)
def test_read_large_records(tmp_path: Path, file_format: str, part: str) -> None:
    """Memory doesn't grow with records that take a hundredth of their size in a file."""
    path = write_large(tmp_path, file_format, large_rows(part, 0, 1_500))
    assert path.stat().st_size < 1_500_000

    read = read_in_process(path, file_format, part)

    assert sum(read["rows"]) == read["columns"] == 1_500
    assert read["largest"] <= 4_300_000
    assert read["largest_column"] <= 17_000_000
    # It takes 40 to 60 MB, by how far the library's threads read ahead; all records are 150 MB.
    assert read["peak"] < 100_000_000
    assert read_offsets(path, file_format, "t")[0].records == 1_500


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_read_suddenly_large_records(tmp_path: Path, file_format: str) -> None:
    """After many small records, at most STEP_ROWS large ones are read at once."""
    path = write_large(tmp_path, file_format, large_rows("value", 10_000, 3_000))

    read = read_in_process(path, file_format, "key")

    assert sum(read["rows"]) == 13_000
    assert read["largest"] <= 4_300_000
    # Arrays grow by doubling, and ORC's library holds what it has unpacked.
    assert read["peak"] < 5 * STEP_ROWS * LARGE


def test_read_more_than_an_array_holds(tmp_path: Path) -> None:
    """Headers of more than 2 GiB in one row group are read, in batches of less."""
    part = pa.RecordBatch.from_pylist(next(large_rows("headers", 0, 50)), SPARK_SCHEMA)
    path = UPath(tmp_path / "part-0.parquet")
    pq.write_table(pa.Table.from_batches([part] * 440), path, row_group_size=1 << 30)
    assert pq.ParquetFile(path).num_row_groups == 1
    rows = unpacked = 0

    for batch in read_records(path, "parquet"):
        rows += batch.num_rows
        unpacked += batch.nbytes
        assert batch.nbytes < 17 << 20

    assert rows == 22_000
    assert unpacked > 1 << 31


# offsets


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


def held(
    topic: str,
    partition: int,
    ranges: list[OffsetRange],
    records: int,
    duplicates: tuple[int, ...] = (),
    *,
    ascending: bool = True,
    times: tuple[int, int],
) -> FileOffsets:
    """Describe offsets; times are in milliseconds since START."""
    start = int(START.timestamp() * 1000)
    return FileOffsets(
        TopicPartition(topic, partition),
        tuple(ranges),
        records,
        duplicates,
        ascending,
        *(start + time for time in times),
    )


@each_format
@pytest.mark.parametrize("topic", [None, "named"])
def test_read_offsets(tmp_path: Path, file_format: str, write: Writer, topic: str | None) -> None:
    """A file's offsets come by partition, as ranges, with what is out of order."""
    name = topic or "t"
    path = write(tmp_path, without(ROWS, "topic") if topic else ROWS)

    assert [
        held(name, 0, [R(7, 14), R(20, 21)], 8, times=(7, 123)),
        held(name, 1, [R(2, 4)], 2, ascending=False, times=(2, 3)),
    ] == read_offsets(path, file_format, topic)


@each_format
def test_read_offsets_duplicates(tmp_path: Path, file_format: str, write: Writer) -> None:
    """Offsets that are there twice are named once, lowest first, at most ten."""
    path = write(tmp_path, [row(offset // 2) for offset in reversed(range(40))])

    assert [
        held("t", 0, [R(0, 20)], 40, tuple(range(10)), ascending=False, times=(0, 19))
    ] == read_offsets(path, file_format, None)


@each_format
def test_read_offsets_topics(tmp_path: Path, file_format: str, write: Writer) -> None:
    """Topics are apart, and a row without a topic counts as one of topic ""."""
    topics = ["b", "a", None, "b"]
    rows = [row(offset, topic=topic) for offset, topic in enumerate(topics)]

    assert [
        held("", 0, [R(2, 3)], 1, times=(2, 2)),
        held("a", 0, [R(1, 2)], 1, times=(1, 1)),
        held("b", 0, [R(0, 1), R(3, 4)], 2, times=(0, 3)),
    ] == read_offsets(write(tmp_path, rows), file_format, None)


@each_format
@pytest.mark.parametrize("name", ["partition", "offset"])
def test_read_offsets_null(tmp_path: Path, file_format: str, write: Writer, name: str) -> None:
    """A row without partition or offset is named by its number."""
    rows = [row(offset) for offset in range(6)]
    rows[4][name] = None

    with pytest.raises(DataFileError, match=f"row 4 has no {name}"):
        read_offsets(write(tmp_path, rows), file_format, None)


@each_format
def test_read_offsets_missing_column(tmp_path: Path, file_format: str, write: Writer) -> None:
    """A file without offsets isn't one of ours."""
    path = write(tmp_path, without(ROWS, "offset"))

    with pytest.raises(DataFileError):
        read_offsets(path, file_format, "t")


def test_read_offsets_negative(tmp_path: Path) -> None:
    """An offset below 0 isn't Kafka's: the file is damaged."""
    path = write_parquet(tmp_path, [row(0), row(-5)])

    with pytest.raises(DataFileError, match="-5"):
        read_offsets(path, "parquet", "t")


def test_read_offsets_text_column(tmp_path: Path) -> None:
    """A file whose offsets aren't numbers isn't one of ours."""
    path = UPath(tmp_path / "part-0.parquet")
    pq.write_table(pa.table({"partition": pa.array([0], pa.int32()), "offset": ["x"]}), str(path))

    with pytest.raises(DataFileError, match="offset"):
        read_offsets(path, "parquet", "t")


def test_read_offsets_topic_not_text(tmp_path: Path) -> None:
    """A topic whose bytes aren't UTF-8 is a damaged file."""
    path = write_parquet(tmp_path, [row(0, topic="ABCD")])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"ABCD", b"\xff\xfe\xfd\xfc"))

    with pytest.raises(DataFileError):
        read_offsets(path, "parquet", None)


# offsets and records in one pass


@each_format
@pytest.mark.parametrize("topic", [None, "named"])
def test_read_contents(tmp_path: Path, file_format: str, write: Writer, topic: str | None) -> None:
    """One pass tells the same offsets, and passes on the same records, as one for each."""
    path, batches, indexes = write(tmp_path, ROWS), list[pa.RecordBatch](), list[str]()

    found = read_contents(path, file_format, topic, 1, batches.append, indexes.append)

    assert found == read_offsets(path, file_format, topic)
    assert {offsets.tp.topic for offsets in found} == {topic or "t"}
    assert batches == list(read_records(path, file_format, 1))
    index = index_sha256(path, file_format)
    assert indexes == ([index] if file_format == "parquet" else [])
    assert (index is None) == (file_format != "parquet")


def test_read_contents_row_without_offset(tmp_path: Path) -> None:
    """A row without an offset is no record; it is counted from the file's start."""
    path = write_parquet(tmp_path, [*ROWS, row(30) | {"offset": None}])
    seen: list[pa.RecordBatch] = []

    with pytest.raises(DataFileError, match=f"row {len(ROWS)} has no offset"):
        read_contents(path, "parquet", None, 1, seen.append)

    assert sum(batch.num_rows for batch in seen) == len(ROWS)


def test_as_client_reads() -> None:
    """Kafka's C client ends a header's name at a NUL; all else stays, row by row."""
    names = [None, [], ["a", "b\0c", "\0"], ["n\0\n\0x", "o\0"], ["e\nf"], None]
    rows = [
        row(n, headers=own and [{"key": key, "value": bytes([i])} for i, key in enumerate(own)])
        for n, own in enumerate(names)
    ]
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    cut = {2: ["a", "b", ""], 3: ["n", "o"]}

    for start in (0, 1, 3, 4):
        batch = whole.slice(start)
        found = as_client_reads(batch)

        assert found.schema == SCHEMA
        assert rows_with_nul(batch) == [n - start for n in cut if n >= start]
        assert offset_of_nul(batch) == next((n for n in cut if n >= start), None)
        told = found.to_pylist()
        assert [
            own["headers"] and [header["key"] for header in own["headers"]] for own in told
        ] == [cut.get(n, names[n]) for n in range(start, len(rows))]
        for own, before in zip(told, rows[start:], strict=True):
            values = [[h["value"] for h in each["headers"] or ()] for each in (own, before)]
            assert values[0] == values[1]
            assert own | {"headers": None} == before | {"headers": None}


class Counted(io.BytesIO):
    """A file that counts the bytes that were read."""

    read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.read_bytes += len(found)
        return found


class CountedPath:
    """A file in a store, in memory."""

    protocol = "s3"
    suffix = ".parquet"

    def __init__(self, content: bytes) -> None:
        self.file = Counted(content)

    def open(self, mode: str, /, **options: Any) -> Counted:
        assert options == {"cache_type": "none"}
        return self.file


def test_read_records_not_all_at_once() -> None:
    """Of a row group of 40 MB, the first rows need a few: memory doesn't grow with row groups."""
    rows = 10_000
    values = [random.Random(n).randbytes(4_000) for n in range(rows)]
    table = pa.table(
        {
            "value": values,
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": range(rows),
            "topic": ["t"] * rows,
        }
    )
    content = io.BytesIO()
    pq.write_table(table, content, row_group_size=rows, compression="none")
    path = CountedPath(content.getvalue())

    batches = read_records(path, "parquet", 1 << 20)
    first = next(batches)

    assert 0 < first.num_rows < rows
    assert path.file.read_bytes < 15_000_000
    assert first.num_rows + sum(batch.num_rows for batch in batches) == rows


class SmallPath(CountedPath):
    """A file of known size in a store."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.file.size = len(content)  # type: ignore[attr-defined]


def test_read_records_small(tmp_path: Path) -> None:
    """A small file in a store is read once, as a whole."""
    content = write_parquet(tmp_path, [row(n, topic="t") for n in range(9)]).read_bytes()
    path = SmallPath(content)

    assert sum(batch.num_rows for batch in read_records(path, "parquet", 1 << 20)) == 9
    assert path.file.read_bytes == len(content)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "json"])
def test_read_offsets_missing_file(tmp_path: Path, file_format: str) -> None:
    """A missing file stays a FileNotFoundError: the manifest knows what that means."""
    with pytest.raises(FileNotFoundError):
        read_offsets(UPath(tmp_path / "nope"), file_format, "t")


def test_read_offsets_no_rows(tmp_path: Path) -> None:
    """A file without rows holds no partition."""
    path = UPath(tmp_path / "part-0.parquet")
    pq.write_table(SPARK_SCHEMA.empty_table(), str(path))

    assert read_offsets(path, "parquet", None) == []
    assert rows_read(path, "parquet") == []


def test_read_offsets_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that go over several batches of rows are put together."""
    monkeypatch.setattr(parquet, "COLUMN_ROWS", 100)
    rows = [row(offset) for offset in (*range(5, 250), *range(3))]
    path = write_parquet(tmp_path, rows)

    [found] = read_offsets(path, "parquet", None)

    assert found.ranges == (R(0, 3), R(5, 250))
    assert found.records == len(rows)
    assert not found.ascending
    assert found.duplicates == ()


def test_file_offsets_bounds() -> None:
    """First and last are the lowest and the highest offset that are there."""
    offsets = FileOffsets(TopicPartition("t", 0), (R(3, 5), R(9, 12)), 5)

    assert (offsets.first, offsets.last) == (3, 11)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that every example writes its file to again."""
    return tmp_path_factory.mktemp("files")


@settings(max_examples=50)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 2), st.integers(0, 30)),
        max_size=40,
    ),
    is_sorted=st.booleans(),
)
def test_read_offsets_property(
    folder: Path, rows: list[tuple[str, int, int]], is_sorted: bool
) -> None:
    """What is read of a file is what counting its rows gives."""
    rows = sorted(rows) if is_sorted else rows
    path = UPath(folder / "part-0.parquet")
    columns = dict(zip(("topic", "partition", "offset"), zip(*rows, strict=True), strict=False))
    schema = pa.schema([SCHEMA.field(name) for name in ("topic", "partition", "offset")])
    pq.write_table(pa.table(columns, schema=schema) if rows else schema.empty_table(), str(path))
    by_partition: dict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, partition, offset in rows:
        by_partition[topic, partition].append(offset)

    assert [
        FileOffsets(
            TopicPartition(topic, partition),
            tuple(merge(R(offset, offset + 1) for offset in offsets)),
            len(offsets),
            tuple(o for o in sorted(set(offsets)) if offsets.count(o) > 1)[:10],
            all(a < b for a, b in pairwise(offsets)),
        )
        for (topic, partition), offsets in sorted(by_partition.items())
    ] == read_offsets(path, "parquet", None)


# damage


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        # What this machine, its memory, a store or a KMS lacks says nothing of the file.
        *((error("x"), type(error("x"))) for error in (
            KeyUnavailableError,
            KmsUnavailableError,
            MachineError,
            MemoryError,
            StoreUnavailableError,
            FileNotFoundError,
            DataFileError,
        )),
        (ModuleNotFoundError("x"), MachineError),
        (ValueError("you need to install x"), MachineError),
        (ValueError("x"), DataFileError),
        (KeyError(), DataFileError),
    ],
)  # fmt: skip
def test_read_records_fails(
    raised: Exception, told: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what a damaged file makes its library raise is damage of the file."""

    class Failing:
        def read_records(self, *_: object) -> Iterator[pa.RecordBatch]:
            raise raised

    monkeypatch.setitem(reader.FORMATS, "avro", Failing())

    with pytest.raises(Exception, match=r"x|KeyError") as caught:
        list(read_records(UPath("part-0.avro"), "avro"))

    assert type(caught.value) is told


@each_format
@pytest.mark.parametrize("lost", [0.5, 9], ids=["half", "nine bytes"])
def test_read_truncated(tmp_path: Path, file_format: str, write: Writer, lost: float) -> None:
    """A file that was cut off is a DataFileError, for its offsets and for its records."""
    path = write(tmp_path, [row(offset, value=bytes([offset]) * 40) for offset in range(100)])
    content = path.read_bytes()
    path.write_bytes(content[: -int(lost if lost > 1 else lost * len(content))])

    with pytest.raises(DataFileError, match="not readable as"):
        read_offsets(path, file_format, None)
    with pytest.raises(DataFileError, match="not readable as"):
        list(read_records(path, file_format, BATCH_BYTES))


@pytest.mark.parametrize(("suffix", "wbits"), [(".gz", 31), (".deflate", 15)])
def test_read_truncated_between_lines(tmp_path: Path, suffix: str, wbits: int) -> None:
    """A compressed stream without its end is damaged, though all of its lines are whole."""
    compress = zlib.compressobj(wbits=wbits)
    path = UPath(tmp_path / f"part-0.json{suffix}")
    path.write_bytes(compress.compress(json_line(row(0))) + compress.flush(zlib.Z_SYNC_FLUSH))

    with pytest.raises(DataFileError, match="not readable as JSON"):
        read_offsets(path, "json", "t")


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("content", [b"", b"not a data file", b"\0" * 5000])
def test_read_other_content(tmp_path: Path, file_format: str, content: bytes) -> None:
    """A file that is something else is a DataFileError that names the format."""
    path = UPath(tmp_path / "file")
    path.write_bytes(content)

    with pytest.raises(DataFileError, match=f"(?i)not readable as {file_format}"):
        read_offsets(path, file_format, "t")
    with pytest.raises(DataFileError, match=f"(?i)not readable as {file_format}"):
        list(read_records(path, file_format, BATCH_BYTES))


@each_format
def test_read_flipped_byte(tmp_path: Path, file_format: str, write: Writer) -> None:
    """A byte that changed gives other rows or a DataFileError, and no other exception."""
    path = write(tmp_path, [row(offset, value=bytes([offset]) * 9) for offset in range(60)])
    content = path.read_bytes()
    refused = 0
    for position in range(0, len(content), max(len(content) // 40, 1)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(bytes(damaged))
        for read in (
            lambda: read_offsets(path, file_format, None),
            lambda: list(read_records(path, file_format, BATCH_BYTES)),
        ):
            try:
                read()
            except DataFileError:
                refused += 1

    assert refused


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"offset": 1, "partition": 0} {}',
        b"\xff",
        b"5",
        b"null",
        b'["offset"]',
        b'{"partition": 0, "offset": "x", "timestamp": "2026-01-01T00:00:00.000Z"}',
        b'{"partition": 0, "offset": [1], "timestamp": "2026-01-01T00:00:00.000Z"}',
    ],
)
def test_read_json_bad_line(tmp_path: Path, line: bytes) -> None:
    """A line that isn't a record is a DataFileError."""
    path = UPath(tmp_path / "part-0.json")
    path.write_bytes(json_line(row(0)) + line + b"\n")

    with pytest.raises(DataFileError, match="not readable as JSON"):
        read_offsets(path, "json", "t")
    with pytest.raises(DataFileError, match="not readable as JSON"):
        list(read_records(path, "json", BATCH_BYTES))


@pytest.mark.parametrize(
    "changes",
    [
        {"value": "not base64!"},
        {"key": "QQ"},
        {"headers": [{"key": "a", "value": "*"}]},
        {"timestamp": "yesterday"},
        {"timestamp": None},
        {"value": 5},
        {"headers": 5},
    ],
    ids=str,
)
def test_read_json_bad_value(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A value that Spark doesn't write is a DataFileError when the record is read."""
    path = UPath(tmp_path / "part-0.json")
    path.write_bytes(json.dumps(json.loads(json_line(row(0))) | changes).encode() + b"\n")

    with pytest.raises(DataFileError, match="not readable as JSON"):
        list(read_records(path, "json", BATCH_BYTES))


# times that can't be represented

FAR = datetime(9999, 12, 31, tzinfo=timezone.utc)
#: Beyond Python's calendar: the microseconds of 2026, sent as milliseconds.
BEYOND_US = 1_767_225_600_000_000 * 1000


def write_orc_far(folder: Path) -> UPath:
    return write_orc(folder, [row(1), row(2, timestamp=FAR)])


def write_avro_far(folder: Path) -> UPath:
    return avro_writer("deflate")(folder, [row(1), row(2, timestamp=BEYOND_US)])


def write_json_far(folder: Path) -> UPath:
    path = folder / "part-0.json"
    far = json.loads(json_line(row(2))) | {"timestamp": "+57971-02-25T00:00:00.000Z"}
    path.write_bytes(json_line(row(1)) + json.dumps(far).encode() + b"\n")
    return UPath(path)


def test_read_offsets_time_beyond(tmp_path: Path) -> None:
    """A time that can't be read of ORC's own damages no file: offsets are, times are unknown."""
    [found] = read_offsets(write_orc_far(tmp_path), "orc", "t")

    assert found.ranges == (R(1, 3),)
    assert (found.records, found.first_timestamp, found.last_timestamp) == (2, None, None)


def test_read_records_time_beyond(tmp_path: Path) -> None:
    """A record whose time can't be represented isn't read with another time."""
    with pytest.raises(TimestampError, match=r"a record's time can't be read .*only times"):
        list(read_records(write_orc_far(tmp_path), "orc", BATCH_BYTES))


def write_orc_exact(folder: Path) -> UPath:
    """Write what ORC keeps of two times, and the times themselves beside it."""
    kept = datetime(1970, 1, 1, 0, 0, 0, 999_000, tzinfo=timezone.utc)
    path = write_orc(folder, [row(1, timestamp=kept), row(2)])
    table = orc.read_table(str(path))
    exact = pa.array([-1, BEYOND_US // 1000], pa.int64())
    orc.write_table(table.append_column("timestampMillis", exact), str(path))
    return path


@pytest.mark.parametrize(
    ("file_format", "write", "first"),
    [
        ("orc", write_orc_exact, -1000),
        ("avro", write_avro_far, None),
        ("json", write_json_far, None),
    ],
)
def test_read_time_of_any_year(
    tmp_path: Path, file_format: str, write: Callable[[Path], UPath], first: int | None
) -> None:
    """A time that neither Python nor ORC can represent is read as it was sent."""
    path = write(tmp_path)

    [batch] = read_records(path, file_format, BATCH_BYTES)
    [found] = read_offsets(path, file_format, "t")

    times = batch["timestamp"].cast(pa.int64()).to_pylist()
    assert times[1] == BEYOND_US
    assert first is None or times[0] == first
    assert found.last_timestamp == BEYOND_US // 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1969-12-31T23:59:59.999Z", -1_000),
        ("0001-01-01T00:00:00.000Z", -62_135_596_800_000_000),
        ("0000-12-31T23:59:59.999Z", -62_135_596_800_001_000),
        ("-0001-01-01T00:00:00.000Z", -62_198_755_200_000_000),
        ("+10000-01-01T00:00:00.000Z", 253_402_300_800_000_000),
        ("+294247-01-10T04:00:54.775Z", 9_223_372_036_854_775_000),
    ],
)
def test_read_json_time(tmp_path: Path, text: str, expected: int) -> None:
    """Spark's text of a time is read to the millisecond, whatever the year."""
    path = tmp_path / "part-0.json"
    path.write_bytes(json.dumps(json.loads(json_line(row(1))) | {"timestamp": text}).encode())

    [batch] = read_records(UPath(path), "json", BATCH_BYTES)

    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [expected]


# topics in paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("topic=flights/date=2026-01-01/part-0.parquet", "flights"),
        ("date=2026-01-01/topic=a.b-c_d/part-0.parquet", "a.b-c_d"),
        ("generations/0001/data/topic=t/part-0.parquet", "t"),
        ("topic=a%20b/part-0.parquet", "a b"),
        ("date=2026-01-01/part-0.parquet", None),
        ("part-0.parquet", None),
        ("subtopic=x/part-0.parquet", None),
    ],
)
def test_topic_of(path: str, expected: str | None) -> None:
    """A folder names the topic when files are split by it."""
    assert expected == topic_of(path)


@pytest.mark.parametrize(
    "error",
    [
        MachineError("no codec"),
        MemoryError(),
        FileNotFoundError("gone"),
        StoreUnavailableError("silent"),
        KeyUnavailableError("no key"),
    ],
)
def test_read_contents_undamaged(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine lacks, a missing file, key or store is no damage of a file."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(reader.parquet, "read_records", fail)

    with pytest.raises(type(error)):
        reader.read_contents(UPath("a.parquet"), "parquet", "a", 1, lambda _: None)


@pytest.mark.parametrize("module", [avro, json_lines])
def test_read_records_not_decoded(
    tmp_path: Path, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded columns, which readers don't want, aren't held for a batch."""
    one, path = row(7, value_decoded={"a": 1}), UPath(tmp_path / "part-0.json")
    if module is avro:
        nested = {"type": "record", "name": "v", "fields": [{"name": "a", "type": "int"}]}
        types = {**{name: AVRO_TYPES[name] for name in SCHEMA.names}, "value_decoded": nested}
        fields = [{"name": name, "type": type_} for name, type_ in types.items()]
        with path.open("wb") as target:
            fastavro.writer(target, {"type": "record", "name": "r", "fields": fields}, [one])
    else:
        path.write_bytes(json_line(one))
    held: set[str] = set()

    def noted(rows: Any, *rest: Any) -> Any:
        rows = list(rows)
        held.update(*rows)
        return batches_of_rows(rows, *rest)

    monkeypatch.setattr(module, "batches_of_rows", noted)

    assert [batch.num_rows for batch in module.read_records(path, BATCH_BYTES)] == [1]
    assert held <= set(SCHEMA.names)
