"""Decide by the evidence on a generation: findings, and receipts to write. Opens nothing.

A validation reads, thinks and writes, in this order. `examine` says what is missing, so that Kafka
can be asked for the reason; `prove` takes all answers and decides what is sealed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from kafka_drain.archive.format import Sealed
from kafka_drain.archive.receipts import KafkaBounds, Receipt, SealedTail
from kafka_drain.archive.segment_overlaps import OffsetClaim, find_overlaps
from kafka_drain.config.offset_ranges import range_name
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.findings import Finding, Reason, errors
from kafka_drain.gaps import GapReason
from kafka_drain.metadata_log.checkpoint import Checkpoint
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.offset_checks import (
    Segment,
    check_duplicates,
    check_offsets,
    missing_offsets,
    segments,
)
from kafka_drain.proof.sealing import Identity, seal_segment
from kafka_drain.proof.segment_proof import CheckedSegment, provable
from kafka_drain.proof.topic_incarnations import made_again, other_incarnations
from kafka_drain.storage.sealed_json import SealedName


@dataclass(frozen=True, slots=True)
class Drained:
    """The unsealed batches according to a generation's manifest and checkpoint.

    Attributes:
        start: Start of the first unsealed batch: next offset by partition.
        first_batch: The first unsealed batch id.
        last_committed: Highest committed batch id; below `first_batch` when everything is sealed.
        last_listed: Highest batch id that the manifest lists; None for none.
        checkpoint: End offsets of each batch.
    """

    start: Mapping[TopicPartition, int]
    first_batch: int
    last_committed: int
    last_listed: int | None
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Examined:
    """The contents of a generation's unsealed files, compared with the drained offsets.

    Attributes:
        parts: The unsealed segments, oldest first.
        missing: Offsets that a segment read and no file holds.
        findings: Offsets that are there twice, or that nobody read.
    """

    parts: Sequence[Segment]
    missing: Sequence[tuple[Segment, TopicPartition, list[OffsetRange]]]
    findings: Sequence[Finding]


def examine(drained: Drained, files: Sequence[CommittedFile]) -> Examined:
    """Compare the offsets that unsealed files hold with those that were drained.

    Args:
        files: The readable committed files, without those that a window replaces.
    """
    parts = segments(drained.start, drained.checkpoint, drained.last_committed, drained.first_batch)
    # A checkpoint that doesn't know the last batches can't say which offsets they may hold.
    is_covered = bool(parts) and parts[-1].last_batch >= (drained.last_listed or 0)
    findings = check_offsets(parts, files) if is_covered else check_duplicates(files)
    return Examined(parts, missing_offsets(parts, files), findings)


def damaged_batches(
    findings: Iterable[Finding], batch_of: Mapping[str | TopicPartition, int | None]
) -> set[int | None]:
    """Return the batches whose files have an error; None for an error that isn't of one file.

    Args:
        findings: Findings about the files of unsealed batches.
        batch_of: The batch of each file, by path relative to the archive; None if unknown.
    """
    return {batch_of.get(finding.subject) for finding in errors(findings)}


@dataclass(frozen=True, slots=True)
class Blockers:
    """Reasons why nothing of a generation may be sealed, whatever its segments hold.

    Attributes:
        kafka_not_asked: There was no cluster that could explain the gaps.
        state: Errors of the manifest, the checkpoint or the newest receipt.
        broken_chain: A receipt is missing, damaged or was exchanged.
        journal: Something that the journal names as sealed is missing or changed.
        rewritten: Kafka has other records than the archive where the sealed ones end: the unsealed
            ones may be of another log.
    """

    kafka_not_asked: bool = False
    state: bool = False
    broken_chain: bool = False
    journal: bool = False
    rewritten: bool = False

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that decides which segments of a generation are sealed.

    Attributes:
        generation: Number of the generation.
        name: Its folder, relative to the archive.
        identity: Pipeline, cluster and topic ids of the archive.
        checked: The unsealed segments with their files and explained gaps, oldest first.
        agreeing: Last batches of the segments whose records are those that Spark read.
        fingerprints: For the receipts, by last batch; None where it is unknown.
        read_up_to: The last batch after which a drain asked for topic ids again; -1 for none.
        ids_after_read: The topic ids that this drain saw, by topic.
        ids_now: The topic ids of the existing topics.
        claims: Offsets in the sealed segments.
        bounds: Kafka's current bounds of each partition.
        before: The newest receipt of the generation; None for none.
        previous: The SHA-256 that the next receipt continues; None for the archive's first.
        journal: Number of entries in the journal.
        cluster: The newest description of the cluster; None for none.
        described: Whether that holds as of now.
        schemas: The newest seal of schemas; None for none.
        sealed_at: The time, ISO 8601.
        tails: The newest sealed record of each partition, as far as it is known.
        epochs: The leader epochs of records, by partition and offset, as far as Kafka said.
        blockers: Reasons to seal nothing.
    """

    generation: int
    name: str
    identity: Identity
    checked: Sequence[CheckedSegment]
    agreeing: Collection[int]
    fingerprints: Mapping[int, str | None]
    read_up_to: int
    ids_after_read: Mapping[str, str]
    ids_now: Mapping[str, str]
    claims: Sequence[OffsetClaim]
    bounds: Mapping[TopicPartition, KafkaBounds]
    before: Receipt | None
    previous: str | None
    journal: int
    sealed_at: str
    cluster: SealedName | None = None
    described: bool = True
    schemas: SealedName | None = None
    tails: Mapping[TopicPartition, SealedTail] = field(default_factory=dict)
    epochs: Mapping[tuple[TopicPartition, int], int] = field(default_factory=dict)
    blockers: Blockers = field(default_factory=Blockers)


@dataclass(frozen=True, slots=True)
class Proof:
    """The decision about a generation's unsealed segments.

    Attributes:
        receipts: The receipts to write, oldest first; each continues the one before.
        findings: Why a segment that is otherwise complete isn't sealed.
    """

    receipts: Sequence[Sealed[Receipt]] = ()
    findings: Sequence[Finding] = ()


def prove(evidence: Evidence) -> Proof:
    """Choose the segments to be sealed, and make their receipts.

    Sealed is the longest run of segments from the oldest on that are complete, hold what Spark
    read, were read of the archive's topics, and overlap nothing that is sealed.
    """
    proven = provable(evidence.checked, evidence.agreeing)
    if evidence.blockers == Blockers(kafka_not_asked=True):
        # Nobody has to be asked to see what readers would get twice.
        # A topic that Spark found, and no drain has noted yet, has no id here.
        known = evidence.identity.topics.keys()
        named = [each for each in proven if topics_read(each.part) <= known]
        return Proof((), find_overlaps([*evidence.claims, *_claims(evidence, named)]))
    if evidence.blockers:
        return Proof()
    proven, findings = _of_same_topics(evidence, proven)
    if not proven:
        return Proof((), findings)
    overlaps = find_overlaps([*evidence.claims, *_claims(evidence, proven)])
    if overlaps:
        return Proof((), [*findings, *overlaps])
    return Proof(list(_receipts(evidence, proven)), findings)


def topics_read(segment: Segment) -> set[str]:
    """Return the topics of which a segment read offsets; other topics may be gone."""
    return {tp.topic for tp, offsets in segment.ranges.items() if len(offsets)}


def _of_same_topics(
    evidence: Evidence, proven: Sequence[CheckedSegment]
) -> tuple[list[CheckedSegment], list[Finding]]:
    """Return the segments before the first that may have been read of a recreated topic."""
    kept: list[CheckedSegment] = []
    for each in proven:
        part = each.part
        other = other_incarnations(
            evidence.identity.topics,
            topics_read(part),
            evidence.ids_after_read if part.last_batch <= evidence.read_up_to else {},
            evidence.ids_now,
        )
        if other:
            where = f"{evidence.name}/checkpoint/offsets/{part.last_batch}"
            detail = f"{part.name} isn't sealed: {made_again(other)}"
            return kept, [Finding(Reason.TOPIC_MADE_AGAIN, where, detail)]
        kept.append(each)
    return kept, []


def _claims(evidence: Evidence, proven: Iterable[CheckedSegment]) -> Iterator[OffsetClaim]:
    """Yield the offsets that the generation will hold once the segments are sealed."""
    for each in proven:
        left = Counter[TopicPartition]()
        for gap in each.gaps:
            if gap.reason == GapReason.WINDOW:
                left[gap.tp] += len(gap.range)
        for tp, offsets in each.part.ranges.items():
            # Other topics may be unknown, or gone.
            if len(offsets):
                topic_id = evidence.identity.topics[tp.topic]
                yield OffsetClaim(evidence.name, topic_id, tp, offsets, left=left[tp])


def _receipts(evidence: Evidence, proven: Iterable[CheckedSegment]) -> Iterator[Sealed[Receipt]]:
    before, previous = evidence.before, evidence.previous
    for each in proven:
        receipt = seal_segment(
            each.part,
            each.files,
            each.gaps,
            identity=evidence.identity,
            generation=evidence.generation,
            before=before,
            previous=previous,
            bounds=evidence.bounds,
            fingerprint=evidence.fingerprints[each.part.last_batch],
            acknowledged=[range_name(gap.tp, gap.range) for gap in each.gaps if gap.acknowledged],
            sealed_at=evidence.sealed_at,
            tails=evidence.tails,
            epochs=evidence.epochs,
        )
        sealed = replace(
            receipt,
            journal=evidence.journal,
            cluster=evidence.cluster,
            described=evidence.described or evidence.cluster is None,
            schemas=evidence.schemas,
        ).sealed()
        before, previous = sealed.value, sealed.value.sha256
        yield sealed
