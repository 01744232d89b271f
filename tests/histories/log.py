"""Kafka's logs as plain values: batches, transactions, markers, compaction, retention, cuts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Batch", "Entry", "KafkaLog", "PartitionLog", "TopicLog", "Transaction"]

Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(eq=False)
class Transaction:
    """A producer's transaction: open until it has an outcome.

    Attributes:
        first: Its first offset, by the log that has it.
        outcome: How it ended; None while it is open.
    """

    first: dict[PartitionLog, int] = field(default_factory=dict)
    outcome: Literal["commit", "abort"] | None = None


@dataclass(frozen=True)
class Entry:
    """What is at an offset: a record, or a transaction marker.

    Attributes:
        transaction: The record's; None without one.
        is_marker: Whether it is a marker, which consumers never see.
    """

    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1
    transaction: Transaction | None = None
    is_marker: bool = False

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction.outcome == "commit"


@dataclass
class Batch:
    """A record batch.

    Attributes:
        first: Its first offset when it was sent.
        end: The offset after its last one when it was sent.
        epoch: The leader's epoch.
        entries: What compaction has left of it.
    """

    first: int
    end: int
    epoch: int
    entries: list[Entry]

    @property
    def is_control(self) -> bool:
        return any(entry.is_marker for entry in self.entries)

    @property
    def is_transactional(self) -> bool:
        return any(entry.transaction is not None for entry in self.entries)


@dataclass(eq=False)
class PartitionLog:
    """A partition's log on its leader.

    Attributes:
        first: The first offset that consumers get.
        end: The high watermark.
        epoch: The leader's epoch.
        batches: Its batches, in order.
        open: Its transactions that haven't ended.
    """

    first: int = 0
    end: int = 0
    epoch: int = 0
    batches: list[Batch] = field(default_factory=list)
    open: list[Transaction] = field(default_factory=list)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((one.first[self] for one in self.open), default=self.end)

    def ends(self, isolation: Isolation) -> int:
        return self.end if isolation == "read_uncommitted" else self.stable

    def append(
        self, records: list[dict[str, Any]], transaction: Transaction | None = None
    ) -> list[Entry]:
        """Append a batch."""
        if transaction is not None and self not in transaction.first:
            transaction.first[self] = self.end
            self.open.append(transaction)
        entries = [
            Entry(self.end + number, transaction=transaction, **record)
            for number, record in enumerate(records)
        ]
        self._add(entries)
        return entries

    def finish(self, transaction: Transaction) -> None:
        """Append the marker of a transaction that has ended."""
        self.open.remove(transaction)
        self._add([Entry(self.end, transaction=transaction, is_marker=True)])

    def _add(self, entries: list[Entry]) -> None:
        batch = Batch(self.end, self.end + len(entries), self.epoch, entries)
        self.batches.append(batch)
        self.end = batch.end

    def read(self, start: int, isolation: Isolation) -> Iterator[tuple[Batch, Entry]]:
        """Yield what is there from an offset on, markers and aborted records among it."""
        end = self.ends(isolation)
        for batch in self.batches:
            for entry in batch.entries:
                if max(start, self.first) <= entry.offset < end:
                    yield batch, entry

    def records(self, start: int, isolation: Isolation) -> Iterator[tuple[Batch, Entry]]:
        """Yield the records that a consumer gets from an offset on."""
        for batch, entry in self.read(start, isolation):
            if not entry.is_marker and (isolation == "read_uncommitted" or entry.is_committed):
                yield batch, entry

    def delete_before(self, offset: int) -> None:
        """Let retention, or an administrator, delete the start of the log."""
        self.first = max(self.first, min(offset, self.end))
        self.batches = [batch for batch in self.batches if batch.end > self.first]

    def cut(self, chance: random.Random) -> int | None:
        """Take the end off, up to any batch that no transaction spans; return where, if at all."""
        places = []
        for at, batch in enumerate(self.batches):
            before = {
                entry.transaction
                for one in self.batches[:at]
                for entry in one.entries
                if entry.transaction is not None
            }
            ended = {
                entry.transaction
                for one in self.batches[:at]
                for entry in one.entries
                if entry.is_marker
            }
            if batch.first >= self.first and before <= ended:
                places.append(batch.first)
        if not places or self.open:
            return None
        cut = chance.choice(places[-10:])
        self.batches = [batch for batch in self.batches if batch.first < cut]
        self.end = cut
        self.epoch += 1
        return cut

    def lose_batch(self, chance: random.Random) -> tuple[int, int] | None:
        """Lose a batch between two others, without a marker; return its offsets, if any."""
        between = [
            batch
            for batch in self.batches[1:-1]
            if batch.first >= self.first and batch.entries and not batch.is_control
        ]
        if not between:
            return None
        lost = chance.choice(between)
        self.batches.remove(lost)
        return lost.first, lost.end

    def compact(self) -> int:
        """Remove what has a newer record of its key, but in the newest batch; return how many."""
        newest: dict[bytes | None, int] = {}
        for batch in self.batches:
            for entry in batch.entries:
                if not entry.is_marker and entry.is_committed:
                    newest[entry.key] = entry.offset
        removed = 0
        for batch in self.batches[:-1]:
            kept = [
                entry
                for entry in batch.entries
                if entry.is_marker
                or entry.key is None
                or entry.offset >= self.stable
                or (entry.is_committed and newest[entry.key] == entry.offset)
            ]
            removed += len(batch.entries) - len(kept)
            batch.entries = kept
        return removed


@dataclass
class TopicLog:
    """A topic.

    Attributes:
        id: Its id, another one after it was made again.
        config: Its own settings.
        partitions: Its partitions' logs.
    """

    id: str
    partitions: list[PartitionLog]
    config: dict[str, str] = field(default_factory=dict)


@dataclass
class KafkaLog:
    """All that a cluster holds.

    Attributes:
        topics: Its topics.
        groups: Committed offset and metadata, by group, topic and partition.
    """

    id: str = "cluster-of-a-history"
    topics: dict[str, TopicLog] = field(default_factory=dict)
    groups: dict[str, dict[tuple[str, int], tuple[int, str]]] = field(default_factory=dict)

    def partition(self, topic: str, partition: int) -> PartitionLog | None:
        found = self.topics.get(topic)
        return found.partitions[partition] if found else None
