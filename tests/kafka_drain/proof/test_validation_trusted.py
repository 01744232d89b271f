"""Closed generations whose receipts are trusted: what is sealed next goes on from them."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.findings import errors
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import END, P0, P1, add_batch, golden_cluster, note_batch, sealed_copy


@pytest.fixture
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The golden archive, sealed, with an empty generation and one with a batch behind it."""
    archive = sealed_copy(tmp_path_factory.mktemp("trusted") / "archive")
    for number in (2, 3):
        archive.generation(number).write(
            starting_offsets={P0: END, P1: END},
            file_format="parquet",
            partition_by=["topic"],
            topic_ids=archive.snapshot().document.topics,
            reason="rollover",
        )
    newest = archive.generation(3)
    note_batch(newest, 0, add_batch(newest, 0, END, END + 3), END, END + 3)
    return archive


@pytest.fixture
def cluster() -> Any:
    """The cluster that it was drained from."""
    return golden_cluster()


def test_validate_open_continues_chain(archive: Archive, cluster: Any) -> None:
    """The next receipt names the newest one before it, also past a generation without any."""
    report = validate_archive(archive, cluster, scope="open")

    assert (errors(report.findings), report.receipts_written) == ([], 1)
    before, newest = archive.generation(1).last_receipt(), archive.generation(3).last_receipt()
    assert before is not None
    assert newest is not None
    assert newest.previous == before.sha256
    # Figures of the closed one count as well.
    assert report.receipts == len(archive.generation(1).receipt_names())
    whole = validate_archive(archive, cluster, deep=True)
    assert errors(whole.findings) == []
    assert whole.records == report.records
