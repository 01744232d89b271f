"""A process of the worker engine, from the parent's side; see worker_main for the other side."""

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

#: How long a child may take to abort its transactions and end.
GRACE_SECONDS = 15.0


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
            env={**ALLOCATION, **os.environ, "PYTHONPATH": path},
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
