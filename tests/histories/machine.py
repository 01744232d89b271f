"""A machine in memory: its clock, its disk, and commands that may not live to their end.

A command runs in this process, with all of its own code. When it is killed, the change of the
archive that it was about to make fails, and so does every later one: what it does on its way out
leaves no trace, as after SIGKILL.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pkgutil
import random
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import kafka_drain
from kafka_drain.cli.main import main, parser
from kafka_drain.errors import DeliveryError, SparkJobError
from kafka_drain.maintenance.unlock import remove_lease
from kafka_drain.republish.engines.worker_main import Job, _read_job, run_job
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.lease import Lease, hold_lease
from tests.histories.client import FakeAdminClient, FakeConsumer
from tests.histories.coordinator import Coordinator
from tests.histories.history import Ended
from tests.histories.log import KafkaLog
from tests.histories.producer import FakeProducer
from tests.histories.spark import FakeSpark

__all__ = ["Kill", "Machine"]

_CHANGES = frozenset(
    {"os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.truncate"}
)

#: Where the product makes a client for reading.
_CONSUMERS = (
    "kafka_drain.kafka.reading_client",
    "kafka_drain.kafka.single_records",
    "kafka_drain.kafka.consumer_groups",
    "kafka_drain.proof.gap_probe",
    "kafka_drain.republish.sending.progress_store",
)
#: Where it prepares an application, for which this machine would need Java.
_PREPARING = (
    "kafka_drain.drain.drain",
    "kafka_drain.windows.window_jobs",
    "kafka_drain.maintenance.compact",
    "kafka_drain.proof.executor_reading",
)
_SUBMITTING = ("drain", "repair", "backfill", "maintain", "reprocess", "erase", "validate")


#: The exit code of what was killed.
KILLED = -9


class Killed(BaseException):
    """Raised where a process would be no more."""


class DriverKilled(Exception):
    """Raised where Spark's driver, or a worker's process, would be no more."""


@dataclass(frozen=True)
class Kill:
    """Who dies when; 0 for never.

    Attributes:
        change: At which change of the archive the command dies, Spark's driver with it.
        driver: At which change of its own Spark's driver, or a worker's process, dies; the
            command lives on.
        pause: At which change the command is suspended, while others run.
    """

    change: int = 0
    driver: int = 0
    pause: int = 0

    def __str__(self) -> str:
        named = {"killed": self.change, "driver killed": self.driver, "suspended": self.pause}
        return "".join(f"{what} at change {at}" for what, at in named.items() if at)


class Process:
    """A command that runs, and what it has left to do.

    Args:
        folder: The archive's, whose changes are counted.
        kill: Who dies when.
        meanwhile: What happens while it is suspended.
    """

    def __init__(self, folder: Path, kill: Kill, meanwhile: Callable[[], None]) -> None:
        self.folder = str(folder)
        self._kill = kill
        self._meanwhile = meanwhile
        self.changes = self._driver_changes = 0
        self._is_driver = self._is_driver_dead = False
        self.is_dead = False

    @contextmanager
    def driver(self) -> Iterator[None]:
        """Count what happens in the context as Spark's driver's, or a worker's process's."""
        self._is_driver, self._is_driver_dead = True, False
        try:
            yield
        finally:
            self._is_driver = False

    def change(self, path: str = "") -> None:
        """Count a change that it is about to make."""
        if self.is_dead:
            raise Killed
        self.changes += 1
        assert self.changes < 10_000, "it never ends"
        if self.changes == self._kill.change:
            self.is_dead = True
            raise Killed
        # Whoever is suspended with the kernel's lock on a lease keeps others waiting.
        if self._kill.pause and self.changes >= self._kill.pause and "lock.json" not in path:
            self._kill = Kill()
            self._meanwhile()
        if self._is_driver:
            self._driver_changes += 1
            self._is_driver_dead |= self._driver_changes == self._kill.driver
            if self._is_driver_dead:
                raise DriverKilled


class Disk:
    """Tells the process that runs of each change below its folder."""

    def __init__(self) -> None:
        self.process: Process | None = None
        sys.addaudithook(self._hear)

    @contextmanager
    def watching(self, process: Process) -> Iterator[None]:
        """Let a process run; one that is suspended runs again afterwards."""
        before, self.process = self.process, process
        try:
            yield
        finally:
            self.process = before

    def change(self, path: object = "") -> None:
        """Count a change, made by something that Python doesn't see."""
        if self.process is not None:
            self.process.change(str(path))

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.process is None:
            return
        if event == "open":
            flags = arguments[2]
            if not isinstance(flags, int) or not flags & (os.O_ACCMODE | os.O_CREAT):
                return
        elif event not in _CHANGES or (event == "os.mkdir" and os.path.isdir(arguments[0])):
            return
        path = str(arguments[0])
        if path.startswith(self.process.folder) or not path.startswith("/"):
            self.process.change(path)


_DISK = Disk()


class _Time:
    """Stands for the module `time` where the product waits: the clock moves on instead."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def monotonic(self) -> float:
        return self._machine.seconds

    def sleep(self, seconds: float) -> None:
        self._machine.pass_time(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Threads:
    """Stands for the module `threading` where lanes send: a seed decides what happens, no race."""

    Event, Lock = threading.Event, threading.Lock

    class Thread:
        """Runs to its end when it starts."""

        ident = 1

        def __init__(self, target: Callable[..., None], args: tuple[Any, ...], **_: object) -> None:
            self._target, self._args = target, args

        def start(self) -> None:
            self._target(*self._args)

        def join(self, _: float) -> None:
            pass

        def is_alive(self) -> bool:
            return False


class _Child:
    """Stands for a worker's process, which may be killed alone."""

    def do(self, job: Job) -> Any:
        assert _DISK.process is not None
        try:
            with _DISK.process.driver():
                answer = run_job(_read_job(json.loads(json.dumps(job.to_dict()))), lambda: False)
        except DriverKilled as killed:
            raise DeliveryError(f"the process for {job} was killed") from killed
        return json.loads(json.dumps(answer))

    def end(self) -> None:
        pass

    close = end


class Machine:
    """Runs commands on archives.

    Args:
        log: What Kafka holds.
        chance: Decides what is left open: identifiers, and what Spark may do either way.

    Attributes:
        now: The time that its clock says.
        seconds: How much time has passed.
    """

    def __init__(self, log: KafkaLog, chance: random.Random) -> None:
        self.log = log
        self.coordinator = Coordinator(log)
        self.chance = chance
        self.now = datetime(2026, 1, 12, tzinfo=timezone.utc)
        self.seconds = 0.0
        self._undo: list[Callable[[], None]] = []

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.coordinator.pass_time(seconds)
        self.now += timedelta(seconds=seconds)

    def run(
        self, folder: Path, kill: Kill, *arguments: str, meanwhile: Callable[[], None] = int
    ) -> Ended:
        """Run a command to its end, or to its death.

        Args:
            folder: The archive's.
            kill: Who dies when.
            arguments: The command line.
            meanwhile: What happens while it is suspended.
        """
        said = io.StringIO()
        code: int
        process = Process(folder, kill, meanwhile)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                with _DISK.watching(process):
                    code = main(arguments)
            except Killed:
                code = KILLED
            except SystemExit as ended:
                code = int(ended.code or 0)
            except Exception:
                traceback.print_exc()
                code = 70
        if process.is_dead:
            # It may have ended otherwise: another thread was the first to notice.
            code = KILLED
        # Each takes seconds, and with Spark more.
        self.pass_time(self.chance.uniform(1, 20))
        return Ended(code, said.getvalue())

    def __enter__(self) -> Machine:
        """Put the fakes in their places, until the exit."""

        class Now(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return self.now

        self._put("kafka_drain.clock", "datetime", Now)
        # A process has one; to make it takes longer than most commands do.
        self._put("kafka_drain.cli.main", "parser", _parser)
        instead = _Time(self)
        for name in _waiting():
            self._put(name, "time", instead)
        for function in (hold_lease.__wrapped__, Lease.__init__, remove_lease):
            self._put_default(function, "wait", instead.sleep)
        self._put("kafka_drain.kafka.admin", "AdminClient", lambda c: FakeAdminClient(self.log, c))
        for name in _CONSUMERS:
            self._put(name, "Consumer", self._consumer)
        self._put("kafka_drain.republish.sending.producer", "Producer", self._producer)
        # So that few records take several processes, and several transactions.
        for name, value in (("threading", _Threads), ("Child", _Child), ("RECORDS_PER_PROCESS", 1)):
            self._put("kafka_drain.republish.engines.worker", name, value)
        for name, value in (("TRANSACTION_RECORDS", 5), ("STEP", 2)):
            self._put("kafka_drain.republish.sending.shard_sender", name, value)
        for name in _PREPARING:
            self._put(name, "prepare_application", _application)
        self._put("kafka_drain.drain.drain", "refuse_orphans", lambda _: None)
        self._put("kafka_drain.drain.drain", "check_spark_version", lambda _: None)
        for name in _SUBMITTING:
            module = f"kafka_drain.cli.commands.{name}"
            if hasattr(import_module(module), "runner_of"):
                self._put(module, "runner_of", lambda _: self._run_spark)
        self._put("uuid", "uuid4", lambda: uuid.UUID(int=self.chance.getrandbits(128), version=4))
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()

    def _put(self, module: str, name: str, value: Any) -> None:
        there = import_module(module)
        before = getattr(there, name)
        self._undo.append(lambda: setattr(there, name, before))
        setattr(there, name, value)

    def _put_default(self, function: Any, name: str, value: Any) -> None:
        defaults = function.__kwdefaults__
        before, defaults[name] = defaults[name], value
        self._undo.append(lambda: defaults.__setitem__(name, before))

    def _consumer(self, config: Mapping[str, Any], **more: Any) -> FakeConsumer:
        return FakeConsumer(self.coordinator, config, **more)

    def _producer(self, config: Mapping[str, Any]) -> FakeProducer:
        return FakeProducer(self.coordinator, config, self.chance, _DISK.change)

    def _run_spark(self, application: SparkApplication) -> None:
        try:
            assert _DISK.process is not None
            with _DISK.process.driver():
                FakeSpark(self.log, _DISK.change, self.chance)(application)
        except DriverKilled as killed:
            raise SparkJobError("the driver was killed") from killed


def _parser(whole: Iterable[str]) -> argparse.ArgumentParser:
    return _parser_of(frozenset(whole))


@cache
def _parser_of(whole: frozenset[str]) -> argparse.ArgumentParser:
    return parser(whole)


@cache
def _waiting() -> list[str]:
    """Return the modules of the product that import `time`."""
    found = []
    for module in pkgutil.walk_packages(kafka_drain.__path__, "kafka_drain."):
        if module.name.rpartition(".")[2] != "__main__":
            there = import_module(module.name)
            if getattr(there, "time", None) is time:
                found.append(module.name)
    return found


def _application(name: str, *, kind: str, spec_path: Path, **_: object) -> SparkApplication:
    """Stand for `prepare_application`."""
    nowhere = Path("/nowhere")
    return SparkApplication(name, nowhere, [kind, str(spec_path)], {}, [], nowhere, "1g", {})
