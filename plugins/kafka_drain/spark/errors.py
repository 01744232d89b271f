"""What a Spark job's error means: whether a retry can help, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafka_drain.errors import (
    ConfigError,
    DataLossError,
    KafkaDrainError,
    SourceRecordError,
    SparkJobError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.spark.unkept_records import WAY_OUT, unkept_record

__all__ = ["no_result", "spark_error", "too_far_records"]

#: What Spark 4 calls it, in its own words, and what Kafka's client says beneath Spark 3.5.
_DATA_LOSS = ("KAFKA_DATA_LOSS", "data may have been lost", "OffsetOutOfRangeException")
_NO_MEMORY = ("OutOfMemoryError", "Java heap space", "GC overhead limit exceeded")

#: The last millisecond that Spark can hold, which counts microseconds in 64 bits.
_LAST_MS = (2**63 - 1) // 1000


def spark_error(
    message: str, *, what: str, memory: str, too_far: Callable[[], list[str]]
) -> KafkaDrainError:
    """Return the error of a job that read from Kafka and failed.

    Args:
        message: What the job says.
        what: The job, for people.
        memory: The driver's heap.
        too_far: Names the records whose time Spark can't hold; asked where that may be the reason.
    """
    if any(words in message for words in _DATA_LOSS):
        return DataLossError(f"Kafka lost offsets while the {what} ran: {message}")
    if message.startswith("values."):
        return ConfigError(message)
    unkept = unkept_record(message)
    if unkept is not None:
        return SourceRecordError(f"{unkept}; it can't be kept as it was sent. {WAY_OUT}")
    if "long overflow" in message:
        named = ", ".join(too_far()) or "a record (of which partition, Spark doesn't say)"
        return SourceRecordError(
            f"{named}: the timestamp is beyond what Spark can hold, of the years -290,308 to "
            f"294,247; it can't be kept as it was sent. {WAY_OUT}"
        )
    if any(words in message for words in _NO_MEMORY):
        return SparkJobError(f"the {what} hadn't enough memory: {message}. {_more_memory(memory)}")
    return SparkJobError(f"the {what} failed in Spark: {message}")


def no_result(what: str, memory: str) -> SparkJobError:
    """Return the error of a job that ended without a word, as one does that is killed."""
    return SparkJobError(
        f"spark-submit ended before the {what} wrote a result; the reason is in the log above. "
        f"Where that is an OutOfMemoryError, or the system killed it for its memory: "
        f"{_more_memory(memory)}"
    )


def _more_memory(memory: str) -> str:
    return (
        f"raise driver_memory, which is {memory} (on a cluster, spark.executor.memory in "
        "spark_conf), or let fewer tasks share it (local[1] as the Spark connection)"
    )


def too_far_records(
    cluster: KafkaCluster, ranges: Mapping[TopicPartition, Iterable[OffsetRange]]
) -> list[str]:
    """Name the first record of each partition whose time is later than Spark can hold.

    Args:
        cluster: Where to ask.
        ranges: What was read.

    Raises:
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    found = cluster.at_times(dict.fromkeys(ranges, _LAST_MS + 1))
    return [
        f"{tp} offset {offset}"
        for tp, offset in sorted(found.items())
        if any(offset in each for each in ranges[tp])
    ]
