"""Sizes in librdkafka's lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.fetch_samples import FetchSample, SampleLines, sample_fetches
from kafka_drain.offsets import TopicPartition

A0, A1 = TopicPartition("a.b-1", 0), TopicPartition("a.b-1", 1)


def say(lines: SampleLines, *said: str) -> None:
    for line in said:
        lines.logger.log(logging.DEBUG, "%s", line)


def sent(tp: TopicPartition, size: int) -> str:
    return (
        f"FETCH [rdkafka#consumer-1] [thrd:b]: b/1: Topic {tp.topic} [{tp.partition}] MessageSet "
        f'size {size}, error "Success", MaxOffset 30, LSO 30, Ver 2/2'
    )


def unpacked(tp: TopicPartition, records: int, size: int) -> str:
    return (
        f"CONSUME [rdkafka#consumer-1] [thrd:b]: b/1: Enqueue {records} message(s) ({size} bytes, "
        f"{records} ops) on {tp.topic} [{tp.partition}] fetch queue (qlen 0, v2, last_offset 9, 0 "
        "ctrl msgs, 0 aborted msgsets, zstd)"
    )


def test_sample_lines() -> None:
    """The first response with records counts, and headers as those of the message that came."""
    lines = SampleLines()
    say(lines, sent(A0, 0), sent(A0, 300), unpacked(A0, 0, 0), "something else")
    say(lines, sent(A0, 327), sent(A1, 90), unpacked(A0, 10, 1_000_000), unpacked(A1, 1, 80))
    say(lines, sent(A0, 500), unpacked(A0, 20, 20))

    assert lines.take(A0, 3) == FetchSample(A0, 327, 10, 1_000_030)
    assert lines.take(A0, 3) is None
    assert lines.take(A1, 0) == FetchSample(A1, 90, 1, 80)


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


def test_sample_fetches(servers: str) -> None:
    """Several places of a partition are looked at one after another; behind its end is none."""
    config = KafkaConfig({"bootstrap.servers": servers})

    samples = sample_fetches(config, [{A0: 0}, {A0: 300}, {A0: 599}, {A0: 600}])

    assert [sample.tp for sample in samples] == [A0] * 3
    for sample in samples:
        assert sample.unpacked == sample.records * 100_000
        assert 100 < sample.fetched < 20_000
    assert samples[0].records >= samples[2].records >= 1
