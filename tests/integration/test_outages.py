"""Kafka or the Spark Connect server dies or hangs under each command that waits for it.

All commands work at the same time: one outage meets them all. The seconds until each says so, and
until it ends, are the figures of docs/engines.md.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from demo.broker import KafkaCluster as LocalKafka
from demo.broker.ports import free_ports
from demo.broker.processes import command_line
from tests.brokers import SHORT_LIVED
from tests.faults.injection import NOON
from tests.spark_connect import ROOT, Client, Server, environment

pytestmark = [pytest.mark.integration, pytest.mark.soak]

#: Records in each half of the topic's two partitions, and the bytes of each.
RECORDS, SIZE = 10_000, 500
#: What Kafka sends to each client in a second: what reads is in the middle of it for minutes.
BYTES_PER_SECOND, FAST = 10_000, 1 << 30
#: The id of librdkafka's clients; each of Spark's has its own.
PYTHONS = "rdkafka"
#: Within which what is waited for must be said.
SOON = 20.0
#: For what ends after its time: the end of Spark, and a busy machine.
PATIENCE = 15.0
#: For how long what waits may take to end, as docs/engines.md says it.
QUESTION, READING, SENDING, SENDING_ON_SPARK, SERVER = 20, 180, 390, 420, 55
READING_BACK, DRILL = 140, 240

LOCAL, CONNECT, WORKER = "local Spark", "Spark Connect", "processes"


class Here(Client):
    """A command in this run's own Python, which has Java."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "out", folder / "err"
        self.began = time.monotonic()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kafka_drain.cli", *map(str, arguments)],
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )


@dataclass
class Waiting:
    """A command that an outage meets.

    Attributes:
        verb: What it does.
        engine: With what.
        ends: The seconds after which it ends, as documented.
        started: The command.
        halted: Whether it is suspended until something has died, because it would end before.
        missed: Why the outage doesn't meet it in its work; empty if it does.
        said: How much it had said before.
        first: When it has said what it waits for, in seconds after the outage, and the sentence.
        end: When it has ended, in seconds after the outage.
    """

    verb: str
    engine: str
    ends: float
    started: Here
    halted: bool = False
    missed: str = field(default="", init=False)
    said: int = field(default=0, init=False)
    first: tuple[float, str] | None = field(default=None, init=False)
    end: float | None = field(default=None, init=False)

    def look(self, seconds: float, words: re.Pattern[str]) -> None:
        """Note what it has said since the outage, and whether it has ended."""
        ended = self.started.process.poll() is not None
        lines = self.started.said()[self.said :].splitlines()
        if self.first is None and (found := next(filter(words.search, lines), None)):
            self.first = (seconds, found)
        if ended and self.end is None:
            self.end = seconds

    def row(self) -> str:
        """Return a row of the table."""
        first, sentence = self.first or (float("inf"), "")
        code = self.started.process.poll()
        last = (self.started.said().splitlines() or [""])[-1]
        end = "never" if self.end is None else f"{self.end:.0f} s"
        return (
            f"| {self.verb} | {self.engine} | {first:.1f} s | {end} (of {self.ends:g}) | {code} | "
            f"{sentence} | {last} |"
        )


class World:
    """A broker, a topic, and an archive that holds half of its records.

    Attributes:
        kafka: The broker.
        archive: The archive of the second half: sealed, described, and once republished.
    """

    def __init__(self, folder: Path, kafka: LocalKafka) -> None:
        self.folder, self.kafka, self.archive = folder, kafka, folder / "archive"
        self.servers = ("--bootstrap-servers", kafka.bootstrap_servers)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
        drain = ("drain", self.archive, "--topic", "orders", *self.servers)
        latest = ("--source-option", "startingOffsets=latest")
        self.fill()
        self.run(*drain, *latest)
        self.fill()
        self.run(*drain, *latest)
        self.run("validate", self.archive, *self.servers, "--describe-cluster", "topics,groups")
        republish = ("republish", self.archive, "--target-topic", "restored", "--create-target")
        self.run(*republish, "--run-name", "done", "--apply", *self.servers)
        group = Consumer(
            {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "readers", "log_level": 0}
        )
        group.commit(offsets=[TopicPartition("orders", 0, RECORDS + 10)], asynchronous=False)
        group.close()
        # What the drain that an erasure waits for drains.
        self.fill(1000)

    def fill(self, records: int = RECORDS) -> None:
        """Send records to both partitions."""
        settings = {"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0}
        producer = Producer({**settings, "batch.size": 16_384})
        for number in range(records):
            for partition in (0, 1):
                producer.produce(
                    "orders", b"x" * SIZE, b"%d" % number, partition, timestamp=NOON + number
                )
                producer.poll(0)
        assert producer.flush(60) == 0

    def limit(self, client: str | None, rate: int = BYTES_PER_SECOND) -> None:
        """Let the broker send so much to a client, by its id; None for all that aren't named."""
        pid = self.kafka.pid(1)
        assert pid is not None
        words = command_line(pid).split("\0")
        java, jars = words[0], words[words.index("-cp") + 1]
        command = [java, "-cp", jars, "kafka.admin.ConfigCommand", *self.servers]
        command[command.index("--bootstrap-servers")] = "--bootstrap-server"
        entity = ["--entity-name", client] if client else ["--entity-default"]
        command += ["--alter", "--entity-type", "clients", *entity]
        command += ["--add-config", f"consumer_byte_rate={rate}"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def run(self, *words: object) -> None:
        """Run a command to its end."""
        Here(self.folder / f"prepared-{time.monotonic_ns()}", *words).end()

    def copy(self, name: str) -> Path:
        """Return a copy of the archive."""
        folder = self.folder / re.sub(r"\W+", "-", name)
        return Path(shutil.copytree(self.archive, folder / "archive"))

    def start(
        self,
        verb: str,
        engine: str,
        ends: float,
        sign: str | Callable[[], bool],
        *words: object,
        halts: bool = False,
    ) -> Waiting:
        """Start a command, and wait until it shows a sign of its work."""
        name = re.sub(r"\W+", "-", f"{verb} {engine}")
        started = Here(self.folder / name / "run", *words)
        found = Waiting(verb, engine, ends, started, halts)
        try:
            if isinstance(sign, str):
                started.wait_until(lambda: re.search(sign, started.said()) is not None, sign)
            else:
                started.wait_until(sign, verb)
        except AssertionError as error:
            # It doesn't keep the others from being measured.
            found.missed = str(error)
            return found
        if halts:
            started.suspend()
        return found

    def on_spark(self, engine: str, *master: object) -> Iterator[Waiting]:
        """Start what runs on Spark, at a master."""
        ends = READING
        archive = self.folder / re.sub(r"\W+", "-", f"new {engine}") / "archive"
        yield self.start(
            *("drain", engine, ends, batches(archive)),
            *("drain", archive, "--topic", "orders", *self.servers, *master),
            *("--source-option", "maxOffsetsPerTrigger=20"),
        )
        interval = ("--start", "2013-01-01T00:00Z", "--end", "2013-01-02T00:00Z")
        yield self.start(
            *("backfill", engine, ends, "offsets planned"),
            *("backfill", self.copy(f"backfill-{engine}"), *interval, *self.servers, *master),
        )
        damaged = self.copy(f"repair-{engine}")
        for path in damaged.glob("generations/*/data/**/part-*.parquet"):
            path.unlink()
        yield self.start(
            *("repair", engine, ends, "offsets planned"),
            *("repair", damaged, "--apply", *self.servers, *master),
        )
        yield self.start(
            *("republish, sending", engine, SENDING_ON_SPARK, r"republish .*: [\d,]+ of "),
            *self.republish(f"send-{engine}"),
            *("--engine", "spark", "--records-per-second", 20, *master),
        )

    def republish(self, name: str) -> tuple[object, ...]:
        """Return the words of a republish to a topic of its own."""
        target = re.sub(r"\W", "-", f"{name}-{self.folder.name}")
        words = ("republish", self.copy(name), "--target-topic", target, "--create-target")
        return (*words, "--apply", *self.servers)

    def without_spark(self) -> Iterator[Waiting]:
        """Start what needs no Spark."""
        yield self.start(
            *("republish, sending", WORKER, SENDING, r"republish .*: [\d,]+ of "),
            *self.republish("send"),
            *("--engine", "worker", "--records-per-second", 20),
        )
        yield self.start(
            *("republish, reading back", WORKER, READING_BACK, r"verify \S+: [\d,]+ of "),
            *(*self.republish("read-back"), "--engine", "worker"),
        )
        yield self.start(
            *("drill, reading back", WORKER, DRILL, r"verify \S+: [\d,]+ of "),
            *("drill", self.copy("drill"), "--to-bootstrap", self.kafka.bootstrap_servers),
        )
        asked = "Kafka: "
        yield self.start(
            *("validate --deep", WORKER, QUESTION, asked, "validate", self.copy("validate")),
            *("--deep", *self.servers),
            halts=True,
        )
        yield self.start(
            *("translate-group", WORKER, QUESTION, asked, "translate-group", self.copy("group")),
            *("--group", "readers", "--apply", *self.servers),
            halts=True,
        )
        yield self.start(
            *("plan-recovery", WORKER, QUESTION, asked, "plan-recovery", self.copy("plan")),
            *self.servers,
            halts=True,
        )

    def erasing(self) -> Iterator[Waiting]:
        """Start an erasure whose roll waits for a drain."""
        archive = self.copy("erase")
        # Drains don't go on in a copy.
        self.run("roll", archive, *self.servers)
        keys = self.folder / "keys"
        keys.write_text("5\n")
        before = len(commits(archive))
        yield self.start(
            *("drain of an erasure", LOCAL, READING, lambda: len(commits(archive)) > before),
            *("drain", archive, "--topic", "orders", *self.servers),
            *("--source-option", "maxOffsetsPerTrigger=20"),
        )
        yield self.start(
            *("erase, its roll waiting", LOCAL, READING + QUESTION, "waiting, for "),
            *("erase", archive, "--keys", keys, "--request", "r", "--by", "b", "--apply"),
            *self.servers,
        )


def commits(archive: Path) -> list[Path]:
    """Return the batches that drains have committed."""
    return [*archive.glob("generations/*/checkpoint/commits/[0-9]*")]


def batches(archive: Path) -> Callable[[], bool]:
    """Return whether a drain has committed batches."""
    return lambda: len(commits(archive)) > 1


def meet(waiting: Sequence[Waiting], die: Callable[[], object], words: str) -> None:
    """Let something die, and watch what waits for it to its end."""
    for one in waiting:
        one.said = len(one.started.said())
        if one.started.process.poll() is not None and not one.missed:
            one.missed = f"it had ended before: {one.started.said()}"
    die()
    died = time.monotonic()
    for one in waiting:
        if one.halted:
            one.started.resume()
    pattern = re.compile(words)
    met = [one for one in waiting if not one.missed]
    until = died + max(one.ends for one in met) + PATIENCE
    while time.monotonic() < until and any(one.end is None for one in met):
        for one in met:
            one.look(time.monotonic() - died, pattern)
        time.sleep(0.1)


def assert_told(waiting: Sequence[Waiting]) -> None:
    """Assert that each has said soon what it waited for, and has ended in its time, as failed."""
    met = [one for one in waiting if not one.missed]
    for one in met:
        sys.stderr.write(f"{one.row()}\n")
    assert not [f"{one.verb}, {one.engine}: {one.missed}" for one in waiting if one.missed]
    assert not [one.row() for one in met if one.first is None or one.first[0] > SOON]
    assert not [one.row() for one in met if one.end is None or one.end > one.ends + PATIENCE]
    assert {one.started.process.poll() for one in met} == {1}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The broker and the archive of this module."""
    folder = tmp_path_factory.mktemp("outages")
    with LocalKafka(folder / "kafka", java_options=SHORT_LIVED) as kafka:
        yield World(folder, kafka)


@contextmanager
def roomy_server(folder: Path) -> Iterator[Server]:
    """A Spark Connect server that runs many jobs side by side."""
    (port,) = free_ports(1, ())
    server = Server(port, folder / "server.log", cores=8)
    server.start()
    yield server
    if not server.has_ended():
        server.kill()


@contextmanager
def ending(waiting: Sequence[Waiting]) -> Iterator[None]:
    """End what still waits."""
    try:
        yield
    finally:
        for one in waiting:
            if one.started.process.poll() is None:
                os.killpg(one.started.process.pid, signal.SIGKILL)
                one.started.process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_broker_dies(number: signal.Signals, world: World, tmp_path: Path) -> None:
    """Each command says soon that Kafka doesn't answer, and why, and ends as documented."""
    world.folder = tmp_path
    world.limit(None)
    # Plans, which read a few records, and some of them all that they are about.
    world.limit(PYTHONS, FAST)
    waiting: list[Waiting] = []
    with ExitStack() as stack:
        server = stack.enter_context(roomy_server(tmp_path))
        stack.enter_context(ending(waiting))
        waiting.extend(world.on_spark(LOCAL, "--master", "local[2]"))
        waiting.extend(world.on_spark(CONNECT, "--master", server.master))
        waiting.extend(world.erasing())
        world.limit(PYTHONS)
        waiting.extend(world.without_spark())
        broker = world.kafka.pid(1)
        assert broker is not None

        meet(waiting, lambda: os.kill(broker, number), "no response from Kafka at")

    if number == signal.SIGSTOP:
        os.kill(broker, signal.SIGCONT)
    else:
        world.kafka.kill_node(1)
        world.kafka.start_node(1)
    assert_told(waiting)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_server_dies(number: signal.Signals, world: World, tmp_path: Path) -> None:
    """Each command says soon that the Spark Connect server doesn't answer, and why, and ends."""
    world.folder = tmp_path
    world.limit(None)
    world.limit(PYTHONS, FAST)
    waiting: list[Waiting] = []
    with roomy_server(tmp_path) as server, ending(waiting):
        for one in world.on_spark(CONNECT, "--master", server.master):
            one.ends = SERVER
            waiting.append(one)
        assert server.process is not None
        group = server.process.pid

        meet(waiting, lambda: os.killpg(group, number), "no Spark Connect server answers at")

        if number == signal.SIGSTOP:
            os.killpg(group, signal.SIGCONT)
    assert_told(waiting)
