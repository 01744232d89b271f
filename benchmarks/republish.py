"""How fast records go back to Kafka, beside what else there is.

bare          a confluent-kafka loop over pyarrow batches, no transactions, one process
strict, fast  the worker engine, exactly once
sink          Spark's own Kafka sink over the same files: default options, and tuned
spark-strict, spark-fast
              the Spark engine, exactly once, in the same session as the sink's arms

Arms are taken in turns on the same broker and the same two cores; an arm whose records aren't all
in the target has no figure. Seconds are those of opening and sending: neither the start of Python
or Spark nor the reading back.
"""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import spark_arms
from benchmarks.batch import drain, validate
from benchmarks.kafka_records import PARTITIONS, produce
from benchmarks.marks import Mark, Say
from benchmarks.processes import load_average, measured
from benchmarks.worker_arms import bare, worker
from demo.broker import KafkaCluster as LocalKafka

__all__ = ["measure_republish"]

RECORDS = 2_000_000
#: Arm, the arm that it is compared with, and the share of that one's records a second that it owes.
MARKS = [
    ("strict", "bare", 0.8),
    ("fast", "bare", 0.95),
    ("spark-strict", "sink-default", 1.0),
    ("spark-strict", "sink-tuned", 0.85),
    ("spark-fast", "sink-default", 1.0),
    ("spark-fast", "sink-tuned", 0.85),
]
ARMS = ["bare", "strict", "fast", "sink-default", "spark-strict", "sink-tuned", "spark-fast"]
SPARK_ARMS = ARMS[3:]


def measure_republish(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Send the same archive by every arm in turns.

    Raises:
        RuntimeError: When an arm's target doesn't hold what the archive holds.
    """
    with LocalKafka(folder / "broker") as broker:
        seconds = _measure(folder, broker.bootstrap_servers, rounds, say)
    rates = {arm: [RECORDS / s for s in taken] for arm, taken in seconds.items()}
    figures = {
        "records": RECORDS,
        "partitions": PARTITIONS,
        "rounds": rounds,
        "records_per_second": {
            arm: {
                "median": round(statistics.median(of_arm)),
                "min": round(min(of_arm)),
                "max": round(max(of_arm)),
            }
            for arm, of_arm in rates.items()
        },
        "seconds": {arm: [round(s, 2) for s in taken] for arm, taken in seconds.items()},
    }
    return figures, [_mark(arm, base, owed, rates) for arm, base, owed in MARKS]


def _measure(folder: Path, servers: str, rounds: int, say: Say) -> dict[str, list[float]]:
    archive = folder / "archive"
    say(f"republish: sends and drains {RECORDS:,} records")
    measured(produce, servers, "orders", RECORDS)
    drain(archive, servers)
    if not validate(str(archive), servers)["complete"]:
        raise RuntimeError("the archive isn't complete")
    seconds: dict[str, list[float]] = {arm: [] for arm in ARMS}
    with spark_arms.session() as spark:
        # The first round warms up: the JVM's compiler, the page cache, the broker.
        for number in range(rounds + 1):
            for arm in ARMS:
                with _topic(servers) as target:
                    if arm in SPARK_ARMS:
                        took = spark_arms.run(spark, str(archive), servers, target, arm)
                    elif arm == "bare":
                        took = measured(bare, str(archive), servers, target).answer
                    else:
                        took = measured(worker, str(archive), servers, target, arm).answer
                if number:
                    seconds[arm].append(took)
                say(f"republish: round {number} of {rounds}: {arm} {took:.2f} s")
    return seconds


@contextmanager
def _topic(servers: str) -> Iterator[str]:
    """Make a topic for one arm, and remove it so that the disk's cache serves the next one."""
    name = f"target-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    new = NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[name].result(20)
    yield name
    admin.delete_topics([name])[name].result(20)


def _mark(arm: str, base: str, owed: float, rates: dict[str, list[float]]) -> Mark:
    """Compare two arms round by round: the median of the ratios within a round."""
    ratios = sorted(a / b for a, b in zip(rates[arm], rates[base], strict=True))
    ratio = statistics.median(ratios)
    return Mark(
        f"republish, {arm} of {base}",
        f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
        f"{statistics.median(rates[arm]):,.0f} of {statistics.median(rates[base]):,.0f} records/s",
        f"at least {owed:.2f}",
        ratio >= owed,
        load_average(),
    )
