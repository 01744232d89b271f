"""The generation that drains append to, read from its folder, its files and Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import GenerationState, read_state
from kafka_drain.archive.receipts import KafkaBounds, Receipt
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.errors import DataFileError, TopicError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.metadata_log.checkpoint import compare_with_receipts
from kafka_drain.metadata_log.manifest import KnownDamage, Manifest
from kafka_drain.offsets import OffsetRange, Ranges, TopicPartition, merge, overlapping
from kafka_drain.proof.committed_files import ReadFiles, read_committed_files
from kafka_drain.proof.content_checks import Reread, SegmentFiles, Tally
from kafka_drain.proof.gap_explanation import same_topics
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.prove import Drained, Examined, damaged_batches, examine, topics_read
from kafka_drain.proof.sealed_files import (
    Deep,
    SealedCheck,
    check_all_sealed,
    check_listed_sealed,
    check_newest,
    lost_ranges,
    readable_receipts,
)
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.segment_contents import CheckedContents, check_contents, without_whole
from kafka_drain.proof.segment_proof import CheckedSegment, check_segments, provable
from kafka_drain.proof.topic_ids import topic_ids_now
from kafka_drain.proof.window_checks import HeldByWindows

#: Number of receipts that are read for the report's chart.
CHARTED = 50

#: With more new files than this, `read_many` reads them: the executors of a Spark cluster, say.
MANY_FILES = 10_000

#: Says why offsets of an identity's topics are missing; given those of records that Spark has read,
#: and those of batches whose files hold all that it read.
Explain = Callable[[Identity, Ranges, Ranges, Ranges], list[Gap]]

#: Compares files of an identity's topics with Kafka; returns None if Kafka isn't asked.
ReadAgain = Callable[[Identity, SegmentFiles], Reread | None]


@dataclass(frozen=True)
class OpenGeneration:
    """The open generation, as read.

    Attributes:
        state: Its manifest, checkpoint and newest receipt.
        identity: Pipeline, cluster and topic ids that it counts in.
        newest: Its newest receipts, oldest first.
        sealed: The check of its sealed segments.
        files: The readable files of unsealed batches, without those that a window replaces.
        findings: Findings about files of unsealed batches, and about the replaced ones.
        orphans: Data files that neither manifest nor receipts list, relative to the archive.
        examined: The comparison of these files with what was drained.
    """

    state: GenerationState
    identity: Identity
    newest: Sequence[Receipt]
    sealed: SealedCheck
    files: Sequence[CommittedFile]
    findings: Sequence[Finding]
    orphans: Sequence[str]
    examined: Examined

    @property
    def listed(self) -> tuple[int, int]:
        """Number and bytes of the unsealed files, unreadable ones included."""
        new = self.state.new
        return len(new), sum(sink_file.size for sink_file in new)


@dataclass(frozen=True)
class Answers:
    """The results of a closer look, and of questions to Kafka.

    Attributes:
        gaps: Missing offsets with their reasons.
        checked: The unsealed segments with their files and gaps.
        contents: The comparison of their records with what Spark read.
        files: The unsealed files whose records weren't changed.
        findings: Findings about files of unsealed batches.
    """

    gaps: Sequence[Gap]
    checked: Sequence[CheckedSegment]
    contents: CheckedContents
    files: Sequence[CommittedFile]
    findings: Sequence[Finding]


def read_open(
    snapshot: Snapshot,
    generation: SnapshotGeneration,
    previous: str | None,
    windows: HeldByWindows,
    *,
    whole: bool,
    deep: Deep,
    forgotten: Mapping[str, str],
    read_many: ReadFiles,
    look: Callable[[Receipt], None],
) -> OpenGeneration:
    """Read the generation that drains append to; asks Kafka nothing.

    Args:
        snapshot: The archive.
        generation: Its newest generation.
        previous: Hash of the last receipt of the previous generation.
        windows: Contents of the sealed windows.
        whole: Whether every receipt is read; otherwise only the newest.
        deep: The sealed files whose bytes are read.
        forgotten: Lost receipts that were given up, by path.
        read_many: Reads the new files if there are more than `MANY_FILES`.
        look: Takes each receipt, if all are read.
    """
    document = generation.document
    state = read_state(snapshot, generation)
    # A whole validation compares every batch whose end the checkpoint still has.
    kept = max(CHARTED, len(state.checkpoint.ends)) if whole else CHARTED
    newest = list(readable_receipts(generation, generation.receipt_names()[-kept:]))
    state.findings.extend(_ends_elsewhere(state, newest))
    state.findings.extend(_other_folders(state))
    listing = generation.list_data_files()
    if whole:
        sealed = check_all_sealed(
            *(generation, listing, previous),
            deep=deep,
            forgotten=forgotten,
            drained_again=windows.drained_again,
            replaced=windows.replaced,
            look=look,
        )
    else:
        again = windows.drained_again
        sealed = check_listed_sealed(state, listing, previous, newest, again)
        names = generation.receipt_names()[-kept:]
        sealed.findings += check_newest(generation, names, forgotten)
    read = read_many if len(state.new) > MANY_FILES else read_committed_files
    files, found = read(generation, state.new, document.format)
    files, replaced = windows.without_replaced(files)
    drained = Drained(
        start=state.sealed_ends,
        first_batch=state.last_sealed + 1,
        last_committed=state.last_committed,
        last_listed=state.manifest.last_batch,
        checkpoint=state.checkpoint,
    )
    return OpenGeneration(
        state=state,
        identity=Identity(
            snapshot.document.pipeline,
            snapshot.document.cluster_id,
            snapshot.topic_ids(generation),
        ),
        newest=newest,
        sealed=sealed,
        files=files,
        findings=[*found, *replaced],
        orphans=_orphans(state, listing),
        examined=examine(drained, files),
    )


def look_closer(
    found: OpenGeneration,
    windows: HeldByWindows,
    explain: Explain,
    read_again: ReadAgain,
    *,
    is_draining: Callable[[], bool],
    is_uncommitted: bool = False,
) -> Answers:
    """Find out why offsets are missing, and whether files hold the records that Spark read.

    Args:
        found: The generation as it was read.
        windows: Contents of the sealed windows.
        explain: Asks Kafka why offsets are missing.
        read_again: Compares files with Kafka where no note says what Spark read.
        is_draining: Whether a drain holds the archive's lease; asked after the batches were listed,
            so that a drain that has written them has left what it read.
        is_uncommitted: Whether drains read with `read_uncommitted`.
    """
    state, examined = found.state, found.examined
    generation = state.generation
    file_format, root = generation.document.format, generation.root
    findings = [*found.findings]
    if found.orphans:
        findings += unlisted_files(
            generation,
            state.manifest,
            [*state.findings, *findings],
            without_whole(generation, examined.missing, examined.parts, found.files),
            found.orphans,
            file_format,
        )
    findings = [windows.excuse(finding) for finding in [*findings, *examined.findings]]
    held = lost_ranges(root, found.sealed.damaged, file_format)
    lost = dict(held)
    for _, tp, ranges in examined.missing:
        lost[tp] = merge([*lost.get(tp, []), *ranges])
    gaps = explain(found.identity, lost, held, _complete(found) if is_uncommitted else {})
    batch_of: dict[str | TopicPartition, int | None] = {
        f"{generation.data_name}/{file.path}": file.batch for file in state.new
    }
    checked = check_segments(examined.parts, found.files, gaps, damaged_batches(findings, batch_of))
    same = windows.of_same_topics(found.identity)

    def in_windows(ranges: Mapping[TopicPartition, Sequence[OffsetRange]]) -> Tally:
        # Not at the top: few validations need pyarrow, and importing it takes longer than they do.
        from kafka_drain.proof.window_contents import content_of_windows

        return content_of_windows(root, same, windows.replaced, ranges, found.identity.topics)

    contents = check_contents(
        generation,
        checked,
        in_windows,
        lambda files: read_again(found.identity, SegmentFiles(root, file_format, files)),
        is_draining=is_draining(),
    )
    files = found.files
    if contents.files:
        # Their offsets are missing, as those of an unreadable file: a repair drains them again.
        files = [file for file in files if file.path not in contents.paths]
        gaps = [*gaps, *explain(found.identity, contents.ranges, contents.ranges, {})]
    return Answers(gaps, checked, contents, files, findings)


def _complete(found: OpenGeneration) -> Ranges:
    """Return the missing offsets of segments whose files hold all that Spark read."""
    generation, examined = found.state.generation, found.examined
    rest = without_whole(generation, examined.missing, examined.parts, found.files)
    suspected = {part.last_batch for part, _, _ in rest}
    complete: dict[TopicPartition, list[OffsetRange]] = {}
    for part, tp, ranges in examined.missing:
        if part.last_batch not in suspected:
            complete.setdefault(tp, []).extend(ranges)
    return {tp: merge(ranges) for tp, ranges in complete.items()}


def ask_kafka_now(
    cluster: KafkaCluster, snapshot: Snapshot, found: OpenGeneration, answers: Answers
) -> tuple[dict[TopicPartition, KafkaBounds], dict[str, str]]:
    """Ask Kafka for the offsets of the generation's partitions, and the ids of the topics read.

    Returns:
        The bounds of each partition whose topic is still the same, or that the next drain would be
        the first to read; and topic ids by topic.

    Raises:
        ArchiveError: When it is another cluster than the archive's.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    candidates = provable(answers.checked, answers.contents.agreeing)
    read = {name for each in candidates for name in topics_read(each.part)}
    partitions = set(found.state.cursor).union(*(each.part.ranges for each in candidates))
    drained = {tp.topic for tp in partitions}
    same = same_topics(found.identity, drained, cluster)
    known = {name: found.identity.topics[name] for name in same}
    ids = known if read <= same else topic_ids_now(cluster, read)
    partitions = {tp for tp in partitions if tp.topic in same}
    if "assign" not in (source := snapshot.document.source):
        pattern = source.get("topic_pattern", "")
        names = cluster.topic_names() if pattern else ()
        new = {name for name in names if re.fullmatch(pattern, name)} - drained
        try:
            described = cluster.topics(same | new)
        except TopicError:
            # One that was never drained has been deleted since it was listed.
            described = cluster.topics(same)
        for topic in described.values():
            partitions |= {TopicPartition(topic.name, number) for number in topic.partitions}
    return ask_bounds(cluster, [*partitions]), ids


def ask_bounds(
    cluster: KafkaCluster, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, KafkaBounds]:
    """Ask Kafka which offsets it holds of partitions."""
    earliest = cluster.earliest(partitions)
    # In this order: what arrives between the two answers isn't behind an open transaction.
    end = cluster.latest(partitions, "read_uncommitted")
    stable = cluster.latest(partitions, "read_committed")
    return {
        tp: KafkaBounds(earliest[tp], stable[tp], max(end[tp], stable[tp])) for tp in partitions
    }


def _ends_elsewhere(state: GenerationState, receipts: Iterable[Receipt]) -> list[Finding]:
    """Find batches whose end in the checkpoint differs from their receipt's."""
    ends = {receipt.last_batch: receipt.ends for receipt in receipts}
    folder = f"{state.generation.name}/checkpoint"
    found = compare_with_receipts(state.checkpoint, ends, folder)
    return [finding for finding in found if finding not in state.findings]


def _other_folders(state: GenerationState) -> list[Finding]:
    """Find out whether new files lie in other folders than generation.json says."""
    generation, expected = state.generation, state.generation.document.partition_by
    for file in state.new:
        folders = [name for name in file.path.split("/")[:-1] if "=" in name]
        seen = [name.partition("=")[0] for name in folders]
        if seen != expected:
            detail = f"says partition_by {expected}, but {file.path} is partitioned by {seen}"
            where = f"{generation.name}/generation.json"
            return [Finding(Reason.DOCUMENT_CHANGED, where, detail)]
    return []


def _orphans(state: GenerationState, listing: Iterable[str]) -> list[str]:
    """Return data files that neither manifest nor receipts list, relative to the archive."""
    generation = state.generation
    found = [
        f"{generation.data_name}/{path}" for path in listing if path not in state.manifest.files
    ]
    if found and state.receipt and state.receipt.files_so_far.files > len(state.sealed):
        # Spark's `retention` hides files from the manifest; a cut manifest doesn't list them.
        receipts = readable_receipts(generation, generation.receipt_names())
        found = list(set(found) - {file.path for receipt in receipts for file in receipt.files})
    return sorted(found)


def orphan_findings(orphans: Iterable[str]) -> list[Finding]:
    """Return a warning for each data file that nothing lists."""
    return [
        Finding(Reason.FILE_ORPHAN, path, "not in the manifest, ignored by readers")
        for path in orphans
    ]


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
