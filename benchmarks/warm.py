"""The second drain of a group, in a session that the first one has warmed."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

from benchmarks.arms import Cost, compared, figures_of
from benchmarks.drain import Arms, checked
from benchmarks.kafka_records import produce
from benchmarks.marks import Mark, Say
from benchmarks.processes import load_average, measured
from benchmarks.session import run_session
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.pipeline import Pipeline

__all__ = ["measure_warm"]

RECORDS = 2_000_000
FIRST, SECOND = TOPICS = ("orders", "payments")
OF_NOWHERE = 0.6


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
        stock = Arms(servers, SECOND, folder / "out")
        pipelines = [Pipeline(name=t, topics=[t], archive=str(folder / t)) for t in TOPICS]
        for number in range(rounds + 1):
            taken = {"stock": stock.stock("files")}
            taken |= run_session(pipelines, servers, nowhere=SECOND)
            checked(folder / SECOND, stock.expected)
            shutil.rmtree(folder / FIRST)
            for arm, cost in taken.items():
                if number:
                    costs.setdefault(arm, []).append(cost)
            told = ", ".join(f"{arm} {cost.seconds:.2f} s" for arm, cost in taken.items())
            say(f"warm: round {number} of {rounds}: {told}")
    marks = [
        compared("second drain of a group, of a stock job's query", costs, SECOND, "stock", 1.9),
        _of_nowhere(costs),
    ]
    return {"records": RECORDS, "rounds": rounds, "arms": figures_of(costs, RECORDS)}, marks


def _of_nowhere(costs: dict[str, list[Cost]]) -> Mark:
    pairs = zip(costs["nowhere 2"], costs[SECOND], strict=True)
    ratios = sorted(nowhere.seconds / second.seconds for nowhere, second in pairs)
    ratio = statistics.median(ratios)
    return Mark(
        "second drain of a group, of Kafka to nowhere in the same session",
        f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        f"at least {OF_NOWHERE:.2f}",
        ratio >= OF_NOWHERE,
        load_average(),
    )
