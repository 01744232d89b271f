"""Typed documents: read as they were written, kept as they were read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import (
    ArchiveDocument,
    GenerationDocument,
    OffsetRow,
    ReadFromDocument,
    VersionedDocument,
    WindowPlan,
)
from kafka_drain.archive.journal.digests import digest_of, generation_digest, plan_digest
from kafka_drain.errors import ArchiveError
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.storage.typed_json import DocumentError, parse

KINDS: dict[type[VersionedDocument], dict[str, Any]] = {
    ArchiveDocument: {
        "format_version": 1,
        "pipeline": "p",
        "cluster_id": "c",
        "topics": {"t": "id"},
        "source": {"topics": ["t"]},
    },
    GenerationDocument: {
        "format_version": 1,
        "generation": 1,
        "opened_at": "2026-01-31T00:00:00.000+00:00",
        "reason": "first",
        "format": "parquet",
        "partition_by": ["topic"],
        "topics": {"t": "id"},
        "starting_offsets": {"t": {"0": 7}},
    },
    WindowPlan: {
        "ranges": [{"topic": "t", "partition": 0, "start": 3, "end": 9}],
        "replaces": [],
        "format": "parquet",
        "partition_by": [],
        "opened_at": "2026-01-31T00:00:00.000+00:00",
    },
}


def written(folder: Path, document: object) -> UPath:
    """Write a document as anybody may have."""
    path = UPath(folder / "document.json")
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_document_content_as_read(kind: type[VersionedDocument], tmp_path: Path) -> None:
    """A document's content is what its file says: no default is added, no unknown key lost."""
    document = KINDS[kind] | {"of_a_later_release": {"a": [1, None, 2.5]}}

    assert kind.read(written(tmp_path, document)).content() == document


@pytest.mark.parametrize("kind", KINDS)
def test_document_of_another_format(kind: type[VersionedDocument], tmp_path: Path) -> None:
    """A document of a later format is refused by its version, whatever else it says."""
    with pytest.raises(
        ArchiveError, match=r"format 3, but this kafka-drain reads format 1.*; use the re"
    ):
        kind.read(written(tmp_path, {"format_version": 3}))


@pytest.mark.parametrize("kind", [GenerationDocument, WindowPlan])
@pytest.mark.parametrize("file_format", ["parquetx", "", "PARQUET"])
def test_document_of_unknown_file_format(
    kind: type[VersionedDocument], file_format: str, tmp_path: Path
) -> None:
    """A format of files that nothing reads is refused, naming file, key and formats."""
    expected = rf"document\.json was changed: format is {file_format}; expected 'parquet', 'orc', "

    with pytest.raises(ArchiveError, match=expected):
        kind.read(written(tmp_path, KINDS[kind] | {"format": file_format}))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (kind, key)
        for kind, document in KINDS.items()
        for key in document
        if kind.model_fields[key].is_required() and key != "format_version"
    ],
)
def test_document_without_key(kind: type[VersionedDocument], key: str, tmp_path: Path) -> None:
    """A document that lacks what it has to say is refused, naming file and key."""
    document = {name: value for name, value in KINDS[kind].items() if name != key}

    with pytest.raises(ArchiveError, match=rf"document\.json has no {key}; restore it"):
        kind.read(written(tmp_path, document))


@pytest.mark.parametrize(
    ("kind", "key"), [(kind, key) for kind, document in KINDS.items() for key in document]
)
def test_document_of_another_type(kind: type[VersionedDocument], key: str, tmp_path: Path) -> None:
    """A value of another type is refused, naming file, key and value: nothing is converted."""
    other = "7" if isinstance(KINDS[kind][key], int) else 7

    with pytest.raises(ArchiveError, match=rf"{key} is 7;|has archive format '?7'?"):
        kind.read(written(tmp_path, KINDS[kind] | {key: other}))


def test_generation_document_without_topics(tmp_path: Path) -> None:
    """Release 0.1 had topic ids in archive.json alone."""
    document = {
        name: value for name, value in KINDS[GenerationDocument].items() if name != "topics"
    }
    found = GenerationDocument.read(written(tmp_path, document))

    assert found.topics == {}
    assert "topics" not in found.content()


def test_window_plan_offsets(tmp_path: Path) -> None:
    """A plan's rows are offsets by partition."""
    rows = [{"topic": "t", "partition": 0, "start": a, "end": b} for a, b in ((3, 9), (12, 13))]
    plan = WindowPlan.read(written(tmp_path, KINDS[WindowPlan] | {"ranges": rows}))

    assert plan.offsets() == {TopicPartition("t", 0): [OffsetRange(3, 9), OffsetRange(12, 13)]}


@pytest.mark.parametrize(
    ("name", "kind", "digest"),
    [
        ("generation.json", GenerationDocument, generation_digest),
        ("plan.json", WindowPlan, plan_digest),
    ],
)
def test_document_digest_as_of_its_bytes(
    name: str, kind: type[VersionedDocument], digest: Any, tmp_path: Path
) -> None:
    """What the journal notes of a document is the same, read as a value or as bytes."""
    path = written(tmp_path, KINDS[kind] | {"of_a_later_release": 1})

    assert digest(kind.read(path).content()) == digest_of(name, path.read_bytes())


def test_archive_keeps_unknown_keys(tmp_path: Path) -> None:
    """A release that adds topics keeps what a later one has written."""
    path = UPath(tmp_path / "archive.json")
    path.write_text(json.dumps(KINDS[ArchiveDocument] | {"later": "kept"}))

    archive = Archive.at(str(tmp_path))
    archive.update_topics(archive.snapshot().document, {"u": "other"})

    assert json.loads(path.read_text()) == KINDS[ArchiveDocument] | {
        "later": "kept",
        "topics": {"t": "id", "u": "other"},
    }


def test_document_shows_no_control_characters() -> None:
    """What a damaged document holds is named; a terminal doesn't obey it."""
    row = {"topic": "t", "partition": "\x1b[2J\n\0\u202e\u00e9", "start": 0, "end": 1}

    with pytest.raises(DocumentError) as error:
        parse(OffsetRow, json.dumps(row).encode())

    assert str(error.value).isprintable()
    assert "\\x1b[2J\\n\\x00\\u202e\u00e9; expected" in str(error.value)


def test_document_shows_no_control_characters_of_keys() -> None:
    """Nor does it obey the names that a damaged document has."""
    document = {"last_batch": 1, "topics": {"\x1b[2J\u202e\u00e9": 5}}

    with pytest.raises(DocumentError) as error:
        parse(ReadFromDocument, json.dumps(document).encode())

    assert str(error.value).isprintable()
    assert "topics.\\x1b[2J\\u202e\u00e9 is 5; expected" in str(error.value)
