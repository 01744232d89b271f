"""Arms of a comparison: run in turns, with the cost of each arm's whole process tree."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost, PeakMemory
from benchmarks.processes import load_average, measured

__all__ = ["KAFKA_DRAIN", "compared", "figures_of", "run_command", "take_rounds", "take_turns"]

#: The command line of this package.
KAFKA_DRAIN = (sys.executable, "-m", "kafka_drain.cli")


def take_turns(
    arms: Mapping[str, Callable[[], Cost]], rounds: int, say: Say, what: str
) -> dict[str, list[Cost]]:
    """Run the arms in turns, A B C A B C …; the first round warms up broker and page cache."""
    costs: dict[str, list[Cost]] = {arm: [] for arm in arms}
    for number in range(rounds + 1):
        for arm, run in arms.items():
            cost = run()
            if number:
                costs[arm].append(cost)
            say(
                f"{what}: round {number} of {rounds}: {arm} {cost.seconds:.2f} s, "
                f"process {cost.process_seconds:.2f} s, CPU {cost.cpu_seconds:.1f} s"
            )
    return costs


def take_rounds(
    run: Callable[[], Mapping[str, Cost]], rounds: int, say: Say, what: str
) -> dict[str, list[Cost]]:
    """Run all arms together in each round; like `take_turns`, for arms that share a process."""
    costs: dict[str, list[Cost]] = {}
    for number in range(rounds + 1):
        taken = run()
        for arm, cost in taken.items():
            if number:
                costs.setdefault(arm, []).append(cost)
        told = ", ".join(f"{arm} {cost.seconds:.2f} s" for arm, cost in taken.items())
        say(f"{what}: round {number} of {rounds}: {told}")
    return costs


def figures_of(costs: Mapping[str, Sequence[Cost]], records: int) -> dict[str, Any]:
    """Return median, minimum and maximum of each arm's figures, and all runs."""
    figures = {}
    for arm, runs in costs.items():
        found: dict[str, Any] = {
            name: {
                "median": round(statistics.median(values), 3),
                "min": round(min(values), 3),
                "max": round(max(values), 3),
            }
            for name in asdict(runs[0])
            for values in [[getattr(run, name) for run in runs]]
        }
        found["records_per_second"] = round(records / found["seconds"]["median"])
        found["runs"] = [{k: round(v, 3) for k, v in asdict(run).items()} for run in runs]
        figures[arm] = found
    return figures


def compared(
    what: str,
    costs: Mapping[str, Sequence[Cost]],
    arm: str,
    base: str,
    owed: float | None,
    *,
    figure: str = "seconds",
) -> Mark:
    """Compare the speed of two arms by the median of the ratios within each round.

    Args:
        what: Label of the comparison.
        costs: The runs of the arms.
        arm: The arm.
        base: The arm it is compared with.
        owed: The minimum ratio of speeds; None if there is no target.
        figure: The figure of a run to compare.
    """
    pairs = list(zip(costs[arm], costs[base], strict=True))
    ratios = sorted(getattr(b, figure) / getattr(a, figure) for a, b in pairs)
    ratio = statistics.median(ratios)
    ours, theirs = (statistics.median(getattr(c, figure) for c in costs[n]) for n in (arm, base))
    return Mark(
        what,
        f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); {ours:.1f} s, {theirs:.1f} s",
        "" if owed is None else f"at least {owed:.2f}",
        None if owed is None else ratio >= owed,
        load_average(),
    )


def run_command(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[str, Cost]:
    """Run a command; return its output and the cost of its process tree.

    Raises:
        RuntimeError: If the command fails.
    """
    run = measured(_run, list(command), dict(environment or {}))
    printed, seconds, cpu_seconds, peak_mib = run.answer
    return printed, Cost(seconds, seconds, cpu_seconds, peak_mib)


def _run(command: list[str], environment: dict[str, str]) -> tuple[str, float, float, float]:
    variables = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    before, began = _children_seconds(), time.perf_counter()
    process = subprocess.Popen(
        command,
        env=variables | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    memory = PeakMemory(process.pid)
    out, err = process.communicate()
    seconds = time.perf_counter() - began
    peak = memory.stop()
    if process.returncode:
        name = Path(command[0]).name
        raise RuntimeError(f"{name} ended with {process.returncode}: {err[-3000:]}")
    return out, seconds, _children_seconds() - before, peak


def _children_seconds() -> float:
    used = os.times()
    return used.children_user + used.children_system
