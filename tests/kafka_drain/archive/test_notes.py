"""Documents beside the proof that can't be read: a report is written all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.topic_settings import noted_topic_settings, write_topic_settings
from kafka_drain.events import begin_publication, note_windows, unpublished_windows
from kafka_drain.findings import errors
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.proof.report import note_overview, write_report
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.json_files import read_document
from tests.kafka_drain.golden import P0, add_batch, golden_cluster, note_batch
from tests.kafka_drain.made_archive import MadeArchive, dense

BLANK = pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 300, b"[]", b"{", b"\xff\xfe", b'{"nothing":1}'],
    ids=["empty", "zeros", "a list", "cut", "no text", "other keys"],
)


@BLANK
@pytest.mark.parametrize(
    "name", ["observed.json", "overview.json", "topics.json", "told/generations.json"]
)
def test_validate_note_unreadable(archive: Archive, name: str, content: bytes) -> None:
    """Validation ends with a report, seals what is new, and its run writes the note anew."""
    path = Path(str(archive.root)) / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    paths = add_batch(archive.generation(1), 14, 42, 50)
    note_batch(archive.generation(1), 14, paths, 42, 50)

    publication = begin_publication(archive, "run")
    report = validate_archive(archive, golden_cluster(), run="run")
    overview = note_overview(archive, report, write_report(archive, report, "run"))
    publication.note(publication.receipts(report.sealed))
    write_topic_settings(archive.root, {"flights": TopicSettings(2, 1)})
    again = validate_archive(archive, golden_cluster(), run="again")

    assert errors(report.findings) == []
    if content != b'{"nothing":1}':
        assert [(str(f.reason), f.where) for f in report.findings] == [("note_unreadable", name)]
        assert ";" not in report.findings[0].detail
    assert report.receipts_written == 1
    assert overview["offsets"] == 100
    assert again.findings == []


@BLANK
def test_begin_publication_unreadable(archive: Archive, content: bytes) -> None:
    """What was told is told again when nobody can say: at least once."""
    begin_publication(archive, "before")
    (Path(str(archive.root)) / "told" / "generations.json").write_bytes(content)

    told = [receipt.name for receipt in begin_publication(archive, "run").receipts()]

    assert told == archive.generation(1).receipt_names()


@BLANK
def test_unpublished_windows_unreadable(tmp_path: Path, content: bytes) -> None:
    """A window whose note can't be read is told again."""
    made = MadeArchive(tmp_path / "archive", {"flights": "id"})
    made.seal_window("w", {P0: dense(0, 3)})
    [receipt] = [window.receipt for window in made.archive.snapshot().windows]
    note_windows(made.archive, [receipt], "before")
    assert unpublished_windows(made.archive, [receipt], "run") == []

    (Path(str(made.root)) / "told" / "windows" / "w.json").write_bytes(content)

    assert unpublished_windows(made.archive, [receipt], "run") == [receipt]


def test_topic_settings_unreadable(archive: Archive) -> None:
    """Settings that can't be read are none, until a drain notes them again."""
    path = archive.root / "topics.json"
    path.write_bytes(b"")

    assert noted_topic_settings(archive.root) == {}
    write_topic_settings(archive.root, {"flights": TopicSettings(2, 1)})
    assert set(read_document(path)) == {"flights"}
