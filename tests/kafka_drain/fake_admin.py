"""A client for requests that answers with errors first, and what asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kafka_drain.kafka.admin import Admin
from kafka_drain.kafka.client_config import KafkaConfig


class FakeClient:
    """Answers any request with errors first, then with a value.

    Args:
        value: The answer.
        codes: The errors before it.
    """

    def __init__(self, value: Any, *codes: int) -> None:
        self._value = value
        self._codes = list(codes)
        self.asked = 0
        #: The groups that it lists.
        self.groups: list[str] = []
        #: What a call of `poll` reports: the error of a connection.
        self.reports: tuple[Callable[[KafkaError], None], KafkaError] | None = None

    def list_topics(self, **_: Any) -> Any:
        return self._answer().result()

    def describe_consumer_groups(self, asked: Iterable[Any], **_: Any) -> dict[Any, Future[Any]]:
        return {each: self._answer() for each in asked}

    create_acls = incremental_alter_configs = describe_consumer_groups

    def list_groups(self, *_: Any, **__: Any) -> list[str]:
        return self.groups

    def poll(self, _: float) -> int:
        if self.reports is not None:
            note, error = self.reports
            note(error)
        return 0

    def _answer(self) -> Future[Any]:
        self.asked += 1
        future: Future[Any] = Future()
        if self._codes:
            future.set_exception(KafkaException(KafkaError(self._codes.pop(0))))
        else:
            future.set_result(self._value)
        return future


class FakeAdmin(Admin):
    """Asks a client that is given, even after errors."""

    def __init__(self, client: FakeClient, timeout_seconds: float, **settings: str) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        super().__init__(KafkaConfig({"bootstrap.servers": "k:1"} | given), timeout_seconds)
        self._given = client

    @property
    def client(self) -> Any:  # type: ignore[override]
        return self._given
