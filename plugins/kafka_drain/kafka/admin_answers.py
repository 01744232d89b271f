"""Waiting for responses of librdkafka's AdminClient."""

from __future__ import annotations

import concurrent.futures
from typing import Any

from confluent_kafka import KafkaError, KafkaException

#: Time in seconds beyond its own timeout after which a request counts as unanswered.
GRACE_SECONDS = 1.0


def answer_of(future: concurrent.futures.Future[Any], timeout_seconds: float) -> Any:
    """Return the response to a request, or fail with a timeout if no broker responds.

    If a request goes to a broker that dies at that moment, the client waits until the broker comes
    back, even beyond the request's timeout and after its partitions have new leaders.

    Args:
        future: Future of the request.
        timeout_seconds: The request's own timeout.

    Raises:
        KafkaException: With the broker's error, or `_TIMED_OUT` if there was no response.
    """
    try:
        return future.result(timeout_seconds + GRACE_SECONDS)
    # In Python 3.10, this isn't the builtin TimeoutError.
    except concurrent.futures.TimeoutError as error:
        silence = KafkaError(KafkaError._TIMED_OUT, "the client is waiting for a broker")
        raise KafkaException(silence) from error
