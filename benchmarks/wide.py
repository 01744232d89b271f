"""10,000 partitions in one drain, really: drain, validate and republish by the commands.

Each command is a process of its own, with Spark on two cores and a heap of 2 GB. The topic is
restored to a second broker: one broker holds at most as many partitions as a process may have open
files and memory maps (two of each partition).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.arms import KAFKA_DRAIN
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import PeakMemory
from benchmarks.processes import load_average
from demo.broker import KafkaCluster

__all__ = ["create", "fill", "measure_wide"]

PARTITIONS = 10_000
#: Records of each partition.
RECORDS = 3
TOPIC = "wide"
#: KRaft's controller writes at most 10,000 records for one request.
AT_ONCE = 5_000
#: Indexes are mapped to memory with this size, and each partition has two.
BROKER = {"log.index.size.max.bytes": "4096"}
#: Folder of the brokers' data; the archive is on disk.
MEMORY = "/dev/shm"
#: What the figures call a program.
PROGRAMS = {"java": "Spark's JVM", "python": "Python", "broker": "broker"}


def measure_wide(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Drain, validate and republish with the defaults, once.

    Raises:
        RuntimeError: If a command fails, or its answer isn't complete.
    """
    run = _Run(folder, say)
    archive = run.drained()
    with run.broker("target") as servers:
        run.ask("create the target topic", lambda: create(servers, TOPIC, PARTITIONS))
        to = ("republish", archive, "--bootstrap-servers", servers, "--target-topic", TOPIC)
        run.command("plan of a republish", *to)
        answer = run.command("republish and verify", *to, "--apply")
        if not answer["exactly_once"] or answer["records"] != PARTITIONS * RECORDS:
            raise RuntimeError(f"the republish ended with {answer}")
    return {"partitions": PARTITIONS, "points": run.points, "figures": run.figures}, []


@dataclass
class _Run:
    """One run of all commands.

    Attributes:
        folder: Folder of brokers and archives.
        say: Called with progress lines.
        points: A row for each command.
        figures: The same as numbers.
    """

    folder: Path
    say: Say
    points: list[dict[str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    _broker: int = 0

    @contextmanager
    def broker(self, name: str) -> Iterator[str]:
        """Start a broker with a heap of 2 GB; return its address."""
        # In memory: for each of its logs, a broker syncs folders, for minutes in all.
        with (
            tempfile.TemporaryDirectory(prefix=f"{name}-", dir=MEMORY) as data,
            KafkaCluster(Path(data), heap="2g", properties=BROKER) as broker,
        ):
            self._broker = broker.pid(1) or 0
            yield broker.bootstrap_servers

    def drained(self) -> str:
        """Fill a topic, drain and validate it; return the archive's folder."""
        archive = str(self.folder / "archive")
        keys = {
            "name": "wide",
            "topics": [TOPIC],
            "archive": archive,
            "driver_memory": "2g",
        }
        pipeline = self.folder / "pipeline.json"
        self.folder.mkdir(parents=True, exist_ok=True)
        pipeline.write_text(json.dumps(keys))
        with self.broker("source") as servers:
            self.ask("create the topic", lambda: create(servers, TOPIC, PARTITIONS))
            self.ask(f"send {RECORDS} records to each", lambda: fill(servers, TOPIC, PARTITIONS))
            at = (archive, "--bootstrap-servers", servers)
            drain = ("drain", *at, "--pipeline", str(pipeline), "--master", "local[2]")
            answer = self.command("drain", *drain)
            files = sum(1 for _ in Path(archive).rglob("part-*.parquet"))
            self.point("drain: the query alone", f"{answer['seconds']:,.0f} s, {files:,} files")
            answer = self.command("validate", "validate", *at)
            if answer["verdict"] != "complete" or answer["records"] != PARTITIONS * RECORDS:
                raise RuntimeError(f"the validation ended with {answer}")
            receipts = Path(archive).glob("generations/*/receipts/*.json")
            size = sum(path.stat().st_size for path in receipts)
            self.point("receipt", f"{size / 1e6:,.1f} MB")
            self.command("drain, nothing new", *drain)
        return archive

    def ask(self, what: str, work: Callable[[], None]) -> None:
        """Do something whose seconds are only printed."""
        began = time.perf_counter()
        work()
        self.say(f"wide: {what}: {time.perf_counter() - began:.1f} s")

    def command(self, what: str, *arguments: str) -> dict[str, Any]:
        """Run a command of `kafka-drain`; note its seconds and its processes' peak memory.

        Raises:
            RuntimeError: If the command fails.
        """
        began, before = time.perf_counter(), _children_seconds()
        process = subprocess.Popen(
            [*KAFKA_DRAIN, *arguments, "--json"],
            env={name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "errors").open("w"),
            text=True,
        )
        own, broker = PeakMemory(process.pid), PeakMemory(self._broker)
        out, _ = process.communicate()
        seconds = time.perf_counter() - began
        cpu_seconds = _children_seconds() - before
        own.stop()
        peaks = {**own.by_program, "broker": broker.stop()}
        if process.returncode:
            said = (self.folder / "errors").read_text()[-3000:]
            raise RuntimeError(f"{what} ended with {process.returncode}: {said}")
        found = {PROGRAMS[name]: round(mib) for name, mib in peaks.items() if name in PROGRAMS}
        self.figures[what] = {
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu_seconds, 1),
            "peak_mib": found,
            "load": load_average(),
        }
        shown = ", ".join(f"{name} {mib:,} MiB" for name, mib in found.items())
        self.point(what, f"{seconds:,.0f} s, processor time {cpu_seconds:,.0f} s; {shown}")
        answer: dict[str, Any] = json.loads(out)
        return answer

    def point(self, what: str, measured: str) -> None:
        """Note and print a row."""
        self.points.append(
            {"what": what, "size": f"{PARTITIONS:,} partitions", "measured": measured}
        )
        self.say(f"wide: {what}: {measured}")


def _children_seconds() -> float:
    used = os.times()
    return used.children_user + used.children_system


def create(servers: str, topic: str, partitions: int) -> None:
    """Create a topic, in steps that the controller accepts, and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": servers})
    first = NewTopic(topic, min(partitions, AT_ONCE), 1)
    admin.create_topics([first], request_timeout=300)[topic].result(300)
    for count in range(2 * AT_ONCE, partitions + 1, AT_ONCE):
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(300)
    led: list[Any] = []
    while len(led) < partitions:
        time.sleep(0.5)
        found = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
        led = [partition for partition in found if partition.leader >= 0]


def fill(servers: str, topic: str, partitions: int, records: int = RECORDS) -> None:
    """Send a few records to each partition.

    Raises:
        RuntimeError: If that takes more than five minutes.
    """
    failed: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 100, "log_level": 2})
    for number in range(records):
        for partition in range(partitions):
            producer.produce(
                topic,
                b'{"amount": %d}' % number,
                key=b"%d" % partition,
                partition=partition,
                on_delivery=delivered,
            )
            producer.poll(0)
    if producer.flush(300) or failed:
        raise RuntimeError(f"{topic} wasn't filled: {len(failed)} records failed: {failed[:3]}")
