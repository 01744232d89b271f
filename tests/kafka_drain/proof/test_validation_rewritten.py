"""A log that holds other records now than those that were archived."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.findings import Reason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import END, P1, add_batch, golden_cluster, in_kafka, note_batch


def cluster_with_others(others: range) -> Any:
    """The golden archive's Kafka, with other records at some offsets of a partition."""
    cluster: Any = golden_cluster()

    def rewritten(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
        return [
            row | {"value": b"another"} if tp == P1 and row["offset"] in others else row
            for row in in_kafka(tp, span)
        ]

    cluster.contents = rewritten
    return cluster


@pytest.mark.parametrize(
    ("first", "is_found"), [(END - 1, True), (END, True), (49, True), (50, False)]
)
def test_validate_log_rewritten(
    monkeypatch: pytest.MonkeyPatch, archive: Archive, first: int, is_found: bool
) -> None:
    """The newest records, sealed or not, are compared: a rewritten partition is named."""
    generation = archive.generation(1)
    note_batch(generation, 14, add_batch(generation, 14, END, 50), END, 50)
    monkeypatch.setattr(gap_explanation, "classify_gaps", lambda *_: pytest.fail("no gaps"))

    def rewritten(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
        is_other = tp == P1
        return [
            row | {"value": b"another"} if is_other and row["offset"] >= first else row
            for row in in_kafka(tp, span)
        ]

    cluster: Any = golden_cluster()
    cluster.contents = rewritten

    report = validate_archive(archive, cluster)

    found = [each for each in report.findings if each.reason == Reason.LOG_REWRITTEN]
    assert {str(each.subject) for each in found} == ({str(P1)} if is_found else set())
    assert all("has another record than the archive" in each.detail for each in found)


@pytest.mark.parametrize(
    ("others", "is_sealed"),
    [
        # The newest sealed record is another one now, and the batch is as Kafka has it: it was
        # read after the log was rewritten.
        (range(END - 1, END), False),
        # It was read before, as what is sealed.
        (range(END - 1, 50), True),
        (range(49, 50), True),
    ],
)
def test_validate_read_after_rewritten(archive: Archive, others: range, *, is_sealed: bool) -> None:
    """What was read of a log that was rewritten since it was sealed isn't sealed behind it."""
    generation = archive.generation(1)
    note_batch(generation, 14, add_batch(generation, 14, END, 50), END, 50)

    cluster = cluster_with_others(others)

    report = validate_archive(archive, cluster)

    found = [each.subject for each in report.findings if each.reason == Reason.LOG_REWRITTEN]
    assert {*found} == {P1}
    assert report.receipts_written == int(is_sealed)


@pytest.mark.parametrize(
    ("others", "written", "again"),
    [
        # Cut within the older batch, and grown past both: that one was read before.
        (range(45, 50), 1, 0),
        (range(49, 50), 1, 0),
        # The newest record is another one as well: both were read before.
        (range(45, 60), 2, 0),
        (range(0), 2, 0),
    ],
)
def test_validate_cut_between_unsealed_batches(
    archive: Archive, others: range, written: int, again: int
) -> None:
    """Batches read after a log was cut aren't sealed behind those read before."""
    generation = archive.generation(1)
    note_batch(generation, 14, add_batch(generation, 14, END, 50), END, 50)
    note_batch(generation, 15, add_batch(generation, 15, 50, 60), 50, 60)

    cluster = cluster_with_others(others)

    for receipts in (written, again):
        report = validate_archive(archive, cluster)

        found = [each.subject for each in report.findings if each.reason == Reason.LOG_REWRITTEN]
        assert {*found} == ({P1} if others else set())
        assert report.receipts_written == receipts
