"""The journal on disk: noted once, by however many runs, whichever moment one is killed in."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.copies import read_copy
from kafka_drain.archive.journal import files
from kafka_drain.archive.journal.entries import REMOVED, WHOLE_EVERY, Noted, Tip, next_whole
from kafka_drain.archive.journal.files import note_sealed, read_journal, start_journal_anew
from kafka_drain.errors import LockedError, ManifestInvalidError
from kafka_drain.storage.json_files import create_text, write_document
from kafka_drain.storage.paths import locate, read_bytes
from tests.forks import run_forked
from tests.integration.killed_steps import kill_at_change


def window(number: int) -> Noted:
    """What is noted of a window."""
    return Noted(documents={f"windows/{number}/receipt.json": f"{number:064d}"})


def root_of(path: Path) -> UPath:
    """Name an archive's folder."""
    return locate(str(path))


def test_note_sealed(tmp_path: Path) -> None:
    """What is noted is read back; noted again, it makes no entry."""
    root = root_of(tmp_path)
    assert read_journal(root).newest == 0

    for number in (1, 2, 2, 1):
        note_sealed(root, window(number))
    note_sealed(root, Noted({"generations/0001": Tip("3.json", 4, "a")}))
    note_sealed(root, Noted({"generations/0001": Tip("2.json", 3, "b")}))

    journal = read_journal(root)
    assert (journal.newest, journal.problems) == (3, ())
    assert journal.noted.documents.keys() == {"windows/1/receipt.json", "windows/2/receipt.json"}
    assert journal.noted.tips == {"generations/0001": Tip("3.json", 4, "a")}


def test_note_sealed_known(tmp_path: Path) -> None:
    """A journal that was read before is read again only if there is something to write."""
    root = root_of(tmp_path)
    note_sealed(root, window(1))
    known = read_journal(root)
    shutil.move(tmp_path / "journal", tmp_path / "elsewhere")

    note_sealed(root, window(1), known)

    with pytest.raises(ManifestInvalidError):
        note_sealed(root, window(2), known)
    shutil.move(tmp_path / "elsewhere", tmp_path / "journal")
    note_sealed(root, window(2), known)
    assert read_journal(root).newest == 2


def test_note_sealed_known_without_head(tmp_path: Path) -> None:
    """Of a run that was killed before it wrote the head, the next one writes it."""
    root = root_of(tmp_path)
    note_sealed(root, window(1))
    (tmp_path / "journal.json").unlink()
    known = read_journal(root)
    assert known.head is None

    note_sealed(root, window(1), known)

    assert read_journal(root).head is not None


def test_journal_stays_small(tmp_path: Path) -> None:
    """However much was sealed, a reader needs a few entries, and few are kept."""
    root = root_of(tmp_path)
    for number in range(5 * WHOLE_EVERY):
        note_sealed(root, window(number))
        assert len(list((tmp_path / "journal").iterdir())) <= 2 * WHOLE_EVERY

    journal = read_journal(root)
    assert len(journal.noted.documents) == 5 * WHOLE_EVERY
    assert journal.problems == ()


def test_note_sealed_at_once(tmp_path: Path) -> None:
    """Runs that note something in the same moment lose nothing of each other, and number it."""
    root = root_of(tmp_path)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: note_sealed(root, window(number)), range(40)))

    journal = read_journal(root)
    assert journal.problems == ()
    assert (journal.newest, len(journal.noted.documents)) == (40, 40)


def note_until(folder: str, number: int, change: int) -> None:
    """Note a window, until the nth change of the folder."""
    kill_at_change(folder, change)
    note_sealed(root_of(Path(folder)), window(number))


@pytest.mark.parametrize("entries", [0, 1, 15, 16])
def test_note_sealed_killed(entries: int, tmp_path: Path) -> None:
    """Killed before any change of the file system, the journal is sound, and the next run notes.

    Whatever the journal names has a copy to restore it from, even then.
    """
    before = tmp_path / "before"
    named = f"windows/{entries}/receipt.json"
    (before / named).parent.mkdir(parents=True)
    (before / named).write_text("sealed")
    for number in range(entries):
        note_sealed(root_of(before), window(number))
    change, code = 0, -9
    while code:
        change += 1
        copy = tmp_path / str(change)
        shutil.copytree(before, copy)
        code = run_forked(note_until, str(copy), entries, change)

        journal = read_journal(root_of(copy))
        assert journal.problems == ()
        if named in journal.noted.documents:
            assert read_copy(root_of(copy), named) == b"sealed"
        note_sealed(root_of(copy), window(entries))
        journal = read_journal(root_of(copy))
        assert journal.problems == ()
        assert (journal.newest, len(journal.noted.documents)) == (entries + 1, entries + 1)
    assert change > 5


def test_note_sealed_head_overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is overtaken between its entry and journal.json doesn't set that back."""
    root = root_of(tmp_path)
    overtaken: list[int] = []

    def overtake(path: UPath, document: dict[str, Any]) -> None:
        if document["entries"] == 3 and not overtaken:
            overtaken.append(3)
            note_sealed(root, window(4))
        write_document(path, document)

    monkeypatch.setattr("kafka_drain.archive.documents.write_document", overtake)
    for number in range(3):
        note_sealed(root, window(number))

    journal = read_journal(root)
    assert overtaken
    assert (journal.newest, journal.problems) == (4, ())
    assert journal.head is not None
    assert journal.head.entries == 4


def test_note_sealed_damaged(tmp_path: Path) -> None:
    """Nothing is noted in a journal that isn't whole, until it is begun anew."""
    root = root_of(tmp_path)
    for number in range(5):
        note_sealed(root, window(number))
    (tmp_path / "journal" / "000000000003.json").unlink()

    with pytest.raises(ManifestInvalidError, match=r"000000000003.json is missing, but"):
        note_sealed(root, window(5))

    assert start_journal_anew(root, window(9), known=40) == 49
    note_sealed(root, window(10))
    journal = read_journal(root)
    assert (journal.newest, journal.problems) == (50, ())
    assert journal.noted == window(9).plus(window(10))


@pytest.mark.parametrize("lost", ["journal", "journal.json"])
@pytest.mark.parametrize("known", [0, 4, 40])
def test_start_journal_anew_ends_later(lost: str, known: int, tmp_path: Path) -> None:
    """A journal begun anew ends after entries, head and receipts: none of them looks later."""
    root, entries = root_of(tmp_path), WHOLE_EVERY + 3
    for number in range(entries):
        note_sealed(root, window(number))
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert read_journal(root).problems or lost == "journal.json"

    number = start_journal_anew(root, window(99), known)

    assert number == next_whole(max(entries, known)) > max(entries, known)
    journal = read_journal(root)
    assert (journal.newest, journal.problems, journal.noted) == (number, (), window(99))


def test_note_sealed_removed(tmp_path: Path) -> None:
    """What is removed deliberately has no copy any more, from which a repair would restore it."""
    root = root_of(tmp_path)
    [where, kept] = [next(iter(window(number).documents)) for number in (1, 2)]
    for name in (where, kept):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("sealed")
    note_sealed(root, window(1).plus(window(2)))
    assert read_copy(root, where) == b"sealed"

    for _ in range(2):
        # Of the other one there never was a copy.
        note_sealed(root, Noted(documents=dict.fromkeys((where, "windows/9/plan.json"), REMOVED)))

    assert read_copy(root, where) is None
    assert read_copy(root, kept) == b"sealed"
    journal = read_journal(root)
    assert (journal.newest, journal.noted.documents[where]) == (2, REMOVED)


def test_note_sealed_copies(tmp_path: Path) -> None:
    """What a repair restores has a copy: each receipt, and documents as they are by now."""
    root, folder = root_of(tmp_path), "generations/0001"
    (tmp_path / folder / "receipts").mkdir(parents=True)
    growing = ("archive.json", f"{folder}/generation.json")

    def note(number: int, *documents: str) -> None:
        for path in (*growing, receipt_of(number)):
            (tmp_path / path).write_text(f"with receipt {number}")
        tips = {folder: Tip(f"{number}.json", number, f"{number:064d}")}
        note_sealed(root, Noted(tips, dict.fromkeys(documents, "a" * 64)))

    def receipt_of(number: int) -> str:
        return f"{folder}/receipts/{number}.json"

    note(1)
    assert [read_copy(root, path) for path in (*growing, receipt_of(1))] == [
        None, None, b"with receipt 1"
    ]  # fmt: skip
    for number, documents in ((2, growing), (3, ())):
        note(number, *documents)
        for path in (*growing, receipt_of(number)):
            assert read_copy(root, path) == b"with receipt %d" % number


@pytest.mark.parametrize("taken", [0, 2, 3])
def test_journal_busy(taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds the next number taken tries again, but not forever."""
    root, tries = root_of(tmp_path), 3
    note_sealed(root, window(1))
    monkeypatch.setattr(files, "TRIES", tries)
    calls: list[UPath] = []

    def create(path: UPath, text: str) -> bool:
        calls.append(path)
        return len(calls) > taken and create_text(path, text)

    monkeypatch.setattr(files, "create_text", create)
    for number, write in ((2, note_sealed), (3, partial(start_journal_anew, known=0))):
        calls.clear()
        if taken < tries:
            write(root, window(number))
            assert number == 3 or read_journal(root).noted == window(1).plus(window(2))
            assert len(calls) == taken + 1
        else:
            with pytest.raises(LockedError, match="grew during every attempt to write to it"):
                write(root, window(number))
            assert (len(calls), read_journal(root).newest) == (tries, 1)
    before = len(calls)
    note_sealed(root, window(3 if taken < tries else 1))
    assert len(calls) == before


@pytest.mark.parametrize("gone", [2, 3])
def test_read_journal_busy(gone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that is cleared between listing and reading isn't lost: all is read again."""
    root, tries = root_of(tmp_path), 3
    note_sealed(root, window(1))
    monkeypatch.setattr(files, "TRIES", tries)
    calls: list[UPath] = []

    def read(path: UPath) -> bytes:
        calls.append(path)
        if len(calls) <= gone:
            raise FileNotFoundError(path)
        return read_bytes(path)

    monkeypatch.setattr(files, "read_bytes", read)
    if gone < tries:
        assert (read_journal(root).noted, read_journal(root).problems) == (window(1), ())
    else:
        with pytest.raises(LockedError, match="changed during every read"):
            read_journal(root)


def test_note_sealed_on_s3(bucket: str) -> None:
    """A store has no links and no rename: an entry is written where there is none of its number."""
    root = locate(f"{bucket}/archive")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: note_sealed(root, window(number)), range(8)))

    journal = read_journal(root)
    assert journal.problems == ()
    assert (journal.newest, len(journal.noted.documents)) == (8, 8)
    (root / "journal" / f"{8:012d}.json").unlink()
    assert [where for where, _ in read_journal(root).problems] == ["journal"]


def test_note_sealed_clears_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work for an entry doesn't grow with the number of generations."""
    root, asked = root_of(tmp_path), list[list[str]]()
    monkeypatch.setattr(files, "clear_copies", lambda _, names: asked.append(list(names)))
    numbers = (1, 2, 3, 9999, 10_000)
    tips = {f"generations/{n:04d}": Tip("000000000000.json", 1, "a" * 64) for n in numbers}
    note_sealed(root, Noted(tips))

    for number in range(WHOLE_EVERY):
        note_sealed(root, window(number))

    assert asked[-1] == ["generations/9999", "generations/10000"]
