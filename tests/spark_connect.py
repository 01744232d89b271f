"""A Spark Connect server for tests, and its clients.

A client runs in the Python that TESTS_CONNECT_PYTHON names: that of an environment which has
pyspark-client alone. Without the variable, this test run's own Python is the client.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_drain.spark.submit import spark_version
from tests.faults.injection import wait_for
from tests.filled_topic import (
    RECORDS,
    assert_exact,
    assert_once,
    drain_second_half,
    fill,
    offsets_in,
)

__all__ = [
    "PYTHON",
    "RECORDS",
    "Client",
    "Server",
    "assert_exact",
    "assert_once",
    "client",
    "command_lines",
    "drain_second_half",
    "environment",
    "fill",
    "offsets_in",
    "remove_lease",
    "start_client",
    "without_java",
]

ROOT = Path(__file__).parents[1]
PYTHON = os.environ.get("TESTS_CONNECT_PYTHON", sys.executable)
PATIENCE = 200.0


@dataclass
class Server:
    """A server that a test may kill, and start again at the same port.

    Attributes:
        port: Its port on 127.0.0.1.
        log: What it prints.
        cores: Number of tasks that it runs side by side.
        process: The command that runs it, once started.
    """

    port: int
    log: Path
    cores: int = field(default=2, kw_only=True)
    process: subprocess.Popen[bytes] | None = None

    @property
    def master(self) -> str:
        """Its address."""
        return f"sc://127.0.0.1:{self.port}"

    def start(self, *more: str, **variables: str) -> None:
        """Start it, with further options and environment variables, and wait until it is ready.

        Where Spark is older than 4.0, and comes without it, the test is skipped.
        """
        if spark_version() < (4,):
            pytest.skip("Spark Connect needs Spark 4.0")
        command = [sys.executable, "-m", "kafka_drain.cli", "spark-server"]
        command += ["--port", str(self.port), "--memory", "1g", *more]
        command += ["--master", f"local[{self.cores}]"]
        self.log.unlink(missing_ok=True)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env=environment(**variables),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(
            lambda: "listens on" in self.said() or self.has_ended(), "the server", patience=120
        )
        assert not self.has_ended(), self.said()

    def said(self) -> str:
        """Return its log."""
        return self.log.read_text() if self.log.exists() else ""

    def has_ended(self) -> bool:
        """Return whether the command that runs it has ended."""
        assert self.process is not None
        return self.process.poll() is not None

    def kill(self) -> None:
        """Kill the server and the command that started it."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Stop the command, as Ctrl-C does; return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment, in which our packages can be imported."""
    path = os.pathsep.join(str(ROOT / name) for name in ("plugins", "spark_jobs", "."))
    return {**os.environ, "PYTHONPATH": path, **more}


def without_java(**more: str) -> dict[str, str]:
    """Return the environment of a worker that has neither Java nor the connector's jars."""
    nowhere = {"JAVA_HOME": "/nowhere", "KAFKA_DRAIN_CACHE": "/nowhere", "SPARK_HOME": "/nowhere"}
    return environment(**nowhere, **more)


class Client:
    """A program in the client's Python, with what it prints in files, so that it never waits.

    Args:
        folder: Where the files are created.
        arguments: Arguments of Python.
        more: Further environment variables.
    """

    def __init__(self, folder: Path, *arguments: object, **more: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len([*folder.glob("*.err")])
        self._out, self._err = folder / f"{number}.out", folder / f"{number}.err"
        self.began = time.monotonic()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [PYTHON, *map(str, arguments)],
                env=without_java(**more),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                # A run of tests in the background ignores it.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def said(self) -> str:
        """Return what it printed to standard error."""
        return self._err.read_text()

    def result(self) -> str:
        """Return what it printed to standard output."""
        return self._out.read_text()

    def wait_until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait for a condition while it runs."""
        wait_for(
            lambda: reached() or self.process.poll() is not None,
            what,
            patience=PATIENCE,
            pause=0.005,
        )
        assert reached(), f"it ended before {what}: {self.said()}"

    def seconds_until_it_says(self, pattern: str) -> float:
        """Wait until it prints a pattern; return the seconds since its start."""
        self.wait_until(lambda: re.search(pattern, self.said()) is not None, pattern)
        return time.monotonic() - self.began

    def suspend(self) -> None:
        """Suspend it and the processes that it started."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again after `suspend`."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill it and the processes that it started."""
        assert self.process.poll() is None, self.said()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, code: int | None = 0) -> str:
        """Wait for its end with an exit code; return what it printed to standard output."""
        found = self.process.wait(400)
        assert code is None or found == code, self.said()
        return self.result()


def start_client(folder: Path, *arguments: object, **more: str) -> Client:
    """Start a command in the client's Python."""
    return Client(folder, "-m", "kafka_drain.cli", *arguments, **more)


def client(*arguments: object, code: int = 0, **more: str) -> tuple[str, str]:
    """Run a command in the client's Python; return what it printed."""
    ended = subprocess.run(
        [PYTHON, "-m", "kafka_drain.cli", *map(str, arguments)],
        env=without_java(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    return ended.stdout, ended.stderr


def command_lines() -> Iterator[bytes]:
    """Yield the command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


def remove_lease(archive: Path) -> None:
    """Remove the killed client's lease, as `kafka-drain unlock` does once it has ended."""
    (archive / "lock.json").unlink()
