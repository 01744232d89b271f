"""The records of one source partition: interleaved files come out in offset order."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import resource
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from kafka_drain.data_files.reader import read_offsets, read_records
from kafka_drain.data_files.records import SCHEMA, RowBounds
from kafka_drain.errors import DataFileError, MachineError, ManifestInvalidError
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ProgressSlot, Shard, ShardFile
from kafka_drain.republish.sending import checked_file, shard_reader
from kafka_drain.republish.sending.checked_file import BLOCK_BYTES, Sizes
from kafka_drain.republish.sending.shard_reader import interleaved_groups, merge_streams, read_shard
from tests.fresh_process import printed_by
from tests.kafka_drain.golden import GOLDEN, P0, P1

T0 = TopicPartition("t", 0)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def row(
    offset: int, partition: int = 0, topic: str | None = None, ms: int | None = None
) -> dict[str, Any]:
    """Make a record that its value tells apart from every other one."""
    return {
        "value": f"{topic}-{partition}-{offset}".encode(),
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": None if ms is None else EPOCH + timedelta(milliseconds=ms),
    }


def batch_of(offsets: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(offset) for offset in offsets], schema=SCHEMA)


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[int, bytes]]:
    return [
        (r["offset"], r["value"]) for r in pa.Table.from_batches(batches, schema=SCHEMA).to_pylist()
    ]


def file(path: str, first: int, last: int, ascending: bool = True) -> ShardFile:
    """Describe a file; its bytes are put in by `hashed`."""
    return ShardFile(path, "parquet", 0, "", first, last, last - first + 1, ascending)


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


@settings(max_examples=50)
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
    root: Path | UPath,
    path: str,
    rows: list[dict[str, Any]],
    *,
    columns: tuple[str, ...] = ("value", "partition", "offset", "timestamp"),
    row_group_size: int | None = None,
) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    table = pa.Table.from_pylist([{n: r[n] for n in columns} for r in rows], schema=schema)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=row_group_size)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(buffer.getvalue())


def hashed(root: Path | UPath, file: ShardFile) -> ShardFile:
    """Put a file's size and hash into its description, as a plan has them."""
    content = (root / file.path).read_bytes()
    return replace(file, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def shard_of(source: TopicPartition, *files: ShardFile, rows: Rows | None = None) -> Shard:
    slot = ProgressSlot("group", source)
    return Shard(0, source, "id", "target", None, rows or Rows(), files, slot)


def values_of(
    root: Path,
    source: TopicPartition,
    *files: ShardFile,
    rows: Rows | None = None,
    from_offset: int = 0,
) -> list[str]:
    shard = shard_of(source, *(hashed(root, file) for file in files), rows=rows)
    batches = list(read_shard(str(root), shard, from_offset))
    assert all(batch.schema == SCHEMA and batch.num_rows for batch in batches)
    return [value.decode() for _, value in rows_of(batches)]


@pytest.fixture(params=[1 << 20, 1], ids=["large batches", "single rows"])
def group_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with batches of a whole file, and with batches of one row."""
    monkeypatch.setattr(shard_reader, "GROUP_BYTES", request.param)


@pytest.mark.usefixtures("group_bytes")
@pytest.mark.parametrize("from_offset", [0, 1, 4, 7, 9, 10, 12, 13, 2**63 - 1, 2**70])
def test_read_shard_interleaved(tmp_path: Path, from_offset: int) -> None:
    """Files by date that interleave are merged; files after them follow; none is too early."""
    write(tmp_path, "data/topic=t/date=1/a", [row(o) for o in (0, 1, 4, 5, 9)])
    write(tmp_path, "data/topic=t/date=2/b", [row(o) for o in (2, 3, 6, 8)])
    write(tmp_path, "data/topic=t/date=1/c", [row(o) for o in (10, 12)])
    offsets = [*range(7), 8, 9, 10, 12]

    assert [f"None-0-{o}" for o in offsets if o >= from_offset] == values_of(
        tmp_path,
        T0,
        file("data/topic=t/date=1/a", 0, 9),
        file("data/topic=t/date=2/b", 2, 8),
        file("data/topic=t/date=1/c", 10, 12),
        from_offset=from_offset,
    )


@pytest.mark.usefixtures("group_bytes")
@pytest.mark.parametrize("from_offset", [0, 3])
def test_read_shard_not_ascending(tmp_path: Path, from_offset: int) -> None:
    """A file whose rows are out of order is sorted, alone and among others."""
    write(tmp_path, "topic=t/a", [row(o) for o in (5, 0, 9, 2)])
    write(tmp_path, "topic=t/b", [row(o) for o in (1, 6)])
    unordered, ordered = file("topic=t/a", 0, 9, ascending=False), file("topic=t/b", 1, 6)

    assert [f"None-0-{o}" for o in (0, 2, 5, 9) if o >= from_offset] == values_of(
        tmp_path, T0, unordered, from_offset=from_offset
    )
    assert [f"None-0-{o}" for o in (0, 1, 2, 5, 6, 9) if o >= from_offset] == values_of(
        tmp_path, T0, unordered, ordered, from_offset=from_offset
    )


def test_read_shard_not_ascending_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows out of order than memory has room for are sorted a part at a time."""
    monkeypatch.setattr(shard_reader, "GROUP_BYTES", 220_000)
    monkeypatch.setattr(shard_reader, "LEAST_PART_BYTES", 1)
    rows = [row(o) | {"value": b"%d" % o * 5_000} for o in reversed(range(10, 50))]
    write(tmp_path, "topic=t/a", rows, row_group_size=7)
    unordered = hashed(tmp_path, file("topic=t/a", 10, 49, ascending=False))

    batches = list(read_shard(str(tmp_path), shard_of(T0, unordered)))

    assert rows_of(batches) == [(r["offset"], r["value"]) for r in reversed(rows)]
    assert [batch.num_rows for batch in batches] == [10, 10, 10, 10]


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("rows", [Rows((OffsetRange(3, 4),)), Rows(()), Rows(from_ms=9)], ids=str)
def test_read_shard_none_wanted(tmp_path: Path, ascending: bool, rows: Rows) -> None:
    """A file of which nothing is wanted gives no batch, alone and among others."""
    write(tmp_path, "topic=t/a", [row(o, ms=o) for o in (0, 5)])
    write(tmp_path, "topic=t/b", [row(o, ms=o) for o in (2, 6)])
    files = file("topic=t/a", 0, 5, ascending), file("topic=t/b", 2, 6, ascending)

    assert values_of(tmp_path, T0, files[0], rows=rows) == []
    assert values_of(tmp_path, T0, *files, rows=rows) == []


@pytest.mark.usefixtures("group_bytes")
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (Rows(), [0, 1, 2, 3, 7, 8]),
        (Rows((OffsetRange(1, 3), OffsetRange(5, 8))), [1, 2, 7]),
        (Rows((OffsetRange(8, 99),)), [8]),
        (Rows(from_ms=20), [1, 2, 7]),
        (Rows(to_ms=20), [0, 8]),
        (Rows(from_ms=10, to_ms=21), [0, 1, 2]),
        (Rows(from_ms=-(10**17), to_ms=10**17), [0, 1, 2, 7, 8]),
        (Rows((OffsetRange(0, 3),), from_ms=20), [1, 2]),
    ],
    ids=str,
)
def test_read_shard_rows(tmp_path: Path, rows: Rows, expected: list[int]) -> None:
    """Only wanted rows come; one without a timestamp isn't wanted where times decide."""
    times = {0: 19, 1: 20, 2: 20, 3: None, 7: 30, 8: -1}
    write(tmp_path, "topic=t/a", [row(o, ms=ms) for o, ms in times.items()], row_group_size=2)

    assert [f"None-0-{o}" for o in expected] == values_of(
        tmp_path, T0, file("topic=t/a", 0, 8), rows=rows
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
    write(tmp_path, "date=1/a", rows, columns=("value", "topic", "partition", "offset"))

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that every example writes its files to again."""
    return tmp_path_factory.mktemp("shard")


@settings(max_examples=60)
@given(st.data())
def test_read_shard_property(folder: Path, data: st.DataObject) -> None:
    """What comes out is what going through all rows one by one finds, in offset order."""
    dealt: dict[str, list[dict[str, Any]]] = {}
    for offset in sorted(data.draw(st.sets(st.integers(0, 40), min_size=1))):
        name = data.draw(st.sampled_from("abc"))
        partition = data.draw(st.sampled_from([0, 0, 1]))
        ms = data.draw(st.none() | st.integers(-3, 12))
        dealt.setdefault(name, []).append(row(offset, partition, ms=ms))
    files = []
    for name, rows in dealt.items():
        own = [r["offset"] for r in rows if r["partition"] == 0]
        ascending = data.draw(st.booleans())
        rows = rows if ascending else data.draw(st.permutations(rows))
        write(folder, f"topic=t/{name}", rows, row_group_size=data.draw(st.integers(1, 8)))
        if own:
            files.append(file(f"topic=t/{name}", min(own), max(own), ascending))
    drawn = data.draw(st.none() | st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9))))
    bounds = st.none() | st.integers(-4, 13)
    wanted = Rows(
        None if drawn is None else tuple(merge(OffsetRange(a, a + n) for a, n in drawn)),
        data.draw(bounds),
        data.draw(bounds),
    )
    from_offset = data.draw(st.integers(0, 41))

    def is_wanted(r: dict[str, Any]) -> bool:
        ms = r["timestamp"] and (r["timestamp"] - EPOCH) // timedelta(milliseconds=1)
        return (
            r["partition"] == 0
            and r["offset"] >= from_offset
            and (wanted.ranges is None or any(r["offset"] in held for held in wanted.ranges))
            and (wanted.from_ms is None or (ms is not None and ms >= wanted.from_ms))
            and (wanted.to_ms is None or (ms is not None and ms < wanted.to_ms))
        )

    expected = sorted(r["offset"] for rows in dealt.values() for r in rows if is_wanted(r))
    files.sort(key=lambda file: file.first)

    assert [f"None-0-{o}" for o in expected] == values_of(
        folder, T0, *files, rows=wanted, from_offset=from_offset
    )


@pytest.mark.parametrize("tp", [P0, P1], ids=str)
@pytest.mark.parametrize("from_offset", [0, 17])
def test_read_shard_golden(tp: TopicPartition, from_offset: int) -> None:
    """Files that Spark wrote are read from any offset on."""
    files = []
    for path in GOLDEN.glob("generations/0001/data/topic=*/*.parquet"):
        for held in read_offsets(path, "parquet", "flights"):
            if held.tp == tp:
                name = str(path.relative_to(GOLDEN))
                files.append(hashed(GOLDEN, file(name, held.first, held.last, held.ascending)))
    files.sort(key=lambda file: file.first)
    batches = list(read_shard(str(GOLDEN), shard_of(tp, *files), from_offset))

    offsets = [offset for offset, _ in rows_of(batches)]
    assert len(files) > 10
    assert list(range(from_offset, 42)) == sorted(set(offsets))
    assert offsets == sorted(offsets)


# bytes


def test_read_shard_below_unopened(tmp_path: Path) -> None:
    """A file that lies below the offset is neither opened nor missed."""
    write(tmp_path, "topic=t/b", [row(2), row(3)])
    files = file("topic=t/a", 0, 1), hashed(tmp_path, file("topic=t/b", 2, 3))

    batches = list(read_shard(str(tmp_path), shard_of(T0, *files), from_offset=2))

    assert [offset for offset, _ in rows_of(batches)] == [2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:], "changed since"),
        (lambda content: content + b"x", "changed since"),
        (lambda content: b"", "it has 0 bytes"),
        (None, "missing since"),
    ],
    ids=["flipped", "longer", "empty", "missing"],
)
def test_read_shard_changed(tmp_path: Path, change: Any, message: str) -> None:
    """A file that was changed ends the shard before any of its records; those before it came."""
    write(tmp_path, "topic=t/a", [row(0), row(1)])
    write(tmp_path, "topic=t/b", [row(2), row(3)])
    files = [hashed(tmp_path, file("topic=t/a", 0, 1)), hashed(tmp_path, file("topic=t/b", 2, 3))]
    changed = tmp_path / "topic=t" / "b"
    if change is None:
        changed.unlink()
    else:
        changed.write_bytes(change(changed.read_bytes()))
    batches = read_shard(str(tmp_path), shard_of(T0, *files))

    assert [offset for offset, _ in rows_of([next(batches)])] == [0, 1]
    with pytest.raises(ManifestInvalidError, match=rf"topic=t/b .*{message}"):
        next(batches)


def test_read_shard_changed_interleaved(tmp_path: Path) -> None:
    """Of files that interleave with one that was changed, nothing comes."""
    write(tmp_path, "topic=t/a", [row(0), row(3)])
    write(tmp_path, "topic=t/b", [row(2), row(4)])
    good, bad = hashed(tmp_path, file("topic=t/a", 0, 3)), file("topic=t/b", 2, 4)

    with pytest.raises(ManifestInvalidError, match="restore it from a copy"):
        next(read_shard(str(tmp_path), shard_of(T0, good, replace(bad, sha256="0" * 64))))


def test_read_shard_no_hash(tmp_path: Path) -> None:
    """A plan without a file's hash is no proof of its bytes: the file is refused."""
    write(tmp_path, "topic=t/a", [row(0)])
    unproven = replace(hashed(tmp_path, file("topic=t/a", 0, 0)), sha256="")

    with pytest.raises(ManifestInvalidError, match=r"SHA-256 \(none\)"):
        next(read_shard(str(tmp_path), shard_of(T0, unproven)))


def test_read_shard_changed_while_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is changed under its reader, what came is the plan's, and no more comes."""
    monkeypatch.setattr(shard_reader, "GROUP_BYTES", 1)
    monkeypatch.setattr(checked_file, "LOCAL", Sizes(held=0, chunk=1 << 16, buffer=1 << 16))
    rows = [row(o) | {"value": os.urandom(100_000)} for o in range(9)]
    write(tmp_path, "topic=t/a", rows, row_group_size=1)
    batches = read_shard(str(tmp_path), shard_of(T0, hashed(tmp_path, file("topic=t/a", 0, 8))))
    came = [next(batches)]
    (tmp_path / "topic=t" / "a").write_bytes(bytes((tmp_path / "topic=t" / "a").stat().st_size))

    with pytest.raises(ManifestInvalidError, match="topic=t/a was changed while it was read"):
        came += batches

    assert rows_of(came) == [(r["offset"], r["value"]) for r in rows[: len(came)]]


def test_read_shard_many_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that interleave share the memory: none that is larger than its share is held."""
    monkeypatch.setattr(checked_file, "LOCAL", checked_file.LOCAL._replace(held=3_000))
    files = []
    for number in range(3):
        path = f"topic=t/{number}"
        write(tmp_path, path, [row(o) for o in (number, number + 10)])
        files.append(hashed(tmp_path, file(path, number, number + 10)))
    assert all(1_000 < file.bytes < 3_000 for file in files)

    def open_files(*some: ShardFile, sharers: int = 1) -> int:
        batches = read_shard(str(tmp_path), shard_of(T0, *some), sharers=sharers)
        next(batches)
        open_now = [
            os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if entry.is_symlink()
        ]
        return sum(name.startswith(str(tmp_path)) for name in open_now)

    assert open_files(files[0]) == 0
    assert open_files(files[0], sharers=3) == 1
    assert open_files(*files) == 3


def test_read_shard_more_files_than_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a first drain of years by date: the soft limit of open files is no obstacle."""
    monkeypatch.setattr(checked_file, "LOCAL", checked_file.LOCAL._replace(held=3_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 20
    # Each file overlaps the one after it, or all of the others.
    spans = [(10 * n, 10 * n + 11) for n in range(40)]
    spans += [(1_000 + n, 2_000 + n) for n in range(40)]
    files = []
    for number, span in enumerate(spans):
        path = f"topic=t/date={number}/a"
        write(tmp_path, path, [row(o) for o in span])
        files.append(hashed(tmp_path, file(path, *span)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        batches = list(read_shard(str(tmp_path), shard_of(T0, *files)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert [offset for offset, _ in rows_of(batches)] == sorted(o for span in spans for o in span)


def test_read_shard_more_files_than_the_system_lets_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that no retry helps against names the limit, not only a number."""
    write(tmp_path, "topic=t/a", [row(0)])
    shard = shard_of(T0, hashed(tmp_path, file("topic=t/a", 0, 0)))

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(MachineError, match=r"topic=t/a can't be opened.*ulimit -n"):
        list(read_shard(str(tmp_path), shard))


def test_read_shard_not_readable(tmp_path: Path) -> None:
    """A file that can't be read, though it is the plan's, is named."""
    write(tmp_path, "topic=t/a", [row(0), row(1)])
    (tmp_path / "topic=t" / "b").write_bytes(b"damaged")
    files = [hashed(tmp_path, file("topic=t/a", 0, 1)), hashed(tmp_path, file("topic=t/b", 2, 3))]
    batches = read_shard(str(tmp_path), shard_of(T0, *files))

    assert [offset for offset, _ in rows_of([next(batches)])] == [0, 1]
    with pytest.raises(DataFileError, match="topic=t/b: not readable as Parquet"):
        next(batches)


# where it runs


def test_read_shard_url() -> None:
    """A root that is a URL is read where it lies."""
    root = UPath("memory://archive-of-shards")
    write(root, "topic=t/a", [row(0), row(1)])
    shard = shard_of(T0, hashed(root, file("topic=t/a", 0, 1)))

    batches = list(read_shard(str(root), shard))

    assert [offset for offset, _ in rows_of(batches)] == [0, 1]


def test_read_shard_imports(tmp_path: Path) -> None:
    """Local Parquet is read with pyarrow alone: executors need no more, processes start fast."""
    write(tmp_path, "topic=t/a", [row(0, ms=5), row(2, ms=6)])
    write(tmp_path, "topic=t/b", [row(1, ms=5), row(3, ms=5)])
    files = [hashed(tmp_path, file(f"topic=t/{n}", o, o + 2)) for o, n in enumerate("ab")]
    shard = shard_of(T0, *files, rows=Rows((OffsetRange(0, 3),), 0, 6))
    script = f"""
import sys
from kafka_drain.republish.sending.shard_reader import read_shard
from kafka_drain.republish.planning.shards import Shard
shard = Shard.from_dict({shard.to_dict()!r})
print([batch["offset"].to_pylist() for batch in read_shard({str(tmp_path)!r}, shard)])
print(sorted({{"fastavro", "fsspec", "pandas", "upath"}} & sys.modules.keys()))
"""

    assert printed_by(script) == ["[[0], [1]]", "[]"]


# row groups


class Counted(io.FileIO):
    """A file that says how much was read of it."""

    def __init__(self, path: Path, sizes: list[int]) -> None:
        super().__init__(path)
        self._sizes = sizes

    def read(self, size: int | None = -1) -> Any:
        content = super().read(size)
        self._sizes.append(len(content or b""))
        return content


class CountedPath:
    """A path whose files say how much was read of them."""

    suffix = ".parquet"
    parents = ()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sizes: list[int] = []

    def open(self, mode: Literal["rb"], /) -> IO[bytes]:
        return Counted(self.path, self.sizes)


GROUPS, GROUP_ROWS, VALUE = 8, 10, 5000

#: pyarrow looks for a file's footer in its last 64 KiB; what stands beside the values is small.
FOOTER = (1 << 16) + 10_000


def row_groups(path: Path, **options: Any) -> CountedPath:
    """Write row groups: two of each partition, 10 offsets and 10 ms each."""
    noise = hashlib.shake_256(b"").digest
    rows = [
        row(o, o // (2 * GROUP_ROWS), ms=o) | {"value": noise(VALUE)[o:]}
        for o in range(GROUPS * GROUP_ROWS)
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    options = {"compression": "none", "use_dictionary": False} | options
    pq.write_table(table, path, row_group_size=GROUP_ROWS, **options)
    return CountedPath(path)


def groups_read(path: CountedPath, wanted: RowBounds | None) -> list[int]:
    """Return the row groups that are read, which are read whole."""
    # As a sender does, which has compared all bytes with the receipt.
    proven = None if wanted is None else replace(wanted, is_proven=True)
    batches = list(read_records(path, "parquet", 1 << 20, proven))
    offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    groups = sorted({offset // GROUP_ROWS for offset in offsets})
    assert offsets == [g * GROUP_ROWS + n for g in groups for n in range(GROUP_ROWS)]
    assert sum(path.sizes) < FOOTER + len(groups) * GROUP_ROWS * VALUE
    return groups


@pytest.mark.parametrize(
    "options",
    [
        {"coerce_timestamps": "ms"},
        {"coerce_timestamps": "us"},
        {"coerce_timestamps": "us", "version": "1.0"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, range(8)),
        (RowBounds(), range(8)),
        (RowBounds(partition=1), [2, 3]),
        (RowBounds(partition=9), []),
        (RowBounds(first=49), [4, 5, 6, 7]),
        (RowBounds(first=50), [5, 6, 7]),
        (RowBounds(first=2**70), []),
        (RowBounds(end=10), [0]),
        (RowBounds(end=11), [0, 1]),
        (RowBounds(end=0), []),
        (RowBounds(first=15, end=16), [1]),
        (RowBounds(from_ms=69), [6, 7]),
        (RowBounds(from_ms=70), [7]),
        (RowBounds(to_ms=70), range(7)),
        (RowBounds(to_ms=71), range(8)),
        (RowBounds(from_ms=15, to_ms=31), [1, 2, 3]),
        (RowBounds(partition=1, first=35, to_ms=99), [3]),
    ],
    ids=str,
)
def test_row_groups_skipped(
    tmp_path: Path, options: dict[str, Any], wanted: RowBounds | None, expected: list[int]
) -> None:
    """Row groups that hold nothing wanted aren't read, by whichever column that shows."""
    assert list(expected) == groups_read(row_groups(tmp_path / "x", **options), wanted)


@pytest.mark.parametrize(
    "options",
    [{"use_deprecated_int96_timestamps": True}, {"write_statistics": ["partition", "offset"]}],
    ids=["INT96", "no statistics"],
)
def test_row_groups_no_statistics(tmp_path: Path, options: dict[str, Any]) -> None:
    """Without statistics of a column, the others decide; without any, all is read."""
    path = row_groups(tmp_path / "x", **options)
    assert groups_read(path, RowBounds(from_ms=70)) == list(range(8))

    path = row_groups(tmp_path / "x", **options)
    assert groups_read(path, RowBounds(from_ms=70, first=60)) == [6, 7]

    path = row_groups(tmp_path / "x", write_statistics=False)
    assert groups_read(path, RowBounds(0, 60, 70, 70, 80)) == list(range(8))


@pytest.mark.parametrize("is_held", [True, False])
def test_read_shard_skips_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """A shard that goes on in the middle of a file reads it once for its hash, and what is left.

    The latter comes from memory where the file fits.
    """
    (tmp_path / "topic=t").mkdir()
    counted = row_groups(tmp_path / "topic=t" / "x")
    monkeypatch.setattr(shard_reader, "path_of", lambda root, name: counted)
    size = counted.path.stat().st_size
    buffer = 1 << 13
    sizes = Sizes(size if is_held else 0, chunk=BLOCK_BYTES, buffer=buffer)
    monkeypatch.setattr(checked_file, "LOCAL", sizes)
    monkeypatch.setattr(checked_file, "BLOCK_BYTES", buffer)
    shard = shard_of(
        TopicPartition("t", 3),
        hashed(tmp_path, file("topic=t/x", 60, 79)),
        rows=Rows((OffsetRange(0, 75),)),
    )

    batches = read_shard(str(tmp_path), shard, from_offset=71)

    assert [offset for offset, _ in rows_of(list(batches))] == [71, 72, 73, 74]
    again = sum(counted.sizes) - size
    # pyarrow's threads read the columns in any order, so a buffer may be filled for each once more.
    most = FOOTER + 2 * GROUP_ROWS * VALUE + len(SCHEMA.names) * buffer
    assert most < size
    assert again == 0 if is_held else GROUP_ROWS * VALUE < again < most
