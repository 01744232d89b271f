"""A plan that a dry run has frozen, and whether it may be carried out.

Its id ends in a part of its own hash: whoever approves an id approves these bytes. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from kafka_drain.archive.format import SealedDocument
from kafka_drain.config.verbs import MOST_HOURS, Approvable
from kafka_drain.errors import ConfigError, PlanChangedError
from kafka_drain.intervals import in_utc

#: Default time within which a frozen plan may be started.
LIFETIME = timedelta(hours=24)

#: Rows of a table that a person is shown, and characters of a value in it.
ROWS, CHARACTERS = 20, 300

#: Digits of the plan's hash in its id.
_DIGITS = 16


class PlanState(Enum):
    """The progress of a plan."""

    NEW = "new"
    STARTED = "started"
    DONE = "done"


class PlanDecision(Enum):
    """A decision about a frozen plan."""

    RUN = "run"
    RESUME = "resume"
    DO_NOTHING = "do nothing"
    REFUSE_OTHER = "refuse: it belongs to something else"
    REFUSE_EXPIRED = "refuse: it has expired"
    REFUSE_CHANGED = "refuse: something has changed"


def decide(state: PlanState, *, is_own: bool, is_expired: bool, is_changed: bool) -> PlanDecision:
    """Decide whether a frozen plan is carried out.

    A plan that was started in time is resumed however long that takes: what it has changed so far
    is no reason to stop half way.

    Args:
        state: Its progress.
        is_own: Whether it is a plan of this kind, for this pipeline and archive.
        is_expired: Whether it is too late to start it.
        is_changed: Whether it would do something else than was seen.
    """
    if not is_own:
        return PlanDecision.REFUSE_OTHER
    if state is PlanState.DONE:
        return PlanDecision.DO_NOTHING
    if state is PlanState.STARTED:
        return PlanDecision.RESUME
    if is_expired:
        return PlanDecision.REFUSE_EXPIRED
    return PlanDecision.REFUSE_CHANGED if is_changed else PlanDecision.RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPlan(SealedDocument):
    """A plan as a person has seen it.

    Attributes:
        kind: Its verb.
        pipeline: The pipeline's name.
        archive_id: The archive's id.
        created_at: When it was made, in UTC.
        expires_at: Until when it may be started, in UTC.
        asked: The request, as JSON types; by kind.
        seen: The planned changes, as JSON types; by kind.
        text: The plan for people, in Markdown.
    """

    kind: Approvable
    pipeline: str
    archive_id: str
    created_at: str
    expires_at: str
    asked: Mapping[str, Any]
    seen: Mapping[str, Any]
    text: str

    @property
    def id(self) -> str:
        """The plan's id: kind, time and hash."""
        at = in_utc(datetime.fromisoformat(self.created_at))
        return f"{self.kind}-{at:%Y%m%dT%H%M%SZ}-{self.sha256[:_DIGITS]}"

    def is_expired(self, now: datetime) -> bool:
        """Return whether it is too late to start it."""
        return now >= in_utc(datetime.fromisoformat(self.expires_at))

    def summary(self) -> dict[str, str]:
        """Return the facts needed to approve it, as JSON types."""
        return {"plan_id": self.id, "expires_at": self.expires_at, "approval": self.text}

    def lines(self) -> list[str]:
        """Return the plan's id and deadline as lines of text for the user."""
        return [f"{self.kind} {self.pipeline}: plan {self.id}, to be started by {self.expires_at}"]

    def proceed(
        self,
        state: PlanState,
        *,
        kind: Approvable,
        pipeline: str,
        archive_id: str | None,
        now: datetime,
        changes: Sequence[str] = (),
    ) -> PlanDecision:
        """Decide about the plan, and raise an error if it is refused.

        Args:
            state: Its progress.
            kind: The verb to carry out.
            pipeline: Name of the archive's pipeline.
            archive_id: The archive's id.
            changes: Changes since it was seen.

        Returns:
            RUN, RESUME or DO_NOTHING.

        Raises:
            PlanChangedError: When it is refused; says what has changed.
        """
        own, here = (self.kind, self.pipeline, self.archive_id), (kind, pipeline, archive_id)
        decision = decide(
            state, is_own=own == here, is_expired=self.is_expired(now), is_changed=bool(changes)
        )
        why = {
            PlanDecision.REFUSE_OTHER: (
                f"it is a {self.kind} of pipeline {self.pipeline} in archive {self.archive_id}, "
                f"but this is a {kind} of {pipeline} in archive {archive_id or 'without an id'}"
            ),
            PlanDecision.REFUSE_EXPIRED: f"it had to be started by {self.expires_at}",
            PlanDecision.REFUSE_CHANGED: f"since it was made, {'; '.join(changes)}",
        }.get(decision)
        if why is not None:
            raise PlanChangedError(
                f"plan {self.id} can't be carried out: {why}. Nothing was done; make a new plan "
                "with a dry run"
            )
        return decision


def lifetime(hours: float) -> timedelta:
    """Return the time within which a plan may be started.

    Raises:
        ConfigError: When it isn't positive, or longer than 30 days.
    """
    if not 0 < hours <= MOST_HOURS:
        raise ConfigError(
            f"a plan can't be started within {hours:g} hours; accepted: up to {MOST_HOURS}"
        )
    return timedelta(hours=hours)


def expiry(now: datetime, lifetime: timedelta) -> tuple[str, str]:
    """Return the times at which a plan is made and expires."""
    return (
        now.isoformat(timespec="milliseconds"),
        (now + lifetime).isoformat(timespec="milliseconds"),
    )


def files_changed(paths: Collection[str]) -> str:
    """Return that files were replaced or removed, as a part of a sentence."""
    how = "1 file was" if len(paths) == 1 else f"{len(paths):,} files were"
    return f"{how} replaced or removed, such as {min(paths)}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table of the first rows, and the number of the others."""
    shown = [header, ["---"] * len(header), *rows[:ROWS]]
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in shown]
    if len(rows) > ROWS:
        lines += ["", f"and {len(rows) - ROWS:,} more"]
    return "\n".join(lines)


def _cell(value: object) -> str:
    """Return a value for a cell: numbers with separators, and nothing that ends the cell."""
    text = f"{value:,}" if isinstance(value, int) else str(value)
    text = " ".join(text.split())
    if len(text) > CHARACTERS:
        text = text[: CHARACTERS - 2] + " …"
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def paragraphs(parts: Iterable[str]) -> str:
    """Return the parts of a plan's text that aren't empty, as paragraphs of Markdown."""
    return "\n\n".join(filter(None, parts))


def bullets(lines: Sequence[str]) -> str:
    """Return the first lines as a Markdown list, and the number of the others."""
    shown = [f"- {_cell(line)}" for line in lines[:ROWS]]
    return "\n".join([*shown, *([f"- and {len(lines) - ROWS:,} more"] * (len(lines) > ROWS))])
