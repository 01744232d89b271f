"""Validate an archive: compare manifest, checkpoint, receipts, files and offsets with each other.

Reads everything first and collects the findings; the caller decides whether to raise an error.
Every batch that is proven complete is sealed with a receipt.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation_state import GenerationState, read_state
from kafka_drain.archive.journal.checks import (
    SealedState,
    check_sealed_state,
    note_of_holes,
    note_of_segment,
)
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.notes import unreadable_notes
from kafka_drain.archive.receipts import KafkaBounds, Receipt, ReceiptError
from kafka_drain.archive.segment_overlaps import Claim, Hole, find_overlaps
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.archive.watermarks import (
    observe,
    read_observations,
    stalled_findings,
    write_observations,
)
from kafka_drain.config.offset_ranges import parse_acknowledgements, range_name
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import OF_SEALED, Finding, Reason, errors, without_echoes
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.metadata_log.checkpoint import compare_with_receipts
from kafka_drain.offsets import TopicPartition, merge
from kafka_drain.proof.committed_files import ReadFiles, read_committed_files
from kafka_drain.proof.gap_explanation import Ranges, explain_gaps, gap_findings, same_topics
from kafka_drain.proof.offset_checks import (
    Segment,
    check_duplicates,
    check_offsets,
    missing_offsets,
    segments,
)
from kafka_drain.proof.orphans import unlisted_files
from kafka_drain.proof.report import Report
from kafka_drain.proof.sealed_files import (
    SealedCheck,
    check_all_sealed,
    check_listed_sealed,
    lost_ranges,
    readable_receipts,
)
from kafka_drain.proof.sealing import Identity, seal_segment
from kafka_drain.proof.segment_contents import CheckedContents, check_contents, without_whole
from kafka_drain.proof.segment_proof import CheckedSegment, check_segments, provable
from kafka_drain.proof.topic_lives import made_again, other_lives, read_from, topic_ids_now
from kafka_drain.proof.window_checks import HeldByWindows, check_windows
from kafka_drain.proof.window_contents import content_of_windows
from kafka_drain.storage.lease import Clock, is_held, utc_now
from kafka_drain.storage.paths import sync_files

__all__ = ["Scope", "validate_archive"]

Scope = Literal["open", "all"]

#: Number of receipts that are read for the report's chart.
CHARTED = 50
_NOTHING: Ranges = MappingProxyType({})

#: Number of new files above which they may be read by the executors of a Spark cluster.
MANY_FILES = 10_000

#: Findings that prevent noting anything as sealed. A repair may still fill a hole.
_NOT_NOTED = OF_SEALED | {Reason.SEGMENT_HOLE}


@dataclass(frozen=True)
class _Validation:
    """The state shared by all steps of one validation."""

    archive: Archive
    snapshot: Snapshot
    cluster: KafkaCluster | None
    whole: bool
    deep: bool
    windows: HeldByWindows
    sealed: SealedState
    acknowledged: Ranges
    report: Report
    run: str
    now: datetime
    clock: Clock
    say: Callable[[str], None]
    read_many: ReadFiles
    writes: bool
    explained: list[Hole] = field(default_factory=list)


def validate_archive(
    archive: Archive,
    cluster: KafkaCluster | None,
    say: Callable[[str], None] = lambda line: None,
    *,
    scope: Scope = "all",
    deep: bool = False,
    acknowledge_expired: Collection[str] = (),
    run: str | None = None,
    clock: Clock = utc_now,
    read_many: ReadFiles = read_committed_files,
    writes: bool = True,
) -> Report:
    """Validate an archive, and seal the batches that are proven complete.

    Args:
        archive: The archive.
        cluster: The cluster to ask for the reasons of gaps; without it, each gap is a finding and
            nothing is sealed.
        say: Receives a progress line every two seconds.
        scope: `all` checks every generation and receipt; `open` checks only the generation that
            drains append to, and trusts the receipts of the closed ones.
        deep: Also read all bytes of sealed files and compare them with what was sealed.
        acknowledge_expired: Offsets acknowledged as expired, as `topic:partition:start-end`.
        run: Name of the run, which distinguishes a retry from another run; None to use the current
            time.
        clock: Returns the current time; replaced in tests.
        read_many: Reads the new files when there are more than MANY_FILES.
        writes: Whether to seal batches and write notes; if False, the archive isn't changed.

    Raises:
        ConfigError: When an acknowledged range can't be parsed.
        ArchiveError: When the folder isn't an archive, or is one of another Kafka cluster.
        KafkaUnavailableError: When Kafka has to be asked and doesn't respond.
    """
    began = time.monotonic()
    acknowledged = parse_acknowledgements(acknowledge_expired)
    whole = scope == "all" or deep
    sealed = check_sealed_state(archive.snapshot(), chain_is_read=whole)
    snapshot = sealed.snapshot
    pipeline, generations = snapshot.document.pipeline, snapshot.generations
    report = Report(archive=str(archive.root), pipeline=pipeline, scope=scope, deep=deep)
    newest = [generation.name for generation in generations[-1:]]
    report.findings += unreadable_notes(archive.root, newest)
    windows = check_windows(snapshot, report, deep=deep)
    now = clock()
    validation = _Validation(
        archive=archive,
        snapshot=snapshot,
        cluster=cluster,
        whole=whole,
        deep=deep,
        windows=windows,
        sealed=sealed,
        acknowledged=acknowledged,
        report=report,
        run=run or now.isoformat(),
        now=now,
        clock=clock,
        say=say,
        read_many=read_many,
        writes=writes,
    )
    _explain_windows(validation)
    _explain_holes(validation)
    report.findings += [*sealed.findings, *sealed.warnings]
    previous: str | None = None
    for generation in generations:
        if generation is snapshot.open_generation:
            previous = _validate_open(validation, generation, previous)
        elif validation.whole:
            previous = _validate_closed(validation, generation, previous)
        else:
            previous = _trust_closed(validation, generation)
    _note(validation)
    report.findings = without_echoes(dict.fromkeys(report.findings))
    report.seconds = time.monotonic() - began
    return report


def _observe(validation: _Validation, state: GenerationState) -> list[Finding]:
    """Record what Kafka holds now, and find partitions that are stuck since an earlier run."""
    archive = validation.archive
    if validation.cluster is None:
        return []
    identity = _identity(validation.snapshot, state.generation)
    bounds = _bounds(validation.cluster, identity, set(state.cursor))
    observed = observe(
        read_observations(archive), bounds, validation.run, validation.now.timestamp()
    )
    if validation.writes:
        write_observations(archive, observed)
    if validation.snapshot.document.isolation_level == "read_uncommitted":
        return []
    return stalled_findings(observed)


def _note(validation: _Validation) -> None:
    """Note newly sealed segments in the journal, unless a finding concerns what is sealed."""
    report, sealed, snapshot = validation.report, validation.sealed, validation.snapshot
    if validation.cluster is None or not validation.writes:
        return
    if any(f.reason in _NOT_NOTED for f in report.findings):
        return
    noted = sealed.there.plus(note_of_holes(validation.explained))
    if report.sealed and snapshot.open_generation is not None:
        noted = noted.plus(note_of_segment(snapshot, snapshot.open_generation, report.sealed[-1]))
    note_sealed(validation.archive.root, noted)


def _trust_closed(validation: _Validation, generation: SnapshotGeneration) -> str | None:
    """Take a closed generation's figures from its newest receipt."""
    report, names = validation.report, generation.receipt_names()
    known = validation.sealed.newest.get(generation.name)
    try:
        receipt = known or (generation.read_receipt(names[-1]) if names else None)
    except ReceiptError as error:
        where = generation.receipt_where(names[-1])
        report.findings.append(Finding(Reason.RECEIPT_CORRUPT, where, str(error)))
        return None
    report.add_sealed(generation, receipt, len(names))
    return receipt.sha256 if receipt else None


def _validate_closed(
    validation: _Validation, generation: SnapshotGeneration, previous: str | None
) -> str | None:
    """Check what a closed generation's receipts seal; its manifest no longer matters."""
    report = validation.report
    listing = generation.list_data_files()
    sealed = check_all_sealed(
        generation,
        listing,
        previous,
        deep=validation.deep,
        say=validation.say,
        superseded=validation.windows.superseded,
        forgotten=validation.sealed.journal.noted.forgotten,
    )
    newest = None if sealed.has_corrupt_receipt else generation.last_receipt()
    report.add_sealed(generation, newest, sealed.receipts)
    missing = lost_ranges(generation.root, sealed.damaged, generation.document.format)
    report.add_damaged(sealed.damaged)
    report.findings += [validation.windows.excuse(finding) for finding in sealed.findings]
    identity = _identity(validation.snapshot, generation)
    gaps = _explain(validation, identity, missing)
    report.add_new(generation, identity.topics, [], [], gaps, (0, 0))
    return sealed.last_hash


def _explain_windows(validation: _Validation) -> None:
    """Determine what damaged window files held, and whether Kafka still has it."""
    document = validation.snapshot.document
    for window, files in validation.windows.damaged:
        try:
            file_format = window.plan.format
        except ArchiveError:
            # Reported as a separate finding.
            continue
        receipt = window.receipt
        lost = lost_ranges(window.root, [(file, receipt) for file in files], file_format)
        identity = Identity(document.pipeline, document.cluster_id, receipt.topics)
        validation.report.add_gaps(_explain(validation, identity, lost), receipt.topics)


def _explain_holes(validation: _Validation) -> None:
    """Ask Kafka about offsets between two generations; collect holes that are harmless."""
    document, sealed = validation.snapshot.document, validation.sealed
    for hole in sealed.holes:
        topic_ids = {hole.tp.topic: hole.topic_id}
        identity = Identity(document.pipeline, document.cluster_id, topic_ids)
        gaps = _explain(validation, identity, {hole.tp: [hole.range]})
        validation.report.add_gaps(gaps, topic_ids)
        if all(gap.harmless for gap in gaps):
            validation.explained.append(hole)
            sealed.findings.remove(hole.finding())


def _explain(
    validation: _Validation,
    identity: Identity,
    missing: Ranges,
    were_read: Ranges = _NOTHING,
) -> list[Gap]:
    gaps = explain_gaps(
        missing,
        identity=identity,
        cluster=validation.cluster,
        windows=validation.windows.ranges(identity),
        acknowledged=validation.acknowledged,
        were_read=were_read,
    )
    validation.report.findings += gap_findings(gaps)
    return gaps


def _validate_open(
    validation: _Validation, generation: SnapshotGeneration, previous: str | None
) -> str | None:
    """Check the generation that drains append to, and seal what is proven complete."""
    report, windows = validation.report, validation.windows
    document = generation.document
    identity = _identity(validation.snapshot, generation)
    state = read_state(validation.snapshot, generation)
    # A validation of scope `all` checks all batches whose ends the checkpoint still has.
    kept = max(CHARTED, len(state.checkpoint.ends)) if validation.whole else CHARTED
    newest = list(readable_receipts(generation, generation.receipt_names()[-kept:]))
    state.findings.extend(_ends_elsewhere(state, newest))
    report.cursor = state.cursor
    listing = generation.list_data_files()
    if validation.whole:
        sealed = check_all_sealed(
            generation,
            listing,
            previous,
            deep=validation.deep,
            say=validation.say,
            forgotten=validation.sealed.journal.noted.forgotten,
        )
    else:
        sealed = check_listed_sealed(state, listing, previous)
    read = validation.read_many if len(state.new) > MANY_FILES else read_committed_files
    files, found = read(generation, state.new, document.format, validation.say)
    files, replaced = windows.without_replaced(files)
    found += replaced
    parts = segments(
        state.sealed_ends, state.checkpoint, state.last_committed, state.last_sealed + 1
    )
    orphans = _orphans(state, listing)
    missing = missing_offsets(parts, files)
    if orphans:
        found += unlisted_files(
            generation,
            state.manifest,
            [*state.findings, *found],
            without_whole(generation, missing, parts, files),
            orphans,
            document.format,
        )
    # A checkpoint without the last batches can't determine which offsets they may hold.
    covered = bool(parts) and parts[-1].last_batch >= (state.manifest.last_batch or 0)
    found += check_offsets(parts, files) if covered else check_duplicates(files)
    lost = lost_ranges(generation.root, sealed.damaged, document.format)
    for _, tp, ranges in missing:
        lost[tp] = merge([*lost.get(tp, []), *ranges])
    found = [windows.excuse(finding) for finding in found]
    report.findings += state.findings
    report.findings += [windows.excuse(finding) for finding in sealed.findings]
    report.findings += found
    report.findings += [
        Finding(Reason.FILE_ORPHAN, path, "not in the manifest; readers ignore it")
        for path in orphans
    ]
    gaps = _explain(validation, identity, lost)
    checked = check_segments(parts, files, gaps, _damaged_batches(state, found))
    contents = _compare(validation, state, identity, checked)
    report.findings += contents.findings
    if contents.files:
        # Like an unreadable file's, their offsets count as missing: a repair drains them again.
        files = [file for file in files if file.path not in contents.paths]
        gaps += _explain(validation, identity, contents.ranges, were_read=contents.ranges)
    report.add_sealed(generation, state.receipt, sealed.receipts)
    report.add_batches(newest[-CHARTED:])
    report.add_damaged(sealed.damaged)
    listed = (len(state.new), sum(sink_file.size for sink_file in state.new))
    report.add_new(generation, identity.topics, parts, files, gaps, listed)
    report.findings += _observe(validation, state)
    if validation.cluster is None or errors(state.findings) or not sealed.chain_is_whole:
        return sealed.last_hash
    if validation.sealed.findings or not validation.writes:
        return sealed.last_hash
    proven = provable(checked, contents.agreeing)
    proven = _of_same_topics(validation, state, identity, proven)
    return _seal(validation, state, sealed, identity, proven, contents)


def _identity(snapshot: Snapshot, generation: SnapshotGeneration) -> Identity:
    document = snapshot.document
    return Identity(document.pipeline, document.cluster_id, snapshot.topic_ids(generation))


def _ends_elsewhere(state: GenerationState, receipts: Iterable[Receipt]) -> list[Finding]:
    """Find batches whose end in the checkpoint differs from that in their receipt."""
    ends = {receipt.last_batch: receipt.ends for receipt in receipts}
    folder = f"{state.generation.name}/checkpoint"
    found = compare_with_receipts(state.checkpoint, ends, folder)
    return [finding for finding in found if finding not in state.findings]


def _orphans(state: GenerationState, listing: Iterable[str]) -> list[str]:
    """Return data files that neither the manifest nor receipts list, relative to the archive."""
    generation = state.generation
    found = [
        f"{generation.data_name}/{path}" for path in listing if path not in state.manifest.files
    ]
    if found and state.receipt and state.receipt.files_so_far.files > len(state.sealed):
        # Spark's `retention` option removes files from the manifest, and so does truncation.
        receipts = readable_receipts(generation, generation.receipt_names())
        found = list(set(found) - {file.path for receipt in receipts for file in receipt.files})
    return sorted(found)


def _damaged_batches(state: GenerationState, findings: Iterable[Finding]) -> set[int | None]:
    """Return the batches with damaged files; None for an error that isn't about a single file."""
    batch_of: dict[str | TopicPartition, int | None] = {
        f"{state.generation.data_name}/{f.path}": f.batch for f in state.new
    }
    return {batch_of.get(finding.subject) for finding in errors(findings)}


def _compare(
    validation: _Validation,
    state: GenerationState,
    identity: Identity,
    checked: Sequence[CheckedSegment],
) -> CheckedContents:
    """Compare the contents of the segments that are intact otherwise."""
    windows, root = validation.windows, validation.archive.root
    same = windows.of_same_topics(identity)
    contents = check_contents(
        state.generation,
        checked,
        lambda ranges: content_of_windows(root, same, windows.replaced, ranges),
        # Checked after listing the batches: a drain that has finished has recorded what it read.
        is_draining=is_held(root, clock=validation.clock),
    )
    if contents.pending:
        first = contents.pending[0].part
        validation.say(
            f"validate: {first.name} and later batches aren't sealed yet: a drain holds the "
            "archive's lease, and records what Spark read only when it finishes"
        )
    return contents


def _of_same_topics(
    validation: _Validation,
    state: GenerationState,
    identity: Identity,
    proven: Sequence[CheckedSegment],
) -> list[CheckedSegment]:
    """Return the segments up to the first that may have been read from a recreated topic."""
    if not proven:
        return []
    assert validation.cluster is not None
    names = {name for each in proven for name in _topics_read(each.part)}
    same = same_topics(identity, names, validation.cluster)
    now = topic_ids_now(validation.cluster, names) if same != names else dict(identity.topics)
    seen = read_from(state.generation)
    kept: list[CheckedSegment] = []
    for each in proven:
        part = each.part
        is_seen = seen is not None and part.last_batch <= seen.last_batch
        other = other_lives(
            identity.topics,
            _topics_read(part),
            seen.topics if seen is not None and is_seen else {},
            now,
        )
        if other:
            where = f"{state.generation.name}/checkpoint/offsets/{part.last_batch}"
            detail = f"{part.name} isn't sealed: {made_again(other)}"
            validation.report.findings.append(Finding(Reason.TOPIC_MADE_AGAIN, where, detail))
            break
        kept.append(each)
    return kept


def _topics_read(part: Segment) -> set[str]:
    """Return the topics that a segment has read offsets from: others may no longer exist."""
    return {tp.topic for tp, offsets in part.ranges.items() if len(offsets)}


def _seal(
    validation: _Validation,
    state: GenerationState,
    sealed: SealedCheck,
    identity: Identity,
    proven: Sequence[CheckedSegment],
    contents: CheckedContents,
) -> str | None:
    """Write a receipt for each proven segment; return the hash of the newest."""
    before, previous = state.receipt, sealed.last_hash
    if not proven:
        return previous
    overlaps = find_overlaps([*validation.sealed.claims, *_claims(state, identity, proven)])
    if overlaps:
        validation.report.findings += overlaps
        return previous
    assert validation.cluster is not None
    bounds = _bounds(validation.cluster, identity, set(proven[-1].part.ranges))
    generation = state.generation
    sync_files(generation.root, (file.path for each in proven for file in each.files))
    for each in proven:
        receipt = seal_segment(
            each.part,
            each.files,
            each.gaps,
            identity=identity,
            generation=generation.number,
            before=before,
            previous=previous,
            bounds=bounds,
            fingerprint=contents.fingerprints[each.part.last_batch],
            acknowledged=[range_name(gap.tp, gap.range) for gap in each.gaps if gap.acknowledged],
            sealed_at=validation.now.isoformat(timespec="milliseconds"),
        )
        receipt = replace(receipt, journal=validation.sealed.journal.newest)
        # If another validation was faster, its receipt counts.
        is_written = generation.write_receipt(receipt)
        before = generation.read_receipt(receipt.name)
        if is_written:
            validation.report.receipts_written += 1
            validation.report.sealed.append(before)
        previous = before.sha256
    return previous


def _claims(
    state: GenerationState, identity: Identity, proven: Iterable[CheckedSegment]
) -> Iterator[Claim]:
    """Yield the offsets that the generation will hold once the segments are sealed."""
    for each in proven:
        left = Counter[TopicPartition]()
        for gap in each.gaps:
            if gap.reason == GapReason.WINDOW:
                left[gap.tp] += len(gap.range)
        for tp, offsets in each.part.ranges.items():
            topic_id = identity.topics.get(tp.topic, "")
            yield Claim(state.generation.name, topic_id, tp, offsets, left=left[tp])


def _bounds(
    cluster: KafkaCluster, identity: Identity, partitions: set[TopicPartition]
) -> dict[TopicPartition, KafkaBounds]:
    """Ask Kafka for the current bounds of the partitions whose topic is still the same."""
    same = same_topics(identity, {tp.topic for tp in partitions}, cluster)
    wanted = [tp for tp in partitions if tp.topic in same]
    earliest = cluster.earliest(wanted)
    # In this order, so that records arriving between the two requests don't look as if they were
    # behind an open transaction.
    end = cluster.latest(wanted, "read_uncommitted")
    stable = cluster.latest(wanted, "read_committed")
    return {tp: KafkaBounds(earliest[tp], stable[tp], max(end[tp], stable[tp])) for tp in wanted}
