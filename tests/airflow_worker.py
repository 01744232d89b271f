"""Airflow's own supervisor and task runner, as in an executor's worker, for tests that kill tasks.

The scheduler, which hands out tasks, and the API server are replaced.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from demo.local_airflow import LocalAirflow
from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow.connections import PROBLEM_KEY

__all__ = ["HOUR", "NOON", "ApiServer", "Drained", "Task", "Worker", "airflow_worker", "at"]

ROOT = Path(__file__).resolve().parents[1]
NOON = 1_768_046_400_000  # 2026-01-10 12:00 UTC, in milliseconds
HOUR = 3_600_000
PATIENCE = 90.0

# What an executor does with a task from the scheduler; importing Airflow takes seconds.
WORKER = """
import json, os, sys
from airflow.sdk.api.datamodels._generated import BundleInfo, TaskInstance
from airflow.sdk.execution_time.supervisor import supervise_task
for line in sys.stdin:
    asked = json.loads(line)
    try:
        ended = supervise_task(
            ti=TaskInstance(**asked["ti"]),
            bundle_info=BundleInfo(name="dags-folder"),
            dag_rel_path=asked["dag"],
            token="",
            server=asked["server"],
            log_path=asked["log"],
        )
    except Exception as error:
        ended = repr(error)
    print("ended", json.dumps(ended), flush=True)
"""

DAGS = """
from kafka_drain.republish.engines import worker
from kafka_drain_airflow import Pipeline, create_dags

# Without it, a process more pays from 200,000 records on.
worker.RECORDS_PER_PROCESS = {records_per_process}
create_dags(Pipeline(**{pipeline!r}))
"""

GROUP_DAGS = """
from kafka_drain_airflow import Pipeline, create_group_dags

create_group_dags({name!r}, [Pipeline(**each) for each in {pipelines!r}])
"""


def at(milliseconds: int) -> str:
    """Return a time in the format of Airflow and its forms."""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat()


#: XComs that the UI shows: a task's archive, its progress, its buttons, and why it failed.
SHOWN = ("archive", "progress", "spark_ui", "_link_ArchiveLink", PROBLEM_KEY)


class ApiServer(ThreadingHTTPServer):
    """What Airflow's API server answers to one task, and what it was told.

    Args:
        run: The task's DAG run in its responses.
        is_gone_at: End of the address of the request during which it goes away, for good.
        store: Holds the task's state store, by key; it outlives a try.
    """

    def __init__(
        self,
        run: dict[str, Any],
        is_gone_at: str | None = None,
        store: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.run = run
        self.store = {} if store is None else store
        self.is_gone_at = is_gone_at
        self.is_gone = False
        #: Once set, it responds as for a task that was marked as failed.
        self.is_marked_failed = threading.Event()
        self.states: list[str] = []
        self.results: list[Any] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_port}/execution/"

    def go(self) -> None:
        """Shut down: the kernel refuses any further connection."""
        self.shutdown()
        self.server_close()
        self.is_gone = True


class _Answers(BaseHTTPRequestHandler):
    server: ApiServer

    def _answer(self) -> None:
        path = self.path.removeprefix("/execution/")
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        if self.server.is_gone_at and path.partition("?")[0].endswith(self.server.is_gone_at):
            self.server.go()
            return
        code, answer = 200, dict[str, Any]()
        if path.endswith("/run"):
            answer = {"dag_run": self.server.run, "max_tries": 2, "should_retry": True}
        elif path.startswith("asset-events/"):
            answer = {"asset_events": []}
        elif path.startswith("store/ti/"):
            key = path.rpartition("/")[2]
            if self.command == "PUT":
                self.server.store[key] = body["value"]
            code = 200 if key in self.server.store else 404
            answer = {"value": self.server.store.get(key)}
        elif self.server.is_marked_failed.is_set() and not path.startswith("xcoms/"):
            code, answer = 409, {"detail": {"reason": "not_running", "current_state": "failed"}}
        elif path.endswith("/state"):
            self.server.states.append(body["state"])
        elif path.partition("?")[0].rpartition("/")[2] in SHOWN:
            pass  # XComs for the UI of a running task aren't results.
        elif path.startswith("xcoms/") and self.command == "POST":
            self.server.results.append(body)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@dataclass
class Task:
    """A try of a task: its API server, its log, and how its process ended."""

    worker: Worker
    server: ApiServer
    log: Path
    ended: Future[Any]

    def wait_until(self, reached: Callable[[], object], what: str) -> None:
        """Wait for a condition while the task runs."""
        deadline = time.monotonic() + self.worker.patience
        while not reached():
            assert not self.ended.done(), f"ended before {what}: {self.said()[-3000:]}"
            assert time.monotonic() < deadline, f"no {what}: {self.said()[-3000:]}"
            time.sleep(0.02)

    def end(self) -> Any:
        """Wait for it to exit, and return its process's exit code."""
        try:
            return self.ended.result(self.worker.patience)
        finally:
            if not self.server.is_gone:
                self.server.go()

    def is_unheard(self) -> bool:
        """Return whether it succeeded on its own, but could not report it without a server."""
        finished = "Post Execute" in self.said() and "Pushing xcom" in self.said()
        return finished and self.server.is_gone and self.server.states == []

    def said(self) -> str:
        """Return its log."""
        return self.log.read_text() if self.log.exists() else ""

    def result(self) -> dict[str, Any]:
        """Wait for its success, and return its result."""
        code = self.end()
        assert (code, self.server.states) == (0, ["success"]), self.said()[-3000:]
        (result,) = self.server.results
        return dict(result if isinstance(result, dict) else json.loads(result))


@dataclass
class Worker:
    """A worker of Airflow, which runs one task at a time."""

    airflow: LocalAirflow
    process: subprocess.Popen[str]
    patience: float = PATIENCE
    #: Airflow's task state store: what each DAG's task has put into it, by key.
    stores: dict[str, dict[str, Any]] = field(default_factory=dict)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def write_dags(self, pipeline: Pipeline, records_per_process: int = 200_000) -> None:
        """Write the DAG file of a pipeline."""
        named = pipeline.model_dump(exclude_unset=True)
        text = DAGS.format(pipeline=named, records_per_process=records_per_process)
        (self.airflow.dags / f"{pipeline.name}.py").write_text(text)

    def write_group(self, name: str, pipelines: Sequence[Pipeline]) -> None:
        """Write the DAG file of a group of pipelines."""
        named = [pipeline.model_dump(exclude_unset=True) for pipeline in pipelines]
        text = GROUP_DAGS.format(name=name, pipelines=named)
        (self.airflow.dags / f"group_{name}.py").write_text(text)

    def start(self, dag_id: str, task_id: str, is_gone_at: str | None = None, **run: Any) -> Task:
        """Start a try of a task of a DAG run."""
        run = {
            "dag_id": dag_id,
            "run_id": "a run",
            "run_type": "manual",
            "state": "running",
            "consumed_asset_events": [],
            "partition_key": None,
            **dict.fromkeys(("logical_date", "run_after", "start_date"), at(NOON + 2 * HOUR)),
            **dict.fromkeys(("data_interval_start", "data_interval_end", "end_date")),
            **run,
        }
        server = ApiServer(run, is_gone_at, self.stores.setdefault(dag_id, {}))
        ids = {name: str(uuid.uuid4()) for name in ("id", "dag_version_id")}
        task = {"dag_id": dag_id, "task_id": task_id, "run_id": run["run_id"], "try_number": 1}
        log, dag = f"{ids['id']}.log", f"{dag_id.partition('_')[2]}.py"
        asked = {"ti": task | ids, "dag": dag, "server": server.url, "log": log}
        ended = self.threads.submit(self._ask, json.dumps(asked))
        return Task(self, server, self.airflow.home / "logs" / log, ended)

    def terminate(self) -> None:
        """Stop it as a shutdown does: its supervisor passes the signal on to the task."""
        self.process.send_signal(signal.SIGTERM)

    def kill_task(self) -> None:
        """Kill the process of the running task, a fork of its supervisor; nothing else."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        for child in {int(pid) for path in children for pid in path.read_text().split()}:
            os.kill(child, signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """Return id and command of each process that its tasks started and that still runs."""
        mark = f"AIRFLOW_HOME={self.airflow.home}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it has exited
                continue
            if mark in environment and WORKER not in command:
                found[int(folder.name)] = command
        return found

    def runs_spark(self) -> bool:
        """Return whether a task's spark-submit and its child processes are running."""
        commands = " ".join(self.processes().values())
        return "SparkSubmit" in commands and f"python {ROOT}/spark_jobs/" in commands

    def left_processes(self) -> list[str]:
        """List processes that its tasks have started and that don't exit with them."""
        deadline = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return list(left.values())

    def _ask(self, line: str) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        for said in self.process.stdout:
            if said.startswith("ended "):
                return json.loads(said.removeprefix("ended "))
        raise AssertionError(f"the worker ended with {self.process.wait()}")


class Drained:
    """A pipeline, its archive, and its drains.

    Args:
        worker: Runs the drains.
        pipeline: The pipeline.
    """

    def __init__(self, worker: Worker, pipeline: Pipeline) -> None:
        self._worker, self._name = worker, pipeline.name
        self.archive = Path(pipeline.archive)
        worker.write_dags(pipeline)

    def start(self) -> Task:
        """Start an attempt of the drain."""
        return self._worker.start(f"drain_{self._name}", "drain")

    @property
    def batches(self) -> int:
        """The number of batches that the query has committed."""
        return len([*self.archive.glob("generations/0001/checkpoint/commits/[0-9]*")])

    def start_until_mid_query(self) -> Task:
        """Start a drain, and wait until it is in mid-query."""
        started = self.start()
        started.wait_until(lambda: self.batches > 1, "batches")
        return started


@contextmanager
def airflow_worker(
    folder: Path, bootstrap_servers: str, *, patience: float = PATIENCE, **variables: str
) -> Iterator[Worker]:
    """Run a worker of Airflow, with further environment variables: no scheduler, no database."""
    release = tuple(map(int, version("apache-airflow").split(".")[:2]))
    if release < (3, 3):
        pytest.skip("supervise_task, which a worker starts tasks with, is there since Airflow 3.3")
    (folder / "dags").mkdir()
    airflow = LocalAirflow(folder, bootstrap_servers, dags=folder / "dags")
    settings = {
        "MIN_HEARTBEAT_INTERVAL": "1",
        "EXECUTION_API_RETRIES": "2",
        "EXECUTION_API_RETRY_WAIT_MIN": "0.1",
        "EXECUTION_API_RETRY_WAIT_MAX": "0.2",
    }
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env=airflow.environment
            | {f"AIRFLOW__WORKERS__{name}": value for name, value in settings.items()}
            # Java's second compiler doesn't pay off in such a short run.
            | {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
            | {"PYTHONPATH": f"{ROOT}/plugins:{ROOT}/spark_jobs"}
            | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    with process:
        worker = Worker(airflow, process, patience)
        with worker.threads:
            try:
                yield worker
            finally:
                process.kill()
                for pid in worker.processes():  # left by a failed test
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
