"""One partition with nine tenths of all records: cut for both cores, and read by one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.arms import compared, figures_of, take_rounds
from benchmarks.drain import Arms, checked
from benchmarks.kafka_records import produce_hot
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost
from benchmarks.processes import measured
from benchmarks.session import run_session
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.pipeline import Pipeline

__all__ = ["measure_hot"]

RECORDS = 5_000_000
#: An option that says how to cut takes the place of our own cut; this one cuts nothing.
WHOLE = {"maxRecordsPerPartition": RECORDS}
#: The queries of a session: the first is cold, and warms the others. The last is the warmest: what
#: that gives, it gives to the one that isn't ours.
QUERIES: dict[str, dict[str, Any]] = {"cut-cold": {}, "cut": {}, "whole": WHOLE}


def measure_hot(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Take a stock job and a session of drains with and without the cut in turns.

    Raises:
        RuntimeError: When an arm's files don't hold what Kafka holds.
    """
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        say(f"hot: sends {RECORDS:,} records, nine tenths of them to one partition")
        measured(produce_hot, servers, "hot", RECORDS)
        stock = Arms(servers, "hot", folder / "out")
        pipelines = [
            Pipeline(name=name, topics=["hot"], archive=str(folder / name), source_options=options)
            for name, options in QUERIES.items()
        ]

        def one_round() -> dict[str, Cost]:
            taken = {"stock": stock.stock("files")} | run_session(pipelines, servers)
            for name in QUERIES:
                checked(folder / name, stock.expected)
            return taken

        costs = take_rounds(one_round, rounds, say, "hot")
    what = "a hot partition"
    marks = [
        compared(f"{what}, cut, of one task, warm", costs, "cut", "whole", 1.6),
        compared(f"{what}, cut, of a stock job (one task), cold", costs, "cut-cold", "stock", 1.6),
    ]
    return {"records": RECORDS, "rounds": rounds, "arms": figures_of(costs, RECORDS)}, marks
