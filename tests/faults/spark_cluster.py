"""A standalone Spark cluster, with processes that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from demo.broker.ports import free_ports
from demo.broker.processes import command_line
from kafka_drain.spark.java import require_java
from kafka_drain.spark.submit import spark_home
from tests.faults.injection import QUICK_JAVA, wait_for


@contextmanager
def process(
    name: str, folder: Path, *command: str, **environment: str
) -> Iterator[tuple[int, Path]]:
    """Run a process of the Spark cluster; yields its id and log, and stops it."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            env={
                **os.environ,
                "SPARK_HOME": str(spark_home()),
                "JAVA_HOME": str(require_java().path.resolve().parents[1]),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
                **environment,
            },
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield started.pid, log
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@contextmanager
def standalone_spark(
    folder: Path, workers: int = 2, prefixes: Sequence[Sequence[str]] = ()
) -> Iterator[tuple[str, list[int]]]:
    """Run a Spark cluster: yields its master's URL, and the ids of its workers of one core each.

    The workers have separate addresses, as Spark runs no second copy of a task on the same host.

    Args:
        folder: An empty folder.
        workers: Number of workers.
        prefixes: What begins the command of each worker.
    """
    port, *_ = free_ports(1, avoid=())
    address = f"spark://127.0.0.1:{port}"
    spark_class = str(spark_home() / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        pids = []
        master = [spark_class, f"{deploy}.master.Master", "--host", "127.0.0.1"]
        master += ["--port", str(port), "--webui-port", "0"]
        _, log = stack.enter_context(process("master", folder, *master))
        wait_for(lambda: "I have been elected leader" in log.read_text(), "Spark's master")
        logs = []
        for number in range(workers):
            host = f"127.0.0.{number + 2}"
            worker = [*prefixes[number]] if prefixes else []
            worker += [spark_class, f"{deploy}.worker.Worker", "--host", host, "--port", "0"]
            worker += ["--webui-port", "0", "--cores", "1", "--memory", "1g"]
            worker += ["--work-dir", str(folder / host), address]
            pid, log = stack.enter_context(
                process(f"worker-{host}", folder, *worker, SPARK_LOCAL_IP=host)
            )
            pids.append(pid)
            logs.append(log)
        for log in logs:
            wait_for(
                lambda log=log: "Successfully registered" in log.read_text(),  # type: ignore[misc]
                "a Spark worker",
            )
        yield address, pids
        for executor in executors(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(executor, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Return the processes that a process started, by their ids."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        lists = [
            (thread / "children").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
        return [int(child) for text in lists for child in text.split()]
    return []


def executors(workers: list[int]) -> list[int]:
    """Return the executors of some Spark workers."""
    return [executor for worker in workers for executor in children(worker)]


def python_workers(executor: int) -> list[int]:
    """Return the Python processes that run an executor's tasks."""
    return [
        task
        for daemon in children(executor)
        if "pyspark.daemon" in command_line(daemon)
        for task in children(daemon)
    ]
