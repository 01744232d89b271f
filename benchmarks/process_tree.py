"""The cost of a process and all its descendants."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType

import psutil  # type: ignore[import-untyped]

__all__ = ["Cost", "Meter", "PeakMemory"]

_SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Cost:
    """The cost of one run of an arm.

    Attributes:
        seconds: Duration of the part that is compared, such as only the query.
        process_seconds: Duration of the whole process.
        cpu_seconds: CPU time of its process tree.
        peak_mib: Peak memory of the process tree (PSS, sampled): as a container counts it, what
            processes share counts once.
    """

    seconds: float
    process_seconds: float
    cpu_seconds: float
    peak_mib: float


class PeakMemory:
    """Samples the memory of a process tree (PSS).

    A process that Java or Python has just forked shares all of its parent's memory.

    Attributes:
        by_program: Peak of all processes of each program, in MiB, by the program's name.
    """

    def __init__(self, pid: int) -> None:
        """Start sampling."""
        self._root = psutil.Process(pid)
        self._peak_mib = 0.0
        self.by_program: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Stop sampling, and return the peak in MiB."""
        self._ended.set()
        self._thread.join()
        return self._peak_mib

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            held: Counter[str] = Counter()
            for process in _tree(self._root):
                try:
                    held[process.name()] += process.memory_full_info().pss
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
            self._peak_mib = max(self._peak_mib, held.total() / (1 << 20))
            for name, size in held.items():
                self.by_program[name] = max(self.by_program.get(name, 0), size / (1 << 20))


class Meter:
    """Measures a process tree while a block runs; `cost` is set after the block."""

    cost: Cost

    def __init__(self, pid: int) -> None:
        """Measure the process `pid`, which outlives the block, and its descendants."""
        self._root = psutil.Process(pid)

    def __enter__(self) -> Meter:
        """Start measuring."""
        self._memory = PeakMemory(self._root.pid)
        self._cpu_seconds = _cpu_seconds(self._root)
        self._began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop measuring."""
        seconds = time.perf_counter() - self._began
        cpu_seconds = _cpu_seconds(self._root) - self._cpu_seconds
        self.cost = Cost(seconds, seconds, cpu_seconds, self._memory.stop())


def _cpu_seconds(root: psutil.Process) -> float:
    """Return the CPU time of all processes in the tree, including those that have exited."""
    worked = 0.0
    for process in _tree(root):
        try:
            worked += sum(process.cpu_times()[:4])  # user, system, and both of ended children
        except psutil.NoSuchProcess:
            continue
    return worked


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
