"""Our sets of Kafka's error codes compared with Kafka's own table."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.kafka.error_codes import PASSING

pytestmark = pytest.mark.integration

#: Retriable for Kafka's own clients, but excluded: corruption isn't transient; missing topics have
#: an error of their own; the rest belongs to requests that we never make.
LEFT_OUT = {
    "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "FETCH_SESSION_TOPIC_ID_ERROR",
    "SHARE_SESSION_NOT_FOUND",
    "INVALID_SHARE_SESSION_EPOCH",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "ELECTION_NOT_NEEDED",
}


def test_passing_codes_of_kafka(spark: Any) -> None:
    """Transient errors are those that Kafka calls retriable, except the excluded ones."""
    kafka = spark._jvm.org.apache.kafka.common
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    is_retriable = loader.loadClass("org.apache.kafka.common.errors.RetriableException").isInstance
    retriable = {
        int(error.code())
        for error in kafka.protocol.Errors.values()
        if error.name() not in LEFT_OUT and is_retriable(error.exception())
    }

    assert retriable
    # Codes below 0 are librdkafka's own.
    assert {code for code in PASSING if code > 0} == retriable
