"""Files with other numbers of records than Spark read, in batches that aren't sealed yet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.findings import Reason, errors, summary
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.fingerprints import write_notes
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.repair_plan import plan_repair
from tests.kafka_drain.fake_cluster import Log
from tests.kafka_drain.golden import END, P0, add_batch, golden_cluster, sealed_copy


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """The golden archive, sealed up to batch 13, and batch 14 with 8 offsets of each partition."""
    archive = sealed_copy(tmp_path / "archive")
    add_batch(archive.generation(1), 14, END, 50)
    return archive


def read_by_spark(archive: Archive, records: int) -> None:
    taken = {"batch": 14, "records": records, "fingerprint": "0" * 16}
    write_notes(archive.generation(1), [taken])


@pytest.mark.parametrize("reason", [GapReason.COMPACTED, GapReason.CONTROL, GapReason.ABORTED])
@pytest.mark.parametrize("missing", [1, 4])
def test_validate_fewer_than_spark_read(
    archive: Archive, reason: GapReason, missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 69: whatever Kafka holds by now, what Spark read isn't explained away."""
    checkpoint = Path(str(archive.generation(1).checkpoint)) / "offsets" / "14"
    # The batch read on to where the files no longer have anything.
    checkpoint.write_text(f'v1\n{{}}\n{{"flights":{{"0":{50 + missing},"1":50}}}}')
    read_by_spark(archive, 16 + missing)

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        return [Gap(tp, r, reason) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert summary(errors(report.findings)) == {"content_changed": 1}
        assert f"has 16 records; Spark read {16 + missing}" in errors(report.findings)[0].detail
        assert report.receipts_written == 0


def test_validate_more_than_spark_read(archive: Archive) -> None:
    """Nor are more records than it read."""
    read_by_spark(archive, 15)

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert summary(errors(report.findings)) == {"content_changed": 1}
        assert report.receipts_written == 0


@pytest.mark.parametrize("content", [b"", b"\0" * 80])
def test_validate_fingerprint_empty(archive: Archive, content: bytes) -> None:
    """An empty file in the place of what Spark read says nothing, and ends no validation."""
    read_by_spark(archive, 16)
    folder = Path(str(archive.generation(1).folder)) / "fingerprints"
    (folder / "000000000014.json").write_bytes(content)

    report = validate_archive(archive, golden_cluster())

    assert errors(report.findings) == []
    assert report.receipts_written == 1


@pytest.mark.parametrize(("missing", "is_accepted"), [(4, True), (5, False)])
def test_validate_fewer_by_what_expired(archive: Archive, missing: int, is_accepted: bool) -> None:
    """As many records as somebody accepts as expired may be missing, and not one more."""
    checkpoint = Path(str(archive.generation(1).checkpoint)) / "offsets" / "14"
    checkpoint.write_text('v1\n{}\n{"flights":{"0":54,"1":50}}')
    read_by_spark(archive, 16 + missing)
    cluster = golden_cluster()
    cluster.topic_ids = dict.fromkeys(cluster.topic_ids, "made-again")

    for _ in range(2):
        report = validate_archive(
            archive, cluster, acknowledged=parse_ranges("accepted", [f"{P0.topic}:0:50-54"])
        )
        fewer = summary(errors(report.findings)).get("content_changed", 0)
        assert fewer == (0 if is_accepted else 1)


@pytest.mark.parametrize(("end", "is_cut"), [(49, True), (50, False)])
def test_validate_log_shorter_than_read(
    archive: Archive, end: int, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the files gone, the end of a log alone says that other records may be below it.

    A repair would otherwise take those for what Spark read, once what is beyond is accepted.
    """
    for path in Path(str(archive.generation(1).data)).rglob("part-*-14.*"):
        path.unlink()
    read_by_spark(archive, 16)
    cluster = golden_cluster()
    cluster.logs[P0] = Log(end=end)

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        for tp, ranges in asked.items():
            for each in ranges:
                there = min(each.end, cluster.logs[tp].end)
                yield Gap(tp, OffsetRange(each.start, there), GapReason.LOST)
                if there < each.end:
                    yield Gap(tp, OffsetRange(there, each.end), GapReason.EXPIRED)

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)
    accepted = parse_ranges("accepted", [f"{P0.topic}:0:{end}-50"]) if is_cut else {}

    for _ in range(2):
        report = validate_archive(archive, cluster, acknowledged=accepted)
        found = [each for each in report.findings if each.reason == Reason.LOG_REWRITTEN]
        assert [str(each.subject) for each in found] == [str(P0)] * is_cut
        assert report.receipts_written == 0
        assert (P0 in plan_repair(archive, report).ranges) is not is_cut
