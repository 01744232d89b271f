"""The worker engine: shards are sent and verified from here, by several processes if that pays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from kafka_drain.errors import DeliveryError
from kafka_drain.republish.engines.worker_main import Job, run_job
from kafka_drain.republish.engines.worker_process import GRACE_SECONDS, Child

__all__ = ["Worker", "processes_for", "side_by_side"]

#: A process more pays from so many records on: Python and its libraries take a second to start.
RECORDS_PER_PROCESS = 200_000

MOST_PROCESSES = 4

#: So many jobs at once in each process: one is handled while another waits for Kafka, such as for
#: the acknowledgements of a transaction.
LANES = 2

Groups: TypeAlias = "SimpleQueue[Sequence[Job]]"
Answer: TypeAlias = "Callable[[Job, dict[str, Any]], None]"


def processes_for(groups: Sequence[Sequence[Job]], records: int, most: int | None = None) -> int:
    """Return how many processes do some groups of jobs; 1 means this one.

    Args:
        groups: The jobs; those of a group in turn.
        records: How many records they handle.
        most: So many at most; None for one a core, up to four: each takes half a gigabyte, and
            other tasks of the machine want to go on.
    """
    most = most or min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
    return max(1, min(len(groups), most, records // RECORDS_PER_PROCESS))


def side_by_side(groups: Sequence[Sequence[Job]], processes: int) -> int:
    """Return how many jobs are done at the same time."""
    return min(len(groups), processes * LANES)


class Worker:
    """Does jobs, and can be stopped from another thread or a signal's handler."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._is_killed = False
        self._children: list[Child] = []

    def stop(self) -> None:
        """End all of it at once; open transactions are aborted by the next attempt."""
        self._is_killed = True
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
            DeliveryError: When `stop` was called; a retry may help.
            KafkaDrainError: Of the first job that failed; the others were stopped.
        """
        failures: SimpleQueue[BaseException] = SimpleQueue()
        waiting: Groups = SimpleQueue()
        for jobs in groups:
            waiting.put(jobs)
        self._children = [Child() for _ in range(processes)] if processes > 1 else []

        def lane(number: int) -> None:
            do = self._children[number % processes].do if self._children else self._do_here
            try:
                for job in _jobs(waiting, self._stopped):
                    answered(job, do(job))
            except BaseException as error:  # raised again in the thread that waits
                failures.put(error)
                self._end()

        threads = [
            threading.Thread(target=lane, args=(number,), daemon=True)
            for number in range(side_by_side(groups, processes))
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)
                    tick()
        except BaseException:
            # Whatever ends the wait, nothing may go on sending behind its back.
            self._end()
            for thread in threads:
                if thread.ident is not None:
                    thread.join(GRACE_SECONDS)
            raise
        finally:
            for child in self._children:
                child.close()
        failure = None if failures.empty() else failures.get()
        if self._is_killed:
            # Who stopped it may have fenced its producers: that was no later attempt.
            raise DeliveryError(
                "the republish was stopped; a retry goes on where it ended"
            ) from failure
        if failure is not None:
            raise failure

    def _end(self) -> None:
        """Let everything end by itself, with its transaction aborted."""
        self._stopped.set()
        for child in self._children:
            child.end()

    def _do_here(self, job: Job) -> dict[str, Any]:
        return run_job(job, self._stopped.is_set)


def _jobs(waiting: Groups, stopped: threading.Event) -> Iterator[Job]:
    """Take groups until there is none left, and yield their jobs."""
    while not stopped.is_set():
        try:
            yield from waiting.get_nowait()
        except Empty:
            return
