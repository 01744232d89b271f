"""Drains on a warm Spark Connect server compared with handwritten scripts, on it and without it."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.dataset as ds

from benchmarks.arms import KAFKA_DRAIN, compared, figures_of, run_command, take_turns
from benchmarks.drain import Arms, checked
from benchmarks.kafka_connect import JARS, drain_by_kafka_connect
from benchmarks.kafka_records import PARTITIONS, produce
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost, Meter
from benchmarks.processes import load_average, measured
from demo.broker import KafkaCluster as LocalKafka

__all__ = ["measure_connect"]

ROOT = Path(__file__).parents[1]
#: The Python of a worker that has pyspark-client alone; `make bench` creates one.
CLIENT = os.environ.get("TESTS_CONNECT_PYTHON", sys.executable)
PORT = 15019
SERVER = f"sc://127.0.0.1:{PORT}"

#: By the kind of records: their number, and the script that it has a mark with.
DATASETS: dict[str, tuple[int, dict[str, float | None]]] = {
    "orders": (2_000_000, {"on the server": 1.0, "naive": None, "script": None}),
    "random": (500_000, {"on the server": None, "script": 0.8}),
}
TINY = 1_000
MOST_SECONDS = 3.0
MOST_MIB = 300


def measure_connect(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Drain 1,000 records and seal them repeatedly; then run the arms for each kind of records.

    Raises:
        RuntimeError: If an arm's files don't hold what Kafka holds, or a drain isn't proven.
    """
    figures: dict[str, Any] = {"partitions": PARTITIONS, "rounds": rounds}
    marks: list[Mark] = []
    folder.mkdir(parents=True)
    with LocalKafka(folder / "broker") as broker, running_server(folder / "log") as server:
        servers = broker.bootstrap_servers
        measured(produce, servers, "tiny", TINY)
        arms = ConnectArms(servers, "tiny", folder / "out", server_pid=server.pid)
        # A server is warm after a few drains.
        for _ in range(4):
            arms.commands()
        tiny = {"commands": arms.commands, "operators": arms.operators}
        costs = take_turns(tiny, rounds, say, "connect tiny")
        figures["tiny"] = {"records": TINY, "arms": figures_of(costs, TINY)}
        marks += _marks_of_tiny(costs)
        for kind, (records, scripts) in DATASETS.items():
            owed = dict(scripts)
            if JARS and kind == "orders":
                owed["kafka connect"] = None
            say(f"connect: sending {records:,} records: {kind}")
            measured(produce, servers, kind, records, kind)
            arms = ConnectArms(servers, kind, folder / "out", server_pid=server.pid)
            costs = take_turns(arms.named(("ours", *owed)), rounds, say, f"connect {kind}")
            figures[kind] = {"records": records, "arms": figures_of(costs, records)}
            for base, least in owed.items():
                what = f"warm drain {kind}, whole process, vs. {_NAMES[base]}"
                marks.append(compared(what, costs, "ours", base, least, figure="process_seconds"))
    return figures, marks


_STARTS = {"operators": "operator's start", "commands": "start of two commands"}
_NAMES = {
    "on the server": "script on the same server",
    "naive": "script on the same server that keeps Spark's defaults, and no headers",
    "script": "handwritten script without Spark",
    "kafka connect": "Kafka Connect with Iceberg's sink, without keys and headers",
}


def _marks_of_tiny(costs: dict[str, list[Cost]]) -> Iterator[Mark]:
    for arm, most in (("operators", MOST_SECONDS), ("commands", None)):
        seconds = [cost.process_seconds for cost in costs[arm]]
        median = statistics.median(seconds)
        yield Mark(
            f"warm drain of {TINY:,} records, {_STARTS[arm]} to sealed receipt",
            f"{median:.1f} s ({min(seconds):.1f} to {max(seconds):.1f})",
            "" if most is None else f"at most {most:.0f} s",
            None if most is None else median <= most,
            load_average(),
        )
    peak = max(cost.peak_mib for cost in costs["commands"])
    yield Mark(
        "peak memory of a worker on Spark Connect, all its processes",
        f"{peak:,.0f} MiB",
        f"at most {MOST_MIB} MiB",
        peak <= MOST_MIB,
        load_average(),
    )


@contextmanager
def running_server(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `kafka-drain spark-server` while the body runs; it prints to the file `log`.

    Raises:
        RuntimeError: If it ends before it is ready.
    """
    command = [*KAFKA_DRAIN, "spark-server", "--port", str(PORT), "--master", "local[2]"]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=output) as server,
    ):
        try:
            while "listens on" not in log.read_text():
                if server.poll() is not None:
                    raise RuntimeError(f"the server ended: {log.read_text()[-3000:]}")
                time.sleep(0.2)
            yield server
        finally:
            server.terminate()


@dataclass
class ConnectArms(Arms):
    """The arms for one topic; the processor time of those on the server includes the server's.

    Attributes:
        server_pid: The server's process.
    """

    server_pid: int = 0

    def named(self, names: tuple[str, ...]) -> dict[str, Callable[[], Cost]]:
        """Return the named arms."""
        arms = {
            "ours": self.ours,
            "on the server": lambda: self.on_server("same"),
            "naive": lambda: self.on_server("naive"),
            "script": self.script,
            "kafka connect": self.kafka_connect,
        }
        return {name: arms[name] for name in names}

    def kafka_connect(self) -> Cost:
        """Run a new worker of Kafka Connect."""
        records = self.expected[0]
        cost = drain_by_kafka_connect(self.servers, self.topic, self.folder, records)
        shutil.rmtree(self.folder)
        return cost

    def ours(self, *options: str) -> Cost:
        """Run `kafka-drain drain` on the server into a new archive."""
        cost, _ = self._drain(*options)
        checked(self.folder, self.expected)
        return cost

    def operators(self) -> Cost:
        """Run Airflow's operators, which need the whole of pyspark here; without their imports."""
        command = [sys.executable, "-m", "benchmarks.hourly", self.servers, str(self.folder)]
        environment = {"AIRFLOW_HOME": str(self.folder.with_name("airflow"))}
        printed, cost = self._on_server([*command, SERVER, self.topic], environment)
        checked(self.folder, self.expected)
        split = json.loads(printed.splitlines()[-1])
        return replace(cost, seconds=split["query"], process_seconds=split["total"])

    def commands(self) -> Cost:
        """Run `kafka-drain drain` and then `kafka-drain validate`, which seals it."""
        cost, _ = self._drain()
        printed, then = run_command(
            [*_client(), "validate", str(self.folder), "--json", "--scope", "open", *self._kafka()],
            _environment(),
        )
        report = json.loads(printed)
        if report["verdict"] != "complete" or report["receipts"]["written"] != 1:
            raise RuntimeError(f"the drain isn't proven: {report}")
        checked(self.folder, self.expected)
        return Cost(
            cost.seconds,
            cost.process_seconds + then.process_seconds,
            cost.cpu_seconds + then.cpu_seconds,
            max(cost.peak_mib, then.peak_mib),
        )

    def on_server(self, kind: str) -> Cost:
        """Run a handwritten script on the server."""
        script = ROOT / "benchmarks" / "connect_script.py"
        command = [CLIENT, str(script), SERVER, self.servers, self.topic, str(self.folder), kind]
        printed, cost = self._on_server(command)
        if kind == "same":
            checked(self.folder, self.expected)
        else:
            rows = ds.dataset(str(self.folder / "data"), format="parquet").count_rows()
            if rows != self.expected[0]:
                raise RuntimeError(f"{self.folder} holds {rows} records, not {self.expected[0]}")
            shutil.rmtree(self.folder)
        return replace(cost, seconds=json.loads(printed.splitlines()[-1])["seconds"])

    def _drain(self, *options: str) -> tuple[Cost, dict[str, Any]]:
        command = [*_client(), "drain", str(self.folder), "--json", *self._kafka()]
        command += ["--topic", self.topic, "--master", SERVER, *options]
        printed, cost = self._on_server(command)
        answer = json.loads(printed)
        return replace(cost, seconds=answer["seconds"]), answer

    def _kafka(self) -> list[str]:
        return ["--bootstrap-servers", self.servers]

    def _on_server(
        self, command: list[str], more: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[str, Cost]:
        with Meter(self.server_pid) as meter:
            printed, cost = run_command(command, {**_environment(), **more})
        return printed, replace(cost, cpu_seconds=cost.cpu_seconds + meter.cost.cpu_seconds)


def _client() -> list[str]:
    return [CLIENT, "-m", "kafka_drain.cli"]


def _environment() -> dict[str, str]:
    """Return the environment of the client, in which our packages aren't installed."""
    path = (str(ROOT / name) for name in ("plugins", "spark_jobs", "."))
    return {"PYTHONPATH": os.pathsep.join(path)}
