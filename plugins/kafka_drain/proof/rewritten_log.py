"""Whether a log is still the one that was archived: its records and the archive's compared.

Ids and offsets stay the same where a log loses its end and grows again: after an unclean leader
election, a disk restored from a snapshot, or behind an address that leads to a mirror. What was
there doesn't: content and leader epoch of the newest archived record. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from kafka_drain.archive.receipts import SealedTail
from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.kafka.identity import SeenRecord
from kafka_drain.offsets import Offsets, TopicPartition

#: Number of partitions that a message names.
NAMED = 5


class LogVerdict(str, Enum):
    """The comparison of an archived record with Kafka's at the same offset.

    Where Kafka has none, its log was rewritten at this offset or before, or has lost a segment.
    """

    SAME = "same"
    REWRITTEN = "rewritten"
    MISSING = "missing"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return str(self.value)


#: Verdicts on a partition's newest archived record by which its log isn't the archived one.
_OTHER_LOG = (LogVerdict.REWRITTEN, LogVerdict.MISSING)


@dataclass(frozen=True, slots=True)
class LogNow:
    """Kafka's current log of a partition.

    Attributes:
        first: First offset that it still has.
        end: Its high watermark.
        record: Its first record at or after the archived record's offset; None if there is none.
        is_compacted: Whether its topic is compacted.
        before: If it is, and the archived record isn't there: its newest record before that.
        archived_before: The hash of the record that the archive has at that one's offset.
    """

    first: int
    end: int
    record: SeenRecord | None = None
    is_compacted: bool = False
    before: SeenRecord | None = None
    archived_before: str | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of a partition's newest archived record with Kafka's log.

    Attributes:
        why: The observed and the expected record; empty for the same.
    """

    verdict: LogVerdict
    why: str = ""


def compare_tail(archived: SealedTail, now: LogNow) -> Compared:
    """Compare the newest archived record of a partition with Kafka's at the same offset.

    A record that has expired is no sign of another log, and none of the same. Otherwise a record
    stays where it is, with its content and leader epoch; a log that ends before it has lost its
    end. In place of one that may have been compacted, the newest before it is compared: between
    the two, Kafka has nothing.
    """
    at, record = archived.offset, now.record
    if at < now.first:
        return Compared(LogVerdict.UNKNOWN, f"Kafka no longer has offset {at}")
    if at >= now.end:
        return Compared(LogVerdict.REWRITTEN, f"Kafka's log ends at {now.end}, before offset {at}")
    if record is not None and _is_earlier(record.leader_epoch, archived.leader_epoch):
        why = (
            f"offset {record.offset} has leader epoch {record.leader_epoch}, before epoch "
            f"{archived.leader_epoch} of archived offset {at}"
        )
        return Compared(LogVerdict.REWRITTEN, why)
    if record is None or record.offset != at:
        if now.is_compacted:
            return _compare_before(archived, now)
        return Compared(LogVerdict.MISSING, f"Kafka has no record at archived offset {at}")
    if archived.hash is not None and archived.hash not in record.hashes:
        return Compared(LogVerdict.REWRITTEN, f"offset {at} has another record than the archive")
    epochs = {record.leader_epoch, archived.leader_epoch}
    if None not in epochs and len(epochs) > 1:
        why = (
            f"offset {at} has leader epoch {record.leader_epoch}, it was {archived.leader_epoch} "
            "when it was archived"
        )
        return Compared(LogVerdict.REWRITTEN, why)
    if archived.hash is None:
        return Compared(LogVerdict.UNKNOWN, f"the archive's record at offset {at} can't be read")
    return Compared(LogVerdict.SAME)


def _compare_before(archived: SealedTail, now: LogNow) -> Compared:
    record, unknown = now.before, f"offset {archived.offset} may have been compacted"
    if record is None:
        return Compared(LogVerdict.UNKNOWN, unknown)
    if now.archived_before not in (None, *record.hashes):
        why = f"offset {record.offset} has another record than the archive"
        return Compared(LogVerdict.REWRITTEN, why)
    if _is_earlier(archived.leader_epoch, record.leader_epoch):
        why = (
            f"offset {record.offset} has leader epoch {record.leader_epoch}, after epoch "
            f"{archived.leader_epoch} of archived offset {archived.offset}"
        )
        return Compared(LogVerdict.REWRITTEN, why)
    if now.archived_before is None:
        return Compared(LogVerdict.UNKNOWN, unknown)
    return Compared(LogVerdict.SAME)


def _is_earlier(now: int | None, archived: int | None) -> bool:
    """Return whether a record has an epoch before that of one at the same or a lower offset."""
    return now is not None and archived is not None and now < archived


@dataclass(frozen=True, slots=True)
class Comparison:
    """The newest archived records of an archive's partitions, compared with Kafka's logs.

    Attributes:
        rewritten: By partition, what shows that it was rewritten.
        unknown: By partition, why it can't be told.
        epochs: Leader epochs of the records that are the same, by partition and offset.
        missing: Those of the rewritten ones in which Kafka has no record there.
        at_gaps: Offsets behind it at which Kafka has a record now, and had none when they were
            archived: what shows that these logs were rewritten.
    """

    rewritten: Mapping[TopicPartition, str] = field(default_factory=dict)
    unknown: Mapping[TopicPartition, str] = field(default_factory=dict)
    epochs: Mapping[tuple[TopicPartition, int], int] = field(default_factory=dict)
    missing: Collection[TopicPartition] = ()
    at_gaps: Offsets = field(default_factory=dict)

    def verdict_of(self, tp: TopicPartition) -> LogVerdict:
        """Return the verdict on one of the partitions."""
        if tp in self.missing:
            return LogVerdict.MISSING
        if tp in self.rewritten:
            return LogVerdict.REWRITTEN
        return LogVerdict.UNKNOWN if tp in self.unknown else LogVerdict.SAME

    def with_records(self, at_gaps: Offsets) -> Comparison:
        """Return it with the records that logs have now where they had none."""
        why = {
            tp: f"offset {at} has a record, and was a transaction marker's or an aborted record's"
            for tp, at in at_gaps.items()
        }
        return replace(self, rewritten={**self.rewritten, **why}, at_gaps=at_gaps)

    def not_compared(self) -> list[str]:
        """Name the partitions that couldn't be compared; empty if all were."""
        if not self.unknown:
            return []
        shown = "; ".join(f"{tp}: {why}" for tp, why in sorted(self.unknown.items())[:NAMED])
        more = f"; and {len(self.unknown) - NAMED} more" if len(self.unknown) > NAMED else ""
        return [
            f"the newest archived record of {len(self.unknown):,} partitions can't be compared "
            f"with Kafka's: {shown}{more}"
        ]


def compare_tails(
    archived: Mapping[TopicPartition, SealedTail], now: Mapping[TopicPartition, LogNow]
) -> Comparison:
    """Compare the newest archived record of each partition with Kafka's.

    Args:
        archived: The newest archived records.
        now: Kafka's log of the partitions that it still has.
    """
    found = {tp: compare_tail(tail, now[tp]) for tp, tail in archived.items() if tp in now}
    same = {
        tp: record
        for tp, each in found.items()
        if each.verdict == LogVerdict.SAME
        and (record := now[tp].record) is not None
        and record.offset == archived[tp].offset
    }
    return Comparison(
        {tp: each.why for tp, each in found.items() if each.verdict in _OTHER_LOG},
        {tp: each.why for tp, each in found.items() if each.verdict == LogVerdict.UNKNOWN},
        {
            (tp, record.offset): record.leader_epoch
            for tp, record in same.items()
            if record.leader_epoch is not None
        },
        {tp for tp, each in found.items() if each.verdict == LogVerdict.MISSING},
    )


def logs_cut_short(read: Offsets, end: Offsets) -> dict[TopicPartition, str]:
    """Return what shows that logs end before what was read of them.

    Below its end, such a log may have other records than those that were read. That shows even if
    the files are gone, and nothing is left to compare.

    Args:
        read: Up to which offset each partition was read.
        end: The high watermark of those that Kafka still has.
    """
    return {
        tp: f"Kafka's log ends at {end[tp]}, and was read up to {at}"
        for tp, at in read.items()
        if end.get(tp, at) < at
    }


def is_of_another_log(
    sealed: Comparison,
    unsealed: Comparison,
    partitions: Collection[TopicPartition],
    *,
    has_gaps: bool,
) -> bool:
    """Decide whether unsealed records may be of another log than sealed ones.

    What was read before a log was rewritten isn't there any more, as what is sealed: it goes with
    that. What is there was read after it, or may have been.

    Args:
        sealed: The newest sealed records, compared with Kafka's.
        unsealed: The newest records that aren't sealed.
        partitions: The partitions that have such records.
        has_gaps: Whether some of its offsets are in no file: Kafka's log of now explains them.
    """
    if not sealed.rewritten and not unsealed.rewritten:
        return False
    after = [tp for tp in sealed.rewritten.keys() & set(partitions) if tp not in unsealed.rewritten]
    return has_gaps or bool(after)


def count_before_cut(batches: Sequence[Mapping[TopicPartition, bool]]) -> int:
    """Decide how many unsealed batches may be sealed, if logs were cut and grew again between them.

    A batch whose newest record of a partition is gone was read before the cut; the next one whose
    record is there, or may be, after it. What the log has now at the offsets of the former is in no
    file.

    Args:
        batches: By batch, oldest first: whether Kafka's log has another record, or none, in place
            of the newest one of each partition.
    """
    gone: dict[TopicPartition, bool] = {}
    for number, ends in enumerate(batches):
        if any(gone.get(tp) and not is_gone for tp, is_gone in ends.items()):
            return number
        gone |= ends
    return len(batches)


def newest_records(files: Iterable[CommittedFile]) -> dict[TopicPartition, SealedTail]:
    """Return the newest record of each partition in files that are read as a whole."""
    newest: dict[TopicPartition, FileOffsets] = {}
    for content in (content for file in files for content in file.contents):
        if content.tp not in newest or content.last > newest[content.tp].last:
            newest[content.tp] = content
    return {tp: SealedTail.of(each.last, each.last_hash) for tp, each in newest.items()}


@dataclass(frozen=True, slots=True)
class FirstRewritten:
    """The first offset of a partition at which Kafka has another record than the archive.

    Attributes:
        offset: The first archived offset that is known to be rewritten.
        is_exact: Whether Kafka has the archived record before it; otherwise an earlier one may be
            rewritten as well.
        start: The first offset that may be rewritten: the one behind the newest archived record
            that Kafka is known to have.
    """

    offset: int
    is_exact: bool
    start: int = 0

    def __str__(self) -> str:
        return f"from offset {self.offset} on" if self.is_exact else f"at or before {self.offset}"


def find_first(
    tails: Sequence[SealedTail], compare: Callable[[SealedTail], LogVerdict]
) -> FirstRewritten:
    """Find the first rewritten record, of which the newest one is known to be rewritten.

    Args:
        tails: Archived records, by ascending offset.
        compare: Compares one with Kafka. What comes after a rewritten record is rewritten too.
    """
    low, high, same = 0, len(tails) - 1, -1
    while low < high:
        middle = (low + high) // 2
        verdict = compare(tails[middle])
        if verdict == LogVerdict.REWRITTEN:
            high = middle
        else:
            low = middle + 1
            same = middle if verdict == LogVerdict.SAME else same
    # By ever longer steps back to the start: what can't be compared, or is no longer there, is so
    # for many records in a row.
    for at in (max(0, high - (2 << step)) for step in range(high.bit_length())):
        verdict = compare(tails[at]) if at > same else LogVerdict.UNKNOWN
        if verdict == LogVerdict.REWRITTEN:
            return find_first(tails[: at + 1], compare)
        if verdict == LogVerdict.SAME:
            same = at
    first = tails[high].offset
    is_exact = first == 0 or same == high - 1 >= 0
    return FirstRewritten(first, is_exact, tails[same].offset + 1 if same >= 0 else 0)


def rewritten_text(
    first: Mapping[TopicPartition, FirstRewritten], why: Mapping[TopicPartition, str]
) -> str:
    """Name the rewritten partitions, each with its first rewritten offset and the evidence."""
    shown = "; ".join(f"{tp} {at} ({why[tp]})" for tp, at in sorted(first.items()))
    more = f"; and {len(why) - len(first):,} more partitions" if len(why) > len(first) else ""
    return shown + more
