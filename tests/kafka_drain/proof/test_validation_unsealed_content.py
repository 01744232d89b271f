"""Contents of batches that aren't sealed yet: repaired, beside a drain, expired, other notes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.generation import Generation
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.findings import errors, summary
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import Scope, validate_archive
from kafka_drain.storage.lease import hold_lease
from tests.kafka_drain.fake_cluster import Log
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    golden_cluster,
    note_batch,
    row,
    seal_repair,
    write_rows,
)

NEXT = 50


@pytest.fixture
def generation(archive: Archive) -> Generation:
    return archive.generation(1)


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka still holds whatever is missing."""

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        return [Gap(tp, r, GapReason.LOST) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)


def rows(tp: TopicPartition, start: int = END, end: int = NEXT) -> list[dict[str, Any]]:
    return [row(tp, offset) for offset in range(start, end)]


def name_of(archive: Archive, path: Path) -> str:
    return str(path.relative_to(Path(str(archive.root))))


def rewrite(path: Path, changed: list[dict[str, Any]], generation: Generation) -> None:
    """Write other rows to a committed file, and its size to the manifest."""
    before = path.stat().st_size
    write_rows(path, "parquet", changed)
    for log in (Path(str(generation.data)) / "_spark_metadata").iterdir():
        lines = log.read_text().splitlines() if log.name.isdigit() else []
        for number, line in enumerate(lines):
            if path.name in line:
                entry = json.loads(line)
                assert entry["size"] == before
                lines[number] = json.dumps(entry | {"size": path.stat().st_size})
                log.write_text("\n".join(lines))


def altered(tp: TopicPartition) -> list[dict[str, Any]]:
    return [each | {"value": b"altered"} for each in rows(tp)]


def check_twice(archive: Archive, expected: dict[str, int], **options: Any) -> Report:
    """Validate twice: the same errors are found both times, and nothing is sealed."""
    for _ in range(2):
        report = validate_archive(archive, golden_cluster(), **options)
        assert summary(errors(report.findings)) == expected
        assert report.receipts_written == 0
    return report


# repaired batches


def test_validate_repaired_with_another_file_changed(
    archive: Archive, generation: Generation, lost: None
) -> None:
    """Fault 87: a window for one lost file doesn't excuse what was changed in another."""
    gone, changed = add_batch(generation, 14, END, NEXT)
    note_batch(generation, 14, [gone, changed], END, NEXT)
    gone.unlink()
    rewrite(changed, altered(P1), generation)
    check_twice(archive, {"file_missing": 1, "offset_missing": 1})
    seal_repair(archive, "repair_1", rows(P0), [name_of(archive, gone)])

    report = check_twice(archive, {"records_changed": 1, "offset_missing": 1})

    [found] = [f for f in errors(report.findings) if str(f.reason) == "records_changed"]
    assert found.where == name_of(archive, changed)
    seal_repair(archive, "repair_2", rows(P1), [name_of(archive, changed)])
    report = validate_archive(archive, golden_cluster())
    assert (errors(report.findings), report.receipts_written) == ([], 1)


def test_validate_changed_beside_expired(
    archive: Archive, generation: Generation, lost: None
) -> None:
    """A file whose records only it still holds isn't given up for one that Kafka can replace."""
    kept, changed = add_batch(generation, 14, END, NEXT)
    note_batch(generation, 14, [kept, changed], END, NEXT)
    rewrite(changed, altered(P1), generation)
    cluster = golden_cluster()
    cluster.logs[P0] = Log(first=NEXT, end=1000)

    for _ in range(2):
        report = validate_archive(archive, cluster)
        assert summary(report.findings) == {"records_changed": 1, "offset_missing": 1}
    assert {f.where for f in report.findings} == {name_of(archive, changed), str(P1)}

    seal_repair(archive, "repair_1", rows(P1), [name_of(archive, changed)])
    report = validate_archive(archive, cluster)
    assert (errors(report.findings), report.receipts_written) == ([], 1)
    assert name_of(archive, kept) in {file.path for file in archive_files(archive.snapshot())}


def test_validate_repaired_as_spark_read(
    archive: Archive, generation: Generation, lost: None
) -> None:
    """A repaired batch is compared whole, and sealed with the fingerprint of its own files."""
    gone, kept = add_batch(generation, 14, END, NEXT)
    note_batch(generation, 14, [gone, kept], END, NEXT)
    gone.unlink()
    seal_repair(archive, "repair_1", rows(P0), [name_of(archive, gone)])

    report = validate_archive(archive, golden_cluster())

    assert (summary(report.findings), report.receipts_written) == ({"file_replaced": 1}, 1)
    receipt = generation.last_receipt()
    assert receipt is not None
    assert receipt.fingerprint is not None
    assert errors(validate_archive(archive, golden_cluster(), deep=True).findings) == []
    # Two of one file's own records are exchanged: its offsets are what they were.
    rewrite(kept, altered(P1), generation)
    assert errors(validate_archive(archive, golden_cluster(), deep=True).findings) != []


@pytest.mark.parametrize("is_readable", [True, False])
def test_validate_repaired_by_changed_window(
    archive: Archive, generation: Generation, lost: None, is_readable: bool
) -> None:
    """Nor is a batch sealed that a window completes with other records than Spark read."""
    both = add_batch(generation, 14, END, NEXT)
    note_batch(generation, 14, both, END, NEXT)
    for path in both:
        path.unlink()
    held = seal_repair(archive, "repair_1", rows(P0), [name_of(archive, both[0])])
    seal_repair(archive, "repair_2", rows(P1), [name_of(archive, both[1])])
    size = held.stat().st_size
    if is_readable:
        changed = [each | {"key": each["key"] and each["key"].upper()} for each in rows(P0)]
        write_rows(held, "parquet", changed)
    else:
        held.write_bytes(bytes(size))
    # What a plain validation doesn't look into.
    assert held.stat().st_size == size

    check_twice(archive, {"content_changed": 1})


# beside a drain, and after one that was killed


def test_validate_beside_drain(
    archive: Archive, generation: Generation, lost: None, said: list[str]
) -> None:
    """Fault 88: a batch waits for what its drain has read, as long as the drain runs."""
    both = add_batch(generation, 14, END, NEXT)

    with hold_lease(archive.root, run="scheduled__1"):
        report = check_twice(archive, {})
        assert report.records == 2 * NEXT
        note_batch(generation, 14, both, END, NEXT)

    assert any("batch 14 and later batches aren't sealed yet" in line for line in said)
    rewrite(both[0], altered(P0), generation)
    report = validate_archive(archive, golden_cluster())
    assert (summary(report.findings)["records_changed"], report.receipts_written) == (1, 0)


def test_validate_beside_next_drain(archive: Archive, generation: Generation) -> None:
    """What an earlier drain has left is sealed meanwhile; only the batches after it wait."""
    before = add_batch(generation, 14, END, NEXT)
    note_batch(generation, 14, before, END, NEXT)
    add_batch(generation, 15, NEXT, NEXT + 3)

    with hold_lease(archive.root, run="scheduled__2"):
        reports = [validate_archive(archive, golden_cluster()) for _ in range(2)]

    assert [report.receipts_written for report in reports] == [1, 0]
    assert [report.findings for report in reports] == [[], []]
    receipt = generation.last_receipt()
    assert receipt is not None
    assert receipt.last_batch == 14
    assert receipt.fingerprint is not None


@pytest.mark.parametrize("scope", ["open", "all"])
def test_validate_after_drain_was_killed(
    archive: Archive, generation: Generation, scope: Scope
) -> None:
    """Fault 117: what nobody can compare is said, now and in each later validation."""
    add_batch(generation, 14, END, NEXT)
    cluster = golden_cluster()
    cluster.contents = None

    report = validate_archive(archive, cluster, scope=scope)

    assert report.receipts_written == 1
    [found] = report.findings
    assert (str(found.reason), found.reason.severity) == ("content_unknown", "warning")
    assert "batch 14 has 16 records that can't be verified" in found.detail
    assert "Kafka no longer holds 16 of them" in found.detail
    for deep in (False, True):
        report = validate_archive(archive, cluster, scope=scope, deep=deep)
        assert (summary(report.findings), report.complete) == ({"content_unknown": 1}, True)


def test_validate_not_noted(archive: Archive, generation: Generation) -> None:
    """A batch without a note is compared with Kafka, and sealed like any other."""
    add_batch(generation, 14, END, NEXT)

    report = validate_archive(archive, golden_cluster())

    assert (summary(report.findings), report.receipts_written) == ({}, 1)
    assert report.sealed[0].fingerprint is not None
    assert summary(validate_archive(archive, golden_cluster(), deep=True).findings) == {}


@pytest.mark.parametrize("column", ["key", "value", "headers", "timestamp", "timestampType"])
def test_validate_not_noted_and_changed(
    archive: Archive, generation: Generation, lost: None, column: str
) -> None:
    """Fault 117: nor is one sealed whose file was changed before anybody looked at it."""
    both = add_batch(generation, 14, END, NEXT)
    other = row(P1, 999) | {"headers": None, "timestampType": 1}
    changed = [
        each | ({column: other[column]} if each["offset"] == END + 3 else {}) for each in rows(P1)
    ]
    rewrite(both[1], changed, generation)

    report = check_twice(archive, {"records_changed": 1, "offset_missing": 1})
    check_twice(archive, {"records_changed": 1, "offset_missing": 1}, deep=True)

    [found] = [f for f in errors(report.findings) if str(f.reason) == "records_changed"]
    assert found.where == name_of(archive, both[1])
    assert f"from what Kafka holds of flights-1 from offset {END + 3} on" in found.detail


def test_validate_not_noted_fewer(
    archive: Archive, generation: Generation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 117: whether records that Kafka has compacted were lost before, nobody can tell."""
    both = add_batch(generation, 14, END, NEXT)
    rewrite(both[1], rows(P1, END, NEXT - 5), generation)

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        return [Gap(tp, r, GapReason.COMPACTED) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)

    for deep, sealed in ((False, 1), (False, 0), (True, 0)):
        report = validate_archive(archive, golden_cluster(), deep=deep)
        assert (summary(report.findings), report.receipts_written) == (
            {"content_unknown": 1},
            sealed,
        )


def test_validate_not_noted_of_another_topic(archive: Archive, generation: Generation) -> None:
    """A topic that was recreated says nothing of what was drained of its former life."""
    add_batch(generation, 14, END, NEXT)
    cluster = golden_cluster()
    cluster.topic_ids = dict.fromkeys(cluster.topic_ids, "made-again")

    for _ in range(2):
        report = validate_archive(archive, cluster)
        assert summary(report.findings) == {"content_unknown": 1, "topic_made_again": 1}
        assert report.receipts_written == 0


# what has expired


@pytest.fixture
def expired(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Four offsets of a partition have expired, the rest was compacted; accepted as such."""
    gone = OffsetRange(END, END + 4)

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        for tp, ranges in asked.items():
            for at in (at for r in ranges for at in range(r.start, r.end)):
                reason = GapReason.EXPIRED if at in gone else GapReason.COMPACTED
                yield Gap(tp, OffsetRange(at, at + 1), reason)

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)
    return [f"flights:{tp.partition}:{gone.start}-{gone.end}" for tp in (P0, P1)]


def test_validate_fewer_beside_expired(
    archive: Archive, generation: Generation, expired: list[str]
) -> None:
    """Fault 89: what had expired before Spark read excuses no record that it has read."""
    both = add_batch(generation, 14, END + 4, NEXT)
    gone = [OffsetRange(END, END + 4)]
    note_batch(generation, 14, both, END, NEXT, skipped={P0: gone, P1: gone})
    rewrite(both[0], rows(P0, END + 6), generation)

    check_twice(archive, {"content_changed": 1}, acknowledged=parse_ranges("accepted", expired))


def test_validate_fewer_by_what_expired_since(
    archive: Archive, generation: Generation, expired: list[str]
) -> None:
    """What has expired after Spark read it, and was accepted, may be missing: with a warning."""
    both = add_batch(generation, 14, END, NEXT)
    note_batch(generation, 14, both, END, NEXT)
    rewrite(both[0], rows(P0, END + 4), generation)

    report = validate_archive(
        archive, golden_cluster(), acknowledged=parse_ranges("accepted", expired)
    )

    assert (errors(report.findings), report.receipts_written) == ([], 1)
    [found] = [f for f in report.findings if str(f.reason) == "content_unknown"]
    assert "has 12 records; Spark read 16" in found.detail


@pytest.mark.parametrize("is_counted", [True, False])
@pytest.mark.parametrize("lost", [0, 1, 5])
def test_validate_fewer_beside_expired_partition(
    archive: Archive,
    generation: Generation,
    monkeypatch: pytest.MonkeyPatch,
    is_counted: bool,
    lost: int,
) -> None:
    """Fault 116: what has expired of one partition excuses nothing that another one has lost."""
    both = add_batch(generation, 14, END, NEXT)
    # Kafka had compacted five offsets of P0 before Spark read; they have expired since.
    rewrite(both[0], rows(P0, END + 5), generation)
    note_batch(generation, 14, both, END, NEXT)
    if not is_counted:
        note = Path(str(generation.folder)) / "fingerprints" / "000000000014.json"
        document = json.loads(note.read_text())
        del document["by_partition"]
        note.write_text(json.dumps(document))
    if lost:
        rewrite(both[1], rows(P1, END, NEXT - lost), generation)

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        reasons = {P0: GapReason.EXPIRED, P1: GapReason.COMPACTED}
        return [Gap(tp, r, reasons[tp]) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)
    accepted = {"acknowledged": parse_ranges("accepted", [f"flights:0:{END}-{END + 5}"])}

    if lost:
        check_twice(archive, {"content_changed": 1}, **accepted)
        check_twice(archive, {"content_changed": 1}, deep=True, **accepted)
    else:
        report = validate_archive(archive, golden_cluster(), **accepted)
        assert (summary(report.findings), report.receipts_written) == ({"offset_expired": 1}, 1)


# notes of other batches


@pytest.mark.parametrize("end", [NEXT - 2, NEXT + 2])
def test_validate_note_of_another_batch(archive: Archive, generation: Generation, end: int) -> None:
    """Fault 90: a note of a batch with the same number, from before a restore, says nothing."""
    before = add_batch(generation, 14, END, end)
    note_batch(generation, 14, before, END, end)
    for path in before:
        path.unlink()
    add_batch(generation, 14, END, NEXT)

    report = validate_archive(archive, golden_cluster())

    # Kafka still has what Spark read.
    assert (summary(report.findings), report.receipts_written) == ({}, 1)
    assert report.sealed[0].fingerprint is not None


@pytest.mark.parametrize(
    "note",
    [
        {"records": "16", "fingerprint": "0" * 16},
        {"records": 16, "fingerprint": 7},
        {"records": 16, "fingerprint": None},
        {"records": 16, "fingerprint": "no number"},
        {"records": 16, "fingerprint": "-1"},
        {"records": 16, "fingerprint": "1" + "0" * 16},
        {"records": True, "fingerprint": "0" * 16},
        {"records": -1, "fingerprint": "0" * 16},
        {"records": 16, "fingerprint": "0" * 16, "end": "{}"},
        {"records": 16, "fingerprint": "0" * 16, "start": "{}", "end": 7},
        {"records": 16, "fingerprint": "0" * 16, "start": "[]", "end": "[]"},
        {"records": 16, "fingerprint": "0" * 16, "by_partition": 7},
        {"records": 16, "fingerprint": "0" * 16, "by_partition": '{"flights":{"0":8,"1":7}}'},
        {"records": 16, "fingerprint": "0" * 16, "by_partition": '{"flights":{"0":17,"1":-1}}'},
        {"records": 16, "fingerprint": "0" * 16, "skipped": 7},
        {"records": 16, "fingerprint": "0" * 16, "skipped": [{}]},
        [],
        7,
    ],
    ids=str,
)
def test_validate_note_of_something_else(
    archive: Archive, generation: Generation, note: object
) -> None:
    """JSON of something else in the place of what Spark read says nothing either."""
    add_batch(generation, 14, END, NEXT)
    folder = Path(str(generation.folder)) / "fingerprints"
    folder.mkdir(exist_ok=True)
    (folder / "000000000014.json").write_text(json.dumps(note))

    report = validate_archive(archive, golden_cluster())

    # Kafka still has what Spark read.
    assert (summary(report.findings), report.receipts_written) == ({}, 1)
    assert report.sealed[0].fingerprint is not None


@pytest.mark.parametrize(
    "content", ["", "\0" * 40, "7", "[]", "{}", '{"last_batch": "x", "topics": 7}']
)
def test_validate_read_from_damaged(archive: Archive, generation: Generation, content: str) -> None:
    """A damaged `read_from.json` ends no validation: what Kafka says now decides."""
    both = add_batch(generation, 14, END, NEXT)
    note_batch(generation, 14, both, END, NEXT)
    (Path(str(generation.folder)) / "read_from.json").write_text(content)

    report = validate_archive(archive, golden_cluster())

    assert (summary(report.findings), report.receipts_written) == ({"note_unreadable": 1}, 1)
