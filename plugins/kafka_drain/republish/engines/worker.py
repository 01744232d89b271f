"""The worker engine: send and verify from this machine, with several processes if that pays."""

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
from kafka_drain.republish.engines.worker_main import Job, run_job
from kafka_drain.republish.sending.memory import PYTHON
from kafka_drain.republish.sending.shard_sender import SendJob

#: Longest time for a child to abort its transactions and end.
GRACE_SECONDS = 15.0

#: Records per additional process; fewer don't pay, as Python and its libraries take 1 s to start.
RECORDS_PER_PROCESS = 200_000

MAX_PROCESSES = 4

#: Concurrent jobs per process: one is processed while another waits for Kafka, for example for the
#: acknowledgements of a transaction.
LANES = 2

Groups: TypeAlias = "SimpleQueue[Sequence[Job]]"
Answer: TypeAlias = "Callable[[Job, dict[str, Any]], None]"


class Child:
    """Run jobs in a separate process, several at once. Jobs never appear on a command line."""

    def __init__(self) -> None:
        packages = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kafka_drain.republish.engines.worker_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**PYTHON, **os.environ, "PYTHONPATH": path},
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._asked = 0
        self._is_gone = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def do(self, job: Job) -> dict[str, Any]:
        """Run a job in the child and return its answer; several threads may call at once.

        Raises:
            KafkaDrainError: The error that the job raised in the child.
            DeliveryError: When the process was killed from outside.
        """
        answer = self._ask(job).get()
        if "error" in answer:
            raise getattr(errors, answer["error"])(answer["message"])
        if not answer:
            raise DeliveryError(
                f"the process for {job} {self._how_it_ended()}; a retry resumes where it stopped"
            )
        return answer

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        if code < 0:
            return f"was killed from outside by signal {-code} (out of memory?)"
        return f"ended with exit code {code} before it answered"

    def end(self) -> None:
        """Let the child abort its transactions and end by itself."""
        with self._lock, suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]

    def kill(self) -> None:
        """Kill the child immediately."""
        self._process.kill()

    def close(self) -> None:
        """Wait until the child has ended; kill it if that takes too long."""
        self.end()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()  # type: ignore[union-attr]

    def _ask(self, job: Job) -> SimpleQueue[dict[str, Any]]:
        answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        with self._lock:
            if self._is_gone:
                answers.put({})
                return answers
            self._asked += 1
            self._waiting[self._asked] = answers
            # If the child is gone, the reader detects it and answers in its place.
            with suppress(OSError, ValueError):
                self._process.stdin.write(  # type: ignore[union-attr]
                    json.dumps({"number": self._asked, "job": job.to_dict()}) + "\n"
                )
                self._process.stdin.flush()  # type: ignore[union-attr]
        return answers

    def _read(self) -> None:
        """Deliver answers until the child is gone, then deliver an empty answer to all waiters."""
        try:
            for line in self._process.stdout:  # type: ignore[union-attr]
                message = json.loads(line)
                with self._lock:
                    waiting = self._waiting.pop(message["number"])
                waiting.put(message["answer"])
        finally:
            with self._lock:
                self._is_gone = True
                for waiting in self._waiting.values():
                    waiting.put({})
                self._waiting = {}


def processes_for(groups: Sequence[Sequence[Job]], records: int, most: int | None = None) -> int:
    """Return the number of processes to use for groups of jobs; 1 means this process only.

    Args:
        groups: The jobs; those of a group run in sequence.
        records: Number of records in all jobs.
        most: Maximum number of processes; None for one per core, up to four: each needs half a
            gigabyte, and the machine's other tasks need room.
    """
    if _share_a_clock(groups):
        return 1
    most = most or min(MAX_PROCESSES, len(os.sched_getaffinity(0)))
    return max(1, min(len(groups), most, records // RECORDS_PER_PROCESS))


def side_by_side(groups: Sequence[Sequence[Job]], processes: int) -> int:
    """Return the number of jobs that run concurrently; all of those that share a clock."""
    return len(groups) if _share_a_clock(groups) else min(len(groups), processes * LANES)


def _share_a_clock(groups: Sequence[Sequence[Job]]) -> bool:
    return any(isinstance(job, SendJob) and job.playback for jobs in groups for job in jobs)


class Worker:
    """Run jobs; can be stopped from another thread or a signal handler.

    Its processes stay for the next jobs, until it is closed or a job fails: each start takes half a
    second of processor time.
    """

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

    def close(self) -> None:
        """Wait until the processes have ended."""
        children, self._children = self._children, []
        for child in children:
            child.close()

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
            processes: Number of processes; 1 uses no others.
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
        children = self._started(processes) if processes > 1 else []

        def lane(number: int) -> None:
            do = children[number % processes].do if children else self._do_here
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
            if self._stopped.is_set():
                self.close()
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

    def _started(self, processes: int) -> list[Child]:
        """Return a number of processes; those of earlier jobs first."""
        self._children += [Child() for _ in range(processes - len(self._children))]
        return self._children[:processes]

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
