"""Where a partition goes on behind windows that hold what follows its sealed end."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_drain.archive.incarnations import log_ends
from kafka_drain.archive.snapshot import Snapshot, SnapshotWindow
from kafka_drain.archive.soundness import SealedState
from kafka_drain.findings import Finding
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.gap_explanation import explain_gaps
from kafka_drain.proof.sealing import Identity


def past_windows(
    snapshot: Snapshot,
    windows: Iterable[SnapshotWindow],
    cluster: KafkaCluster,
    tp: TopicPartition,
    at: int,
    topic_id: str,
) -> int:
    """Return where the windows end that go on from an offset: repairs drained what isn't sealed.

    Offsets before and between them at which Kafka has no records, such as those of markers, are
    passed.

    Args:
        windows: The sealed windows that stay.
        topic_id: The topic's incarnation.
    """
    # Of earlier incarnations of its topic, what its log still has.
    log = log_ends(snapshot, {tp.topic: topic_id}, [tp])
    held = sorted(
        OffsetRange(part.range.start, min(part.range.end, end))
        for window in windows
        for part in window.receipt.partitions
        if part.tp == tp
        and part.range.start < (end := log.get((tp, window.receipt.topics.get(tp.topic, "")), 0))
    )
    first = cluster.earliest([tp])[tp] if held else 0
    for part in held:
        # What Kafka no longer has isn't drained either.
        hole = OffsetRange(min(max(at, first), part.start), part.start)
        if part.end > at and (not hole or _is_empty(snapshot, cluster, tp, hole, topic_id)):
            at = part.end
    return at


def findings_before_drain(sealed: SealedState, cluster: KafkaCluster) -> list[Finding]:
    """Return an archive's findings, without holes before a generation that Kafka explains.

    A roll that passed windows leaves a hole where a marker is; the next validation notes it.
    """
    if not sealed.holes:
        return sealed.findings
    cluster = cluster.counting(sealed.snapshot.topics_now)
    explained = [
        hole.finding()
        for hole in sealed.holes
        if _is_empty(sealed.snapshot, cluster, hole.tp, hole.range, hole.topic_id)
    ]
    return [finding for finding in sealed.findings if finding not in explained]


def _is_empty(
    snapshot: Snapshot, cluster: KafkaCluster, tp: TopicPartition, span: OffsetRange, topic_id: str
) -> bool:
    """Return whether Kafka has no records at some offsets of a topic's incarnation."""
    document = snapshot.document
    gaps = explain_gaps(
        {tp: [span]},
        identity=Identity(document.pipeline, document.cluster_id, {tp.topic: topic_id}),
        cluster=cluster,
        windows={},
        acknowledged={},
        isolation_level=document.isolation_level,
    )
    return all(gap.harmless for gap in gaps)
