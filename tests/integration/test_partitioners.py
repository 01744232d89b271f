"""Partitioners of real producers: the plan's hashes put each key where theirs do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_drain.republish.planning.placement import fitting, partition_of_key

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("partitioner", "placement"),
    [
        (None, "key:crc32"),
        ("murmur2_random", "key"),
        ("consistent_random", "key:crc32"),
        ("fnv1a_random", "key:fnv1a"),
    ],
)
def test_partitioners(
    bootstrap_servers: str,
    make_topic: Callable[..., str],
    partitioner: str | None,
    placement: str,
) -> None:
    """Each of librdkafka's partitioners is recognised by where its keys are."""
    topic, held = make_topic(partitions=6), dict[bytes, int]()
    given: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
    producer = Producer(given | ({} if partitioner is None else {"partitioner": partitioner}))

    def note(error: Any, message: Any) -> None:
        assert error is None
        held[message.key()] = message.partition()

    for number in range(300):
        producer.produce(topic, b"v", b"\xff key %d" % number, on_delivery=note)
    assert producer.flush(30) == 0

    assert fitting([*held.items()], 6).placement == placement
    assert {key: partition_of_key(key, 6, 0, placement) for key in held} == held
