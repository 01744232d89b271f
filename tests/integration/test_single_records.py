"""Single records of many partitions, read from a real broker with one consumer."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_drain.data_files.xxhash64 import record_hashes
from kafka_drain.kafka import fetch_size, fetch_watch, single_records
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.reading_client import ReadingClient
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_probe
from tests.faults.injection import NOON

pytestmark = pytest.mark.integration

PARTITIONS = 250


def test_single_records_of_many_partitions(
    cluster: KafkaCluster, make_topic: Any, bootstrap_servers: str
) -> None:
    """Each partition's record comes, whatever the size of its batch and of what follows it."""
    topic = make_topic(partitions=PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "log_level": 0, "message.max.bytes": 8 << 20}
    )
    for partition in range(0, PARTITIONS, 2):
        for number in range(3):
            # More than is asked for at a time, of some partitions.
            size = 300_000 if partition % 50 == 0 else 100
            headers = [("h", b"1")] if number else None
            producer.produce(
                topic, os.urandom(size), b"%d" % number, partition, timestamp=NOON, headers=headers
            )
    assert producer.flush(60) == 0
    asked = {TopicPartition(topic, partition): 1 for partition in range(PARTITIONS)}

    began = time.monotonic()
    found = cluster.single_records(asked)

    assert set(found) == {TopicPartition(topic, n) for n in range(0, PARTITIONS, 2)}
    assert {record.offset for record in found.values()} == {1}
    assert {record.leader_epoch for record in found.values()} == {0}
    assert time.monotonic() - began < 20
    some = TopicPartition(topic, 50)
    [batch] = cluster.records(some, OffsetRange(1, 2), "read_uncommitted")
    [(_, _, [value])] = record_hashes(batch, topic)
    assert f"{value:016x}" in found[some].hashes
    assert len(found[some].hashes) == 2


def test_sample_records_of_one_partition(
    cluster: KafkaCluster, make_topic: Any, bootstrap_servers: str
) -> None:
    """Places of one partition are read one after another, forth and back, without waiting."""
    one = TopicPartition(make_topic(partitions=1), 0)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "batch.num.messages": 10})
    for number in range(10_000):
        producer.produce(one.topic, bytes(number % 100), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    places = [*range(0, 10_000, 47), *range(9_999, 0, -53)]

    began = time.monotonic()
    found = cluster.sample_records([{one: place} for place in places])

    assert [record.unpacked for record in found] == [place % 100 for place in places]
    assert time.monotonic() - began < 20


def test_single_records_committed(
    cluster: KafkaCluster, make_topic: Any, bootstrap_servers: str
) -> None:
    """Aborted records and markers are passed, up to a committed record or the end of the log."""
    topic = make_topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    for end in (
        producer.abort_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
    ):
        producer.begin_transaction()
        for partition in range(2):
            # The other partition has nothing that was committed.
            if end == producer.abort_transaction or partition == 0:
                producer.produce(topic, b"v", partition=partition)
        assert producer.flush(60) == 0
        end(30)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def found(**offsets: int) -> dict[TopicPartition, int]:
        asked = {
            tp: offsets[name] for name, tp in (("one", one), ("other", other)) if name in offsets
        }
        seen = cluster.single_records(asked, "read_committed")
        return {tp: record.offset for tp, record in seen.items()}

    assert found(one=0, other=0) == {one: 2}
    assert found(one=2, other=2) == {one: 2}
    assert found(one=3) == {}
    assert found() == {}


def test_reading_over_aborted_records(
    cluster: KafkaCluster, make_topic: Any, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aborted records that take longer than an outage would are passed: they are no outage."""
    monkeypatch.setattr(fetch_watch, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr(fetch_watch, "REPORT_MS", 100)
    monkeypatch.setattr(ReadingClient.__init__, "__defaults__", (100,))
    monkeypatch.setattr(fetch_watch, "POLL_SECONDS", 0.05)
    # A batch in each response, which takes a millisecond here.
    for settings in (single_records._SETTINGS, fetch_size.BOUNDED):
        monkeypatch.setitem(settings, "fetch.max.bytes", 1_000)
        monkeypatch.setitem(settings, "message.max.bytes", 1_000)
    monkeypatch.setitem(single_records._SETTINGS, "fetch.message.max.bytes", 1)
    topic = make_topic(partitions=1)
    tp, count = TopicPartition(topic, 0), 12_000
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": topic,
            "batch.num.messages": 1,
        }
    )
    producer.init_transactions(60)
    for records, end in ((count, producer.abort_transaction), (1, producer.commit_transaction)):
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, b"v" * 1_000, partition=0)
        assert producer.flush(60) == 0
        end(30)

    began = time.monotonic()
    found = cluster.single_records({tp: 0}, "read_committed")
    assert time.monotonic() - began > fetch_watch.QUIET_SECONDS
    assert {each.offset for each in found.values()} == {count + 1}
    span = OffsetRange(0, count + 2)
    read = [batch.num_rows for batch in cluster.records(tp, span, "read_committed")]
    assert sum(read) == 1
    with gap_probe._consumer(cluster, "read_committed") as client:
        assert gap_probe._records_in(client, tp, [span]) == [OffsetRange(count + 1, count + 2)]


def test_single_records_not_there(cluster: KafkaCluster, make_topic: Any, send: Any) -> None:
    """At the end of a log, and after records that were deleted, the answer is none."""
    topic = make_topic(partitions=1)
    tp = TopicPartition(topic, 0)
    send(topic, [(b"k", b"v", None, NOON)])

    assert cluster.single_records({tp: 1}) == {}
    assert cluster.single_records({tp: 5}) == {}
    assert cluster.single_records({}) == {}
