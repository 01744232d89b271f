"""Interpret a Spark job's error: whether a retry can help, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from kafka_drain.errors import (
    ConfigError,
    DataLossError,
    KafkaDrainError,
    SourceRecordError,
    SparkJobError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.damaged_batches import damaged_batch
from kafka_drain.kafka.records import WITHOUT_REASON
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.spark.unkept_records import WAY_OUT, unkept_record

#: In the place of a heap size: a Spark Connect server has its own.
OF_THE_SERVER = "the server's"

#: Spark 4's error class, Spark's message text, and the Kafka client's exception under Spark 3.5.
_DATA_LOSS = ("KAFKA_DATA_LOSS", "data may have been lost", "OffsetOutOfRangeException")
_NO_MEMORY = ("OutOfMemoryError", "Java heap space", "GC overhead limit exceeded")
#: Spark of a record that its consumer doesn't get.
_WAITED = re.compile(r"Cannot fetch record for offset (?P<offset>\d+) in (?P<ms>\d+) millisec")
#: Spark of a batch that another query has written to the same checkpoint.
_OTHER_WRITER = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected")
#: Messages of a Spark Connect server, or pyspark's client, about a session that has ended.
_NO_SESSION = ("INVALID_HANDLE.SESSION", "NO_ACTIVE_SESSION", "server side session identifier")

#: The last millisecond that Spark can represent: it counts microseconds in 64 bits.
_LAST_MS = (2**63 - 1) // 1000


def spark_error(
    message: str,
    *,
    what: str,
    memory: str,
    polled: int | None,
    too_far: Callable[[], list[str]],
    unread: Callable[[int], list[str]],
) -> KafkaDrainError:
    """Return the error of a job that read from Kafka and failed.

    Args:
        message: The job's error message.
        what: The job's name in messages.
        memory: The driver's heap size, or `OF_THE_SERVER`.
        polled: Number of records that a Kafka consumer takes at a time; None without one.
        too_far: Returns the records whose timestamps Spark can't represent; called only if these
            may be the reason.
        unread: Returns the partitions that don't deliver the record at an offset; called only if
            Spark waited for one in vain, which doesn't say of which partition.
    """
    if any(words in message for words in _DATA_LOSS):
        return DataLossError(f"Kafka lost offsets while the {what} ran: {message}")
    if message.startswith("values."):
        return ConfigError(message)
    unkept = unkept_record(message)
    if unkept is not None:
        return SourceRecordError(f"{unkept}; it can't be kept as it was sent. {WAY_OUT}")
    damaged = damaged_batch(message)
    if damaged is not None:
        return SourceRecordError(
            f"{damaged}. If no copy is intact, its records are lost; what follows for one record "
            f"holds for the batch, which ends where the next record can be read. {WAY_OUT}"
        )
    if waited := _WAITED.search(message):
        offset, seconds = int(waited["offset"]), int(waited["ms"]) / 1000
        named = "; ".join(unread(offset)) or f"a partition's offset {offset}, which can be read now"
        reason = "" if WITHOUT_REASON in named else f"; {WITHOUT_REASON}"
        return SparkJobError(
            f"Kafka sent nothing for {seconds:g} s when the {what} read {named}{reason}. Nothing "
            "of its batch was committed; a retry continues after the last batch that was"
        )
    if "long overflow" in message:
        named = ", ".join(too_far()) or "a record (Spark doesn't report its partition)"
        return SourceRecordError(
            f"{named}: the timestamp is outside the years -290,308 to 294,247 that Spark can "
            f"represent; it can't be kept as it was sent. {WAY_OUT}"
        )
    if any(words in message for words in _NO_MEMORY):
        return SparkJobError(f"the {what} ran out of memory: {message}; {_remedy(memory, polled)}")
    if any(words in message for words in _OTHER_WRITER):
        return SparkJobError(
            "another Spark application, which a killed command has left, drains to the same "
            "archive without its lease, on another machine or a Spark Connect server. End it, or "
            f"wait for its end, then run the same command again. The {what} failed with: {message}"
        )
    if any(words in message for words in _NO_SESSION):
        return SparkJobError(
            "the Spark Connect server has ended the session; a retry resumes after the last "
            f"committed batch. The {what} heard: {message}"
        )
    return SparkJobError(f"the {what} failed in Spark: {message}")


def no_result(what: str, memory: str, polled: int | None = None) -> SparkJobError:
    """Return the error of a job that ended without a result, for example because it was killed.

    Args:
        what: The job's name in messages.
        memory: The driver's heap size, or `OF_THE_SERVER`.
        polled: Number of records that a Kafka consumer takes at a time; None without one.
    """
    program = "the client" if memory == OF_THE_SERVER else "spark-submit"
    return SparkJobError(
        f"{program} exited before the {what} wrote a result; the log above has the reason. "
        f"If that is an OutOfMemoryError, or the system killed the process for its memory use: "
        f"{_remedy(memory, polled)}"
    )


def _remedy(memory: str, polled: int | None) -> str:
    """Return the remedies for a job whose memory wasn't enough, the cheapest first."""
    if polled is None or polled == 1:
        return _more_memory(memory)
    # Nobody knows the sizes of the records that it was reading.
    fewer = max(1, polled // 10)
    return (
        f"have it take fewer records from Kafka at a time, {polled:,} now: `--source-option "
        f"kafka.max.poll.records={fewer}`, or this in the pipeline's source_options. If that "
        f"isn't enough, {_more_memory(memory)}"
    )


def _more_memory(memory: str) -> str:
    if memory == OF_THE_SERVER:
        return "start the Spark Connect server with more: `kafka-drain spark-server --memory SIZE`"
    return (
        f"raise driver_memory, currently {memory} (on a cluster, spark.executor.memory in "
        "spark_conf), or run fewer tasks at once (local[1] as the Spark connection)"
    )


def too_far_records(
    cluster: KafkaCluster, ranges: Mapping[TopicPartition, Iterable[OffsetRange]]
) -> list[str]:
    """Return each partition's first record with a timestamp later than Spark can represent.

    Args:
        cluster: The cluster to ask.
        ranges: The offsets that were read.

    Raises:
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    found = cluster.at_times(dict.fromkeys(ranges, _LAST_MS + 1))
    return [
        f"{tp} offset {offset}"
        for tp, offset in sorted(found.items())
        if any(offset in each for each in ranges[tp])
    ]


def unread_partitions(
    cluster: KafkaCluster, ranges: Mapping[TopicPartition, Iterable[OffsetRange]], offset: int
) -> list[str]:
    """Return the partitions that don't deliver the record at an offset, and Kafka's error.

    Args:
        cluster: The cluster to ask.
        ranges: The offsets that were to be read.
    """
    found = []
    for tp in sorted(tp for tp, parts in ranges.items() if any(offset in each for each in parts)):
        span = OffsetRange(offset, offset + 1)
        try:
            for _ in cluster.records(tp, span, "read_uncommitted"):
                pass
        except KafkaDrainError as error:
            found.append(f"{tp} offset {offset} ({error})")
    return found
