"""The world in memory: a topic, a machine that runs commands, and who dies when."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from tests.histories.history import Ended
from tests.histories.log import KafkaLog, PartitionLog, TopicLog
from tests.histories.machine import Kill, Machine
from tests.histories.topic import FakeTopic, record_of
from tests.histories.truth import DAY_LENGTH, Record

__all__ = ["MemoryWorld"]

#: A command makes about so many changes, at most; a driver so many; and a republish.
CHANGES, DRIVER_CHANGES, SENDING_CHANGES = 80, 30, 100


class MemoryWorld:
    """A world in which everything but the archive's files is in memory.

    Args:
        folder: The archive's.
        is_compacted: Whether Kafka compacts the topic.
        seed: Decides what happens until the first step.
    """

    more: Mapping[str, int] = {"open_transaction": 2, "pass_time": 2}

    def __init__(self, folder: Path, *, is_compacted: bool, seed: int) -> None:
        self.folder = folder
        self._chance = random.Random(seed)
        self.log = KafkaLog()
        topic_chance = random.Random(seed)
        self.topic = FakeTopic("t", is_compacted, topic_chance, log=self.log)
        self.machine = Machine(self.log, random.Random(seed))

    def decide_by(self, seed: int) -> None:
        self._chance.seed(f"world {seed}")
        self.topic.chance.seed(f"topic {seed}")
        self.machine.chance.seed(f"machine {seed}")

    def run(
        self,
        chance: random.Random,
        *arguments: str,
        may_die: bool,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[Ended, str]:
        kill = Kill()
        if may_die and arguments[0] == "republish":
            kill = self._kill_sending(chance, can_pause=meanwhile is not None)
        elif may_die:
            kill = self._kill(chance, can_pause=meanwhile is not None)

        def suspended() -> None:
            self.machine.pass_time(chance.choice([1, 30, 90]))
            if meanwhile is not None:
                meanwhile()

        ended = self.machine.run(self.folder, kill, *arguments, meanwhile=suspended)
        if ended.was_killed:
            # The leases of the dead run out.
            self.machine.pass_time(61)
        return ended, f"{kill} " if kill != Kill() else ""

    def _kill(self, chance: random.Random, *, can_pause: bool) -> Kill:
        if chance.random() > 0.5:
            return Kill()
        # The first changes more often: most commands make but a few.
        kind = chance.random()
        if kind < 0.25:
            return Kill(driver=round(DRIVER_CHANGES ** chance.random()))
        if kind < 0.45 and can_pause:
            return Kill(pause=round(CHANGES ** chance.random()))
        return Kill(change=round(CHANGES ** chance.random()))

    def _kill_sending(self, chance: random.Random, *, can_pause: bool) -> Kill:
        """Kill a republish while it sends, or suspend it more often: others go on meanwhile."""
        at = chance.randint(1, SENDING_CHANGES)
        kinds = [Kill(), Kill(driver=at // 2), Kill(change=at), *[Kill(pause=at)] * 2 * can_pause]
        return chance.choice(kinds)

    def settle(self) -> None:
        self.topic.end_transaction(commit=True)
        # The leases of the dead run out, even if the clock was set back after they had.
        self.machine.pass_time(61)

    def yesterday(self) -> int:
        return round(self.machine.now.timestamp() * 1000) - DAY_LENGTH

    def pass_time(self) -> str:
        """Let time pass; now and then, set the clock back."""
        seconds = self._chance.choice([60, 3600, 86_400, 10 * 86_400])
        if self._chance.random() < 0.2:
            self.machine.now -= timedelta(seconds=seconds)
            return f"the clock is set back by {seconds} s"
        self.machine.pass_time(seconds)
        return f"{seconds} s pass"

    def open_transaction(self) -> str:
        self.topic.open_transaction(self._chance.randint(1, 4))
        return "open transaction" if self.topic.is_open else "end transaction"

    def new_target(self, name: str) -> None:
        logs = [PartitionLog() for _ in self.topic.partitions]
        self.log.topics[name] = TopicLog(f"id of {name}", logs)

    def read_target(self, name: str) -> list[list[tuple[int, Record]]]:
        self.machine.coordinator.deliver()
        return [
            [(entry.offset, record_of(entry)) for _, entry in log.records(0, "read_committed")]
            for log in self.log.topics[name].partitions
        ]
