"""The peak memory of each job with 2 and with 20 million records."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.arms import KAFKA_DRAIN, run_command
from benchmarks.kafka_records import produce
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost
from benchmarks.processes import load_average, measured
from demo.broker import KafkaCluster as LocalKafka

__all__ = ["measure_memory"]

FEW, MANY = 2_000_000, 20_000_000
#: Maximum ratio of memory for ten times the records: a heap of 1 GiB is eventually used in full.
MOST = 1.3


def measure_memory(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Run each job once with each number of records, regardless of rounds.

    Raises:
        RuntimeError: If a job fails; republishes verify themselves.
    """
    costs = {}
    for records in (FEW, MANY):
        with LocalKafka(folder / str(records) / "broker") as broker:
            say(f"memory: sending {records:,} records")
            measured(produce, broker.bootstrap_servers, "orders", records)
            costs[records] = _jobs(folder / str(records), broker.bootstrap_servers, say)
        shutil.rmtree(folder / str(records))
    figures = {
        job: {
            str(records): {
                "peak_mib": round(costs[records][job].peak_mib),
                "process_seconds": round(costs[records][job].seconds, 1),
            }
            for records in (FEW, MANY)
        }
        for job in costs[FEW]
    }
    marks = [_mark(job, costs[FEW][job], costs[MANY][job]) for job in costs[FEW]]
    return {"records": [FEW, MANY], "jobs": figures}, marks


def _jobs(folder: Path, servers: str, say: Say) -> dict[str, Cost]:
    archive = str(folder / "archive")
    spark = ("--master", "local[2]")
    send = ("republish", archive, "--create-target", "--apply")
    commands = {
        "drain": ("drain", archive, "--topic", "orders", *spark),
        "validate": ("validate", archive),
        "validate --deep": ("validate", archive, "--deep"),
        "republish, worker": (*send, "--target-topic", "worker", "--engine", "worker"),
        "republish, Spark": (*send, "--target-topic", "spark", "--engine", "spark", *spark),
    }
    costs = {}
    for job, arguments in commands.items():
        command = [*KAFKA_DRAIN, *arguments]
        _, costs[job] = run_command([*command, "--bootstrap-servers", servers])
        say(f"memory: {job}: {costs[job].peak_mib:,.0f} MiB, {costs[job].seconds:.0f} s")
    return costs


def _mark(job: str, few: Cost, many: Cost) -> Mark:
    ratio = many.peak_mib / few.peak_mib
    return Mark(
        f"peak memory of {job}, {MANY:,} vs. {FEW:,} records",
        f"{ratio:.2f}: {many.peak_mib:,.0f} vs. {few.peak_mib:,.0f} MiB",
        f"at most {MOST:.2f}",
        ratio <= MOST,
        load_average(),
    )
