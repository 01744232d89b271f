"""Gaps, of which a replica is asked that hasn't caught up with what the leader has told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_probe
from kafka_drain.proof.gap_probe import classify_gaps
from tests.kafka_drain.fake_cluster import FakeCluster, Log

TP = TopicPartition("t", 0)


class Message:
    """A record, or that the partition ends at an offset."""

    def __init__(self, offset: int, *, is_end: bool = False) -> None:
        self._offset = offset
        self._error = KafkaError(KafkaError._PARTITION_EOF) if is_end else None

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Consumer:
    """Reads a follower that knows of a transaction's end only a moment later.

    Record 5 is of the transaction that the marker at 6 commits.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        is_committed = config["isolation.level"] == "read_committed"
        self._left = [Message(5, is_end=True)] * is_committed
        self._left += [Message(5), Message(7, is_end=True)]

    def assign(self, partitions: Iterable[Any]) -> None:
        pass

    def unassign(self) -> None:
        pass

    def close(self) -> None:
        pass

    def poll(self, _: float) -> Message | None:
        return self._left.pop(0) if self._left else None


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_classify_gaps_replica_behind(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """A committed record isn't aborted because a follower doesn't know yet that it is stable."""
    monkeypatch.setattr(gap_probe, "Consumer", Consumer)
    cluster: Any = FakeCluster({TP: Log(end=7)}, configs={"t": {"cleanup.policy": policy}})

    found = classify_gaps(cluster, {TP: [OffsetRange(5, 6)]})

    assert found == [Gap(TP, OffsetRange(5, 6), GapReason.LOST)]
