"""What a consumer's error becomes, without a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from kafka_drain.errors import (
    AuthorizationError,
    KafkaDrainError,
    KafkaUnavailableError,
    SourceRecordError,
)
from kafka_drain.kafka.records import consumer_error
from kafka_drain.offsets import TopicPartition


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
