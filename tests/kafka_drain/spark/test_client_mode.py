"""Spark applications are run to their end, wherever and by whom."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafka_drain import outages
from kafka_drain.background import Background
from kafka_drain.errors import ConfigError, MachineError, SparkJobError
from kafka_drain.output import Level, Line, SparkUiLine
from kafka_drain.progress import ProgressLine
from kafka_drain.spark import client_mode
from kafka_drain.spark.client_mode import SparkConnect, SparkProcess, SparkSubmit, read_spark_line
from kafka_drain.spark.cluster_manager import NoAnswerError
from kafka_drain.spark.engine import NoServerError, ServerGoneError
from kafka_drain.spark.job import SparkJob
from kafka_drain.spark.job_spec import PARENT_VARIABLE, write_private
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.runner import runner_for
from tests.fake_spark_connect import fake_server
from tests.faults.injection import wait_for

CONNECTION = SparkConnection("local[1]")


@dataclass
class Program:
    """Stands for an application: a Python program in the place of spark-submit."""

    text: str
    environment: dict[str, str] = field(default_factory=dict)
    driver_memory: str = "1g"
    asked: list[tuple[str, list[str], str]] = field(default_factory=list)

    def command(self, master: str, options: Sequence[str], binary: str) -> list[str]:
        self.asked.append((master, list(options), binary))
        return [sys.executable, "-c", self.text, *options]


def run(program: Program, hear: Any = None, connection: SparkConnection = CONNECTION) -> None:
    SparkSubmit(connection, hear)(program)  # type: ignore[arg-type]


def test_spark_submit_lines_heard() -> None:
    """Each line is heard as it comes, of standard output and of standard error."""
    heard: list[str] = []

    program = "import sys; print('one'); sys.stdout.flush(); print('two', file=sys.stderr)"
    run(Program(program), heard.append)

    assert heard == ["one", "two"]


def test_spark_submit_without_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's variables for a Spark Connect server don't make the driver its client."""
    for name in ("SPARK_REMOTE", "SPARK_API_MODE"):
        monkeypatch.setenv(name, "connect")
    heard: list[str] = []

    run(
        Program("import os; print({*os.environ} & {'SPARK_REMOTE', 'SPARK_API_MODE'})"),
        heard.append,
    )

    assert heard == ["set()"]


@pytest.mark.parametrize(
    ("printed", "level"),
    [
        ("26/11/22 12:00:00 WARN TaskSetManager: lost task 0.0", Level.WARNING),
        ("26/11/22 12:00:00 ERROR Executor: exception in task 0.0", Level.ERROR),
        ("26/11/22 12:00:00 FATAL Executor: gone", Level.ERROR),
        ("26/11/22 12:00:00 INFO Executor: no ERROR here", Level.PLAIN),
        ("ERROR values.columns: no such type", Level.ERROR),
        ("drain errors: nothing new, every offset is drained", Level.PLAIN),
        ("", Level.PLAIN),
    ],
)
def test_read_spark_line(printed: str, level: Level) -> None:
    """Spark's log says how bad a line is; its text stays as it was printed."""
    line = read_spark_line(f"{printed}\n")

    assert (line, type(line), line.level) == (printed, Line, level)


def test_read_spark_line_typed() -> None:
    """Progress and the address of Spark's UI are values from here on."""
    progress = read_spark_line("drain a: 3 of 9 offsets (33 %), 3/s, 2 s left\n")
    ui = read_spark_line("spark ui: http://driver:4040\n")

    assert isinstance(progress, ProgressLine)
    assert (progress.job, progress.name, progress.done) == ("drain", "a", 3)
    assert isinstance(ui, SparkUiLine)
    assert (str(ui), ui.address) == ("spark ui: http://driver:4040", "http://driver:4040")


def test_spark_submit_passes_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """Where nobody listens, lines go to standard error: standard output is the command's answer."""
    run(Program("print('one')"))

    assert capfd.readouterr() == ("", "one\n")


def test_spark_submit_failed() -> None:
    """An error is an error, by its exit code."""
    with pytest.raises(SparkJobError, match="spark-submit failed with exit code 3"):
        run(Program("raise SystemExit(3)"))


def test_spark_submit_connection() -> None:
    """Master, options and program are the connection's; the driver runs here, whatever else."""
    program = Program("")

    run(program, connection=SparkConnection("yarn", ["--queue", "night"], "spark3-submit"))

    options = ["--deploy-mode", "client", "--queue", "night"]
    assert program.asked == [("yarn", options, "spark3-submit")]


def test_spark_submit_keytab() -> None:
    """A keytab is a file that only this user can read, and that is gone afterwards."""
    heard: list[str] = []
    look = "import os, sys; path = sys.argv[-1]; print(path, oct(os.stat(path).st_mode)); "
    look += "print(open(path).read())"

    run(Program(look), heard.append, SparkConnection("yarn", keytab=b"secret"))

    (path, mode), content = heard[0].split(), heard[1]
    assert stat.S_IMODE(int(mode, 8)) == 0o600
    assert content == "secret"
    assert not Path(path).exists()


@pytest.mark.parametrize("ignores", [False, True])
def test_spark_submit_stopped(ignores: bool) -> None:
    """Who stops it ends what it has started, also what doesn't care about that."""
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if ignores else ""
    waits = "print(os.getpid(), flush=True); time.sleep(300)"
    program = Program(f"import os, signal, time; {deaf}{waits}")
    heard: list[str] = []
    submit = SparkSubmit(CONNECTION, heard.append)
    errors: list[Exception] = []

    def target() -> None:
        try:
            submit(program)  # type: ignore[arg-type]
        except SparkJobError as error:
            errors.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    wait_for(lambda: bool(heard), "the program's start")

    submit.stop()

    thread.join(timeout=60)
    assert not thread.is_alive()
    assert len(errors) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(heard[0]), 0)


def test_spark_submit_stopped_without_any() -> None:
    """To stop what doesn't run is nothing."""
    SparkSubmit(CONNECTION).stop()


@dataclass
class Client:
    """Stands for an application on a Spark Connect server: a Python program as its client."""

    path: Path
    arguments: list[str] = field(default_factory=list)
    conf: dict[str, str] = field(default_factory=lambda: {"spark.sql.a": "1"})
    py_files: Path = Path("/packages.zip")


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which a server answers as Spark does that a client opens no session at."""
    with fake_server() as found:
        yield found


@pytest.fixture
def accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server accept any client: this one has no TLS, which a token needs."""
    monkeypatch.setattr(client_mode, "require_server", lambda _: None)


def client(tmp_path: Path, text: str, *arguments: str) -> Any:
    (tmp_path / "main.py").write_text(text)
    return Client(tmp_path / "main.py", list(arguments))


@pytest.mark.usefixtures("accepting")
def test_spark_connect_client(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client finds address, token and settings in its environment, and none in its command."""
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "another")
    look = """
import json, os, stat, sys
path = os.environ["KAFKA_DRAIN_CONNECT"]
known = "SPARK_CONNECT_AUTHENTICATE_TOKEN" in os.environ
print(json.dumps([sys.argv[1:], os.environ["SPARK_REMOTE"], json.load(open(path)), known]))
print(path, oct(stat.S_IMODE(os.stat(path).st_mode)))
"""
    heard: list[str] = []
    connection = SparkConnection(f"sc://127.0.0.1:{port}", token="s3cret")

    SparkConnect(connection, heard.append)(client(tmp_path, look, "drain", "/spec.json"))

    arguments, remote, settings, known = json.loads(heard[0])
    assert arguments == ["drain", "/spec.json"]
    assert remote == f"sc://127.0.0.1:{port}/;user_id=kafka-drain;token=s3cret"
    assert settings == {"conf": {"spark.sql.a": "1"}, "py_files": "/packages.zip"}
    assert not known
    path, mode = heard[1].split()
    assert mode == "0o600"
    assert not Path(path).exists()


@pytest.mark.usefixtures("accepting")
def test_spark_connect_failed(tmp_path: Path, port: int) -> None:
    """A client's exit code says that it failed; the message has no token."""
    connection = SparkConnection(f"sc://127.0.0.1:{port}", token="s3cret")
    failing = client(tmp_path, "raise SystemExit(3)")

    with pytest.raises(SparkJobError, match=f"^the client of sc://127.0.0.1:{port} failed with ex"):
        SparkConnect(connection)(failing)


def test_spark_connect_without_server(tmp_path: Path) -> None:
    """Where nothing listens, nothing is started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        unused = free.getsockname()[1]
    ran = tmp_path / "ran"

    job = SparkJob(client(tmp_path, f"open({str(ran)!r}, 'w')"), tmp_path / "result.json")

    with pytest.raises(NoServerError, match=r"no Spark Connect server answers .* spark-server`"):
        job.run(SparkConnect(SparkConnection(f"sc://127.0.0.1:{unused}")))

    assert not ran.exists()


def test_spark_connect_server_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stops answering is named, and its client, which would wait, is ended."""
    monkeypatch.setattr(outages, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(client_mode, "GONE_SECONDS", 0.2)
    heard: list[Line] = []
    with fake_server() as port:
        runner = SparkConnect(SparkConnection(f"sc://127.0.0.1:{port}"), heard.append)
        application = client(tmp_path, "import time; print('begun', flush=True); time.sleep(300)")
        job = SparkJob(application, tmp_path / "result.json")
        running = Background(lambda: job.run(runner))
        wait_for(lambda: "begun" in heard, "the client's start")

    with pytest.raises(ServerGoneError) as raised:
        wait_for(lambda: running.ended(0.1), "the end")

    missed = f"no Spark Connect server answers at sc://127.0.0.1:{port}: it refuses connections"
    assert f"stopped answering: {missed}" in str(raised.value)
    assert "a retry resumes" in str(raised.value)
    said = [line for line in heard if missed in line]
    assert said[0].startswith("waiting: ")
    assert said[0].level is Level.WARNING


def test_spark_connect_client_ends_with_its_parent(tmp_path: Path, port: int) -> None:
    """A client reads from a pipe whose other end is held by the process that started it."""
    heard: list[str] = []
    program = "import os, select; os.read(0, 1); print(bool(select.select([0], [], [], 0.2)[0]))"

    SparkConnect(SparkConnection(f"sc://127.0.0.1:{port}"), heard.append)(client(tmp_path, program))

    assert heard == ["False"]


#: Says that it has started, and then what it is told.
WAITS = "import os; print(os.getpid(), flush=True); print(os.read(0, 9))"


def test_spark_connect_early(tmp_path: Path, port: int) -> None:
    """What was started early waits until it is submitted, and then is what runs."""
    heard: list[str] = []
    runner = SparkConnect(SparkConnection(f"sc://127.0.0.1:{port}"), heard.append)
    application = client(tmp_path, WAITS, "drain", "/spec.json")

    with runner.early(application):
        started = runner._process
        assert started is not None
        runner(application)

    assert heard == [str(started.pid), repr(b"\n")]


def test_spark_connect_early_in_vain(tmp_path: Path, port: int) -> None:
    """What was started early and isn't needed is ended, and its private folder removed."""
    runner = SparkConnect(SparkConnection(f"sc://127.0.0.1:{port}"), print)

    with runner.early(client(tmp_path, WAITS)):
        process, folder = runner._process, runner._folder
        assert process is not None
        assert folder is not None
        assert process.poll() is None

    assert process.returncode == -signal.SIGKILL
    assert not Path(folder.name).exists()


def test_spark_connect_early_ended_before(tmp_path: Path, port: int) -> None:
    """A client that has ended before it is needed has failed, as any other."""
    runner = SparkConnect(SparkConnection(f"sc://127.0.0.1:{port}"), print)
    failing = client(tmp_path, "raise SystemExit(3)")

    with runner.early(failing):
        assert runner._process is not None
        os.waitid(os.P_PID, runner._process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(SparkJobError, match="failed with exit code 3"):
            runner(failing)


@pytest.mark.parametrize(
    ("master", "kind"),
    [("local[2]", SparkSubmit), ("spark://h:7077", SparkSubmit), ("sc://h", SparkConnect)],
)
def test_runner_for(master: str, kind: type[SparkProcess]) -> None:
    """The master says how its applications are run."""
    assert type(runner_for(SparkConnection(master))) is kind


@pytest.mark.parametrize(
    ("exit_code", "result", "kind", "says"),
    [
        (0, {"records": 3}, None, ""),
        (0, {"error": "values.columns: no such type"}, ConfigError, "no such type"),
        (1, {"error": "values.columns: no such type"}, ConfigError, "no such type"),
        (1, {"error": "start it", "error_type": "MachineError"}, MachineError, "^start it"),
        (1, {"error": "java.lang.X"}, SparkJobError, "the job failed in Spark: java.lang.X"),
        (0, None, SparkJobError, "spark-submit exited before the job wrote a result"),
        (1, None, SparkJobError, "spark-submit exited before the job wrote a result"),
        (1, {"records": 3}, SparkJobError, "spark-submit failed with exit code 1"),
    ],
)
def test_job_result(
    exit_code: int,
    result: dict[str, Any] | None,
    kind: type[Exception] | None,
    says: str,
    tmp_path: Path,
) -> None:
    """A job's result says what went wrong; without a word of it, the exit code does."""
    job = SparkJob(Program(f"raise SystemExit({exit_code})"), tmp_path / "result.json")  # type: ignore[arg-type]
    if result is not None:
        write_private(job.result_path, result)
    runner = SparkSubmit(CONNECTION)

    if kind is None:
        assert job.run(runner) == result
    else:
        with pytest.raises(kind, match=says):
            job.run(runner)


@pytest.mark.parametrize(
    "error", [NoAnswerError("silence"), NoServerError("nobody"), ServerGoneError("gone")]
)
def test_job_not_followed(error: SparkJobError, tmp_path: Path) -> None:
    """What says that a job goes on, or never began, isn't taken for a job without a result."""
    job = SparkJob(Program(""), tmp_path / "result.json")  # type: ignore[arg-type]

    def run(_: object) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        job.run(run)


@pytest.mark.parametrize("exit_code", [0, 1])
@pytest.mark.parametrize("left", ["", '{"error": "No space le'])
def test_job_result_unfinished(exit_code: int, left: str, tmp_path: Path) -> None:
    """A driver killed while it wrote its result, or whose disk was full, has left none."""
    job = SparkJob(Program(f"raise SystemExit({exit_code})"), tmp_path / "result.json")  # type: ignore[arg-type]
    job.result_path.write_text(left)

    with pytest.raises(SparkJobError, match="spark-submit exited before the job wrote a result"):
        job.run(SparkSubmit(CONNECTION))


def test_spark_submit_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where spark-submit can't be started, no keytab is left behind."""
    keytabs: list[Path] = []

    def popen(command: list[str], **_: Any) -> None:
        keytabs.append(Path(command[-1]))
        assert keytabs[0].read_bytes() == b"secret"
        raise FileNotFoundError(2, "no such program")

    monkeypatch.setattr(client_mode.subprocess, "Popen", popen)

    with pytest.raises(FileNotFoundError):
        run(Program(""), connection=SparkConnection("yarn", keytab=b"secret"))

    assert not keytabs[0].parent.exists()


@pytest.mark.parametrize(
    ("master", "known", "found"),
    [
        ("local[2]", None, "127.0.0.1"),
        ("local[2]", "10.0.0.1", "10.0.0.1"),
        ("spark://h:7077", None, None),
        ("yarn", None, None),
    ],
)
def test_run_environment(
    master: str, known: str | None, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a driver whose executors are in itself listens to this machine alone."""
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setenv("SPARK_HOME", "/theirs")
    if known is not None:
        monkeypatch.setenv("SPARK_LOCAL_IP", known)
    program: Any = Program("", environment={"SPARK_HOME": "/ours"})

    made = client_mode.run_environment(program, master)

    assert (made.get("SPARK_LOCAL_IP"), made["SPARK_HOME"]) == (found, "/ours")


def test_spark_submit_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver knows the process with which it has to end."""
    known: list[str] = []

    def popen(_: list[str], *, env: dict[str, str], **__: Any) -> None:
        known.append(env[PARENT_VARIABLE])
        raise FileNotFoundError(2, "no such program")

    monkeypatch.setattr(client_mode.subprocess, "Popen", popen)
    with pytest.raises(FileNotFoundError):
        run(Program(""))

    assert known == [str(os.getpid())]
