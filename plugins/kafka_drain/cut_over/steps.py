"""The steps of a cut-over: their conditions, and the way back from each. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kafka_drain.offsets import TopicPartition

#: Name of a way back among the steps of a cut-over.
BACK = "back"

_SHOWN = 10


class CutOverStep(str, Enum):
    """A step, in the order in which they are taken."""

    #: Sealed records are sent to the target, until little is missing there.
    MIRROR = "mirror"
    #: The source doesn't grow any more.
    PRODUCERS_OFF = "producers_off"
    #: All that the source holds is in the archive, and proven.
    LAST_DRAIN = "last_drain"
    #: All that is in the archive is in the target, and compared.
    LAST_MIRROR = "last_mirror"
    #: Consumer groups have offsets in the target.
    GROUPS = "groups"
    #: The target is still what the mirror and the translation have made of it.
    VERIFY = "verify"
    #: Producers and consumers may start on the target.
    HAND_OVER = "hand_over"


STEPS = tuple(CutOverStep)


class StepState(str, Enum):
    """The state of a step in the checklist."""

    PASSED = "passed"
    REFUSED = "refused"
    NEXT = "next"
    WAITING = "waiting"


class Check(Enum):
    """A condition of a step."""

    EARLIER_STEPS = "earlier steps have passed"
    LAG = "the target lacks few records"
    SOURCE_QUIET = "the source doesn't grow"
    DRAINED = "all that the source holds is sealed"
    MIRRORED = "all that is sealed was sent, and compared"
    TARGET_KEPT = "the target holds what was sent, and nothing else since"
    GROUPS_IDLE = "no consumer is active"
    GROUPS_PLACED = "the groups have the offsets that were translated"


_QUIET = (Check.EARLIER_STEPS, Check.SOURCE_QUIET)
_WHOLE = (*_QUIET, Check.DRAINED, Check.MIRRORED)
_VERIFIED = (*_WHOLE, Check.TARGET_KEPT, Check.GROUPS_IDLE, Check.GROUPS_PLACED)

#: The checks that each step requires. From `producers_off` on, each one looks at the source again:
#: a producer may have come back.
REQUIRED: Mapping[CutOverStep, tuple[Check, ...]] = {
    CutOverStep.MIRROR: (Check.EARLIER_STEPS, Check.LAG),
    CutOverStep.PRODUCERS_OFF: _QUIET,
    CutOverStep.LAST_DRAIN: (*_QUIET, Check.DRAINED),
    CutOverStep.LAST_MIRROR: _WHOLE,
    CutOverStep.GROUPS: (*_WHOLE, Check.GROUPS_IDLE),
    CutOverStep.VERIFY: _VERIFIED,
    CutOverStep.HAND_OVER: _VERIFIED,
}


@dataclass(frozen=True, slots=True)
class StepObservation:
    """Observations of a step.

    Attributes:
        unready: Conditions that have to be met before this step.
        lag: Number of offsets at the source that weren't in the target.
        max_lag: Number of offsets that may be missing there before the producers are turned off.
        moved: For each source partition whose end has changed since the producers were off: by how
            many offsets; less than 0 if the log is shorter.
        undrained: Number of offsets that no receipt covers, by source partition.
        unsent: Number of sealed files that the mirror hasn't sent and compared.
        inexact: Runs of the mirror whose comparison found something.
        changed: Differences of target partitions from the mirror's result.
        busy: Active groups, by group and cluster.
        misplaced: Differences between groups' offsets and the translated ones.
    """

    unready: tuple[str, ...] = ()
    lag: int = 0
    max_lag: int = 0
    moved: Mapping[TopicPartition, int] = field(default_factory=dict)
    undrained: Mapping[TopicPartition, int] = field(default_factory=dict)
    unsent: int = 0
    inexact: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    misplaced: tuple[str, ...] = ()


def problems(step: CutOverStep, seen: StepObservation) -> list[str]:
    """Decide whether a step has passed.

    Returns:
        Why it hasn't, each with what to do; empty if it has.
    """
    return [text for check in REQUIRED[step] if (text := _COMPLAINTS[check](seen))]


def is_handed_over(history: Sequence[tuple[str, bool]]) -> bool:
    """Return whether clients have moved; nothing that is tried afterwards changes that."""
    return (CutOverStep.HAND_OVER.value, True) in history


def checklist(history: Sequence[tuple[str, bool]]) -> dict[CutOverStep, StepState]:
    """Return the state of each step.

    A step has passed if its newest attempt has, after the step before it: when an earlier one is
    taken again, those after it have to be taken again, too.

    Args:
        history: The steps that were taken and whether they passed, oldest first; `back` starts all
            over.
    """
    if is_handed_over(history):
        return dict.fromkeys(STEPS, StepState.PASSED)
    backs = [at for at, (name, passed) in enumerate(history) if name == BACK and passed]
    taken = history[backs[-1] + 1 :] if backs else history
    newest = {name: (at, passed) for at, (name, passed) in enumerate(taken)}
    states, last, is_next = dict[CutOverStep, StepState](), -1, True
    for step in STEPS:
        at, passed = newest.get(step.value, (None, False))
        if at is not None and not passed:
            states[step] = StepState.REFUSED
        elif at is not None and is_next and at > last:
            states[step], last = StepState.PASSED, at
            continue
        else:
            states[step] = StepState.NEXT if is_next else StepState.WAITING
        is_next = False
    return states


def unready(step: CutOverStep, history: Sequence[tuple[str, bool]]) -> tuple[str, ...]:
    """Return the conditions that a step still lacks; none if it can be taken.

    Args:
        history: See `checklist`.
    """
    if is_handed_over(history):
        return ("it was handed over: start another one, with another run_name",)
    states = checklist(history)
    before = STEPS[: STEPS.index(step)]
    missing = next((each for each in before if states[each] is not StepState.PASSED), None)
    return () if missing is None else (f"step {missing.value} has to pass first",)


def moved(
    before: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the changes of partitions' end offsets; new partitions begin at 0."""
    changes = {tp: end - before.get(tp, 0) for tp, end in now.items()}
    changes |= {tp: -before[tp] for tp in before.keys() - now.keys()}
    return {tp: change for tp, change in sorted(changes.items()) if change}


def missing_in(
    held: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the number of the source's offsets that something lacks.

    Args:
        held: Up to where it has each partition; partitions that it doesn't know are left out.
        first: The first offset that the source still has.
        ends: The source's end offsets.
    """
    lacks = {tp: end - held.get(tp, first.get(tp, 0)) for tp, end in ends.items()}
    return {tp: count for tp, count in sorted(lacks.items()) if count > 0}


def way_back(step: CutOverStep) -> list[str]:
    """Return the way back after a step, as text for the user."""
    if step is CutOverStep.HAND_OVER:
        return [
            "there is no way back by this tool: what producers send to the target isn't in the "
            "source"
        ]
    at = STEPS.index(step)
    lines = ["the source is as it was: its records, its groups' offsets"]
    if at >= STEPS.index(CutOverStep.PRODUCERS_OFF):
        lines.append("turn the producers on again, at the source")
    if at >= STEPS.index(CutOverStep.GROUPS):
        lines.append(
            "restore the target's groups: `kafka-drain cut-over … --back --apply`, or the answer "
            "Go back in Airflow; then start the consumers at the source"
        )
    lines.append(
        "the target keeps what was sent; nobody reads it. The next attempt continues there, unless "
        "the target has changed"
    )
    return lines


def _listed(found: Sequence[str]) -> str:
    return "; ".join(found[:_SHOWN]) + (" …" if len(found) > _SHOWN else "")


def _counts(found: Mapping[TopicPartition, int]) -> str:
    return _listed([f"{tp}: {count:,}" for tp, count in sorted(found.items())])


def _lag(seen: StepObservation) -> str:
    if seen.lag <= seen.max_lag:
        return ""
    return (
        f"the target lacks {seen.lag:,} offsets, expected at most {seen.max_lag:,} (max_lag): "
        "drain and validate, then take this step again"
    )


def _source_quiet(seen: StepObservation) -> str:
    if not seen.moved:
        return ""
    return (
        f"the source's ends have moved while its producers should be off ({_counts(seen.moved)}): "
        "turn them off, then take the steps again from producers_off"
    )


def _drained(seen: StepObservation) -> str:
    if not seen.undrained:
        return ""
    return (
        f"the source holds offsets that aren't sealed ({_counts(seen.undrained)}): drain and "
        "validate; an open transaction has to end first"
    )


def _mirrored(seen: StepObservation) -> str:
    found = [f"{seen.unsent:,} sealed files weren't sent"] if seen.unsent else []
    found += [f"run {run} isn't exact" for run in seen.inexact]
    return f"{_listed(found)}: take step last_mirror again" if found else ""


def _changed(seen: StepObservation) -> str:
    if not seen.changed:
        return ""
    return (
        f"the target has changed since the mirror's last run: {_listed(seen.changed)}: "
        "stop who writes there or deletes from it, and go back. As each later look would find "
        "that again, the next attempt needs another run_name, and new target topics: delete these "
        "before, or name others"
    )


def _busy(seen: StepObservation) -> str:
    if not seen.busy:
        return ""
    return f"{_listed(seen.busy)}: stop these consumers, then take the step again"


def _misplaced(seen: StepObservation) -> str:
    return f"{_listed(seen.misplaced)}: take step groups again" if seen.misplaced else ""


_COMPLAINTS: Mapping[Check, Callable[[StepObservation], str]] = {
    Check.EARLIER_STEPS: lambda seen: _listed(seen.unready),
    Check.LAG: _lag,
    Check.SOURCE_QUIET: _source_quiet,
    Check.DRAINED: _drained,
    Check.MIRRORED: _mirrored,
    Check.TARGET_KEPT: _changed,
    Check.GROUPS_IDLE: _busy,
    Check.GROUPS_PLACED: _misplaced,
}
