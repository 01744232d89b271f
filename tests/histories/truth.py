"""What was ever committed to a topic, by the place that it had: what the judge knows."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DAY", "DAY_LENGTH", "PARTITIONS", "Place", "Record", "Truth"]

PARTITIONS = 2
DAY = 1_768_003_200_000  # 2026-01-10 00:00 UTC, in milliseconds
DAY_LENGTH = 86_400_000
HOUR = 3_600_000

#: Key, value, headers, timestamp in milliseconds.
Record = tuple[bytes | None, bytes | None, tuple[Any, ...], int]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a record was: in which life of the topic, by its id, and at which offset.

    What was there before the log was cut is another place, with a lower `cut`: the number of the
    newest cut that had taken the offset away.
    """

    life: str
    partition: int
    offset: int
    cut: int = 0


@dataclass
class Truth:
    """A topic of two partitions; each record that was ever committed to it is remembered.

    Attributes:
        name: The topic.
        is_compacted: Whether Kafka compacts it.
        chance: Decides what is sent.
        life: The topic's id; another one after it was made again.
        committed: Every record that a `read_committed` consumer could ever read.
        lives: The ids that it had, oldest first.
        cuts: The first offset that each cut took away, by life and partition.
        holes: Records that a lost segment took away, before the log's end.
    """

    name: str
    is_compacted: bool
    chance: random.Random
    life: str = ""
    committed: dict[Place, Record] = field(default_factory=dict)
    lives: list[str] = field(default_factory=list)
    cuts: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    holes: set[Place] = field(default_factory=set)
    _sent: int = 0

    def next_record(self) -> dict[str, Any]:
        """Return a record to be sent; each value once: who reads it twice reads a record twice."""
        self._sent += 1
        headers = (("n", b"%d" % self._sent), ("empty", None)) if self._sent % 4 else ()
        number = self.chance.randrange(5) if self.is_compacted else self._sent
        return {
            "key": b"key %d" % number,
            "value": None if self._sent % 37 == 0 else b"record %05d" % self._sent,
            "headers": headers,
            "timestamp": self._timestamp(),
        }

    def _timestamp(self) -> int:
        """Return a time of the day, or now and then one by a clock that is wrong.

        Not one up to a day after the day's end: that is in order for a record of the next day.
        """
        right = DAY + self._sent * 1000
        if self.chance.random() < 0.9:
            return right
        ahead = (
            *(right + self.chance.randrange(20) * HOUR, right + 30 * DAY_LENGTH),
            # In six years; and microseconds instead of milliseconds.
            *(right + 2_000 * DAY_LENGTH, right * 1000),
        )
        return self.chance.choice(ahead)

    def is_of_day(self, place: Place) -> bool:
        """Return whether a record belongs to the day, whatever lies before it."""
        return DAY <= self.committed[place][3] < DAY + DAY_LENGTH

    def begin_life(self, life: str) -> None:
        """Note that the topic was made, or made again."""
        self.life = life
        self.lives.append(life)
        self.holes = set()

    def place(self, partition: int, offset: int) -> Place:
        """Return the place of what is at an offset now, or would be."""
        cuts = enumerate(self.cuts.get((self.life, partition), ()), 1)
        newest = max((number for number, first in cuts if first <= offset), default=0)
        return Place(self.life, partition, offset, newest)

    def was_at(self, place: Place, record: Record) -> Place:
        """Return in which place at an offset a record was; the first one if it was in none."""
        cuts = range(len(self.cuts.get((place.life, place.partition), ())) + 1)
        found = (Place(place.life, place.partition, place.offset, cut) for cut in cuts)
        return next((one for one in found if self.committed.get(one) == record), place)
