"""Each sealed segment is told at least once, whoever sealed it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafka_drain.archive.archive import Archive
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
