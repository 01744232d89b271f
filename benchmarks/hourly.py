"""An hourly drain with little data through Airflow's operators, with a breakdown of its time."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.arms import run_command
from benchmarks.kafka_records import produce, produce_more
from benchmarks.marks import Mark, Say
from benchmarks.processes import load_average, measured
from demo.broker import KafkaCluster as LocalKafka

__all__ = ["measure_hourly", "run_operators"]

RECORDS = 1_000
MOST = 6.0
TOPIC = "orders"


def measure_hourly(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Send 1,000 records and drain them repeatedly, each time in new processes.

    Raises:
        RuntimeError: If a round isn't completely drained and sealed.
    """
    splits: list[dict[str, float]] = []
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        measured(produce, servers, TOPIC, RECORDS)
        command = [sys.executable, "-m", "benchmarks.hourly", servers, str(folder / "archive")]
        environment = {"AIRFLOW_HOME": str(folder / "airflow")}
        for number in count():
            printed, _ = run_command(command, environment)
            split = json.loads(printed.splitlines()[-1])
            if number:
                splits.append(split)
            told = ", ".join(f"{name} {value:.1f}" for name, value in split.items())
            say(f"hourly: round {number} of {rounds}: {told}")
            if number == rounds:
                break
            measured(produce_more, servers, TOPIC, RECORDS)
    figures = {
        name: {
            "median": round(statistics.median(split[name] for split in splits), 2),
            "min": round(min(split[name] for split in splits), 2),
            "max": round(max(split[name] for split in splits), 2),
        }
        for name in splits[0]
    }
    total = figures["total"]
    parts = ", ".join(f"{n} {v['median']:.1f}" for n, v in figures.items() if n != "total")
    mark = Mark(
        f"hourly drain of {RECORDS:,} records, operator's start to sealed receipt",
        f"{total['median']:.1f} s ({total['min']:.1f} to {total['max']:.1f}): {parts}",
        f"at most {MOST:.0f} s",
        total["median"] <= MOST,
        load_average(),
    )
    return {"records": RECORDS, "rounds": rounds, "seconds": figures}, [mark]


def run_operators(
    servers: str, archive: str, master: str = "local[2]", topic: str = TOPIC
) -> dict[str, float]:
    """Run `drain` and `validate` as their tasks do; return the duration of each step in seconds."""
    os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"] = json.dumps(
        {"conn_type": "kafka", "extra": {"bootstrap.servers": servers}}
    )
    os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps({"conn_type": "spark", "host": master})
    from kafka_drain_airflow import KafkaDrainOperator, Pipeline, ValidateManifestOperator

    pipeline = Pipeline(name="orders", topics=[topic], archive=archive)
    drain = KafkaDrainOperator(task_id="drain", pipeline=pipeline)
    validate = ValidateManifestOperator(task_id="validate", pipeline=pipeline)
    submitted: list[float] = []
    run_application = drain.run_application

    def noted(*arguments: Any) -> None:
        submitted.append(time.perf_counter())
        run_application(*arguments)
        submitted.append(time.perf_counter())

    drain.run_application = noted  # type: ignore[method-assign,assignment]
    context: Any = {"run_id": f"benchmark-{os.getpid()}"}
    began = time.perf_counter()
    drained = drain.execute(context)
    between = time.perf_counter()
    summary = validate.execute(context)
    ended = time.perf_counter()
    if drained["records"] != RECORDS or summary["verdict"] != "complete":
        raise RuntimeError(f"drained {drained}, validated {summary}")
    in_spark = submitted[1] - submitted[0]
    return {
        "total": ended - began,
        "checks": submitted[0] - began,
        "session": drained["session_seconds"],
        "query": drained["seconds"],
        "rest of Spark": in_spark - drained["session_seconds"] - drained["seconds"],
        "validation": ended - between,
    }


if __name__ == "__main__":
    print(json.dumps(run_operators(*sys.argv[1:])), flush=True)
