"""Run applications as child processes: spark-submit in client mode, a Connect server's client."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

from kafka_drain.errors import KafkaDrainError, SparkJobError
from kafka_drain.outages import ServerWatch
from kafka_drain.output import Level, Line, SparkUiLine
from kafka_drain.progress import read_progress_line
from kafka_drain.spark.connect import TOKEN_VARIABLE, ConnectAddress
from kafka_drain.spark.connect_reaching import look_at_server, require_server
from kafka_drain.spark.engine import ServerGoneError, StartedApplication, run_on
from kafka_drain.spark.job_spec import CONNECT_VARIABLE, PARENT_VARIABLE, write_private
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.submit import IN_CLIENT, SparkApplication, without_connect

#: For how long a Spark Connect server may not answer while it runs something. What it commits
#: stays, and pyspark's client waits for ever for one that hangs.
GONE_SECONDS = 45.0

# What kafka_drain_spark.job prints.
_SPARK_UI = re.compile(r"spark ui: (https?://\S+)\s*$")
_JOB_ERROR = re.compile(r"ERROR ")
# The level after the time in Spark's log.
_LOG = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>WARN|ERROR|FATAL) ")


class SparkProcess:
    """An engine whose applications are child processes, one at a time.

    Their drivers, or a Spark Connect server's client, end with this process or soon after it:
    nothing is found again here. What runs on a server is found by the next client.

    Args:
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
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __call__(self, application: SparkApplication) -> None:
        """Run an application.

        Raises:
            SparkJobError: When it failed.
        """
        run_on(self, application)

    def find(self, _: SparkApplication) -> StartedApplication | None:
        """Return nothing."""
        return None

    @contextmanager
    def early(self, _: SparkApplication) -> Iterator[None]:
        """Start nothing early."""
        yield

    def submit(self, application: SparkApplication) -> str:
        """Start an application, and return the id of its process.

        Raises:
            SparkJobError: When it can't be started.
        """
        raise NotImplementedError

    def poll(self, application_id: str) -> bool:
        """Hear the next line that the application prints; return whether it has ended.

        Raises:
            SparkJobError: When it failed.
        """
        process = self._process
        assert process is not None
        assert str(process.pid) == application_id
        for line in process.stdout or ():
            assert self._hear is not None
            self._hear(read_spark_line(line))
            return False
        code = process.wait()
        self._forget()
        if code:
            raise SparkJobError(f"{self._what()} failed with exit code {code}")
        return True

    def cancel(self, _: str) -> None:
        """End the interrupted application; Ctrl-C in a terminal interrupts Spark as well."""
        process = self._process
        if process is None:
            return
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=self.last_seconds)
        process.kill()
        process.wait()
        self._forget()

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

    def _what(self) -> str:
        """Return the name of the running jobs, for messages."""
        return "spark-submit"

    def _private(self) -> Path:
        """Return a private folder that is removed when the application has ended."""
        # Created with mode 0700.
        self._folder = tempfile.TemporaryDirectory(prefix="kafka-drain-")
        return Path(self._folder.name)

    def _start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        watched: bool = False,
        heard: bool = False,
    ) -> str:
        """Start a command; one that is watched reads from a pipe that ends with this process.

        One that is heard prints to this process, even if nobody listens to it.
        """
        passes = self._hear is None and not heard
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE if watched else None,
                stdout=sys.stderr if passes else subprocess.PIPE,
                stderr=None if passes else subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError:
            self._forget()
            raise
        return str(self._process.pid)

    def _forget(self) -> None:
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout) if process else ():
            if pipe is not None:
                pipe.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class SparkSubmit(SparkProcess):
    """Runs applications with spark-submit."""

    def submit(self, application: SparkApplication) -> str:
        """Start spark-submit, which is the driver."""
        connection = self._connection
        return self._start(
            application.command(
                connection.master,
                [*IN_CLIENT, *connection.options, *self._login()],
                connection.binary,
            ),
            # However this process ends: nobody would renew the lease of a driver that runs on.
            run_environment(application, connection.master) | {PARENT_VARIABLE: str(os.getpid())},
        )

    def _login(self) -> list[str]:
        """Return spark-submit's options for Kerberos."""
        if not self._connection.keytab:
            return []
        keytab = self._private() / "keytab"
        keytab.touch(mode=0o600)
        keytab.write_bytes(self._connection.keytab)
        return ["--keytab", str(keytab)]


def read_spark_line(printed: str) -> Line:
    """Parse a line of an application's output; nothing else reads its text."""
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

    def __init__(
        self, connection: SparkConnection, hear: Callable[[Line], None] | None = None
    ) -> None:
        super().__init__(connection, hear)
        self._address = ConnectAddress.parse(connection.master)
        self._watch: ServerWatch | None = None
        self._gone: KafkaDrainError | None = None

    @contextmanager
    def early(self, application: SparkApplication) -> Iterator[None]:
        """Start the client, which opens its session and waits; end it if it isn't submitted."""
        self._begin(application)
        try:
            yield
        finally:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._forget()

    def submit(self, application: SparkApplication) -> str:
        """Let the client of a server run its jobs, and start it unless it was started early.

        Raises:
            NoServerError: When the server doesn't answer.
            ConfigError: When it refuses the token, or only one of both speaks TLS.
        """
        require_server(self._connection)
        if self._process is None:
            self._begin(application)
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.args == _client_command(application)
        # One that has ended says why when it is polled.
        with suppress(BrokenPipeError):
            os.write(process.stdin.fileno(), b"\n")
        self._gone, self._watch = None, ServerWatch(self._say)
        self._watch.add(
            f"the Spark Connect server at {self._address}",
            self._look,
            after=GONE_SECONDS,
            end=partial(self._give_up, process),
        )
        return str(process.pid)

    def poll(self, application_id: str) -> bool:
        """Hear the next line; see `SparkProcess.poll`.

        Raises:
            ServerGoneError: When the server hasn't answered for `GONE_SECONDS`.
        """
        try:
            return super().poll(application_id)
        except SparkJobError as error:
            if self._gone is None:
                raise
            raise ServerGoneError(
                f"the Spark Connect server stopped answering: {self._gone}. What it committed "
                "stays, and a retry resumes after that; a server that only hung goes on with its "
                "query, which a retry follows"
            ) from error

    def _look(self) -> KafkaDrainError | None:
        return look_at_server(self._address, self._connection.token)

    def _say(self, line: str) -> None:
        if self._hear is not None:
            self._hear(line if isinstance(line, Line) else Line(line))
        else:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def _give_up(self, process: subprocess.Popen[str], missed: KafkaDrainError) -> None:
        """End the client of a server that is gone; it can't stop anything there any more."""
        self._gone = missed
        process.kill()

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        super()._forget()

    def _begin(self, application: SparkApplication) -> None:
        settings = self._private() / "connect.json"
        write_private(settings, {"conf": application.conf, "py_files": str(application.py_files)})
        environment = {
            # What gRPC prints of connections that fail is in the errors.
            "GRPC_VERBOSITY": "NONE",
            **os.environ,
            # Not on the command line: it may contain a token.
            "SPARK_REMOTE": self._address.url(self._connection.token),
            CONNECT_VARIABLE: str(settings),
            "PYTHONPATH": os.pathsep.join(_import_path(application)),
        }
        environment.pop(TOKEN_VARIABLE, None)
        self._start(_client_command(application), environment, watched=True)

    def _what(self) -> str:
        return f"the client of {self._address}"


def _client_command(application: SparkApplication) -> list[str]:
    return [sys.executable, str(application.path), *application.arguments]


def _import_path(application: SparkApplication) -> list[str]:
    """Return the client's path to our packages: as they are here, not in the zip."""
    core = Path(__file__).resolve().parents[2]
    spark = application.path.resolve().parent
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return list(dict.fromkeys(filter(None, [str(spark), str(core), *known])))


def run_environment(application: SparkApplication, master: str) -> dict[str, str]:
    """Return the environment for spark-submit."""
    environment = {**without_connect(os.environ), **application.environment}
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment
