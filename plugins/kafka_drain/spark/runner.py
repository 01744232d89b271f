"""Run Spark applications, for commands and operators alike."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from kafka_drain.errors import SparkJobError
from kafka_drain.progress import Level, Line, SparkUiLine, read_progress_line
from kafka_drain.spark.connect import TOKEN_VARIABLE, ConnectAddress, is_connect
from kafka_drain.spark.job_spec import CONNECT_VARIABLE, write_private
from kafka_drain.spark.submit import SparkApplication

#: Time that a Spark Connect server has to accept a connection.
_CONNECT_SECONDS = 10.0


class NoServerError(SparkJobError):
    """Raised when no Spark Connect server answers, so that nothing was run."""


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
        token: Token for a Spark Connect server; empty for none.
    """

    master: str
    options: Sequence[str] = ()
    binary: str = "spark-submit"
    keytab: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)


class SparkProcess:
    """Runs applications in a process of their own, one at a time.

    Args:
        connection: Where applications run.
        hear: Receives each line that spark-submit prints, progress lines in parsed form; None to
            pass them to standard error.
    """

    #: Time that Spark has to shut down when interrupted or stopped: it removes its temporary files.
    last_seconds: ClassVar[float] = 2.0

    def __init__(
        self, connection: SparkConnection, hear: Callable[[Line], None] | None = None
    ) -> None:
        self._connection = connection
        self._hear = hear
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, application: SparkApplication) -> None:
        """Run an application.

        Raises:
            SparkJobError: When it failed.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the running application, if any."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=self.last_seconds)
        except subprocess.TimeoutExpired:
            process.kill()

    def _run(
        self, command: Sequence[str], environment: Mapping[str, str], *, watched: bool = False
    ) -> int:
        """Run a command; one that is watched reads from a pipe that ends with this process."""
        with subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE if watched else None,
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
                    process.wait(timeout=self.last_seconds)
                process.kill()
                raise
            finally:
                self._process = None


class SparkSubmit(SparkProcess):
    """Runs applications with spark-submit."""

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


class SparkConnect(SparkProcess):
    """Runs applications on a Spark Connect server; the process here is only its client.

    A query that the server runs doesn't end with a killed client: the next drain of the same
    archive follows it to its end. It ends with a client that is stopped.
    """

    #: The client stops its query first, which finishes the tasks that are writing.
    last_seconds = 20.0

    def __call__(self, application: SparkApplication) -> None:
        """Run an application.

        Raises:
            NoServerError: When the server doesn't answer.
            SparkJobError: When the application failed.
        """
        address = ConnectAddress.parse(self._connection.master)
        _require_server(address)
        with tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder:
            settings = Path(folder) / "connect.json"
            write_private(
                settings, {"conf": application.conf, "py_files": str(application.py_files)}
            )
            environment = {
                **os.environ,
                # Not on the command line: it may contain a token.
                "SPARK_REMOTE": address.url(self._connection.token),
                CONNECT_VARIABLE: str(settings),
                "PYTHONPATH": os.pathsep.join(_import_path(application)),
            }
            environment.pop(TOKEN_VARIABLE, None)
            command = [sys.executable, str(application.path), *application.arguments]
            code = self._run(command, environment, watched=True)
        if code:
            raise SparkJobError(f"the client of {address} failed with exit code {code}")


def runner_for(
    connection: SparkConnection, hear: Callable[[Line], None] | None = None
) -> SparkProcess:
    """Return the runner for a connection: a Spark Connect server's client, or spark-submit."""
    kind = SparkConnect if is_connect(connection.master) else SparkSubmit
    return kind(connection, hear)


def _require_server(address: ConnectAddress) -> None:
    """Require that something listens: pyspark would try for ten minutes.

    Raises:
        NoServerError: When nothing does.
    """
    try:
        socket.create_connection((address.host, address.port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise NoServerError(
            f"no Spark Connect server answers at {address}: {error}; start one with "
            "`kafka-drain spark-server`, or correct the master"
        ) from error


def _import_path(application: SparkApplication) -> list[str]:
    """Return where the client finds our packages: as they are here, not in the zip."""
    core = Path(__file__).resolve().parents[2]
    spark = application.path.resolve().parent
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return list(dict.fromkeys(filter(None, [str(spark), str(core), *known])))


def run_environment(application: SparkApplication, master: str) -> dict[str, str]:
    """Return the environment for spark-submit."""
    environment = {**os.environ, **application.environment}
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment
