"""What each step of a cut-over requires, in which order, and the way back."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from kafka_drain.cut_over.steps import (
    BACK,
    STEPS,
    Check,
    CutOverStep,
    StepObservation,
    StepState,
    checklist,
    missing_in,
    moved,
    problems,
    unready,
    way_back,
)
from kafka_drain.offsets import TopicPartition

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))

#: For each condition, what is seen if it doesn't hold, and a word of what is said then.
BROKEN: dict[Check, tuple[dict[str, Any], str]] = {
    Check.EARLIER_STEPS: ({"unready": ("step mirror has to pass first",)}, "step mirror has"),
    Check.LAG: ({"lag": 1_001}, "lacks 1,001 offsets, expected at most 1,000"),
    Check.SOURCE_QUIET: ({"moved": {P0: 5}}, r"(t-0: 5): turn them off"),
    Check.DRAINED: ({"undrained": {P1: 3}}, "(t-1: 3): drain and"),
    Check.MIRRORED: ({"unsent": 2}, "2 sealed files weren't sent"),
    Check.TARGET_KEPT: ({"changed": ("t-0 begins at 9",)}, "t-0 begins at 9: stop who writes"),
    Check.GROUPS_IDLE: ({"busy": ("group g is STABLE",)}, "group g is STABLE: stop these"),
    Check.GROUPS_PLACED: ({"misplaced": ("group g is at 1",)}, "group g is at 1: take step groups"),
}

#: The table: a step (row) passes only if each condition with an x holds.
TABLE = """
    step           EARLIER LAG SOURCE DRAINED MIRRORED TARGET IDLE PLACED
    mirror         x       x   -      -       -        -      -    -
    producers_off  x       -   x      -       -        -      -    -
    last_drain     x       -   x      x       -        -      -    -
    last_mirror    x       -   x      x       x        -      -    -
    groups         x       -   x      x       x        -      x    -
    verify         x       -   x      x       x        x      x    x
    hand_over      x       -   x      x       x        x      x    x
"""


def required() -> dict[CutOverStep, set[Check]]:
    """Read the table."""
    rows = [line.split() for line in TABLE.strip().splitlines()[1:]]
    return {
        CutOverStep(name): {check for check, mark in zip(Check, marks, strict=True) if mark == "x"}
        for name, *marks in rows
    }


def everything(broken: set[Check]) -> StepObservation:
    """What is seen if some conditions don't hold."""
    changes: dict[str, Any] = {}
    for check in broken:
        changes |= BROKEN[check][0]
    return StepObservation(**({"max_lag": 1_000, "lag": 1_000} | changes))


@pytest.mark.parametrize("step", STEPS)
def test_problems_each_combination(step: CutOverStep) -> None:
    """Of all 256 combinations, a step passes exactly if all that the table requires holds."""
    needs, seen_combinations = required()[step], 0
    for size in range(len(Check) + 1):
        for broken in map(set, combinations(Check, size)):
            seen_combinations += 1
            said = problems(step, everything(broken))
            assert len(said) == len(broken & needs)
            for check in broken & needs:
                assert any(BROKEN[check][1] in text for text in said), (check, said)
    assert seen_combinations == 256


@pytest.mark.parametrize(
    ("seen", "passes"),
    [
        (StepObservation(lag=0, max_lag=0), True),
        (StepObservation(lag=1, max_lag=0), False),
        (StepObservation(lag=5, max_lag=5), True),
        (StepObservation(lag=6, max_lag=5), False),
    ],
)
def test_problems_lag_bounds(seen: StepObservation, passes: bool) -> None:
    """The lag may be as large as its limit, and no larger."""
    assert (problems(CutOverStep.MIRROR, seen) == []) is passes


def test_problems_inexact_run() -> None:
    """A run of the mirror that isn't exact is named, beside files that weren't sent."""
    [said] = problems(
        CutOverStep.LAST_MIRROR, StepObservation(inexact=("follow-x.000002",), unsent=1)
    )
    assert "1 sealed files weren't sent; run follow-x.000002 isn't exact" in said


def test_problems_many() -> None:
    """Of many partitions, ten are named."""
    [said] = problems(
        CutOverStep.PRODUCERS_OFF,
        StepObservation(moved={TopicPartition("t", n): 1 for n in range(11)}),
    )
    assert "t-9: 1 …" in said
    assert "t-10" not in said
    [said] = problems(CutOverStep.MIRROR, StepObservation(unready=tuple("abcdefghij")))
    assert said == "a; b; c; d; e; f; g; h; i; j"


ALL = [(step.value, True) for step in STEPS]


@pytest.mark.parametrize("taken", range(len(STEPS)))
def test_unready_in_order(taken: int) -> None:
    """Each step needs all before it, and none after it."""
    for at, step in enumerate(STEPS):
        missing = unready(step, ALL[:taken])
        assert missing == (() if at <= taken else (f"step {STEPS[taken].value} has to pass first",))


@pytest.mark.parametrize("again", STEPS[:-2])
@pytest.mark.parametrize("passed", [True, False])
def test_unready_taken_again(again: CutOverStep, passed: bool) -> None:
    """When a step is taken again, those after it have to be taken again, too."""
    history = [*ALL[:-1], (again.value, passed)]
    first = STEPS[STEPS.index(again) + passed]
    assert unready(CutOverStep.HAND_OVER, history) == (f"step {first.value} has to pass first",)
    assert unready(again, history) == ()


def test_unready_back() -> None:
    """After a way back, all starts over; one that failed changes nothing."""
    history = [*ALL[:-1], (BACK, True)]
    assert unready(CutOverStep.MIRROR, history) == ()
    assert unready(CutOverStep.PRODUCERS_OFF, history) == ("step mirror has to pass first",)
    assert unready(CutOverStep.HAND_OVER, [*ALL[:-1], (BACK, False)]) == ()
    assert unready(CutOverStep.PRODUCERS_OFF, [("mirror", True), (BACK, True)]) != ()
    assert unready(CutOverStep.PRODUCERS_OFF, [*history, ("mirror", True)]) == ()


@pytest.mark.parametrize("step", STEPS)
def test_unready_handed_over(step: CutOverStep) -> None:
    """After the hand-over, no step can be taken: a mirror would mix with the producers' records."""
    for history in (ALL, [*ALL, (CutOverStep.MIRROR.value, False)]):
        [said] = unready(step, history)
        assert said == "it was handed over: start another one, with another run_name"
        assert set(checklist(history).values()) == {StepState.PASSED}


def test_checklist() -> None:
    """The checklist says which step is next, and which was refused."""
    history = [("mirror", True), ("producers_off", True), ("last_drain", False)]
    assert list(checklist(history).values()) == [
        *(StepState.PASSED, StepState.PASSED, StepState.REFUSED),
        *(StepState.WAITING,) * 4,
    ]
    assert list(checklist(history[:2]).values())[2:4] == [StepState.NEXT, StepState.WAITING]
    assert set(checklist(ALL).values()) == {StepState.PASSED}
    assert list(checklist([("mirror", False)]).values())[:2] == [
        StepState.REFUSED,
        StepState.WAITING,
    ]
    # An attempt that passed before the steps that it follows counts no more.
    assert (
        checklist([("producers_off", True), ("mirror", True)])[CutOverStep.PRODUCERS_OFF]
        is StepState.NEXT
    )


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        ({P0: 5, P1: 0}, {P0: 5, P1: 0}, {}),
        ({P0: 5, P1: 7}, {P0: 6, P1: 7}, {P0: 1}),
        # A log that is shorter, a partition that is new, one that is gone.
        ({P0: 5}, {P0: 4}, {P0: -1}),
        ({P0: 5}, {P0: 5, P1: 2}, {P1: 2}),
        ({P0: 5}, {P0: 5, P1: 0}, {}),
        ({P0: 5, P1: 2}, {P0: 5}, {P1: -2}),
    ],
)
def test_moved(
    before: dict[TopicPartition, int],
    now: dict[TopicPartition, int],
    changes: dict[TopicPartition, int],
) -> None:
    """Any change of an end counts: more, less, a partition that came or went."""
    assert moved(before, now) == changes


def test_missing_in() -> None:
    """A partition that was never drained lacks what the source has; none lacks less than 0."""
    held = {P0: 10, P1: 12}
    assert missing_in(held, {P0: 0, P1: 0, P2: 5}, {P0: 10, P1: 13, P2: 9}) == {P1: 1, P2: 4}
    assert missing_in({}, {}, {P0: 4}) == {P0: 4}
    assert missing_in(held, {}, {P0: 9}) == {}


def test_way_back() -> None:
    """Each step says how to go back, with what it has done; the last one says that it can't."""
    said = {step: " ".join(way_back(step)) for step in STEPS}
    assert way_back(CutOverStep.PRODUCERS_OFF)[:2] == [
        "the source is as it was: its records, its groups' offsets",
        "turn the producers on again, at the source",
    ]
    for step in STEPS[:-1]:
        at = STEPS.index(step)
        assert "the source is as it was" in said[step]
        assert ("turn the producers on again" in said[step]) is (at >= 1)
        assert ("restore the target's groups" in said[step]) is (at >= 4)
    assert "no way back" in said[CutOverStep.HAND_OVER]


def test_checklist_back_twice() -> None:
    """What was taken before the newest way back doesn't count, however often that was."""
    attempt = [("mirror", True), ("producers_off", True), (BACK, True)]

    assert checklist(attempt * 2) == checklist([])
    # A way back that was refused changes nothing.
    refused = [*attempt, ("mirror", True), (BACK, False)]
    assert checklist(refused) == checklist([("mirror", True)])
