"""The worker engine: shards are sent and verified from here, by several processes if that pays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from kafka_drain import errors
from kafka_drain.errors import DeliveryError
from kafka_drain.republishing.jobs import Job, run_job

__all__ = ["Worker", "processes_for"]

#: A process more pays from so many records on: Python and its libraries take a second to start.
RECORDS_PER_PROCESS = 200_000

#: How long a child may take to abort its transaction and end.
GRACE_SECONDS = 15.0

Groups: TypeAlias = "SimpleQueue[Sequence[Job]]"
Answer: TypeAlias = "Callable[[Job, dict[str, Any]], None]"


def processes_for(groups: Sequence[Sequence[Job]], records: int, most: int | None = None) -> int:
    """Return how many processes do some groups of jobs; 1 means this one.

    Args:
        groups: The jobs; those of a group in turn.
        records: How many records they handle.
        most: So many at most; None for one for two cores, as Kafka's client keeps another busy
            beside Python's.
    """
    most = most or len(os.sched_getaffinity(0)) // 2
    return max(1, min(len(groups), most, records // RECORDS_PER_PROCESS))


class Worker:
    """Does jobs, and can be stopped from another thread or a signal's handler."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._children: list[subprocess.Popen[str]] = []

    def stop(self) -> None:
        """End all of it at once; open transactions are aborted by the next attempt."""
        self._stopped.set()
        for child in self._children:
            child.kill()

    def run(
        self,
        groups: Sequence[Sequence[Job]],
        processes: int,
        tick: Callable[[], None] = lambda: None,
        answered: Answer = lambda job, answer: None,
    ) -> None:
        """Do jobs; returns when all are done.

        Args:
            groups: Jobs, those of a group in turn; the longest first is fastest.
            processes: How many; with 1, no other is started.
            tick: Called about twice a second, for progress.
            answered: Takes each job with what it returned; not always in the caller's thread.

        Raises:
            KafkaDrainError: Of the first job that failed; the others were stopped.
        """
        failures: SimpleQueue[BaseException] = SimpleQueue()
        waiting: Groups = SimpleQueue()
        for jobs in groups:
            waiting.put(jobs)
        work = self._do_here if processes == 1 else self._do_by_child

        def run() -> None:
            try:
                work(waiting, answered)
            except BaseException as error:  # raised again in the thread that waits
                failures.put(error)
                self._end()

        threads = [threading.Thread(target=run, daemon=True) for _ in range(processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
                tick()
        if not failures.empty():
            raise failures.get()
        if self._stopped.is_set():
            raise DeliveryError("the republish was stopped; a retry goes on where it ended")

    def _end(self) -> None:
        """Let everything end by itself, with its transaction aborted."""
        self._stopped.set()
        for child in self._children:
            if child.stdin is not None:
                with suppress(OSError):
                    child.stdin.close()

    def _do_here(self, waiting: Groups, answered: Answer) -> None:
        for job in _jobs(waiting, self._stopped):
            answered(job, run_job(job, self._stopped.is_set))

    def _do_by_child(self, waiting: Groups, answered: Answer) -> None:
        child = _start_child()
        self._children.append(child)
        try:
            for job in _jobs(waiting, self._stopped):
                answered(job, _ask(child, job))
        finally:
            with suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]
            try:
                child.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()  # type: ignore[union-attr]


def _jobs(waiting: Groups, stopped: threading.Event) -> Iterator[Job]:
    """Take groups until there is none left, and yield their jobs."""
    while not stopped.is_set():
        try:
            yield from waiting.get_nowait()
        except Empty:
            return


def _start_child() -> subprocess.Popen[str]:
    """Start a process that does jobs, see jobs.py. What it is told stands on no command line."""
    packages = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "kafka_drain.republishing.jobs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def _ask(child: subprocess.Popen[str], job: Job) -> dict[str, Any]:
    """Let a child do a job and return its answer.

    Raises:
        KafkaDrainError: What the job raised there.
    """
    line = ""
    with suppress(OSError, ValueError):
        child.stdin.write(json.dumps(job.to_dict()) + "\n")  # type: ignore[union-attr]
        child.stdin.flush()  # type: ignore[union-attr]
        line = child.stdout.readline()  # type: ignore[union-attr]
    if not line:
        raise DeliveryError(
            f"the process for {job} was ended from outside (out of memory?); a retry goes on where "
            "it ended"
        )
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["message"])
    return answer
