"""An unclean leader election on three nodes: what was drained of the lost end is found."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import DataLossError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.roll import plan_roll, roll
from tests.brokers import SHORT_LIVED
from tests.conftest import Drain
from tests.faults.injection import NOON, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.cluster]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Three brokers."""
    quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    folder = tmp_path_factory.mktemp("unclean")
    with LocalKafka(
        folder / "kafka", nodes=3, properties=quick, heap="384m", java_options=SHORT_LIVED
    ) as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap_servers(local: LocalKafka) -> str:
    """Their addresses, for everything in this module."""
    return local.bootstrap_servers


@pytest.fixture(scope="module")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The same brokers, as the product sees them."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


def partition_of(admin: AdminClient, topic: str) -> tuple[int, set[int]]:
    """Return the leader of a topic's partition, and its replicas in sync."""
    try:
        found = admin.list_topics(topic, timeout=5).topics[topic].partitions[0]
    except (KafkaException, KeyError):
        return -1, set()
    return found.leader, set(found.isrs)


def records(name: str, first: int, end: int) -> list[Any]:
    return [(b"k", b"%s-%d" % (name.encode(), n), None, NOON + n) for n in range(first, end)]


def test_drain_unclean_election(
    archive_folder: str,
    local: LocalKafka,
    drain: Drain,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    send: Any,
) -> None:
    """A follower that missed the end of a log becomes its leader: the drain is refused."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    config = {
        "unclean.leader.election.enable": "true",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
    }
    new = NewTopic(topic, 1, replica_assignment=[[1, 2]], config=config)
    admin.create_topics([new])[topic].result(30)
    wait_for(lambda: partition_of(admin, topic) == (1, {1, 2}), "both replicas in sync")
    send(topic, records("old", 0, 13))
    local.kill_node(2)
    wait_for(lambda: partition_of(admin, topic) == (1, {1}), "a follower less")
    send(topic, records("old", 13, 20))
    pipeline, archive = (
        Pipeline(name="p", topics=[topic], archive=archive_folder),
        Archive.at(archive_folder),
    )
    drain(pipeline)
    assert validate_archive(archive, cluster).complete

    local.kill_node(1)
    local.start_node(2)
    wait_for(lambda: partition_of(admin, topic)[0] == 2, "the follower as the leader")
    send(topic, records("new", 13, 28))
    local.start_node(1)
    wait_for(lambda: partition_of(admin, topic)[1] == {1, 2}, "both replicas in sync again")

    tp = TopicPartition(topic, 0)
    assert cluster.latest([tp], "read_committed")[tp] == 28
    with pytest.raises(DataLossError, match=f"{tp} from offset 13 on"):
        preflight(pipeline, cluster)
    assert not validate_archive(archive, cluster).complete

    roll(plan_roll(archive, cluster, rewritten=True))
    assert drain(pipeline)["records"] == 15
    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, report.findings, report.records) == (True, [], 35)
