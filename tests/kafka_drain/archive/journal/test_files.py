"""The journal on disk: noted once, by however many runs, whichever moment one is killed in."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.copies import read_copy
from kafka_drain.archive.journal.entries import WHOLE_EVERY, Noted, Tip
from kafka_drain.archive.journal.files import note_sealed, read_journal, start_journal_anew
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.storage.json_files import write_document
from kafka_drain.storage.paths import locate
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
