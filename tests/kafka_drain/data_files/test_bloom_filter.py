"""Parquet's Bloom filters: no written value is missed, and hardly any other is let through."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.data_files import reader
from kafka_drain.data_files.bloom_filter import BloomFilter
from kafka_drain.data_files.parquet import bytes_to_read, index_sha256, read_records
from kafka_drain.data_files.records import RowBounds
from kafka_drain.errors import DataFileError

#: What Spark 4.1.1 wrote: see tests/data/README.md.
SPARK = Path(__file__).parents[2] / "data" / "bloom_filter_spark41.parquet"


def keys_in(path: Path, *keys: bytes) -> list[bytes]:
    """Return the keys that rows have which are read for the given ones."""
    wanted = RowBounds(keys=frozenset(keys), is_proven=True)
    return [
        key for batch in read_records(path, 1 << 20, wanted) for key in batch["key"].to_pylist()
    ]


def size_of(path: Path, key: bytes) -> int:
    """Return how many bytes have to be read for a key, given the hash of the file's index."""
    wanted = RowBounds(keys=frozenset([key]), index_sha256=index_sha256(path))
    return bytes_to_read(path, wanted)


def written(keys: list[bytes | None], ndv: int = 100) -> io.BytesIO:
    """Write a column of keys with a Bloom filter."""
    buffer = io.BytesIO()
    table = pa.table({"key": pa.array(keys, pa.binary())})
    options: Any = {"key": {"ndv": ndv, "fpp": 0.01}}
    pq.write_table(table, buffer, bloom_filter_options=options)
    return buffer


def filter_of(buffer: io.BytesIO) -> Any:
    """Return a function that looks a value up in the filter of a file's only row group."""
    offset = pq.ParquetFile(buffer).metadata.row_group(0).column(0).bloom_filter_offset

    def read(at: int, size: int) -> bytes:
        buffer.seek(at)
        return buffer.read(size)

    found = BloomFilter.at(offset, read)
    assert found is not None
    return lambda value: found.can_hold(value, read)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=50))
def test_bloom_filter_holds_all(keys: list[bytes]) -> None:
    """A value that was written is never ruled out, whatever its bytes and length."""
    can_hold = filter_of(written([*keys]))

    assert all(map(can_hold, keys))


def test_bloom_filter_rules_out() -> None:
    """Of values that weren't written, no more get through than the filter was made for."""
    can_hold = filter_of(written([b"key %d" % n for n in range(1000)], ndv=1000))

    through = sum(can_hold(b"other %d" % n) for n in range(10_000))
    assert 0 < through < 200


HEADER = bytes.fromhex("15 40 1c 1c 00 00 1c 1c 00 00 1c 1c 00 00 00")


@pytest.mark.parametrize(
    ("header", "blocks"),
    [
        (HEADER, 1),
        (HEADER.replace(b"\x15\x40", b"\x15\x80\x01"), 2),
        # With the number of the first field written out.
        (HEADER.replace(b"\x15\x40", b"\x05\x02\x40"), 1),
        # Another algorithm, hash or compression.
        (bytes.fromhex("15 40 1c 2c 00 00 1c 1c 00 00 1c 1c 00 00 00"), None),
        (bytes.fromhex("15 40 1c 1c 00 00 1c 2c 00 00 1c 1c 00 00 00"), None),
        (bytes.fromhex("15 40 1c 1c 00 00 1c 1c 00 00 1c 2c 00 00 00"), None),
        # One that isn't named.
        (bytes.fromhex("15 40 1c 1c 00 00 1c 1c 00 00 00"), None),
    ],
)
def test_bloom_filter_header(header: bytes, blocks: int | None) -> None:
    """A header says how many blocks there are; what isn't known isn't used."""
    found = BloomFilter.at(7, lambda at, size: header[at - 7 :][:size])

    assert found == (None if blocks is None else BloomFilter(7 + len(header), blocks))


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (b"", "ends early"),
        (HEADER[:-1], "ends early"),
        (HEADER.replace(b"\x15\x40", b"\x15\x42"), "has 33 bytes"),
        (HEADER.replace(b"\x15\x40", b"\x15\x00"), "has 0 bytes"),
        (HEADER.replace(b"\x15\x40", b"\x15\x01"), "has -1 bytes"),
        (HEADER.replace(b"\x15\x40", b"\x18\x40"), "field 1 of type 8"),
        (HEADER.replace(b"\x1c\x1c", b"\x1c\x15", 1), "union of type 5"),
    ],
)
def test_bloom_filter_damaged_header(header: bytes, match: str) -> None:
    """Bytes that aren't a header are refused, rather than looked up in."""
    with pytest.raises(ValueError, match=match):
        BloomFilter.at(0, lambda at, size: header[at:][:size])


def test_bloom_filter_ends_early() -> None:
    """A block that the file doesn't have is damage, not a value that isn't there."""
    with pytest.raises(ValueError, match="ends early"):
        BloomFilter(0, 4).can_hold(b"key", lambda at, size: b"")


def test_bloom_filter_spark() -> None:
    """In a file that Spark wrote, each of its keys is found, and others cost no byte of data."""
    file = pq.ParquetFile(SPARK)
    assert file.metadata.row_group(0).column(0).bloom_filter_offset
    keys = file.read(columns=["key"])["key"].to_pylist()
    assert None in keys

    others = [b"key %d-" % n for n in range(1000)]
    read = [key for key in others if size_of(SPARK, key)]

    assert all(key in keys_in(SPARK, key) for key in keys if key is not None)
    assert len(read) < 40


def test_bloom_filter_several_keys(tmp_path: Path) -> None:
    """A row group that has one of several keys is read, though it has none of the others."""
    path = tmp_path / "part-0.parquet"
    path.write_bytes(written([b"key %d" % n for n in range(100)]).getvalue())
    # Between the lowest and the highest key: the filter alone rules them out.
    others = [b"key 0-", b"key 5-"]
    assert [size_of(path, key) for key in others] == [0, 0]

    assert b"key 77" in keys_in(path, *others, b"key 77")
    assert keys_in(path, *others) == []


def test_statistics_rule_out(tmp_path: Path) -> None:
    """Without a filter, the lowest and highest key of a row group decide, then its keys alone."""
    path = tmp_path / "part-0.parquet"
    table = pa.table(
        {
            "key": pa.array([b"a", None, b"c", b"m", b"n", b"z"], pa.binary()),
            "value": pa.array([b"v" * 1000] * 6, pa.binary()),
            "offset": pa.array(range(6), pa.int64()),
            "partition": pa.array([0] * 6, pa.int32()),
        }
    )
    pq.write_table(table, path, row_group_size=3)

    assert keys_in(path, b"a") == [b"a", None, b"c"]
    assert keys_in(path, b"a", b"z") == [b"a", None, b"c", b"m", b"n", b"z"]
    # Between the keys of a group.
    assert keys_in(path, b"b") == []
    assert 0 < size_of(path, b"b") < 1000
    assert size_of(path, b"e") == 0
    assert bytes_to_read(path, RowBounds()) > 100


def test_no_key_at_all(tmp_path: Path) -> None:
    """A row group whose records have no key holds none that is looked for."""
    path = tmp_path / "part-0.parquet"
    pq.write_table(pa.table({"key": pa.array([None, None], pa.binary())}), path)

    assert keys_in(path, b"a") == []


def test_index_unknown() -> None:
    """Statistics and filters that nothing proves rule out nothing; the hash covers filters."""
    absent = frozenset([b"key 5-"])
    offset = pq.ParquetFile(SPARK).metadata.row_group(0).column(0).bloom_filter_offset
    content = SPARK.read_bytes()
    sealed = index_sha256(SPARK)

    assert bytes_to_read(SPARK, RowBounds(keys=absent)) > 0
    assert bytes_to_read(SPARK, RowBounds(keys=absent, index_sha256=sealed)) == 0
    assert bytes_to_read(SPARK, RowBounds(keys=absent, is_proven=True)) == 0
    tails = (hashlib.sha256(content[at:]).hexdigest() for at in range(offset))
    assert sealed in set(tails)


def test_index_damaged(tmp_path: Path) -> None:
    """No byte that was changed behind the data hides a key: the file is refused."""
    path = tmp_path / "part-0.parquet"
    intact = written([b"key %d" % n for n in range(200)], ndv=200).getvalue()
    path.write_bytes(intact)
    wanted = RowBounds(keys=frozenset([b"key 77"]), index_sha256=index_sha256(path))
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    offset = column.bloom_filter_offset
    highest = column.statistics.max_raw
    # Not each byte of the footer: pyarrow ends the process at some that it can't parse.
    places = [*range(offset, offset + column.bloom_filter_length), intact.rindex(highest)]

    for at in places:
        path.write_bytes(intact[:at] + bytes([intact[at] ^ 0xFF]) + intact[at + 1 :])
        with pytest.raises(DataFileError, match=r"have other bytes|Bloom filter"):
            list(reader.read_records(path, "parquet", 1 << 20, wanted))


def test_index_unknown_damaged(tmp_path: Path) -> None:
    """Without a hash, a damaged filter and damaged statistics are read past."""
    path = tmp_path / "part-0.parquet"
    intact = written([b"key %d" % n for n in range(200)], ndv=200).getvalue()
    path.write_bytes(intact)
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    zeroed = column.bloom_filter_length * b"\0"
    highest = column.statistics.max_raw
    before = intact[: column.bloom_filter_offset]
    rest = intact[column.bloom_filter_offset + len(zeroed) :]
    assert highest in rest
    path.write_bytes(before + zeroed + rest.replace(highest, b"key 0!"))
    wanted = RowBounds(keys=frozenset([b"key 77"]))

    batches = list(reader.read_records(path, "parquet", 1 << 20, wanted))
    assert b"key 77" in [key for batch in batches for key in batch["key"].to_pylist()]
    with pytest.raises(DataFileError, match=r"200 records according to its footer; sealed: 201"):
        list(reader.read_records(path, "parquet", 1 << 20, RowBounds(records=201)))
