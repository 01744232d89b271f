"""A message of Kafka's consumer, as librdkafka returns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError


class FakeMessage:
    """A record at an offset, or an event with the code of an error.

    Args:
        answers: What its other methods return, by their names.
    """

    def __init__(self, offset: int, code: int | None = None, **answers: Any) -> None:
        error = None if code is None else KafkaError(code, "why")
        self._answers = {"offset": offset, "error": error, **answers}

    def __getattr__(self, name: str) -> Callable[[], Any]:
        return lambda: self._answers[name]
