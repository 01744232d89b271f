"""What validation can find: reason codes, each with its meaning and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Reason", "errors", "summary"]


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
        "restore the folder from a copy; don't drain before",
    )
    MANIFEST_EMPTY = (
        "manifest_empty",
        "error",
        "a manifest file has no bytes; readers of the sink fail on it",
        "restore the file from a copy; don't drain before",
    )
    MANIFEST_TRUNCATED = (
        "manifest_truncated",
        "error",
        "a manifest file doesn't list all files that its batches wrote; readers miss their rows",
        "restore the file from a copy; the data files are still in the sink",
    )
    MANIFEST_CORRUPT = (
        "manifest_corrupt",
        "error",
        "a manifest file holds something that Spark doesn't write",
        "restore the file from a copy",
    )
    MANIFEST_HOLE = (
        "manifest_hole",
        "error",
        "the manifest has no file for a batch between two others; readers miss its rows",
        "restore the file from a copy; the data files are still in the sink",
    )
    MANIFEST_DUPLICATE = (
        "manifest_duplicate",
        "error",
        "the manifest lists a data file twice; some readers count its rows twice",
        "restore the manifest file from a copy",
    )
    MANIFEST_BEHIND = (
        "manifest_behind",
        "error",
        "the checkpoint committed a batch that the manifest doesn't have; readers miss its rows",
        "restore the manifest from a copy; don't drain before",
    )
    MANIFEST_AHEAD = (
        "manifest_ahead",
        "error",
        "the manifest has a batch that the checkpoint doesn't know; Spark would skip the next "
        "batches as already written and lose their offsets",
        "restore the checkpoint from a copy; don't drain before",
    )
    CHECKPOINT_MISSING = (
        "checkpoint_missing",
        "error",
        "the sink has a manifest, and the checkpoint is gone; Spark would count batches from 0 "
        "again, skip them as already written and lose their offsets",
        "restore the checkpoint from a copy; don't drain before",
    )
    CHECKPOINT_CORRUPT = (
        "checkpoint_corrupt",
        "error",
        "a checkpoint file holds something that Spark doesn't write",
        "restore the file from a copy",
    )
    CHECKPOINT_HOLE = (
        "checkpoint_hole",
        "error",
        "the checkpoint has no offsets or no commit for a batch between two others",
        "restore the file from a copy",
    )
    FILE_MISSING = (
        "file_missing",
        "error",
        "the manifest lists a data file that isn't there",
        "restore the file from a copy, or drain its offsets again while Kafka has them",
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
        "restore the file from a copy",
    )
    FILE_CORRUPT = (
        "file_corrupt",
        "error",
        "a data file can't be read",
        "restore the file from a copy",
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
        "look at the reason of the gap in the report; restore the file that held them",
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

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that validation found.

    Attributes:
        reason: Its code.
        where: Path relative to the archive, with `:line` where a line is meant, or a
            topic-partition.
        detail: What was seen and what was expected.
    """

    reason: Reason
    where: str
    detail: str

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


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that make an archive invalid."""
    return [finding for finding in findings if finding.reason.severity == "error"]


def summary(findings: Iterable[Finding]) -> dict[str, int]:
    """Return how often each reason code was found."""
    return dict(sorted(Counter(str(finding.reason) for finding in findings).items()))
