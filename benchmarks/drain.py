"""The cost of a drain compared with a stock Spark job, Kafka to nowhere, and a script."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.arms import KAFKA_DRAIN, compared, figures_of, run_command, take_turns
from benchmarks.kafka_records import PARTITIONS, produce
from benchmarks.marks import Mark, Say
from benchmarks.outcome import hash_of_files, hash_of_topic
from benchmarks.process_tree import Cost
from benchmarks.processes import measured
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.spark.jars import fetch as jars

__all__ = ["Arms", "checked", "measure_drain", "spark_submit"]

HERE = Path(__file__).parent
#: By the kind of records: their number, and the arms to run with them.
DATASETS: dict[str, tuple[int, tuple[str, ...]]] = {
    "orders": (2_000_000, ("ours", "stock", "nowhere", "script")),
    "small": (2_000_000, ("ours", "stock")),
    "random": (500_000, ("ours", "stock", "nowhere", "script")),
}
#: Minimum speed of the query, and of the whole process, relative to the stock job.
QUERY = {"orders": 1.15, "small": 1.2, "random": 1.0}
PROCESS = {"orders": 1.3, "small": 1.0, "random": 1.0}


def measure_drain(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Run the arms for each kind of records in turns.

    Raises:
        RuntimeError: If an arm's files don't hold what Kafka holds.
    """
    figures: dict[str, Any] = {"partitions": PARTITIONS, "rounds": rounds}
    marks = []
    for kind, (records, names) in DATASETS.items():
        with LocalKafka(folder / kind / "broker") as broker:
            servers = broker.bootstrap_servers
            say(f"drain: sending {records:,} records: {kind}")
            mean = measured(produce, servers, kind, records, kind).answer
            arms = Arms(servers, kind, folder / kind / "out")
            costs = take_turns(arms.named(names), rounds, say, f"drain {kind}")
        figures[kind] = {
            "records": records,
            "mean_value_bytes": round(mean, 1),
            "arms": figures_of(costs, records),
        }
        marks += [
            compared(
                f"drain {kind}, query only, vs. stock job", costs, "ours", "stock", QUERY[kind]
            ),
            compared(
                f"drain {kind}, whole process, vs. stock job",
                *(costs, "ours", "stock", PROCESS[kind]),
                figure="process_seconds",
            ),
        ]
        if "script" in names:
            marks.append(
                compared(
                    f"drain {kind}, whole process, vs. handwritten script",
                    *(costs, "ours", "script", None),
                    figure="process_seconds",
                )
            )
    return figures, marks


@dataclass
class Arms:
    """The arms for one topic.

    Attributes:
        servers: Bootstrap servers of the broker.
        topic: The topic to drain.
        folder: The target folder; removed after each run.
        written: Number of bytes of the data files that the newest run of `ours` has written.
    """

    servers: str
    topic: str
    folder: Path
    written: int = 0

    def __post_init__(self) -> None:
        """Hash the topic's content once."""
        self.expected = measured(hash_of_topic, self.servers, self.topic).answer

    def named(self, names: tuple[str, ...]) -> dict[str, Callable[[], Cost]]:
        """Return the named arms."""
        arms = {
            "ours": self.ours,
            "stock": lambda: self.stock("files"),
            "nowhere": lambda: self.stock("nowhere"),
            "script": self.script,
        }
        return {name: arms[name] for name in names}

    def ours(self, *options: str) -> Cost:
        """Run `kafka-drain drain` into a new archive."""
        command = [*KAFKA_DRAIN, "drain", str(self.folder), "--json"]
        command += ["--bootstrap-servers", self.servers, "--topic", self.topic]
        printed, cost = run_command([*command, "--master", "local[2]", *options])
        seconds = json.loads(printed)["seconds"]
        self.written = sum(path.stat().st_size for path in self.folder.rglob("part-*.parquet"))
        checked(self.folder, self.expected)
        return replace(cost, seconds=seconds)

    def stock(self, kind: str) -> Cost:
        """Run a stock Spark job."""
        command = spark_submit(HERE / "stock_drain.py", self.servers, self.topic, self.folder, kind)
        printed, cost = run_command(*command)
        seconds = json.loads(printed.splitlines()[-1])["seconds"]
        if kind == "nowhere":
            shutil.rmtree(self.folder)
        else:
            checked(self.folder, self.expected)
        return replace(cost, seconds=seconds)

    def script(self) -> Cost:
        """Run a script without Spark."""
        command = [sys.executable, "-m", "benchmarks.script_drain"]
        _, cost = run_command([*command, self.servers, self.topic, str(self.folder)])
        checked(self.folder, self.expected)
        return cost


def checked(folder: Path, expected: tuple[int, str]) -> None:
    """Compare an arm's files with Kafka's content, and remove them.

    Raises:
        RuntimeError: If they differ.
    """
    found = measured(hash_of_files, str(folder)).answer
    if found != expected:
        raise RuntimeError(f"{folder} holds {found}, Kafka {expected}")
    shutil.rmtree(folder)


def spark_submit(application: Path, *arguments: object) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a stock spark-submit on two cores."""
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
    command += ["--jars", ",".join(str(jar) for jar in jars.verified(jars.CONNECTOR))]
    command += [str(application), *(str(argument) for argument in arguments)]
    return command, {"PYSPARK_PYTHON": sys.executable}
