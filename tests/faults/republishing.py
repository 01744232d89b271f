"""Helpers for republish faults: runs of the real command, their end, and an auditor."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from demo.broker.processes import command_line
from kafka_drain.archive.archive import Archive
from kafka_drain.output import say
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import RepublishRun, run_key
from kafka_drain.republish.planning.shards import ProgressSlot
from kafka_drain.republish.sending.progress_store import ProgressStore, ShardProgress
from tests.faults.injection import NOON, PATIENCE, QUICK_START, wait_for
from tests.faults.spark_cluster import executors, python_workers

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / "tests" / "faults" / "hooks"

#: Key, value, headers, timestamp in milliseconds.
Record: TypeAlias = "tuple[bytes | None, bytes | None, tuple[Any, ...], int]"
Say: TypeAlias = "Callable[[str], None]"


# Topics


def make_target(bootstrap: str, name: str, partitions: int, **config: str) -> str:
    """Create a topic that keeps old timestamps."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {"retention.ms": "-1"} | {k.replace("_", "."): v for k, v in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
    # The controller knows it before the broker does.
    wait_for(lambda: name in admin.list_topics(timeout=20).topics, f"topic {name}")
    return name


def alter_topic(bootstrap: str, name: str, setting: str, value: str) -> None:
    """Change a topic's setting."""
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)


def record(partition: int, number: int) -> Record:
    """Return a unique record: a quarter have headers, some are tombstones."""
    key = b"%d-%d" % (partition, number)
    headers = (("source", key), ("nothing", None)) if number % 4 == 0 else ()
    value = None if number % 50 == 49 else b"%d/%d " % (partition, number) + b"x" * 80
    return key if number % 3 else b"k" + key, value, headers, NOON + number


def send_all(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    """Fill a topic with the given number of records from `record`."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "queue.buffering.max.messages": 1_000_000}
    )
    for number in range(records):
        partition = number % partitions
        key, value, headers, timestamp = record(partition, number // partitions)
        producer.produce(
            topic, value, key, partition=partition, timestamp=timestamp, headers=list(headers)
        )
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def read_topic(
    bootstrap: str, topic: str, isolation: str = "read_committed"
) -> dict[int, list[Record]]:
    """Read a topic as its consumers do: by partition, in order, up to what is visible now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        found: dict[int, list[Record]] = {partition: [] for partition in partitions}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        waiting = set(partitions)
        moved = time.monotonic()
        while waiting:
            messages: list[Any] = consumer.consume(10_000, 0.2)
            assert messages or time.monotonic() - moved < PATIENCE, f"{topic} can't be read"
            moved = time.monotonic() if messages else moved
            for message in messages:
                if message.error() is None:
                    waiting.add(message.partition())
                    found[message.partition()].append(
                        (
                            message.key(),
                            message.value(),
                            tuple(message.headers() or ()),
                            message.timestamp()[1],
                        )
                    )
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    waiting.discard(message.partition())
        return found
    finally:
        consumer.close()


# The auditor


@dataclass(frozen=True)
class Audit:
    """A target's differences from its source; all zero if each record is there once, in order."""

    records: int = 0
    lost: int = 0
    twice: int = 0
    out_of_order: int = 0

    def __add__(self, other: Audit) -> Audit:
        return Audit(
            self.records + other.records,
            self.lost + other.lost,
            self.twice + other.twice,
            self.out_of_order + other.out_of_order,
        )

    @property
    def is_exact(self) -> bool:
        return self.lost == self.twice == self.out_of_order == 0

    def __str__(self) -> str:
        return f"lost {self.lost:,}, twice {self.twice:,}, out of order {self.out_of_order:,}"


def audit(source: dict[int, list[Record]], target: dict[int, list[Record]]) -> Audit:
    """Compare two topics, partition by partition, independently of the product.

    A record in the target but not in the source counts as a duplicate. A record is out of order if
    it comes after one that follows it in the source; of duplicates, only the first one counts.
    """
    total = Audit()
    for partition in source.keys() | target.keys():
        wanted, found = source.get(partition, []), target.get(partition, [])
        if wanted == found:
            total += Audit(len(wanted))
            continue
        lost, twice = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        places = {record: place for place, record in enumerate(wanted)}
        farthest, early, seen = -1, 0, set()
        for record in found:
            if record in places and record not in seen:
                seen.add(record)
                early += places[record] < farthest
                farthest = max(farthest, places[record])
        total += Audit(len(wanted), lost.total(), twice.total(), early)
    return total


# Runs of the real command


@dataclass
class Attempt:
    """A `kafka-drain republish` in its own process group."""

    process: subprocess.Popen[bytes]
    log: Path

    def ended(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> bool:
        """Kill it as a crash would; return whether it was still running."""
        was_running = not self.ended()
        self.signal(signal.SIGKILL)
        return self.process.wait() == -signal.SIGKILL and was_running

    def code(self, patience: float = 10 * PATIENCE) -> int:
        """Wait for it to exit."""
        return self.process.wait(patience)

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


@dataclass
class Run:
    """One run of a republish, with repeated attempts.

    Attributes:
        archive: The archive's folder.
        bootstrap: The brokers.
        target: The target topic.
        folder: Folder for logs.
        arguments: Further arguments of the command.
        transaction_records: Number of records per transaction.
        attempts: The attempts that were started.
    """

    archive: Path
    bootstrap: str
    target: str
    folder: Path
    arguments: Sequence[object] = ()
    transaction_records: int = 1_000
    attempts: list[Attempt] = field(default_factory=list)
    _ledger: ProgressStore | None = None
    _plan: RepublishPlan | None = None

    @property
    def name(self) -> str:
        return f"soak {self.target}"

    @property
    def found(self) -> Path:
        """The file in which senders record that they found committed progress."""
        return self.folder / f"{self.target}.found"

    def restarts(self, *, by_process: bool = False) -> int:
        """Return the number of attempts (or processes) that resumed a partly committed chain."""
        lines = self.found.read_text().split("\n")[:-1] if self.found.exists() else []
        return len({line.split()[by_process] for line in lines})

    def start(self, *arguments: object) -> Attempt:
        """Start an attempt."""
        log = self.folder / f"{self.target}-{len(self.attempts):03}.log"
        command = ["republish", self.archive, "--bootstrap-servers", self.bootstrap]
        command += ["--target-topic", self.target, "--run-name", self.name, "--apply"]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(HOOKS), str(ROOT / "plugins"))),
            "FAULTS_TRANSACTION_RECORDS": str(self.transaction_records),
            "FAULTS_FOUND": str(self.found),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kafka_drain.cli"),
                    *map(str, [*command, *self.arguments, *arguments]),
                ],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.attempts.append(Attempt(process, log))
        return self.attempts[-1]

    def plan(self) -> RepublishPlan | None:
        if self._plan is None:
            root = Archive.at(str(self.archive)).root
            self._plan = RepublishRun(root, run_key(self.name)).plan()
        return self._plan

    def progress(self) -> int:
        """Return the number of committed records according to Kafka."""
        return sum(at.records for at in self._read(lambda plan: [s.progress for s in plan.shards]))

    def counted(self) -> int:
        """Return the number of attempts that have registered themselves."""
        return max((at.offset for at in self._read(lambda plan: [plan.attempts])), default=0)

    def _read(self, slots: Callable[[RepublishPlan], list[ProgressSlot]]) -> list[ShardProgress]:
        plan = self.plan()
        if plan is None:
            return []
        if self._ledger is None:
            self._ledger = ProgressStore({"bootstrap.servers": self.bootstrap}, waits=False)
        return [at for at in self._ledger.read(slots(plan)).values() if at is not None]

    def close(self) -> None:
        """Stop everything that is still running."""
        for attempt in self.attempts:
            attempt.kill()
        if self._ledger is not None:
            self._ledger.close()

    def finish(self, attempt: Attempt) -> None:
        """Let an attempt finish by itself; fail if it doesn't succeed."""
        assert attempt.code() == 0, f"{attempt.log}:\n{attempt.tail()}"


class Torment:
    """Kills and pauses the attempts of a run at random moments, until it is done.

    Attributes:
        kills: Number of attempts still to be killed.
        zombies: Number still to be paused and woken alongside or after a successor.
    """

    def __init__(
        self, run: Run, records: int, kills: int, zombies: int, chance: random.Random
    ) -> None:
        self.kills = kills
        self.zombies = zombies
        self._run = run
        self._records = records
        self._chance = chance
        self._sleeping: list[Attempt] = []
        self._running: Attempt | None = None

    def inflict(self) -> None:
        """Kill and pause as often as planned, as long as there is something left to send."""
        while self._left and not self._is_done():
            if self._chance.random() < self.kills / self._left:
                self._kill()
            else:
                self._pause()
        self._run.finish(self._current())
        say("an attempt ended by itself")
        for zombie in self._sleeping:
            self._wake(zombie)
        assert self._run.progress() == self._records

    @property
    def _left(self) -> int:
        return self.kills + self.zombies

    def _is_done(self) -> bool:
        return self._running is not None and self._running.ended() and self._running.code() == 0

    def _current(self) -> Attempt:
        if self._running is None:
            self._running = self._run.start("--processes", self._chance.choice((1, 2)))
        return self._running

    def _at_random_moment(self, attempt: Attempt) -> str | None:
        """Wait for a moment: after a random time, or a random number of further records.

        Returns:
            The run's progress; None if the attempt had already succeeded.
        """
        before = self._run.progress()
        share = (self._records - before) / (self._left + 1)
        if self._chance.random() < 0.3:
            goal, seconds = before + 1.5 * share, self._chance.uniform(0.0, 4.0)
        else:
            goal, seconds = before + max(1.0, self._chance.uniform(0.0, 1.5) * share), PATIENCE
        deadline = time.monotonic() + seconds
        wait_for(
            lambda: attempt.ended() or self._run.progress() >= goal or time.monotonic() >= deadline,
            "a moment to act",
            patience=2 * PATIENCE,
            pause=0.01,
        )
        # Anywhere between two commits, too.
        time.sleep(self._chance.uniform(0.0, 0.1))
        if attempt.ended():
            self._run.finish(attempt)
            return None
        return f"after {self._run.progress():,} of {self._records:,} records"

    def _kill(self) -> None:
        attempt = self._current()
        at = self._at_random_moment(attempt)
        if at is None or not attempt.kill():
            return
        self._running = None
        self.kills -= 1
        say(f"killed an attempt {at}")

    def _pause(self) -> None:
        """Pause an attempt, let a successor run, and wake it alongside the successor or later."""
        zombie = self._current()
        at = self._at_random_moment(zombie)
        if at is None:
            return
        zombie.signal(signal.SIGSTOP)
        self._running = None
        self.zombies -= 1
        say(f"paused an attempt {at}")
        counted, successor = self._run.counted(), self._current()
        if self._chance.random() < 0.4:
            self._sleeping.append(zombie)
            return
        wait_for(lambda: self._run.counted() > counted, "the successor", patience=2 * PATIENCE)
        if self._at_random_moment(successor) is None:
            self._wake(zombie)
            return
        zombie.signal(signal.SIGCONT)
        # One of them is the later attempt: usually the successor, unless the zombie was paused
        # before it registered itself.
        wait_for(lambda: zombie.ended() or successor.ended(), "one attempt's end", patience=120)
        first, other = (zombie, successor) if zombie.ended() else (successor, zombie)
        # The later one may end first: then all is sent.
        self._running, older = (first, other) if first.code() == 0 else (other, first)
        self._ended(older)

    def _wake(self, zombie: Attempt) -> None:
        zombie.signal(signal.SIGCONT)
        self._ended(zombie)

    def _ended(self, older: Attempt) -> None:
        """Check that the older of two concurrent attempts ends, well only if all was sent."""
        if older.code(2 * PATIENCE) == 0:
            assert self._run.progress() == self._records, f"{older.log}:\n{older.tail()}"
            say("woke an attempt: it found all sent")
        else:
            assert "took over from this one" in older.tail(), f"{older.log}:\n{older.tail()}"
            say("woke an attempt: a later one had taken over from it")


def pace(records: int, events: int) -> tuple[int, int]:
    """Return records per second and per transaction, so that each event interrupts some records."""
    return int(records / max(4.0, 0.5 * events)), max(50, records // (4 * max(1, events)))


def torment(
    make_run: Callable[[int], Run],
    records: int,
    *,
    kills: int,
    zombies: int,
    chance: random.Random,
    arguments: Sequence[object] = (),
) -> list[Run]:
    """Send an archive with the worker engine, with kills and pauses.

    Args:
        make_run: Creates a run with a target of its own; called again if all was sent before
            everything was inflicted.
        records: Number of records that are sent of the archive.
        kills: Number of attempts to kill.
        zombies: Number of attempts to pause, and to wake alongside or after a successor.
        chance: Chooses the moments.
        arguments: Further arguments of the command.

    Returns:
        The runs, whose targets must all be audited.
    """
    runs: list[Run] = []
    while not runs or kills or zombies:
        run = make_run(len(runs))
        runs.append(run)
        speed, run.transaction_records = pace(records, kills + zombies)
        run.arguments = ("--engine", "worker", "--records-per-second", speed, *arguments)
        tormented = Torment(run, records, kills, zombies, chance)
        try:
            tormented.inflict()
        finally:
            run.close()
        kills, zombies = tormented.kills, tormented.zombies
    return runs


#: The Python of a packed environment, at its path on executors.
PACKED_PYTHON = "./python/bin/python"


def torment_executors(
    run: Run,
    records: int,
    *,
    master: str,
    workers: list[int],
    kills: int,
    chance: random.Random,
    packed: Path | None = None,
) -> None:
    """Send an archive with Spark, whose executors and their Python processes are killed.

    With a packed environment, executors have no Python other than the one that is sent to them.
    """
    speed, run.transaction_records = pace(records, kills)
    path = os.pathsep.join((str(HOOKS), str(ROOT / "plugins")))
    conf: dict[str, object] = {
        **QUICK_START,
        "spark.cores.max": 2,
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": 10 + kills,
        "spark.executorEnv.PYTHONPATH": path,
        "spark.executorEnv.FAULTS_TRANSACTION_RECORDS": run.transaction_records,
        "spark.executorEnv.FAULTS_FOUND": run.found,
    }
    if packed:
        conf |= {"spark.archives": f"{packed}#python", "spark.pyspark.python": PACKED_PYTHON}
    run.arguments = ("--engine", "spark", "--master", master, "--records-per-second", speed)
    for name, value in conf.items():
        run.arguments += ("--conf", f"{name}={value}")
    try:
        attempt = run.start()
        for number in range(kills):
            share = (records - run.progress()) / (kills - number + 1)
            goal = run.progress() + max(1.0, chance.uniform(0.2, 1.0) * share)
            killed = _kill_sender(
                attempt,
                run,
                workers,
                goal,
                is_executor=number % 2 == 0,
                python=PACKED_PYTHON if packed else sys.executable,
            )
            say(f"spark: killed {killed} after {run.progress():,} of {records:,} records")
        run.finish(attempt)
        assert run.progress() == records
    finally:
        run.close()


def _kill_sender(
    attempt: Attempt,
    run: Run,
    workers: list[int],
    goal: float,
    *,
    is_executor: bool,
    python: str,
) -> str:
    """Kill an executor, or one of its Python processes, once some number of records is sent."""
    found: list[int] = []

    def sending() -> bool:
        assert not attempt.ended(), f"{attempt.log}:\n{attempt.tail()}"
        if run.progress() < goal:
            return False
        busy = {task: e for e in executors(workers) for task in python_workers(e)}
        found[:] = list(dict.fromkeys(busy.values())) if is_executor else list(busy)
        return bool(found)

    wait_for(sending, "a task that sends", patience=3 * PATIENCE)
    lines = [command_line(task) for e in executors(workers) for task in python_workers(e)]
    assert {re.split(r"[\0 ]", line)[0] for line in lines if line} <= {python}
    os.kill(found[0], signal.SIGKILL)
    return "an executor" if is_executor else "a task's Python process"


def total(audits: Iterable[Audit]) -> Audit:
    """Return the sum of audits."""
    return sum(audits, start=Audit())
