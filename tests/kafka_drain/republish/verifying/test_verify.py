"""Tests of verify: which target partitions one client reads."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.verifying.verify import CLIENTS, TOGETHER, verified_together


def plan(**partitions: int) -> Any:
    """A plan whose shards send to all partitions of some topics."""
    tps = [TopicPartition(name, n) for name, count in partitions.items() for n in range(count)]
    shards = [SimpleNamespace(target_topic=t.topic, target_partition=t.partition) for t in tps]
    return SimpleNamespace(shards=shards, starts=lambda: dict.fromkeys(tps, 0))


@pytest.mark.parametrize(
    ("partitions", "sizes"),
    [
        ({}, set()),
        ({"t": 1}, {1}),
        ({"t": CLIENTS - 1}, {1}),
        ({"t": CLIENTS}, {2}),
        ({"t": 100}, {4}),
        ({"t": 10_000}, {TOGETHER}),
        ({"t": 2, "u": CLIENTS}, {1, 2}),
    ],
)
def test_verified_together(partitions: dict[str, int], sizes: set[int]) -> None:
    """Few partitions have a client each; thousands share some, each with those of one topic."""
    groups = verified_together(plan(**partitions))

    assert {len(group) for group in groups} == sizes
    assert all(len({tp.topic for tp in group}) == 1 for group in groups)
    assert list(chain(*groups)) == list(plan(**partitions).starts())
