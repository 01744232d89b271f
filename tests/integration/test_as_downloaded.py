"""A broker with Kafka's own settings: a week's retention, 1 MiB, topics that clients can create."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands import translate_group
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.intervals import Interval
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from tests.brokers import SHORT_LIVED
from tests.conftest import Drain

pytestmark = pytest.mark.integration

SOURCE, TARGET, GROUP = "orders", "orders_restored", "billing"
HOUR = timedelta(hours=1)
#: Retention counts from today.
DAY = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - 24 * HOUR
#: Nearly as much as a message may have.
LARGE = random.Random(1).randbytes(1_000_000)


@pytest.fixture(scope="module")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that has no setting of ours but addresses and folders."""
    folder = tmp_path_factory.mktemp("downloaded") / "kafka"
    with LocalKafka(folder, java_options=SHORT_LIVED, as_downloaded=True) as local:
        yield local.bootstrap_servers


@pytest.fixture(scope="module")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The same broker, as the product sees it."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    """A client that makes topics and looks at settings."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def record(hours: float, value: bytes | None = b"v") -> tuple[bytes, bytes | None, Any, int]:
    """Return a record of a time of the day."""
    return b"k", value, [("h", b"1")], int((DAY + hours * HOUR).timestamp() * 1000)


def settings(admin: AdminClient, kind: Any, name: str) -> dict[str, str]:
    resource = ConfigResource(kind, name)
    entries: Any = admin.describe_configs([resource])[resource].result(30)
    return {entry.name: str(entry.value) for entry in entries.values()}


def test_broker_as_downloaded(admin: AdminClient) -> None:
    """What this module promises of its broker."""
    [broker] = admin.list_topics(timeout=30).brokers

    found = settings(admin, ResourceType.BROKER, str(broker))

    assert {
        "auto.create.topics.enable": "true",
        "message.max.bytes": "1048588",
        "log.retention.hours": "168",
        "offsets.topic.num.partitions": "50",
        "transaction.state.log.num.partitions": "50",
        "group.initial.rebalance.delay.ms": "3000",
    }.items() <= found.items()


def test_from_kafka_to_files_and_back(
    archive_folder: str,
    bootstrap_servers: str,
    cluster: KafkaCluster,
    admin: AdminClient,
    drain: Drain,
    backfill: Callable[..., Any],
    send: Callable[..., None],
    read: Callable[[str], Any],
    republish: Callable[..., dict[str, Any]],
) -> None:
    """Drained, backfilled, proven, sent to a topic that is made for it; a group reads on there."""
    admin.create_topics([NewTopic(SOURCE, 2, 1)])[SOURCE].result(30)
    early = [record(0.1 * n) for n in range(10)]
    send(SOURCE, early, partition=0)
    send(SOURCE, early, partition=1)
    pipeline = Pipeline(
        name="orders",
        topics=[SOURCE],
        archive=archive_folder,
        source_options={"startingOffsets": "latest"},
    )
    drain(pipeline)
    send(SOURCE, [record(2, LARGE), record(2, None), record(2)], partition=0)
    transactional = {"transactional.id": "orders", "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **transactional})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        key, value, _, time = record(2)
        producer.produce(SOURCE, value, key, 1, timestamp=time)
        assert producer.flush(30) == 0
        end(30)

    drained = drain(pipeline)
    archive = Archive.at(archive_folder)
    assert validate_archive(archive, cluster).complete
    plan = backfill(pipeline, Interval(DAY, DAY + HOUR))
    report = validate_archive(archive, cluster, deep=True)

    assert (drained["records"], plan.left) == (4, 20)
    assert (report.complete, report.findings, report.records) == (True, [], 24)
    gaps = {row["partition"]: row["gaps"] for row in report.partitions()}
    assert gaps == {0: {}, 1: {"control": 2, "aborted": 1}}

    sent = republish(archive, TARGET, create_target=True)

    assert (sent["records"], sent["verification"]["is_exact"]) == (24, True)
    assert read(TARGET) == read(SOURCE)

    groups = ConsumerGroups(cluster.config)
    groups.commit(GROUP, {TopicPartition(SOURCE, 0): Committed(7, "")})
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    translate_group.add_arguments(parser)
    servers = ["--bootstrap-servers", bootstrap_servers]
    asked = [archive_folder, *servers, "--group", GROUP, "--apply"]
    assert translate_group.run(parser.parse_args(asked)) == 0
    at = groups.committed(GROUP, [TopicPartition(TARGET, 0)])
    assert at[TopicPartition(TARGET, 0)].offset == 7

    # This broker creates any topic that a client asks for.
    topics = admin.list_topics(timeout=30).topics
    assert {name for name in topics if not name.startswith("__")} == {SOURCE, TARGET}
