"""`python -m benchmarks.republish`: how fast records go back to Kafka, beside what else there is.

bare          a confluent-kafka loop over pyarrow batches, no transactions, one process
strict, fast  the worker engine, exactly once
sink          Spark's own Kafka sink over the same files: default options, and tuned
spark-strict, spark-fast
              the Spark engine, exactly once, in the same session as the sink's arms

Arms are taken in turns on the same broker and the same two cores; an arm whose records aren't all
in the target has no figure. Seconds are those of opening and sending: neither the start of Python
or Spark nor the reading back. About fifteen minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import spark_arms
from benchmarks.batch import drain, validate
from benchmarks.kafka_records import PARTITIONS, produce
from benchmarks.marks import Mark, markdown
from benchmarks.processes import load_average, measured
from benchmarks.validation import machine, say
from benchmarks.worker_arms import bare, worker
from demo.broker import KafkaCluster as LocalKafka

RESULTS = Path(__file__).with_name("results-republish.json")

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
WORKER_ARMS = ["bare", "strict", "fast"]
SPARK_ARMS = ["sink-default", "spark-strict", "sink-tuned", "spark-fast"]


def main() -> int:
    """Measure, write the results and print the table; 1 when a mark isn't met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="of each arm (%(default)s)")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--only", action="append", choices=[*WORKER_ARMS, *SPARK_ARMS])
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    arms = options.only or [*WORKER_ARMS, *SPARK_ARMS]
    with (
        tempfile.TemporaryDirectory(prefix="kafka-drain-bench-") as folder,
        LocalKafka(Path(folder) / "broker") as broker,
    ):
        seconds = _measure(Path(folder), broker.bootstrap_servers, options, arms)
    rates = {arm: [options.records / s for s in taken] for arm, taken in seconds.items()}
    marks = [
        _mark(arm, base, owed, rates) for arm, base, owed in MARKS if {arm, base} <= set(rates)
    ]
    results = {
        "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "records": options.records,
        "partitions": PARTITIONS,
        "rounds": options.rounds,
        "records_per_second": {
            arm: {
                "median": round(statistics.median(of_arm)),
                "min": round(min(of_arm)),
                "max": round(max(of_arm)),
            }
            for arm, of_arm in rates.items()
        },
        "seconds": {arm: [round(s, 2) for s in taken] for arm, taken in seconds.items()},
        "marks": [asdict(mark) for mark in marks],
    }
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(markdown(marks))
    return 1 if any(mark.met is False for mark in marks) else 0


def _measure(
    folder: Path, servers: str, options: argparse.Namespace, arms: list[str]
) -> dict[str, list[float]]:
    archive = folder / "archive"
    say(f"republish: sends and drains {options.records:,} records")
    measured(produce, servers, "orders", options.records)
    drain(archive, servers)
    if not validate(str(archive), servers)["complete"]:
        raise RuntimeError("the archive isn't complete")
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    with _spark_arms(str(archive), servers, arms) as run_spark:
        # The first round warms up: the JVM's compiler, the page cache, the broker.
        for number in range(options.rounds + 1):
            for arm in arms:
                with _topic(servers) as target:
                    if arm in SPARK_ARMS:
                        took = run_spark(arm, target)
                    elif arm == "bare":
                        took = measured(bare, str(archive), servers, target).answer
                    else:
                        took = measured(worker, str(archive), servers, target, arm).answer
                if number:
                    seconds[arm].append(took)
                say(f"republish: round {number} of {options.rounds}: {arm} {took:.2f} s")
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


@contextmanager
def _spark_arms(
    archive: str, servers: str, arms: list[str]
) -> Iterator[Callable[[str, str], float]]:
    if not set(arms) & set(SPARK_ARMS):
        yield lambda arm, target: 0.0
        return
    with spark_arms.session() as spark:
        yield lambda arm, target: spark_arms.run(spark, archive, servers, target, arm)


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


if __name__ == "__main__":
    sys.exit(main())
