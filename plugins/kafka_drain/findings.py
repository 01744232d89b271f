"""What validation can find: reason codes, each with its meaning and what to do about it.

Opens nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from kafka_drain.offsets import TopicPartition

__all__ = ["OF_SEALED", "Finding", "Reason", "errors", "summary", "without_echoes"]


class Reason(str, Enum):
    """A reason code; `error` reasons make an archive invalid, `warning` reasons don't."""

    severity: str
    meaning: str
    remedy: str

    def __new__(cls, code: str, severity: str, meaning: str, remedy: str) -> Reason:
        """Make a member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.severity = severity
        member.meaning = meaning
        member.remedy = remedy
        return member

    MANIFEST_MISSING = (
        "manifest_missing",
        "error",
        "the sink has committed batches, and its _spark_metadata folder is gone",
        "restore the folder from a copy, or run `kafka-drain repair --apply`, which writes it anew "
        "from the receipts; don't drain before",
    )
    MANIFEST_EMPTY = (
        "manifest_empty",
        "error",
        "a manifest file has no bytes; readers of the sink fail on it",
        "restore the file from a copy, or run `kafka-drain repair --apply`; don't drain before",
    )
    MANIFEST_TRUNCATED = (
        "manifest_truncated",
        "error",
        "a manifest file doesn't list all files that its batches wrote; readers miss their rows",
        "restore the file from a copy, or run `kafka-drain repair --apply`; the data files are in "
        "the sink",
    )
    MANIFEST_CORRUPT = (
        "manifest_corrupt",
        "error",
        "a manifest file holds something that Spark doesn't write",
        "restore the file from a copy, or run `kafka-drain repair --apply`",
    )
    MANIFEST_HOLE = (
        "manifest_hole",
        "error",
        "the manifest has no file for a batch between two others; readers miss its rows",
        "restore the file from a copy, or run `kafka-drain repair --apply`; the data files are in "
        "the sink",
    )
    MANIFEST_CHANGED = (
        "manifest_changed",
        "error",
        "the manifest says something else of a sealed batch than its receipt",
        "restore the manifest from a copy, or run `kafka-drain repair --apply`",
    )
    MANIFEST_DUPLICATE = (
        "manifest_duplicate",
        "error",
        "the manifest lists a data file twice; some readers count its rows twice",
        "restore the manifest file from a copy, or run `kafka-drain repair --apply`",
    )
    MANIFEST_BEHIND = (
        "manifest_behind",
        "error",
        "the checkpoint committed a batch that the manifest doesn't have; readers miss its rows",
        "restore the manifest from a copy, or run `kafka-drain roll`; don't drain before",
    )
    MANIFEST_AHEAD = (
        "manifest_ahead",
        "error",
        "the manifest has a batch that the checkpoint doesn't know; Spark would skip the next "
        "batches as already written and lose their offsets",
        "restore the checkpoint from a copy, or run `kafka-drain roll`: the next generation starts "
        "where the receipts end; don't drain before",
    )
    CHECKPOINT_MISSING = (
        "checkpoint_missing",
        "error",
        "the sink has a manifest, and the checkpoint is gone; Spark would count batches from 0 "
        "again, skip them as already written and lose their offsets",
        "restore the checkpoint from a copy, or run `kafka-drain roll`: the next generation starts "
        "where the receipts end; don't drain before",
    )
    CHECKPOINT_CORRUPT = (
        "checkpoint_corrupt",
        "error",
        "a checkpoint file holds something that Spark doesn't write",
        "restore the file from a copy, or run `kafka-drain roll`",
    )
    CHECKPOINT_BEHIND = (
        "checkpoint_behind",
        "error",
        "the checkpoint is older than the receipts; Spark would count batches again that the sink "
        "has, skip them as already written and lose their offsets",
        "restore the newest checkpoint, or run `kafka-drain roll`: the next generation starts "
        "where the receipts end; don't drain before",
    )
    CHECKPOINT_HOLE = (
        "checkpoint_hole",
        "error",
        "the checkpoint has no offsets or no commit for a batch between two others",
        "restore the file from a copy, or run `kafka-drain roll`",
    )
    FILE_MISSING = (
        "file_missing",
        "error",
        "the manifest lists a data file that isn't there",
        "restore the file from a copy, or run `kafka-drain repair --apply` while Kafka has its "
        "offsets",
    )
    FILE_OUTSIDE = (
        "file_outside",
        "error",
        "the manifest lists a file that doesn't belong to this generation's data folder",
        "check whether another sink wrote with this checkpoint",
    )
    FILE_SIZE = (
        "file_size",
        "error",
        "a data file doesn't have the size that the manifest says",
        "restore the file from a copy, or run `kafka-drain repair --apply` while Kafka has its "
        "offsets",
    )
    FILE_CORRUPT = (
        "file_corrupt",
        "error",
        "a data file can't be read",
        "restore the file from a copy, or run `kafka-drain repair --apply` while Kafka has its "
        "offsets",
    )
    FILE_CHANGED = (
        "file_changed",
        "error",
        "a data file's bytes aren't those that were sealed",
        "restore the file from a copy, or run `kafka-drain repair --deep --apply` while Kafka has "
        "its offsets",
    )
    FILE_REPLACED = (
        "file_replaced",
        "warning",
        "a data file is gone or damaged, and a window of the archive holds its records; Spark's "
        "own reader of the folder misses them, `kafka-drain files` and the readers don't",
        "nothing has to be done",
    )
    FILE_ORPHAN = (
        "file_orphan",
        "warning",
        "a data file isn't in the manifest: a killed or repeated task left it; readers ignore it",
        "nothing has to be done; keep it until the next run is validated",
    )
    OFFSET_MISSING = (
        "offset_missing",
        "error",
        "offsets that the checkpoint says were drained are in no committed file",
        "lost ones: `kafka-drain repair --apply` drains them again; expired ones: restore the file "
        "that held them, or accept the loss with --acknowledge-expired",
    )
    OFFSET_EXPIRED = (
        "offset_expired",
        "warning",
        "offsets that Kafka deleted before they were drained, and that somebody has acknowledged",
        "nothing can be done; shorten the schedule or raise the topic's retention",
    )
    OFFSET_DUPLICATE = (
        "offset_duplicate",
        "error",
        "an offset is in the committed files more than once",
        "find which file is the copy, by the paths in the finding",
    )
    OFFSET_OUTSIDE = (
        "offset_outside",
        "error",
        "a committed file holds offsets that its batch or generation never read",
        "check whether the file was swapped for another",
    )
    CONTENT_CHANGED = (
        "content_changed",
        "error",
        "the records in a segment's files aren't those that Spark read from Kafka",
        "drain the segment again into another archive while Kafka has it, and compare; where it "
        "isn't sealed yet, `kafka-drain roll --leave-unsealed` lets the next generation drain it",
    )
    RECORDS_CHANGED = (
        "records_changed",
        "error",
        "the files of a batch that isn't sealed yet don't hold the records that Spark read from "
        "Kafka: they were changed since, or the format couldn't keep something",
        "restore the files from a copy, or run `kafka-drain repair --apply` while Kafka has the "
        "records",
    )
    CONTENT_UNKNOWN = (
        "content_unknown",
        "warning",
        "a batch is proven by its offsets alone: a drain that was killed left no word of what "
        "Spark read, or some of it has expired since, so that nobody can compare the records",
        "nothing has to be done; to be sure of the records, drain them again into another archive "
        "while Kafka has them, and compare",
    )
    TOPIC_MADE_AGAIN = (
        "topic_made_again",
        "error",
        "a topic was deleted or made again while a batch was drained, or before anybody could say "
        "which of the two the batch was read of: it is never sealed",
        "run `kafka-drain roll`: the next generation leaves the batch out, and starts at the new "
        "topic's beginning; where the topic is gone for good, `kafka-drain roll --leave-unsealed`, "
        "which says what Kafka can't give again",
    )
    RECEIPT_CORRUPT = (
        "receipt_corrupt",
        "error",
        "a receipt can't be read: its bytes were changed after it was sealed, or it was never "
        "finished",
        "run `kafka-drain repair --apply`: it writes the receipt back from the archive's own copy, "
        "or sets it aside where nothing names it, and what it was to seal is proven again. Where "
        "it can't help, it names what to restore from a copy",
    )
    RECEIPT_CHANGED = (
        "receipt_changed",
        "error",
        "a receipt isn't the one that its successor was sealed after, or that the journal names",
        "run `kafka-drain repair --apply`, which writes it back from the archive's own copy; where "
        "it has none, restore the receipts from a copy",
    )
    RECEIPT_HOLE = (
        "receipt_hole",
        "error",
        "a receipt between two others is gone",
        "run `kafka-drain repair --apply`, which writes it back from the archive's own copy; where "
        "it has none, restore the receipt from a copy. Without one: `kafka-drain repair "
        "--new-journal --apply`, which forgets it",
    )
    RECEIPT_FORGOTTEN = (
        "receipt_forgotten",
        "warning",
        "what was sealed is lost, or was changed, and somebody has begun the journal anew without "
        "it; readers may miss its records",
        "nothing can be done; the reports say it from then on",
    )
    RECEIPT_MISSING = (
        "receipt_missing",
        "error",
        "a segment was sealed, the journal says, and its receipt isn't there; readers may miss its "
        "records, or take files that were replaced",
        "run `kafka-drain repair --apply`, which writes it back from the archive's own copy; where "
        "it has none, restore what the finding names from a copy, with the data files beside it. "
        "Until then nothing is sealed, replaced or removed. Without a copy: `kafka-drain repair "
        "--new-journal --apply`, which forgets it",
    )
    DOCUMENT_CHANGED = (
        "document_changed",
        "error",
        "a document that says how sealed segments are read (archive.json, a generation's "
        "generation.json, a window's plan.json) isn't what it was when they were sealed",
        "run `kafka-drain repair --apply`, which writes it back from the archive's own copy; where "
        "it has none, restore it from a copy. Until then nothing is sealed, replaced or removed. "
        "Without a copy: `kafka-drain repair --new-journal --apply`, which takes one that can be "
        "read as it is",
    )
    SEGMENT_OVERLAP = (
        "segment_overlap",
        "error",
        "two sealed segments hold the same offsets of a topic, and neither stands for the other's "
        "files; readers get these records twice",
        "compare both with a copy, and restore the one that isn't as it was; don't backfill "
        "before; where one isn't sealed yet, `kafka-drain roll --leave-unsealed` leaves it out",
    )
    SEGMENT_HOLE = (
        "segment_hole",
        "error",
        "a generation doesn't start where the one before it ends: nobody holds the offsets between",
        "restore the later generation's generation.json, or the receipts that are gone of the "
        "earlier one, from a copy; without one, `kafka-drain repair --apply` drains the offsets "
        "while Kafka has them, and `kafka-drain validate --acknowledge-expired` accepts what "
        "expired",
    )
    JOURNAL_DAMAGED = (
        "journal_damaged",
        "error",
        "the journal, which says what was sealed, lacks entries or isn't what was written; a "
        "receipt that is gone may go unnoticed",
        "run `kafka-drain repair --apply`, which sets an entry aside that was never finished; "
        "otherwise restore journal.json and the folder journal from a copy. Until then nothing is "
        "sealed, replaced or removed. Without a copy: `kafka-drain repair --new-journal --apply`, "
        "which takes the archive as it is",
    )
    CHECKSUM_MISMATCH = (
        "checksum_mismatch",
        "error",
        "a file of Spark's doesn't fit the .crc file beside it; Spark refuses to read it",
        "restore both from a copy; where only the .crc file is bad, remove that one",
    )
    NOTE_UNREADABLE = (
        "note_unreadable",
        "warning",
        "a document that the archive keeps beside its proof can't be read: after a power cut, or "
        "by another program's hand",
        "nothing has to be done: the next run writes it anew",
    )
    STALLED = (
        "stalled",
        "error",
        "a partition's last stable offset hasn't moved since an earlier run, for 15 minutes or "
        "longer, and records wait behind it: a producer left a transaction open, and nothing of "
        "the partition is drained any more",
        "find the transaction (`kafka-transactions.sh find-hanging`) and abort it, or wait for its "
        "timeout; drains go on by themselves then",
    )

    def __str__(self) -> str:
        return str(self.value)


#: Findings after which nobody knows what was sealed: it has to be restored first.
OF_SEALED = frozenset(
    {
        Reason.RECEIPT_CORRUPT,
        Reason.RECEIPT_CHANGED,
        Reason.RECEIPT_HOLE,
        Reason.RECEIPT_MISSING,
        Reason.DOCUMENT_CHANGED,
        Reason.SEGMENT_OVERLAP,
        Reason.JOURNAL_DAMAGED,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that validation found.

    Attributes:
        reason: Its code.
        subject: What it is of: a path relative to the archive, or a topic-partition.
        detail: What was seen and what was expected.
        line: Which line of the file is meant, from 1 on; None for the whole file.
    """

    reason: Reason
    subject: str | TopicPartition
    detail: str
    line: int | None = None

    @property
    def where(self) -> str:
        """The subject for display, with `:line` where a line is meant; decides nothing."""
        return str(self.subject) if self.line is None else f"{self.subject}:{self.line}"

    def __str__(self) -> str:
        return f"{self.reason}: {self.where}: {self.detail}"

    def to_dict(self) -> dict[str, str]:
        """Return the finding as it stands in a report."""
        return {
            "reason": str(self.reason),
            "severity": self.reason.severity,
            "where": self.where,
            "detail": self.detail,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, str]) -> Finding:
        """Read what `to_dict` returned of a whole file."""
        # mypy takes `__new__`, which makes the members, for the look-up.
        reason = Reason(document["reason"])  # type: ignore[call-arg]
        return cls(reason, document["where"], document["detail"])


def without_echoes(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out checksums that don't fit where another finding says what is wrong with the file."""
    findings = list(findings)
    named = {f.subject for f in findings if f.reason != Reason.CHECKSUM_MISMATCH}
    return [f for f in findings if f.reason != Reason.CHECKSUM_MISMATCH or f.subject not in named]


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that make an archive invalid."""
    return [finding for finding in findings if finding.reason.severity == "error"]


def summary(findings: Iterable[Finding]) -> dict[str, int]:
    """Return how often each reason code was found."""
    return dict(sorted(Counter(str(finding.reason) for finding in findings).items()))
