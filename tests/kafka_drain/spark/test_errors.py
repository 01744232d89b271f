"""What a Spark job's error means."""

from __future__ import annotations

import pytest

from kafka_drain.errors import (
    ConfigError,
    DataLossError,
    KafkaDrainError,
    SourceRecordError,
    SparkJobError,
)
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.spark.errors import OF_THE_SERVER, no_result, spark_error, too_far_records
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
            "ran out of memory.*raise driver_memory, currently 1g",
        ),
        ("GC overhead limit exceeded", SparkJobError, "driver_memory"),
        (
            "[INVALID_HANDLE.SESSION_CLOSED] The handle 0a1b is invalid. Session was closed.",
            SparkJobError,
            "^the Spark Connect server has ended the session; a retry resumes",
        ),
        ("Received incorrect server side session identifier.", SparkJobError, "a retry resumes"),
        ("[NO_ACTIVE_SESSION] No active Spark session found.", SparkJobError, "a retry resumes"),
        ("No space left on device", SparkJobError, "^the drain failed in Spark: No space left"),
    ],
)
def test_spark_error(message: str, kind: type[KafkaDrainError], says: str) -> None:
    """What the job says decides whether a retry can help, and what to do is said."""
    error = spark_error(message, what="drain", memory="1g", too_far=lambda: ["a-0 offset 3"])

    assert type(error) is kind
    with pytest.raises(kind, match=says):
        raise error


def test_spark_error_too_far_not_found() -> None:
    """A time that nobody finds any more is told without its record."""
    error = spark_error("long overflow", what="drain", memory="1g", too_far=list)

    assert "a record (Spark doesn't report its partition)" in str(error)


def test_no_result_of_memory() -> None:
    """A job that the system killed is told with what to do where memory was the reason."""
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
