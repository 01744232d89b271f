"""What excuses a missing offset: a window, somebody's word, or Kafka; each offset by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.gap_explanation import (
    GONE,
    as_of_then,
    explain_gaps,
    gap_findings,
    same_topics,
)
from kafka_drain.proof.sealing import Identity
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.tables import each_of

TP, OTHER, AGAIN = (TopicPartition(name, 0) for name in ("t", "other", "again"))
R = OffsetRange
IDENTITY = Identity("p", "cluster-1", {"t": "id-of-t", "other": "id-of-other", "again": "old"})

Ranges = Mapping[TopicPartition, list[OffsetRange]]


def cluster(**how: Any) -> Any:
    """A cluster that has these topics; `again` was made again."""
    return FakeCluster({tp: Log(end=99) for tp in (TP, OTHER, AGAIN)}, **how)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[TopicPartition, list[OffsetRange]]:
    """What Kafka is asked of; it says of each offset what its tens digit says."""
    seen: dict[TopicPartition, list[OffsetRange]] = {}
    reasons = [GapReason.EXPIRED, GapReason.LOST, GapReason.COMPACTED, GapReason.ABORTED]

    def classified(there: object, missing: Ranges) -> list[Gap]:
        assert isinstance(there, FakeCluster)
        seen.update(missing)
        return [
            Gap(tp, R(max(r.start, 10 * n), min(r.end, 10 * n + 10)), reason)
            for tp, ranges in missing.items()
            for r in ranges
            for n, reason in enumerate(reasons)
            if max(r.start, 10 * n) < min(r.end, 10 * n + 10)
        ]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classified)
    return seen


def explain(missing: Ranges, **how: Any) -> list[Gap]:
    known: dict[str, Any] = {"windows": {}, "acknowledged": {}, "cluster": cluster()} | how
    return sorted(
        explain_gaps(missing, identity=IDENTITY, **known), key=lambda gap: (gap.tp, gap.range.start)
    )


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        # One expired offset that is accepted accepts no other one.
        ([R(4, 5)], [(0, 4, False), (4, 5, True), (5, 10, False)]),
        ([R(0, 10)], [(0, 10, True)]),
        ([R(0, 9)], [(0, 9, True), (9, 10, False)]),
        ([R(0, 2), R(8, 12)], [(0, 2, True), (2, 8, False), (8, 10, True)]),
        ([], [(0, 10, False)]),
        ([R(10, 40)], [(0, 10, False)]),
    ],
)
def test_explain_gaps_acknowledged(
    asked: Ranges, accepted: list[OffsetRange], expected: list[tuple[int, int, bool]]
) -> None:
    """Only what is named is accepted, and of that only what has expired."""
    found = explain({TP: [R(0, 40)]}, acknowledged={TP: accepted})

    assert (
        sorted(
            (gap.range.start, gap.range.end, gap.acknowledged)
            for gap in found
            if gap.reason == GapReason.EXPIRED
        )
        == expected
    )
    assert [gap for gap in found if gap.reason != GapReason.EXPIRED] == [
        Gap(TP, R(10, 20), GapReason.LOST),
        Gap(TP, R(20, 30), GapReason.COMPACTED),
        Gap(TP, R(30, 40), GapReason.ABORTED),
    ]


@pytest.mark.parametrize("reason", [r for r in GapReason if r not in GONE], ids=str)
def test_explain_gaps_acknowledged_others(reason: GapReason, monkeypatch: Any) -> None:
    """What Kafka still has, or never had, isn't accepted as expired."""
    gap = Gap(TP, R(0, 10), reason)
    monkeypatch.setattr(gap_explanation, "classify_gaps", lambda cluster, missing: [gap])

    assert explain({TP: [R(0, 10)]}, acknowledged={TP: [R(0, 10)]}) == [gap]


def test_explain_gaps_acknowledged_unexplained(monkeypatch: Any) -> None:
    """A hole in Kafka's log is accepted as far as it is named."""
    gap = Gap(TP, R(0, 10), GapReason.UNEXPLAINED)
    monkeypatch.setattr(gap_explanation, "classify_gaps", lambda cluster, missing: [gap])

    found = explain({TP: [R(0, 10)]}, acknowledged={TP: [R(4, 5)]})

    assert [(str(g.range), str(g.reason), g.acknowledged) for g in found] == [
        ("[0, 4)", "unexplained", False),
        ("[4, 5)", "unexplained", True),
        ("[5, 10)", "unexplained", False),
    ]


@each_of("reason", list(GapReason))
@each_of("then", [None, False, True])
def test_as_of_then(reason: GapReason, then: bool | None) -> None:
    """Only compaction of then explains; and it explains nothing that has a reason of its own."""
    gap = Gap(TP, R(0, 10), reason)
    known = {} if then is None else {"t": then}

    (part,) = as_of_then(gap, {"other": not then, **known})
    found = part.reason

    if then is None or reason not in (GapReason.COMPACTED, GapReason.UNEXPLAINED):
        assert found == reason
    else:
        assert found == (GapReason.COMPACTED if then else GapReason.UNEXPLAINED)


def test_as_of_then_begun() -> None:
    """Compaction explains no offset that was read before it was switched on."""
    begun = {TP: 4, OTHER: 9}

    assert as_of_then(Gap(TP, R(0, 10), GapReason.COMPACTED), {"t": True}, begun) == [
        Gap(TP, R(0, 4), GapReason.UNEXPLAINED),
        Gap(TP, R(4, 10), GapReason.COMPACTED),
    ]
    aborted = Gap(TP, R(0, 10), GapReason.ABORTED)
    assert as_of_then(aborted, {"t": True}, begun) == [aborted]


@pytest.mark.parametrize("reason", [GapReason.COMPACTED, GapReason.UNEXPLAINED])
@pytest.mark.parametrize("then", [False, True])
def test_explain_gaps_read_then(reason: GapReason, then: bool, monkeypatch: Any) -> None:
    """What Spark had read was there, so that it is gone now needs no further reason."""
    gap = Gap(TP, R(0, 10), reason)
    monkeypatch.setattr(gap_explanation, "classify_gaps", lambda cluster, missing: [gap])

    found = explain({TP: [R(0, 10)]}, were_read={TP: [R(0, 5)]}, compacted={"t": then})

    assert found == [
        Gap(TP, R(0, 5), GapReason.EXPIRED),
        Gap(TP, R(5, 10), GapReason.COMPACTED if then else GapReason.UNEXPLAINED),
    ]


def test_explain_gaps_acknowledged_elsewhere(asked: Ranges) -> None:
    """One partition's word isn't another's."""
    found = explain({TP: [R(0, 10)], OTHER: [R(0, 10)]}, acknowledged={OTHER: [R(0, 10)]})

    assert [(gap.tp, gap.acknowledged) for gap in found] == [(OTHER, True), (TP, False)]


@pytest.mark.parametrize(
    ("held", "expected", "left"),
    [
        ([], [], [R(10, 20)]),
        ([R(10, 20)], [R(10, 20)], []),
        ([R(0, 99)], [R(10, 20)], []),
        ([R(5, 12), R(18, 30)], [R(10, 12), R(18, 20)], [R(12, 18)]),
        ([R(12, 14), R(15, 16)], [R(12, 14), R(15, 16)], [R(10, 12), R(14, 15), R(16, 20)]),
        ([R(0, 10), R(20, 30)], [], [R(10, 20)]),
    ],
)
def test_explain_gaps_windows(
    asked: Ranges, held: list[OffsetRange], expected: list[OffsetRange], left: list[OffsetRange]
) -> None:
    """What a window holds, Kafka isn't asked; of the rest it is."""
    found = explain({TP: [R(10, 20)]}, windows={TP: held, OTHER: [R(0, 99)]})

    assert [gap.range for gap in found if gap.reason == GapReason.WINDOW] == expected
    assert [gap.range for gap in found if gap.reason == GapReason.LOST] == left
    assert asked == ({TP: left} if left else {})


def test_explain_gaps_erased(asked: Ranges) -> None:
    """What was erased is a gap of its own, whatever Kafka has; a window holds it if one does."""
    erased = {TP: [R(2, 4), R(12, 14), R(18, 25)], OTHER: [R(0, 9)]}

    found = explain({TP: [R(0, 10), R(13, 20)]}, erased=erased, windows={TP: [R(3, 5)]})

    assert [(gap.range.start, gap.range.end, gap.reason) for gap in found] == [
        (0, 2, GapReason.EXPIRED),
        (2, 3, GapReason.ERASED),
        (3, 5, GapReason.WINDOW),
        (5, 10, GapReason.EXPIRED),
        (13, 14, GapReason.ERASED),
        (14, 18, GapReason.LOST),
        (18, 20, GapReason.ERASED),
    ]
    assert asked == {TP: [R(0, 2), R(5, 10), R(14, 18)]}


def test_explain_gaps_without_kafka() -> None:
    """Without Kafka nobody knows why, but for what windows hold; accepted isn't known either."""
    missing = {TP: [R(0, 5), R(7, 9)]}

    found = explain(missing, cluster=None, windows={TP: [R(3, 8)]}, acknowledged={TP: [R(0, 9)]})

    assert found == [
        Gap(TP, R(0, 3), GapReason.UNKNOWN),
        Gap(TP, R(3, 5), GapReason.WINDOW),
        Gap(TP, R(7, 8), GapReason.WINDOW),
        Gap(TP, R(8, 9), GapReason.UNKNOWN),
    ]


def test_explain_gaps_made_again(asked: Ranges) -> None:
    """In a topic that was made again, offsets are other records': theirs have expired."""
    found = explain({AGAIN: [R(10, 20)], TP: [R(10, 12)]}, acknowledged={AGAIN: [R(11, 12)]})

    assert found == [
        Gap(AGAIN, R(10, 11), GapReason.EXPIRED),
        Gap(AGAIN, R(11, 12), GapReason.EXPIRED, acknowledged=True),
        Gap(AGAIN, R(12, 20), GapReason.EXPIRED),
        Gap(TP, R(10, 12), GapReason.LOST),
    ]
    assert asked == {TP: [R(10, 12)]}


@pytest.mark.parametrize("reason", [GapReason.CONTROL, GapReason.COMPACTED, GapReason.LOST])
def test_explain_gaps_made_again_meanwhile(reason: GapReason, monkeypatch: Any) -> None:
    """Nor does one explain anything that is made again between two questions to Kafka."""
    there = cluster()

    def classify(asked: Any, missing: Ranges) -> list[Gap]:
        there.topic_ids = {"t": "made-again"}
        return [Gap(tp, r, reason) for tp, ranges in missing.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)

    found = explain({TP: [R(10, 20)]}, cluster=there)

    assert found == [Gap(TP, R(10, 20), GapReason.EXPIRED)]


def test_explain_gaps_were_read(asked: Ranges) -> None:
    """What Spark had read and Kafka has compacted since is harmless only with somebody's word."""
    found = explain({TP: [R(20, 30)]}, were_read={TP: [R(22, 26)]}, acknowledged={TP: [R(22, 24)]})

    assert found == [
        Gap(TP, R(20, 22), GapReason.COMPACTED),
        Gap(TP, R(22, 24), GapReason.EXPIRED, acknowledged=True),
        Gap(TP, R(24, 26), GapReason.EXPIRED),
        Gap(TP, R(26, 30), GapReason.COMPACTED),
    ]


@pytest.mark.parametrize("reason", [GapReason.ABORTED, GapReason.OPEN], ids=str)
def test_explain_gaps_uncommitted(reason: GapReason, monkeypatch: pytest.MonkeyPatch) -> None:
    """With read_uncommitted, any transaction's records are lost, so that a repair drains them.

    Not where a batch's files hold all that Spark has read, be it read with read_committed.
    """
    gap = Gap(TP, R(0, 10), reason)
    monkeypatch.setattr(gap_explanation, "classify_gaps", lambda cluster, missing: [gap])

    found = explain({TP: [R(0, 10)]}, isolation_level="read_uncommitted", complete={TP: [R(6, 12)]})

    assert found == [Gap(TP, R(0, 6), GapReason.LOST), Gap(TP, R(6, 10), reason)]


@pytest.mark.parametrize("windows", [{}, {TP: [R(0, 9)]}])
def test_explain_gaps_nothing_to_ask(windows: Ranges) -> None:
    """Where nothing is missing, or windows hold it, no cluster is asked, be it another one."""
    missing = {TP: [R(0, 9)]} if windows else {}

    assert [gap.reason for gap in explain(missing, windows=windows, cluster=cluster(id="x"))] == [
        GapReason.WINDOW
    ] * len(missing)


def test_same_topics() -> None:
    """Topics that are still there with the id that is meant; none of another cluster."""
    assert same_topics(IDENTITY, {"t", "again", "gone"}, cluster()) == {"t"}
    assert same_topics(IDENTITY, {"t", "other"}, cluster()) == {"t", "other"}
    with pytest.raises(ArchiveError, match=r"of p was drained from Kafka cluster cluster-1, .* x,"):
        same_topics(IDENTITY, {"t"}, cluster(id="x"))


def test_same_topics_rewritten() -> None:
    """A topic whose log was rewritten is counted anew by the archive, and the same to Kafka."""
    again = Identity("p", "cluster-1", {"t": "id-of-t~2", "other": "id-of-another~2"})

    assert same_topics(again, {"t", "other"}, cluster()) == {"t"}


@pytest.mark.parametrize(("end", "is_asked"), [(15, [R(12, 15)]), (12, []), (20, [R(12, 20)])])
def test_explain_gaps_later_incarnation(
    end: int, is_asked: list[OffsetRange], asked: Ranges
) -> None:
    """What Kafka has where a later incarnation goes on was never lost of an earlier one."""
    ends = {(TP, "id-of-t"): end, (TP, "id-of-t~2"): 99, (OTHER, "of another"): 0}

    found = explain({TP: [R(12, 20)], OTHER: [R(10, 11)]}, ends=ends)

    assert asked == {OTHER: [R(10, 11)]} | ({TP: is_asked} if is_asked else {})
    assert [gap for gap in found if gap.tp == TP] == [
        Gap(TP, r, reason)
        for r, reason in ((R(12, end), GapReason.LOST), (R(end, 20), GapReason.EXPIRED))
        if len(r)
    ]


@each_of("reason", list(GapReason))
@each_of("is_acknowledged", [False, True])
def test_gap_findings(reason: GapReason, is_acknowledged: bool) -> None:
    """What is accepted is a warning, what isn't harmless an error with what can be said of it."""
    found = gap_findings([Gap(TP, R(3, 7), reason, is_acknowledged)])

    if is_acknowledged:
        detail = f"[3, 7) is in no file; {reason} and acknowledged"
        assert found == [Finding(Reason.OFFSET_EXPIRED, TP, detail)]
    elif reason.harmless:
        assert found == []
    else:
        detail = f"[3, 7) is in no file; {reason}: {reason.meaning}"
        if reason in (GapReason.EXPIRED, GapReason.UNEXPLAINED):
            detail += " (--acknowledge-expired t:0:3-7)"
        is_unexplained = reason == GapReason.UNEXPLAINED
        code = Reason.OFFSET_UNEXPLAINED if is_unexplained else Reason.OFFSET_MISSING
        assert found == [Finding(code, TP, detail)]


@pytest.mark.parametrize(
    ("suspected", "where"),
    [
        (R(0, 4), "only in files that differ from what Spark read"),
        (R(6, 9), "only in files that differ from what Spark read"),
        (R(0, 3), "in no file"),
        (R(7, 9), "in no file"),
    ],
)
def test_gap_findings_suspected(suspected: OffsetRange, where: str) -> None:
    """Who is asked to accept a loss reads that files still have the records."""
    gaps = [Gap(TP, R(3, 7), GapReason.EXPIRED, accepted) for accepted in (False, True)]

    details = [each.detail for each in gap_findings(gaps, {TP: [suspected]})]

    assert [detail.partition(";")[0] for detail in details] == [f"[3, 7) is {where}"] * 2


def test_gap_findings_each() -> None:
    """Each gap has its own."""
    gaps = [Gap(TP, R(n, n + 1), GapReason.LOST) for n in range(3)]

    assert len(gap_findings([*gaps, Gap(TP, R(9, 10), GapReason.CONTROL), *gaps])) == 6
