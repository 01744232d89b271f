"""Run Spark applications, for commands and operators alike."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kafka_drain.errors import SparkJobError
from kafka_drain.progress import Level, Line, SparkUiLine, read_progress_line
from kafka_drain.spark.submit import SparkApplication

__all__ = [
    "SparkConnection",
    "SparkRunner",
    "SparkSubmit",
    "read_spark_line",
    "run_environment",
]

#: Time that Spark has to shut down when interrupted or stopped: it removes its temporary files.
_LAST_SECONDS = 2.0


# What kafka_drain_spark.job prints.
_SPARK_UI = re.compile(r"spark ui: (https?://\S+)\s*$")
_JOB_ERROR = re.compile(r"ERROR ")
# The level after the time in Spark's log.
_LOG = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>WARN|ERROR|FATAL) ")


class SparkRunner(Protocol):
    """Runs an application and waits until it finishes."""

    def __call__(self, application: SparkApplication, /) -> None:
        """Run an application.

        Raises:
            SparkJobError: When it failed; the results of its jobs may say why.
        """


@dataclass(frozen=True)
class SparkConnection:
    """Where applications run, and with which credentials.

    Attributes:
        master: The Spark master.
        options: Further options of spark-submit, such as `--queue`.
        binary: Name or path of the spark-submit program.
        keytab: Content of a Kerberos keytab; empty for none.
    """

    master: str
    options: Sequence[str] = ()
    binary: str = "spark-submit"
    keytab: bytes = field(default=b"", repr=False)


class SparkSubmit:
    """Runs applications with spark-submit, one at a time.

    Args:
        connection: Where applications run.
        hear: Receives each line that spark-submit prints, progress lines in parsed form; None to
            pass them to standard error.
    """

    def __init__(
        self, connection: SparkConnection, hear: Callable[[str], None] | None = None
    ) -> None:
        self._connection = connection
        self._hear = hear
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, application: SparkApplication) -> None:
        """Run an application.

        Raises:
            SparkJobError: When spark-submit failed.
        """
        connection = self._connection
        # mkdtemp creates it with mode 0700.
        with tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder:
            options = list(connection.options)
            if connection.keytab:
                keytab = Path(folder) / "keytab"
                keytab.touch(mode=0o600)
                keytab.write_bytes(connection.keytab)
                options += ["--keytab", str(keytab)]
            code = self._run(
                application.command(connection.master, options, connection.binary),
                run_environment(application, connection.master),
            )
        if code:
            raise SparkJobError(f"spark-submit failed with exit code {code}")

    def stop(self) -> None:
        """Stop the running application, if any."""
        if self._process is not None:
            _end(self._process)

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        with subprocess.Popen(
            command,
            env=environment,
            stdout=sys.stderr if self._hear is None else subprocess.PIPE,
            stderr=None if self._hear is None else subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            self._process = process
            try:
                for line in process.stdout or ():
                    assert self._hear is not None
                    self._hear(read_spark_line(line))
                return process.wait()
            except BaseException:
                # Ctrl-C in a terminal interrupts Spark as well, which then cleans up.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_LAST_SECONDS)
                process.kill()
                raise
            finally:
                self._process = None


def read_spark_line(printed: str) -> Line:
    """Return a line that an application printed as what it means; nothing else reads its text."""
    text = printed.rstrip("\n")
    if progress := read_progress_line(text):
        return progress
    if ui := _SPARK_UI.search(text):
        return SparkUiLine(text, ui[1])
    if log := _LOG.match(text):
        return Line(text, Level.WARNING if log["level"] == "WARN" else Level.ERROR)
    return Line(text, Level.ERROR if _JOB_ERROR.match(text) else Level.PLAIN)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def run_environment(application: SparkApplication, master: str) -> dict[str, str]:
    """Return the environment for spark-submit."""
    environment = {**os.environ, **application.environment}
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment
