"""Notes that are written while the query runs, on this machine or in a store."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
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


class Hadoop:
    """Hadoop's file systems: notes what is written and renamed, in its order."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        rename = SimpleNamespace(OVERWRITE="overwrite")
        self.fs = SimpleNamespace(
            Path=self.path,
            FileContext=SimpleNamespace(
                getFileContext=lambda uri, conf: SimpleNamespace(
                    rename=lambda old, new, options: self.steps.append(
                        ("rename", old.text, new.text, options, uri, conf)
                    )
                )
            ),
            **{"Options$Rename": rename},
        )
        apache = SimpleNamespace(hadoop=SimpleNamespace(fs=self.fs))
        self.sparkContext = SimpleNamespace(
            _jvm=SimpleNamespace(org=SimpleNamespace(apache=apache)),
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: "the settings"),
            _gateway=SimpleNamespace(new_array=lambda kind, number: [None] * number),
        )

    def path(self, text: str) -> Any:
        """Return a path."""

        def create(conf: object) -> Any:
            assert conf == "the settings"
            return SimpleNamespace(create=lambda place, over: self.stream(place.text, over))

        return SimpleNamespace(text=text, getFileSystem=create, toUri=lambda: f"uri {text}")

    def stream(self, text: str, is_overwritten: bool) -> Any:
        """Return a stream to a file."""
        assert is_overwritten
        return SimpleNamespace(
            write=lambda content: self.steps.append(("write", text, json.loads(bytes(content)))),
            close=lambda: self.steps.append(("close",)),
        )


@pytest.mark.parametrize("scheme", ["s3a", "gs", "hdfs"])
def test_write_notes_in_store(scheme: str) -> None:
    """A note is written once, and never seen half: on HDFS, it is renamed when it is complete."""
    hadoop: Any = Hadoop()
    folder = f"{scheme}://place/notes"
    notes = NoteFiles(hadoop, folder)

    notes.write([{"batch": 7, "records": 3}])
    notes.write([{"batch": 7, "records": 3}])

    place = f"{folder}/000000000007.json"
    beside = f"{place}.tmp" if scheme == "hdfs" else place
    renamed = ("rename", beside, place, ["overwrite"], f"uri {place}", "the settings")
    assert hadoop.steps == [
        ("write", beside, {"batch": 7, "records": 3}),
        ("close",),
        *([renamed] if scheme == "hdfs" else []),
    ]
