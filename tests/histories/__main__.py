"""Histories by the thousand: `python -m tests.histories --seeds 1000 --steps 12`.

`--seed N` replays one and prints it; one that fails is shrunk to the fewest steps, and those are
printed: `--seed N --only "produce:1 drain:2"` plays them alone.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.util import Finalize

from kafka_drain.verify_archive import Reader
from tests.histories.history import Step
from tests.histories.play import Played, play, shrink

#: How many of those that fail are shrunk.
SHRUNK = 3


@dataclass
class Totals:
    """What some histories come to."""

    histories: int = 0
    steps: int = 0
    commands: int = 0
    killed: int = 0
    green: int = 0
    ready: int = 0
    simulated: float = 0.0

    def add(self, played: Played) -> None:
        self.histories += 1
        self.steps += played.steps
        self.commands += played.commands
        self.killed += played.killed
        self.green += played.ended_green
        self.ready += played.ready
        self.simulated += played.seconds

    def line(self, seconds: float) -> str:
        a_minute = 60 / seconds if seconds else 0.0
        return (
            f"{self.histories:,} histories of {self.steps:,} steps: {self.commands:,} commands, "
            f"{self.killed:,} of them killed; {self.green:,} ended green, the others had lost "
            f"records that are nowhere else; called ready {self.ready:,} times; "
            f"{self.histories * a_minute:,.0f} histories, "
            f"{self.steps * a_minute:,.0f} steps and "
            f"{timedelta(seconds=round(self.simulated * a_minute))} of simulated time a minute"
        )


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command prints


def tell_shortest(seed: int, steps: int) -> None:
    """Print the fewest steps with which a history fails."""
    shortest = shrink(seed, steps=steps)
    say(f"\nshrunk:\n{shortest.failure}")
    say(f'--seed {seed} --only "{" ".join(map(str, shortest.left))}"')


def _begin() -> None:
    """Let the verifier's process end with this one, which otherwise waits for it for ever."""
    # Before the queues close, whose priority is 10.
    Finalize(None, lambda: Reader.pool and Reader.pool.shutdown(), exitpriority=20)


def _play(job: tuple[int, int]) -> Played:
    return play(job[0], steps=job[1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.histories", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N")
    parser.add_argument("--steps", type=int, default=12, metavar="N")
    parser.add_argument("--first", type=int, default=random.randrange(1 << 30), metavar="N")
    parser.add_argument("--seed", type=int, metavar="N", help="play this one alone, and print it")
    parser.add_argument("--only", metavar="STEPS", help="those of its steps that are played")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        only = [Step.of(text) for text in options.only.split()] if options.only else None
        played = play(options.seed, steps=options.steps, only=only)
        say("\n".join(played.history))
        say(played.failure or played.summary)
        if played.failure and only is None:
            tell_shortest(options.seed, options.steps)
        return 1 if played.failure else 0
    failed: list[int] = []
    totals, began = Totals(), time.monotonic()
    jobs = [(seed, options.steps) for seed in range(options.first, options.first + options.seeds)]
    # Not multiprocessing.Pool, whose processes must not have children: the verifier has one.
    with ProcessPoolExecutor(options.processes, initializer=_begin) as pool:
        for played in map(Future.result, as_completed([pool.submit(_play, job) for job in jobs])):
            totals.add(played)
            if played.failure:
                failed.append(played.seed)
                say(f"FAILED: seed {played.seed}: {played.failure.splitlines()[0]}")
            if totals.histories % 100 == 0:
                say(totals.line(time.monotonic() - began))
    say(f"from seed {options.first}: {totals.line(time.monotonic() - began)}")
    for seed in failed[:SHRUNK]:
        tell_shortest(seed, options.steps)
    say(f"{len(failed)} failed {sorted(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
