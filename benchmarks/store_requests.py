"""What each operation asks of an object store, and what that costs at Amazon's list prices.

Counted by the log of moto's server, which notes each request; Spark's own are among them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.arms import KAFKA_DRAIN, run_command
from benchmarks.kafka_records import PARTITIONS, produce, produce_more
from benchmarks.marks import Mark, Say
from benchmarks.processes import load_average, measured
from demo.broker import KafkaCluster as LocalKafka
from tests.s3_server import CREDENTIALS, s3_server

__all__ = ["cost_of", "kind_of", "measure_requests"]

RECORDS = 8_000
TOPIC, BUCKET = "orders", "archives"
#: Drains into one generation: the last two tell what each one adds to the next.
DRAINS = 13
#: Drains of an hourly pipeline until its generation is closed, after seven days.
A_GENERATION = 168
#: S3 Standard in us-east-1, in dollars for a request (2026-11): writes and lists, reads.
PRICES = {"writes": 5e-6, "reads": 4e-7, "deletes": 0.0}
#: Drains a day of all pipelines together.
A_DAY = (1, 100, 10_000)

#: A line of the log about a request.
_REQUEST = re.compile(r'"(?P<method>[A-Z]+) (?P<target>\S+) HTTP')


def kind_of(method: str, target: str) -> str:
    """Return how Amazon S3 charges for a request.

    Args:
        method: HTTP's method.
        target: Path and query.
    """
    if method == "DELETE" or (method == "POST" and re.search(r"\?delete\b", target)):
        return "deletes"
    is_list = method == "GET" and re.fullmatch(r"/[^/?]+/?\?.*\b(list-type|prefix)=.*", target)
    return "writes" if method in ("PUT", "POST") or is_list else "reads"


def cost_of(requests: Mapping[str, int]) -> float:
    """Return the price of requests, by kind, in dollars."""
    return sum(PRICES[kind] * number for kind, number in requests.items())


class _Counted:
    """Operations, each with the requests that it made."""

    def __init__(self, log: Path, environment: Mapping[str, str], say: Say) -> None:
        self._log, self._environment, self._say = log, environment, say
        self.by_operation: dict[str, Counter[str]] = {}

    def run(self, name: str, *arguments: str) -> None:
        """Run a command of kafka-drain, and count."""
        read = self._log.stat().st_size
        run_command([*KAFKA_DRAIN, *arguments], self._environment)
        with self._log.open("rb") as log:
            log.seek(read)
            text = log.read().decode()
        found = Counter(kind_of(m["method"], m["target"]) for m in _REQUEST.finditer(text))
        self.by_operation[name] = found
        self._say(f"requests: {name}: {_text(found)}")


def measure_requests(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Count the requests of each operation on an archive of a few drains.

    Raises:
        RuntimeError: If an operation fails.
    """
    folder.mkdir(parents=True)
    log = folder / "log"
    with LocalKafka(folder / "broker") as broker, s3_server(log) as url:
        environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}
        subprocess.run(
            [sys.executable, "-c", f"import s3fs; s3fs.S3FileSystem().mkdir({BUCKET!r})"],
            env={**os.environ, **environment},
            check=True,
        )
        servers = broker.bootstrap_servers
        kafka = ("--bootstrap-servers", servers)
        archive = f"s3://{BUCKET}/{TOPIC}"
        drain = ("drain", archive, *kafka, "--topic", TOPIC)
        counted = _Counted(log, environment, say)
        measured(produce, servers, TOPIC, RECORDS)
        for number in range(1, DRAINS + 1):
            counted.run(f"drain {number}", *drain)
            counted.run(f"validation {number}", "validate", archive, *kafka)
            measured(produce_more, servers, TOPIC, RECORDS)
        counted.run("validation, nothing new", "validate", archive, *kafka)
        copied = ("--target-topic", "copy", "--create-target")
        counted.run("plan of a republish", "republish", archive, *kafka, *copied)
        counted.run("files", "files", archive)
        counted.run("find one key", "find", archive, "--key", "customer-00001", "--limit", "1")
        # Closes the generation, and compacts it.
        due = ("--max-manifest-lines", "1", "--apply")
        counted.run("maintenance", "maintain", archive, *kafka, *due)
    operations = {name: dict(found) for name, found in counted.by_operation.items()}
    both = [
        Counter(operations[f"drain {n}"]) + Counter(operations[f"validation {n}"])
        for n in range(1, DRAINS + 1)
    ]
    middle = cost_of(both[-1]) + (cost_of(both[-1]) - cost_of(both[-3])) / 2 * (
        A_GENERATION / 2 - DRAINS
    )
    shown = {"drain 5", "drain 13", "validation 5", "validation 13"}
    points = [
        {"what": name, "size": f"{PARTITIONS} partitions", "measured": _text(found)}
        for name, found in operations.items()
        if name in shown or not name[-1].isdigit()
    ]
    points += [
        {
            "what": "drains with their validations, in the middle of a generation",
            "size": f"{number:,} a day",
            "measured": f"${middle * number:,.4f} a day",
        }
        for number in A_DAY
    ]
    figures = {"records": RECORDS, "operations": operations, "points": points}
    return figures, [Mark("requests", "see the table", "", None, load_average())]


def _text(found: Mapping[str, int]) -> str:
    counts = ", ".join(f"{found.get(kind, 0)} {kind}" for kind in PRICES)
    return f"{counts}: ${cost_of(found):.5f}"
