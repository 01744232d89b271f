"""Build the receipt of a segment from its proof. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from kafka_drain.archive.receipts import (
    FILE_NOTES,
    FileSet,
    KafkaBounds,
    Receipt,
    SealedContent,
    SealedFile,
    SealedPartition,
    SealedTail,
)
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, count, overlapping
from kafka_drain.proof.offset_checks import Segment


@dataclass(frozen=True, slots=True)
class Identity:
    """The cluster and topics of the sealed offsets.

    Attributes:
        pipeline: The pipeline's name.
        cluster_id: The Kafka cluster's id.
        topics: Topic ids by topic.
    """

    pipeline: str
    cluster_id: str
    topics: Mapping[str, str]


def seal_segment(
    segment: Segment,
    files: Sequence[CommittedFile],
    gaps: Iterable[Gap],
    *,
    identity: Identity,
    generation: int,
    before: Receipt | None,
    previous: str | None,
    bounds: Mapping[TopicPartition, KafkaBounds],
    fingerprint: str | None,
    acknowledged: Sequence[str],
    sealed_at: str,
    tails: Mapping[TopicPartition, SealedTail] = MappingProxyType({}),
    epochs: Mapping[tuple[TopicPartition, int], int] = MappingProxyType({}),
) -> Receipt:
    """Build the receipt of one or more batches that were proven complete.

    Args:
        files: The committed files that hold it.
        gaps: Offsets of the segment that are in no file.
        identity: The pipeline, cluster and topics that the offsets belong to.
        generation: Number of the generation.
        before: The previous receipt in the same generation; None for its first one.
        previous: SHA-256 of the previous receipt, which may be in an earlier generation; None for
            the first.
        bounds: The offsets that Kafka holds of each partition now.
        fingerprint: Fingerprint of the segment's records.
        acknowledged: Ranges of this segment that were acknowledged as expired.
        sealed_at: The current time.
        tails: The newest archived record of partitions, for those of which neither this segment
            nor the previous receipt has one.
        epochs: The leader epochs of records, by partition and offset, as far as Kafka said.
    """
    known = {part.tp: part for part in before.partitions} if before else {}
    sealed_files = _sealed_files(files)
    files_of: dict[TopicPartition, list[FileOffsets]] = {}
    for content in (content for file in files for content in file.contents):
        files_of.setdefault(content.tp, []).append(content)
    return Receipt(
        pipeline=identity.pipeline,
        cluster_id=identity.cluster_id,
        topics=_topics(identity, segment.ranges),
        generation=generation,
        first_batch=segment.first_batch,
        last_batch=segment.last_batch,
        sealed_at=sealed_at,
        previous=previous,
        partitions=tuple(
            replace(
                part,
                tail=_tail_of(part, files_of.get(part.tp, ()), epochs)
                or (known[part.tp].tail if part.tp in known else None)
                or tails.get(part.tp),
            )
            for part in _sealed_partitions(
                sorted(segment.ranges.items()), files, gaps, bounds, known
            )
        ),
        files=sealed_files,
        files_so_far=(before.files_so_far if before else FileSet()).plus(
            (file.path, file.bytes) for file in sealed_files
        ),
        fingerprint=fingerprint,
        acknowledged=tuple(acknowledged),
    )


def seal_window(
    ranges: Sequence[tuple[TopicPartition, OffsetRange]],
    files: Sequence[CommittedFile],
    gaps: Iterable[Gap],
    *,
    identity: Identity,
    window: str,
    replaces: Sequence[str],
    fingerprint: str | None,
    sealed_at: str,
    acknowledged: Sequence[str] = (),
    provenance: Mapping[str, str] | None = None,
) -> Receipt:
    """Build the receipt of a window that was proven complete; it isn't part of a chain.

    Args:
        ranges: The drained offsets; a partition may appear more than once.
        files: The files that hold it.
        gaps: Offsets of the ranges that are in no file.
        identity: The pipeline, cluster and topics that the offsets belong to.
        window: Name of the window.
        replaces: Files that the window replaces.
        fingerprint: Fingerprint of the window's records.
        sealed_at: The current time.
        acknowledged: Ranges acknowledged as expired; not part of what was drained.
        provenance: Hashes of the receipts whose segments were rewritten, by path.
    """
    sealed_files = _sealed_files(files)
    # Offsets of a topic of which it has nothing else may be accepted, too.
    of_topics = [*(tp for tp, _ in ranges), *parse_ranges("acknowledged", acknowledged)]
    return Receipt(
        pipeline=identity.pipeline,
        cluster_id=identity.cluster_id,
        topics=_topics(identity, of_topics),
        generation=None,
        window=window,
        first_batch=0,
        last_batch=0,
        sealed_at=sealed_at,
        previous=None,
        partitions=_sealed_partitions(ranges, files, gaps, {}, {}),
        files=sealed_files,
        files_so_far=FileSet().plus((file.path, file.bytes) for file in sealed_files),
        fingerprint=fingerprint,
        acknowledged=tuple(acknowledged),
        replaces=tuple(replaces),
        provenance=provenance or {},
    )


def seal_deletion(
    gaps: Sequence[Gap],
    *,
    identity: Identity,
    window: str,
    replaces: Sequence[str],
    sealed_at: str,
) -> Receipt:
    """Build the receipt of deleted files, whose offsets are a gap from now on.

    Args:
        gaps: Gaps left by the files; each becomes a row of the receipt.
        identity: The pipeline, cluster and topics that the offsets belong to.
        window: Name of the window.
        replaces: The deleted files.
        sealed_at: The current time.
    """
    return Receipt(
        pipeline=identity.pipeline,
        cluster_id=identity.cluster_id,
        topics=_topics(identity, (gap.tp for gap in gaps)),
        generation=None,
        window=window,
        first_batch=0,
        last_batch=0,
        sealed_at=sealed_at,
        previous=None,
        partitions=tuple(
            _sealed_partition(gap.tp, gap.range, [], [gap], None, None) for gap in gaps
        ),
        files=(),
        files_so_far=FileSet(),
        replaces=tuple(replaces),
    )


def _tail_of(
    part: SealedPartition,
    contents: Iterable[FileOffsets],
    epochs: Mapping[tuple[TopicPartition, int], int],
) -> SealedTail | None:
    """Return the newest record of a segment's partition; None if its files have none."""
    newest = max(
        (content for content in contents if content.last in part.range),
        key=lambda content: content.last,
        default=None,
    )
    if newest is None:
        return None
    return SealedTail.of(newest.last, newest.last_hash, epochs.get((part.tp, newest.last)))


def _topics(identity: Identity, partitions: Iterable[TopicPartition]) -> dict[str, str]:
    names = {tp.topic for tp in partitions}
    return {name: topic_id for name, topic_id in identity.topics.items() if name in names}


def _sealed_partitions(
    ranges: Iterable[tuple[TopicPartition, OffsetRange]],
    files: Iterable[CommittedFile],
    gaps: Iterable[Gap],
    bounds: Mapping[TopicPartition, KafkaBounds],
    known: Mapping[TopicPartition, SealedPartition],
) -> tuple[SealedPartition, ...]:
    contents: dict[TopicPartition, list[FileOffsets]] = {}
    for file in files:
        for content in file.contents:
            contents.setdefault(content.tp, []).append(content)
    missing: dict[TopicPartition, list[Gap]] = {}
    for gap in gaps:
        missing.setdefault(gap.tp, []).append(gap)
    return tuple(
        _sealed_partition(
            tp, r, contents.get(tp, []), missing.get(tp, []), bounds.get(tp), known.get(tp)
        )
        for tp, r in ranges
    )


def _sealed_files(files: Iterable[CommittedFile]) -> tuple[SealedFile, ...]:
    return tuple(sorted(map(_sealed_file, files), key=lambda file: file.path))


def _sealed_file(file: CommittedFile) -> SealedFile:
    return SealedFile(
        path=file.path,
        bytes=file.bytes,
        sha256=file.sha256,
        contents=tuple(
            SealedContent.of(
                tp=content.tp,
                first=content.first,
                last=content.last,
                records=content.records,
                first_timestamp=content.first_timestamp,
                last_timestamp=content.last_timestamp,
                ascending=content.ascending,
            )
            for content in file.contents
        ),
        **{name: getattr(file, name) for name in FILE_NOTES},
    )


def _sealed_partition(
    tp: TopicPartition,
    offset_range: OffsetRange,
    contents: Iterable[FileOffsets],
    gaps: Iterable[Gap],
    bounds: KafkaBounds | None,
    before: SealedPartition | None,
) -> SealedPartition:
    held = [(content, overlapping(content.ranges, offset_range)) for content in contents]
    held = [(content, ranges) for content, ranges in held if ranges]
    records = sum(count(ranges) for _, ranges in held)
    by_reason: dict[GapReason, list[OffsetRange]] = {}
    for gap in gaps:
        if overlapping([gap.range], offset_range):
            by_reason.setdefault(gap.reason, []).append(gap.range)
    gaps_so_far = dict(before.gaps_so_far) if before else {}
    for reason, ranges in by_reason.items():
        gaps_so_far[reason] = gaps_so_far.get(reason, 0) + count(ranges)
    times = [
        time
        for content, _ in held
        for time in (content.first_timestamp, content.last_timestamp)
        if time is not None
    ]
    return SealedPartition.of(
        tp=tp,
        range=offset_range,
        records=records,
        first=min((ranges[0].start for _, ranges in held), default=None),
        last=max((ranges[-1].end - 1 for _, ranges in held), default=None),
        first_timestamp=min(times, default=None),
        last_timestamp=max(times, default=None),
        gaps={reason: tuple(sorted(ranges)) for reason, ranges in sorted(by_reason.items())},
        kafka=bounds,
        start_so_far=before.start_so_far if before else offset_range.start,
        records_so_far=records + (before.records_so_far if before else 0),
        gaps_so_far=gaps_so_far,
    )
