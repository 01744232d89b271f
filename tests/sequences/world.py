"""The real world of a history: a broker, Spark, and commands in processes of their own."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.faults.republishing import make_target
from tests.histories.history import Ended
from tests.histories.truth import DAY_LENGTH, PARTITIONS, Record
from tests.sequences.commands import Kill, run_command
from tests.sequences.topic import Topic, read_records

__all__ = ["BrokerWorld"]

#: A command's changes of the file system are about so many, at most.
CHANGES = 60


class BrokerWorld:
    """A world of real parts.

    Args:
        spark: The session that runs the commands' applications.
        topic: The topic.
        folder: The archive's.
    """

    more: Mapping[str, int] = {}

    def __init__(self, spark: Any, topic: Topic, folder: Path) -> None:
        self._spark = spark
        self.topic = topic
        self.folder = folder

    def settle(self) -> None:
        """Here, no transaction stays open."""

    def yesterday(self) -> int:
        return round(time.time() * 1000) - DAY_LENGTH

    def decide_by(self, seed: int) -> None:
        self.topic.chance.seed(f"topic {seed}")

    def run(
        self,
        chance: random.Random,
        *arguments: str,
        may_die: bool,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[Ended, str]:
        kill = self._kill(chance, arguments[0]) if may_die else Kill()
        ended = run_command(self._spark, str(self.folder), kill, *arguments)
        if ended.was_killed:
            # What a minute's wait comes to: the lease of the dead runs out.
            for lease in self.folder.rglob("*lock.json*"):
                lease.unlink()
        return ended, f"{kill} " if kill != Kill() else ""

    def _kill(self, chance: random.Random, command: str) -> Kill:
        if chance.random() > 0.4:
            return Kill()
        if command == "drain" and chance.random() < 0.5:
            return Kill(spark=chance.choice(["before the manifest", "before the commit"]))
        # The first changes more often: most commands make but a few.
        return Kill(change=round(CHANGES ** chance.random()))

    def new_target(self, name: str) -> None:
        # By default, Kafka 4 refuses what is dated an hour ahead.
        newest = str((1 << 63) - 1)
        make_target(self.topic.bootstrap, name, PARTITIONS, message_timestamp_after_max_ms=newest)

    def read_target(self, name: str) -> list[list[tuple[int, Record]]]:
        found = read_records(self.topic.bootstrap, name)
        return [found.get(number, []) for number in range(PARTITIONS)]

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
