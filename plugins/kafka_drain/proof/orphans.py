"""Data files missing from the manifest: leftovers of killed tasks or of a truncated manifest."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_drain.archive.generation import Generation
from kafka_drain.errors import DataFileError
from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log.manifest import KnownDamage, Manifest
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping
from kafka_drain.proof.offset_checks import Segment


def unlisted_files(
    generation: Generation,
    manifest: Manifest,
    findings: Iterable[Finding],
    missing: Iterable[tuple[Segment, TopicPartition, list[OffsetRange]]],
    orphans: Iterable[str],
    file_format: str,
) -> list[Finding]:
    """Find manifest files that lost lines, as opposed to batches that wrote no more files.

    A manifest file that was truncated at the end of a line, or to its header, looks valid. The
    files it no longer lists are orphans with offsets that no committed file holds. Orphans left by
    killed or repeated tasks hold no such offsets, unless Kafka deleted their records before the
    batch was retried. A manifest file that matches its checksum lost nothing, and batches with a
    receipt don't need this heuristic.
    """
    missing = list(missing)
    if not missing:
        return []
    lying = _offsets_in(generation, orphans, file_format)
    folder = f"{generation.data_name}/_spark_metadata"
    known = KnownDamage.of(findings)
    unlisted: dict[str, list[str]] = {}
    for part, tp, ranges in missing:
        logs = [f"{folder}/{name}" for name in manifest.logs_of(part.first_batch, part.last_batch)]
        found = [r for wanted in ranges for r in overlapping(lying.get(tp, []), wanted)]
        if not found or known.damaged.intersection(logs):
            continue
        cut = [log for log in logs if not generation.is_as_spark_wrote(log.rpartition("/")[2])]
        if cut:
            unlisted.setdefault(known.blame(cut, folder), []).append(f"{found[0]} of {tp}")
    return [
        Finding(
            Reason.MANIFEST_TRUNCATED,
            where,
            "the sink has files that it doesn't list; they hold offsets that no other file "
            f"holds, such as {', '.join(held[:3])}",
        )
        for where, held in unlisted.items()
    ]


def _offsets_in(
    generation: Generation, orphans: Iterable[str], file_format: str
) -> dict[TopicPartition, list[OffsetRange]]:
    # Not at the top: few validations need pyarrow, and importing it takes longer than they do.
    from kafka_drain.data_files.reader import read_offsets, topic_of

    seen: dict[TopicPartition, list[OffsetRange]] = {}
    for orphan in orphans:
        try:
            for offsets in read_offsets(generation.root / orphan, file_format, topic_of(orphan)):
                seen.setdefault(offsets.tp, []).extend(offsets.ranges)
        except (DataFileError, FileNotFoundError):
            # A killed task's partial file, or one that Spark has just removed; nothing needs it.
            continue
    return {tp: merge(ranges) for tp, ranges in seen.items()}
