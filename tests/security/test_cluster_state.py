"""What a validation notes of a cluster with users and ACLs, and what it leaves out."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewTopic
from upath import UPath

from kafka_drain.archive.cluster_moments import note_moment
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster_state import Acl, ClusterState, Part, PartOutcome, ScramUser
from kafka_drain.kafka.describing import ClusterDescriber
from tests.security.acls import Acls
from tests.security.conftest import PASSWORD
from tests.security.secured_kafka import SecuredKafka

pytestmark = pytest.mark.integration

GROUP = "billing"


@pytest.fixture(scope="module")
def topic(secured: SecuredKafka) -> str:
    """A topic with a setting of its own, a group that has read two records of it, and an ACL."""
    name = f"described-{uuid.uuid4().hex[:8]}"
    new = NewTopic(name, 3, config={"retention.ms": "-1"})
    secured.admin.create_topics([new])[name].result(30)
    at = [TopicPartition(name, 1, 2, metadata="mine", leader_epoch=0)]
    request = ConsumerGroupTopicPartitions(GROUP, at)
    for future in secured.admin.alter_consumer_group_offsets([request]).values():
        future.result(30)
    Acls(secured.admin).allow("reader", "TOPIC", name, "READ")
    Acls(secured.admin).allow("reader", "GROUP", GROUP, "READ")
    secured.scram("reader", PASSWORD)
    return name


def described(settings: dict[str, object], topic: str) -> tuple[ClusterState, int]:
    describer = ClusterDescriber(KafkaConfig(settings))
    return describer.describe([topic]), describer.cost.requests


def test_describe_whole(secured: SecuredKafka, topic: str, tmp_path: Path) -> None:
    """An administrator's drain notes all parts; no credential is among them."""
    state, requests = described(secured.settings("PLAINTEXT"), topic)
    groups = {group.name: group for group in state.groups or ()}
    (settings,) = state.settings.topics or ()

    assert {part: state.parts[part].outcome for part in Part} == {
        **dict.fromkeys(Part, PartOutcome.CAPTURED),
        Part.QUOTAS: PartOutcome.UNSUPPORTED,
        Part.VERSIONS: PartOutcome.UNSUPPORTED,
    }
    assert (settings.partitions, settings.config) == (3, {"retention.ms": "-1"})
    (offset,) = groups[GROUP].offsets
    assert (offset.partition, offset.offset, offset.metadata) == (1, 2, "mine")
    assert groups[GROUP].state == "empty"
    assert Acl("topic", topic, "literal", "User:reader", "*", "read", "allow") in (
        state.settings.acls or ()
    )
    assert ScramUser("reader", "SCRAM-SHA-512", 4096) in (state.settings.users or ())
    assert len(state.settings.brokers or ()) == 1
    assert requests < 10 + 2 * 50
    note_moment(UPath(tmp_path), state, asked_at="", answered_at="")
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*.json"))
    assert PASSWORD.encode() not in written


def test_describe_without_rights(secured: SecuredKafka, topic: str) -> None:
    """A user who may only read the topic notes what he may see, and which parts he may not."""
    state, _ = described(secured.scram("reader", PASSWORD), topic)

    assert state.cluster_id
    assert state.parts[Part.ACLS].outcome == PartOutcome.NOT_AUTHORISED
    assert state.parts[Part.USERS].outcome == PartOutcome.NOT_AUTHORISED
    # Describing topics is implied by Read, their configuration isn't.
    assert state.parts[Part.TOPICS].outcome == PartOutcome.NOT_AUTHORISED
    assert state.settings.acls is None
    assert "lacks DESCRIBE on the cluster" in state.parts[Part.GROUPS].detail
    assert [group.name for group in state.groups or ()] == [GROUP]


def test_describe_no_broker() -> None:
    """A cluster that doesn't answer is noted as that, and fails nothing."""
    state, _ = described({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000}, "none")

    assert state.cluster_id == ""
    assert {state.parts[part].outcome for part in (Part.GROUPS, Part.ACLS)} == {
        PartOutcome.UNANSWERED
    }
