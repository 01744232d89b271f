"""One partition with nine tenths of all records: split for both cores, and read by one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.arms import compared, figures_of, take_turns
from benchmarks.drain import Arms, checked
from benchmarks.kafka_records import produce_hot
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost
from benchmarks.processes import measured
from benchmarks.session import run_session
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.config.pipeline import Pipeline

__all__ = ["measure_hot"]

RECORDS = 5_000_000
#: An option that overrides kafka-drain's own splitting; with this value, nothing is split.
WHOLE = {"maxRecordsPerPartition": RECORDS}
#: Pairs of queries that warm up a session: Java keeps compiling for about ten queries.
WARMING = 5


def measure_hot(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Run in turns: cold, a drain and a stock job; warm, drains with and without splitting.

    Raises:
        RuntimeError: If an arm's files don't hold what Kafka holds.
    """
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        say(f"hot: sending {RECORDS:,} records, nine tenths of them to one partition")
        measured(produce_hot, servers, "hot", RECORDS)
        arms = Arms(servers, "hot", folder / "out")
        cold = take_turns(arms.named(("ours", "stock")), rounds, say, "hot, cold")
        warm = _warm(folder, servers, rounds, arms.expected, say)
    what = "hot partition"
    marks = [
        compared(f"{what}, split vs. one task, warm", warm, "cut", "whole", 1.6),
        compared(f"{what}, split vs. stock job (one task), cold", cold, "ours", "stock", 1.6),
    ]
    return {"records": RECORDS, "rounds": rounds, "arms": figures_of(cold | warm, RECORDS)}, marks


def _warm(
    folder: Path, servers: str, rounds: int, expected: tuple[int, str], say: Say
) -> dict[str, list[Cost]]:
    """Run both in turns in one session; all costs but the seconds are the whole session's."""
    kinds: dict[str, dict[str, Any]] = {"cut": {}, "whole": WHOLE}
    costs: dict[str, list[Cost]] = {kind: [] for kind in kinds}
    pipelines = [
        Pipeline(
            name=f"{kind}-{number}",
            topics=["hot"],
            archive=str(folder / f"{kind}-{number}"),
            source_options=options,
        )
        for number in range(WARMING + rounds)
        for kind, options in kinds.items()
    ]
    for name, cost in run_session(pipelines, servers).items():
        checked(folder / name, expected)
        kind, _, number = name.partition("-")
        if int(number) >= WARMING:
            costs[kind].append(cost)
        say(f"hot, warm: {name} {cost.seconds:.2f} s")
    return costs
