"""The newest archived records of partitions, read from the archive, and compared with Kafka's.

Receipts have their hashes. Those of earlier releases don't: then the records are read from the
files that these receipts name, as many as `FILES`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from types import MappingProxyType

from upath import UPath

from kafka_drain.archive.erasures import read_erasures
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.incarnations import LogEnds, log_ends
from kafka_drain.archive.index import Query
from kafka_drain.archive.receipts import Receipt, ReceiptError, SealedFile, SealedTail
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration, SnapshotWindow
from kafka_drain.archive.soundness import restricted
from kafka_drain.archive.topic_settings import noted_compaction
from kafka_drain.config.source_options import INTERNAL_TOPICS
from kafka_drain.data_files.file_offsets import FileOffsets
from kafka_drain.errors import (
    KEY_ERRORS,
    ArchiveError,
    DataFileError,
    DataLossError,
    SourceRecordError,
)
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import SeenRecord
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, Offsets, TopicPartition, merge, overlapping
from kafka_drain.proof.rewritten_log import (
    Comparison,
    FirstRewritten,
    LogNow,
    LogVerdict,
    compare_tails,
    find_first,
    logs_cut_short,
)

#: Generations that are looked at, from the newest back, for a partition's newest record.
GENERATIONS = 8
#: Receipts of a generation that are looked at, from the newest back, where the newest doesn't say.
RECEIPTS = 50
#: Files that are read, each for one partition's newest record, where receipts have no hash of it.
FILES = 64
#: Gaps behind a partition's newest record that are looked into.
GAPS = 50
#: Archived records of a partition among which its first rewritten one is looked for.
SEARCHED = 200_000

Tails = Mapping[TopicPartition, SealedTail]


@dataclass(frozen=True, slots=True)
class _Held:
    """Records of a partition in a file of the archive.

    Attributes:
        first: The first offset of the partition in it.
        last: The last one of those that the log should have.
        is_known: Whether there is a record at the last one; otherwise there may be none.
    """

    root: UPath
    file: SealedFile
    file_format: str
    first: int
    last: int
    is_known: bool

    @property
    def unread(self) -> SealedTail:
        """The newest offset at which it is known to have a record, without the record's hash."""
        return SealedTail.of(self.last if self.is_known else self.first)

    def hashes(self, tp: TopicPartition, span: OffsetRange) -> dict[int, str]:
        """Return the hashes of the partition's records, by offset; none if it can't be read."""
        file = self.file
        return _hashes(self.root, file.path, self.file_format, tp, span, file.index_sha256)

    def tail(self, tp: TopicPartition) -> SealedTail | None:
        """Read the newest record; None if none is found.

        Its hash is unknown if the file can't be read.
        """
        first = self.last if self.is_known else max(self.first, self.last + 1 - SEARCHED)
        hashes = self.hashes(tp, OffsetRange(first, self.last + 1))
        if not hashes:
            return SealedTail.of(self.last) if self.is_known else None
        return SealedTail.of(max(hashes), hashes[max(hashes)])


def _held(
    root: UPath, file_format: str, files: Iterable[SealedFile], ends: Offsets
) -> Iterator[tuple[TopicPartition, _Held]]:
    """Yield the files' records of partitions before the given offsets."""
    for file in files:
        for content in file.contents:
            end = ends.get(content.tp, 0)
            if content.first < end:
                last, is_known = min(content.last, end - 1), content.last < end
                found = _Held(root, file, file_format, content.first, last, is_known)
                yield content.tp, found


def archived_tails(
    snapshot: Snapshot, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, SealedTail]:
    """Return the newest sealed record of partitions that their logs should have.

    That is of the incarnation of its topic that the open generation counts, and of earlier ones up
    to where the log was rewritten; of generations and of windows.

    Args:
        snapshot: The archive.
        partitions: The partitions; one without a sealed record is left out.

    Raises:
        ArchiveError: When a `generation.json` is damaged.
    """
    open_generation = snapshot.open_generation
    if open_generation is None:
        return {}
    ends = log_ends(snapshot, snapshot.topic_ids(open_generation), partitions)
    found: dict[TopicPartition, SealedTail] = {}
    held: dict[TopicPartition, _Held] = {}
    in_windows: dict[TopicPartition, int] = {}
    for generation in _backward(snapshot, open_generation):
        left = set(partitions) - found.keys() - held.keys()
        if not left:
            break
        tails, files, windows = _newest(generation, left, ends)
        found |= tails
        held |= files
        in_windows = {**windows, **in_windows}
    known = {tp: tail.offset for tp, tail in found.items()}
    known |= {tp: each.last for tp, each in held.items()}
    starts = open_generation.starting_offsets
    until = {tp: max(starts.get(tp, 0), in_windows.get(tp, 0)) for tp, _ in ends}
    held |= _newest_in_windows(snapshot, until, ends, known)
    for number, (tp, each) in enumerate(sorted(held.items(), key=itemgetter(0))):
        found[tp] = _newest_record(snapshot, tp, each) if number < FILES else each.unread
    return found


def _newest_record(snapshot: Snapshot, tp: TopicPartition, held: _Held) -> SealedTail:
    """Read the newest record of a file, or of those that windows such as erasures have instead."""
    tail = held.tail(tp)
    if tail is not None and tail.hash is not None:
        return tail
    others = _held_of(snapshot, tp, OffsetRange(held.first, held.last + 1))
    read = (each.tail(tp) for each in sorted(others, key=lambda each: -each.last))
    return next((each for each in read if each is not None and each.hash), held.unread)


def _backward(snapshot: Snapshot, newest: SnapshotGeneration) -> Iterator[Generation]:
    """Yield the open generation, and those before it, even if the snapshot leaves them out."""
    yield newest
    for number in islice(range(newest.number - 1, 0, -1), GENERATIONS - 1):
        yield Generation(snapshot.root, number)


def _newest(
    generation: Generation, partitions: Collection[TopicPartition], ends: LogEnds
) -> tuple[dict[TopicPartition, SealedTail], dict[TopicPartition, _Held], Offsets]:
    """Return the newest record of partitions in a generation, from its newest receipts.

    Args:
        ends: Up to where their logs have what was archived of each incarnation.

    Returns:
        Those that receipts tell, the files with those that they don't, and the ends of later
        offsets that they leave to windows.
    """
    found: dict[TopicPartition, SealedTail] = {}
    held: dict[TopicPartition, _Held] = {}
    later: dict[TopicPartition, int] = {}
    left = set(partitions)
    for name in reversed(generation.receipt_names()[-RECEIPTS:]):
        # Validation reports a damaged one; without it, less is compared.
        with suppress(ReceiptError, FileNotFoundError):
            receipt = generation.read_receipt(name)
            for part in receipt.partitions:
                if part.tp in left and (spans := part.gaps.get(GapReason.WINDOW)):
                    later.setdefault(part.tp, spans[-1].end)
            # Without a record so far, or of another topic, no earlier receipt has one either.
            limits = {
                part.tp: end
                for part in receipt.partitions
                if part.tp in left
                and (part.tail is not None or part.records_so_far)
                and (end := ends.get((part.tp, receipt.topics.get(part.tp.topic, ""))))
            }
            found |= {
                part.tp: part.tail
                for part in receipt.partitions
                if part.tail is not None and part.tail.offset < limits.get(part.tp, 0)
            }
            limits = {tp: end for tp, end in limits.items() if tp not in found}
            if limits:
                file_format = generation.read_document().format
                held |= _last(_held(generation.root, file_format, receipt.files, limits))
            left = limits.keys() - held.keys()
        if not left:
            break
    return found, held, later


def _last(held: Iterable[tuple[TopicPartition, _Held]]) -> dict[TopicPartition, _Held]:
    """Return the file with the newest record of each partition."""
    found: dict[TopicPartition, _Held] = {}
    for tp, each in held:
        if tp not in found or each.last > found[tp].last:
            found[tp] = each
    return found


def _newest_in_windows(
    snapshot: Snapshot, until: Offsets, ends: LogEnds, known: Offsets
) -> dict[TopicPartition, _Held]:
    """Return the files of windows with records that are newer than those of generations.

    Args:
        until: The start of the open generation, where backfills end, or behind what repairs have
            drained of its batches: what windows have of later offsets, generations have had.
    """
    after = {tp: known.get(tp, -1) + 1 for tp in until}
    beyond = {tp: OffsetRange(start, until[tp]) for tp, start in after.items() if start < until[tp]}
    if not beyond:
        return {}
    fold = restricted(snapshot, Query(offsets={tp: [r] for tp, r in beyond.items()})).readable_fold
    found: dict[TopicPartition, _Held] = {}
    for window in fold.windows:
        topics = window.receipt.topics
        limits = {
            tp: min(r.end, ends.get((tp, topics.get(tp.topic, "")), 0)) for tp, r in beyond.items()
        }
        # Validation reports a damaged plan; without it, less is compared.
        with suppress(ArchiveError):
            files = fold.live(window.receipt.files)
            held = _held(snapshot.root, window.plan.format, files, limits)
            newer = [(tp, each) for tp, each in held if each.last >= beyond[tp].start]
            found = _last([*found.items(), *newer])
    return found


def unsealed_tails(
    generation: Generation, file_format: str, files: Iterable[SinkFile]
) -> tuple[dict[TopicPartition, SealedTail], list[str]]:
    """Return the newest record of partitions in files that are committed, but not sealed yet.

    Of the newest `FILES`.

    Args:
        generation: The generation that owns them.
        files: The files, as the manifest lists them.

    Returns:
        The records, and the paths of those files that can't be read.
    """
    newest: dict[TopicPartition, tuple[int, str]] = {}
    unreadable: list[str] = []
    for path, held in _unsealed_offsets(generation, file_format, files, unreadable):
        newest[held.tp] = max((held.last, path), newest.get(held.tp, (0, "")))
    found: dict[TopicPartition, SealedTail] = {}
    for tp, (offset, path) in newest.items():
        span = OffsetRange(offset, offset + 1)
        hashes = _hashes(generation.root, path, file_format, tp, span)
        found[tp] = SealedTail.of(offset, hashes.get(offset))
    return found, unreadable


def _unsealed_offsets(
    generation: Generation, file_format: str, files: Iterable[SinkFile], unreadable: list[str]
) -> Iterator[tuple[str, FileOffsets]]:
    """Yield paths of the newest `FILES` of some files, with what they hold of a partition.

    Args:
        unreadable: The paths of those that can't be read are added to it.
    """
    # Not at the top: few drains need pyarrow, and importing it takes longer than their checks do.
    from kafka_drain.data_files.reader import read_offsets, topic_of

    for file in sorted(files, key=lambda file: file.modified)[-FILES:]:
        path = f"{generation.data_name}/{file.path}"
        try:
            for held in read_offsets(generation.root / path, file_format, topic_of(path)):
                yield path, held
        except (DataFileError, OSError):
            unreadable.append(path)


def _hashes(
    root: UPath,
    name: str,
    file_format: str,
    tp: TopicPartition,
    span: OffsetRange,
    index_sha256: str | None = None,
) -> dict[int, str]:
    """Return the hashes of a partition's records in a file, by offset; none if it can't be read.

    It may have been replaced, erased from, or be encrypted: the archive's findings say so.
    """
    # Not at the top: few drains need pyarrow, and importing it takes longer than their checks do.
    from kafka_drain.data_files.reader import as_client_reads, read_records, topic_of
    from kafka_drain.data_files.records import RowBounds
    from kafka_drain.data_files.xxhash64 import record_hashes

    topic = topic_of(name)
    found: dict[int, str] = {}
    wanted = RowBounds(tp.partition, span.start, span.end, index_sha256=index_sha256)
    try:
        for batch in read_records(root / name, file_format, 4 << 20, wanted):
            # The hashes are compared with those of records that Kafka's client reads.
            for found_topic, rows, hashes in record_hashes(as_client_reads(batch), topic):
                if (found_topic or "") != tp.topic:
                    continue
                places = zip(
                    rows["partition"].to_pylist(), rows["offset"].to_pylist(), hashes, strict=True
                )
                found |= {
                    at: f"{value:016x}"
                    for number, at, value in places
                    if number == tp.partition and at in span
                }
    except (ArchiveError, DataFileError, *KEY_ERRORS, OSError):
        return {}
    return found


def compare_with_logs(
    snapshot: Snapshot,
    cluster: KafkaCluster,
    tails: Tails,
    first: Offsets,
    end: Offsets,
    unsealed: Sequence[SinkFile] = (),
    older: Mapping[TopicPartition, SeenRecord] | None = None,
) -> Comparison:
    """Compare archived records with Kafka's at the same offsets.

    Args:
        snapshot: The archive.
        cluster: The cluster that they were drained from.
        tails: The archived records.
        first: The first offset that Kafka has, by partition.
        end: The high watermark, by partition.
        unsealed: Files of the open generation that may have some of the records.
        older: What Kafka has at these offsets, if newer records are compared as well: then nothing
            stands in for a record that may have been compacted.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    there = {tp: tail for tp, tail in tails.items() if tp in first and tp in end}
    asked = {tp: tail.offset for tp, tail in there.items() if first[tp] <= tail.offset < end[tp]}
    seen = cluster.single_records(asked, ends=end) if older is None else older
    missing = {tp: at for tp, at in asked.items() if tp not in seen or seen[tp].offset != at}
    if missing:
        # Records may have expired in the meantime.
        topics = {tp.topic for tp in missing}
        first = {**first, **cluster.earliest([tp for tp in asked if tp.topic in topics])}
    compacted = _compacted(snapshot, cluster, missing)
    spans = {
        tp: OffsetRange(max(first[tp], at - SEARCHED), at)
        for tp, at in missing.items()
        if tp in compacted and older is None
    }
    before = newest_records_in(cluster, spans)
    hashes = {
        tp: _hash_at(snapshot, tp, record.offset)
        or _unsealed_hash_at(snapshot, unsealed, tp, record.offset)
        for tp, record in before.items()
    }
    return compare_tails(
        there,
        {
            tp: LogNow(
                first[tp],
                end[tp],
                seen.get(tp),
                tp in compacted,
                before.get(tp),
                hashes.get(tp),
            )
            for tp in there
        },
    )


def compare_batches(
    snapshot: Snapshot,
    cluster: KafkaCluster,
    batches: Sequence[Tails],
    newest: Comparison,
    first: Offsets,
    end: Offsets,
) -> list[Comparison]:
    """Compare the newest records of each of some batches with Kafka's.

    Args:
        batches: The records, by batch, oldest first.
        newest: The comparison of the newest one of each partition.
        first: The first offset that Kafka has, by partition.
        end: The high watermark, by partition.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    last = {tp: number for number, tails in enumerate(batches) for tp in tails}
    older = [
        {tp: tail for tp, tail in tails.items() if last[tp] > number}
        for number, tails in enumerate(batches)
    ]
    asked = [
        {
            tp: tail.offset
            for tp, tail in tails.items()
            if first.get(tp, sys.maxsize) <= tail.offset < end.get(tp, 0)
        }
        for tails in older
    ]
    found = []
    read = partial(cluster.single_records, ends=end)
    for number, places in enumerate(asked):
        seen, damaged = _readable(read, places) if places else ({}, set())
        tails = {tp: tail for tp, tail in older[number].items() if tp not in damaged}
        compared = Comparison()
        if tails:
            compared = compare_with_logs(snapshot, cluster, tails, first, end, older=seen)
        own = {tp: why for tp, why in newest.rewritten.items() if last.get(tp) == number}
        found.append(replace(compared, rewritten={**compared.rewritten, **own}))
    return found


def compare_sealed(
    snapshot: Snapshot, cluster: KafkaCluster, tails: Tails, first: Offsets, end: Offsets
) -> Comparison:
    """Compare the newest sealed records of partitions with Kafka's, and what is behind them.

    A log that was cut there and has grown again has the same newest record, and others behind it.

    Args:
        tails: The newest sealed records, of partitions that have any.
        first: The first offset that Kafka has, by partition.
        end: The high watermark, by partition.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    compared = compare_with_logs(snapshot, cluster, tails, first, end)
    newest = snapshot.open_generation
    if newest is None:
        return compared
    sealed = starts = newest.starting_offsets
    # Validation reports a damaged one; without it, less is compared.
    with suppress(ReceiptError):
        if receipt := newest.last_receipt():
            sealed = {part.tp: part.end for part in receipt.partitions}
    behind = {
        tp: max(first[tp], tails[tp].offset + 1 if tp in tails else starts.get(tp, 0))
        for tp in first.keys() & end.keys() & sealed.keys() - compared.rewritten.keys()
    }
    behind = {tp: at for tp, at in behind.items() if at < min(sealed[tp], end[tp])}
    return compared.with_records(_records_at_gaps(snapshot, cluster, behind, sealed, starts))


def _records_at_gaps(
    snapshot: Snapshot, cluster: KafkaCluster, behind: Offsets, sealed: Offsets, starts: Offsets
) -> dict[TopicPartition, int]:
    """Return an offset of each partition at which Kafka has a record, and had none when sealed.

    Only transaction markers and aborted records are known to be none for ever: what one replica has
    compacted or deleted, another may still have.

    Args:
        behind: The first offsets that are looked at.
        sealed: The ends of what is sealed.
        starts: The open generation's, before which not every offset need be archived.
    """
    stable = cluster.latest(behind, "read_committed") if behind else {}
    found: dict[TopicPartition, int] = {}
    left = dict(behind)
    for _ in range(GAPS):
        left = {tp: at for tp, at in left.items() if at < stable[tp]}
        if not left:
            break
        # A damaged batch may have come since: whoever drains it says so.
        committed = partial(cluster.single_records, isolation_level="read_committed", ends=stable)
        seen, _ = _readable(committed, left)
        left = {}
        for tp, at in ((tp, record.offset) for tp, record in seen.items()):
            gap = _gap_at(snapshot, tp, at) if at < sealed[tp] else None
            if gap and gap.reason in (GapReason.CONTROL, GapReason.ABORTED):
                found[tp] = at
            elif gap or at < starts.get(tp, 0):
                left[tp] = gap.range.end if gap else starts[tp]
    return found


def _readable(
    read: Callable[[Offsets], Mapping[TopicPartition, SeenRecord]], offsets: Offsets
) -> tuple[Mapping[TopicPartition, SeenRecord], set[TopicPartition]]:
    """Read a record of each partition; return them, and the partitions whose batch is damaged."""
    try:
        return read(offsets), set()
    except SourceRecordError:
        if len(offsets) == 1:
            return {}, {*offsets}
    seen, unreadable = dict[TopicPartition, SeenRecord](), set[TopicPartition]()
    for tp, at in offsets.items():
        found, damaged = _readable(read, {tp: at})
        seen |= found
        unreadable |= damaged
    return seen, unreadable


def _gap_at(snapshot: Snapshot, tp: TopicPartition, offset: int) -> Gap | None:
    """Return the gap in which the archive has an offset of its topic's log; None if it has none."""
    span = OffsetRange(offset, offset + 1)
    snapshot = restricted(snapshot, Query(offsets={tp: [span]}))
    gaps = [
        Gap(tp, found, reason)
        for receipt, _, end in _receipts_of(snapshot, tp, span)
        for part in receipt.partitions
        if part.tp == tp and offset < end
        for reason, ranges in part.gaps.items()
        for found in overlapping(ranges, span)
    ]
    return next((gap for gap in gaps if gap.reason != GapReason.WINDOW), None)


def newest_records_in(
    cluster: KafkaCluster, spans: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, SeenRecord]:
    """Return the newest record that Kafka has of each partition in a range of offsets.

    Kafka tells the next record from an offset on, not the one before it: so the search begins at
    the end of the range, goes back by ever longer steps until there is a record, and then halves
    what is left behind it.

    Args:
        spans: The ranges; empty ones, and those without a record, are left out.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    found: dict[TopicPartition, SeenRecord] = {}
    left, step = dict(spans), 1
    ends = {tp: span.end for tp, span in spans.items()}
    while left := {tp: span for tp, span in left.items() if span}:
        asked = {
            tp: (span.start + span.end) // 2 if tp in found else max(span.start, span.end - step)
            for tp, span in left.items()
        }
        seen = cluster.single_records(asked, ends=ends)
        for tp, at in asked.items():
            span, record = left[tp], seen.get(tp)
            if record is not None and record.offset in span:
                found[tp] = record
                left[tp] = OffsetRange(record.offset + 1, span.end)
            else:
                left[tp] = OffsetRange(span.start, at)
        step *= 8
    return found


def _hash_at(snapshot: Snapshot, tp: TopicPartition, offset: int) -> str | None:
    """Return the hash of the record that the archive has at an offset; None if it isn't known."""
    span = OffsetRange(offset, offset + 1)
    for held in _held_of(snapshot, tp, span):
        if held.first <= offset and (value := held.hashes(tp, span).get(offset)):
            return value
    return None


def _unsealed_hash_at(
    snapshot: Snapshot, files: Sequence[SinkFile], tp: TopicPartition, offset: int
) -> str | None:
    """Return the same of files that aren't sealed yet."""
    generation = snapshot.open_generation
    if generation is None:
        return None
    file_format, span = generation.document.format, OffsetRange(offset, offset + 1)
    for path, held in _unsealed_offsets(generation, file_format, files, []):
        if held.tp == tp and held.first <= offset <= held.last:
            hashes = _hashes(generation.root, path, file_format, tp, span)
            if value := hashes.get(offset):
                return value
    return None


def _compacted(snapshot: Snapshot, cluster: KafkaCluster, offsets: Offsets) -> set[TopicPartition]:
    """Return the partitions at whose given offset compaction may have removed the record.

    One that is switched off since it was noted by a drain has removed what it has.
    """
    newest = snapshot.open_generation
    if not offsets or newest is None:
        return set()
    noted = noted_compaction(snapshot.root, snapshot.topic_ids(newest))
    now = {
        name
        for name in {tp.topic for tp in offsets}
        if name in INTERNAL_TOPICS
        or "compact" in cluster.topic_config(name).get("cleanup.policy", "")
    }
    return {
        tp
        for tp, at in offsets.items()
        if tp.topic in now or (noted.was.get(tp.topic) and at < noted.ends.get(tp, sys.maxsize))
    }


def rewritten_logs(
    snapshot: Snapshot, cluster: KafkaCluster, cursors: Offsets
) -> dict[TopicPartition, int]:
    """Return the first offset at which each rewritten log differs from the archive.

    A log that is shorter than what was drained counts. Where the offset isn't known exactly, it is
    the one behind the newest archived record that Kafka is known to have: some records may then be
    archived twice.

    Args:
        snapshot: The archive.
        cluster: The cluster that it was drained from.
        cursors: Where the newest generation's sealed batches end, by partition.

    Raises:
        DataLossError: When that might bring back records that were erased.
    """
    tails = archived_tails(snapshot, cursors)
    first, end = cluster.earliest(cursors), cluster.latest(cursors, "read_uncommitted")
    compared = compare_sealed(snapshot, cluster, tails, first, end)
    short = logs_cut_short(cursors, end)
    found = {}
    for tp in cursors:
        if tp not in compared.rewritten and tp not in short:
            continue
        begins = first_difference(snapshot, cluster, tp, tails.get(tp), compared, end)
        if not begins.is_exact and read_erasures(snapshot.root):
            raise DataLossError(
                f"{tp} was rewritten {begins}: where it begins isn't known exactly, so that "
                f"the next generation of {snapshot.root} would start at {begins.start}, and might "
                "bring back records that were erased from the archive. Drain to another archive"
            )
        found[tp] = max(first[tp], min(begins.start, end[tp]))
    return found


def first_difference(
    snapshot: Snapshot,
    cluster: KafkaCluster,
    tp: TopicPartition,
    tail: SealedTail | None,
    compared: Comparison,
    end: Offsets = MappingProxyType({}),
) -> FirstRewritten:
    """Find the first rewritten offset of a partition whose log is known to be rewritten.

    Args:
        tail: Its newest archived record, if there is any.
        compared: Its comparison with Kafka's.
        end: The high watermarks, at least of logs that end before what was drained.
    """
    is_rewritten = tp in compared.rewritten and tp not in compared.at_gaps
    if tail is not None and (is_rewritten or tail.offset >= end.get(tp, sys.maxsize)):
        return first_rewritten(snapshot, cluster, tp, tail)
    other = compared.at_gaps[tp] if tp in compared.at_gaps else end[tp]
    # Windows of repairs may have later records that Kafka is known to have.
    begins = first_rewritten(snapshot, cluster, tp, SealedTail.of(other))
    is_kept = tail is not None and tp not in compared.unknown
    if tail is not None and is_kept and begins.start <= tail.offset + 1:
        return _first_after(snapshot, tp, tail.offset, other)
    return begins


def first_rewritten(
    snapshot: Snapshot, cluster: KafkaCluster, tp: TopicPartition, tail: SealedTail
) -> FirstRewritten:
    """Find the first rewritten offset of a partition whose newest archived record is rewritten.

    That is the one after the newest archived record that Kafka still has: where the archive has
    none in between, such as at a transaction marker, Kafka may have one now.

    First among the newest records of files that Kafka may still have, then among the records of one
    file: as many as `SEARCHED`.

    Args:
        snapshot: The archive.
        tail: Its newest archived record.
    """
    first = cluster.earliest([tp])[tp]
    end = cluster.latest([tp], "read_uncommitted")[tp]
    missing: set[int] = set()

    def compare(archived: SealedTail) -> LogVerdict:
        if archived.offset >= end:
            return LogVerdict.REWRITTEN
        found = compare_with_logs(snapshot, cluster, {tp: archived}, {tp: first}, {tp: end})
        epoch = found.epochs.get((tp, archived.offset), -1)
        if tail.leader_epoch is not None and epoch > tail.leader_epoch:
            # The same record, sent again: epochs only rise along a log.
            return LogVerdict.REWRITTEN
        if tp in found.missing:
            missing.add(archived.offset)
            return LogVerdict.REWRITTEN
        return found.verdict_of(tp)

    files = _held_of(snapshot, tp, OffsetRange(first, max(first, tail.offset + 1)))
    last = {each.last: each for each in files}
    lasts = [*(SealedTail.of(at) for at in sorted(last) if at < tail.offset), tail]

    def compare_file(archived: SealedTail) -> LogVerdict:
        if archived.offset == tail.offset:
            return LogVerdict.REWRITTEN
        newest = last[archived.offset].tail(tp)
        return LogVerdict.UNKNOWN if newest is None else compare(newest)

    found = find_first(lasts, compare_file)
    before = max((each.offset for each in lasts if each.offset < found.offset), default=-1)
    span = OffsetRange(max(before + 1, found.offset + 1 - SEARCHED), found.offset + 1)
    hashes: dict[int, str] = {}
    for each in files:
        if each.first < span.end and each.last >= span.start:
            hashes |= each.hashes(tp, span)
    is_read = found.offset in hashes
    hashes.setdefault(found.offset, "")
    within = find_first(
        [SealedTail.of(at, value) for at, value in sorted(hashes.items())],
        lambda archived: (
            LogVerdict.REWRITTEN if archived.offset == found.offset else compare(archived)
        ),
    )
    is_first = found.is_exact and is_read and within.offset == min(hashes)
    is_first = is_first and span.start == before + 1
    if not (within.is_exact or is_first):
        return replace(within, start=max(within.start, found.start))
    kept = max((at for at in hashes if at < within.offset), default=before)
    # If Kafka has lost that one, what comes behind it may be as it was.
    until = tail.offset if within.offset in missing else within.offset
    return _first_after(snapshot, tp, kept, until)


def _first_after(snapshot: Snapshot, tp: TopicPartition, kept: int, end: int) -> FirstRewritten:
    """Return what follows the newest archived record that Kafka still has.

    Args:
        kept: Its offset; -1 if Kafka has other records from 0 on.
        end: An offset known to be rewritten.
    """
    # Of erased offsets between the two, Kafka may have either the erased record or another one.
    if _is_erased(snapshot, tp, OffsetRange(kept + 1, end)):
        return FirstRewritten(end, is_exact=False)
    return FirstRewritten(kept + 1, is_exact=True, start=kept + 1)


def _is_erased(snapshot: Snapshot, tp: TopicPartition, span: OffsetRange) -> bool:
    """Return whether records at some of a partition's offsets were erased."""
    if not span:
        return False
    # The index names no window that has erased something.
    erased = restricted(snapshot, Query()).fold.erased
    held = [r for (held, _), ranges in erased.items() if held == tp for r in ranges]
    return bool(overlapping(merge(held), span))


def _held_of(snapshot: Snapshot, tp: TopicPartition, span: OffsetRange) -> list[_Held]:
    """Return sealed files' records of a partition whose log may still have them."""
    found: list[_Held] = []
    snapshot = restricted(snapshot, Query(offsets={tp: [span]}))
    for receipt, owner, end in _receipts_of(snapshot, tp, span):
        # Validation reports a damaged document; without it, less is compared.
        with suppress(ArchiveError):
            files = snapshot.readable_fold.live(receipt.files)
            held = _held(snapshot.root, _format_of(owner), files, {tp: end})
            found.extend(each for _, each in held if each.last >= span.start)
    return found


def _receipts_of(
    snapshot: Snapshot, tp: TopicPartition, span: OffsetRange
) -> Iterator[tuple[Receipt, SnapshotGeneration | SnapshotWindow, int]]:
    """Yield receipts that may have offsets of a partition, with the end of those its log has."""
    newest = snapshot.open_generation
    if newest is None or not span:
        return
    ends = log_ends(snapshot, snapshot.topic_ids(newest), [tp])
    owners: list[SnapshotGeneration | SnapshotWindow] = [
        *snapshot.readable_fold.windows,
        *snapshot.generations,
    ]
    for owner in owners:
        for receipt in _receipts(owner):
            if end := min(span.end, ends.get((tp, receipt.topics.get(tp.topic, "")), 0)):
                yield receipt, owner, end


def _receipts(owner: SnapshotGeneration | SnapshotWindow) -> Iterator[Receipt]:
    if isinstance(owner, SnapshotWindow):
        yield owner.receipt
        return
    for name in owner.receipt_names():
        # Validation reports a damaged one; without it, less is compared.
        with suppress(ArchiveError, ReceiptError):
            yield owner.read_receipt(name)


def _format_of(owner: SnapshotGeneration | SnapshotWindow) -> str:
    return (owner.plan if isinstance(owner, SnapshotWindow) else owner.document).format
