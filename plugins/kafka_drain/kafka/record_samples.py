"""How large records are, unpacked: by single ones from a few places of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from kafka_drain.errors import KafkaUnavailableError, SourceRecordError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.message_headers import header_bytes
from kafka_drain.kafka.single_records import messages
from kafka_drain.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class RecordSample:
    """A record from one place of a partition.

    Attributes:
        unpacked: Number of bytes of its key, value and headers.
    """

    tp: TopicPartition
    unpacked: int


def sample_records(
    config: KafkaConfig, places: Iterable[Mapping[TopicPartition, int]]
) -> list[RecordSample]:
    """Return the size of a record from each of some places, where Kafka has any.

    What can't be read ends the search: whoever reads it all comes to it, and says what to do.

    Args:
        config: Connection settings.
        places: Offsets, of each partition one at a time.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
    """
    found: list[RecordSample] = []
    with suppress(KafkaUnavailableError, SourceRecordError):
        for tp, message in messages(config, places, 1):
            size = len(message.key() or b"") + len(message.value() or b"")
            found.append(RecordSample(tp, size + header_bytes(message)))
    return found
