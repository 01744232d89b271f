"""Partitioners of real producers: the plan's hashes put each key where theirs do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.placement import fitting, partition_of_key
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration


def places(servers: str, topic: str, settings: dict[str, Any]) -> dict[bytes, int]:
    """Send 300 keys with librdkafka; return the partition that it has chosen for each."""
    producer, held = Producer({"bootstrap.servers": servers, **settings}), dict[bytes, int]()

    def note(error: Any, message: Any) -> None:
        assert error is None
        held[message.key()] = message.partition()

    for number in range(300):
        producer.produce(topic, b"v", b"\xff key %d" % number, on_delivery=note)
    assert producer.flush(30) == 0
    return held


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
    settings = {} if partitioner is None else {"partitioner": partitioner}
    held = places(bootstrap_servers, make_topic(partitions=6), settings)

    assert fitting([*held.items()], 6).placement == placement
    assert {key: partition_of_key(key, 6, 0, placement) for key in held} == held


def test_republish_as_producer(
    tmp_path: Path,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    make_topic: Callable[..., str],
    read: Callable[[str], dict[int, list[Any]]],
    republish: Callable[..., dict[str, Any]],
) -> None:
    """A republish by the partitioner that the plan names puts keys where the producer does."""
    source, topics = make_topic(partitions=6), [make_topic(partitions=12) for _ in range(3)]
    keys: dict[int, list[bytes]] = {}
    for key, partition in places(bootstrap_servers, source, {}).items():
        keys.setdefault(partition, []).append(key)
    made = MadeArchive(
        tmp_path / "archive", {source: cluster.topics([source])[source].id}, cluster.cluster_id()
    )
    batch = {TopicPartition(source, p): dense(0, len(held)) for p, held in keys.items()}
    made.seal_window("0_1", batch, columns={"key": lambda tp, offset: keys[tp.partition][offset]})

    republish(made.archive, topics[0], placement="key", run_name="java")
    republish(made.archive, topics[1], placement="key:crc32", run_name="c")
    found = [
        {row[0]: partition for partition, rows in read(topic).items() for row in rows}
        for topic in topics[:2]
    ]

    expected = places(bootstrap_servers, topics[2], {})
    plans = [path.read_text() for path in Path(str(made.root)).glob("republish/*/plan.json")]
    advice = "--placement key:crc32 places keys as they do"
    assert [advice in plan for plan in plans].count(True) == 1
    assert sum(found[0][key] != expected[key] for key in expected) > 200
    assert found[1] == expected
