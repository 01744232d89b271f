"""Say what is wrong with an archive and what mends it, as the log of the validation does.

Opens nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_drain.findings import Reason

_REASONS = {reason.value: reason for reason in Reason}

#: A command in a remedy that works on an archive.
_COMMAND = re.compile(r"`kafka-drain (repair|republish|roll|reprocess|validate)( [^`]*)?`")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A kind of finding.

    Attributes:
        code: The reason's code.
        number: Number of findings.
        is_error: Whether it makes the archive incomplete.
        meaning: What was found, as a sentence without its full stop.
        what_to_do: What mends it; commands are in backquotes.
    """

    code: str
    number: int
    is_error: bool
    meaning: str
    what_to_do: str

    @classmethod
    def of(cls, code: str, number: int, archive: str) -> Remedy:
        """Return a kind of finding in an archive, with its commands as they can be pasted."""
        reason = _REASONS.get(code)
        if reason is None:
            # Validated by a newer release.
            return cls(code, number, True, "unknown to this release", "see the report")
        return cls(
            code,
            number,
            reason.severity == "error",
            reason.meaning,
            with_archive(reason.remedy, archive),
        )


def remedies(findings: Mapping[str, int], archive: str) -> list[Remedy]:
    """Return what is wrong with an archive, errors first.

    Args:
        findings: Number of findings by reason.
        archive: The archive's folder or URL.
    """
    found = [Remedy.of(code, number, archive) for code, number in findings.items()]
    return sorted(found, key=lambda one: not one.is_error)


def with_archive(text: str, archive: str) -> str:
    """Return a text in which each command in backquotes names the archive."""
    place = shlex.quote(archive)
    # A backquote in a path would end the command.
    place = place if "`" not in place else "ARCHIVE"
    return _COMMAND.sub(lambda found: f"`kafka-drain {found[1]} {place}{found[2] or ''}`", text)


#: What to do about an archive that isn't proven, though its last validation found nothing wrong.
_STANDING = {
    "was complete, last run failed": "A run has failed since the last validation. Open the red run "
    "above, read its log, and clear the failed task: it resumes where it stopped",
    "was complete, not validated since": "A run has drained since the last validation, and wasn't "
    "validated. Clear that run's task `validate`, or run `kafka-drain validate`",
    "not validated, last run failed": "No validation has succeeded yet, and the last run failed. "
    "Open the red run above, read its log, and clear the failed task",
    "not validated": "No validation has ended yet. If no run is under way, trigger one; "
    "`kafka-drain validate` proves what is drained already",
    "unreadable": "The server of these pages must be able to read the archive: the same path, or "
    "the store with the pipeline's `archive_conn_id`. Tasks may still work: see the last runs",
}


def standing_remedy(words: str, archive: str) -> str:
    """Return what to do about an archive's status; empty if it has findings, or needs nothing.

    Args:
        words: The words of its status.
        archive: The archive's folder or URL.
    """
    return with_archive(_STANDING.get(words, ""), archive)
