"""Records that a target wouldn't take are found by what was written, in the batch they need."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_drain.data_files.parquet import record_bound
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.planning.record_sizes import (
    BATCH_HEADER,
    LIKENESS,
    Large,
    batch_bytes,
    large_records,
    payload_of,
)
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ShardFile, provenance_of
from tests.kafka_drain.made_archive import MadeArchive, dense

T0 = TopicPartition("t", 0)
NOISE = random.Random(1).randbytes(100_000)
ALL = Rows(None, None, None)


def found(
    made: MadeArchive, limit: int, codec: str = "producer", rows: Rows = ALL, **more: Any
) -> list[int]:
    """Return the offsets of the records that are too large."""
    return [one.offset for one in large(made, limit, codec, rows, **more)]


def large(
    made: MadeArchive, limit: int, codec: str = "producer", rows: Rows = ALL, **more: Any
) -> list[Large]:
    files = [
        (ShardFile(file.path, "parquet", file.bytes, "", 0, 9, 1, True), {T0: rows})
        for file in made.files()
    ]
    return list(large_records(str(made.root), files, limit, codec, **more))


def headers(count: int, value: bytes) -> list[dict[str, Any]]:
    return [{"key": "h", "value": value}] * count


@pytest.fixture
def made(tmp_path: Any) -> MadeArchive:
    """Small records, and from offset 5 on one each whose value, or whose headers, are large."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    made.seal({T0: dense(0, 5)})
    made.seal({T0: dense(5, 6)}, value=NOISE)
    made.seal({T0: dense(6, 7)}, value=bytes(100_000))
    made.seal({T0: dense(7, 8)}, headers=headers(1, NOISE))
    # In the file once, in the record a thousand times.
    made.seal({T0: dense(8, 9)}, headers=headers(1000, NOISE[:100]))
    return made


@pytest.mark.parametrize(
    ("limit", "codec", "offsets"),
    [
        (200_000, "producer", []),
        (102_000, "producer", []),
        (90_000, "producer", [5, 7]),
        (90_000, "lz4", [5, 7]),
        (90_000, "zstd", [5, 7]),
        (90_000, "gzip", [5, 7]),
        (90_000, "uncompressed", [5, 6, 7, 8]),
        (102_000, "uncompressed", [8]),
        (200, "uncompressed", [5, 6, 7, 8]),
    ],
)
def test_large_records(made: MadeArchive, limit: int, codec: str, offsets: list[int]) -> None:
    """Values and headers count, compressed as they are sent and as the topic keeps them."""
    assert found(made, limit, codec) == offsets


def test_large_records_of_others(made: MadeArchive) -> None:
    """A record that isn't selected is no reason to refuse."""
    assert found(made, 90_000, rows=Rows((OffsetRange(0, 7),), None, None)) == [5]


def test_large_records_with_provenance(made: MadeArchive) -> None:
    """Headers that the run adds count, to the byte."""
    bare = BATCH_HEADER + len(payload_of(b"5", NOISE, ()))
    with_them = BATCH_HEADER + len(payload_of(b"5", NOISE, provenance_of(T0, 5)))
    rows = Rows((OffsetRange(5, 6),), None, None)

    assert found(made, bare, "uncompressed", rows) == []
    assert found(made, bare - 1, "uncompressed", rows) == [5]
    assert found(made, with_them, "uncompressed", rows, headers_of=provenance_of) == []
    assert found(made, with_them - 1, "uncompressed", rows, headers_of=provenance_of) == [5]


def test_large_records_as_sent(made: MadeArchive) -> None:
    """What a change makes of a record is what counts."""

    def shortened(batch: pa.RecordBatch, tp: TopicPartition) -> pa.RecordBatch:
        assert tp == T0
        place = batch.schema.get_field_index("value")
        return batch.set_column(place, "value", pa.array([b""] * len(batch), pa.large_binary()))

    assert found(made, 90_000, as_sent=shortened) == [7]


def test_large_records_described(made: MadeArchive) -> None:
    """A large record is named with its file, its size, and the batch that it needs."""
    needed = BATCH_HEADER + len(payload_of(b"5", NOISE, ()))
    path = made.files()[1].path

    assert large(made, 90_000, "uncompressed", Rows((OffsetRange(5, 6),), None, None)) == [
        Large(path, 5, len(b"5") + len(NOISE), needed)
    ]


def test_large_records_of_java_to_the_byte(made: MadeArchive) -> None:
    """What the producer takes before it compresses is for the topic to refuse or to take."""
    raw = BATCH_HEADER + len(payload_of(b"6", bytes(100_000), ()))
    rows = Rows((OffsetRange(6, 7),), None, None)

    assert large(made, 90_000, "lz4", rows, largest_request=raw) == []
    assert [one.batch for one in large(made, 90_000, "lz4", rows, largest_request=raw - 1)] == [raw]


def test_large_records_nulls(tmp_path: Any) -> None:
    """A null counts as nothing, in a key, a value, the headers and in one of them."""
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    made.seal({T0: dense(0, 1)}, key=None, value=NOISE, headers=None)
    made.seal({T0: dense(1, 2)}, key=NOISE, value=None, headers=[])
    made.seal({T0: dense(2, 3)}, key=None, value=None, headers=headers(2, NOISE))
    made.seal(
        {T0: dense(3, 6)},
        # All in one file, so that a row's headers are found among those of others.
        headers=lambda tp, offset: {
            3: None,
            4: [{"key": "a", "value": None}, {"key": "h" * 100_000, "value": None}],
            5: headers(1, b"x"),
        }[offset],
    )

    assert found(made, 90_000, "uncompressed") == [0, 1, 2, 4]


def test_large_records_of_java(made: MadeArchive) -> None:
    """Java's producer refuses by the size before compression."""
    assert found(made, 90_000, largest_request=200_000) == [5, 7]
    assert found(made, 90_000, largest_request=90_000) == [5, 6, 7, 8]


def test_large_records_small_files_not_read(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that can't hold such a record aren't read."""
    from kafka_drain.republish.planning import record_sizes

    read: list[str] = []
    original = record_sizes.read_records
    monkeypatch.setattr(
        record_sizes,
        "read_records",
        lambda path, *more: (read.append(path.name), original(path, *more))[1],
    )

    found(made, 90_000)

    # Two with a large value, and both whose headers may be.
    assert len(read) == 4


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 500])
def test_record_bound_property(tmp_path: Any, rows: int, dictionary: bool) -> None:
    """No record is larger than the bound, whatever the encoding."""
    chance = random.Random(rows)
    table = pa.Table.from_pylist(
        [
            {
                "key": chance.choice([None, b"", b"k" * 50]),
                "value": chance.choice([None, b"v" * 3000, chance.randbytes(200)]),
                "headers": headers(chance.randrange(9), chance.choice([b"x" * 400, b""])),
                "partition": 0,
                "offset": offset,
            }
            for offset in range(rows)
        ],
        schema=SCHEMA,
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, use_dictionary=dictionary, row_group_size=100)

    largest = max(
        len(row["key"] or b"")
        + len(row["value"] or b"")
        + sum(len(header["key"]) + len(header["value"]) for header in row["headers"])
        for row in table.to_pylist()
    )

    assert record_bound(path) >= largest


@pytest.mark.parametrize(
    ("codec", "expected"),
    [("producer", 1), ("lz4", 1), ("uncompressed", 0), ("gzip", 1), ("zstd", 1), ("unheard-of", 0)],
)
def test_batch_bytes(codec: str, expected: int) -> None:
    """What compresses well is small unless the topic keeps it uncompressed; noise never is."""
    assert (batch_bytes(bytes(100_000), codec) < 2_000) == bool(expected)
    assert 100_000 < batch_bytes(NOISE, codec) <= BATCH_HEADER + LIKENESS * 101_000


@pytest.mark.parametrize(
    ("key", "value", "headers", "expected"),
    [
        # Length, attributes, deltas of timestamp and offset, key, value, number of headers.
        (None, None, None, "0c 00 00 00 01 01 00"),
        (b"", b"", [], "0c 00 00 00 00 00 00"),
        (b"k", b"v" * 63, [], "8c01 00 00 00 02 6b 7e" + " 76" * 63 + " 00"),
        (None, b"v" * 64, [], "8e01 00 00 00 01 8001" + " 76" * 64 + " 00"),
        (None, b"", [("a", None)], "12 00 00 00 01 00 02 02 61 01"),
        (None, b"", [("\xe4", b"x"), ("", "y")], "1c 00 00 00 01 00 04 04 c3a4 02 78 00 02 79"),
    ],
    ids=["nulls", "empty", "one-byte-length", "two-byte-length", "null-header", "headers"],
)
def test_payload_of(key: bytes | None, value: bytes | None, headers: Any, expected: str) -> None:
    """A record as Kafka's protocol has it: lengths as zigzag varints, -1 for null."""
    assert payload_of(key, value, headers) == bytes.fromhex(expected)
