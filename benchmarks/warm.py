"""The second drain of a group, in a session that the first drain has warmed up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.arms import compared, figures_of, take_rounds
from benchmarks.drain import Arms, checked
from benchmarks.kafka_records import produce
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost
from benchmarks.processes import measured
from benchmarks.session import run_session
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.config.pipeline import Pipeline

__all__ = ["measure_warm"]

RECORDS = 2_000_000
FIRST, SECOND = TOPICS = ("orders", "payments")


def measure_warm(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Run a stock job and a session with four queries in turns.

    Raises:
        RuntimeError: If an arm's files don't hold what Kafka holds.
    """
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        for topic in TOPICS:
            say(f"warm: sending {RECORDS:,} records to {topic}")
            measured(produce, servers, topic, RECORDS)
        stock = Arms(servers, SECOND, folder / "out")
        pipelines = [Pipeline(name=t, topics=[t], archive=str(folder / t)) for t in TOPICS]

        def one_round() -> dict[str, Cost]:
            taken = {"stock": stock.stock("files")}
            taken |= run_session(pipelines, servers, nowhere=SECOND)
            checked(folder / SECOND, stock.expected)
            shutil.rmtree(folder / FIRST)
            return taken

        costs = take_rounds(one_round, rounds, say, "warm")
    what = "second drain of a group"
    marks = [
        compared(f"{what}, vs. stock job's query", costs, SECOND, "stock", 1.9),
        compared(
            f"{what}, vs. Kafka to nowhere in the same session", costs, SECOND, "nowhere 2", 0.6
        ),
    ]
    return {"records": RECORDS, "rounds": rounds, "arms": figures_of(costs, RECORDS)}, marks
