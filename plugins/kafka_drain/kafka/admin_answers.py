"""Waiting for what librdkafka's AdminClient was asked."""

from __future__ import annotations

import concurrent.futures
from typing import Any

from confluent_kafka import KafkaError, KafkaException

__all__ = ["answer_of"]

#: How much longer than its own timeout a request may take until it counts as unanswered.
GRACE_SECONDS = 1.0


def answer_of(future: concurrent.futures.Future[Any], timeout_seconds: float) -> Any:
    """Return what a request was answered, or fail as when no broker answers.

    A client whose request goes to a broker that dies in this moment waits until it comes back,
    also beyond the request's timeout, though the partitions have other leaders by then.

    Args:
        future: Of the request.
        timeout_seconds: The request's own timeout.

    Raises:
        KafkaException: With the broker's answer, or `_TIMED_OUT` when there was none.
    """
    try:
        return future.result(timeout_seconds + GRACE_SECONDS)
    # Python 3.10's is not the builtin TimeoutError.
    except concurrent.futures.TimeoutError as error:
        silence = KafkaError(KafkaError._TIMED_OUT, "the client waits for a broker")
        raise KafkaException(silence) from error
