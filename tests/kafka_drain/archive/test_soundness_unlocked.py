"""A copy, on a disk, of an archive whose store locks its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.format import ERASED_VERSION
from kafka_drain.errors import ArchiveError
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.receipt_repair import plan_document_repair
from tests.kafka_drain.archives import validated
from tests.kafka_drain.golden import (
    END,
    add_batch,
    golden_cluster,
    golden_copy,
    open_next,
    seal,
)

LOCKS = {"mode": "governance", "days": 30}


def edit(archive: Archive, **keys: Any) -> None:
    """Change what archive.json says."""
    path = Path(str(archive.root / "archive.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """A copy with a batch that was drained after the last seal."""
    archive = golden_copy(tmp_path / "archive")
    edit(archive, immutable=LOCKS)
    with monkeypatch.context() as patched:
        # As in the store.
        patched.setattr("kafka_drain.proof.validation.retain", lambda *_, **options: None)
        seal(archive)
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 10)
    return archive


def test_copy_on_a_disk(copy: Archive) -> None:
    """What the refusal to seal proposes can be done: the copy is sealed, and stays sound."""
    with pytest.raises(ArchiveError, match="set `immutable` to null in"):
        validate_archive(copy, golden_cluster())  # type: ignore[arg-type]

    edit(copy, immutable=None)

    assert not plan_document_repair(copy.root).repairs
    assert validated(copy).receipts_written == 1
    assert validated(copy).receipts_written == 0
    assert not plan_document_repair(copy.root).repairs
    assert copy.snapshot().document.immutable is None


@pytest.mark.parametrize(
    "edited",
    [
        {"immutable": LOCKS | {"days": 29}},
        {"immutable": None, "isolation_level": "read_uncommitted"},
        {"immutable": None, "retention": "30 days"},
    ],
    ids=str,
)
def test_copy_edited(copy: Archive, edited: dict[str, Any]) -> None:
    """Nothing else may be edited there either."""
    edit(copy, **edited)

    report = validate_archive(copy, golden_cluster())  # type: ignore[arg-type]
    [found] = report.findings

    assert found.subject == "archive.json"
    assert found.detail.endswith("which no drain has used")


def test_copy_raised_before_it_is_sealed(copy: Archive) -> None:
    """An erasure there, the first thing that is done to it, doesn't make it damaged for good."""
    edit(copy, immutable=None)
    copy.raise_format(ERASED_VERSION)

    assert copy.snapshot().document.format_version == ERASED_VERSION
    assert not plan_document_repair(copy.root).repairs
    assert validated(copy).receipts_written == 1
    assert validated(copy).receipts_written == 0
