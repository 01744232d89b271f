"""A process of the worker engine, as its parent sees it; its own side is worker_main."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from kafka_drain import errors
from kafka_drain.errors import DeliveryError
from kafka_drain.republish.engines.worker_main import Job
from kafka_drain.republish.sending.allocation import ALLOCATION

__all__ = ["GRACE_SECONDS", "Child"]

#: How long a child may take to abort its transactions and end.
GRACE_SECONDS = 15.0


class Child:
    """Does jobs in a process apart, several at once. What it is told stands on no command line."""

    def __init__(self) -> None:
        packages = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kafka_drain.republish.engines.worker_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**ALLOCATION, **os.environ, "PYTHONPATH": path},
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._asked = 0
        self._is_gone = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def do(self, job: Job) -> dict[str, Any]:
        """Let the child do a job and return its answer; several threads may ask at once.

        Raises:
            KafkaDrainError: What the job raised there.
            DeliveryError: When the process was ended from outside.
        """
        answer = self._ask(job).get()
        if "error" in answer:
            raise getattr(errors, answer["error"])(answer["message"])
        if not answer:
            raise DeliveryError(
                f"the process for {job} was ended from outside (out of memory?); a retry goes on "
                "where it ended"
            )
        return answer

    def end(self) -> None:
        """Let it abort its transactions and end by itself."""
        with self._lock, suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def close(self) -> None:
        """Wait until it has ended; it is killed if that takes long."""
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
            # A child that is gone is seen by the reader, who answers for it.
            with suppress(OSError, ValueError):
                self._process.stdin.write(  # type: ignore[union-attr]
                    json.dumps({"number": self._asked, "job": job.to_dict()}) + "\n"
                )
                self._process.stdin.flush()  # type: ignore[union-attr]
        return answers

    def _read(self) -> None:
        """Hand out answers until the child is gone; those who still wait get an empty one."""
        for line in self._process.stdout:  # type: ignore[union-attr]
            message = json.loads(line)
            with self._lock:
                waiting = self._waiting.pop(message["number"])
            waiting.put(message["answer"])
        with self._lock:
            self._is_gone = True
            for waiting in self._waiting.values():
                waiting.put({})
            self._waiting = {}
