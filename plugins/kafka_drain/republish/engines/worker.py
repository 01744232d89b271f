"""The worker engine: send and verify from this machine, with several processes if that pays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from kafka_drain.errors import DeliveryError
from kafka_drain.republish.engines.worker_main import Job, run_job
from kafka_drain.republish.engines.worker_process import GRACE_SECONDS, Child

#: Records per additional process; fewer don't pay, as Python and its libraries take 1 s to start.
RECORDS_PER_PROCESS = 200_000

MAX_PROCESSES = 4

#: Concurrent jobs per process: one is processed while another waits for Kafka, for example for the
#: acknowledgements of a transaction.
LANES = 2

Groups: TypeAlias = "SimpleQueue[Sequence[Job]]"
Answer: TypeAlias = "Callable[[Job, dict[str, Any]], None]"


def processes_for(groups: Sequence[Sequence[Job]], records: int, most: int | None = None) -> int:
    """Return the number of processes to use for groups of jobs; 1 means this process only.

    Args:
        groups: The jobs; those of a group run in sequence.
        records: Number of records in all jobs.
        most: Maximum number of processes; None for one per core, up to four: each needs half a
            gigabyte, and the machine's other tasks need room.
    """
    most = most or min(MAX_PROCESSES, len(os.sched_getaffinity(0)))
    return max(1, min(len(groups), most, records // RECORDS_PER_PROCESS))


def side_by_side(groups: Sequence[Sequence[Job]], processes: int) -> int:
    """Return the number of jobs that run concurrently."""
    return min(len(groups), processes * LANES)


class Worker:
    """Run jobs; can be stopped from another thread or a signal handler."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._is_killed = False
        self._children: list[Child] = []

    def stop(self) -> None:
        """Stop immediately; the next attempt aborts the open transactions."""
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
        """Run jobs and return when all are done.

        Args:
            groups: The jobs; those of a group run in sequence. Longest first is fastest.
            processes: Number of processes; 1 starts no others.
            tick: Called about twice a second, for progress.
            answered: Called with each job and its answer, not always in the caller's thread.

        Raises:
            DeliveryError: When `stop` was called; a retry may help.
            KafkaDrainError: From the first job that failed; the others were stopped.
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
            except BaseException as error:  # raised again in the waiting thread
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
            # However the wait ends, nothing may keep sending in the background.
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
            # The caller that stopped it may have fenced its producers, which looks like a later
            # attempt but isn't.
            raise DeliveryError(
                "the republish was stopped; a retry resumes where it stopped"
            ) from failure
        if failure is not None and not isinstance(failure, Exception):
            # In this thread it would end the process, perhaps with code 0.
            raise DeliveryError(
                f"a sender left by {type(failure).__name__}; a retry resumes where it stopped"
            ) from failure
        if failure is not None:
            raise failure

    def _end(self) -> None:
        """Let all jobs end by themselves and abort their transactions."""
        self._stopped.set()
        for child in self._children:
            child.end()

    def _do_here(self, job: Job) -> dict[str, Any]:
        return run_job(job, self._stopped.is_set)


def _jobs(waiting: Groups, stopped: threading.Event) -> Iterator[Job]:
    """Take groups until none is left, and yield their jobs."""
    while not stopped.is_set():
        try:
            yield from waiting.get_nowait()
        except Empty:
            return
