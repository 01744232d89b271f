"""Offsets that are in no file, each with the reason determined from a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import summary
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00 UTC, in milliseconds
PATIENCE = 60.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:g} s"
        time.sleep(0.1)


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    """A client that changes topics."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


@pytest.fixture
def transact(bootstrap_servers: str, cluster: KafkaCluster) -> Callable[..., None]:
    """Send a transaction with some records to partition 0, and commit or abort it."""

    def run(topic: str, records: int, *, commit: bool) -> None:
        producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "log_level": 0}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, b"value %d" % number, partition=0, timestamp=NOON + number)
        assert producer.flush(30) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        # The marker is written after the response.
        tp = [TopicPartition(topic, 0)]
        wait_for(
            lambda: cluster.latest(tp, "read_committed") == cluster.latest(tp, "read_uncommitted"),
            f"the marker in {topic}",
        )

    return run


@pytest.fixture
def archive(archive_folder: str, drain: Any) -> Callable[[str], Archive]:
    """Drain a topic to an archive of its own."""

    def run(topic: str) -> Archive:
        drain(Pipeline(name="gaps", topics=[topic], archive=archive_folder))
        return Archive.at(archive_folder)

    return run


@pytest.fixture
def transactional(
    make_topic: Any, transact: Any, archive: Callable[[str], Archive]
) -> tuple[str, Archive]:
    """A topic, drained: 3 records [0, 3), marker 3, 2 aborted [4, 6), marker 6, a record, marker 8.

    The archive holds 4 records of 9 offsets.
    """
    topic = make_topic(partitions=1)
    transact(topic, 3, commit=True)
    transact(topic, 2, commit=False)
    transact(topic, 1, commit=True)
    return topic, archive(topic)


def gaps(report: Report) -> dict[str, int]:
    """Return the missing offsets of the one partition by reason."""
    [partition] = report.partitions()
    return dict(partition["gaps"])


def delete_records(admin: AdminClient, topic: str, before: int) -> None:
    wanted = [KafkaTopicPartition(topic, 0, before)]
    for future in admin.delete_records(wanted).values():
        future.result(30)


def make_again(admin: AdminClient, make_topic: Any, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(30)

    def made() -> bool:
        try:
            make_topic(partitions=1, name=topic)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_for(made, f"{topic} anew")


def test_validate_transactions(transactional: tuple[str, Archive], cluster: KafkaCluster) -> None:
    """Markers and aborted records are gaps, each with a harmless reason."""
    report = validate_archive(transactional[1], cluster)

    assert report.complete
    assert report.findings == []
    assert (report.records, report.offsets) == (4, 9)
    assert gaps(report) == {"control": 3, "aborted": 2}
    assert [(str(gap.range), str(gap.reason)) for gap in sorted(report.gaps, key=_start)] == [
        ("[3, 4)", "control"),
        ("[4, 6)", "aborted"),
        ("[6, 7)", "control"),
        ("[8, 9)", "control"),
    ]


def _start(gap: Any) -> int:
    return int(gap.range.start)


def test_validate_gaps_without_kafka(transactional: tuple[str, Archive]) -> None:
    """As long as Kafka hasn't been queried, a gap may be a loss and is an error."""
    report = validate_archive(transactional[1], None)

    assert not report.complete
    assert gaps(report) == {"unknown": 5}
    assert summary(report.findings) == {"offset_missing": 2}


def test_validate_all_aborted(
    make_topic: Any, transact: Any, archive: Any, cluster: KafkaCluster
) -> None:
    """A range that was aborted entirely is a batch without files, and complete."""
    topic = make_topic(partitions=1)
    transact(topic, 5, commit=False)

    report = validate_archive(archive(topic), cluster)

    assert report.complete
    assert report.findings == []
    assert (report.files, report.records, report.offsets) == (0, 0, 6)
    assert gaps(report) == {"aborted": 5, "control": 1}


def test_validate_aborted_between_records(
    make_topic: Any, send: Any, transact: Any, archive: Any, cluster: KafkaCluster
) -> None:
    """A lost record among aborted ones is distinguished from them."""
    topic = make_topic(partitions=1)
    transact(topic, 2, commit=False)  # [0, 2), marker 2
    send(topic, [(None, b"plain", None, NOON)])  # 3
    transact(topic, 2, commit=False)  # [4, 6), marker 6
    drained = archive(topic)
    for path in Path(str(drained.root)).rglob("part-*"):
        path.unlink()

    report = validate_archive(drained, cluster)

    assert gaps(report) == {"lost": 1, "aborted": 4, "control": 2}
    assert summary(report.findings) == {"file_missing": 1, "offset_missing": 1}
    assert "[3, 4) is in no file; lost" in report.findings[-1].detail


def test_validate_records_deleted(
    transactional: tuple[str, Archive], cluster: KafkaCluster, admin: AdminClient
) -> None:
    """Records that Kafka has deleted are expired, an error; those it still holds are named."""
    topic, drained = transactional
    delete_records(admin, topic, before=5)

    report = validate_archive(drained, cluster)

    assert not report.complete
    assert gaps(report) == {"expired": 2, "aborted": 1, "control": 2}
    assert summary(report.findings) == {"offset_missing": 1}
    assert "[3, 5) is in no file; expired" in report.findings[0].detail


def test_validate_sealed_records_deleted(
    transactional: tuple[str, Archive], cluster: KafkaCluster, admin: AdminClient
) -> None:
    """Once sealed, the reasons of gaps are known forever: retention may delete the markers."""
    topic, drained = transactional
    validate_archive(drained, cluster)
    delete_records(admin, topic, before=8)

    for options in ({"scope": "open"}, {"scope": "all"}, {"deep": True}):
        report = validate_archive(drained, cluster, **options)

        assert report.findings == []
        assert (report.records, report.offsets) == (4, 9)
        assert gaps(report) == {"control": 3, "aborted": 2}


@pytest.mark.parametrize("records", [0, 20])
def test_validate_topic_made_again(
    transactional: tuple[str, Archive],
    cluster: KafkaCluster,
    admin: AdminClient,
    make_topic: Any,
    transact: Any,
    records: int,
) -> None:
    """A recreated topic can't explain another's gaps, whether it is smaller or larger."""
    topic, drained = transactional
    make_again(admin, make_topic, topic)
    if records:
        transact(topic, records, commit=False)

    report = validate_archive(drained, cluster)

    assert gaps(report) == {"expired": 5}
    assert summary(report.findings) == {"offset_missing": 2}


def test_validate_topic_deleted(
    transactional: tuple[str, Archive], cluster: KafkaCluster, admin: AdminClient
) -> None:
    """A deleted topic explains nothing, but validation still ends with a report."""
    topic, drained = transactional
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in cluster.topic_names(), f"{topic} deleted")

    report = validate_archive(drained, cluster)

    assert gaps(report) == {"expired": 5}


def test_validate_other_cluster(transactional: tuple[str, Archive], cluster: KafkaCluster) -> None:
    """Another cluster isn't queried for the reason of a gap."""
    _, drained = transactional
    known = drained.snapshot().document
    drained.create(
        pipeline="gaps",
        cluster_id="another",
        topic_ids=known.topics,
        source={"topics": list(known.topics)},
        known=known,
    )

    with pytest.raises(ArchiveError, match="was drained from Kafka cluster another"):
        validate_archive(drained, cluster)


@pytest.fixture
def eager_cleaner(admin: AdminClient) -> Iterator[None]:
    """Let the broker's log cleaner check for work ten times a second instead of every 15 s."""
    _set_cleaner(admin, AlterConfigOpType.SET, "100")
    yield
    _set_cleaner(admin, AlterConfigOpType.DELETE, None)


def _set_cleaner(admin: AdminClient, operation: AlterConfigOpType, value: str | None) -> None:
    entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
    brokers = [
        ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        for broker in admin.list_topics(timeout=30).brokers
    ]
    for future in admin.incremental_alter_configs(brokers).values():
        future.result(30)


@pytest.mark.usefixtures("eager_cleaner")
def test_validate_compacted(
    make_topic: Any, send: Any, read: Any, archive: Any, cluster: KafkaCluster
) -> None:
    """Records removed by compaction before the drain are gaps with that reason."""
    topic = make_topic(
        partitions=1,
        cleanup_policy="compact",
        segment_ms="1",
        min_cleanable_dirty_ratio="0.01",
    )
    sent = 0

    def compacted() -> bool:
        # Only a closed segment is cleaned, and one more record closes it.
        nonlocal sent
        send(topic, [(b"key %d" % (sent % 2), b"value", None, NOON + 10 * sent)])
        sent += 1
        return len(read(topic)[0]) < sent

    wait_for(compacted, f"{topic} compacted")
    drained = archive(topic)

    report = validate_archive(drained, cluster)

    assert report.complete
    assert report.findings == []
    assert report.offsets == sent
    assert gaps(report) == {"compacted": sent - report.records}
    assert report.records < sent


@pytest.mark.usefixtures("eager_cleaner")
def test_validate_compacted_transactions(
    make_topic: Any,
    send: Any,
    read: Any,
    archive: Any,
    cluster: KafkaCluster,
    bootstrap_servers: str,
) -> None:
    """In a compacted topic too, a marker is counted as one; what compaction removed isn't."""
    topic = make_topic(
        partitions=1, cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0.01"
    )
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"value", b"key", 0, timestamp=NOON + number)
        producer.commit_transaction(30)
    kept = 0

    def compacted() -> bool:
        # Only a closed segment is cleaned, and one more record closes it.
        nonlocal kept
        send(topic, [(b"key %d" % kept, b"value", None, NOON + 10 * kept)])
        kept += 1
        return len(read(topic)[0]) < 6 + kept

    wait_for(compacted, f"{topic} compacted")
    producer.begin_transaction()
    producer.produce(topic, b"value", b"other", 0, timestamp=NOON)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    tp = [TopicPartition(topic, 0)]
    wait_for(
        lambda: cluster.latest(tp, "read_committed") == cluster.latest(tp, "read_uncommitted"),
        f"the marker in {topic}",
    )
    drained = archive(topic)

    report = validate_archive(drained, cluster)

    assert (report.complete, report.findings) == (True, [])
    found = gaps(report)
    # All seven markers are younger than delete.retention.ms.
    assert found.pop("control") == 7
    # The cleaner may have removed the aborted record, too.
    assert found.get("aborted", 0) <= 1
    assert sum(found.values()) == 6 + kept + 1 - report.records
    assert found["compacted"] > 0
