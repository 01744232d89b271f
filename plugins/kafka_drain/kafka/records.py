"""Read records from Kafka, with the columns that data files have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from kafka_drain.errors import (
    AuthorizationError,
    KafkaDrainError,
    KafkaUnavailableError,
    SourceRecordError,
)
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.damaged_batches import damage_heard
from kafka_drain.kafka.fetch_watch import FetchWatch
from kafka_drain.kafka.message_headers import headers_of
from kafka_drain.kafka.reading_client import ReadingClient
from kafka_drain.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

#: Nothing is committed with this group, but Kafka requires the permission to read with it.
GROUP = "kafka-drain-validate"

#: A batch that the client finds damaged, or the broker does.
DAMAGED = (KafkaError._BAD_MSG, KafkaError.INVALID_MSG)

#: Meaning of a broker's answer without a reason, as for a read of its remote store that failed (the
#: broker's RemoteLogReader).
WITHOUT_REASON = (
    "the log of the partition's leader says why. If the topic has tiered storage, an object of its "
    "remote store may be missing, or the store doesn't respond; put it back or restore access"
)

#: Records taken from the client at a time, and how long that may take.
BATCH_RECORDS, BATCH_SECONDS = 10_000, 0.1

_SETTINGS = {
    "group.id": GROUP,
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # If records are gone, don't silently start elsewhere.
    "auto.offset.reset": "error",
    # Java's client checks them too: a batch that it refuses mustn't count as records here.
    "check.crcs": True,
    # How long the client pauses when enough records are queued; the default is a second.
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 10,
    "log_level": 2,
}


def read_records(
    config: KafkaConfig, tp: TopicPartition, span: OffsetRange, isolation_level: str
) -> Iterator[pa.RecordBatch]:
    """Yield the records that Kafka holds of a partition, in the order of offsets.

    A replica that ends before the span does, as a follower or a leader just elected may, has yet to
    learn of the rest, which is waited for.

    Args:
        config: Connection settings.
        span: The offsets; Kafka must still hold what follows its start, and the partition's leader
            have told that it ends no earlier.
        isolation_level: `read_committed` or `read_uncommitted`.

    Yields:
        Batches with the columns of `data_files.records.SCHEMA`.

    Raises:
        AuthorizationError: When an ACL is missing.
        SourceRecordError: When a batch is damaged in Kafka's log.
        KafkaUnavailableError: When Kafka doesn't respond, or deletes records meanwhile.
    """
    own = {**_SETTINGS, "isolation.level": isolation_level}
    with closing(ReadingClient(config, own)) as client:
        watch = FetchWatch()
        client.read_from(tp, span.start, heard=watch.hear)
        at = span.start
        while at < span.end:
            if client.is_outdated:
                client.read_from(tp, at, heard=watch.hear)
            messages = client.take(BATCH_RECORDS, BATCH_SECONDS)
            found = [message for message in messages if message.error() is None]
            if found:
                at = found[-1].offset() + 1
                yield _batch([message for message in found if message.offset() < span.end])
                # What is done with them takes time, too.
                watch.begin()
                if at >= span.end:
                    # What follows doesn't matter, not even that it can't be read.
                    return
            for message in (each for each in messages if each.error() is not None):
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise consumer_error(message.error(), tp, at)
                if message.offset() >= span.end:
                    return
            watch.require(tp, at)


def consumer_error(error: KafkaError, tp: TopicPartition, offset: int) -> KafkaDrainError:
    """Return our error for one of a consumer that validates."""
    if error.name().endswith("AUTHORIZATION_FAILED"):
        lacks = f"Topic {tp.topic}" if error.name().startswith("TOPIC") else f"Group {GROUP}"
        return AuthorizationError(
            f"Kafka refused to let group {GROUP} read {tp} from offset {offset} ({error.str()}); "
            f"expected the ACL READ on {lacks}; add it"
        )
    if error.code() in DAMAGED:
        return SourceRecordError(damage_heard(tp, error.str(), offset))
    if error.code() == KafkaError._BAD_COMPRESSION:
        return SourceRecordError(
            f"kafka-drain can't unpack the batch of {tp} at offset {offset} ({error.str()}): it is "
            "damaged, or larger than 700 MB unpacked with zstd, which only Java's client reads"
        )
    seen = f"Kafka returned {error.str()!r} when reading {tp} from offset {offset}"
    if error.code() == KafkaError.UNKNOWN:
        return KafkaUnavailableError(f"{seen}; {WITHOUT_REASON}, then try again")
    return KafkaUnavailableError(f"{seen}; try again")


def _batch(messages: list[Any]) -> pa.RecordBatch:
    # Not at the top: no other query needs pyarrow, which takes longer to import than most take.
    import pyarrow as pa

    from kafka_drain.data_files.records import SCHEMA

    times = [message.timestamp() for message in messages]
    columns = {
        "key": [message.key() for message in messages],
        "value": [message.value() for message in messages],
        "headers": list(map(headers_of, messages)),
        "topic": [message.topic() for message in messages],
        "partition": [message.partition() for message in messages],
        "offset": [message.offset() for message in messages],
        "timestamp": [microseconds(milliseconds) for _, milliseconds in times],
        # librdkafka counts from 1, Kafka and Spark from 0.
        "timestampType": [kind - 1 for kind, _ in times],
    }
    arrays = [
        pa.array(columns[field.name], pa.int64()).cast(field.type)
        if field.name == "timestamp"
        else pa.array(columns[field.name], field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def microseconds(milliseconds: int) -> int:
    """Return a time in microseconds, in 64 bits: no drain keeps one that doesn't fit."""
    return (milliseconds * 1000 + (1 << 63)) % (1 << 64) - (1 << 63)
