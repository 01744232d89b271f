"""A private Airflow for the demo: its home is in the demo's folder, its UI listens on loopback."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from demo.airflow_session import DONE
from demo.broker.ports import all_free, free_ports
from demo.broker.processes import command_line, members, start_of

__all__ = ["AirflowError", "LocalAirflow"]

ROOT = Path(__file__).resolve().parents[1]
BINARIES = Path(sys.executable).parent
IS_2 = version("apache-airflow").startswith("2.")
#: Time limit for the process that runs commands to exit.
SESSION_SECONDS = 30.0
# Log lines of Airflow 3, `[info     ] the message [the.logger] loc=…`, and of Airflow 2,
# `{module.py:12} INFO - the message`.
LOG_LINES = (
    re.compile(r"\[(\w+)\s*\] (.*?)\s+\[[\w.]+\](?: |$)"),
    re.compile(r"\{\w+\.py:\d+\} (\w+) - (.*)"),
)
OUR_LINE = re.compile(
    r"(drain|validate|republish|reprocess|backfill|maintain|remove|roll|cut-over) \S+:"
)


class AirflowError(Exception):
    """Raised when an Airflow command fails; the message names its log."""


def _log_servers() -> dict[str, str]:
    """Return ports for the log servers, as another Airflow may use the default ones."""
    worker, triggerer = free_ports(2, avoid=())
    return {
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(triggerer),
    }


class LocalAirflow:
    """Airflow with its home in a folder, the checkout's plugins, and our connections.

    Args:
        folder: Folder for Airflow's home, archives and logs.
        bootstrap_servers: Kafka's bootstrap servers.
        port: Port of the UI.
        dags: Folder of the DAG files.
        database: URL of Airflow's database; None for SQLite in its home.
        kafka: Further settings of the Kafka connection, as librdkafka names them.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap_servers: str,
        port: int = 8080,
        dags: Path = ROOT / "dags",
        database: str | None = None,
        kafka: Mapping[str, Any] | None = None,
    ) -> None:
        self.home = folder / "airflow"
        self.archives = folder / "archives"
        self.logs = folder / "logs"
        self.port = port
        self.dags = dags
        self.database = database or f"sqlite:///{self.home}/airflow.db"
        # With SQLite, Airflow 2 accepts only the SequentialExecutor, which Airflow 3 dropped.
        is_sequential = database is None and IS_2
        self.executor = "SequentialExecutor" if is_sequential else "LocalExecutor"
        self._kafka = {"bootstrap.servers": bootstrap_servers, **(kafka or {})}
        self._process: subprocess.Popen[str] | None = None
        self._standalone: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LocalAirflow:
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the process that runs commands, and everything it started."""
        if self._process is None:
            return
        assert self._process.stdin
        assert self._process.stdout
        # The process exits on end of input, once its forked children have exited.
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(SESSION_SECONDS)
        # OpenLineage forks the multithreaded process, and such a child may hang.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every Airflow command."""
        path = f"{BINARIES}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        # Airflow's parts find each other on this machine, never through a proxy.
        known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        direct = ",".join(filter(None, [known, "127.0.0.1", "localhost"]))
        beside = {"PATH": path, "no_proxy": direct, "NO_PROXY": direct}
        return {**os.environ, **beside, **self.settings}

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables that this Airflow needs in addition to the inherited ones."""
        # After a fork, Airflow 2 closes the pool's connections to the database: its parent's too.
        unpooled = {"AIRFLOW__DATABASE__SQL_ALCHEMY_POOL_ENABLED": "false"} if IS_2 else {}
        return {
            **unpooled,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database,
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__EXECUTOR": self.executor,
            # How often Airflow 2 checks whether a backfill's task has finished.
            "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{self.port}",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "AIRFLOW__API__WORKERS": "1",
            # On a busy machine, the API server doesn't answer a starting task within five seconds.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "false",
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": self._kafka}),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "KAFKA_BOOTSTRAP_SERVERS": str(self._kafka["bootstrap.servers"]),
            "KAFKA_DRAIN_ARCHIVES": str(self.archives),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def run(
        self, *arguments: str, log: str, say: Callable[[str], None] = lambda line: None
    ) -> None:
        """Run an Airflow command; its complete output goes to a log file.

        Args:
            arguments: The arguments after `airflow`.
            log: Name of the log file, without suffix.
            say: Called with each output line of kafka-drain's tasks as it appears.

        Raises:
            AirflowError: If the command failed; the message ends with the errors from its log.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        path = self.logs / f"{log}.log"
        errors: list[str] = []
        code: int | None = None
        commands, output = self._session()
        with path.open("w") as kept:
            commands.write(json.dumps(arguments) + "\n")
            commands.flush()
            for line in output:
                if line.startswith(DONE):
                    code = int(line.removeprefix(DONE))
                    break
                kept.write(line)
                match = next(filter(None, (form.search(line) for form in LOG_LINES)), None)
                if OUR_LINE.match(line):
                    say(line.rstrip())  # printed by a command, not logged by a task
                elif match and OUR_LINE.match(match[2]):
                    say(match[2])
                elif match and match[1].lower() in ("error", "critical"):
                    errors.append(match[2])
                elif re.match(r"airflow\.exceptions\.\w+: ", line):
                    errors.append(line.rstrip())  # the last line of a traceback in Airflow 2
        if code != 0:
            shown = "\n".join(errors[-5:])
            raise AirflowError(f"airflow {' '.join(arguments)} failed; see {path}\n{shown}")

    def _session(self) -> tuple[IO[str], IO[str]]:
        """Return input and output of the process that runs commands; start it if needed."""
        if self._process is None or self._process.poll() is not None:
            self.home.mkdir(parents=True, exist_ok=True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "demo.airflow_session"],
                env=self.environment,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                # In its own process group, which can be killed as a whole.
                start_new_session=True,
            )
        assert self._process.stdin
        assert self._process.stdout
        return self._process.stdin, self._process.stdout

    def test_dag(self, dag_id: str, log: str, say: Callable[[str], None], *more: str) -> None:
        """Run a DAG once, one task after another, in one process.

        Raises:
            AirflowError: If the run failed.
        """
        if version("apache-airflow").startswith(("2.", "3.0.")):
            # From 3.1 on, `dags test` registers the DAG's assets and their aliases itself.
            self.run("dags", "reserialize", log="reserialize")
        self.run("dags", "test", dag_id, *more, log=log, say=say)

    # --- the UI ---

    @property
    def _pid_file(self) -> Path:
        return self.home / "standalone.pid"

    @property
    def _port_file(self) -> Path:
        return self.home / "standalone.port"

    def running_port(self) -> int | None:
        """Return the UI's port of the running Airflow.

        Returns:
            None if there is none, or if an older release started it without recording the port.
        """
        if self.pid() is None:
            return None
        try:
            return int(self._port_file.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def require_port(self) -> None:
        """Require that the UI's port is free.

        Raises:
            AirflowError: If the port is in use; the message suggests a free one.
        """
        if all_free([self.port]):
            return
        others = (port for port in range(self.port + 1, 65536) if all_free([port]))
        raise AirflowError(
            f"port {self.port} is in use by another program, and nothing was started; stop that "
            f"program, or choose another port: make ui PORT={next(others, 8080)}"
        )

    def write_environment(self, path: Path) -> None:
        """Write a file, readable only by this user, that sets this Airflow's environment."""
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in self.settings.items()]
        path.unlink(missing_ok=True)
        # The Kafka connection may contain a password.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f'export PATH={shlex.quote(str(BINARIES))}:"$PATH"\n' + "".join(lines))

    @property
    def url(self) -> str:
        """The URL of the UI."""
        return f"http://127.0.0.1:{self.port}"

    def pid(self) -> int | None:
        """Return the process id (and group id) of the running `airflow standalone`, or None.

        Compares the process's start time too, as another program may have reused the id.
        """
        try:
            noted, _, start = self._pid_file.read_text().strip().partition(" ")
            pid = int(noted)
            os.killpg(pid, 0)
        except (OSError, ValueError):
            return None
        now = start_of(pid)
        if not now:  # its children may outlive it
            return pid if _has_airflow(pid) else None
        if not start:  # recorded by an older release
            return pid if {"airflow", "standalone"} <= _words(pid) else None
        return pid if now == start else None

    def start(self, timeout: float = 300.0) -> None:
        """Start scheduler, DAG processor, triggerer and API server, and wait for the UI.

        Raises:
            AirflowError: If the port is in use, Airflow exits, or it doesn't respond in time.
        """
        if self.pid() is not None:
            return
        self.require_port()
        self.home.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / "standalone.log"
        with log.open("w") as output:
            # In its own process group, because standalone leaves its children behind on exit.
            self._standalone = process = subprocess.Popen(
                ["airflow", "standalone"],
                env={**self.environment, **_log_servers()},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            self._port_file.write_text(str(self.port))
            self._pid_file.write_text(f"{process.pid} {start_of(process.pid)}")
            deadline = time.monotonic() + timeout
            while not self.healthy():
                if process.poll() is not None:
                    raise AirflowError(
                        f"airflow standalone exited with code {process.returncode}; see {log}"
                    )
                if time.monotonic() > deadline:
                    raise AirflowError(f"Airflow didn't respond within {timeout:g} s; see {log}")
                time.sleep(0.5)
        except BaseException:
            self._end(process.pid)
            raise

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run Airflow with its scheduler while the body runs, then stop it."""
        # Commands may refer to DAGs that the scheduler hasn't parsed yet.
        self.run("dags", "reserialize", log="reserialize")
        try:
            self.start()
            yield
        finally:
            self.stop()

    def healthy(self) -> bool:
        """Return whether the UI responds and scheduler and DAG processor send heartbeats."""
        try:
            direct = build_opener(ProxyHandler({}))
            with direct.open(f"{self.url}/api/v2/monitor/health", timeout=5) as answer:
                health = json.load(answer)
        except (URLError, OSError, ValueError):
            return False
        parts = ("metadatabase", "scheduler", "dag_processor")
        return all((health.get(part) or {}).get("status") == "healthy" for part in parts)

    def login(self) -> tuple[str, str]:
        """Return the user and password that Airflow generated for this home."""
        path = self.home / "simple_auth_manager_passwords.json.generated"
        ((user, password),) = json.loads(path.read_text()).items()
        return user, password

    def stop(self, grace: float = 15.0) -> bool:
        """Stop Airflow and everything it started; return whether it was running."""
        pid = self.pid()
        if pid is None:
            return False
        self._end(pid, grace)
        return True

    def _end(self, pid: int, grace: float = 15.0) -> None:
        """Terminate a process group that is known to belong to this Airflow."""
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
            with suppress(ProcessLookupError):
                os.killpg(pid, number)
            deadline = time.monotonic() + seconds
            while not (has_ended := self._has_ended(pid)) and time.monotonic() < deadline:
                time.sleep(0.2)
            if has_ended:
                break
        self._pid_file.unlink(missing_ok=True)

    def _has_ended(self, pid: int) -> bool:
        """Return whether a process group has ended, and a child of this process was waited for.

        Only its `Popen` waits for it, which would otherwise believe that it still runs.
        """
        child = self._standalone
        is_waited = child is None or child.pid != pid or child.poll() is not None
        return is_waited and not _runs(pid)


def _runs(group: int) -> bool:
    """Return whether a process group contains more than zombies, which no command line tells of.

    A container whose first process reaps none keeps them for ever.
    """
    return any(command_line(pid) for pid in members(group))


def _words(pid: int) -> set[str]:
    """Return the words of a process's command line, without folders."""
    return {word.rpartition("/")[2] for word in command_line(pid).replace("\0", " ").split()}


def _has_airflow(group: int) -> bool:
    """Return whether a process group contains a process of Airflow."""
    return any("airflow" in _words(pid) for pid in members(group))
