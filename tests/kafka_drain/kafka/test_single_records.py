"""Single records, and their sizes, from a few places of a log."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Timer

import pytest
from confluent_kafka import Producer

from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.single_records import RecordSample, read_single_records, sample_records
from kafka_drain.offsets import TopicPartition

A0 = TopicPartition("a.b-1", 0)


@pytest.fixture
def servers() -> Iterator[str]:
    """A broker of librdkafka, with 60 MB in a partition: batches of a megabyte in 250 bytes."""
    producer = Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "replaced:1",
            "compression.type": "zstd",
            "linger.ms": 60_000,
            "queue.buffering.max.kbytes": 100_000,
            "log_level": 0,
        }
    )
    for number in range(600):
        producer.produce(A0.topic, b"%010d" % number + b"x" * 99_990, partition=A0.partition)
    assert producer.flush(60) == 0
    [broker] = producer.list_topics(A0.topic).brokers.values()
    yield f"{broker.host}:{broker.port}"
    # The broker ends with its producer.
    del producer


def test_sample_records(servers: str) -> None:
    """Several places of a partition are looked at one after another; behind its end is none."""
    config = KafkaConfig({"bootstrap.servers": servers})

    samples = sample_records(config, [{A0: 0}, {A0: 300}, {A0: 599}, {A0: 600}])

    assert samples == [RecordSample(A0, 100_000)] * 3


def test_single_records_replica_behind() -> None:
    """A replica that hasn't learned yet of what the leader told doesn't lack a record."""
    producer = Producer(
        {"test.mock.num.brokers": 1, "bootstrap.servers": "replaced:1", "log_level": 0}
    )

    def send(records: int) -> None:
        for _ in range(records):
            producer.produce(A0.topic, b"value", partition=A0.partition)
        producer.flush(10)

    send(5)
    [broker] = producer.list_topics(A0.topic).brokers.values()
    config = KafkaConfig({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    later = Timer(1, send, [1])
    later.start()

    found = read_single_records(config, {A0: 5}, ends={A0: 6})

    later.join()
    assert found[A0].offset == 5
    assert read_single_records(config, {A0: 6}, ends={A0: 6}) == {}
