"""What tests of secured Kafka share: one broker, with a topic that everybody may read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.security.acls import Acls
from tests.security.secured_kafka import SecuredKafka, secured_kafka

#: Nobody's real password: it is looked for in whatever a run leaves behind.
PASSWORD = "correct-horse-battery-staple"


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """The broker with an authorizer and every way to log in."""
    with secured_kafka(tmp_path_factory.mktemp("secured"), "user", PASSWORD) as started:
        yield started


@pytest.fixture
def acls(secured: SecuredKafka) -> Acls:
    """What users may do with the broker."""
    return Acls(secured.admin)


@pytest.fixture(scope="session")
def public_topic(secured: SecuredKafka) -> str:
    """A topic of three records that everybody may read."""
    name = "public"
    secured.admin.create_topics([NewTopic(name, 1)])[name].result(30)
    Acls(secured.admin).allow("*", "TOPIC", name, "READ")
    producer = Producer({"bootstrap.servers": secured.kafka.bootstrap_servers, "log_level": 0})
    for number in range(3):
        producer.produce(name, str(number).encode())
    assert producer.flush(30) == 0
    return name
