"""Asset events: each sealed segment is published at least once, with what its readers need."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_drain import ArchiveError
from kafka_drain import events as module
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import Receipt, SealedPartition
from kafka_drain.events import (
    begin_publication,
    note_windows,
    sealed_summary,
    segment_events,
    unpublished_windows,
)
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.reading import archive_paths, sealed_paths
from tests.kafka_drain.golden import END, add_batch, golden_copy, seal, sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense


def names(archive: Archive, run: str | None) -> list[str]:
    """What a run would tell."""
    return [receipt.name for receipt in begin_publication(archive, run).receipts()]


def test_told_after_failed_attempt(tmp_path: Path) -> None:
    """What an attempt has sealed before it failed is told by the next one."""
    archive = golden_copy(tmp_path / "archive")

    begin_publication(archive, "first")
    sealed = [receipt.name for receipt in seal(archive).sealed]

    assert len(sealed) == 3
    assert names(archive, "first") == sealed
    assert names(archive, "second") == sealed


def test_told_once_noted(tmp_path: Path) -> None:
    """What was told isn't told by other runs, and again by the same one."""
    archive = golden_copy(tmp_path / "archive")
    publication = begin_publication(archive, "first")
    sealed = seal(archive).sealed

    publication.note(publication.receipts())

    assert names(archive, "first") == [receipt.name for receipt in sealed]
    assert names(archive, "second") == []
    assert names(archive, None) == []
    add_batch(archive.generation(1), 14, END, END + 3)
    [newer] = seal(archive).sealed
    assert names(archive, "second") == [newer.name]
    begin_publication(archive, "second").note([newer])
    assert names(archive, "second") == [newer.name]
    assert names(archive, "third") == []


def test_told_again_after_others(tmp_path: Path) -> None:
    """A run that is cleared tells its own again, also if other runs have told theirs since."""
    archive = golden_copy(tmp_path / "archive")
    first = begin_publication(archive, "first")
    own = [receipt.name for receipt in seal(archive).sealed]
    first.note(first.receipts())
    add_batch(archive.generation(1), 14, END, END + 3)
    second = begin_publication(archive, "second")
    [newer] = seal(archive).sealed
    second.note(second.receipts())

    assert names(archive, "first") == own
    again = begin_publication(archive, "first")
    again.note(again.receipts())
    assert names(archive, "first") == own
    assert names(archive, "second") == [newer.name]
    assert names(archive, "third") == []
    assert names(archive, None) == []


def test_told_again_of_closed_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleared run tells its own of closed generations too, and those sealed when it was tried.

    Runs that are too many runs ago tell nothing that others have told.
    """
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    for number, run in enumerate(["first", "second", "third"]):
        publication = begin_publication(made.archive, run)
        sealed_in(made, number)
        if run == "second":
            made.open_generation()
            sealed_in(made, 3)
        publication.note(publication.receipts())
    sealed_in(made, 4)

    again = begin_publication(made.archive, "first")
    assert places(again.receipts()) == [(1, 0), (2, 2)]
    again.note(again.receipts())
    assert places(begin_publication(made.archive, "second").receipts()) == [(1, 1), (2, 0)]
    assert places(begin_publication(made.archive, "fourth").receipts()) == []
    monkeypatch.setattr(module, "RUNS", 2)
    begin_publication(made.archive, "fourth").note([])
    assert places(begin_publication(made.archive, "second").receipts()) == []
    assert places(begin_publication(made.archive, "third").receipts()) == [(2, 1)]


def test_told_closed_generation(tmp_path: Path) -> None:
    """A generation before the newest that was told isn't listed again: its own run tells of it."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    publication = begin_publication(made.archive, "first")
    made.seal({TopicPartition("t", 0): dense(0, 3)})
    made.open_generation()
    made.seal({TopicPartition("t", 0): dense(3, 6)})
    told = list(publication.receipts())
    publication.note(told)

    [late] = [replace(r, last_batch=r.last_batch + 1) for r in told if r.generation == 1]

    assert [r.generation for r in told] == [1, 2]
    assert list(begin_publication(made.archive, "second").receipts()) == []
    assert list(begin_publication(made.archive, "second").receipts([late])) == [late]


def test_told_of_old_archive(tmp_path: Path) -> None:
    """In an archive without a note, what was sealed before counts as told."""
    archive = sealed_copy(tmp_path / "archive")

    assert names(archive, "first") == []
    begin_publication(archive, "first").note([])
    add_batch(archive.generation(1), 14, END, END + 3)
    [newer] = seal(archive).sealed
    assert names(archive, "second") == [newer.name]


def test_told_windows(tmp_path: Path) -> None:
    """A window is told until another run has told it; one that was sealed anew is told again."""
    archive = golden_copy(tmp_path / "archive")
    [*_, receipt] = seal(archive).sealed
    window = replace(receipt, generation=None, window="20260110T000000Z", sha256="a")

    assert unpublished_windows(archive, [window], "first") == [window]
    note_windows(archive, [window], "first")

    assert unpublished_windows(archive, [window], "first") == [window]
    assert unpublished_windows(archive, [window], "second") == []
    anew = replace(window, sha256="b")
    assert [found.sha256 for found in unpublished_windows(archive, [anew], "second")] == ["b"]


T0 = TopicPartition("t", 0)


def sealed_in(made: MadeArchive, *batches: int) -> None:
    """Seal a batch of three offsets for each number."""
    for number in batches:
        made.seal({T0: dense(3 * number, 3 * number + 3)})


def places(receipts: Iterable[Receipt]) -> list[tuple[int | None, int]]:
    """Return the generation and last batch of receipts."""
    return [(receipt.generation, receipt.last_batch) for receipt in receipts]


def test_told_newest_generation(tmp_path: Path) -> None:
    """Of the newest generation that was told, what another run has sealed since is told too."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    begin_publication(made.archive, None)
    sealed_in(made, 0, 1)
    made.open_generation()
    sealed_in(made, 2)
    first = begin_publication(made.archive, "first")
    first.note(first.receipts())
    sealed_in(made, 3, 4)

    assert places(begin_publication(made.archive, "second").receipts()) == [(2, 1), (2, 2)]
    made.open_generation()
    sealed_in(made, 5)
    assert places(begin_publication(made.archive, "second").receipts()) == [(2, 1), (2, 2), (3, 0)]


def test_told_tenth_generation(tmp_path: Path) -> None:
    """Generations are compared as numbers: the tenth comes after the ninth."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    begin_publication(made.archive, None)
    for number in range(10):
        sealed_in(made, number)
        made.open_generation()
    publication = begin_publication(made.archive, "first")
    publication.note(publication.receipts())
    # Of the ninth, which is closed, only its own run tells.
    [ninth] = made.archive.generation(9).receipts()
    late = replace(ninth, last_batch=1)

    second = begin_publication(made.archive, "second")

    assert list(second.receipts()) == []
    assert places(second.receipts([late])) == [(9, 1)]


def test_told_of_own_generation_only(tmp_path: Path) -> None:
    """What a run has sealed is told once, in the place of its generation; the older ones first."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    begin_publication(made.archive, None)
    for number in range(3):
        sealed_in(made, number)
        made.open_generation()
    publication = begin_publication(made.archive, "first")
    told = list(publication.receipts())
    publication.note(told)
    late = [replace(receipt, last_batch=1) for receipt in reversed(told[:2])]

    second = begin_publication(made.archive, "second")

    assert places(second.receipts([*late, *told])) == [(1, 1), (2, 1)]


def test_told_note_keeps_others(tmp_path: Path) -> None:
    """Noting what was told of one generation forgets nothing of the others."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    publication = begin_publication(made.archive, None)
    sealed_in(made, 0)
    publication.note(publication.receipts())
    made.open_generation()
    sealed_in(made, 1)
    second = begin_publication(made.archive, "second")
    second.note(second.receipts())

    third = begin_publication(made.archive, "third")

    assert sorted(third.before) == ["1", "2"]
    third.note([])
    assert sorted(begin_publication(made.archive, "fourth").before) == ["1", "2"]


def test_told_again_by_its_retry(tmp_path: Path) -> None:
    """A run that is cleared tells the same again, however often, and what was sealed since."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    begin_publication(made.archive, None)
    sealed_in(made, 0)

    for last in (0, 1, 2):
        publication = begin_publication(made.archive, "first")
        told = list(publication.receipts())
        publication.note(told)
        assert places(told) == [(1, batch) for batch in range(last + 1)]
        sealed_in(made, last + 1)


def test_told_without_run(tmp_path: Path) -> None:
    """What isn't a run, such as a command, is never a retry of another one."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    begin_publication(made.archive, None)
    sealed_in(made, 0)
    publication = begin_publication(made.archive, None)
    publication.note(publication.receipts())

    assert list(begin_publication(made.archive, None).receipts()) == []
    [receipt] = made.archive.generation(1).receipts()
    window = replace(receipt, generation=None, window="w")
    note_windows(made.archive, [window], None)
    assert unpublished_windows(made.archive, [window], None) == []
    other = replace(window, window="v")
    assert unpublished_windows(made.archive, [window, other], "run") == [other]


@pytest.mark.parametrize("content", ["{", '{"run": 1}'])
def test_told_note_damaged(content: str, tmp_path: Path) -> None:
    """If it isn't known what was told, all is told again: twice is better than never."""
    archive = sealed_copy(tmp_path / "archive")
    begin_publication(archive, "first").note([])
    (archive.root / "told" / "generations.json").write_text(content)

    assert names(archive, "second") == archive.generation(1).receipt_names()


def test_told_beside_damage(tmp_path: Path) -> None:
    """A damaged receipt, which validation reports, doesn't keep the others from being told."""
    archive = golden_copy(tmp_path / "archive")
    begin_publication(archive, "first")
    seal(archive)
    first, damaged, last = archive.generation(1).receipt_names()
    path = archive.root / "generations/0001/receipts" / damaged
    path.write_bytes(path.read_bytes()[:-9])

    assert names(archive, "first") == [first, last]


def part_of(receipt: Receipt, tp: TopicPartition, found: OffsetRange) -> SealedPartition:
    """Return a receipt's first partition as another one, with other offsets."""
    part = receipt.partitions[0]
    where = {"topic": tp.topic, "partition": tp.partition}
    return replace(part, **where, start=found.start, end=found.end)


def test_segment_events(tmp_path: Path) -> None:
    """Each segment is told once, when it is sealed, with what its receipt says."""
    archive = golden_copy(tmp_path / "archive")

    events = segment_events(seal(archive).sealed)

    receipts = list(archive.generation(1).receipts())
    assert [event["sha256"] for event in events] == [receipt.sha256 for receipt in receipts]
    assert [(archive.root / event["receipt"]).is_file() for event in events] == [True] * 3
    assert sum(event["files"] for event in events) == receipts[-1].files_so_far.files
    assert sum(event["records"] for event in events) == sum(r.records for r in receipts)
    covered = [event["offsets"]["flights-0"][0] for event in events]
    assert [start for start, _ in covered] == [0, *(end for _, end in covered[:-1])]
    assert covered[-1][1] == END
    assert segment_events(seal(archive).sealed) == []


@pytest.mark.parametrize(("partitions", "own"), [(3, module.SEGMENTS), (2_000, 50)])
def test_segment_events_bounded(tmp_path: Path, partitions: int, own: int) -> None:
    """However much was sealed, an event stays small, and has all; of partitions those with news."""
    archive = golden_copy(tmp_path / "archive")
    [*_, receipt] = seal(archive).sealed
    older = 5
    tps = [TopicPartition("t", n) for n in range(partitions)]

    def batch(number: int) -> Receipt:
        start = 5 + 4 * number
        news, none = OffsetRange(start, start + 4), OffsetRange(start, start)
        parts = [part_of(receipt, tp, news) for tp in tps]
        quiet = part_of(receipt, TopicPartition("quiet", 0), none)
        return replace(receipt, first_batch=number, last_batch=number, partitions=(quiet, *parts))

    events = segment_events(map(batch, range(older + own)))

    assert len(events) == own + 1
    oldest, following, *_, newest = events
    assert [event["receipts"] for event in events] == [older, *[1] * own]
    assert (oldest["first_batch"], oldest["last_batch"]) == (0, older - 1)
    assert oldest["receipt"].endswith(f"/{older - 1:012d}.json")
    assert oldest["offsets"]["t-0"] == [[5, 5 + 4 * older]]
    assert following["offsets"]["t-0"] == [[5 + 4 * older, 9 + 4 * older]]
    last = 4 * (older + own)
    assert newest["offsets"]["t-2"] == [[1 + last, 5 + last]]
    assert [event["partitions"] for event in events] == [partitions] * len(events)
    assert "quiet-0" not in oldest["offsets"]
    files = sum(event["files"] for event in events)
    assert files == (older + own) * len(receipt.files)


def test_segment_events_bounded_by_ranges(tmp_path: Path) -> None:
    """If newer segments have very many partitions, fewer of them stand by themselves."""
    [*_, receipt] = seal(golden_copy(tmp_path / "archive")).sealed
    one = OffsetRange(5, 9)
    wide = tuple(part_of(receipt, TopicPartition("t", n), one) for n in range(module.RANGES // 3))
    numbered = [replace(receipt, first_batch=n, last_batch=n) for n in range(9)]
    sealed = numbered[:5] + [replace(each, partitions=wide) for each in numbered[5:]]

    oldest, *others = segment_events(sealed)

    assert oldest["receipts"] + len(others) == 9
    assert sum(event["partitions"] for event in others) <= module.RANGES


def test_segment_events_bounded_generations(tmp_path: Path) -> None:
    """What is put together is of one generation, and windows stay by themselves."""
    archive = golden_copy(tmp_path / "archive")
    [*_, receipt] = seal(archive).sealed
    of = [1] * 3 + [2] * 2 + [None] + [3] * module.SEGMENTS

    events = segment_events(
        replace(receipt, generation=number, window="" if number else "20260110T000000Z")
        for number in of
    )

    assert [event["generation"] for event in events] == [1, 2, None] + [3] * module.SEGMENTS
    assert [event["receipts"] for event in events[:4]] == [3, 2, 1, 1]


def test_segment_events_window(tmp_path: Path) -> None:
    """A window has as many ranges of a partition as were missing between what was archived."""
    archive = golden_copy(tmp_path / "archive")
    [*_, receipt] = seal(archive).sealed
    parts = tuple(
        part_of(receipt, TopicPartition("t", n), OffsetRange(start, start + 2))
        for n, start in [(0, 3), (0, 9), (1, 5)]
    )

    [event] = segment_events(
        [replace(receipt, generation=None, window="20260110T000000Z", partitions=parts)]
    )

    assert (event["generation"], event["window"]) == (None, "20260110T000000Z")
    assert event["offsets"] == {"t-0": [[3, 5], [9, 11]], "t-1": [[5, 7]]}
    assert event["partitions"] == 2


def test_sealed_summary(tmp_path: Path) -> None:
    """Counts, offsets by topic and files are those of the receipts."""
    archive = golden_copy(tmp_path / "archive")

    told = sealed_summary(str(archive.root), seal(archive).sealed)

    receipts = list(archive.generation(1).receipts())
    assert told["segments"] == len(receipts) == 3
    assert told["records"] == sum(receipt.records for receipt in receipts)
    assert told["topics"] == {
        "flights": {"partitions": 2, "offsets": 2 * END, "records": told["records"]}
    }
    assert (told["offsets"], told["topics_left_out"]) == (2 * END, 0)
    assert told["files"] == len(told["paths"]) == receipts[-1].files_so_far.files
    assert told["bytes"] == receipts[-1].files_so_far.bytes
    assert told["receipts"] == [
        {"first": receipts[0].where, "last": receipts[-1].where, "receipts": 3}
    ]
    assert sorted(sealed_paths(told)) == sorted(archive_paths(archive))


def test_sealed_summary_of_nothing(tmp_path: Path) -> None:
    """A run that sealed nothing says so: the tasks after it find no file."""
    told = sealed_summary(str(tmp_path), [])

    assert (told["segments"], told["files"], told["topics"], told["receipts"]) == (0, 0, {}, [])
    assert sealed_paths(told) == []


def test_sealed_summary_bounded(tmp_path: Path) -> None:
    """However much was sealed, the summary stays small; what it leaves out, it counts."""
    [*_, receipt] = seal(golden_copy(tmp_path / "archive")).sealed
    [part, *_] = receipt.partitions
    parts = tuple(
        replace(part, topic=f"t{149 - number % 150:03d}", partition=number)
        for number in range(10_000)
    )
    files = tuple(replace(receipt.files[0], path=f"{number:0200d}") for number in range(10_000))
    many = [
        replace(receipt, first_batch=number, last_batch=number, partitions=parts, files=files)
        for number in range(3)
    ]

    told = sealed_summary("/archive", many)

    assert [*told["topics"]] == [f"t{number:03d}" for number in range(module.TOPICS)]
    assert told["topics_left_out"] == 50
    assert (len(told["paths"]), told["files"]) == (module.FILES, 30_000)
    assert told["offsets"] == 3 * 10_000 * len(part.range)
    assert sum(topic["partitions"] for topic in told["topics"].values()) < 10_000
    assert len(json.dumps(told)) < 40_000


def some(told: dict[str, object]) -> dict[str, object]:
    """Return a summary that names fewer files than there are."""
    paths = told["paths"]
    assert isinstance(paths, list)
    return told | {"paths": paths[:1]}


def test_sealed_paths_by_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the summary doesn't name all files, its receipts do, of generations and of windows."""
    archive = golden_copy(tmp_path / "archive")
    sealed = list(seal(archive).sealed)

    def of(*receipts: Receipt) -> list[str]:
        return sealed_paths(some(sealed_summary(str(archive.root), receipts)))

    assert sorted(of(*sealed)) == sorted(archive_paths(archive))
    last = [f"{archive.root}/{file.path}" for file in sealed[-1].files]
    assert of(sealed[-1]) == last
    window = replace(sealed[-1], generation=None, window="w")
    (archive.root / "windows" / "w").mkdir(parents=True)
    (archive.root / window.where).write_bytes(window.to_bytes())
    assert of(*sealed[:1], window)[-len(last) :] == last


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_sealed_paths_damaged(tmp_path: Path, damage: str) -> None:
    """No file is left out silently: a receipt that is missing or damaged is an error."""
    archive = golden_copy(tmp_path / "archive")
    told = some(sealed_summary(str(archive.root), seal(archive).sealed))
    [_, receipt, _] = archive.generation(1).receipts()
    path = archive.root / receipt.where
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))

    with pytest.raises(ArchiveError, match="2 receipts" if damage == "missing" else "is damaged"):
        sealed_paths(told)


@pytest.mark.parametrize("left", ["{}.torn-20260101T000000.000000Z", "{}.changed-2026Z"])
def test_sealed_paths_set_aside(tmp_path: Path, left: str) -> None:
    """What a repair has moved aside is no receipt."""
    archive = golden_copy(tmp_path / "archive")
    sealed = list(seal(archive).sealed)
    path = archive.root / sealed[0].where
    path.with_name(left.format(path.name)).write_bytes(b"{")

    told = some(sealed_summary(str(archive.root), sealed))

    assert sorted(sealed_paths(told)) == sorted(archive_paths(archive))
