"""A small sample of the histories that `make histories` plays by the thousand."""

from __future__ import annotations

import pytest

from tests.histories.planted import MISTAKES
from tests.histories.play import play

STEPS = 12


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_history(first: int) -> None:
    """Whatever happens, readers get each record once, and a green verdict is true."""
    played = [play(seed, steps=STEPS) for seed in range(first, first + 4)]

    assert [each.failure for each in played if each.failure] == []


def test_history_again() -> None:
    """A seed decides everything: a history that is played again is the same."""
    one, other = (play(8, steps=STEPS) for _ in range(2))

    assert one.steps == other.steps
    assert _without_places(one.history) == _without_places(other.history)


def test_mistakes() -> None:
    """Each mistake that is planted still has its place in the code."""
    for mistake in MISTAKES:
        with mistake.made():
            pass

    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) == 53


def _without_places(history: object) -> list[str]:
    """Return a history without the folder that it was played in."""
    assert isinstance(history, list)
    return [line for line in history if "/history-" not in line]
