"""The speed of republishing to Kafka, compared with alternatives.

bare          a confluent-kafka loop over pyarrow batches, no transactions, one process
worker        the worker engine, exactly once
sink          Spark's own Kafka sink on the same files: default options, and tuned
spark         the Spark engine, exactly once; like the sink, with a new session for each run, as in
              every republish
producer-performance
              Kafka's own ProducerPerformance: only values, random ones out of 100,000

Arms run in turns on the same broker and the same two cores; an arm whose records aren't all in the
target gets no figure. Costs cover only opening and sending, not the start of Python or Spark or the
verification. For ProducerPerformance, only the seconds exclude the start.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import spark_arms
from benchmarks.arms import compared, figures_of, take_turns
from benchmarks.batch import drain, validate
from benchmarks.kafka_records import PARTITIONS, produce
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost
from benchmarks.processes import measured
from benchmarks.producer_performance import producer_performance, write_values
from benchmarks.worker_arms import bare, worker
from demo.broker import KafkaCluster as LocalKafka

__all__ = ["measure_republish", "to_new_topics", "topic_of_an_arm"]

RECORDS = 2_000_000
#: Arm, the arm it is compared with, and the minimum ratio of their records per second.
MARKS = [
    ("worker", "bare", 0.8),
    ("spark", "sink-default", 1.0),
    ("spark", "sink-tuned", 0.85),
]
SPARK_ARMS = ["sink-default", "spark", "sink-tuned"]


def measure_republish(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Send the same archive with each arm in turns.

    Raises:
        RuntimeError: If an arm's target doesn't hold what the archive holds.
    """
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        archive = folder / "archive"
        say(f"republish: sending and draining {RECORDS:,} records")
        measured(produce, servers, "orders", RECORDS)
        drain(archive, servers)
        if not validate(str(archive), servers)["complete"]:
            raise RuntimeError("the archive isn't complete")
        arms = _arms(str(archive), servers, folder)
        costs = take_turns(arms, rounds, say, "republish")
    figures = {"records": RECORDS, "partitions": PARTITIONS, "rounds": rounds}
    marks = [
        compared(f"republish, {arm} vs. {base}", costs, arm, base, owed)
        for arm, base, owed in MARKS
    ]
    return figures | {"arms": figures_of(costs, RECORDS)}, marks


def _arms(archive: str, servers: str, folder: Path) -> dict[str, Callable[[], Cost]]:
    values = folder / "values"
    measured(write_values, archive, values)
    by_function: dict[str, Callable[[str], Cost]] = {
        "bare": lambda target: measured(bare, archive, servers, target).answer,
        "worker": lambda target: measured(worker, archive, servers, target).answer,
        "producer-performance": partial(producer_performance, values, servers, RECORDS),
    }
    for name in SPARK_ARMS:
        by_function[name] = partial(_on_spark, archive, servers, name)
    return to_new_topics(by_function, servers)


def to_new_topics(
    arms: Mapping[str, Callable[[str], Cost]], servers: str
) -> dict[str, Callable[[], Cost]]:
    """Return the arms, each of which sends to a topic of its own."""

    def to_new_topic(send: Callable[[str], Cost]) -> Cost:
        with topic_of_an_arm(servers) as target:
            return send(target)

    return {name: partial(to_new_topic, send) for name, send in arms.items()}


def _on_spark(archive: str, servers: str, arm: str, target: str) -> Cost:
    cost: Cost = measured(spark_arms.run, archive, servers, arm, target).answer
    return cost


@contextmanager
def topic_of_an_arm(servers: str) -> Iterator[str]:
    """Create a topic for one arm, and remove it to free the page cache for the next arm."""
    name = f"target-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    new = NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[name].result(20)
    yield name
    admin.delete_topics([name])[name].result(20)
