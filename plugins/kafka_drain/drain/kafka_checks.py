"""Checks of Kafka before a drain: offsets that are gone, can't be read yet, or expire soon."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType

from upath import UPath

from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.watermarks import Observations
from kafka_drain.config.offset_ranges import ACKNOWLEDGE_FLAG, range_name
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.schedules import interval_seconds
from kafka_drain.errors import DataLossError, OpenTransactionError
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.cluster import KafkaCluster, Topic
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, Offsets, Ranges, TopicPartition, overlapping, subtract
from kafka_drain.progress import duration_text
from kafka_drain.proof.gap_probe import classify_gaps
from kafka_drain.proof.log_tails import (
    Tails,
    compare_sealed,
    compare_with_logs,
    first_difference,
)
from kafka_drain.proof.rewritten_log import NAMED, rewritten_text
from kafka_drain.storage.paths import quoted

Classify = Callable[[KafkaCluster, dict[TopicPartition, list[OffsetRange]]], list[Gap]]

#: Number of partitions sampled to detect transactional topics.
SAMPLED = 20


def refuse_truncated(root: UPath, start: Offsets, end: Offsets, hidden: Offsets) -> None:
    """Refuse a log that ends before the cursor.

    Args:
        start: The cursor.
        end: The drain's end offsets.
        hidden: Number of offsets behind an open transaction.

    Raises:
        DataLossError: When the log itself is shorter than what was drained; names each partition.
        OpenTransactionError: When the cursor, typically of a first drain, is beyond the start of an
            open transaction: Spark would mistake that for data loss.
    """
    before = [tp for tp in start if end[tp] < start[tp]]
    truncated = [tp for tp in before if end[tp] + hidden.get(tp, 0) < start[tp]]
    if before and not truncated:
        shown = ", ".join(
            f"{tp} is readable up to {end[tp]}, drained from {start[tp]}" for tp in before
        )
        raise OpenTransactionError(
            f"an open transaction started before the cursor: {shown}. A drain can start once the "
            "transaction has ended; find its producer, or abort it with kafka-transactions.sh"
        )
    if truncated:
        shown = ", ".join(f"{tp} ends at {end[tp]}, drained up to {start[tp]}" for tp in truncated)
        raise DataLossError(
            f"Kafka's log is shorter than what was drained: {shown}. Kafka has lost records "
            "(possibly in an unclean leader election), and new records reuse their offsets. "
            f"{way_on(root)}"
        )


def refuse_unfinishable(root: UPath, planned: Offsets, end: Offsets, hidden: Offsets) -> None:
    """Refuse a log that ends before a batch that was planned, and not finished: it keeps its end.

    Args:
        planned: The batch's end offsets.
        end: The drain's end offsets.
        hidden: Number of offsets behind an open transaction.

    Raises:
        DataLossError: Names each partition, and the way on.
    """
    short = {tp: at for tp, at in planned.items() if end.get(tp, at) + hidden.get(tp, 0) < at}
    if short:
        shown = ", ".join(
            f"{tp} ends at {end[tp]}, to be read up to {at}" for tp, at in short.items()
        )
        raise DataLossError(
            f"Kafka's log is shorter than when a drain was stopped in a batch: {shown}. Kafka has "
            "lost records (possibly in an unclean leader election), and Spark would wait for them. "
            f"What is archived stays; to go on with what Kafka has, {way_past_batch(root)}"
        )


def way_past_batch(root: UPath) -> str:
    """Return the advice for leaving a batch that was planned, and can't be finished."""
    place = quoted(root)
    return (
        f"run `kafka-drain validate {place}`, then `kafka-drain roll {place}`: the next generation "
        "starts where the sealed batches end"
    )


def refuse_rewritten(
    snapshot: Snapshot,
    cluster: KafkaCluster,
    sealed: Tails,
    first: Offsets,
    end: Offsets,
    unsealed: Tails = MappingProxyType({}),
    files: Sequence[SinkFile] = (),
) -> list[str]:
    """Refuse a log whose archived end has other records now than the archive.

    Args:
        snapshot: The archive.
        cluster: The cluster to drain from.
        sealed: The newest sealed records.
        first: The first offset that Kafka has.
        end: The high watermark.
        unsealed: The newest records that aren't sealed yet.
        files: The files that have them.

    Returns:
        Warnings about tails that couldn't be compared.

    Raises:
        DataLossError: Names the partitions, their first rewritten offset, and the way on.
    """
    lines: list[str] = []
    compare_unsealed = partial(compare_with_logs, unsealed=files)
    for some, compare in ((sealed, compare_sealed), (unsealed, compare_unsealed)):
        compared = compare(snapshot, cluster, some, first, end)
        if compared.rewritten:
            begins = {
                tp: first_difference(snapshot, cluster, tp, some.get(tp), compared)
                for tp in sorted(compared.rewritten)[:NAMED]
            }
            raise DataLossError(
                "Kafka's log was rewritten after it was drained: "
                f"{rewritten_text(begins, compared.rewritten)}. Kafka has lost records, such as in "
                "an unclean leader election or with a disk restored from a snapshot, and has given "
                "their offsets to others, which this archive would miss. Nothing was drained, and "
                f"what is archived stays. {way_on(snapshot.root)}"
            )
        lines += compared.not_compared()
    return lines


def unread_files(root: UPath, paths: Sequence[str]) -> list[str]:
    """Name the files without a receipt that couldn't be read to be compared with Kafka's log."""
    if not paths:
        return []
    return [
        f"{len(paths):,} files that aren't sealed can't be read, such as {min(paths)}: they aren't "
        f"compared with Kafka's records; see `kafka-drain validate {quoted(root)}`"
    ]


def way_on(root: UPath) -> str:
    """Return the advice for archiving a rewritten log's records beside the archived ones."""
    return (
        f"To archive what Kafka has now beside it, run `kafka-drain roll {quoted(root)} "
        "--rewritten`: the next generation starts at the first offset that has another record now"
    )


def refuse_expired(
    pipeline: Pipeline, start: Offsets, first: Offsets, accepted: Ranges
) -> list[str]:
    """Refuse a cursor whose next offsets have expired, unless these were acknowledged.

    Returns:
        A warning for what is skipped.

    Raises:
        DataLossError: Names the offsets, and how to acknowledge exactly these.
    """
    expired = {
        tp: OffsetRange(start[tp], first[tp]) for tp in sorted(start) if first[tp] > start[tp]
    }
    if not expired:
        return []
    shown = ", ".join(f"{tp} {r}" for tp, r in expired.items())
    lost = f"Kafka no longer holds offsets that haven't been drained yet: {shown}"
    open_ranges = {
        tp: r for tp, r in expired.items() if subtract(r, overlapping(accepted.get(tp, []), r))
    }
    if not open_ranges:
        return [f"{lost}; acknowledged"]
    if str(pipeline.source_options.get("failOnDataLoss", "true")) != "true":
        return [lost]
    names = " ".join(f"{ACKNOWLEDGE_FLAG} {range_name(tp, r)}" for tp, r in open_ranges.items())
    raise DataLossError(
        f"{lost}; retention has passed the cursor, and their records are lost unless another copy "
        "has them. To continue without them, acknowledge them: in the DAG's form under "
        f'"Acknowledge expired", or on the command line: {names}'
    )


def readable_offsets(
    pipeline: Pipeline, cluster: KafkaCluster, partitions: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return a drain's end offsets, and each partition's number of offsets behind a transaction."""
    if pipeline.isolation_level != "read_committed":
        return cluster.latest(partitions, pipeline.isolation_level), {}
    # Asked first, so that records arriving between the two requests don't look as if they were
    # behind an open transaction.
    high_watermarks = cluster.latest(partitions, "read_uncommitted")
    end = cluster.latest(partitions, pipeline.isolation_level)
    return end, {tp: high_watermarks[tp] - end[tp] for tp in end if high_watermarks[tp] > end[tp]}


def hidden_warnings(
    hidden: Offsets, end: Offsets, observed: Observations, now: datetime
) -> list[str]:
    """Warn of offsets behind open transactions, especially if open for longer than permitted."""
    if not hidden:
        return []
    shown = ", ".join(f"{tp} {n:,}" for tp, n in sorted(hidden.items()))
    warnings = [
        f"{sum(hidden.values()):,} offsets are in or after an open transaction and are left for "
        f"a later drain: {shown}"
    ]
    stalled = [
        str(tp)
        for tp in sorted(hidden)
        if (seen := observed.get(tp)) and seen.stands_still_at(end[tp], now.timestamp())
    ]
    if stalled:
        warnings.append(
            f"STALLED: {', '.join(stalled)} hasn't advanced since the last run, for longer than a "
            "transaction may last; a producer left a transaction open"
        )
    return warnings


def isolation_warnings(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    start: Offsets,
    end: Offsets,
    classify: Classify = classify_gaps,
) -> list[str]:
    """Warn of read_uncommitted on a topic with transactions.

    The last offset of such a partition is a transaction marker or belongs to an open transaction: a
    read_committed consumer finds no record there.
    """
    if pipeline.isolation_level == "read_committed":
        return []
    last = {
        tp: [OffsetRange(end[tp] - 1, end[tp])]
        for tp in sorted(end)[:SAMPLED]
        if end[tp] > start.get(tp, 0)
    }
    signs = (GapReason.CONTROL, GapReason.ABORTED, GapReason.OPEN)
    topics = {gap.tp.topic for gap in classify(cluster, last) if gap.reason in signs}
    if not topics:
        return []
    return [
        f"kafka.isolation.level is read_uncommitted and {', '.join(sorted(topics))} has "
        "transactions: the archive will contain records of aborted and open transactions; leave "
        "the option out to drain only committed records"
    ]


def retention_warnings(
    pipeline: Pipeline, cluster: KafkaCluster, topics: Mapping[str, Topic], now: datetime
) -> list[str]:
    """Warn of topics whose retention is shorter than the time between two drains."""
    interval = interval_seconds(pipeline.schedule, now)
    if interval is None:
        return []
    warnings = []
    for name in sorted(topics):
        config = cluster.topic_config(name)
        keeps = int(config.get("retention.ms", -1)) / 1000
        if "delete" in config.get("cleanup.policy", "delete") and 0 <= keeps < interval:
            warnings.append(
                f"EXPIRING: topic {name} keeps records for {duration_text(keeps)} (retention.ms), "
                f"but is drained every {duration_text(interval)}; drain more often or raise "
                "retention.ms"
            )
    return warnings
