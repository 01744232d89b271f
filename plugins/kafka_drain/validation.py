"""Validation of an archive: manifest, checkpoint, files and offsets against each other.

Reads everything first and collects what is wrong; whether that is an error is the caller's to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kafka_drain.archive import Archive, Generation
from kafka_drain.committed_files import read_committed_files
from kafka_drain.data_files import DataFileError, read_offsets, topic_of
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason, classify_gaps
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.manifest import Manifest
from kafka_drain.offset_checks import (
    Segment,
    check_duplicates,
    check_offsets,
    missing_offsets,
    segments,
)
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping
from kafka_drain.report import Report

__all__ = ["validate_archive"]

#: Offsets that a segment read of a partition and no file holds.
Missing = tuple[Segment, TopicPartition, list[OffsetRange]]


def validate_archive(
    archive: Archive,
    cluster: KafkaCluster | None,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Validate all generations of an archive.

    Args:
        archive: The archive.
        cluster: Where the reasons of gaps are asked; without it, each gap is a finding.
        say: Takes a line of progress every two seconds.

    Raises:
        ArchiveError: When the folder is no archive, or one of another Kafka cluster.
        KafkaUnavailableError: When a gap has to be explained and Kafka doesn't answer.
    """
    began = time.monotonic()
    report = Report(archive=str(archive.root), pipeline=archive.document()["pipeline"])
    for generation in archive.generations():
        _validate_generation(archive, generation, cluster, report, say)
    report.seconds = time.monotonic() - began
    return report


def _validate_generation(
    archive: Archive,
    generation: Generation,
    cluster: KafkaCluster | None,
    report: Report,
    say: Callable[[str], None],
) -> None:
    manifest, checkpoint, findings = generation.read_state()
    file_format = generation.document()["format"]
    held, found = read_committed_files(generation, manifest, file_format, say)
    findings += found
    known = [b for b in (manifest.last_batch, checkpoint.last_commit) if b is not None]
    parts = segments(generation.starting_offsets(), checkpoint, max(known)) if known else []
    orphans = _orphans(generation, manifest)
    missing = missing_offsets(parts, held)
    findings += _truncated(generation, manifest, findings, missing, orphans, file_format)
    findings += [
        Finding(Reason.FILE_ORPHAN, path, "not in the manifest, ignored by readers")
        for path in orphans
    ]
    # A checkpoint that doesn't know the last batches can't say what they may hold.
    covered = bool(parts) and parts[-1].last_batch >= (manifest.last_batch or 0)
    findings += check_offsets(parts, held) if covered else check_duplicates(held)
    gaps = _explain(archive, missing, cluster)
    findings += _harmful(gaps)
    report.findings += findings
    report.gaps += gaps
    report.segments += parts
    report.held += held
    report.files += len(manifest.files)
    report.bytes += sum(sink_file.size for sink_file in manifest.files.values())


def _orphans(generation: Generation, manifest: Manifest) -> list[str]:
    """Return data files that the manifest doesn't list, relative to the archive."""
    if not generation.data.is_dir():
        return []
    found = []
    for path in generation.data.rglob("part-*"):
        relative = path.relative_to(generation.data).as_posix()
        if relative not in manifest.files and not relative.startswith("_spark_metadata/"):
            found.append(f"{generation.data_name}/{relative}")
    return sorted(found)


def _truncated(
    generation: Generation,
    manifest: Manifest,
    findings: Iterable[Finding],
    missing: Iterable[Missing],
    orphans: Iterable[str],
    file_format: str,
) -> list[Finding]:
    """Tell a manifest file that lost lines from batches that really wrote no more files.

    Nothing in it looks wrong when it was cut at the end of a line, or down to its header. What it
    no longer lists are orphans with offsets that no committed file holds; those that a killed or
    repeated task left hold none.
    """
    missing = list(missing)
    if not missing:
        return []
    lying = _offsets_in(generation, orphans, file_format)
    folder = f"{generation.data_name}/_spark_metadata"
    damaged = {finding.where.partition(":")[0] for finding in findings}
    unlisted: dict[str, list[str]] = {}
    for part, tp, ranges in missing:
        logs = [f"{folder}/{name}" for name in manifest.logs_of(part.first_batch, part.last_batch)]
        found = [r for wanted in ranges for r in overlapping(lying.get(tp, []), wanted)]
        if found and logs and not damaged.intersection(logs):
            where = logs[0] if len(logs) == 1 else folder
            unlisted.setdefault(where, []).append(f"{found[0]} of {tp}")
    return [
        Finding(
            Reason.MANIFEST_TRUNCATED,
            where,
            "files that it doesn't list lie in the sink; they hold offsets that no other file "
            f"holds, such as {', '.join(held[:3])}",
        )
        for where, held in unlisted.items()
    ]


def _offsets_in(
    generation: Generation, orphans: Iterable[str], file_format: str
) -> dict[TopicPartition, list[OffsetRange]]:
    seen: dict[TopicPartition, list[OffsetRange]] = {}
    for orphan in orphans:
        try:
            for offsets in read_offsets(generation.root / orphan, file_format, topic_of(orphan)):
                tp = TopicPartition(offsets.topic, offsets.partition)
                seen.setdefault(tp, []).extend(offsets.ranges)
        except (DataFileError, FileNotFoundError):
            # A killed task's torn file, or one that Spark just removed; nothing depends on it.
            continue
    return {tp: merge(ranges) for tp, ranges in seen.items()}


def _explain(
    archive: Archive, missing: Iterable[Missing], cluster: KafkaCluster | None
) -> list[Gap]:
    by_partition: dict[TopicPartition, list[OffsetRange]] = {}
    for _, tp, ranges in missing:
        by_partition.setdefault(tp, []).extend(ranges)
    if not by_partition:
        return []
    whole = {tp: merge(ranges) for tp, ranges in by_partition.items()}
    if cluster is None:
        return [Gap(tp, r, GapReason.UNKNOWN) for tp, ranges in whole.items() for r in ranges]
    same = _topics_that_are_the_same(archive, {tp.topic for tp in whole}, cluster)
    return [
        *(
            Gap(tp, r, GapReason.EXPIRED)
            for tp, ranges in whole.items()
            for r in ranges
            if tp.topic not in same
        ),
        *classify_gaps(cluster, {tp: rs for tp, rs in whole.items() if tp.topic in same}),
    ]


def _topics_that_are_the_same(archive: Archive, names: set[str], cluster: KafkaCluster) -> set[str]:
    """Return the topics whose offsets still mean what they meant when they were drained.

    In a topic that was made again, an offset is another record's: the answer would be wrong.

    Raises:
        ArchiveError: When the cluster is another.
    """
    document = archive.document()
    cluster_id = cluster.cluster_id()
    if document["cluster_id"] != cluster_id:
        raise ArchiveError(
            f"{archive.root} was drained from Kafka cluster {document['cluster_id']}, the "
            f"connection leads to cluster {cluster_id}, which can't tell why offsets are missing; "
            "correct the connection"
        )
    # The list leaves out internal topics, which aren't made again.
    listed = {name for name in names if name.startswith("__")}.union(cluster.topic_names())
    there = cluster.topics(names & listed)
    return {name for name, topic in there.items() if topic.id == document["topics"].get(name)}


def _harmful(gaps: Iterable[Gap]) -> list[Finding]:
    return [
        Finding(
            Reason.OFFSET_MISSING,
            str(gap.tp),
            f"{gap.range} is in no file; {gap.reason}: {gap.reason.meaning}",
        )
        for gap in gaps
        if not gap.reason.harmless
    ]
