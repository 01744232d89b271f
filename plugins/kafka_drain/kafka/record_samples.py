"""How large records are, unpacked: by single ones from a few places of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_drain.errors import SourceRecordError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.message_headers import header_bytes
from kafka_drain.kafka.single_records import messages
from kafka_drain.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class RecordSample:
    """A record from one place of a partition.

    Attributes:
        tp: The partition.
        unpacked: Number of bytes of its key, value and headers.
    """

    tp: TopicPartition
    unpacked: int


def sample_records(
    config: KafkaConfig, places: Iterable[Mapping[TopicPartition, int]]
) -> list[RecordSample]:
    """Return a record from each of some places, where Kafka has any.

    Args:
        config: Connection settings.
        places: Offsets, of each partition one at a time.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    found: list[RecordSample] = []
    for offsets in places:
        try:
            for tp, message in messages(config, offsets, 1):
                size = len(message.key() or b"") + len(message.value() or b"")
                found.append(RecordSample(tp, size + header_bytes(message)))
        except SourceRecordError:
            # Whoever reads it all comes to it, and says what to do.
            continue
    return found
