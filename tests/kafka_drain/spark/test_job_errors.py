"""What a Spark job's error means."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.errors import (
    ConfigError,
    DataLossError,
    KafkaDrainError,
    KafkaUnavailableError,
    SourceRecordError,
    SparkJobError,
)
from kafka_drain.kafka.records import WITHOUT_REASON
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.spark.job_errors import (
    OF_THE_SERVER,
    no_result,
    spark_error,
    too_far_records,
    unread_partitions,
)
from kafka_drain.spark.unkept_records import UNKEPT, unkept_record
from tests.kafka_drain.fake_cluster import FakeCluster, Log

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
LAST_MS = 9_223_372_036_854_775


@pytest.mark.parametrize(
    ("message", "kind", "says"),
    [
        ("[KAFKA_DATA_LOSS.X] …", DataLossError, "Kafka lost offsets while the drain ran"),
        ("values.columns can't be converted to columns", ConfigError, "values.columns"),
        (
            f"Job aborted (java.lang.RuntimeException: {UNKEPT}a-1 offset 7: its timestamp …)",
            SourceRecordError,
            "^a-1 offset 7: its timestamp …; it can't be kept as it was sent",
        ),
        (
            "Job aborted (java.lang.ArithmeticException: long overflow)",
            SourceRecordError,
            "^a-0 offset 3: the timestamp is outside the years -290,308 to 294,247 that Spark can "
            "represent",
        ),
        (
            "Job aborted (java.lang.OutOfMemoryError: Java heap space)",
            SparkJobError,
            "ran out of memory.*20,000 now: `--source-option kafka.max.poll.records=2000`.*"
            "isn't enough, raise driver_memory, currently 1g",
        ),
        ("GC overhead limit exceeded", SparkJobError, "driver_memory"),
        (
            "[INVALID_HANDLE.SESSION_CLOSED] The handle 0a1b is invalid. Session was closed.",
            SparkJobError,
            "^the Spark Connect server has ended the session; a retry resumes",
        ),
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs "
            "detected for 60.",
            SparkJobError,
            "^another Spark application, which a killed command has left, drains to the same arch",
        ),
        ("Multiple streaming jobs detected for 60.", SparkJobError, "^another Spark application"),
        ("Received incorrect server side session identifier.", SparkJobError, "a retry resumes"),
        ("[NO_ACTIVE_SESSION] No active Spark session found.", SparkJobError, "a retry resumes"),
        (
            "Received exception when fetching the next record from a-0. If needed, please seek "
            "past the record to continue consumption. (org.apache.kafka.common.errors."
            "CorruptRecordException: Record batch for partition a-0 at offset 400 is invalid, "
            "cause: Record is corrupt (stored crc = 1)) SQLSTATE: XXKST",
            SourceRecordError,
            r"^a-0 offset 400: the batch that starts here is damaged in Kafka's log \(Record is "
            r"corrupt\), .*replica.*Nothing of its batch was committed",
        ),
        (
            "Encountered corrupt message when fetching offset 7 for topic-partition a.b-1",
            SourceRecordError,
            r"^a.b-1 offset 7: .*\(corrupt message\)",
        ),
        (
            "java.util.concurrent.TimeoutException: Cannot fetch record for offset 9 in 120000 "
            "milliseconds",
            SparkJobError,
            r"^Kafka sent nothing for 120 s when the drain read a-0 offset 9 \(no\); the log of "
            "the partition's leader says why.* has tiered storage, .* Nothing of its batch",
        ),
        ("No space left on device", SparkJobError, "^the drain failed in Spark: No space left"),
    ],
)
def test_spark_error(message: str, kind: type[KafkaDrainError], says: str) -> None:
    """What the job says decides whether a retry can help, and what to do is said."""
    error = spark_error(
        message,
        what="drain",
        memory="1g",
        polled=20_000,
        too_far=lambda: ["a-0 offset 3"],
        unread=lambda offset: [f"a-0 offset {offset} (no)"],
    )

    assert type(error) is kind
    with pytest.raises(kind, match=says):
        raise error


def test_spark_error_too_far_not_found() -> None:
    """A time that nobody finds any more is told without its record."""
    how: Any = {"what": "drain", "memory": "1g", "polled": None, "too_far": list}
    how["unread"] = lambda offset: []

    error = spark_error("long overflow", **how)
    assert "a record (Spark doesn't report its partition)" in str(error)

    error = spark_error("Cannot fetch record for offset 9 in 500 milliseconds", **how)
    assert "for 0.5 s when the drain read a partition's offset 9, which can be" in str(error)

    how["unread"] = lambda offset: [f"a-0 offset {offset} (no; {WITHOUT_REASON})"]
    error = spark_error("Cannot fetch record for offset 9 in 500 milliseconds", **how)
    assert str(error).count(WITHOUT_REASON) == 1


def test_unread_partitions() -> None:
    """Of the partitions that were to be read there, those that Kafka doesn't deliver are named."""

    class Broken(FakeCluster):
        def records(self, tp: TopicPartition, *asked: Any) -> Any:
            if tp == A1:
                raise KafkaUnavailableError("Kafka returned 'Unknown broker error'")
            return super().records(tp, *asked)

    cluster: Any = Broken({A0: Log(end=9), A1: Log(end=9)})
    ranges = {A0: [OffsetRange(0, 9)], A1: [OffsetRange(0, 9)]}

    assert unread_partitions(cluster, ranges, 4) == [
        "a-1 offset 4 (Kafka returned 'Unknown broker error')"
    ]
    assert unread_partitions(cluster, ranges, 9) == []
    # A recreated topic's partition may have been read in several ranges.
    parted = {A1: [OffsetRange(0, 2), OffsetRange(4, 9)], A0: [OffsetRange(0, 2)]}
    assert len(unread_partitions(cluster, parted, 4)) == 1
    assert unread_partitions(cluster, parted, 3) == []


def test_no_result_of_memory() -> None:
    """A job that the system killed is told with what to do where memory was the reason.

    What costs nothing comes first, unless no record of Kafka's was read, or one at a time.
    """
    said = str(no_result("drain", "1g", 160))
    assert said.index("kafka.max.poll.records=16`") < said.index("driver_memory")
    assert "kafka.max.poll.records=1`" in str(no_result("drain", "1g", 9))
    for polled in (None, 1):
        assert "max.poll.records" not in str(no_result("drain", "1g", polled))
    assert "driver_memory, currently 1g" in str(no_result("window", "1g"))
    said = str(no_result("window", OF_THE_SERVER))
    assert said.startswith("the client exited before the window wrote a result")
    assert "spark-server --memory" in said
    assert "driver_memory" not in said


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Job aborted", None),
        (f"x: {UNKEPT}a-1 offset 7: why", "a-1 offset 7: why"),
        (f"x ({UNKEPT}a-1 offset 7: why)", "a-1 offset 7: why"),
        (f"{UNKEPT}a-1 offset 7: why SQLSTATE: P0001\nat x", "a-1 offset 7: why"),
    ],
)
def test_unkept_record(message: str, expected: str | None) -> None:
    """The record is taken out of whatever Spark says around it."""
    assert unkept_record(message) == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({A0: {3: LAST_MS}}, []),
        ({A0: {3: LAST_MS + 1}}, ["a-0 offset 3"]),
        ({A0: {3: LAST_MS + 1}, A1: {5: 1 << 62}}, ["a-0 offset 3", "a-1 offset 5"]),
        ({A0: {2: LAST_MS + 1}}, []),
    ],
)
def test_too_far_records(times: dict[TopicPartition, dict[int, int]], expected: list[str]) -> None:
    """The first record later than Spark can hold is named, of each partition, where it was read."""
    cluster = FakeCluster({tp: Log(end=9, times=times.get(tp)) for tp in (A0, A1)})
    ranges = {tp: [OffsetRange(3, 9)] for tp in (A0, A1)}

    assert too_far_records(cluster, ranges) == expected  # type: ignore[arg-type]
    parted = {tp: [OffsetRange(0, 1), *each] for tp, each in reversed(ranges.items())}
    assert too_far_records(cluster, parted) == expected  # type: ignore[arg-type]
