"""Play a history by its seed, and shrink one that fails to the fewest steps."""

from __future__ import annotations

import random
import shutil
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.histories.history import History, Step, draw
from tests.histories.world import MemoryWorld

__all__ = ["Played", "play", "shrink"]

#: Where archives are: a file system in memory, where there is one.
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Played:
    """A history that has ended.

    Attributes:
        seed: Decided it.
        steps: How many steps it had.
        history: What happened.
        failure: Why it isn't right; empty if it is.
        seconds: How long it took, by its own clock.
        commands: How many commands were run.
        killed: How many of them were killed.
        ended_green: Whether it ended with a green verdict.
        ready: How often its archive was called ready.
        left: Its steps.
    """

    seed: int
    steps: int
    history: Sequence[str]
    failure: str
    seconds: float
    commands: int
    killed: int
    ended_green: bool
    ready: int
    left: Sequence[Step] = field(default=())

    @property
    def summary(self) -> str:
        return f"{self.commands} commands, {self.killed} killed, green: {self.ended_green}"


def play(seed: int, *, steps: int, only: Sequence[Step] | None = None) -> Played:
    """Play a history.

    Args:
        seed: Decides it.
        steps: How many steps it has.
        only: Those of its steps that are played; None for all.
    """
    folder = tempfile.mkdtemp(prefix="history-", dir=_MEMORY if _MEMORY.is_dir() else None)
    try:
        chance = random.Random(seed)
        world = MemoryWorld(
            Path(folder) / "archive",
            is_compacted=chance.random() < 0.2,
            seed=chance.getrandbits(32),
        )
        starts_late = chance.random() < 0.3
        drawn, end = draw(world, chance, steps), chance.getrandbits(32)
        drawn = drawn if only is None else list(only)
        history = History(world, random.Random(), starts_late)
        failure = ""
        with world.machine:
            try:
                history.run(drawn, end)
            except AssertionError as error:
                failure = str(error)
            except Exception:
                failure = (
                    "\n".join([traceback.format_exc().splitlines()[-1], *history.history])
                    + f"\n{traceback.format_exc()}"
                )
        return Played(
            seed,
            len(drawn),
            history.history,
            failure,
            world.machine.seconds,
            history.commands,
            history.killed,
            history.ended_green,
            history.ready,
            drawn,
        )
    finally:
        shutil.rmtree(folder)


def shrink(seed: int, *, steps: int) -> Played:
    """Leave out steps of a history that fails, as long as it fails in the same way."""
    best = play(seed, steps=steps)
    kind = _kind(best.failure)
    size = max(1, len(best.left) // 2)
    while True:
        for at in range(0, len(best.left), size):
            fewer = [*best.left[:at], *best.left[at + size :]]
            tried = play(seed, steps=steps, only=fewer)
            if tried.failure and _kind(tried.failure) == kind:
                best = tried
                break
        else:
            if size == 1:
                return best
            size //= 2


def _kind(failure: str) -> str:
    """Return a failure without what differs between histories of the same kind."""
    line = failure.splitlines()[0] if failure else ""
    return "".join(char for char in line if not char.isdigit())[:30]
