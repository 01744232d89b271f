"""What the index rules out, and when it counts: tables, and a judge that knows each file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive import index as module
from kafka_drain.archive.fold import WindowKind, owner_of
from kafka_drain.archive.generation_summary import SummaryRow
from kafka_drain.archive.index import (
    Index,
    IndexedGeneration,
    IndexedPartition,
    IndexedTopic,
    IndexedWindow,
    IndexFileError,
    NewGeneration,
    NewWindow,
    OtherIndexError,
    Query,
    Skipped,
    bounds_of,
    chunk_of_turn,
    chunks,
    held_text,
    is_skippable,
    may_cover,
    parse_index,
    replacing,
    replacing_twice,
    skip,
    suffices,
    window_chunks,
)
from kafka_drain.archive.journal.entries import REMOVED, Noted, Tip
from kafka_drain.archive.receipts import (
    FileSet,
    Receipt,
    SealedContent,
    SealedFile,
    SealedPartition,
)
from kafka_drain.gaps import GapReason
from kafka_drain.intervals import TimeRange
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.storage.sealed_json import seal
from tests.tables import each_of

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = {"t": "id"}


def generation(
    number: int,
    files: int = 2,
    first: int | None = 10,
    last: int | None = 20,
    held: Mapping[str, str] | None = None,
) -> Any:
    """A generation's row."""
    newest = "000000000002.json", f"{number:064x}", "d", "2026-01-01T00:00:00.000+00:00"
    return IndexedGeneration(number, 3, *newest, 7, 5, files, 9, False, first, last, held)


def window(
    key: str,
    replaces: Mapping[str, int] | None = None,
    *,
    kind: WindowKind = WindowKind.COMPACTION,
    files: int = 1,
    times: tuple[int | None, int | None] = (10, 20),
    size: int = 100,
    held: Mapping[str, str] | None = None,
) -> IndexedWindow:
    """A window's row."""
    sealed_at = "2026-01-01T00:00:00.000+00:00"
    counts = 7, 5, files, 9
    return IndexedWindow(
        key,
        kind.value,
        f"r{key}",
        f"p{key}",
        size,
        sealed_at,
        *counts,
        *times,
        replaces or {},
        held,
    )


PARTITION = IndexedPartition("t", "id", 0, 0, 100, 50, {"expired": 2}, ((0, 100),))
INDEX = Index(
    generations=(generation(1), generation(2, first=30, last=40)),
    windows=(window("a"), window("b", {"generations/0002": 2}, times=(30, 40))),
    topics=(IndexedTopic("t", "id", 1),),
    ids={"t": ("id",)},
    partitions=(PARTITION,),
    files=4,
    file_bytes=30,
)


def receipt(
    window: str = "w",
    partitions: Sequence[SealedPartition] = (),
    files: int = 0,
    topics: Mapping[str, str] = IDS,
    **more: Any,
) -> Receipt:
    """A receipt with some partitions."""
    values: dict[str, Any] = {"generation": None, "first_batch": 0, "last_batch": 0} | more
    return Receipt(
        pipeline="p",
        cluster_id="c",
        topics=topics,
        window=window,
        sealed_at="2026-01-01T00:00:00.000+00:00",
        previous=None,
        partitions=tuple(partitions),
        files=tuple(SealedFile(f"windows/{window}/{n}", 1, "", ()) for n in range(files)),
        sha256="s",
        **{"files_so_far": FileSet(), **values},
    )


def part(
    start: int, end: int, tp: TopicPartition = P0, so_far: int | None = None, **gaps: int
) -> SealedPartition:
    """A partition of a receipt, all of whose offsets are records but for the last ones, missing."""
    missing, at = {}, end
    for reason, number in gaps.items():
        missing[GapReason(reason)] = (OffsetRange(at - number, at),)
        at -= number
    return SealedPartition.of(
        tp=tp,
        range=OffsetRange(start, end),
        records=at - start,
        first=start,
        last=at - 1,
        first_timestamp=None,
        last_timestamp=None,
        gaps=missing,
        kafka=None,
        start_so_far=start if so_far is None else so_far,
        records_so_far=at - (start if so_far is None else so_far),
        gaps_so_far={reason: sum(map(len, ranges)) for reason, ranges in missing.items()},
    )


def noted(index: Index = INDEX, **changes: str) -> Noted:
    """What the journal says of all that an index names."""
    documents = {f"{row.name}/generation.json": row.document for row in index.generations}
    for row in index.windows:
        documents |= {f"{row.name}/receipt.json": row.receipt, f"{row.name}/plan.json": row.plan}
    tips = {row.name: Tip(row.newest, row.receipts, row.sha256) for row in index.generations}
    return Noted(tips, documents | {"archive.json": "x"} | changes)


@pytest.mark.parametrize(
    ("said", "generations", "windows", "agrees"),
    [
        (noted(), {1, 2, 3}, {"a", "b", "c"}, True),
        (noted(), {1, 2}, {"a", "b"}, True),
        # Something is gone.
        (noted(), {1, 3}, {"a", "b"}, False),
        (noted(), {1, 2}, {"a"}, False),
        # Something was removed, given up or replaced.
        (noted(**{"windows/b/receipt.json": REMOVED}), {1, 2}, {"a", "b"}, False),
        (noted(**{"windows/a/receipt.json": "other"}), {1, 2}, {"a", "b"}, False),
        (noted(**{"windows/a/plan.json": "other"}), {1, 2}, {"a", "b"}, False),
        (noted(**{"generations/0001/generation.json": "other"}), {1, 2}, {"a", "b"}, False),
        (replace(noted(), tips={}), {1, 2}, {"a", "b"}, False),
        *(
            (
                replace(noted(), tips=noted().tips | {"generations/0002": tip}),
                {1, 2},
                {"a", "b"},
                False,
            )
            for tip in (
                Tip("000000000002.json", 3, "other"),
                Tip("000000000002.json", 2, f"{2:064x}"),
                Tip("000000000003.json", 3, f"{2:064x}"),
            )
        ),
        (Noted(), {1, 2}, {"a", "b"}, False),
    ],
)
def test_index_agrees(said: Noted, generations: set[int], windows: set[str], agrees: bool) -> None:
    """It counts only if all that it names is there and was noted with the same hashes."""
    assert INDEX.agrees(said, generations, windows) is agrees


@pytest.mark.parametrize(
    ("topics", "starts", "continued"),
    [
        (IDS, {P0: 100}, True),
        (IDS, {P0: 101, P1: 0}, True),
        (IDS, {P0: 99}, False),
        # It would start at 0.
        (IDS, {P1: 100}, False),
        # Made again, or left out.
        ({"t": "other"}, {P0: 0}, True),
        ({"u": "id"}, {}, True),
        ({}, {}, True),
    ],
)
def test_index_continued(
    topics: dict[str, str], starts: dict[TopicPartition, int], continued: bool
) -> None:
    """A later generation can't hold what is in it only if it starts where the index ends."""
    assert INDEX.is_continued_by(topics, starts) is continued


@pytest.mark.parametrize(
    ("times", "generations", "windows"),
    [
        # Only the open generation is asked for.
        (None, {1, 2}, {"a", "b"}),
        (TimeRange(0, 10), {1, 2}, {"a", "b"}),
        (TimeRange(0, 11), {2}, {"b"}),
        # Of the second generation, window b has replaced all.
        (TimeRange(40, 50), {1, 2}, {"a"}),
        (TimeRange(), {2}, set()),
        (TimeRange(41), {1, 2}, {"a", "b"}),
    ],
)
def test_skip(
    times: TimeRange | None, generations: set[int], windows: set[str], monkeypatch: Any
) -> None:
    """What can't have records at the times that are asked for isn't read."""
    monkeypatch.setattr(module, "window_chunks", lambda rows: [])

    found = skip(INDEX, Query(times), 0)

    assert (found.index, found.generations, found.windows) == (INDEX, generations, windows)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (generation(1), True),
        (window("a", kind=WindowKind.BACKFILL), True),
        (window("a", kind=WindowKind.REPROCESS), True),
        (window("a", kind=WindowKind.COMPACTION), False),
        (window("a", kind=WindowKind.RETENTION), False),
    ],
)
def test_query_uncompacted(row: Any, wanted: bool) -> None:
    """Maintenance asks for what may be compacted, and for what may be too old."""
    assert Query(uncompacted=True).matches_live(row) is wanted
    assert not Query().matches_live(row)
    assert Query(TimeRange(to_ms=11), uncompacted=True).matches_live(row)
    assert Query(TimeRange(to_ms=10), uncompacted=True).matches_live(row) is wanted


SEALED_MS = 1_767_225_600_000  # window()'s sealed_at


@pytest.mark.parametrize(
    ("times", "files", "wanted"),
    [
        ((SEALED_MS - 1, SEALED_MS), 1, False),
        ((SEALED_MS - 1, SEALED_MS + 1), 1, True),
        ((SEALED_MS + 5, SEALED_MS + 9), 1, True),
        ((SEALED_MS + 5, SEALED_MS + 9), 0, False),
        ((None, None), 1, True),
    ],
)
def test_query_dated_later(times: tuple[int | None, int | None], files: int, wanted: bool) -> None:
    """Retention asks for what has a record dated later than it was sealed, however young."""
    row = window("a", times=times, files=files)

    assert Query(TimeRange(to_ms=1), uncompacted=True, dated_later=True).matches_live(row) is wanted


def test_skip_in_turn() -> None:
    """Whatever is asked, some of it is looked at, and of generations always the newest."""
    index = Index(
        generations=tuple(map(generation, range(1, 21))),
        windows=tuple(window(f"{n:03d}") for n in range(40)),
    )

    first, second = skip(index, Query(), 0), skip(index, Query(), 1)
    asked = skip(index, Query(TimeRange(0, 100)), 0)

    assert first.generations == second.generations == {*range(1, 21)}
    assert (first.rechecked, second.rechecked) == ({*range(1, 9), 20}, {*range(9, 17), 20})
    assert first.windows == {f"{n:03d}" for n in range(16, 40)}
    assert second.windows == {f"{n:03d}" for n in (*range(16), *range(32, 40))}
    # What is asked for is read anyway.
    assert (asked.generations, asked.windows, asked.rechecked) == (set(), set(), set())


def test_skip_replaced_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window is looked at with those that replace its files: they may be gone."""
    monkeypatch.setattr(module, "WINDOWS_IN_TURN", 1)
    rows = window("a"), window("b", {"windows/a": 1}), window("c", {"windows/b": 1}), window("d")
    index = Index((generation(1),), rows)

    assert [skip(index, Query(), turn).windows for turn in range(4)] == [
        {"d"},
        {"a", "d"},
        {"a", "b", "d"},
        {"a", "b", "c"},
    ]


def test_skip_others() -> None:
    """Of what isn't in the index, and so is read, it leaves out no window that replaces a file."""
    rows = window("a", {"windows/repair": 1}), window("b")
    index = Index((generation(1),), tuple(rows) * 1 + tuple(window(f"x{n}") for n in range(40)))
    turn = 2

    assert "a" in skip(index, Query(), turn).windows
    assert "a" not in skip(index, Query(), turn, ["windows/repair"]).windows


@each_of("stride", range(1, 11))
@each_of("portions", [1, 2, 3, 7, 8, 33, 64])
def test_chunk_of_turn_all(portions: int, stride: int) -> None:
    """Each portion comes within days, also if only each second or third turn is asked for."""
    rows = [[number] for number in range(portions)]
    turns = range(0, stride * max(portions + 10, 11), stride)

    assert {chunk_of_turn(rows, turn)[0] for turn in turns} == {*range(portions)}
    assert [chunk_of_turn(rows, turn)[0] for turn in range(portions)] == [*range(portions)]


def test_chunk_of_turn_nothing() -> None:
    """Of nothing, nothing comes."""
    assert chunk_of_turn([], 3) == ()


def test_chunks() -> None:
    """Portions are of the given size but for the last."""
    assert chunks("abcde", 2) == ["ab", "cd", "e"]
    assert chunks("", 2) == []


@pytest.mark.parametrize(
    ("sizes", "portions"),
    [
        ([], []),
        ([100], [1]),
        ([1] * 16, [16]),
        ([1] * 17, [16, 1]),
        ([module.BYTES_IN_TURN - 1, 1, 1, 5], [2, 2]),
        ([module.BYTES_IN_TURN + 1, 1, module.BYTES_IN_TURN], [1, 1, 1]),
        ([1, module.BYTES_IN_TURN], [1, 1]),
    ],
)
def test_window_chunks(sizes: list[int], portions: list[int]) -> None:
    """A portion has few windows, and few bytes, or is a single window."""
    rows = [window(f"{number:03d}", size=size) for number, size in enumerate(sizes)]
    found = window_chunks(rows)

    assert [len(each) for each in found] == portions
    assert [row for each in found for row in each] == rows


def test_replacing() -> None:
    """Windows that replace files of an owner, and those that replace files of them."""
    rows = [
        window("a", {"generations/0001": 1}),
        window("b", {"windows/a": 1, "generations/0002": 4}),
        window("c", {"windows/b": 1}),
        window("d", {"windows/x": 1}),
    ]

    assert replacing(rows, ["generations/0001"]) == {"a", "b", "c"}
    assert replacing(rows, ["generations/0002"]) == {"b", "c"}
    assert replacing(rows, ["windows/c", "windows/d"]) == set()
    assert replacing(rows, ["windows/x", "windows/b"]) == {"c", "d"}


BOUNDS = {(P0, "id"): 100}


@pytest.mark.parametrize(
    ("partitions", "kind", "more", "settled"),
    [
        ([part(0, 100)], WindowKind.BACKFILL, {}, True),
        ([part(0, 100, lost=3)], WindowKind.BACKFILL, {}, True),
        ([], WindowKind.BACKFILL, {}, True),
        # Beyond what is closed, or of no generation at all.
        ([part(0, 101)], WindowKind.BACKFILL, {}, False),
        ([part(0, 1), part(0, 1, P1)], WindowKind.BACKFILL, {}, False),
        ([part(0, 1)], WindowKind.BACKFILL, {"topics": {"t": "other"}}, False),
        # A repair: its damaged files are named one by one in the report.
        ([part(0, 1)], WindowKind.REPAIR, {"replaces": ("x",)}, False),
        # What was erased may never come back.
        ([part(0, 1)], WindowKind.ERASURE, {}, False),
        ([part(0, 9, erased=2)], WindowKind.COMPACTION, {}, False),
    ],
)
def test_is_skippable(
    partitions: list[SealedPartition], kind: WindowKind, more: dict[str, Any], settled: bool
) -> None:
    """A window needs no look any more if nothing new can depend on it."""
    assert is_skippable(receipt(partitions=partitions, **more), kind, None, BOUNDS) is settled


@pytest.mark.parametrize(
    ("windows", "others", "found"),
    [
        ({"a": "1/x", "b": "1/y"}, {}, set()),
        ({"a": "1/x 1/x"}, {}, set()),
        ({"a": "1/x", "b": "1/x 1/y", "c": "1/y"}, {}, {"a", "b", "c"}),
        ({"a": "1/x", "b": "1/x 1/y", "c": "1/z"}, {}, {"a", "b"}),
        ({"a": "1/x", "c": "2/x"}, {"b": "1/x"}, {"a"}),
        ({"a": "1/x"}, {"b": "1/y", "c": "1/y"}, set()),
        ({}, {"b": "1/y", "c": "1/y"}, set()),
    ],
)
def test_disputed(windows: dict[str, str], others: dict[str, str], found: set[str]) -> None:
    """A window is replacing_twice if another one has replaced one of its files, too."""

    def sealed(paths: dict[str, str]) -> list[Receipt]:
        return [
            receipt(key, replaces=tuple(f"generations/000{path}" for path in each.split()))
            for key, each in paths.items()
        ]

    assert replacing_twice(sealed(windows), sealed(others)) == found


@pytest.mark.parametrize(
    ("drained", "later", "bounds"),
    [
        ({}, [], {}),
        ({}, [(IDS, {P0: 7})], {P0: 7}),
        ({}, [(IDS, {P0: 7}), (IDS, {P0: 9})], {P0: 7}),
        ({}, [(IDS, {P0: 9}), (IDS, {P0: 7})], {P0: 7}),
        # The generations in the index say where they end.
        ({P0: OffsetRange(1, 5)}, [(IDS, {P0: 7, P1: 3})], {P0: 5, P1: 3}),
        ({P0: OffsetRange(1, 5)}, [], {P0: 5}),
        # A partition that was added later is drained from 0.
        ({}, [(IDS, {P0: 7}), (IDS, {P0: 9, P1: 4})], {P0: 7, P1: 0}),
        # Another topic.
        ({}, [({"t": "other"}, {P0: 7})], {}),
        ({}, [({"t": "other"}, {P1: 7}), (IDS, {P0: 9})], {P0: 9}),
    ],
)
def test_bounds_of(drained: Any, later: Any, bounds: dict[TopicPartition, int]) -> None:
    """What a window holds before them, no generation outside of the index may hold."""
    found = bounds_of({(tp, "id"): held for tp, held in drained.items()}, later)

    assert {tp: end for (tp, topic_id), end in found.items() if topic_id == "id"} == bounds


def test_bounds_of_unknown_id() -> None:
    """Of a topic whose id isn't known, each generation may hold everything."""
    assert bounds_of({}, [({}, {P0: 7})]) == {(P0, ""): 0}


@pytest.mark.parametrize(
    ("parts", "held"),
    [
        ([], {}),
        ([(P0, 3, 9)], {"t": "0:3-9"}),
        # From the first to the last one.
        ([(P1, 4, 5), (P0, 3, 9), (P1, 8, 9)], {"t": "0:3-9 1:4-9"}),
        ([(P1, 8, 9), (P1, 4, 5)], {"t": "1:4-9"}),
        ([(TopicPartition("u", 12), 0, 1), (P0, 0, 2)], {"t": "0:0-2", "u": "12:0-1"}),
    ],
)
def test_held_text(parts: list[tuple[TopicPartition, int, int]], held: dict[str, str]) -> None:
    """A row names each partition once, in order."""
    assert held_text((tp, OffsetRange(start, end)) for tp, start, end in parts) == held


@pytest.mark.parametrize(("number", "is_said"), [(128, True), (129, False)])
def test_held_text_many(number: int, is_said: bool) -> None:
    """A row of very many partitions doesn't say what it holds of each."""
    parts = [(TopicPartition("t", n), OffsetRange(0, 1)) for n in range(number)]

    assert (held_text(parts) is not None) is is_said


@pytest.mark.parametrize(
    ("held", "asked", "covers"),
    [
        (None, {}, True),
        ({}, {P0: [(0, 9)]}, False),
        ({"t": "0:3-9"}, {}, False),
        ({"t": "0:3-9"}, {P0: [(0, 3)]}, False),
        ({"t": "0:3-9"}, {P0: [(0, 4)]}, True),
        ({"t": "0:3-9"}, {P0: [(8, 9)]}, True),
        ({"t": "0:3-9"}, {P0: [(9, 12)]}, False),
        ({"t": "0:3-9"}, {P0: [(0, 1), (9, 12)]}, False),
        ({"t": "0:3-9"}, {P1: [(0, 9)]}, False),
        ({"u": "0:3-9"}, {P0: [(0, 9)]}, False),
        ({"t": "0:3-9 1:5-6"}, {P1: [(5, 9)]}, True),
        ({"t": "0:3-9 1:5-6"}, {P0: [], P1: [(6, 9)]}, False),
        ({"t": "0:3-9", "u": "0:5-6"}, {TopicPartition("u", 0): [(5, 6)], P0: [(0, 1)]}, True),
        ({"t": "10:3-9"}, {P1: [(0, 9)], TopicPartition("t", 0): [(0, 9)]}, False),
    ],
)
def test_may_cover(held: Any, asked: dict[TopicPartition, Any], covers: bool) -> None:
    """A row rules out what is before or behind its offsets, and other partitions."""
    offsets = {tp: [OffsetRange(*pair) for pair in pairs] for tp, pairs in asked.items()}

    assert may_cover(held, offsets) is covers


OF_TEN = {P0: [OffsetRange(10, 20)]}


@pytest.mark.parametrize(
    ("query", "row", "wanted", "needed"),
    [
        (Query(), window("a", held={"t": "0:0-100"}), False, False),
        (Query(offsets=OF_TEN), window("a", held={"t": "0:0-100"}), True, False),
        (Query(offsets=OF_TEN), window("a", held={"t": "0:0-10"}), False, False),
        (Query(offsets=OF_TEN), window("a"), True, False),
        (Query(offsets=OF_TEN), generation(1, held={"t": "0:19-20"}), True, False),
        # Only what may have both.
        (Query(TimeRange(0, 10), OF_TEN), window("a"), False, False),
        (Query(TimeRange(0, 11), OF_TEN), window("a"), True, False),
        (Query(TimeRange(0, 11), OF_TEN), window("a", held={"t": "0:0-10"}), False, False),
        # Without a file, nothing to read, but something that covers offsets.
        (Query(offsets=OF_TEN), window("a", files=0), False, False),
        (Query(offsets=OF_TEN, claimed=True), window("a", files=0), False, True),
        (Query(offsets=OF_TEN, claimed=True), window("a", held={"t": "0:0-10"}), False, False),
        (Query(claimed=True), window("a"), False, False),
        (Query(names=frozenset({"windows/a"})), window("a", files=0), False, True),
        (Query(names=frozenset({"windows/b"})), window("a"), False, False),
        (Query(names=frozenset({"generations/0001"})), generation(1), False, True),
        (Query(offsets=OF_TEN, uncompacted=True), window("a", held={"t": "0:0-1"}), False, False),
        (Query(offsets=OF_TEN, uncompacted=True), generation(1, held={}), True, False),
    ],
)
def test_query(query: Query, row: Any, wanted: bool, needed: bool) -> None:
    """What may have the offsets and the time is read, and what is named."""
    assert (query.matches_live(row), query.matches_any(row)) == (wanted, needed)


@pytest.mark.parametrize(
    ("offsets", "touched"),
    [
        ({}, False),
        ({P0: []}, False),
        ({P0: [OffsetRange(90, 100)]}, True),
        ({P0: [OffsetRange(100, 101)]}, False),
        ({P0: [OffsetRange(100, 101), OffsetRange(400, 401)]}, False),
        ({P1: [OffsetRange(0, 100)]}, False),
        ({P1: [OffsetRange(0, 1)], P0: [OffsetRange(150, 151), OffsetRange(0, 1)]}, True),
    ],
)
def test_index_touched(offsets: Any, touched: bool) -> None:
    """Of each partition, an index knows which offsets are covered at all."""
    assert INDEX.touched(offsets) == ([PARTITION] if touched else [])
    # Then no row is read for them, whatever its times.
    asked = Query(TimeRange(), offsets)
    assert touched or skip(INDEX, asked, None).windows == {"a", "b"}
    left = skip(INDEX, replace(asked, claimed=True), None)
    assert left == Skipped(INDEX, *(((set(), set())) if touched else ({1, 2}, {"a", "b"})))


@pytest.mark.parametrize(
    ("partition", "query", "decided"),
    [
        (PARTITION, Query(offsets=OF_TEN, claimed=True), True),
        (replace(PARTITION, topic_id=""), Query(offsets=OF_TEN), False),
        (replace(PARTITION, topic_id=""), Query(TimeRange()), True),
        # Only all windows say how many of the offsets are taken.
        (replace(PARTITION, gaps={"window": 1}), Query(offsets=OF_TEN, claimed=True), False),
        (replace(PARTITION, gaps={"window": 1}), Query(offsets=OF_TEN), True),
        (
            replace(PARTITION, gaps={"window": 1}),
            Query(offsets={P0: [OffsetRange(100, 101)]}, claimed=True),
            True,
        ),
    ],
)
def test_suffices(partition: IndexedPartition, query: Query, decided: bool) -> None:
    """Where the index doesn't say enough, everything is read."""
    assert suffices(replace(INDEX, partitions=(partition,)), query) is decided


def test_skip_offsets() -> None:
    """Who claims offsets reads what covers them, even if it was replaced, and who replaced it."""
    rows = (
        window("a", {"generations/0001": 2}, held={"t": "0:0-50"}),
        window("b", held={"t": "0:50-60"}),
        window("c", {"windows/b": 1}, held={"t": "0:70-80"}),
    )
    index = replace(
        INDEX,
        generations=(generation(1, held={"t": "0:0-50"}), generation(2, held={"t": "0:60-100"})),
        windows=rows,
    )
    offsets = {P0: [OffsetRange(40, 60)]}

    read, claimed = (
        skip(index, Query(offsets=offsets, claimed=claimed), None) for claimed in (False, True)
    )
    named = skip(index, Query(names=frozenset(["windows/b", "generations/0002"])), None)

    assert (read.generations, read.windows) == ({1, 2}, {"b", "c"})
    assert (claimed.generations, claimed.windows) == ({2}, set())
    assert (named.generations, named.windows) == ({1}, {"a"})
    assert read.rechecked == claimed.rechecked == set()


def test_is_skippable_replaced() -> None:
    """A plan that says what the replaced files held speaks of intact ones."""
    found = receipt(partitions=[part(0, 1)], replaces=("x",))

    assert is_skippable(found, WindowKind.COMPACTION, {"files": 1}, BOUNDS)
    assert not is_skippable(found, WindowKind.ERASURE, {"files": 1}, BOUNDS)


def row(files: int, first: int | None, last: int | None) -> SummaryRow:
    """A row of a summary."""
    return SummaryRow("n", "s", "at", 1, 1, files, 1, first, last, False)


@pytest.mark.parametrize(
    ("rows", "times"),
    [
        ([row(1, 5, 9), row(2, 3, 4)], (3, 9)),
        # A segment without files has no times, and needs none.
        ([row(1, 5, 9), row(0, None, None)], (5, 9)),
        ([row(1, 5, 9), row(1, None, None)], (None, None)),
        ([row(1, 5, None)], (None, None)),
        ([], (None, None)),
    ],
)
def test_generation_row_times(rows: list[SummaryRow], times: tuple[int | None, int | None]) -> None:
    """A generation's times are those of all its files; unknown ones rule out nothing."""
    newest = receipt(
        window="",
        partitions=[part(8, 10, so_far=0)],
        generation=7,
        last_batch=3,
        files_so_far=FileSet(5, 60),
    )

    found = IndexedGeneration.of(4, newest, "digest", rows)

    newest = "000000000003.json", "s", "digest", "2026-01-01T00:00:00.000+00:00"
    totals = len(rows), len(rows), 5, 60, False
    assert found == IndexedGeneration(7, 4, *newest, *totals, *times, {"t": "0:0-10"})


def test_generation_row_unknown() -> None:
    """Of a generation it isn't known what Spark read if it isn't of one of its receipts."""
    newest = receipt(window="", generation=7)
    known = row(1, 5, 9)
    unknown = replace(known, unknown_content=True)

    assert IndexedGeneration.of(2, newest, "d", [known, unknown]).unknown_content
    assert IndexedGeneration.of(2, receipt(), "d", []).generation == 0
    assert not IndexedGeneration.of(2, newest, "d", [known, known]).unknown_content


@pytest.mark.parametrize(("files", "held"), [(0, False), (1, True)])
def test_row_may_hold(files: int, held: bool) -> None:
    """Without a file there are no records."""
    assert generation(1, files=files).may_hold(TimeRange(10, 11)) is held
    assert window("a", files=files).may_hold(TimeRange(10, 11)) is held
    assert not generation(1, files=files).may_hold(TimeRange(0, 10))
    assert not window("a", files=files).may_hold(TimeRange(0, 10))


def new_generation(number: int, start: int, end: int, topics: Mapping[str, str] = IDS) -> Any:
    """A generation with one partition."""
    newest = receipt(
        window="",
        partitions=[part(end - 1, end, so_far=start, expired=1)],
        generation=number,
        topics=topics,
        files_so_far=FileSet(2, 20),
    )
    return NewGeneration(IndexedGeneration.of(1, newest, "d", ()), newest, topics)


def new_window(key: str, start: int, end: int, replaced: Mapping[str, Any] | None = None) -> Any:
    """A window with one partition, and a file."""
    sealed = receipt(key, [part(start, end)], files=1)
    return NewWindow(IndexedWindow.of(sealed, WindowKind.COMPACTION, "p", 10), sealed, replaced)


GONE = {"files": 3, "bytes": 20, "records": [{"topic": "t", "partition": 0, "records": 3}]}


def test_plus_sums() -> None:
    """Sums are those of the generations, with what windows hold in place of what they replaced."""
    found = Index().plus(
        [new_generation(1, 5, 10), new_generation(2, 10, 20)],
        [new_window("b", 5, 10, GONE), new_window("a", 2, 4)],
    )

    assert found.partitions == (
        IndexedPartition("t", "id", 0, 2, 20, 4 + 9 + 5 - 3 + 2, {"expired": 2}, ((2, 4), (5, 20))),
    )
    assert (found.files, found.file_bytes) == (2 + 2 + 1 + 1 - 3, 20 + 20 + 1 + 1 - 20)
    assert [each.window for each in found.windows] == ["a", "b"]
    assert (found.last, found.receipts) == (2, 2)
    assert found.drained == {(P0, "id"): OffsetRange(2, 20)}


def test_plus_before_generations() -> None:
    """Of what windows cover before the first generation, no generation has drained anything."""
    found = Index().plus((), [new_window("a", 2, 4), new_window("b", 4, 6)])

    assert found.partitions == (IndexedPartition("t", "id", 0, 2, None, 4, {}, ((2, 6),)),)
    assert (found.drained, found.last) == ({}, 0)
    assert found.covered == {(P0, "id"): [OffsetRange(2, 6)]}
    assert found.is_continued_by(IDS, {P0: 6})
    assert not found.is_continued_by(IDS, {P0: 5})
    later = found.plus([new_generation(1, 8, 10)], [new_window("c", 6, 8)])
    assert later.partitions[0].covered == ((2, 10),)
    assert later.drained == {(P0, "id"): OffsetRange(2, 10)}


def test_plus_nothing_drained() -> None:
    """A later generation may not start before one that has drained nothing."""
    found = Index().plus([new_generation(1, 9, 10)])
    found = replace(found, partitions=(replace(found.partitions[0], covered=()),))

    assert found.is_continued_by(IDS, {P0: 10})
    assert not found.is_continued_by(IDS, {P0: 9})
    empty = replace(found, partitions=(replace(found.partitions[0], start=0, end=None),))
    assert empty.is_continued_by(IDS, {P0: 0})


def test_plus_deleted() -> None:
    """What retention has deleted is a gap, but not once more where files hold the rest."""
    deletions = [receipt("d", [part(5, 9, deleted=4)]), receipt("e", [part(9, 10, deleted=1)])]
    others = [receipt("f", [part(5, 6)]), receipt("g", [part(5, 9, deleted=4)], files=1)]
    windows = [
        NewWindow(IndexedWindow.of(each, WindowKind.RETENTION, "p", 10), each, None)
        for each in (*deletions, *others)
    ]

    found = Index().plus([new_generation(1, 5, 10)], windows)

    assert found.partitions[0].gaps == {"deleted": 5, "expired": 1}


def test_plus_topic_without_id() -> None:
    """The id of a topic that receipts of the first release don't name is empty."""
    sealed = replace(new_window("a", 5, 10).receipt, topics={})
    without = new_generation(1, 5, 10, {})
    window = NewWindow(IndexedWindow.of(sealed, WindowKind.COMPACTION, "p", 10), sealed, GONE)

    found = Index().plus([without], [window])

    assert found.partitions == (IndexedPartition("t", "", 0, 5, 10, 6, {"expired": 1}, ((5, 10),)),)
    assert is_skippable(sealed, WindowKind.BACKFILL, None, bounds_of(found.drained, ()))


def test_window_row() -> None:
    """A window's row says what its receipt says, and how many files of whom it replaces."""
    contents = (SealedContent.of(P0, 3, 8, 6, first_timestamp=11, last_timestamp=19),)
    sealed = replace(
        receipt(
            "w",
            [part(3, 9)],
            # Once named twice, which counts once.
            replaces=("generations/0002/b", "generations/0001/a", "windows/x/c", "windows/x/c"),
        ),
        files=(SealedFile("a", 7, "", contents), SealedFile("b", 8, "", contents)),
    )

    assert IndexedWindow.of(sealed, WindowKind.REPROCESS, "digest", 123) == IndexedWindow(
        window="w",
        kind="reprocess",
        receipt="s",
        plan="digest",
        size=123,
        sealed_at="2026-01-01T00:00:00.000+00:00",
        offsets=6,
        records=6,
        files=2,
        bytes=15,
        first_timestamp=11,
        last_timestamp=19,
        replaces={"generations/0001": 1, "generations/0002": 1, "windows/x": 1},
        held={"t": "0:3-9"},
    )


def test_plus_topics() -> None:
    """A topic that was made again is another, of which the first generation is kept."""
    other = {"t": "other"}
    found = Index().plus([new_generation(1, 0, 5), new_generation(2, 0, 9, other)])
    found = found.plus([new_generation(3, 9, 10, other)])

    assert found.topics == (IndexedTopic("t", "id", 1), IndexedTopic("t", "other", 2))
    assert found.ids == {"t": ("other",)}
    assert [(each.topic_id, each.end) for each in found.partitions] == [("id", 5), ("other", 10)]


def test_plus_opened_ids() -> None:
    """A topic that was made again and not drained since may have either id."""
    new = replace(new_generation(1, 0, 5), topics={"t": "other", "u": "id"})

    assert Index().plus([new]).ids == {"t": ("id", "other")}


@given(st.lists(st.booleans(), min_size=6, max_size=6))
def test_plus_in_steps(splits: list[bool]) -> None:
    """It is the same bytes each time, whenever and in however many steps it was made."""
    generations = [new_generation(number, 10 * number, 10 * number + 10) for number in range(1, 6)]
    windows = [new_window(f"w{number}", 10 * number, 10 * number + 3) for number in range(1, 6)]
    index, waiting = Index(), list[int]()
    for number, is_step in enumerate([*splits[:4], True]):
        waiting.append(number)
        if is_step:
            index = index.plus([generations[n] for n in waiting])
            index = index.plus((), [windows[n] for n in reversed(waiting)])
            waiting = []

    assert index.to_bytes() == Index().plus(generations, windows).to_bytes()


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (INDEX, ""),
        # Older or newer, or of another state.
        (Index(), ""),
        (replace(INDEX, windows=INDEX.windows[:1], files=3), ""),
        (replace(INDEX, generations=(replace(INDEX.generations[0], sha256="x", files=7),)), ""),
        (replace(INDEX, windows=(replace(INDEX.windows[0], receipt="x", files=7),)), ""),
        (replace(INDEX, windows=(replace(INDEX.windows[0], plan="x", files=7),)), ""),
        # A journal that was started anew has forgotten a receipt, or accepted a document.
        (replace(INDEX, generations=(replace(INDEX.generations[0], receipts=2, files=7),)), ""),
        (replace(INDEX, generations=(replace(INDEX.generations[0], document="x", files=7),)), ""),
        # The same receipts.
        (
            replace(INDEX, generations=(replace(INDEX.generations[0], last_timestamp=19),)),
            "generations/0001",
        ),
        (replace(INDEX, windows=(replace(INDEX.windows[1], replaces={}),)), "windows/b"),
        (replace(INDEX, files=5), "their sums"),
        (replace(INDEX, partitions=(replace(PARTITION, end=101),)), "their sums"),
    ],
)
def test_index_contradicts(other: Index, name: str) -> None:
    """Only what it says of the same receipts can be wrong."""
    assert INDEX.contradicts(other) == other.contradicts(INDEX) == name


def test_index_gone() -> None:
    """Only windows that supersede intact files make them go."""
    index = Index((generation(1),), (window("a", {"generations/0001": 2}),))

    assert index.is_gone(generation(1))
    assert not index.is_gone(generation(2))
    assert not index.is_gone(window("a"))
    repaired = replace(index.windows[0], kind="repair")
    assert not replace(index, windows=(repaired,)).is_gone(generation(1))
    assert not index.is_gone(generation(1, files=3))
    assert index.is_gone(generation(3, files=0))


def test_index_bytes() -> None:
    """An index is read as it was written, and is the same bytes each time."""
    content = INDEX.to_bytes()

    assert parse_index(content) == INDEX
    assert parse_index(content).to_bytes() == content


@each_of("at", range(0, len(INDEX.to_bytes()), 37))
def test_parse_index_changed(at: int) -> None:
    """A single changed byte is found."""
    content = bytearray(INDEX.to_bytes())
    content[at] ^= 1

    with pytest.raises(IndexFileError, match="SHA-256"):
        parse_index(bytes(content))


def test_parse_index_other_version() -> None:
    """An index of another version, whose keys are others, isn't damaged."""
    with pytest.raises(OtherIndexError, match="format version 1, expected 2"):
        parse_index(seal({"format_version": 1}))


@pytest.mark.parametrize("document", [{}, {"format_version": 3}, {"format_version": 2}])
def test_parse_index_other(document: dict[str, object]) -> None:
    """Another sealed document, or one of a newer format, isn't an index."""
    with pytest.raises(IndexFileError):
        parse_index(seal(document))


@dataclass(frozen=True)
class Drawn:
    """An archive as plain values.

    Attributes:
        files: The time of each file's record, which is its offset, too, by path.
        replaces: The files that each window replaces.
        kinds: Why each window was written.
        unsettled: Windows that aren't in the index.
    """

    files: Mapping[str, int]
    replaces: Mapping[str, Sequence[str]]
    kinds: Mapping[str, WindowKind]
    unsettled: frozenset[str]

    def of(self, owner: str) -> list[str]:
        """The files of a generation or window."""
        return [path for path in self.files if owner_of(path) == owner]

    def times(self, owner: str) -> tuple[int | None, int | None]:
        """The times of its records."""
        own = [self.files[path] for path in self.of(owner)]
        return (min(own), max(own)) if own else (None, None)

    def held(self, owner: str) -> dict[str, str]:
        """The offsets of its records, as a row has them."""
        first, last = self.times(owner)
        return {} if first is None or last is None else {"t": f"0:{first}-{last + 1}"}

    @property
    def covered(self) -> tuple[tuple[int, int], ...]:
        """The offsets of all records."""
        return tuple(
            (r.start, r.end) for r in merge(OffsetRange(at, at + 1) for at in self.files.values())
        )

    def replacing(self, owners: set[str]) -> set[str]:
        """The windows that replace files of some owners, or of one another."""
        found = set[str]()
        while True:
            waiting = owners | {f"windows/{key}" for key in found}
            more = {
                key for key, paths in self.replaces.items() if waiting & {*map(owner_of, paths)}
            }
            if more <= found:
                return found
            found |= more

    def live(self, owners: set[str], times: TimeRange) -> set[str]:
        """The files with asked records that a reader gets who reads only some of the archive."""
        gone = {p for key, ps in self.replaces.items() if f"windows/{key}" in owners for p in ps}
        held = {path for path, at in self.files.items() if times.may_hold(at, at)}
        return {path for path in held - gone if owner_of(path) in owners}


KINDS = [WindowKind.COMPACTION, WindowKind.RETENTION, WindowKind.BACKFILL, WindowKind.REPAIR]


@st.composite
def archives(draw: st.DrawFn) -> Drawn:
    """Three generations, and windows of which each replaces files that were live before.

    Or, which no window does that is sealed, files that others have replaced.
    """
    files: dict[str, int] = {}
    for number in range(1, 4):
        for name in range(draw(st.integers(0, 3))):
            files[f"generations/000{number}/data/{name}"] = draw(st.integers(0, 9))
    replaces, kinds, live = dict[str, Sequence[str]](), dict[str, WindowKind](), set(files)
    for key in "abcdef"[: draw(st.integers(0, 6))]:
        there = live if draw(st.integers(0, 3)) else set(files)
        owners = sorted({owner_of(path) for path in there})
        chosen = draw(st.lists(st.sampled_from(owners), unique=True, max_size=2)) if owners else []
        own = sorted(path for path in there if owner_of(path) in chosen)
        replaces[key] = own if draw(st.booleans()) else own[: draw(st.integers(0, 3))]
        kinds[key] = draw(st.sampled_from(KINDS))
        live -= set(replaces[key])
        for name in range(draw(st.integers(0, 2))):
            files[f"windows/{key}/{name}"] = draw(st.integers(0, 9))
            live.add(f"windows/{key}/{name}")
    unsettled = draw(st.sets(st.sampled_from("abcdef")))
    sealed = [receipt(key, replaces=tuple(paths)) for key, paths in replaces.items()]
    asked = [each for each in sealed if each.window not in unsettled]
    unsettled |= replacing_twice(asked, [each for each in sealed if each not in asked])
    return Drawn(files, replaces, kinds, frozenset(unsettled))


@pytest.mark.parametrize("by", ["times", "offsets"])
@given(archives(), st.integers(0, 9), st.integers(0, 5), st.integers(0, 9))
def test_skip_same_files(by: str, made: Drawn, start: int, length: int, turn: int) -> None:
    """Whatever is asked of whatever archive, a reader gets the files that are there without it.

    And who claims offsets sees all that covers some of them, and what became of it.
    """
    times = TimeRange(start, start + length)
    offsets = {P0: [OffsetRange(start, start + length)]}
    owners = {f"generations/000{number}" for number in (1, 2, 3)}
    owners |= {f"windows/{key}" for key in made.replaces}
    index = Index(
        tuple(
            generation(
                n,
                len(made.of(f"generations/000{n}")),
                *made.times(f"generations/000{n}"),
                made.held(f"generations/000{n}"),
            )
            for n in (1, 2)
        ),
        tuple(
            window(
                key,
                Counter(map(owner_of, paths)),
                kind=made.kinds[key],
                files=len(made.of(f"windows/{key}")),
                times=made.times(f"windows/{key}"),
                held=made.held(f"windows/{key}"),
            )
            for key, paths in made.replaces.items()
            if key not in made.unsettled
        ),
        partitions=(replace(PARTITION, covered=made.covered),),
    )
    known = {row.name for row in (*index.generations, *index.windows)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOWS_IN_TURN", 1)
        asked = Query(times) if by == "times" else Query(offsets=offsets)
        found = skip(index, asked, turn, owners - known)
        claimed = skip(index, Query(offsets=offsets, claimed=True), None, owners - known)

    assert made.live(owners - names(found), times) == made.live(owners, times)
    covering = {owner_of(path) for path, at in made.files.items() if times.may_hold(at, at)}
    assert not covering & names(claimed)
    assert not {f"windows/{key}" for key in made.replacing(covering)} & names(claimed)


def names(left: Skipped) -> set[str]:
    """The folders that are left out."""
    windows = {f"windows/{key}" for key in left.windows}
    return windows | {f"generations/000{number}" for number in left.generations}
