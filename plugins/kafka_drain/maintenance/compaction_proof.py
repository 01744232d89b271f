"""Decide whether a compaction's files hold what the files they replace hold.

Plain arithmetic; opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kafka_drain.archive.receipts import Receipt
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.maintenance.compaction_plan import known_gaps, split_gaps
from kafka_drain.offsets import OffsetRange, TopicPartition, count
from kafka_drain.proof.offset_checks import without_held
from kafka_drain.windows.rewrite_groups import FileGroup


@dataclass(frozen=True)
class CompactionProof:
    """The result of checking a compaction's files.

    Attributes:
        gaps: Offsets that they don't hold, with the reasons that older receipts have sealed.
        findings: Differences; if there are any, nothing is sealed.
        is_compared: Whether the records were compared with what Spark read from Kafka. If not,
            only the old files' own hashes can prove that they are what was sealed.
    """

    gaps: list[Gap]
    findings: list[Finding]
    is_compared: bool


def prove_compaction(
    name: str,
    group: FileGroup,
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
    files: Sequence[CommittedFile],
    fingerprint: str,
    deletions: Iterable[Receipt] = (),
    erased: Mapping[TopicPartition, Sequence[OffsetRange]] = MappingProxyType({}),
) -> CompactionProof:
    """Compare a compaction's files with the receipts of the segments they replace.

    Each offset of the segments must be in a new file or in a gap that was sealed before. The new
    files must hold the same number of records of each partition as the old files, and their
    fingerprint must be the one that Spark computed when it read them from Kafka, if it did. An
    erasure's files hold none of the erased records, and all others: each erased record is one that
    the old files held, and its fingerprint combines with that of the others to the same one.

    Args:
        name: The window, for the findings.
        group: The group of segments that was compacted.
        ranges: The window's offsets, sorted and disjoint for each partition.
        files: The new files.
        fingerprint: The fingerprint of their records, combined with that of erased ones.
        deletions: Receipts of what retention has deleted, of topics with the same ids.
        erased: The offsets of the records that are erased, sorted and disjoint.
    """
    absent = without_held(ranges, files)
    gone, rest = split_gaps(absent, {tp: {GapReason.ERASED: rs} for tp, rs in erased.items()})
    gaps, lost = split_gaps(rest, known_gaps([*group.receipts, *deletions]))
    findings = []
    records: dict[TopicPartition, int] = {}
    for file in files:
        for content in file.contents:
            records[content.tp] = records.get(content.tp, 0) + content.records
    for tp in sorted({*records, *group.records}):
        new, old = records.get(tp, 0), group.records.get(tp, 0)
        going = count(erased.get(tp, ()))
        if new + going != old:
            detail = f"holds {new:,} records, the old files held {old:,}"
            detail += f", of which {going:,} were to be erased" if going else ""
            findings.append(Finding(Reason.CONTENT_CHANGED, f"{name} {tp}", detail))
    for tp, missing in lost.items():
        detail = f"{', '.join(map(str, missing[:3]))} is in no new file, and wasn't a gap before"
        findings.append(Finding(Reason.OFFSET_MISSING, tp, detail))
    sealed = sealed_fingerprint(group.receipts, sum(group.records.values()))
    if sealed is not None and fingerprint != sealed:
        detail = f"its records have fingerprint {fingerprint}, Spark read {sealed}"
        findings.append(Finding(Reason.CONTENT_CHANGED, name, detail))
    return CompactionProof([*gone, *gaps], findings, is_compared=sealed is not None)


def sealed_fingerprint(receipts: Iterable[Receipt], records: int) -> str | None:
    """Return the combined fingerprint of segments; None if it isn't known for exactly these.

    Args:
        receipts: The segments' receipts.
        records: Number of their records that readers get; fewer if retention has deleted some.
    """
    value = held = 0
    for receipt in receipts:
        if receipt.fingerprint is None or _is_repaired(receipt):
            return None
        value ^= int(receipt.fingerprint, 16)
        held += receipt.records
    return f"{value:016x}" if held == records else None


def _is_repaired(receipt: Receipt) -> bool:
    """Whether a window already held part of a segment when it was sealed."""
    return any(part.gaps.get(GapReason.WINDOW) for part in receipt.partitions)
