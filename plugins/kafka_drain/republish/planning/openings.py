"""Open runs one at a time if they have the same records and target.

republish/openings/00000001.json           the first claim: a run is about to open
republish/openings/00000001.decided.json   the decision about it: opened or withdrawn

Claims are numbered, and each is created exclusively after all previous ones, so the later of two
runs always sees the earlier one. It refuses to open next to a run that has opened, and withdraws an
undecided claim, whose run may have been killed. A run opens by deciding its own claim, after its
progress is in Kafka and before its first record; if it finds its claim withdrawn, it sends nothing.
The file system determines who decides first. A run that was killed or paused therefore blocks no
other run, and can't resume next to one that has replaced it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeVar

from upath import UPath

from kafka_drain.errors import ArchiveError, ConfigError, KafkaDrainError
from kafka_drain.republish.planning.documents import ClaimJson, DecisionJson, parse
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.previous_runs import (
    ALLOW_REPEATED,
    is_of_same_run,
    refuse_repeated,
    repeated,
    repeats_error,
    sent,
)
from kafka_drain.republish.planning.runs import OPENINGS, RepublishRun
from kafka_drain.storage.json_files import create_document
from kafka_drain.storage.paths import list_folder, read_bytes

D = TypeVar("D")


class ClaimState(Enum):
    """The decision about a claim."""

    UNDECIDED = "undecided"
    OPENED = "opened"
    WITHDRAWN = "withdrawn"


class ClaimDecision(Enum):
    """A run's decision about an earlier claim."""

    PASS = "pass"
    WITHDRAW = "withdraw"
    REFUSE = "refuse"


def decide(
    state: ClaimState, *, is_readable: bool, is_of_earlier_plan: bool, overlaps: bool
) -> ClaimDecision:
    """Decide about an earlier claim.

    Args:
        state: The claim's state.
        is_readable: Whether it names its run, and its plan can be read. If not, it may claim
            anything until it is decided; if its run opened, the run's folder says so.
        is_of_earlier_plan: Whether it is this run's, which has replaced its plan since.
        overlaps: Whether it is another run's, and some of its records would be sent twice. Claims
            of the same run or follower don't count: the protocol counts their records once.
    """
    may_claim_anything = not is_readable and state is ClaimState.UNDECIDED
    if state is ClaimState.WITHDRAWN or not (is_of_earlier_plan or overlaps or may_claim_anything):
        return ClaimDecision.PASS
    return ClaimDecision.REFUSE if state is ClaimState.OPENED else ClaimDecision.WITHDRAW


@dataclass(frozen=True)
class Claim:
    """A run's claim to open.

    Attributes:
        number: Its position among all claims, from 1.
        run: Key of the run; empty when the claim is unreadable because its writer was killed.
    """

    root: UPath
    number: int
    run: str

    def confirm(self) -> None:
        """Open the run: from now on, no other run can take its place.

        Raises:
            ConfigError: When another run has opened in the meantime; names it.
        """
        if self._decide("opened", self.run):
            return
        document = self._decided()
        if document is None or document["state"] != ClaimState.OPENED.value:
            by = str(document and document["by"])
            raise repeats_error(by, "started to send", "the same records at the same moment")

    def withdraw(self, by: str) -> bool:
        """Withdraw this claim for a run; return False when the claim's run has opened."""
        return self._decide("withdrawn", by) or self.state() is ClaimState.WITHDRAWN

    def state(self) -> ClaimState:
        """Return the claim's state."""
        document = self._decided()
        return ClaimState.UNDECIDED if document is None else ClaimState(document["state"])

    def is_settled(self) -> bool:
        """Return whether the runs' own folders already record everything this claim does."""
        if self.state() is ClaimState.WITHDRAWN:
            return True
        run = RepublishRun(self.root, self.run)
        # Also true if a later claim of the run was the one that opened.
        return bool(self.run) and (run.is_opened or run.has_ended)

    def _decide(self, state: Literal["opened", "withdrawn"], by: str) -> bool:
        decision: DecisionJson = {"state": state, "by": by}
        return create_document(self._decision_path(), decision)

    def _decided(self) -> DecisionJson | None:
        try:
            return _parsed(DecisionJson, self._decision_path())
        except FileNotFoundError:
            return None

    def _decision_path(self) -> UPath:
        return _folder(self.root) / f"{self.number:08d}.decided.json"


def claim_opening(root: UPath, plan: RepublishPlan, *, repeat: bool) -> Claim:
    """Claim the opening of a run; sends nothing.

    Args:
        plan: The run's plan, which has been written.
        repeat: Whether it may send records that another run sends.

    Raises:
        ConfigError: When another run has sent such records or has started to, or an attempt of this
            run started with the previous plan; names it.
        ArchiveError: When the plan of another that has opened was changed.
    """
    claim, unsettled = _append(root, plan.key)
    was_planned_before = bool(RepublishRun(root, plan.key).replaced())
    try:
        if not repeat:
            refuse_repeated(root, plan)
        # Check all of them before withdrawing one: a run that is refused must not displace others.
        to_withdraw = []
        for other in unsettled:
            state = other.state()
            if state is ClaimState.WITHDRAWN:
                continue
            now, is_readable = None, bool(other.run)
            try:
                now = _meets(other, plan, repeat=repeat)
            except ArchiveError:
                if state is ClaimState.OPENED:
                    # It may be about to send, and nothing else says what.
                    raise
                is_readable = False
            decision = decide(
                state,
                is_readable=is_readable,
                is_of_earlier_plan=was_planned_before and other.run == plan.key,
                overlaps=now is not None,
            )
            if decision is ClaimDecision.REFUSE:
                raise _refusal(other, plan, now)
            if decision is ClaimDecision.WITHDRAW:
                to_withdraw.append((other, now))
        for other, now in to_withdraw:
            if not other.withdraw(plan.key):
                raise _refusal(other, plan, now)
    except KafkaDrainError:
        claim.withdraw(plan.key)
        raise
    return claim


def refuse_lost(run: RepublishRun, *, is_known: bool) -> None:
    """Refuse to plan a run anew that has opened, of whose folder nothing is left.

    Kafka keeps its progress for some days only, and then nothing else would tell what it has sent.
    Claims that were settled when the last one was made aren't read again.

    Args:
        is_known: Whether it was found to have a plan or a receipt.

    Raises:
        ArchiveError: When it has opened, and has neither a plan nor a receipt.
    """
    claim = None if is_known else _opened(run)
    # Otherwise, another process has planned it meanwhile.
    if claim is not None and run.plan() is None and run.receipt() is None:
        raise ArchiveError(
            f"run {run.key} has opened, as {claim._decision_path()} says, but {run.folder} has "
            "neither its plan nor its receipt, so it is unknown which records it has sent; "
            "restore them from a copy, or name another run and a target that this one didn't "
            "send to. Nothing was sent"
        )


def has_opened(run: RepublishRun) -> bool:
    """Return whether a run has opened, even if it was killed before it could say so in its folder.

    Claims don't say with which plan: if it was planned again since, this isn't known.
    """
    return run.is_opened or (not run.replaced() and _opened(run) is not None)


def _opened(run: RepublishRun) -> Claim | None:
    """Return the claim by which a run has opened, among those that may not be settled."""
    last = max(_numbers(run.root), default=0)
    settled = _read(run.root, last)["settled"] if last else 0
    for number in range(last, settled, -1):
        claim = Claim(run.root, number, _read(run.root, number)["run"])
        if claim.run == run.key and claim.state() is ClaimState.OPENED:
            return claim
    return None


def _meets(other: Claim, plan: RepublishPlan, *, repeat: bool) -> str | None:
    """Return the first records of another run's claim that the plan would send again."""
    if repeat or not other.run or is_of_same_run(plan, other.run):
        return None
    theirs = RepublishRun(other.root, other.run).plan(ALLOW_REPEATED)
    return None if theirs is None else repeated(plan, sent(theirs))


def _refusal(other: Claim, plan: RepublishPlan, now: str | None) -> ConfigError:
    if now is not None or other.run not in ("", plan.key):
        now = now or "records that its changed plan doesn't tell"
        return repeats_error(other.run, "started to send", now)
    return ConfigError(
        f"an attempt of run {plan.key} started with the previous plan. Nothing was sent; end the "
        f"run ({RepublishRun(other.root, plan.key).abandoning}) and name another one"
    )


def _append(root: UPath, run: str) -> tuple[Claim, list[Claim]]:
    """Create the next claim; return it, and earlier ones that the runs' folders don't record."""
    while True:
        numbers = list(_numbers(root))
        last = max(numbers, default=0)
        # Claims that were settled when the last one was made needn't be checked again.
        settled = _read(root, last)["settled"] if last else 0
        before = [
            Claim(root, number, _read(root, number)["run"])
            for number in range(settled + 1, last + 1)
        ]
        while before and before[0].is_settled():
            settled = before.pop(0).number
        document: ClaimJson = {"run": run, "settled": settled}
        if create_document(_folder(root) / f"{last + 1:08d}.json", document):
            return Claim(root, last + 1, run), before


def _numbers(root: UPath) -> Iterator[int]:
    for name in list_folder(_folder(root)):
        number = name.removesuffix(".json")
        if number.isdecimal():
            yield int(number)


def _read(root: UPath, number: int) -> ClaimJson:
    path = _folder(root) / f"{number:08d}.json"
    try:
        return _parsed(ClaimJson, path)
    except FileNotFoundError as error:
        raise ArchiveError(f"{path} is gone; restore it from a copy. Nothing was sent") from error
    except ArchiveError:
        # On file systems without hard links, a crash may leave half a file. It is undecided.
        return {"run": "", "settled": 0}


def _parsed(kind: type[D], path: UPath) -> D:
    content = read_bytes(path)
    try:
        return parse(kind, content)
    except ValueError as error:
        raise ArchiveError(f"{path} was changed ({error}); restore it from a copy") from error


def _folder(root: UPath) -> UPath:
    return RepublishRun(root, OPENINGS).folder
