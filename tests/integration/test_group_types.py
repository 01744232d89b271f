"""Groups of types that librdkafka has no clients for, on a Kafka that has them: seen, or said."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_drain.cut_over.looking import active_groups
from kafka_drain.errors import GroupInUseError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_state import Part
from kafka_drain.kafka.consumer_groups import ConsumerGroups
from kafka_drain.kafka.describing import ClusterDescriber
from kafka_drain.offsets import TopicPartition
from tests.group_members import share_member, streams_member

pytestmark = pytest.mark.integration


def test_groups_of_other_types(other_cluster: KafkaCluster) -> None:
    """A group of Kafka Streams' own protocol is captured, and isn't taken for idle.

    Brokers describe it like one that doesn't exist. A share group has no committed offsets; the
    description says that it is there.
    """
    servers = other_cluster.config.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic("typed", 1, 1)])["typed"].result(20)
    for group in ("plain", "streamed"):
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
        offsets = [KafkaTopicPartition("typed", 0, 30)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
    groups = ConsumerGroups(other_cluster.config)

    with streams_member(servers, "streamed", "typed"), share_member(servers, "shared", "typed"):
        state = ClusterDescriber(other_cluster.config).describe(["typed"], [Part.GROUPS])
        described = {
            name: groups.describe(name) for name in ("plain", "streamed", "shared", "none")
        }
        active = active_groups(["streamed", "plain"], other_cluster, other_cluster)
        committed = groups.all_committed("streamed")
        with pytest.raises(GroupInUseError, match="group streamed is of a type that"):
            groups.idle("streamed", "changing its offsets")

    assert {group.name: [o.offset for o in group.offsets] for group in state.groups} == {
        "plain": [30],
        "streamed": [30],
    }
    assert "shared: of a type that this client can't describe" in state.parts[Part.GROUPS].detail
    assert {name: group.is_idle for name, group in described.items()} == {
        "plain": True,
        "streamed": False,
        "shared": False,
        "none": True,
    }
    assert [group.exists for group in described.values()] == [True, True, True, False]
    assert [line.partition(" at the ")[2] for line in active] == ["source", "target"]
    assert committed[TopicPartition("typed", 0)].offset == 30
