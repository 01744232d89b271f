"""Each sealed segment is told at least once, whoever sealed it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import Receipt
from kafka_drain.events.published import begin_publication, note_windows, unpublished_windows
from kafka_drain.offsets import TopicPartition
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
