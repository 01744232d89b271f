"""One partition with nine tenths of all records: drained by both cores, and by one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.arms import compared, figures_of, take_turns
from benchmarks.drain import Arms
from benchmarks.kafka_records import produce_hot
from benchmarks.marks import Mark, Say
from benchmarks.processes import measured
from demo.broker import KafkaCluster as LocalKafka

__all__ = ["measure_hot"]

RECORDS = 5_000_000
#: An option that says how to cut takes the place of our own cut; this one cuts nothing.
WHOLE = ("--source-option", f"maxRecordsPerPartition={RECORDS}")


def measure_hot(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Drain with and without the cut, in turns.

    Raises:
        RuntimeError: When an arm's files don't hold what Kafka holds.
    """
    with LocalKafka(folder / "broker") as broker:
        say(f"hot: sends {RECORDS:,} records, nine tenths of them to one partition")
        measured(produce_hot, broker.bootstrap_servers, "hot", RECORDS)
        arms = Arms(broker.bootstrap_servers, "hot", folder / "out")
        both = {"cut": arms.ours, "one task": lambda: arms.ours(*WHOLE)}
        costs = take_turns(both, rounds, say, "hot")
    marks = [compared("a hot partition, cut, of one task", costs, "cut", "one task", 1.6)]
    return {"records": RECORDS, "rounds": rounds, "arms": figures_of(costs, RECORDS)}, marks
