"""What a killed try of a batch leaves behind, and Kafka has forgotten before the next one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.findings import errors, summary
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import (
    END,
    P0,
    add_batch,
    crc_of,
    golden_cluster,
    note_batch,
    row,
    write_rows,
)


@pytest.fixture
def paths(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files of batch 14, which ends at offset 54 and holds records up to 50.

    The others are compacted by now, and lie in a file that the manifest doesn't list.
    """
    generation = archive.generation(1)
    paths = add_batch(generation, 14, END, 50)
    offsets = Path(str(generation.checkpoint)) / "offsets" / "14"
    offsets.write_text('v1\n{}\n{"flights":{"0":54,"1":54}}')
    left = Path(str(generation.data)) / "topic=flights" / "part-00000-killed.parquet"
    write_rows(left, "parquet", [row(P0, offset) for offset in range(50, 54)])

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        return [Gap(tp, r, GapReason.COMPACTED) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)
    return paths


def test_validate_killed_try(archive: Archive, paths: list[Path]) -> None:
    """The files hold all that the last try read: nothing was taken from the manifest."""
    note_batch(archive.generation(1), 14, paths, END, 54)

    report = validate_archive(archive, golden_cluster())

    assert summary(report.findings) == {"file_orphan": 1}
    assert report.receipts_written == 1
    assert errors(validate_archive(archive, golden_cluster()).findings) == []


def test_validate_killed_try_read_more(archive: Archive, paths: list[Path]) -> None:
    """Where the last try read what that file holds, the manifest has lost its line."""
    left = paths[0].with_name("part-00000-killed.parquet")
    note_batch(archive.generation(1), 14, [*paths, left], END, 54)

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert summary(errors(report.findings)) == {"manifest_truncated": 1}
        assert report.receipts_written == 0


@pytest.mark.usefixtures("paths")
def test_validate_killed_try_unknown(archive: Archive) -> None:
    """Where nobody knows what was read, a line may have been lost."""
    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert summary(errors(report.findings)) == {"manifest_truncated": 1}
        assert report.receipts_written == 0


@pytest.mark.usefixtures("paths")
def test_validate_killed_try_manifest_as_written(archive: Archive) -> None:
    """A manifest that fits its checksum has lost no line, though nobody knows what was read."""
    log = Path(str(archive.generation(1).data)) / "_spark_metadata" / "14"
    log.with_name(".14.crc").write_bytes(crc_of(log.read_bytes()))

    report = validate_archive(archive, golden_cluster())

    assert summary(report.findings) == {"file_orphan": 1, "content_unknown": 1}
    assert report.receipts_written == 1


@pytest.mark.usefixtures("paths")
def test_validate_killed_try_manifest_cut(archive: Archive) -> None:
    """One that doesn't fit it may have lost the line of the file that lies there."""
    log = Path(str(archive.generation(1).data)) / "_spark_metadata" / "14"
    log.with_name(".14.crc").write_bytes(crc_of(log.read_bytes() + b"\n{}"))

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert summary(errors(report.findings)) == {"manifest_truncated": 1}
        assert report.receipts_written == 0
