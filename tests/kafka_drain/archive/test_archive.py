"""The archive on disk: documents, generations, and what their folders say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_drain.archive import generation as generation_module
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.copies import read_copy
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import FileSet, Receipt
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.findings import Reason
from kafka_drain.offsets import TopicPartition
from kafka_drain.storage.immutability import Retention
from kafka_drain.storage.json_files import create_text

RECEIPT = Receipt(
    pipeline="p",
    cluster_id="c",
    topics={},
    generation=1,
    first_batch=0,
    last_batch=0,
    sealed_at="",
    previous=None,
    partitions=(),
    files=(),
    files_so_far=FileSet(),
)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An archive without generations."""
    archive = Archive.at(str(tmp_path / "archive"))
    archive.create(
        pipeline="p", cluster_id="c", topic_ids={"t": "1", "s": "2"}, source={"topics": ["t", "s"]}
    )
    return archive


@pytest.fixture
def generation(archive: Archive) -> Generation:
    """A generation without any folder."""
    return archive.generation(1)


@pytest.fixture
def opened(generation: Generation) -> Generation:
    """A generation that starts at the beginning."""
    generation.write(
        starting_offsets={T0: 0, T1: 0},
        file_format="parquet",
        partition_by=["topic"],
        topic_ids={},
        reason="first",
    )
    return generation


def line(path: str, **changes: object) -> str:
    entry = {"path": path, "size": 3, "isDir": False, "modificationTime": 5, "action": "add"}
    return json.dumps(entry | changes)


def write_log(generation: Generation, name: str, *lines: str) -> None:
    folder = generation.data / "_spark_metadata"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(("v1", *lines)))


def write_checkpoint(generation: Generation, name: str, text: str) -> None:
    path = generation.checkpoint / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# archive.json


def test_archive_create(archive: Archive) -> None:
    """A new archive says whose it is."""
    assert archive.exists
    assert archive.snapshot().document.content() == {
        "format_version": 1,
        "pipeline": "p",
        "cluster_id": "c",
        "topics": {"s": "2", "t": "1"},
        "source": {"topics": ["t", "s"]},
        "isolation_level": "read_committed",
        "retention": None,
        "immutable": None,
    }
    assert archive.snapshot().generations == ()
    assert archive.snapshot().open_generation is None


def test_archive_at_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is taken from where the process is, once."""
    monkeypatch.chdir(tmp_path)
    archive = Archive.at("somewhere")
    monkeypatch.chdir("/")

    assert str(tmp_path / "somewhere") == str(archive.root)


def test_archive_document_missing(tmp_path: Path) -> None:
    """A folder that doesn't exist is named as such."""
    archive = Archive.at(str(tmp_path / "nope"))

    assert not archive.exists
    with pytest.raises(ArchiveError, match="nope doesn't exist, expected an archive"):
        archive.require()


def test_archive_document_other_folder(tmp_path: Path) -> None:
    """A folder without archive.json is no archive."""
    archive = Archive.at(str(tmp_path))

    assert not archive.exists
    with pytest.raises(ArchiveError, match=r"is a folder without archive\.json"):
        archive.require()


def test_archive_document_file(tmp_path: Path) -> None:
    """A file in the place of the folder is no archive."""
    (tmp_path / "file").write_text("mine")
    archive = Archive.at(str(tmp_path / "file"))

    assert not archive.exists
    with pytest.raises(ArchiveError, match="file isn't a folder"):
        archive.require()
    with pytest.raises(ArchiveError, match="file isn't a folder"):
        check_sealed_state(archive.snapshot())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format_version": 3}', "archive format 3, but this kafka-drain reads format 1 or 2;"),
        ("{}", "has archive format None"),
        ("{", "isn't JSON"),
        ("[]", "expected a JSON object"),
    ],
)
def test_archive_document_refused(archive: Archive, text: str, message: str) -> None:
    """An archive.json of another format or shape is refused."""
    (archive.root / "archive.json").write_text(text)

    with pytest.raises(ArchiveError, match=message):
        archive.require()


# generations


def test_archive_generations_order(archive: Archive) -> None:
    """Generations come by number, not by name; other folders and files are none.

    One that was killed as it was opened holds nothing, and doesn't count.
    """
    numbers = [2, 3, 4, 5, 6, 7, 8, 9, 10, 99, 100, 9999, 10000]
    for name in ("notes", "0011.bak", *(f"{number:04d}" for number in reversed(numbers))):
        (archive.root / "generations" / name / "data").mkdir(parents=True)
    (archive.root / "generations" / "10001").mkdir()
    (archive.root / "generations" / "10001" / ".generation.json.1.tmp").touch()
    (archive.root / "generations" / "0012").write_text("a file")

    generations = archive.snapshot().generations

    assert [generation.number for generation in generations] == numbers
    assert generations[-1] == archive.snapshot().open_generation


def test_archive_generations_no_archive(tmp_path: Path) -> None:
    """A folder with generations and without archive.json is refused."""
    (tmp_path / "generations" / "0001").mkdir(parents=True)

    with pytest.raises(ArchiveError, match=r"without archive\.json"):
        Archive.at(str(tmp_path)).require()


def test_archive_create_meanwhile(archive: Archive) -> None:
    """A process that was suspended sets back nothing that another one has written meanwhile."""
    known = archive.snapshot().document
    archive.raise_format(2)
    archive.update_topics(archive.snapshot().document, {"new": "3"})
    settings: Any = {"pipeline": "p", "cluster_id": "c", "source": {"topics": ["t", "s"]}}
    there = archive.snapshot().document

    archive.create(**settings, topic_ids=known.topics, known=known)
    for document, topics in ((known, {"t": "4"}), (None, known.topics)):
        with pytest.raises(LockedError, match=r"written .*archive\.json meanwhile"):
            archive.create(**settings, topic_ids=topics, known=document)

    assert archive.snapshot().document == there


def test_generation_paths(archive: Archive) -> None:
    """A generation's folders are the archive's, under its number with four digits."""
    generation = archive.generation(12)

    assert generation.name == "generations/0012"
    assert generation.data_name == "generations/0012/data"
    assert archive.root / "generations/0012/data" == generation.data
    assert archive.root / "generations/0012/checkpoint" == generation.checkpoint


def test_generation_write(generation: Generation) -> None:
    """The starting offsets are kept as numbers, with how files are written."""
    generation.write(
        starting_offsets={T1: 7, T0: 0},
        file_format="orc",
        partition_by=["topic"],
        topic_ids={},
        reason="first",
    )

    document = generation.read_document().content()
    assert generation.read_document().first_offsets() == {T0: 0, T1: 7}
    assert document["starting_offsets"] == {"t": {"0": 0, "1": 7}}
    assert tuple(
        document[key]
        for key in ("format_version", "generation", "reason", "format", "partition_by")
    ) == (1, 1, "first", "orc", ["topic"])


@pytest.mark.parametrize(
    "written",
    [
        "earliest",
        7,
        None,
        [],
        {"t": 7},
        {"t": {"0": "7"}},
        {"t": {"0": "abc"}},
        {"t": {"0": None}},
        {"t": {"0": 7.5}},
        {"t": {"0": -2}},
        {"t": {"zero": 7}},
    ],
)
def test_generation_starting_offsets_no_numbers(opened: Generation, written: object) -> None:
    """Starting offsets that aren't numbers by partition are refused, with file and remedy."""
    path = opened.folder / "generation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"starting_offsets": written}))

    with pytest.raises(ArchiveError, match=r"generation\.json was changed: starting_offsets\S* is"):
        opened.read_document()


def test_generation_document_missing(generation: Generation) -> None:
    """A generation without its document is an ArchiveError that names the folder."""
    with pytest.raises(ArchiveError, match=r"0001 has no generation\.json"):
        generation.read_document()


def test_write_receipt_once(opened: Generation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt is locked and then copied; another one of its batch changes neither."""
    locked = Retention("compliance", datetime(2030, 1, 1, tzinfo=timezone.utc))
    create = Mock(wraps=create_text)
    monkeypatch.setattr(generation_module, "create_text", create)
    first, second = (replace(RECEIPT, sealed_at=time).sealed() for time in ("1", "2"))

    assert opened.write_receipt(first, locked)
    assert not opened.write_receipt(second, locked)

    where = opened.receipt_where(RECEIPT.name)
    assert (opened.root / where).read_bytes() == read_copy(opened.root, where) == first.content
    assert [call.args[2] for call in create.call_args_list] == [locked, locked]


# manifest


def test_read_manifest_missing(generation: Generation) -> None:
    """Without a folder there are no files, and nothing is wrong."""
    manifest, findings = generation.read_manifest()

    assert (manifest.files, manifest.last_batch, findings) == ({}, None, [])


def test_read_manifest_batches(generation: Generation) -> None:
    """Each batch adds its files; what Spark puts beside them isn't read."""
    base = f"file://{generation.data}"
    write_log(generation, "0", line(f"{base}/a.parquet"))
    write_log(generation, "1")
    write_log(generation, "2", line(f"{base}/topic=x%2520y/b.parquet"))
    for junk in (".3.5f2c.tmp", "3.compact.tmp", "notes"):
        write_log(generation, junk, line(f"{base}/junk.parquet"))

    manifest, findings = generation.read_manifest()

    assert findings == []
    assert {path: sink_file.batch for path, sink_file in manifest.files.items()} == {
        "a.parquet": 0,
        "topic=x%20y/b.parquet": 2,
    }
    assert (manifest.last_batch, manifest.batches) == (2, (0, 1, 2))


def test_read_manifest_compact(generation: Generation) -> None:
    """A compacted file replaces all before it, even those that are still there."""
    base = f"file://{generation.data}"
    write_log(generation, "8", line(f"{base}/old.parquet"))
    write_log(generation, "9.compact", line(f"{base}/a.parquet"))
    write_log(generation, "10", line(f"{base}/b.parquet"))

    manifest, findings = generation.read_manifest()

    assert findings == []
    assert {path: sink_file.batch for path, sink_file in manifest.files.items()} == {
        "a.parquet": None,
        "b.parquet": 10,
    }
    assert (manifest.last_batch, manifest.batches) == (10, (10,))


def test_read_manifest_damaged(generation: Generation) -> None:
    """A hole, an empty file, a file listed twice: all are found, and the rest is read."""
    base = f"file://{generation.data}"
    write_log(generation, "0", line(f"{base}/a.parquet"))
    write_log(generation, "2", line(f"{base}/a.parquet"), line(f"{base}/b.parquet"))
    write_log(generation, "3")
    (generation.data / "_spark_metadata" / "3").write_text("")

    manifest, findings = generation.read_manifest()

    where = "generations/0001/data/_spark_metadata"
    assert {
        (Reason.MANIFEST_HOLE, where),
        (Reason.MANIFEST_DUPLICATE, f"{where}/2"),
        (Reason.MANIFEST_EMPTY, f"{where}/3"),
    } == {(finding.reason, finding.where) for finding in findings}
    assert {"a.parquet", "b.parquet"} == set(manifest.files)
    assert manifest.last_batch == 3


# checkpoint


def test_read_checkpoint_missing(opened: Generation) -> None:
    """Without folders there are no batches, and nothing is wrong."""
    checkpoint, findings = opened.read_checkpoint(opened.read_document().first_offsets())

    assert ({}, frozenset(), []) == (checkpoint.ends, checkpoint.commits, findings)


def test_read_checkpoint_batches(opened: Generation) -> None:
    """Ends and commits are read by batch id; other files aren't batches."""
    write_checkpoint(opened, "metadata", '{"id":"x"}')
    write_checkpoint(opened, "offsets/9", 'v1\n{}\n{"t":{"0":4}}')
    write_checkpoint(opened, "offsets/10", 'v1\n{}\n{"t":{"0":6,"1":1}}\n')
    write_checkpoint(opened, "offsets/.11.crc", "junk")
    write_checkpoint(opened, "commits/9", "v1\n{}")
    write_checkpoint(opened, "commits/.10.abc.tmp", "junk")

    checkpoint, findings = opened.read_checkpoint(opened.read_document().first_offsets())

    assert findings == []
    assert checkpoint.ends == {9: {T0: 4}, 10: {T0: 6, T1: 1}}
    assert (checkpoint.last_offsets, checkpoint.last_commit) == (10, 9)


def test_read_checkpoint_damaged(opened: Generation) -> None:
    """An unreadable file still is its batch's; holes are found in both folders."""
    write_checkpoint(opened, "offsets/0", 'v1\n{}\n{"t":{"0":4}}')
    write_checkpoint(opened, "offsets/1", "")
    write_checkpoint(opened, "offsets/3", 'v1\n{}\n{"t":{"0":9}}')
    write_checkpoint(opened, "commits/0", "v1")
    write_checkpoint(opened, "commits/2", "v1\n{}")

    checkpoint, findings = opened.read_checkpoint(opened.read_document().first_offsets())

    where = "generations/0001/checkpoint"
    assert checkpoint.ends == {0: {T0: 4}, 1: {}, 3: {T0: 9}}
    assert frozenset({0, 2}) == checkpoint.commits
    assert {
        (Reason.CHECKPOINT_CORRUPT, f"{where}/offsets/1"),
        (Reason.CHECKPOINT_CORRUPT, f"{where}/commits/0"),
        (Reason.CHECKPOINT_HOLE, f"{where}/offsets"),
        (Reason.CHECKPOINT_HOLE, f"{where}/commits"),
        (Reason.NOTE_UNREADABLE, f"{where}/metadata"),
    } == {(finding.reason, finding.where) for finding in findings}
