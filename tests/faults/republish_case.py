"""A republish in this process, into which a test injects a fault."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer

from kafka_drain.archive.archive import Archive
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.engines.select import Engines
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import Republish, plan_republish
from kafka_drain.republish.sending import producer
from kafka_drain.republish.sending import shard_sender as sending
from kafka_drain.republish.sending.shard_sender import SendJob
from tests.faults.injection import wait_for
from tests.faults.republishing import ROOT, Audit, Record, audit, read_topic

#: Called with a producer, the name of its call, and whether the call has returned.
Hook = Callable[["Tapped", str, bool], None]


class Tapped(Producer):
    """A real producer of a shard's records that calls hooks around its transactional calls."""

    made: ClassVar[list[Tapped]]
    hook: ClassVar[Any]  # a Hook; mypy would take it for a method

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        # The transaction that starts an attempt sends no records.
        self._tells = not settings["transactional.id"].endswith("-open")
        if self._tells:
            self.made.append(self)

    def init_transactions(self, *arguments: Any) -> None:
        self._tell("init", False)
        super().init_transactions(*arguments)
        self._tell("init", True)

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self._tell("offsets", False)
        super().send_offsets_to_transaction(*arguments)
        self._tell("offsets", True)

    def commit_transaction(self, *arguments: Any) -> None:
        self._tell("commit", False)
        super().commit_transaction(*arguments)
        self._tell("commit", True)

    def produce_batch(self, *arguments: Any, **more: Any) -> int:
        raise AssertionError("produce_batch drops headers")

    def _tell(self, call: str, has_ended: bool) -> None:
        if self._tells:
            self.hook(self, call, has_ended)


def tap(patch: pytest.MonkeyPatch, hook: Hook, base: type[Tapped] = Tapped) -> type[Tapped]:
    """Let all producers created from now on call hooks; returns their class, which has the list."""
    made = type("Tap", (base,), {"made": [], "hook": staticmethod(hook)})
    patch.setattr(producer, "Producer", made)
    return made


class Stopped(Exception):
    """Raised by a test's engine that has seen enough."""


@dataclass
class Case:
    """An archive, a target, and a republish request.

    Attributes:
        archive: A copy that may be damaged.
        cluster: The target's brokers.
        target: The target topic.
        content: Content of the source topic.
        folder: Folder for files that the test writes.
        request: The request's options besides the target.
        name: The run's name; None for the target's name.
    """

    archive: Archive
    cluster: KafkaCluster
    target: str
    content: dict[int, list[Record]]
    folder: Path
    request: dict[str, Any] = field(default_factory=lambda: {"engine": "worker"})
    name: str | None = None

    @property
    def bootstrap(self) -> str:
        return self.cluster.config.bootstrap_servers

    @property
    def records(self) -> int:
        return sum(map(len, self.content.values()))

    def planned(self, now: datetime | None = None) -> Republish:
        """Plan the run, or load its plan."""
        request = RepublishRequest(
            target_topic=self.target, run_name=self.name or self.target, **self.request
        )
        return plan_republish(self.archive, self.cluster, request, now=now or utc_now(), apply=True)

    def run(self, send: Any = None, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
        """Make an attempt.

        Args:
            send: Sends the groups of jobs instead of the engine.
            clock: Returns the time.
        """
        engine = _Engine(self, send)
        return self.planned().execute(engine, clock)

    def audit(self) -> Audit:
        """Compare source and target independently of the product."""
        return audit(self.content, read_topic(self.bootstrap, self.target))

    def visible(self, isolation: str) -> int:
        """Return the number of records visible to readers with an isolation level."""
        return sum(map(len, read_topic(self.bootstrap, self.target, isolation).values()))

    def ends(self) -> list[int]:
        """Return the high watermark of each target partition."""
        tps = [TopicPartition(self.target, partition) for partition in self.content]
        found = self.cluster.latest(tps, "read_uncommitted")
        return [found[tp] for tp in tps]


class _Engine(Engines):
    def __init__(self, case: Case, send: Any) -> None:
        pipeline = Pipeline(name="faults", topics=["faults"], archive=str(case.archive.root))
        super().__init__(
            str(case.archive.root), case.cluster, pipeline, case.folder, _no_spark, processes=1
        )
        self._send = send

    def __call__(
        self, plan: RepublishPlan, groups: list[list[SendJob]], tick: Callable[[], None]
    ) -> None:
        if self._send is None:
            super().__call__(plan, groups, tick)
        else:
            self._send(plan, groups, tick)


def _no_spark(*arguments: Any) -> None:
    raise AssertionError("this test needs no Spark")


# A sender that halts


@dataclass
class Halted:
    """A process that sends one shard, and halts at a chosen moment.

    Attributes:
        process: The process.
        folder: Folder for messages between it and the test.
    """

    process: subprocess.Popen[bytes]
    folder: Path

    def wait_until_halted(self) -> None:
        halted = self.folder / "halted"
        wait_for(lambda: halted.exists() or self.process.poll() is not None, "the halt")
        assert halted.exists(), (self.folder / "log").read_text()

    def go_on(self) -> None:
        (self.folder / "go").touch()

    def answer(self) -> dict[str, Any]:
        """Wait for it to exit; return its result, or the error's class and message."""
        assert self.process.wait(120) == 0, (self.folder / "log").read_text()
        found: dict[str, Any] = json.loads((self.folder / "answer.json").read_text())
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def halted_sender(job: SendJob, folder: Path, call: str, has_ended: bool, nth: int = 1) -> Halted:
    """Start a process that sends a shard, and halts before or after its nth call of a kind."""
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps(job.to_dict()))
    arguments = [
        str(folder),
        call,
        str(int(has_ended)),
        str(nth),
        json.dumps(sending.TRANSACTION_RECORDS),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.republish_case", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return Halted(process, folder)


def _send_and_halt(
    folder: Path, call: str, has_ended: bool, nth: int, transaction_records: int
) -> None:
    seen = 0

    def hook(tapped: Tapped, name: str, ended: bool) -> None:
        nonlocal seen
        seen += (name, ended) == (call, has_ended)
        if (name, ended) == (call, has_ended) and seen == nth:
            tapped.flush(20)
            (folder / "halted").touch()
            wait_for((folder / "go").exists, "leave to go on", patience=120)

    sending.TRANSACTION_RECORDS = transaction_records
    with pytest.MonkeyPatch.context() as patch:
        tap(patch, hook)
        job = SendJob.from_dict(json.loads((folder / "job.json").read_text()))
        answer: dict[str, Any]
        try:
            answer = {"records": sending.send_shard(job)}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        _send_and_halt(
            Path(sys.argv[1]),
            sys.argv[2],
            bool(int(sys.argv[3])),
            int(sys.argv[4]),
            json.loads(sys.argv[5]),
        )
