"""Notes that are written while the query runs, in a folder of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upath import UPath

from kafka_drain.proof.fingerprints import parse_note
from kafka_drain.storage.json_files import read_note
from kafka_drain_spark.note_files import NoteFiles

NO_SPARK: Any = None


def note(batch: int, records: int) -> dict[str, Any]:
    return {"batch": batch, "records": records, "fingerprint": "0" * 16}


def test_write_notes(tmp_path: Path) -> None:
    """Each note is written once, under its batch's number, and nothing is left beside it."""
    folder = tmp_path / "fingerprints"
    notes = NoteFiles(NO_SPARK, str(folder))

    notes.write([note(0, 3)])
    notes.write([note(0, 4), note(1, 5)])

    assert sorted(path.name for path in folder.iterdir()) == [
        "000000000000.json",
        "000000000001.json",
    ]
    found = read_note(UPath(folder / "000000000000.json"))
    assert found == note(0, 3)
    assert parse_note(found) is not None


def test_write_notes_replaces(tmp_path: Path) -> None:
    """A batch that is read again replaces the note of the attempt before."""
    NoteFiles(NO_SPARK, str(tmp_path)).write([note(0, 3)])
    NoteFiles(NO_SPARK, str(tmp_path)).write([note(0, 4)])

    assert read_note(UPath(tmp_path / "000000000000.json")) == note(0, 4)


def test_write_notes_not_writable(tmp_path: Path) -> None:
    """A note that can't be written ends no drain, and is tried again."""
    place = tmp_path / "fingerprints"
    place.write_text("a file where the folder belongs")
    notes = NoteFiles(NO_SPARK, str(place))

    notes.write([note(0, 3)])

    place.unlink()
    notes.write([note(0, 3)])
    assert (place / "000000000000.json").exists()


def test_write_notes_nowhere(tmp_path: Path) -> None:
    """Without a folder, nothing is written."""
    NoteFiles(NO_SPARK, "").write([note(0, 3)])

    assert list(tmp_path.iterdir()) == []
