"""Transactions on a fake cluster: the coordinator's side of KIP-98, protocol version 1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tests.histories.log import KafkaLog, Transaction

__all__ = ["Coordinator", "Fenced"]

Offsets = dict[tuple[str, int], tuple[int, str]]
Outcome = Literal["commit", "abort"]

#: After so many seconds, the coordinator aborts a transaction.
TIMEOUT_SECONDS = 60.0


class Fenced(Exception):
    """Raised when a producer of an older epoch asks for something."""


@dataclass
class _Producer:
    """A transactional id.

    Attributes:
        epoch: The epoch of its newest producer.
        transaction: Its transaction, if one is open.
        offsets: What that one commits, by group.
        began: When it began.
    """

    epoch: int = -1
    transaction: Transaction | None = None
    offsets: dict[str, Offsets] = field(default_factory=dict)
    began: float = 0.0


@dataclass
class Coordinator:
    """Decides transactions.

    Attributes:
        log: The cluster.
        now: How much time has passed, in seconds.
        delayed: Requests to end a transaction that are still under way: id, epoch, outcome.
        late: Decided offsets that their groups don't show yet.
    """

    log: KafkaLog
    now: float = 0.0
    delayed: list[tuple[str, int, Outcome]] = field(default_factory=list)
    late: list[dict[str, Offsets]] = field(default_factory=list)
    _producers: dict[str, _Producer] = field(default_factory=dict)

    def begin_epoch(self, name: str) -> int:
        """Fence former producers, and abort what they left open."""
        found = self._producers.setdefault(name, _Producer())
        self._end(found, "abort")
        found.epoch += 1
        return found.epoch

    def _of(self, name: str, epoch: int) -> _Producer:
        found = self._producers[name]
        if found.epoch != epoch:
            raise Fenced
        return found

    def write(
        self, name: str, epoch: int, topic: str, partition: int, records: list[dict[str, object]]
    ) -> None:
        """Append records to the open transaction, or to a new one."""
        found = self._begun(name, epoch)
        self.log.topics[topic].partitions[partition].append(records, found.transaction)

    def add_offsets(self, name: str, epoch: int, group: str, offsets: Offsets) -> None:
        self._begun(name, epoch).offsets.setdefault(group, {}).update(offsets)

    def _begun(self, name: str, epoch: int) -> _Producer:
        found = self._of(name, epoch)
        if found.transaction is None:
            found.transaction, found.began = Transaction(), self.now
        return found

    def end(self, name: str, epoch: int, outcome: Outcome) -> None:
        self._end(self._of(name, epoch), outcome)

    def _end(self, found: _Producer, outcome: Outcome) -> None:
        transaction, found.transaction = found.transaction, None
        offsets, found.offsets = found.offsets, {}
        if transaction is None:
            return
        transaction.outcome = outcome
        for log in transaction.first:
            log.finish(transaction)
        if outcome == "commit" and offsets:
            self.late.append(offsets)

    def deliver(self) -> None:
        """Let requests arrive that were under way; of a former epoch, they are refused."""
        arrived, self.delayed = self.delayed, []
        for name, epoch, outcome in arrived:
            if self._producers[name].epoch == epoch:
                self._end(self._producers[name], outcome)

    def pass_time(self, seconds: float) -> None:
        """Abort transactions that take too long; their producers are fenced.

        A group takes an offset in a moment after its transaction was decided.
        """
        self.now += seconds
        while self.late:
            for group, own in self.late.pop(0).items():
                self.log.groups.setdefault(group, {}).update(own)
        for found in self._producers.values():
            if found.transaction is not None and self.now - found.began >= TIMEOUT_SECONDS:
                self._end(found, "abort")
                found.epoch += 1

    def is_pending(self, group: str, tp: tuple[str, int]) -> bool:
        """Return whether an offset of a group isn't decided, or not taken in yet."""
        pending = [*(found.offsets for found in self._producers.values()), *self.late]
        return any(tp in offsets.get(group, ()) for offsets in pending)
