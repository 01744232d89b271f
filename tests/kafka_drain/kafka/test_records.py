"""What a consumer's error becomes, and up to where records are read; without a broker."""

from __future__ import annotations

from threading import Timer

import pytest
from confluent_kafka import KafkaError, Producer

from kafka_drain.errors import (
    AuthorizationError,
    KafkaDrainError,
    KafkaUnavailableError,
    SourceRecordError,
)
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.records import consumer_error, read_records
from kafka_drain.offsets import OffsetRange, TopicPartition


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, AuthorizationError, "READ on Group"),
        (KafkaError._BAD_MSG, SourceRecordError, "a-1 offset 5"),
        (KafkaError._BAD_COMPRESSION, SourceRecordError, "batch of a-1 at offset 5.*700 MB unpack"),
        (KafkaError.UNKNOWN, KafkaUnavailableError, "a-1 from offset 5; the log of.*remote store"),
        (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaUnavailableError, "from offset 5; try again$"),
    ],
)
def test_consumer_error(code: int, kind: type[KafkaDrainError], says: str) -> None:
    """It names partition and offset; one without a reason says where the reason may be."""
    error = consumer_error(KafkaError(code, "why"), TopicPartition("a", 1), 5)

    assert type(error) is kind
    with pytest.raises(kind, match=says):
        raise error


def test_read_records_replica_behind() -> None:
    """A replica that hasn't learned yet of what the leader told doesn't lack its records."""
    tp = TopicPartition("a", 0)
    producer = Producer(
        {"test.mock.num.brokers": 1, "bootstrap.servers": "replaced:1", "log_level": 0}
    )

    def send(records: int) -> None:
        for _ in range(records):
            producer.produce(tp.topic, b"value", partition=tp.partition)
        producer.flush(10)

    send(5)
    [broker] = producer.list_topics(tp.topic).brokers.values()
    config = KafkaConfig({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    later = Timer(1, send, [1])
    later.start()

    batches = list(read_records(config, tp, OffsetRange(0, 6), "read_uncommitted"))

    later.join()
    assert [at for batch in batches for at in batch["offset"].to_pylist()] == [0, 1, 2, 3, 4, 5]
