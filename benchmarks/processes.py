"""Run one measurement in its own process: its time, its memory, and the machine's load."""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Measured", "load_average", "measured", "median_of"]


@dataclass(frozen=True)
class Measured:
    """The cost of a function in a fresh process.

    Attributes:
        answer: The function's return value.
        seconds: Duration of the function.
        cpu_seconds: CPU time of the whole process, which hardly depends on other programs.
        process_seconds: Duration including Python's start, imports and the process's exit.
        peak_mib: Peak memory of the process.
        load: The machine's load average over the minute before.
    """

    answer: Any
    seconds: float
    cpu_seconds: float
    process_seconds: float
    peak_mib: float
    load: float

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON types, rounded."""
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def measured(function: Callable[..., Any], *arguments: Any) -> Measured:
    """Run a module-level function in a fresh process.

    Raises:
        RuntimeError: If it failed there; with its traceback.
    """
    load = load_average()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    began = time.perf_counter()
    process = context.Process(target=_run, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        failed, answer, seconds, cpu_seconds, peak_mib = ours.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"{function.__name__} was killed: {process.exitcode}") from None
    process.join()
    if failed:
        raise RuntimeError(f"{function.__name__} failed:\n{failed}")
    whole = time.perf_counter() - began
    return Measured(answer, seconds, cpu_seconds, whole, peak_mib, load)


def _run(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    began = time.perf_counter()
    failed, answer = "", None
    try:
        answer = function(*arguments)
    except BaseException:
        failed = traceback.format_exc()
    seconds = time.perf_counter() - began
    # In KiB on Linux. The parent must stay small: its memory at the time of the start counts here.
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = used.ru_utime + used.ru_stime
    pipe.send((failed, answer, seconds, cpu_seconds, used.ru_maxrss / 1024))
    pipe.close()


def load_average() -> float:
    """Return the machine's load average over the last minute."""
    return round(os.getloadavg()[0], 2)


def median_of(runs: Iterable[Measured]) -> Measured:
    """Return the median of each figure and the maximum memory, with the first run's answer."""
    runs = list(runs)
    return Measured(
        answer=runs[0].answer,
        seconds=statistics.median(run.seconds for run in runs),
        cpu_seconds=statistics.median(run.cpu_seconds for run in runs),
        process_seconds=statistics.median(run.process_seconds for run in runs),
        peak_mib=max(run.peak_mib for run in runs),
        load=statistics.median(run.load for run in runs),
    )
