"""One measurement in a process of its own: its time, its memory, and how busy the machine was."""

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
    """What a function cost in a fresh process.

    Attributes:
        answer: What it returned.
        seconds: Its own time.
        cpu_seconds: What the processors worked for the whole process: other programs hardly
            change it.
        process_seconds: With the start of Python, the imports and the end of the process.
        peak_mib: The most memory that the process ever held.
        load: The machine's load average of the last minute, before.
    """

    answer: Any
    seconds: float
    cpu_seconds: float
    process_seconds: float
    peak_mib: float
    load: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types, rounded."""
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def measured(function: Callable[..., Any], *arguments: Any) -> Measured:
    """Run a module's function in a fresh process.

    Raises:
        RuntimeError: When it failed there; with its traceback.
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
    # In KiB on Linux. The parent stays small: what it holds when it starts a process counts here.
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = used.ru_utime + used.ru_stime
    pipe.send((failed, answer, seconds, cpu_seconds, used.ru_maxrss / 1024))
    pipe.close()


def load_average() -> float:
    """Return how many processes wanted a processor, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def median_of(runs: Iterable[Measured]) -> Measured:
    """Return the median of each figure, and the greatest memory; the answer is the first run's."""
    runs = list(runs)
    return Measured(
        answer=runs[0].answer,
        seconds=statistics.median(run.seconds for run in runs),
        cpu_seconds=statistics.median(run.cpu_seconds for run in runs),
        process_seconds=statistics.median(run.process_seconds for run in runs),
        peak_mib=max(run.peak_mib for run in runs),
        load=statistics.median(run.load for run in runs),
    )
