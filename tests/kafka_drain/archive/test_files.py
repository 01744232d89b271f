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
from kafka_drain.archive.receipts import SealedContent, SealedFile
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.archive.window import Window
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Reason
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.golden import END, P0, add_batch, golden_rows, open_next, row, seal_repair


@pytest.mark.parametrize("is_sealed", [True, False])
def test_archive_files_wrong_size(archive: Archive, *, is_sealed: bool) -> None:
    """A file that isn't as it was listed makes no list, and what says so is named."""
    [unsealed, _] = add_batch(archive.generation(1), 14, END, 50)
    found = archive_files(archive.snapshot())
    path = next(Path(str(archive.root / file.path)) for file in found if file.sealed)
    path = path if is_sealed else unsealed
    size, says = path.stat().st_size, "its receipt" if is_sealed else "the manifest"

    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ManifestInvalidError, match=f"{size + 1:,} bytes; {says} says {size:,}"):
        archive_files(archive.snapshot())
    path.unlink()
    with pytest.raises(ManifestInvalidError, match=rf"{path.name}: doesn't exist\. That means: "):
        archive_files(archive.snapshot())


def test_archive_files_replaced_meanwhile(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that a window has replaced while the files were listed is none of them."""
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
    listed = files._list

    def meanwhile(*asked: Any) -> Any:
        found = listed(*asked)
        monkeypatch.undo()
        seal_repair(archive, "repair_1", rows, [lost.path])
        (archive.root / lost.path).unlink()
        return found

    monkeypatch.setattr(files, "_list", meanwhile)

    after = archive_files(archive.snapshot())

    assert {file.path for file in before} - {file.path for file in after} == {lost.path}
    [repaired] = [file for file in after if isinstance(file.owner, Window)]
    assert repaired.records == lost.records == len(rows)


@pytest.mark.parametrize(
    ("first", "is_refused"), [(END, True), (END + 7, True), (END + 8, False), (END + 20, False)]
)
def test_archive_files_twice(archive: Archive, first: int, *, is_refused: bool) -> None:
    """Records that a window and a file that isn't sealed both hold would be read twice."""
    [held, _] = add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 8)
    rows = [row(P0, first + at) for at in range(2)]
    sealed = next(file.path for file in archive_files(archive.snapshot()) if file.sealed)
    assert held.name not in sealed
    seal_repair(archive, "repair_1", rows, [])

    if not is_refused:
        assert archive_files(archive.snapshot())
        return
    with pytest.raises(ManifestInvalidError, match=rf"{held.name}, which .* of flights-0 \["):
        archive_files(archive.snapshot())
    # Of a file that can't be read, no reader gets anything twice; a validation reports it.
    held.write_bytes(b"x" * held.stat().st_size)
    assert archive_files(archive.snapshot())


@pytest.mark.parametrize(("listed_at_once", "is_listed"), [(1, False), (1_000, True)])
def test_find_wrong_size_in_store(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, listed_at_once: int, *, is_listed: bool
) -> None:
    """In a store, files are listed, unless asking for the few that matter takes fewer requests."""
    state = check_sealed_state(archive.snapshot())
    found = archive_files(archive.snapshot())
    some = found[1:3]
    sizes = {file.path: file.bytes for file in found} | {some[1].path: 7}
    asked: list[str] = []

    def listing(data: UPath) -> Mapping[str, int]:
        asked.append("list")
        folder = f"{some[0].owner.data_name}/"
        return {path.removeprefix(folder): size for path, size in sizes.items()}

    def size_of(_: UPath, path: str) -> int:
        asked.append(path)
        return sizes[path]

    monkeypatch.setattr(files, "LISTED_AT_ONCE", listed_at_once)
    monkeypatch.setattr(files, "is_local", lambda _: False)
    monkeypatch.setattr(files, "list_data_files", listing)
    monkeypatch.setattr(files, "size_of", size_of)

    wrong = find_wrong_size(state, some)

    assert wrong is not None
    assert (wrong.reason, wrong.where) == (Reason.FILE_SIZE, some[1].path)
    assert asked == (["list"] if is_listed else [file.path for file in some])
    assert find_wrong_size(state, some[:1]) is None
    del sizes[some[0].path]
    if is_listed:
        missing = find_wrong_size(state, some)
        assert missing is not None
        assert (missing.reason, missing.where) == (Reason.FILE_MISSING, some[0].path)


def test_own_topic_ids() -> None:
    """A file's topics are those that its receipt says it has records of; else its owner's."""
    window = Window(UPath("/archive"), "w")
    contents = (SealedContent.of(TopicPartition("t", 0), 0, 9, 10),)

    def file(sealed: SealedFile | None, path: str = "part-0") -> ArchiveFile:
        path = f"{window.data_name}/{path}"
        return ArchiveFile(path, 1, "parquet", window, {"t": "1", "u": "2"}, sealed)

    assert file(SealedFile("f", 1, "ab", contents)).own_topic_ids == {"t": "1"}
    assert file(SealedFile("f", 1, "ab", ())).own_topic_ids == {"t": "1", "u": "2"}
    assert file(None).own_topic_ids == {"t": "1", "u": "2"}
    assert (file(SealedFile("f", 1, "ab", contents)).records, file(None).records) == (10, None)
    some = [file(None, "topic=t/part-0"), file(None, "topic=t/date=2026-01-01/part-0")]
    assert columns_of(some) == ["topic", "date"]
    assert columns_of([]) == []
