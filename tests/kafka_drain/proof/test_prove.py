"""Which segments a validation seals, and the receipts it makes of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.receipts import KafkaBounds, parse_receipt
from kafka_drain.archive.segment_overlaps import OffsetClaim
from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.metadata_log.checkpoint import Checkpoint
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.prove import (
    Blockers,
    Drained,
    Evidence,
    damaged_batches,
    examine,
    prove,
    topics_read,
)
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.segment_proof import CheckedSegment
from tests.tables import each_of

TP = TopicPartition("t", 0)
QUIET = TopicPartition("quiet", 0)
STEP = 10


def data_file(batch: int, start: int, end: int) -> CommittedFile:
    """A file of one batch that holds the offsets [start, end)."""
    content = FileOffsets(TP, (OffsetRange(start, end),), end - start)
    return CommittedFile(
        path=f"generations/0001/data/part-{batch}.parquet",
        bytes=100 + batch,
        sha256=f"{batch:064x}",
        contents=(content,),
        batch=batch,
        fingerprint="0" * 16,
    )


def segment(batch: int, *, is_sound: bool = True, gaps: tuple[Gap, ...] = ()) -> CheckedSegment:
    """The segment of one batch, which read ten offsets of TP and none of a quiet topic."""
    start = batch * STEP
    part = Segment(
        batch,
        batch,
        {TP: OffsetRange(start, start + STEP), QUIET: OffsetRange(7, 7)},
    )
    return CheckedSegment(part, [data_file(batch, start, start + STEP)], gaps, is_sound)


def evidence(batches: int = 3, **changes: object) -> Evidence:
    """Evidence by which every one of some batches is sealed."""
    known = Evidence(
        generation=1,
        name="generations/0001",
        identity=Identity("p", "cluster", {"t": "id-of-t", "quiet": "id-of-quiet"}),
        checked=[segment(batch) for batch in range(batches)],
        agreeing=set(range(batches)),
        fingerprints={batch: f"{batch:016x}" for batch in range(batches)},
        read_up_to=-1,
        ids_after_read={},
        ids_now={"t": "id-of-t"},
        claims=[],
        bounds={TP: KafkaBounds(0, 100, 100)},
        before=None,
        previous="f" * 64,
        journal=5,
        sealed_at="2026-01-01T00:00:00.000+00:00",
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def sealed_batches(of: Evidence) -> list[int]:
    """The last batches of the receipts that are made."""
    return [sealed.value.last_batch for sealed in prove(of).receipts]


def test_prove_receipts() -> None:
    """Each receipt continues the one before, and the first continues what was there."""
    proof = prove(evidence())

    receipts = [sealed.value for sealed in proof.receipts]
    assert [receipt.last_batch for receipt in receipts] == [0, 1, 2]
    assert [r.previous for r in receipts] == [
        "f" * 64,
        *(r.sha256 for r in receipts[:2]),
    ]
    assert [receipt.files_so_far.files for receipt in receipts] == [1, 2, 3]
    assert [receipt.fingerprint for receipt in receipts] == [f"{n:016x}" for n in range(3)]
    assert {(receipt.generation, receipt.journal) for receipt in receipts} == {(1, 5)}
    assert {receipt.sealed_at for receipt in receipts} == {"2026-01-01T00:00:00.000+00:00"}
    assert receipts[0].partitions[-1].kafka == KafkaBounds(0, 100, 100)
    assert not proof.findings
    for sealed in proof.receipts:
        found = parse_receipt(sealed.content)
        assert (found, found.sha256) == (sealed.value, sealed.value.sha256)


def test_prove_after_receipt() -> None:
    """The figures so far go on from the newest receipt."""
    first = prove(evidence(1)).receipts[0].value

    proof = prove(
        evidence(2, checked=[segment(1)], agreeing={1}, before=first, previous=first.sha256)
    )

    (sealed,) = proof.receipts
    second = sealed.value
    assert second.previous == first.sha256
    assert second.files_so_far.files == 2
    assert [p.records_so_far for p in second.partitions if p.tp == TP] == [2 * STEP]


@pytest.mark.parametrize("blocked", list(product([False, True], repeat=4)))
def test_prove_blocked(blocked: tuple[bool, bool, bool, bool]) -> None:
    """Any one reason that is of the whole generation stops all of it."""
    blockers = Blockers(*blocked)

    assert bool(blockers) == any(blocked)
    assert sealed_batches(evidence(blockers=blockers)) == ([] if any(blocked) else [0, 1, 2])


@pytest.mark.parametrize(
    ("is_sound", "agrees", "lives", "overlaps"), list(product([True, False], repeat=4))
)
def test_prove_one_segment(is_sound: bool, agrees: bool, lives: bool, overlaps: bool) -> None:
    """A segment is sealed when nothing at all speaks against it; what was found is said."""
    claim = OffsetClaim("windows/w", "id-of-t", TP, OffsetRange(3, 5))
    proof = prove(
        evidence(
            1,
            checked=[segment(0, is_sound=is_sound)],
            agreeing={0} if agrees else set(),
            ids_now={"t": "id-of-t" if lives else "another"},
            claims=[claim] if overlaps else [],
        )
    )

    assert bool(proof.receipts) == (is_sound and agrees and lives and not overlaps)
    reasons = {finding.reason for finding in proof.findings}
    if is_sound and agrees:
        expected = Reason.SEGMENT_OVERLAP if lives else Reason.TOPIC_MADE_AGAIN
        assert reasons == ({expected} if overlaps or not lives else set())
        assert proof.receipts == () or not reasons
        if lives and overlaps:
            assert "generations/0001" in str(proof.findings[0])
    else:
        assert not reasons


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=6),
)
def test_prove_longest_run(found: list[tuple[bool, bool]]) -> None:
    """Segments are sealed from the oldest on, up to the first that isn't proven."""
    number = len(found)
    of = evidence(
        number,
        checked=[segment(n, is_sound=is_sound) for n, (is_sound, _) in enumerate(found)],
        agreeing={n for n, (_, agrees) in enumerate(found) if agrees},
    )

    first = next((n for n, both in enumerate(found) if not all(both)), number)
    assert sealed_batches(of) == list(range(first))


@each_of("read_up_to", [-1, 0, 1, 2])
@each_of("after", ["id-of-t", "another", None])
@each_of("now", ["id-of-t", "another", None])
def test_prove_topic_ids(read_up_to: int, after: str | None, now: str | None) -> None:
    """The ids that a drain saw decide for the batches it read, those of now for later ones."""
    of = evidence(
        read_up_to=read_up_to,
        ids_after_read={} if after is None else {"t": after},
        ids_now={} if now is None else {"t": now},
    )

    sealed = []
    for batch in range(3):
        decides = after if batch <= read_up_to and after is not None else now
        if decides != "id-of-t":
            break
        sealed.append(batch)
    proof = prove(of)
    assert [receipt.value.last_batch for receipt in proof.receipts] == sealed
    if len(sealed) < 3:
        (finding,) = proof.findings
        assert finding.reason == Reason.TOPIC_MADE_AGAIN
        assert finding.subject == f"generations/0001/checkpoint/offsets/{len(sealed)}"
        assert f"batch {len(sealed)} isn't sealed: a topic was deleted or" in finding.detail


@each_of("read_up_to", [-1, 0, 1, 2, 3])
def test_prove_topic_ids_batches_together(read_up_to: int) -> None:
    """Batches whose ends Spark has purged are sealed only if the ids were seen after all of them.

    The topic was recreated since: the last of them may hold the new topic's records.
    """
    together = segment(0)
    checked = [replace(together, part=replace(together.part, last_batch=2))]
    proof = prove(
        evidence(
            checked=checked,
            read_up_to=read_up_to,
            ids_after_read={"t": "id-of-t"},
            ids_now={"t": "another"},
        )
    )

    is_seen = read_up_to >= 2
    assert [receipt.value.last_batch for receipt in proof.receipts] == ([2] if is_seen else [])
    reasons = [finding.reason for finding in proof.findings]
    assert reasons == ([] if is_seen else [Reason.TOPIC_MADE_AGAIN])


def test_prove_beside_window() -> None:
    """Offsets that a window holds in the segment's place are no overlap."""
    held = [Gap(TP, OffsetRange(n, n + 2), GapReason.WINDOW) for n in (3, 7)]
    claims = [OffsetClaim("windows/w", "id-of-t", TP, gap.range) for gap in held]

    proof = prove(evidence(1, checked=[segment(0, gaps=tuple(held))], claims=claims))

    assert [receipt.value.last_batch for receipt in proof.receipts] == [0]


def test_prove_beside_windows() -> None:
    """Nor are those of several windows together; a window that holds more is."""
    held = tuple(Gap(TP, OffsetRange(at, at + 2), GapReason.WINDOW) for at in (1, 4, 7))
    claims = [OffsetClaim(f"windows/{g.range.start}", "id-of-t", TP, g.range) for g in held]
    checked = [segment(0, gaps=held)]

    assert sealed_batches(evidence(1, checked=checked, claims=claims)) == [0]
    more = OffsetClaim("windows/more", "id-of-t", TP, OffsetRange(9, 10))
    proof = prove(evidence(1, checked=checked, claims=[*claims, more]))
    assert proof.receipts == ()
    assert [finding.reason for finding in proof.findings] == [Reason.SEGMENT_OVERLAP]
    assert "generations/0001" in str(proof.findings[0])


def test_prove_acknowledged() -> None:
    """A receipt names the expired offsets that were accepted in its own segment."""
    gap = Gap(TP, OffsetRange(3, 5), GapReason.EXPIRED, acknowledged=True)

    proof = prove(evidence(2, checked=[segment(0), segment(1, gaps=(gap,))]))

    assert [receipt.value.acknowledged for receipt in proof.receipts] == [(), ("t:0:3-5",)]


def test_topics_read_quiet() -> None:
    """A topic of which nothing was read may be gone."""
    assert topics_read(segment(0).part) == {"t"}
    assert sealed_batches(evidence(ids_now={"t": "id-of-t"})) == [0, 1, 2]


def test_prove_unknown_quiet_topic() -> None:
    """A topic whose id nothing names is no obstacle while nothing of it was read."""
    identity = Identity("p", "cluster", {"t": "id-of-t"})

    assert sealed_batches(evidence(identity=identity)) == [0, 1, 2]


def test_damaged_batches() -> None:
    """A file's error is of its batch; one of no file may be any batch's; warnings are no damage."""
    path = "generations/0001/data/a.parquet"
    found = [
        Finding(Reason.FILE_MISSING, path, "gone"),
        Finding(Reason.FILE_REPLACED, "generations/0001/data/b.parquet", "a warning"),
    ]

    assert damaged_batches(found, {path: 4}) == {4}
    assert damaged_batches([Finding(Reason.OFFSET_MISSING, TP, "x")], {path: 4}) == {None}
    assert damaged_batches([], {}) == set()


def test_examine() -> None:
    """What was drained and no file holds is missing, by segment."""
    drained = Drained({TP: 0}, 0, 1, 1, Checkpoint({0: {TP: 10}, 1: {TP: 20}}))

    examined = examine(drained, [data_file(0, 0, 10), data_file(1, 10, 15)])

    assert [part.last_batch for part in examined.parts] == [0, 1]
    ((part, tp, ranges),) = examined.missing
    assert (part.last_batch, tp, ranges) == (1, TP, [OffsetRange(15, 20)])
    assert not examined.findings


def test_examine_after_sealed() -> None:
    """What is sealed already isn't examined again."""
    drained = Drained({TP: 10}, 1, 1, 1, Checkpoint({0: {TP: 10}, 1: {TP: 20}}))

    examined = examine(drained, [data_file(1, 10, 20)])

    assert [(part.first_batch, part.last_batch) for part in examined.parts] == [(1, 1)]
    assert not examined.missing
    assert not examined.findings


@pytest.mark.parametrize("last_listed", [None, 0, 1, 2])
def test_examine_checkpoint_behind(last_listed: int | None) -> None:
    """Offsets beyond a checkpoint that doesn't know the last listed batch aren't outside."""
    drained = Drained({TP: 0}, 0, 1, last_listed, Checkpoint({0: {TP: 10}}))

    examined = examine(drained, [data_file(0, 0, 10), data_file(1, 10, 15)])

    outside = {finding.reason for finding in examined.findings} == {Reason.OFFSET_OUTSIDE}
    assert outside == ((last_listed or 0) <= 0)


def test_prove_without_kafka_overlaps() -> None:
    """What a window holds as well is found without Kafka; nothing is sealed."""
    claim = OffsetClaim("windows/w", "id-of-t", TP, OffsetRange(3, 5))

    proof = prove(evidence(claims=[claim], blockers=Blockers(kafka_not_asked=True)))

    assert not proof.receipts
    assert [f.reason for f in proof.findings] == [Reason.SEGMENT_OVERLAP]


def test_prove_without_kafka_unknown_topic() -> None:
    """A topic that no drain has noted yet claims nothing."""
    unknown = Identity("p", "cluster", {})

    proof = prove(evidence(identity=unknown, blockers=Blockers(kafka_not_asked=True)))

    assert not proof.findings
