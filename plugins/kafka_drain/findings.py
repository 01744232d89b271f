"""The findings of validation: reason codes, each with its meaning and its remedy.

Opens nothing.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from kafka_drain.offsets import TopicPartition

#: A command in a remedy.
_COMMAND = re.compile("`kafka-drain [a-z-]+")


class Reason(str, Enum):
    """A reason code; `error` reasons make an archive invalid, `warning` reasons don't."""

    severity: str
    meaning: str
    remedy: str

    def __new__(cls, code: str, severity: str, meaning: str, remedy: str) -> Reason:
        """Create a member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.severity = severity
        member.meaning = meaning
        member.remedy = remedy
        return member

    MANIFEST_MISSING = (
        "manifest_missing",
        "error",
        "the sink has committed batches, but its _spark_metadata folder is gone",
        "restore the folder from a copy, or run `kafka-drain repair --apply`, which rebuilds it "
        "from the receipts; don't drain until then",
    )
    MANIFEST_EMPTY = (
        "manifest_empty",
        "error",
        "a manifest file is empty; readers of the sink fail on it",
        "restore the file from a copy, or run `kafka-drain repair --apply`; don't drain until "
        "then. If the batch has no receipt, `kafka-drain roll --leave-unsealed` lets the next "
        "generation drain it again",
    )
    MANIFEST_TRUNCATED = (
        "manifest_truncated",
        "error",
        "a manifest file doesn't list all the files that its batches wrote; readers "
        "miss their records",
        "restore the file from a copy, or run `kafka-drain repair --apply`; the data files are in "
        "the sink. If the batch has no receipt, `kafka-drain roll --leave-unsealed` lets the next "
        "generation drain it again",
    )
    MANIFEST_CORRUPT = (
        "manifest_corrupt",
        "error",
        "a manifest file holds something that Spark doesn't write",
        "restore the file from a copy, or run `kafka-drain repair --apply`. If the batch has no "
        "receipt, `kafka-drain roll --leave-unsealed` lets the next generation drain it again",
    )
    MANIFEST_HOLE = (
        "manifest_hole",
        "error",
        "the manifest has no file for a batch between two others; readers miss its records",
        "restore the file from a copy, or run `kafka-drain repair --apply`; the data files are in "
        "the sink",
    )
    MANIFEST_CHANGED = (
        "manifest_changed",
        "error",
        "the manifest contradicts the receipt of a sealed batch",
        "restore the manifest from a copy, or run `kafka-drain repair --apply`",
    )
    MANIFEST_DUPLICATE = (
        "manifest_duplicate",
        "error",
        "the manifest lists a data file twice; some readers count its records twice",
        "restore the manifest file from a copy, or run `kafka-drain repair --apply`. If the batch "
        "has no receipt, `kafka-drain roll --leave-unsealed` lets the next generation drain it "
        "again",
    )
    MANIFEST_BEHIND = (
        "manifest_behind",
        "error",
        "the checkpoint committed a batch that the manifest doesn't have; readers miss its records",
        "restore the manifest from a copy, or run `kafka-drain roll`; don't drain until then",
    )
    MANIFEST_AHEAD = (
        "manifest_ahead",
        "error",
        "the manifest has a batch that the checkpoint doesn't have; Spark would skip the next "
        "batches as already written and lose their offsets",
        "restore the checkpoint from a copy, or run `kafka-drain roll`: the next generation starts "
        "where the receipts end; don't drain until then",
    )
    CHECKPOINT_MISSING = (
        "checkpoint_missing",
        "error",
        "the sink has a manifest, but the checkpoint is gone; Spark would number batches from 0 "
        "again, skip them as already written and lose their offsets",
        "restore the checkpoint from a copy, or run `kafka-drain roll`: the next generation starts "
        "where the receipts end; don't drain until then",
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
        "the checkpoint is older than the receipts; Spark would reuse batch ids that the sink "
        "already has, skip those batches as already written and lose their offsets",
        "restore the newest checkpoint, or run `kafka-drain roll`: the next generation starts "
        "where the receipts end; don't drain until then",
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
        "the manifest lists a data file that doesn't exist",
        "restore the file from a copy, or run `kafka-drain repair --apply` while Kafka still has "
        "its offsets",
    )
    FILE_OUTSIDE = (
        "file_outside",
        "error",
        "the manifest lists a file that doesn't belong to this generation's data folder",
        "check whether another query wrote with this checkpoint",
    )
    FILE_SIZE = (
        "file_size",
        "error",
        "the size of a data file differs from the size in the manifest",
        "restore the file from a copy, or run `kafka-drain repair --apply` while Kafka still has "
        "its offsets",
    )
    FILE_CORRUPT = (
        "file_corrupt",
        "error",
        "a data file can't be read",
        "restore the file from a copy, or run `kafka-drain repair --apply` while Kafka still has "
        "its offsets",
    )
    FILE_CHANGED = (
        "file_changed",
        "error",
        "the content of a data file has changed since it was sealed",
        "restore the file from a copy, or run `kafka-drain repair --deep --apply` while Kafka "
        "still has its offsets",
    )
    FILE_REPLACED = (
        "file_replaced",
        "warning",
        "a data file is missing or damaged, and a window of the archive holds its records, or says "
        "which were given up; Spark's own file reader misses them, the archive's readers don't",
        "no action needed",
    )
    FILE_ORPHAN = (
        "file_orphan",
        "warning",
        "a data file isn't in the manifest: a killed or retried task left it; readers ignore it",
        "no action needed; keep the file until the next run is validated",
    )
    COPY_IGNORED = (
        "copy_ignored",
        "warning",
        "a folder lies beside the generations or windows, but by its name it is neither: somebody "
        "copied one, or put something else there; readers ignore it",
        "no action needed; move it out of the archive if nobody needs it",
    )
    WINDOW_UNSEALED = (
        "window_unsealed",
        "warning",
        "a window has data files and no receipt: its run is still working, or was killed; readers "
        "ignore them",
        "no action needed while its run is working; otherwise run that again, or remove the "
        "window's folder",
    )
    ERASED_LEFT = (
        "erased_left",
        "error",
        "data files of a window without a receipt hold records that were erased, as a release that "
        "doesn't know erasures drains them; readers ignore them, but they are there",
        "remove the window's folder, if no run is writing to it, and don't run that release on the "
        "archive again",
    )
    OFFSET_MISSING = (
        "offset_missing",
        "error",
        "offsets that the checkpoint says were drained are in no committed file",
        "lost offsets: `kafka-drain repair --apply` drains them again; expired offsets: restore "
        "the file that held them, or accept the loss: `kafka-drain repair --acknowledge-expired "
        "TOPIC:PARTITION:START-END --apply`, which drains what Kafka still has beside them, and "
        "says what else is to be accepted",
    )
    OFFSET_UNEXPLAINED = (
        "offset_unexplained",
        "error",
        "offsets within Kafka's log at which it has nothing, neither a transaction marker nor an "
        "aborted record, of a topic that it didn't compact: its log has a hole",
        "look for a lost or truncated segment in the logs of the partition's brokers, and compare "
        "its replicas: if another has the records, let it lead and validate again; otherwise "
        "accept the loss: `kafka-drain validate --acknowledge-expired TOPIC:PARTITION:START-END`",
    )
    OFFSET_EXPIRED = (
        "offset_expired",
        "warning",
        "offsets were gone from Kafka before they were drained, and the loss was acknowledged",
        "nothing can be done; shorten the schedule or raise the topic's retention",
    )
    OFFSET_DUPLICATE = (
        "offset_duplicate",
        "error",
        "an offset is in the committed files more than once",
        "the paths in the finding show which file is the copy",
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
        "the records in a segment's files differ from those that Spark read from Kafka",
        "drain the segment again into another archive while Kafka still has it, and compare; if "
        "it isn't sealed yet, `kafka-drain roll --leave-unsealed` lets the next generation drain "
        "it",
    )
    RECORDS_CHANGED = (
        "records_changed",
        "error",
        "the files of a batch that isn't sealed yet don't hold the records that Spark read from "
        "Kafka: the files were changed, or the format couldn't represent something",
        "restore the files from a copy, or run `kafka-drain repair --apply` while Kafka still has "
        "the records",
    )
    CONTENT_UNKNOWN = (
        "content_unknown",
        "warning",
        "only the offsets of a batch are proven: a killed drain left no record of what Spark read, "
        "or some of the records have expired since, and Kafka no longer holds all of them",
        "the warning stays as long as the records do; if Kafka still has them, `kafka-drain "
        "reprocess --from-batch GENERATION:BATCH --apply` drains them again",
    )
    KEY_UNAVAILABLE = (
        "key_unavailable",
        "error",
        "keys, values and headers of some files are encrypted, and the key that opens them isn't "
        "there: their offsets are proven, their records weren't compared with what Spark read",
        "give the validation the master key that the message names, and run it again. If the key "
        "is lost or was destroyed, nobody can read these records any more; `kafka-drain validate` "
        "without --deep goes on proving their offsets",
    )
    TOPIC_MADE_AGAIN = (
        "topic_made_again",
        "error",
        "a topic was deleted or recreated while a batch was drained, or before it could be "
        "determined which incarnation the batch was read from; the batch is never sealed",
        "run `kafka-drain roll --apply`: the next generation leaves the batch out and starts at "
        "the beginning of the new topic; if the topic is gone for good, run `kafka-drain roll "
        "--leave-unsealed --apply`. Without --apply, both say what Kafka can no longer provide",
    )
    LOG_REWRITTEN = (
        "log_rewritten",
        "error",
        "Kafka's log lost its end after that was archived, and has other records at these offsets, "
        "or none yet; nothing that was drained since is sealed, because it may miss records",
        "run `kafka-drain roll --rewritten`: what is sealed stays, and the next generation starts "
        "at the first offset that has another record now",
    )
    IDENTITY_UNTOLD = (
        "identity_untold",
        "warning",
        "Kafka tells no id of a topic, or of the cluster: whether offsets still refer to the same "
        "topic can't be proven by ids, only by its newest archived record",
        "no action needed; Kafka has topic ids since release 2.8",
    )
    RECEIPT_CORRUPT = (
        "receipt_corrupt",
        "error",
        "a receipt can't be read: it was changed after it was sealed, or its write was never "
        "finished",
        "run `kafka-drain repair --apply`: it restores the receipt from the archive's own copy, or "
        "moves it aside if nothing refers to it, so that its segment is proven again. If that "
        "isn't possible, it names what to restore from a copy",
    )
    RECEIPT_CHANGED = (
        "receipt_changed",
        "error",
        "a receipt isn't the one that the next receipt or the journal refers to",
        "run `kafka-drain repair --apply`, which restores it from the archive's own copy; if there "
        "is none, restore the receipts from a copy",
    )
    RECEIPT_HOLE = (
        "receipt_hole",
        "error",
        "a receipt between two others is missing",
        "run `kafka-drain repair --apply`, which restores it from the archive's own copy; if there "
        "is none, restore the receipt from a copy. Without any copy: `kafka-drain repair "
        "--new-journal --apply`, which drops it from the journal",
    )
    RECEIPT_MISPLACED = (
        "receipt_misplaced",
        "error",
        "a receipt lies where another one belongs, or in a copy of its generation's or window's "
        "folder: readers would take its records twice, and miss those of the other one",
        "run `kafka-drain repair --apply`: it restores the receipt that was sealed there from the "
        "archive's own copy, or moves the copy aside, with its folder if that is a copy too",
    )
    RECEIPT_CONTRADICTS = (
        "receipt_contradicts",
        "error",
        "the figures of a receipt contradict each other, so at least one of them is wrong: a "
        "writer has a bug, or the receipt was edited and sealed again",
        "run `kafka-drain repair --apply`, which restores the receipt if it was edited; otherwise "
        "keep the archive as it is and report the receipt as a bug of the release that wrote it",
    )
    RECEIPT_FORGOTTEN = (
        "receipt_forgotten",
        "warning",
        "sealed data was lost or changed, and the journal was started anew without it; readers may "
        "miss its records",
        "nothing can be done; every later report repeats this finding",
    )
    RECEIPT_MISSING = (
        "receipt_missing",
        "error",
        "the journal says that a segment was sealed, but its receipt is missing; readers may miss "
        "its records, or read files that were replaced",
        "run `kafka-drain repair --apply`, which restores it from the archive's own copy; if there "
        "is none, restore what the finding names from a copy, including its data files. "
        "Until then nothing is sealed, replaced or removed. Without any copy: `kafka-drain repair "
        "--new-journal --apply`, which drops it from the journal",
    )
    DOCUMENT_CHANGED = (
        "document_changed",
        "error",
        "a document that determines how sealed segments are read (archive.json, a generation's "
        "generation.json, a window's plan.json), or which records must not come back (a request "
        "in erasures/), has changed since it was sealed, or is missing",
        "run `kafka-drain repair --apply`, which restores it from the archive's own copy; if there "
        "is none, restore it from a copy. Until then nothing is sealed, replaced or removed. "
        "Without any copy: `kafka-drain repair --new-journal --apply`, which accepts a readable "
        "document as it is",
    )
    SEGMENT_OVERLAP = (
        "segment_overlap",
        "error",
        "two sealed segments hold the same offsets of a topic, and neither replaces the other's "
        "files; readers get these records twice",
        "compare both with a copy, and restore the one that has changed; don't backfill until "
        "then; if one isn't sealed yet, `kafka-drain roll --leave-unsealed` leaves it out",
    )
    SEGMENT_HOLE = (
        "segment_hole",
        "error",
        "a generation doesn't start where the previous one ends; the offsets between are nowhere "
        "in the archive",
        "restore the later generation's generation.json, or the missing receipts of the earlier "
        "one, from a copy; without a copy, `kafka-drain repair --apply` drains the offsets while "
        "Kafka still has them; `kafka-drain validate --acknowledge-expired "
        "TOPIC:PARTITION:START-END` accepts the loss of expired ones",
    )
    SEGMENT_EARLY = (
        "segment_early",
        "error",
        "a generation that has sealed nothing yet starts before the previous one ends: it would "
        "archive these offsets again, also records that were erased since",
        "restore the generation's generation.json from a copy; without one, move the generation's "
        "folder out of the archive, as nothing in it is sealed, and run `kafka-drain roll`, which "
        "opens it again where the previous one ends",
    )
    JOURNAL_DAMAGED = (
        "journal_damaged",
        "error",
        "the journal, which records what was sealed, is missing entries or was changed; a missing "
        "receipt may go undetected",
        "run `kafka-drain repair --apply`, which moves an unfinished entry aside, and renews a "
        "journal.json that is only too old; otherwise restore journal.json and the journal folder "
        "from a copy. Until then nothing is sealed, replaced or removed. Without a copy: "
        "`kafka-drain repair --new-journal --apply`, which accepts the archive as it is",
    )
    WITNESS_DIFFERS = (
        "witness_differs",
        "error",
        "the witness, which is kept outside the archive, has seen a receipt that the archive "
        "doesn't have, or has with another hash: the archive was rewritten, or replaced by an "
        "older copy",
        "find out who wrote to the archive, and restore it from a copy that agrees with the "
        "witness; `verify-evidence`, given the witness and its public key, shows what that holds. "
        "If receipts were given up deliberately, name a new witness and keep the "
        "old one. Until then nothing is sealed",
    )
    WITNESS_DAMAGED = (
        "witness_damaged",
        "error",
        "lines of the witness were changed or removed, or aren't signed by a known key",
        "restore the witness from a copy; after a change of keys, name the former public key. "
        "Otherwise name a new witness and keep the old one. Until then nothing is sealed",
    )
    CHECKSUM_MISMATCH = (
        "checksum_mismatch",
        "error",
        "a file written by Spark doesn't match the .crc file beside it; Spark refuses to read it",
        "restore both from a copy; if only the .crc file is bad, delete it",
    )
    NOTE_UNREADABLE = (
        "note_unreadable",
        "warning",
        "an auxiliary document, which no proof depends on, can't be read: after a power cut, or "
        "because another program changed it",
        "no action needed: the next run rewrites it",
    )
    SUMMARY_CHANGED = (
        "summary_changed",
        "error",
        "the summary of a closed generation, or the index, says something else than the "
        "receipts: a restore or a search by time may have missed records since it was changed",
        "run `kafka-drain validate` while Kafka can be reached: that rewrites it from the "
        "receipts, and the next validation no longer reports it. Repeat the restores and searches "
        "by time since the last validation of everything",
    )
    COPY_DAMAGED = (
        "copy_damaged",
        "warning",
        "the archive's own copy of a receipt or document was changed, so that it can't be used if "
        "the original is lost; the original is checked separately",
        "no action needed if no other finding is about the original: `kafka-drain validate --deep` "
        "then rewrites the copy, if it reaches Kafka, and the next one no longer reports it",
    )
    CLUSTER_STATE_LOST = (
        "cluster_state_lost",
        "error",
        "the archive's newest description of its cluster is missing or was changed; no record is "
        "affected, but a recovery would take older offsets of groups, and older settings",
        "restore the file from a copy, or run `kafka-drain validate` while Kafka can be reached, "
        "which describes the cluster anew",
    )
    CLUSTER_STATE_DAMAGED = (
        "cluster_state_damaged",
        "warning",
        "an older description of the archive's cluster is missing or was changed: no record is "
        "affected, and only that moment can't be recovered to",
        "no action needed; to be able to recover to that moment, restore the file from a copy",
    )
    SCHEMA_CHANGED = (
        "schema_changed",
        "error",
        "a schema that the archive keeps was changed or removed since it was sealed; no record is "
        "affected, but a restore would register another schema, or values wouldn't decode",
        "restore the document from a copy, or, while the registry still has the schemas, remove it "
        "and run `kafka-drain capture-schemas` (schemas.json: drain once); "
        "`kafka-drain capture-schemas --reseal` accepts it as it is",
    )
    SCHEMA_SEAL_LOST = (
        "schema_seal_lost",
        "error",
        "the newest seal of the archive's schemas is missing or was changed; whether a schema was "
        "changed can't be said",
        "restore the file from a copy; without one, compare registry.json and schemas.json with a "
        "copy, and run `kafka-drain capture-schemas --reseal`, which seals them as they are",
    )
    SCHEMA_SEAL_DAMAGED = (
        "schema_seal_damaged",
        "warning",
        "an older seal of the archive's schemas is missing or was changed; a newer one holds all "
        "of its schemas",
        "no action needed; to have the whole chain, restore the file from a copy",
    )
    STALLED = (
        "stalled",
        "error",
        "a partition's last stable offset hasn't moved since an earlier run, for 15 minutes or "
        "longer, and records are waiting behind it: a producer left a transaction open, and the "
        "partition can't be drained any further",
        "find the transaction (`kafka-transactions.sh find-hanging --topic TOPIC`) and abort it, "
        "or wait for its timeout; drains then resume by themselves",
    )

    NOTHING_DRAINED = (
        "nothing_drained",
        "error",
        "nothing has been drained to the archive yet, so there is nothing that a validation could "
        "prove: the first drain failed, or hasn't run",
        "drain, and look at why the first drain failed; if its topics are empty, give the "
        "validation access to Kafka, which can say so",
    )

    def __str__(self) -> str:
        return str(self.value)

    def remedy_of(self, archive: object) -> str:
        """Return the remedy with an archive's place in its commands, for messages."""
        place = shlex.quote(str(archive))
        return _COMMAND.sub(lambda found: f"{found[0]} {place}", self.remedy)


#: Findings that leave it unclear what was sealed: it must be restored before anything else.
OF_SEALED = frozenset(
    {
        Reason.RECEIPT_CORRUPT,
        Reason.RECEIPT_CHANGED,
        Reason.RECEIPT_HOLE,
        Reason.RECEIPT_MISSING,
        Reason.RECEIPT_MISPLACED,
        Reason.RECEIPT_CONTRADICTS,
        Reason.DOCUMENT_CHANGED,
        Reason.SEGMENT_OVERLAP,
        Reason.SEGMENT_EARLY,
        Reason.JOURNAL_DAMAGED,
    }
)


#: Findings that only a validation that asks Kafka can make.
OF_KAFKA = frozenset(
    {
        Reason.RECORDS_CHANGED,
        Reason.TOPIC_MADE_AGAIN,
        Reason.LOG_REWRITTEN,
        Reason.STALLED,
        Reason.NOTHING_DRAINED,
    }
)

#: Findings that a validation makes by reading all bytes of a sealed file, or a segment's.
OF_BYTES = frozenset({Reason.FILE_CHANGED, Reason.CONTENT_CHANGED})

#: Findings that the archive isn't the one that its witness has seen.
OF_WITNESS = frozenset({Reason.WITNESS_DIFFERS, Reason.WITNESS_DAMAGED})


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a validation.

    Attributes:
        reason: Its reason code.
        subject: A path relative to the archive, or a topic-partition.
        detail: The observed and the expected state.
        line: Line of the file, starting at 1; None for the whole file.
    """

    reason: Reason
    subject: str | TopicPartition
    detail: str
    line: int | None = None

    @property
    def where(self) -> str:
        """The subject for display, with `:line` if it has a line; not used for decisions."""
        return str(self.subject) if self.line is None else f"{self.subject}:{self.line}"

    def __str__(self) -> str:
        return f"{self.reason}: {self.where}: {self.detail}"

    def to_dict(self) -> dict[str, str]:
        """Return the finding in its report form."""
        return {
            "reason": str(self.reason),
            "severity": self.reason.severity,
            "where": self.where,
            "detail": self.detail,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, str]) -> Finding:
        """Read the finding that `to_dict` returned; the line stays part of the subject."""
        # mypy takes `__new__`, which creates the members, for the look-up.
        reason = Reason(document["reason"])  # type: ignore[call-arg]
        return cls(reason, document["where"], document["detail"])


def without_echoes(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out checksum mismatches of files that have another, more specific finding."""
    findings = list(findings)
    named = {f.subject for f in findings if f.reason != Reason.CHECKSUM_MISMATCH}
    return [f for f in findings if f.reason != Reason.CHECKSUM_MISMATCH or f.subject not in named]


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that make an archive invalid."""
    return [finding for finding in findings if finding.reason.severity == "error"]


def summary(findings: Iterable[Finding]) -> dict[str, int]:
    """Return the number of findings per reason code."""
    return dict(sorted(Counter(str(finding.reason) for finding in findings).items()))
