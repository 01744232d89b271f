"""Find the reason for each missing offset: a window, an erasure, or Kafka's answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from kafka_drain.archive.incarnations import LogEnds
from kafka_drain.config.offset_ranges import ACKNOWLEDGE_FLAG, range_name
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import EMPTY, Gap, GapReason
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import is_other_cluster
from kafka_drain.offsets import OffsetRange, Offsets, Ranges, TopicPartition, overlapping, without
from kafka_drain.proof.gap_probe import classify_gaps
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.topic_ids import topic_ids_now

#: Whether Kafka compacted a topic, by topic, when the offsets were read; unknown for others.
Compacted = Mapping[str, bool]

_NOTHING: Ranges = MappingProxyType({})
_UNKNOWN: Compacted = MappingProxyType({})
_NOWHERE: Offsets = MappingProxyType({})
_NO_ENDS: LogEnds = MappingProxyType({})


def explain_gaps(
    missing: Ranges,
    *,
    identity: Identity,
    cluster: KafkaCluster | None,
    windows: Ranges,
    acknowledged: Ranges,
    were_read: Ranges = _NOTHING,
    erased: Ranges = _NOTHING,
    compacted: Compacted = _UNKNOWN,
    uncompacted: Offsets = _NOWHERE,
    compacted_until: Offsets = _NOWHERE,
    ends: LogEnds = _NO_ENDS,
    isolation_level: str = "read_committed",
    complete: Ranges = _NOTHING,
) -> list[Gap]:
    """Determine why offsets are missing.

    Args:
        missing: Missing offsets by partition, sorted and disjoint.
        identity: The pipeline, cluster and topics that the offsets belong to.
        cluster: The cluster to ask; None to classify the offsets as unknown instead.
        windows: Offsets in the archive's windows.
        acknowledged: Offsets acknowledged as gone.
        were_read: Offsets of records that Spark has read: one that Kafka no longer has counts as
            expired, whatever it does to the topic.
        erased: Offsets whose records were erased on request, whether or not Kafka still has them.
        compacted: Whether Kafka compacted the topics then; today's setting counts for others.
        uncompacted: Offsets below which partitions were read before Kafka compacted their topics.
        compacted_until: Offsets from which on today's setting counts, whatever it was before.
        ends: Ends up to which the logs have offsets of these topics: the rest is expired, and what
            Kafka has at these offsets belongs to later incarnations.
        isolation_level: How drains read: with `read_uncommitted`, records of aborted and of open
            transactions are lost like any others.
        complete: Offsets of batches whose files hold all that Spark read, however that was.

    Raises:
        ArchiveError: When it is a different cluster.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    gaps: list[Gap] = []
    asked: dict[TopicPartition, list[OffsetRange]] = {}
    for tp, ranges in missing.items():
        left = ranges
        for reason, known in ((GapReason.WINDOW, windows), (GapReason.ERASED, erased)):
            rest = without(left, known.get(tp, []))
            gaps += [Gap(tp, r, reason) for r in without(left, rest)]
            left = rest
        if left:
            asked[tp] = [*left]
    if not asked:
        return gaps
    if cluster is None:
        return gaps + [Gap(tp, r, GapReason.UNKNOWN) for tp, rs in asked.items() for r in rs]
    same = same_topics(identity, {tp.topic for tp in asked}, cluster)
    there: dict[TopicPartition, list[OffsetRange]] = {}
    for tp in [tp for tp in asked if tp.topic in same]:
        end = ends.get((tp, identity.topics[tp.topic]), sys.maxsize)
        there[tp] = without(asked[tp], [OffsetRange(end, sys.maxsize)])
    found = [
        Gap(tp, r, GapReason.EXPIRED) for tp in asked for r in without(asked[tp], there.get(tp, ()))
    ]
    if asked_of_kafka := {tp: rs for tp, rs in there.items() if rs}:
        answers = classify_gaps(cluster, asked_of_kafka)
        # Before and after, as ids never come back: one made again meanwhile has other records.
        same = same_topics(identity, same, cluster)
        found += [
            gap if gap.tp.topic in same else replace(gap, reason=GapReason.EXPIRED)
            for gap in answers
        ]
    if isolation_level == "read_uncommitted":
        found = [part for whole in found for part in _as_uncommitted(whole, complete)]
    for gap in (part for whole in found for part in split_read(whole, were_read)):
        for part in as_of_then(gap, compacted, uncompacted, compacted_until):
            gaps += _accepted(part, acknowledged) if part.reason in GONE else [part]
    return gaps


#: Reasons that only the operator's word makes harmless.
GONE = (GapReason.EXPIRED, GapReason.UNEXPLAINED)
#: Reasons of offsets at which Kafka has nothing, by whether it compacts the topic.
_ABSENT = {True: GapReason.COMPACTED, False: GapReason.UNEXPLAINED}


def as_of_then(
    gap: Gap,
    compacted: Compacted,
    uncompacted: Offsets = _NOWHERE,
    compacted_until: Offsets = _NOWHERE,
) -> list[Gap]:
    """Return a gap with the reason that it had when its offsets were read, which may split it.

    Compaction that was switched on since explains nothing, and one that was switched off still
    does, but not what was written after it.
    """
    then = compacted.get(gap.tp.topic)
    if then is None or gap.reason not in _ABSENT.values():
        return [gap]
    after = without([gap.range], [OffsetRange(0, uncompacted.get(gap.tp, 0))])
    until = compacted_until.get(gap.tp, sys.maxsize) if then else sys.maxsize
    during = without(after, [OffsetRange(until, sys.maxsize)])
    return [
        *(replace(gap, range=r, reason=_ABSENT[False]) for r in without([gap.range], after)),
        *(replace(gap, range=r, reason=_ABSENT[then]) for r in during),
        *(replace(gap, range=r) for r in without(after, during)),
    ]


def _as_uncommitted(gap: Gap, complete: Ranges) -> list[Gap]:
    """Split a gap into offsets that a drain with `read_uncommitted` should have, and the rest."""
    if gap.reason not in (GapReason.ABORTED, GapReason.OPEN):
        return [gap]
    lost = without([gap.range], complete.get(gap.tp, []))
    return [
        *(replace(gap, range=r, reason=GapReason.LOST) for r in lost),
        *(replace(gap, range=r) for r in without([gap.range], lost)),
    ]


def split_read(gap: Gap, were_read: Ranges) -> list[Gap]:
    """Split a gap without a record into offsets of records that Spark has read, and the rest.

    A transaction marker in a record's place is another log's: this one was rewritten since.
    """
    if gap.reason not in (*EMPTY, GapReason.UNEXPLAINED):
        return [gap]
    rest = without([gap.range], were_read.get(gap.tp, []))
    return [
        *(replace(gap, range=r, reason=GapReason.EXPIRED) for r in without([gap.range], rest)),
        *(replace(gap, range=r) for r in rest),
    ]


def _accepted(gap: Gap, acknowledged: Ranges) -> list[Gap]:
    """Split a gap into acknowledged offsets and the rest."""
    rest = without([gap.range], acknowledged.get(gap.tp, []))
    accepted = without([gap.range], rest)
    return [
        *(replace(gap, range=r, acknowledged=True) for r in accepted),
        *(replace(gap, range=r) for r in rest),
    ]


def same_topics(identity: Identity, names: set[str], cluster: KafkaCluster) -> set[str]:
    """Return the topics whose offsets still refer to the records that were drained.

    In a recreated topic, an offset belongs to a different record: the answer would be wrong.

    Raises:
        ArchiveError: When it is a different cluster.
    """
    cluster_id = cluster.cluster_id()
    if is_other_cluster(identity.cluster_id, cluster_id):
        raise ArchiveError(
            f"the archive of {identity.pipeline} was drained from Kafka cluster "
            f"{identity.cluster_id}, but the connection leads to cluster {cluster_id}, which can't "
            "explain missing offsets; correct the connection"
        )
    there = topic_ids_now(cluster.counting(identity.topics), names)
    return {name for name, topic_id in there.items() if topic_id == identity.topics.get(name)}


def gap_findings(gaps: Iterable[Gap], suspected: Ranges = _NOTHING) -> list[Finding]:
    """Return a finding for each gap that isn't harmless or had to be acknowledged.

    Args:
        suspected: Offsets of files that are there, but differ from what Spark read.
    """
    findings = []
    for gap in gaps:
        where = "in no file"
        if any(overlapping(suspected.get(gap.tp, []), gap.range)):
            where = "only in files that differ from what Spark read"
        if gap.acknowledged:
            detail = f"{gap.range} is {where}; {gap.reason} and acknowledged"
            findings.append(Finding(Reason.OFFSET_EXPIRED, gap.tp, detail))
        elif not gap.reason.harmless:
            detail = f"{gap.range} is {where}; {gap.reason}: {gap.reason.meaning}"
            if gap.reason in GONE:
                detail += f" ({ACKNOWLEDGE_FLAG} {range_name(gap.tp, gap.range)})"
            is_unexplained = gap.reason == GapReason.UNEXPLAINED
            reason = Reason.OFFSET_UNEXPLAINED if is_unexplained else Reason.OFFSET_MISSING
            findings.append(Finding(reason, gap.tp, detail))
    return findings
