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
from tests.kafka_drain.fake_message import FakeMessage

TP = TopicPartition("t", 0)
END = KafkaError._PARTITION_EOF


class Consumer:
    """Reads a follower that knows of a transaction's end only a moment later.

    Record 5 is of the transaction that the marker at 6 commits.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        is_committed = config["isolation.level"] == "read_committed"
        self._left = [FakeMessage(5, END)] * is_committed
        self._left += [FakeMessage(5), FakeMessage(7, END)]

    def assign(self, partitions: Iterable[Any]) -> None:
        pass

    def unassign(self) -> None:
        pass

    def close(self) -> None:
        pass

    def poll(self, _: float) -> FakeMessage | None:
        return self._left.pop(0) if self._left else None


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_classify_gaps_replica_behind(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """A committed record isn't aborted because a follower doesn't know yet that it is stable."""
    monkeypatch.setattr(gap_probe, "Consumer", Consumer)
    cluster: Any = FakeCluster({TP: Log(end=7)}, configs={"t": {"cleanup.policy": policy}})

    found = classify_gaps(cluster, {TP: [OffsetRange(5, 6)]})

    assert found == [Gap(TP, OffsetRange(5, 6), GapReason.LOST)]
