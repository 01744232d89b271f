"""The second drain of a group, in a session that the first one has warmed."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.arms import Cost, compared, figures_of, run_command
from benchmarks.drain import Arms, checked
from benchmarks.kafka_records import produce
from benchmarks.marks import Mark, Say
from benchmarks.processes import load_average, measured
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.drain_group import GroupJob, finish_group, open_group, raise_failures
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.kafka_config import KafkaConfig
from kafka_drain.pipeline import Pipeline
from kafka_drain.terminal import run_environment

__all__ = ["measure_warm"]

RECORDS = 2_000_000
TOPICS = ("orders", "payments")


def measure_warm(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Take a stock job and a session with four queries in turns.

    Raises:
        RuntimeError: When an arm's files don't hold what Kafka holds.
    """
    costs: dict[str, list[Cost]] = {}
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        for topic in TOPICS:
            say(f"warm: sends {RECORDS:,} records to {topic}")
            measured(produce, servers, topic, RECORDS)
        stock = Arms(servers, TOPICS[1], folder / "out")
        for number in range(rounds + 1):
            taken = {"stock": stock.stock("files"), **_session(servers, folder, stock)}
            for arm, cost in taken.items():
                if number:
                    costs.setdefault(arm, []).append(cost)
            told = ", ".join(f"{arm} {cost.seconds:.2f} s" for arm, cost in taken.items())
            say(f"warm: round {number} of {rounds}: {told}")
    marks = [
        compared("second drain of a group, of a stock job's query", costs, "second", "stock", 1.9),
        _of_nowhere(costs),
    ]
    return {"records": RECORDS, "rounds": rounds, "arms": figures_of(costs, RECORDS)}, marks


def _session(servers: str, folder: Path, stock: Arms) -> dict[str, Cost]:
    """Run the session; return a cost for each of its queries."""
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))
    pipelines = [
        Pipeline(name=topic, topics=[topic], archive=str(folder / topic)) for topic in TOPICS
    ]
    clusters = {"kafka_default": cluster}
    with (
        tempfile.TemporaryDirectory() as private,
        open_group(pipelines, clusters, Path(private), run="benchmark", say=print) as group,
    ):
        seconds, cost = _submit(group, servers, private)
        finish_group(group)
        raise_failures(group)
    shutil.rmtree(folder / TOPICS[0])
    checked(folder / TOPICS[1], stock.expected)
    return {name: replace(cost, seconds=taken) for name, taken in seconds.items()}


def _submit(group: GroupJob, servers: str, private: str) -> tuple[dict[str, float], Cost]:
    assert group.application is not None
    application = replace(
        group.application,
        path=Path(__file__).with_name("warm_session.py"),
        arguments=[*group.application.arguments, servers, TOPICS[1], f"{private}/nowhere"],
    )
    environment = run_environment(application, "local[2]")
    printed, cost = run_command(application.command("local[2]"), environment)
    seconds: dict[str, float] = json.loads(printed.splitlines()[-1])
    return seconds, cost


def _of_nowhere(costs: dict[str, list[Cost]]) -> Mark:
    pairs = zip(costs["nowhere"], costs["second"], strict=True)
    ratios = sorted(nowhere.seconds / second.seconds for nowhere, second in pairs)
    ratio = statistics.median(ratios)
    return Mark(
        "second drain of a group, of Kafka to nowhere in the same session",
        f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        "at least 0.60",
        ratio >= 0.6,
        load_average(),
    )
