"""Which files are live, replaced or gone: tables, and a judge that follows each record."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.archive.closed_segments import read_closed
from kafka_drain.archive.coverage import read_owned
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.fold import Fate, Fold, WindowKind, owner_of
from kafka_drain.archive.receipts import FileSet, Receipt, SealedFile, SealedPartition
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
A0, A1, B0, C0 = (f"windows/{name}" for name in ("a/0", "a/1", "b/0", "c/0"))
G0, G1, G2 = (f"generations/{name}" for name in ("0001/data/0", "0001/data/1", "0002/data/0"))


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


@dataclass(frozen=True)
class SealedWindow:
    """A sealed window as a plain value."""

    receipt: Receipt
    kind: WindowKind

    @property
    def key(self) -> str:
        return self.receipt.window

    @property
    def supersedes(self) -> bool:
        return self.kind.supersedes


def window(
    key: str,
    kind: WindowKind,
    replaces: Sequence[str] = (),
    *,
    files: int = 1,
    ranges: Iterable[OffsetRange] = (),
    topic_id: str = "id",
    sealed_at: str = "",
) -> SealedWindow:
    """A window with files windows/<key>/0 and so on."""
    parts = [
        SealedPartition.of(P0, r, len(r), None, None, None, None, {}, None, r.start, len(r), {})
        for r in ranges
    ]
    receipt = Receipt(
        pipeline="p",
        cluster_id="c",
        topics={"t": topic_id},
        generation=None,
        first_batch=0,
        last_batch=0,
        sealed_at=sealed_at,
        previous=None,
        partitions=tuple(parts),
        files=tuple(SealedFile(f"windows/{key}/{n}", 1, "", ()) for n in range(files)),
        files_so_far=FileSet(),
        window=key,
        replaces=tuple(replaces),
    )
    return SealedWindow(receipt, kind)


def repair(key: str, *replaces: str) -> SealedWindow:
    return window(key, WindowKind.REPAIR, replaces)


def fold(*windows: SealedWindow) -> Fold[SealedWindow]:
    return Fold(windows)


# tables


@pytest.mark.parametrize(
    ("kind", "supersedes", "is_maintained", "fate"),
    [
        (WindowKind.BACKFILL, False, False, Fate.REPLACED),
        (WindowKind.REPAIR, False, False, Fate.REPLACED),
        (WindowKind.REPROCESS, True, False, Fate.GONE),
        (WindowKind.COMPACTION, True, True, Fate.GONE),
        (WindowKind.RETENTION, True, True, Fate.GONE),
        (WindowKind.ERASURE, True, True, Fate.GONE),
    ],
)
def test_fate(kind: WindowKind, supersedes: bool, is_maintained: bool, fate: Fate) -> None:
    """What a window replaces is never live; it is gone if it was intact."""
    found = fold(window("a", kind, [G0]))

    assert (kind.supersedes, kind.is_maintained) == (supersedes, is_maintained)
    assert [found.fate(path) for path in (G0, G1, A0)] == [fate, Fate.LIVE, Fate.LIVE]
    assert found.gone == ({G0} if supersedes else set())


@pytest.mark.parametrize("order", [1, -1])
def test_fate_in_turn(order: int) -> None:
    """What a replaced window replaced stays so, whatever the order of the windows' names."""
    repaired = window("a", WindowKind.REPAIR, [G0])
    compacted = window("b", WindowKind.COMPACTION, [A0, G1])
    found = fold(*(repaired, compacted)[::order])

    assert {path: found.fate(path) for path in (G0, G1, A0, B0)} == {
        G0: Fate.REPLACED, G1: Fate.GONE, A0: Fate.GONE, B0: Fate.LIVE,
    }  # fmt: skip
    assert found.live([*repaired.receipt.files, *compacted.receipt.files]) == [
        *compacted.receipt.files
    ]
    assert found.gone_by_owner == {"generations/0001": 1, "windows/a": 1}


def test_without() -> None:
    """What is about to be deleted counts as gone; the fold itself stays as it is."""
    before = fold(window("a", WindowKind.REPAIR, [G0]))
    after = before.without([G0, G2])

    assert [after.fate(path) for path in (G0, G1, G2)] == [Fate.GONE, Fate.LIVE, Fate.GONE]
    assert after.only([]).gone == {G0, G2}
    assert [before.fate(path) for path in (G0, G2)] == [Fate.REPLACED, Fate.LIVE]


@pytest.mark.parametrize(
    ("files", "by", "replaces", "holds_records", "is_gone"),
    [
        (2, WindowKind.COMPACTION, [A0, A1], False, True),
        (2, WindowKind.COMPACTION, [A0], True, False),
        (2, WindowKind.REPAIR, [A0, A1], False, False),
        (2, WindowKind.REPAIR, [], True, False),
        # A deletion has no files, but says why its offsets are in none.
        (0, WindowKind.COMPACTION, [G0], False, False),
    ],
)
def test_segment(
    files: int, by: WindowKind, replaces: list[str], holds_records: bool, is_gone: bool
) -> None:
    """A segment is gone when all its files are; it holds records while one of them is live."""
    own = window("a", WindowKind.BACKFILL, files=files)
    found = fold(own, window("b", by, replaces))

    assert (found.holds_records(own.receipt), found.is_gone(own.receipt)) == (
        holds_records, is_gone,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("damaged", "vouched"),
    [
        ({}, {G0, A0, B0}),
        ({"c": [C0]}, {G0, A0}),
        # A repair of a damaged window vouches for all that this one replaced.
        ({"a": [A0]}, {G0, A0, B0}),
        ({"a": [A0], "b": [B0]}, {G0, A0, B0}),
        ({"a": [A0], "c": [C0]}, {G0, A0}),
        ({"b": [B0], "c": [C0]}, {G0}),
        ({"a": [A0], "b": [B0], "c": [C0]}, set()),
        # Another one of its files is lost.
        ({"a": [A0, A1]}, {A0, B0}),
    ],
)  # fmt: skip
def test_replaced_by_whole(damaged: dict[str, list[str]], vouched: set[str]) -> None:
    """Only windows that are whole, or repaired in turn, vouch for what they replace."""
    found = fold(
        window("a", WindowKind.REPAIR, [G0], files=2),
        window("b", WindowKind.REPAIR, [A0]),
        window("c", WindowKind.REPAIR, [B0]),
    )

    assert found.replaced_by_whole(damaged) == vouched
    assert found.replaced == {G0, A0, B0}


def test_taken() -> None:
    """Each window with some of the files is named, with these files alone."""
    found = fold(
        window("a", WindowKind.REPAIR, [G0, G1]),
        window("b", WindowKind.COMPACTION, [G2]),
        window("c", WindowKind.REPAIR),
    )

    assert found.taken([G1, G2, A0]) == {"a": {G1}, "b": {G2}}
    assert found.taken([A0]) == {}


@pytest.mark.parametrize(
    ("others", "standing"),
    [
        ([], ["a"]),
        ([repair("b", A0), repair("c", B0)], ["a", "b", "c"]),
        # The order of names doesn't matter.
        ([repair("b", C0), repair("c", A1)], ["a", "b", "c"]),
        ([repair("b", G0)], ["a"]),
        ([repair("b")], ["a"]),
        ([window("b", WindowKind.COMPACTION, [A0])], ["a"]),
        ([window("b", WindowKind.BACKFILL, [A0])], ["a"]),
        # A forced backfill has replaced this repair's file, and was killed before it removed it.
        ([repair("b", G2)], ["a", "b"]),
    ],
)  # fmt: skip
def test_with_repairs(others: list[SealedWindow], standing: list[str]) -> None:
    """A window's records are in it, in its repairs, and in the repairs of these."""
    replaces = [B0] if standing == ["a", "b"] else []
    found = fold(window("a", WindowKind.BACKFILL, replaces, files=2), *others).with_repairs({"a"})

    assert [each.key for each in found.windows] == standing


def test_held() -> None:
    """Windows hold what their receipts cover, of each topic id on its own, replaced or not."""
    found = fold(
        window("a", WindowKind.BACKFILL, ranges=[R(0, 5), R(8, 10)]),
        window("b", WindowKind.REPAIR, [A0], ranges=[R(4, 6)]),
        window("c", WindowKind.BACKFILL, ranges=[R(0, 99)], topic_id="old"),
    )

    assert found.held == {(P0, "id"): [R(0, 6), R(8, 10)], (P0, "old"): [R(0, 99)]}
    assert found.held_of({"t": "id"}) == {P0: [R(0, 6), R(8, 10)]}
    assert found.held_of({"u": "id"}) == {}
    assert found.of_topics({"t": "old"}).keys == ["c"]
    assert found.of_topics({"t": "id"}).keys == ["a", "b"]


def test_erased() -> None:
    """What any window says was erased, of each topic id on its own, stays erased."""

    def erasing(key: str, topic_id: str, **gaps: list[OffsetRange]) -> SealedWindow:
        made = window(key, WindowKind.ERASURE, ranges=[R(0, 99)], topic_id=topic_id)
        [part] = made.receipt.partitions
        reasons = {GapReason[name.upper()]: tuple(ranges) for name, ranges in gaps.items()}
        parts = (replace(part, gaps=reasons),)
        return replace(made, receipt=replace(made.receipt, partitions=parts))

    found = fold(
        erasing("a", "id", erased=[R(1, 2), R(5, 7)], control=[R(2, 3)]),
        erasing("b", "id", erased=[R(6, 9)]),
        erasing("c", "old", erased=[R(0, 1)]),
        erasing("d", "id", deleted=[R(50, 60)]),
    )

    assert found.erased == {(P0, "id"): [R(1, 2), R(5, 9)], (P0, "old"): [R(0, 1)]}
    assert found.erased_of({"t": "id"}) == {P0: [R(1, 2), R(5, 9)]}
    assert found.erased_of({"t": "new"}) == {}


@pytest.mark.parametrize(
    ("sealed", "asked", "is_held"),
    [
        ({}, {}, True),
        ({}, {"t": "id"}, False),
        ({"t": "id"}, {}, False),
        ({"t": "id"}, {"t": "id"}, True),
        ({"t": "id"}, {"t": "other"}, False),
    ],
)
def test_held_without_id(sealed: dict[str, str], asked: dict[str, str], is_held: bool) -> None:
    """A topic without an id is itself alone: on Kafka clusters without ids, all are."""
    own = window("a", WindowKind.BACKFILL, ranges=[R(0, 5)])
    found = fold(SealedWindow(replace(own.receipt, topics=sealed), own.kind))

    assert found.held == {(P0, sealed.get("t", "")): [R(0, 5)]}
    assert found.held_of(asked) == ({P0: [R(0, 5)]} if is_held else {})
    assert found.of_topics(asked).keys == ["a"] * is_held


def test_with_repairs_of_repair() -> None:
    """A repair that was repaired in turn is found with it, once."""
    found = fold(repair("a", G0), repair("b", A0)).with_repairs({"a"})

    assert [each.key for each in found.windows] == ["a", "b"]


def test_by_time() -> None:
    """Windows are sorted by name; their receipts, on demand, by the time of sealing."""
    found = fold(
        window("a", WindowKind.BACKFILL, sealed_at="2"),
        window("b", WindowKind.REPAIR, sealed_at="1"),
    )

    assert [receipt.window for receipt in found.by_time] == ["b", "a"]


@pytest.mark.parametrize(
    ("key", "is_own"),
    [
        ("1_2", True),
        ("1_2_2", True),
        ("1_2_10", True),
        ("1_23", False),
        ("1_2x", False),
        ("1", False),
        ("0_1", False),
    ],
)
def test_of_interval(key: str, is_own: bool) -> None:
    """An interval's windows are its first one, and those that count from 2 after its name."""
    found = fold(window(key, WindowKind.BACKFILL), repair("r", f"windows/{key}/0"), repair("s"))

    assert found.of_interval("1_2").keys == [key] * is_own
    assert found.standing_for("1_2").keys == [key, "r"] * is_own


def test_but() -> None:
    """The windows of a fold, and the others, are all of them."""
    found = fold(repair("a"), repair("b"), repair("c"))

    assert found.keys == ["a", "b", "c"]
    assert found.only(["c", "a", "x"]).keys == ["a", "c"]
    assert found.but(["c", "a", "x"]).keys == ["b"]


@pytest.mark.parametrize("kind", WindowKind)
@pytest.mark.parametrize("names_receipts", [False, True])
def test_drained_again(kind: WindowKind, names_receipts: bool) -> None:
    """Records are as they were where a window names the receipts that it rewrote."""
    own = window("a", kind, [G0, A0])
    receipt = replace(own.receipt, provenance={"r": "sha"} if names_receipts else {})
    found = fold(SealedWindow(receipt, kind), repair("b", G1))

    assert found.drained_again == ({G1} if names_receipts else {G0, A0, G1})


def test_live_files() -> None:
    """The oldest window's files come first; replaced ones are left out."""
    newer = window("a", WindowKind.BACKFILL, files=2, sealed_at="2")
    found = fold(newer, window("b", WindowKind.REPAIR, [A1], sealed_at="1"))

    assert list(found.live_files.items()) == [
        (B0, found.windows[1].receipt.files[0]),
        (A0, newer.receipt.files[0]),
    ]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("there", "relied"),
    [
        ([], []),
        (["g1"], ["b", "c", "d"]),
        (["g1", "g2"], ["b", "c", "d"]),
        (["windows/b/0"], ["c", "d"]),
        (["windows/c/0"], ["d"]),
        (["g3"], ["e"]),
        (["windows/c/0", "g3"], ["d", "e"]),
        # Nothing stands for these, or a repair, which supersedes nothing.
        (["windows/d/0"], []),
        (["windows/b/1", "windows/e/0", "other", "g4"], []),
    ],
)
def test_relied_on(order: int, there: list[str], relied: list[str]) -> None:
    """Where a window stands for another's files it is relied on too, however many there are."""
    windows = [
        window("b", WindowKind.COMPACTION, ["g1", "g2"], files=2),
        window("c", WindowKind.REPROCESS, ["windows/b/0"]),
        window("d", WindowKind.RETENTION, ["windows/c/0"]),
        window("e", WindowKind.COMPACTION, ["g3"]),
        repair("r", "g4"),
    ]

    assert sorted(fold(*windows[::order]).relied_on(there).keys) == relied


def test_relied_on_circle() -> None:
    """Windows that claim to stand for each other end the search."""
    found = fold(
        window("a", WindowKind.COMPACTION, [B0]),
        window("b", WindowKind.COMPACTION, [A0]),
    )

    assert found.relied_on([A0]).keys == ["a", "b"]


def test_owner_of() -> None:
    """The first two folders of a path name its segment's owner."""
    assert owner_of("generations/0001/data/topic=t/part-0") == "generations/0001"
    assert owner_of("windows/a/data/1/part-0") == "windows/a"


# a judge that follows each record

#: A record: id of its topic, partition and offset.
Record = tuple[str, TopicPartition, int]


@dataclass
class Judge:
    """Moves each record from file to file, and knows nothing else.

    Attributes:
        place: The file that holds a record; None for a deleted one.
        fates: What has become of each file.
    """

    place: dict[Record, str | None] = field(default_factory=dict)
    fates: dict[str, Fate] = field(default_factory=dict)

    def put(self, topic_id: str, tp: TopicPartition, offsets: Iterable[int], path: str) -> None:
        """Note that a new file holds some records."""
        self.fates[path] = Fate.LIVE
        self.place |= {(topic_id, tp, offset): path for offset in offsets}

    def take(self, path: str, fate: Fate) -> None:
        """Note that a file is no longer read."""
        self.fates[path] = fate
        self.place |= {record: None for record in self.place if self.place[record] == path}

    def live(self, topic_id: str, tp: TopicPartition) -> list[tuple[str, list[int]]]:
        """Return the live files of a partition with their offsets, in order."""
        held: dict[str, list[int]] = {}
        for (id_, owner, offset), path in sorted(self.place.items()):
            if path is not None and (id_, owner) == (topic_id, tp):
                held.setdefault(path, []).append(offset)
        return list(held.items())


class Story:
    """An archive on disk beside its judge, to which the same things happen."""

    def __init__(self, folder: Path) -> None:
        self.made, self.judge = MadeArchive(folder, {"t": "id-1"}), Judge()
        self.lives, self.windows = 1, 0
        self.ends = {P0: 100, P1: 100}
        self.backfilled = {P0: 100, P1: 100}
        self._start()

    @property
    def topic_id(self) -> str:
        return f"id-{self.lives}"

    def _start(self) -> None:
        self.made.archive.snapshot().generations[-1].write(
            starting_offsets=self.ends,
            file_format="parquet",
            partition_by=["topic"],
            topic_ids=self.made.topic_ids,
            reason="test",
        )

    def _key(self, kind: WindowKind) -> str:
        self.windows += 1
        return f"{kind.value}_{self.windows:04d}"

    def seal(self, *records: int) -> None:
        """A batch, with some records of each partition."""
        rows = {
            tp: dense(self.ends[tp], self.ends[tp] + number)
            for tp, number in zip((P0, P1), records, strict=True)
        }
        for file in self.made.seal(rows):
            [content] = file.sealed.contents if file.sealed else ()
            self.judge.put(self.topic_id, content.tp, rows[content.tp], file.path)
            self.ends[content.tp] += len(rows[content.tp])

    def roll(self, again: bool) -> None:
        """Drains go on in another generation, perhaps of a topic that was made again."""
        if again:
            self.lives += 1
            self.ends, self.backfilled = {P0: 100, P1: 100}, {P0: 100, P1: 100}
        self.made.open_generation(t=self.topic_id)
        self._start()

    def backfill(self, records: int) -> None:
        """A window of offsets before the first drained ones."""
        end = self.backfilled[P0]
        start = self.backfilled[P0] = max(0, end - records)
        if start < end:
            self._window(WindowKind.BACKFILL, P0, [*range(start, end)], [])

    def replace(self, kind: WindowKind, tp: TopicPartition, at: int, files: int) -> None:
        """A window replaces adjacent live files of the topic as it is now."""
        live = self.judge.live(self.topic_id, tp)
        first = at % len(live) if live else 0
        taken = live[first : first + files]
        offsets = [offset for _, own in taken for offset in own]
        # What lies between them must not be in other files.
        if taken and offsets == [*range(offsets[0], offsets[-1] + 1)]:
            self._window(kind, tp, offsets, [path for path, _ in taken])

    def _window(
        self, kind: WindowKind, tp: TopicPartition, offsets: list[int], replaces: list[str]
    ) -> None:
        deletes = kind is WindowKind.RETENTION
        rows = {} if deletes else {tp: dense(offsets[0], offsets[-1] + 1)}
        deleted = {tp: R(offsets[0], offsets[-1] + 1)} if deletes else {}
        hours = ["2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"]
        plan = {"interval": hours} if kind is WindowKind.BACKFILL else {}
        files = self.made.seal_window(
            self._key(kind),
            rows,
            replaces,
            deleted=deleted,
            kind=kind.value,
            partition_by=["topic"],
            **plan,
        )
        for path in replaces:
            self.judge.take(path, Fate.GONE if kind.supersedes else Fate.REPLACED)
        for file in files:
            self.judge.put(self.topic_id, tp, offsets, file.path)

    def end(self) -> None:
        """Drains go on in a generation of which nothing is sealed yet."""
        self.roll(again=False)


STEPS: st.SearchStrategy[Callable[[Story], None]] = st.one_of(
    st.builds(lambda *n: lambda story: story.seal(*n), st.integers(1, 4), st.integers(1, 4)),
    st.builds(lambda again: lambda story: story.roll(again), st.booleans()),
    st.builds(lambda n: lambda story: story.backfill(n), st.integers(1, 40)),
    st.builds(
        lambda *how: lambda story: story.replace(*how),
        st.sampled_from([k for k in WindowKind if k is not WindowKind.BACKFILL]),
        st.sampled_from([P0, P0, P1]),
        st.integers(0, 9),
        st.integers(1, 4),
    ),
)


def rows_of(story: Story, paths: Iterable[str]) -> Counter[tuple[int, int]]:
    """Count the rows of some files, by partition and offset, without the product's reader."""
    found: Counter[tuple[int, int]] = Counter()
    for path in paths:
        table = pq.ParquetFile(f"{story.made.root}/{path}").read(["partition", "offset"])
        found.update(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    return found


@settings(max_examples=30, deadline=None)
@given(st.lists(STEPS, max_size=14))
def test_fold_as_judged(steps: list[Callable[[Story], None]]) -> None:
    """Readers get each record once, in the files where a judge of single records has it."""
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder) / "archive")
        story.seal(3, 2)
        for step in steps:
            step(story)
        story.end()
        judge, snapshot = story.judge, story.made.archive.snapshot()

        fold = snapshot.fold
        assert {path: fold.fate(path) for path in judge.fates} == judge.fates

        files = archive_files(snapshot)
        paths = {path for path, fate in judge.fates.items() if fate is Fate.LIVE}
        assert sorted(file.path for file in files) == sorted(paths)
        for topic_id in {record[0] for record in judge.place}:
            own = [file.path for file in files if file.topic_ids["t"] == topic_id]
            records = {record: at for record, at in judge.place.items() if record[0] == topic_id}
            left = [(tp.partition, offset) for (_, tp, offset), at in records.items() if at]
            assert rows_of(story, own) == Counter(dict.fromkeys(left, 1))

            # Also of deleted records: nobody drains them again.
            owned = read_owned(snapshot, {"t": topic_id}, story.ends).ranges
            assert {
                (topic_id, tp, offset)
                for tp, ranges in owned.items()
                for r in ranges
                for offset in range(r.start, r.end)
            } == records.keys()

        going = sorted(paths)[::2]
        for deleted in ([], going):
            closed = read_closed(snapshot, snapshot.generations[:-1], deleted)
            held = {file.path for segments in closed for file in segments.files}
            assert held == paths.difference(deleted)


class Key(str):
    """A window's name that counts how often it is compared."""

    compared = 0

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Key.compared += 1
        return str.__eq__(self, other)


def test_only_some_of_many_windows() -> None:
    """Each window is looked up once among the asked names, even if these are a list."""
    keys = [Key(f"repair_{number:03}") for number in range(100)]
    fold = Fold(tuple(window(key, WindowKind.REPAIR) for key in keys))
    Key.compared = 0

    assert len(fold.only([*map(str, keys), "another"]).windows) == 100
    assert Key.compared <= 200
