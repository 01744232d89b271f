"""The records of one source partition: interleaved files come out in offset order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from kafka_drain.data_files import DataFileError
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.offsets import TopicPartition
from kafka_drain.republishing import shard_reader
from kafka_drain.republishing.plan import Shard, ShardFile
from kafka_drain.republishing.shard_reader import interleaved_groups, merge_streams, read_shard

T0 = TopicPartition("t", 0)


def row(offset: int, partition: int = 0, topic: str | None = None) -> dict[str, Any]:
    """Make a record that its value tells apart from every other one."""
    value = f"{topic}-{partition}-{offset}".encode()
    return {"value": value, "topic": topic, "partition": partition, "offset": offset}


def batch_of(offsets: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(offset) for offset in offsets], schema=SCHEMA)


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[int, bytes]]:
    return [
        (r["offset"], r["value"]) for r in pa.Table.from_batches(batches, schema=SCHEMA).to_pylist()
    ]


def file(path: str, first: int, last: int, ascending: bool = True) -> ShardFile:
    return ShardFile(path, "parquet", first, last, last - first + 1, ascending)


# interleaved_groups


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([], []),
        ([(0, 9)], [1]),
        ([(0, 9), (10, 19)], [1, 1]),
        ([(0, 9), (9, 19)], [2]),
        ([(0, 9), (5, 6), (7, 12), (13, 13)], [3, 1]),
        ([(0, 30), (2, 3), (10, 11), (29, 40), (41, 50)], [4, 1]),
        ([(5, 5), (7, 7)], [1, 1]),
    ],
)
def test_interleaved_groups(bounds: list[tuple[int, int]], expected: list[int]) -> None:
    """Files whose ranges overlap, also through a third one, are one group."""
    files = [file(str(number), *bound) for number, bound in enumerate(bounds)]

    groups = interleaved_groups(files)

    assert expected == [len(group) for group in groups]
    assert files == [member for group in groups for member in group]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10)), max_size=12))
def test_interleaved_groups_property(drawn: list[tuple[int, int]]) -> None:
    """Groups keep the order, are apart from each other, and can't be split further."""
    files = [file("", first, first + length) for first, length in sorted(drawn)]

    groups = interleaved_groups(files)

    assert files == [member for group in groups for member in group]
    for before, after in pairwise(groups):
        assert max(member.last for member in before) < after[0].first
    for group in groups:
        for cut in range(1, len(group)):
            assert max(member.last for member in group[:cut]) >= group[cut].first


# merge_streams


@st.composite
def streams(draw: st.DrawFn) -> list[list[list[int]]]:
    """Draw offsets, dealt to streams, each cut into batches."""
    offsets = sorted(draw(st.sets(st.integers(0, 10**12), max_size=60)))
    count = draw(st.integers(1, 5))
    dealt: list[list[int]] = [[] for _ in range(count)]
    for offset in offsets:
        dealt[draw(st.integers(0, count - 1))].append(offset)
    cut: list[list[list[int]]] = []
    for stream in dealt:
        batches: list[list[int]] = []
        while stream:
            size = draw(st.integers(1, 20))
            batches.append(stream[:size])
            stream = stream[size:]
        cut.append(batches)
    return cut


@settings(max_examples=50, deadline=None)
@given(streams())
def test_merge_streams_property(drawn: list[list[list[int]]]) -> None:
    """Sorted streams come out as one: in offset order, nothing lost, rows kept whole."""
    merged = list(merge_streams([iter([batch_of(b) for b in stream]) for stream in drawn]))

    offsets = sorted(offset for stream in drawn for batch in stream for offset in batch)
    assert [(offset, f"None-0-{offset}".encode()) for offset in offsets] == rows_of(merged)


def test_merge_streams_lazy() -> None:
    """Of each stream, only the batch that is needed next is held."""
    taken: list[int] = []

    def stream(first: int) -> Any:
        for start in range(first, first + 100, 10):
            taken.append(start)
            yield batch_of(list(range(start, start + 10, 2)))

    merged = merge_streams([stream(0), stream(1)])

    assert [offset for offset, _ in rows_of([next(merged)])] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert taken == [0, 1]


def test_merge_streams_duplicates() -> None:
    """An offset that two streams hold comes twice: nothing is dropped in silence."""
    merged = merge_streams([iter([batch_of([1, 3])]), iter([batch_of([2, 3])])])

    assert [offset for offset, _ in rows_of(list(merged))] == [1, 2, 3, 3]


def test_merge_streams_nothing() -> None:
    """Streams without batches give none."""
    assert list(merge_streams([iter([]), iter([])])) == []


# read_shard


def write(
    root: Path, path: str, rows: list[dict[str, Any]], *, columns: list[str] | None = None
) -> None:
    names = columns or ["value", "partition", "offset"]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([{n: r[n] for n in names} for r in rows], schema=schema)
    pq.write_table(table, root / path)


def values_of(root: Path, source: TopicPartition, *files: ShardFile) -> list[str]:
    batches = list(read_shard(UPath(root), Shard(source, "target", files)))
    assert all(batch.schema == SCHEMA for batch in batches)
    return [value.decode() for _, value in rows_of(batches)]


@pytest.fixture(params=[1 << 20, 1], ids=["large batches", "single rows"])
def group_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with batches of a whole file, and with batches of one row."""
    monkeypatch.setattr(shard_reader, "GROUP_BYTES", request.param)


@pytest.mark.usefixtures("group_bytes")
def test_read_shard_interleaved(tmp_path: Path) -> None:
    """Files by date that interleave are merged; files after them follow."""
    write(tmp_path, "data/topic=t/date=1/a", [row(o) for o in (0, 1, 4, 5, 9)])
    write(tmp_path, "data/topic=t/date=2/b", [row(o) for o in (2, 3, 6, 8)])
    write(tmp_path, "data/topic=t/date=1/c", [row(o) for o in (10, 12)])

    assert [f"None-0-{o}" for o in (*range(7), 8, 9, 10, 12)] == values_of(
        tmp_path,
        T0,
        file("data/topic=t/date=1/a", 0, 9),
        file("data/topic=t/date=2/b", 2, 8),
        file("data/topic=t/date=1/c", 10, 12),
    )


@pytest.mark.usefixtures("group_bytes")
def test_read_shard_not_ascending(tmp_path: Path) -> None:
    """A file whose rows are out of order is sorted, alone and among others."""
    write(tmp_path, "topic=t/a", [row(o) for o in (5, 0, 9, 2)])
    write(tmp_path, "topic=t/b", [row(o) for o in (1, 6)])
    unordered, ordered = file("topic=t/a", 0, 9, ascending=False), file("topic=t/b", 1, 6)

    assert [f"None-0-{o}" for o in (0, 2, 5, 9)] == values_of(tmp_path, T0, unordered)
    assert [f"None-0-{o}" for o in (0, 1, 2, 5, 6, 9)] == values_of(
        tmp_path, T0, unordered, ordered
    )


@pytest.mark.usefixtures("group_bytes")
@pytest.mark.parametrize("partition", [0, 1])
def test_read_shard_two_partitions(tmp_path: Path, partition: int) -> None:
    """Of a file with two partitions, only the shard's own rows come out."""
    write(tmp_path, "topic=t/a", [row(0, 0), row(0, 1), row(1, 1), row(1, 0), row(2, 0)])
    count = 3 - partition

    assert [f"None-{partition}-{o}" for o in range(count)] == values_of(
        tmp_path, TopicPartition("t", partition), file("topic=t/a", 0, count - 1)
    )


@pytest.mark.usefixtures("group_bytes")
@pytest.mark.parametrize(("topic", "expected"), [("t", [0, 3]), ("u", [0, 1]), ("", [2])])
def test_read_shard_topic_column(tmp_path: Path, topic: str, expected: list[int]) -> None:
    """Where no folder names the topic, the column does; no topic counts as ""."""
    rows = [row(0, 0, "t"), row(0, 0, "u"), row(1, 0, "u"), row(2, 0, None), row(3, 0, "t")]
    write(tmp_path, "date=1/a", rows, columns=["value", "topic", "partition", "offset"])

    assert [f"{topic or None}-0-{o}" for o in expected] == values_of(
        tmp_path, TopicPartition(topic, 0), file("date=1/a", expected[0], expected[-1])
    )


@pytest.mark.usefixtures("group_bytes")
def test_read_shard_topic_folder(tmp_path: Path) -> None:
    """Where a folder names the topic, the file's rows are the shard's without a column."""
    write(tmp_path, "topic=a%20b/x", [row(0), row(1)])

    assert values_of(tmp_path, TopicPartition("a b", 0), file("topic=a%20b/x", 0, 1)) == [
        "None-0-0",
        "None-0-1",
    ]


def test_read_shard_damaged_file(tmp_path: Path) -> None:
    """A file that can't be read ends the shard with a DataFileError."""
    write(tmp_path, "topic=t/a", [row(0), row(1)])
    (tmp_path / "topic=t" / "b").write_bytes(b"damaged")
    batches = read_shard(
        UPath(tmp_path), Shard(T0, "x", (file("topic=t/a", 0, 1), file("topic=t/b", 2, 3)))
    )

    assert [offset for offset, _ in rows_of([next(batches)])] == [0, 1]
    with pytest.raises(DataFileError):
        next(batches)
