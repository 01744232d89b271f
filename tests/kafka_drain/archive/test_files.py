"""The files that readers use: which they are, and when there is no list of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive import files
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, archive_files, columns_of, find_wrong_size
from kafka_drain.archive.generation import list_data_files
from kafka_drain.archive.receipts import SealedContent, SealedFile
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.archive.window import Window
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.golden import END, P0, add_batch, golden_rows, open_next, row, seal_repair


def test_archive_files_unsealed_size(archive: Archive) -> None:
    """A file that isn't sealed yet, and isn't as the manifest lists it, is refused as well."""
    [path, _] = add_batch(archive.generation(1), 14, END, 50)
    size = path.stat().st_size
    assert archive_files(archive.snapshot())

    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ManifestInvalidError, match=f"{size + 1:,} bytes; the manifest .*{size:,}"):
        archive_files(archive.snapshot())
    path.unlink()
    with pytest.raises(ManifestInvalidError, match=f"{path.name}: doesn't exist"):
        archive_files(archive.snapshot())


def test_archive_files_replaced_meanwhile(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that a window replaces while the files are listed isn't called missing."""
    before = archive_files(archive.snapshot())
    lost, content = next(
        (file, content)
        for file in before
        for content in (file.sealed.contents if file.sealed else ())
        if content.tp == P0
    )
    rows = [
        each
        for each in golden_rows()
        if each["partition"] == 0 and content.first <= each["offset"] <= content.last
    ]

    def meanwhile(*asked: Any) -> Finding | None:
        monkeypatch.undo()
        seal_repair(archive, "repair_1", rows, [lost.path])
        (archive.root / lost.path).unlink()
        return find_wrong_size(*asked)

    monkeypatch.setattr(files, "find_wrong_size", meanwhile)

    after = archive_files(archive.snapshot())

    assert {file.path for file in before} - {file.path for file in after} == {lost.path}
    [repaired] = [file for file in after if isinstance(file.owner, Window)]
    assert repaired.records == lost.records == len(rows)


@pytest.mark.parametrize(("first", "is_refused"), [(END + 7, True), (END + 8, False)])
def test_archive_files_twice(archive: Archive, first: int, *, is_refused: bool) -> None:
    """A file that isn't sealed is refused only if a window holds a record of it too."""
    [held, _] = add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 8)
    seal_repair(archive, "repair_1", [row(P0, first + at) for at in range(2)], [])

    if is_refused:
        with pytest.raises(ManifestInvalidError, match=f"{held.name}.* of flights-0 "):
            archive_files(archive.snapshot())
        # Of a file that can't be read, no reader gets anything twice; a validation reports it.
        held.write_bytes(b"x" * held.stat().st_size)
    assert archive_files(archive.snapshot())


@pytest.mark.parametrize(("listed_at_once", "is_listed"), [(1, False), (1_000, True)])
def test_find_wrong_size_in_store(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, listed_at_once: int, *, is_listed: bool
) -> None:
    """A store's files are listed, or asked for one by one if that takes fewer requests."""
    state = check_sealed_state(archive.snapshot())
    [one, other, *_] = archive_files(archive.snapshot())
    path, listings = Path(str(archive.root / other.path)), list[UPath]()

    def wrong() -> tuple[Reason, str] | None:
        found = find_wrong_size(state, [one, other])
        return (found.reason, found.where) if found else None

    def listing(data: UPath) -> Mapping[str, int]:
        listings.append(data)
        return list_data_files(data)

    monkeypatch.setattr(files, "LISTED_AT_ONCE", listed_at_once)
    monkeypatch.setattr(files, "is_local", lambda _: False)
    monkeypatch.setattr(files, "list_data_files", listing)

    assert wrong() is None
    assert bool(listings) is is_listed
    path.write_bytes(b"x")
    assert wrong() == (Reason.FILE_SIZE, other.path)
    path.unlink()
    assert wrong() == (Reason.FILE_MISSING, other.path)


def test_own_topic_ids() -> None:
    """A file's topics are those that its receipt says it has records of; else its owner's."""
    window = Window(UPath("/archive"), "w")
    contents = (SealedContent.of(TopicPartition("t", 0), 0, 9, 10),)

    def file(sealed: SealedFile | None) -> ArchiveFile:
        path = f"{window.data_name}/part-0"
        return ArchiveFile(path, 1, "parquet", window, {"t": "1", "u": "2"}, sealed)

    assert file(SealedFile("f", 1, "ab", contents)).own_topic_ids == {"t": "1"}
    assert file(SealedFile("f", 1, "ab", ())).own_topic_ids == {"t": "1", "u": "2"}
    assert file(None).own_topic_ids == {"t": "1", "u": "2"}


def test_columns_of() -> None:
    """The columns that some files' folders name, each once and in their order."""
    window = Window(UPath("/archive"), "w")
    some = [
        ArchiveFile(f"{window.data_name}/{folders}/part-0", 1, "parquet", window, {})
        for folders in ("topic=t", "topic=t/date=2026-01-01")
    ]

    assert columns_of(some) == ["topic", "date"]
    assert columns_of([]) == []
