"""Which run may open: of two with the same records and target, at any moment, one.

republish/openings/00000001.json           the first claim: a run is about to open
republish/openings/00000001.decided.json   what became of it: opened, or withdrawn

Claims are numbered, each made exclusively after all before it, so that of two runs the later one
sees the earlier. It refuses to open beside one that has opened, and withdraws a claim of which
nothing is decided: its run may have been killed. A run opens by deciding its own claim, after its
progress is in Kafka and before its first record; finds it that withdrawn, it sends nothing. Who
decides first is the file system's word, so that a run that was killed or paused locks nobody out
and can't come back beside another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from upath import UPath

from kafka_drain.errors import ArchiveError, ConfigError, KafkaDrainError
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.previous_runs import (
    is_of_same_run,
    refuse_repeated,
    repeated,
    repeats_error,
    sent,
)
from kafka_drain.republish.planning.runs import OPENINGS, RepublishRun
from kafka_drain.storage.json_files import create_document, read_document

__all__ = ["Claim", "Decision", "State", "claim_opening", "decide"]


class State(Enum):
    """What became of a claim."""

    UNDECIDED = "undecided"
    OPENED = "opened"
    WITHDRAWN = "withdrawn"


class Decision(Enum):
    """What a run does about an earlier claim."""

    PASS = "pass"
    WITHDRAW = "withdraw"
    REFUSE = "refuse"


def decide(state: State, *, is_own: bool, overlaps: bool) -> Decision:
    """Decide about an earlier claim.

    Args:
        state: What became of it.
        is_own: Whether it is of the same run, or the same follower: the protocol counts each of
            its records once.
        overlaps: Whether records of it would be sent twice.
    """
    if is_own or not overlaps or state is State.WITHDRAWN:
        return Decision.PASS
    return Decision.REFUSE if state is State.OPENED else Decision.WITHDRAW


@dataclass(frozen=True)
class Claim:
    """A run's claim to open.

    Attributes:
        root: The archive's folder.
        number: Its place among all claims, from 1.
        run: Key of the run; empty when the claim can't be read: whoever made it was killed.
    """

    root: UPath
    number: int
    run: str

    def confirm(self) -> None:
        """Open: from here on no other run takes this one's place.

        Raises:
            ConfigError: When another run has opened meanwhile; names it.
        """
        if self._decide(State.OPENED, self.run):
            return
        document = self._decided()
        if document.get("state") != State.OPENED.value:
            raise repeats_error(
                str(document.get("by")), "began to send", "the same records at the same moment"
            )

    def withdraw(self, by: str) -> bool:
        """Take a claim back, or another's place; False when its run has opened."""
        return self._decide(State.WITHDRAWN, by) or self.state() is State.WITHDRAWN

    def state(self) -> State:
        """Return what became of the claim."""
        document = self._decided()
        return State(document["state"]) if document else State.UNDECIDED

    @property
    def is_settled(self) -> bool:
        """Whether the runs' own folders say all that this claim does."""
        if self.state() is State.WITHDRAWN:
            return True
        run = RepublishRun(self.root, self.run)
        # Also where a later claim of the run was the one that opened.
        return bool(self.run) and (run.is_opened or run.has_ended)

    def _decide(self, state: State, by: str) -> bool:
        return create_document(self._path(".decided"), {"state": state.value, "by": by})

    def _decided(self) -> dict[str, Any]:
        try:
            return read_document(self._path(".decided"), "state", "by")
        except FileNotFoundError:
            return {}

    def _path(self, suffix: str = "") -> UPath:
        return _folder(self.root) / f"{self.number:08d}{suffix}.json"


def claim_opening(root: UPath, plan: RepublishPlan, *, repeat: bool) -> Claim:
    """Claim that a run opens; sends nothing.

    Args:
        root: The archive's folder.
        plan: The run's plan, which is written.
        repeat: Whether it may send what another run sends.

    Raises:
        ConfigError: When another run has sent such records, or began to, or an attempt of this one
            with the plan before; names it.
    """
    claim, unsettled = _append(root, plan.key)
    was_planned_before = bool(RepublishRun(root, plan.key).replaced())
    try:
        if not repeat:
            refuse_repeated(root, plan)
        # All are looked at before one is withdrawn: a run that is refused takes nobody's place.
        to_withdraw = []
        for other in unsettled:
            state = other.state()
            now = _meets(other, plan, repeat=repeat)
            of_earlier_plan = was_planned_before and other.run == plan.key
            # One that can't be read may claim anything. Its run, if it opened, tells of itself.
            is_unknown = not other.run and state is State.UNDECIDED
            decision = decide(
                state,
                is_own=not of_earlier_plan and is_of_same_run(plan, other.run),
                overlaps=of_earlier_plan or is_unknown or now is not None,
            )
            if decision is Decision.REFUSE:
                raise _refusal(other, plan, now)
            if decision is Decision.WITHDRAW:
                to_withdraw.append((other, now))
        for other, now in to_withdraw:
            if not other.withdraw(plan.key):
                raise _refusal(other, plan, now)
    except KafkaDrainError:
        claim.withdraw(plan.key)
        raise
    return claim


def _meets(other: Claim, plan: RepublishPlan, *, repeat: bool) -> str | None:
    """Return the first records of another run's claim that the plan would send again."""
    if repeat or not other.run or is_of_same_run(plan, other.run):
        return None
    theirs = RepublishRun(other.root, other.run).plan()
    return None if theirs is None else repeated(plan, sent(theirs))


def _refusal(other: Claim, plan: RepublishPlan, now: str | None) -> ConfigError:
    if now is not None:
        return repeats_error(other.run, "began to send", now)
    return ConfigError(
        f"an attempt of run {plan.key} began with the plan before this one. Nothing was sent; end "
        "the run (`kafka-drain republish ARCHIVE --abandon RUN --apply`) and name another one"
    )


def _append(root: UPath, run: str) -> tuple[Claim, list[Claim]]:
    """Make the next claim; return it, and those before it that the runs' folders don't tell of."""
    while True:
        numbers = list(_numbers(root))
        last = max(numbers, default=0)
        # What was settled when the last claim was made needs no second look.
        settled = _read(root, last)["settled"] if last else 0
        before = [
            Claim(root, number, str(_read(root, number)["run"]))
            for number in range(settled + 1, last + 1)
        ]
        while before and before[0].is_settled:
            settled = before.pop(0).number
        document = {"run": run, "settled": settled}
        if create_document(_folder(root) / f"{last + 1:08d}.json", document):
            return Claim(root, last + 1, run), before


def _numbers(root: UPath) -> Iterator[int]:
    folder = _folder(root)
    if folder.is_dir():
        for entry in folder.iterdir():
            number = entry.name.removesuffix(".json")
            if number.isdecimal():
                yield int(number)


def _read(root: UPath, number: int) -> dict[str, Any]:
    path = _folder(root) / f"{number:08d}.json"
    try:
        return read_document(path, "run", "settled")
    except FileNotFoundError as error:
        raise ArchiveError(f"{path} is gone; restore it from a copy. Nothing was sent") from error
    except ArchiveError:
        # Where the file system has no hard links, a crash may leave half of it. It is undecided.
        return {"run": "", "settled": 0}


def _folder(root: UPath) -> UPath:
    return RepublishRun(root, OPENINGS).folder
