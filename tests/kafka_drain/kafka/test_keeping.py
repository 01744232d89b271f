"""Whether a topic was created for a restore."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kafka_drain.errors import TopicError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.keeping import AFTER, BEFORE, DIFFERENCE, EVERYWHERE, KEEPING, is_keeping
from kafka_drain.kafka.topics import TopicSettings

#: What a cluster doesn't know, by its age.
OLD, NEW = {BEFORE, AFTER}, {DIFFERENCE}


@pytest.mark.parametrize("unknown", [set(), OLD, NEW, OLD | NEW])
def test_is_keeping(unknown: set[str]) -> None:
    """A topic has all that its cluster knows; its other settings don't matter."""
    config = {name: value for name, value in KEEPING.items() if name not in unknown}

    assert is_keeping({**config, "segment.ms": "5"})


@pytest.mark.parametrize(
    "changed", ["cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type"]
)
@pytest.mark.parametrize("value", [None, "other"])
def test_is_keeping_not(changed: str, value: str | None) -> None:
    """Once something was set back, or is another's, it isn't."""
    config = {**KEEPING, changed: value or ""}
    if value is None:
        del config[changed]

    assert not is_keeping(config)


def test_is_keeping_by_people() -> None:
    """People who keep everything for ever still have limits of size and time."""
    taken = {BEFORE, AFTER, DIFFERENCE, "max.message.bytes"}

    assert not is_keeping({name: v for name, v in KEEPING.items() if name not in taken})
    assert not is_keeping({})


@pytest.mark.parametrize(
    ("refused", "kept", "questions"),
    [
        (lambda settings: False, KEEPING, 1),
        (
            lambda settings: DIFFERENCE in settings.config,
            {name: value for name, value in KEEPING.items() if name != DIFFERENCE},
            3 + len(KEEPING),
        ),
        # Refused whatever is set, so that nobody knows what the cluster knows.
        (lambda settings: True, EVERYWHERE, 3),
    ],
)
def test_keeping_settings(
    refused: Callable[[TopicSettings], bool],
    kept: Mapping[str, str],
    questions: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new topic gets what the cluster takes of it, asked with the topic's own shape."""
    asked: list[TopicSettings] = []

    def check(_: KafkaCluster, name: str, settings: TopicSettings) -> None:
        asked.append(settings)
        if refused(settings):
            raise TopicError("Kafka responded: no")

    monkeypatch.setattr(KafkaCluster, "check_new_topic", check)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "never-asked:1"}))

    assert cluster.keeping_settings("t", TopicSettings(6, 3)) == kept
    assert len(asked) == questions
    assert {(each.partitions, each.replication_factor) for each in asked} == {(6, 3)}
