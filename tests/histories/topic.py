"""A topic in memory, and what happens to it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from tests.histories.log import Entry, KafkaLog, PartitionLog, TopicLog, Transaction
from tests.histories.truth import PARTITIONS, Place, Record, Truth

__all__ = ["FakeTopic", "record_of"]


@dataclass
class FakeTopic(Truth):
    """A topic of which every log is in memory.

    Attributes:
        log: The cluster's.
        has_segments: Whether a batch in the middle can be lost.
        can_be_cut: Whether a log can lose its end.
    """

    log: KafkaLog = field(default_factory=KafkaLog)
    bootstrap: str = "fake:9092"
    has_segments: bool = True
    can_be_cut: bool = True
    _open: Transaction | None = None

    def __post_init__(self) -> None:
        self._make()

    @property
    def partitions(self) -> list[PartitionLog]:
        return self.log.topics[self.name].partitions

    def _make(self) -> None:
        topic_id = base64.b64encode(self.chance.randbytes(16)).decode().rstrip("=")
        config = {"cleanup.policy": "compact,delete"} if self.is_compacted else {}
        logs = [PartitionLog() for _ in range(PARTITIONS)]
        self.log.topics[self.name] = TopicLog(topic_id, logs, config)
        self.begin_life(topic_id)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self._open is not None

    def produce(self, number: int) -> None:
        """Send records, some with a key that was there before."""
        self._send(number)
        self.look()

    def transact(self, number: int, *, commit: bool) -> None:
        """Send a transaction, and commit or abort it."""
        transaction = Transaction()
        self._send(number, transaction)
        self._end(transaction, commit=commit)
        self.look()

    def open_transaction(self, number: int) -> None:
        """Send a part of a transaction, which stays open; or end the one that is open."""
        if self._open is None:
            self._open = Transaction()
            self._send(number, self._open)
        else:
            self.end_transaction(commit=self.chance.random() < 0.5)
        self.look()

    def end_transaction(self, *, commit: bool) -> None:
        """End the transaction that is open, if any."""
        if self._open is not None:
            self._end(self._open, commit=commit)
            self._open = None
        self.look()

    def _end(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.outcome = "commit" if commit else "abort"
        for log in transaction.first:
            log.finish(transaction)

    def _send(self, number: int, transaction: Transaction | None = None) -> None:
        left = [self.next_record() for _ in range(number)]
        while left:
            size = self.chance.randint(1, 4)
            log = self.chance.choice(self.partitions)
            log.append(left[:size], transaction)
            left = left[size:]

    def look(self) -> dict[Place, Record]:
        """Read what Kafka holds now, and remember it."""
        found = {
            self.place(number, entry.offset): record_of(entry)
            for number, log in enumerate(self.partitions)
            for _, entry in log.records(log.first, "read_committed")
        }
        self.committed |= found
        return found

    def cut(self) -> str:
        """Take the end off a partition's log, and send others."""
        number = self.chance.randrange(PARTITIONS)
        cut = self.partitions[number].cut(self.chance)
        if cut is None:
            return "cut: nothing there"
        self.cuts.setdefault((self.life, number), []).append(cut)
        self.produce(self.chance.randint(1, 25))
        return f"cut {number} at {cut}"

    def lose_segment(self) -> str:
        """Send records, and take a batch out of a partition's log."""
        self.produce(self.chance.randint(4, 12))
        number = self.chance.randrange(PARTITIONS)
        before = self.look()
        lost = self.partitions[number].lose_batch(self.chance)
        if lost is None:
            return "lose segment: none between others"
        gone = {p for p in before if p.partition == number and lost[0] <= p.offset < lost[1]}
        self.holes |= gone
        return f"lose segment {number}:{lost[0]}-{lost[1]}, {len(gone)} records"

    def delete_records(self) -> None:
        """Delete records from the start, up to anywhere."""
        for log in self.partitions:
            log.delete_before(self.chance.randint(0, log.stable))

    def make_again(self) -> None:
        """Delete the topic and make it again; its offsets start at 0."""
        self._open = None
        self._make()

    def compact(self) -> bool:
        """Remove records that have a newer one of their key."""
        self.produce(1)
        return sum(log.compact() for log in self.partitions) > 0


def record_of(entry: Entry) -> Record:
    """Return a record as the judge knows it."""
    return entry.key, entry.value, entry.headers, entry.timestamp
