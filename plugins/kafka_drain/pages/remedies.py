"""Describe an archive's problems and their remedies, as the log of the validation does.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kafka_drain.findings import Reason
from kafka_drain.pages.commands import Reach, pasteable
from kafka_drain.pages.finding_values import filled
from kafka_drain.pages.humanize import many

_REASONS = {reason.value: reason for reason in Reason}

#: Subjects of findings, by their reason's code, as far as they are known: see `values_of`.
Values = Mapping[str, Sequence[str]]
NOT_KNOWN: Values = MappingProxyType({})


def what_to_do(reason: Reason, reach: Reach, values: Values = NOT_KNOWN) -> str:
    """Return the remedy for findings of a reason, with commands to paste into a shell."""
    return pasteable(filled(reason.remedy, values.get(reason.value)), reach)


@dataclass(frozen=True, slots=True)
class Remedy:
    """A kind of finding.

    Attributes:
        code: The reason's code.
        number: Number of findings.
        offsets: Number of offsets that they are about; None if they aren't about offsets.
        is_error: Whether it makes the archive incomplete.
        meaning: Its meaning, as a sentence without its full stop.
        what_to_do: The remedy; commands are in backquotes.
    """

    code: str
    number: int
    offsets: int | None
    is_error: bool
    meaning: str
    what_to_do: str

    @property
    def counted(self) -> str:
        """The number of findings, or of offsets where it is about offsets."""
        if self.offsets is None:
            return many(self.number, "finding")
        return many(self.offsets, "offset")

    @classmethod
    def of(
        cls,
        code: str,
        number: int,
        offsets: int | None,
        reach: Reach,
        values: Values = NOT_KNOWN,
    ) -> Remedy:
        """Return a kind of finding in an archive, with its commands as they can be pasted."""
        reason = _REASONS.get(code)
        if reason is None:
            # Validated by a newer release.
            return cls(code, number, offsets, True, "unknown to this release", "see the report")
        return cls(
            code,
            number,
            offsets,
            reason.severity == "error",
            pasteable(reason.meaning, reach),
            what_to_do(reason, reach, values),
        )


def remedies(overview: Mapping[str, Any], reach: Reach, values: Values = NOT_KNOWN) -> list[Remedy]:
    """Return an archive's problems with their remedies, errors first.

    Args:
        overview: The overview of its last validation.
        reach: Addresses for the commands.
        values: Subjects of the findings, by reason, as far as they are known.
    """
    offsets = overview.get("missing") or {}
    found = [
        Remedy.of(code, number, offsets.get(code), reach, values)
        for code, number in overview.get("findings", {}).items()
    ]
    return sorted(found, key=lambda one: not one.is_error)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The run that ended last, as far as the user may see it.

    Attributes:
        name: Its id; empty if there is none, or the user may not see it.
        problem: Why it failed, in the words of its task's log; empty if it isn't known.
        task: The task that failed; empty if it isn't known.
        validation: State of its task that validates the archive; empty if it has none.
        is_followed: Whether another run is under way.
    """

    name: str = ""
    problem: str = ""
    task: str = ""
    validation: str = ""
    is_followed: bool = False

    @property
    def _run(self) -> str:
        return f"the run `{self.name}`" if self.name and "`" not in self.name else "that run"

    @property
    def failure(self) -> str:
        """The known reason why it failed; empty if none is."""
        at = f"{self.task}: " if self.task else ""
        return f"{at}{self.problem or 'failed, and its log says why'}" if at or self.problem else ""


def standing_remedy(words: str, reach: Reach, last: EndedRun) -> str:
    """Return the remedy for an archive's status; empty if it has findings, or needs none.

    Args:
        words: The words of its status.
        reach: Addresses for the commands.
        last: The run that ended last.
    """
    # What a task said may end in the middle of a command.
    said = last.failure
    said = said if said.count("`") % 2 == 0 else said.replace("`", "'")
    return pasteable(_standing(words, last, said), reach)


def _standing(words: str, last: EndedRun, failure: str) -> str:
    if words == "unreadable":
        return (
            "The server of these pages must be able to read the archive: the same path, or the "
            "store with the pipeline's `archive_conn_id`. Tasks may still work: see the last runs"
        )
    if words == "damaged":
        return (
            "`kafka-drain validate` says what is damaged, and `kafka-drain repair` what mends it; "
            "don't drain until then"
        )
    if words in ("was complete, last run failed", "not validated, last run failed"):
        task = f"`{last.task}`" if last.task and "`" not in last.task else "the failed task"
        said = (
            f"Mend what {last._run} says ({failure})"
            if failure
            else (f"Read the log of {last._run}")
        )
        return f"{said}, and clear {task}: it resumes where it stopped"
    if words == "not validated" and not last.name:
        return (
            "No validation has ended yet. If no run is under way, trigger one; `kafka-drain "
            "validate` proves what is drained already"
        )
    if words == "complete, by a clock ahead":
        return (
            "The last validation is dated ahead of now: what was drained since can't be told. Set "
            "the clocks of the workers and of this server, and run `kafka-drain validate`"
        )
    if words in ("was complete, not validated since", "not validated"):
        return f"{_unvalidated(last)}, or run `kafka-drain validate`"
    return ""


def _unvalidated(last: EndedRun) -> str:
    """Return the remedy after a run that succeeded, and didn't validate the whole archive."""
    if last.is_followed:
        return "A run is under way, which validates when it has drained. Wait for it"
    if last.validation == "success":
        return (
            f"Since the last validation of the archive, {last._run} has ended. It proved its own "
            "hours only, as a backfill does. Wait for the next run of the schedule, trigger one"
        )
    if last.validation:
        return (
            f"Since the last validation, {last._run} has ended, and its own didn't succeed. Clear "
            "its task that validates"
        )
    return f"Since the last validation, {last._run} has ended without one. Trigger a run"
