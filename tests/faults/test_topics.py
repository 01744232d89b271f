"""Topics that change, lose records or hide them, between two drains and during one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import DataLossError, TopicError
from kafka_drain.findings import errors, summary
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.roll import plan_roll, roll
from tests.conftest import Drain, manifest_files
from tests.faults.conftest import Start
from tests.faults.injection import (
    NOON,
    SLOW,
    held,
    manifest_file,
    part_files,
    records,
    send_slowly,
    wait_for,
)
from tests.integration.command_line import listing

pytestmark = pytest.mark.integration


def pipeline_of(topic: str, archive: str, **source_options: Any) -> Pipeline:
    return Pipeline(name="p", topics=[topic], archive=archive, source_options=source_options)


def delete_records(admin: AdminClient, topic: str, before: dict[int, int]) -> None:
    wanted = [KafkaTopicPartition(topic, p, offset) for p, offset in before.items()]
    for future in admin.delete_records(wanted).values():
        future.result(30)


def make_again(admin: AdminClient, cluster: KafkaCluster, make_topic: Any, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(30)

    def made() -> bool:
        try:
            make_topic(partitions=2, name=topic)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_for(made, f"{topic} anew")
    wait_for(lambda: topic in cluster.topic_names(), f"{topic} in the list of topics")


def test_drain_topic_made_again(
    archive_folder: str,
    drain: Drain,
    cluster: KafkaCluster,
    admin: AdminClient,
    make_topic: Any,
    send: Any,
) -> None:
    """A recreated topic is refused because of its id, whether it is smaller or larger."""
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        send(topic, records(10), partition)
    pipeline = pipeline_of(topic, archive_folder)
    drain(pipeline)
    before = listing(Path(archive_folder))
    old = cluster.topics([topic])[topic].id

    make_again(admin, cluster, make_topic, topic)
    new = cluster.topics([topic])[topic].id
    for size in (4, 40):
        for partition in (0, 1):
            send(topic, records(size), partition)
        with pytest.raises(TopicError) as raised:
            drain(pipeline)

        assert f"topic id {new}, the archive has {old}" in str(raised.value)
        assert "deleted and recreated" in str(raised.value)
        assert listing(Path(archive_folder)) == before


class Stopped(Exception):
    """Raised instead of a drain's last steps, as if it was killed."""


@pytest.mark.parametrize("is_killed", [False, True])
def test_drain_topic_made_again_meanwhile(
    is_killed: bool,
    archive_folder: str,
    drain: Drain,
    cluster: KafkaCluster,
    admin: AdminClient,
    make_topic: Any,
    send: Any,
) -> None:
    """A larger topic recreated between preflight and Spark's read is never sealed as the old one.

    Even if the drain is killed before it can check: validation checks, and refuses each time. A
    roll is the way out.
    """
    topic = make_topic(partitions=2)
    pipeline, archive = pipeline_of(topic, archive_folder), Archive.at(archive_folder)
    for partition in (0, 1):
        send(topic, records(10), partition)
    drain(pipeline)
    assert validate_archive(archive, cluster).receipts_written == 1
    for partition in (0, 1):
        send(topic, records(10), partition)
    old = cluster.topics([topic])[topic].id

    def replace_topic() -> None:
        make_again(admin, cluster, make_topic, topic)
        for partition in (0, 1):
            send(topic, records(40), partition)

    def stop() -> None:
        raise Stopped

    if is_killed:
        with pytest.raises(Stopped):
            drain(pipeline, before=replace_topic, after=stop)
    else:
        with pytest.raises(TopicError, match=rf"archive has {re.escape(old)}.*kafka-drain roll"):
            drain(pipeline, before=replace_topic)

    for scope in ("open", "all"):
        report = validate_archive(archive, cluster, scope=scope)
        # A killed drain's driver has noted what it read.
        assert summary(report.findings) == {"topic_made_again": 1}
        [finding] = errors(report.findings)
        assert f"the archive has {old}" in finding.detail
        assert (report.receipts_written, report.receipts) == (0, 1)
    with pytest.raises(TopicError, match="kafka-drain roll"):
        drain(pipeline)

    roll(plan_roll(archive, cluster))
    drain(pipeline)

    report = validate_archive(archive, cluster)
    assert (report.complete, report.receipts_written, report.records) == (True, 1, 100)
    assert sum(file["records"] for file in committed_files(archive)) == 100


def test_validate_topic_made_again_since(
    archive_folder: str,
    drain: Drain,
    cluster: KafkaCluster,
    admin: AdminClient,
    make_topic: Any,
    send: Any,
) -> None:
    """What was drained before its topic was recreated is sealed: the drain had checked the id."""
    topic = make_topic(partitions=2)
    send(topic, records(10), 0)
    pipeline, archive = pipeline_of(topic, archive_folder), Archive.at(archive_folder)
    drain(pipeline)
    make_again(admin, cluster, make_topic, topic)

    report = validate_archive(archive, cluster)

    assert (report.complete, report.receipts_written, report.records) == (True, 1, 10)


def test_repair_topic_made_again_meanwhile(
    archive_folder: str,
    drain: Drain,
    repair: Any,
    cluster: KafkaCluster,
    admin: AdminClient,
    make_topic: Any,
    send: Any,
) -> None:
    """A window isn't sealed either if its topic was recreated before Spark read it."""
    topic = make_topic(partitions=2)
    send(topic, records(10), 0)
    pipeline, archive = pipeline_of(topic, archive_folder), Archive.at(archive_folder)
    drain(pipeline)
    assert validate_archive(archive, cluster).complete
    Path(committed_files(archive)[0]["path"]).unlink()

    def replace_topic() -> None:
        make_again(admin, cluster, make_topic, topic)
        send(topic, records(40), 0)

    with pytest.raises(TopicError, match="was deleted or recreated while"):
        repair(archive, pipeline, before=replace_topic)

    assert not any(window.is_sealed for window in archive.snapshot().windows)
    for _ in range(2):
        assert not validate_archive(archive, cluster).complete


def test_drain_retention_passed_cursor(
    archive_folder: str, drain: Drain, admin: AdminClient, make_topic: Any, send: Any
) -> None:
    """Deleted records that weren't drained are an error before Spark; all ranges are named."""
    topic = make_topic(partitions=3)
    for partition in range(3):
        send(topic, records(10), partition)
    pipeline = pipeline_of(topic, archive_folder)
    drain(pipeline)
    for partition in range(3):
        send(topic, records(20), partition)
    before = listing(Path(archive_folder))

    delete_records(admin, topic, {0: 17, 1: 30, 2: 10})
    with pytest.raises(DataLossError) as raised:
        drain(pipeline)

    assert f"{topic}-0 [10, 17), {topic}-1 [10, 30); retention has passed" in str(raised.value)
    assert f"{topic}-2" not in str(raised.value)
    assert listing(Path(archive_folder)) == before


def test_drain_records_deleted_meanwhile(
    archive_folder: str,
    start: Start,
    drain: Drain,
    cluster: KafkaCluster,
    admin: AdminClient,
    make_topic: Any,
    send: Any,
) -> None:
    """Records deleted in mid-batch fail the run; batches committed before stay proven."""
    topic = make_topic(partitions=2)
    send_slowly(send, topic, batches=80)
    pipeline = pipeline_of(topic, archive_folder, **SLOW, maxOffsetsPerTrigger=100)

    running = start(pipeline)
    wait_for(manifest_file(archive_folder, 1).exists, "two batches")
    committed = part_files(archive_folder)
    wait_for(lambda: len(part_files(archive_folder) - committed) == 2, "files of the third batch")
    delete_records(admin, topic, {0: 380, 1: 390})

    with pytest.raises(DataLossError, match="Kafka lost offsets while the drain ran"):
        running.finish()
    assert running.code() == 1
    # The third batch, or one after it where the deletion came late.
    batches = manifest_files(Archive.at(archive_folder))
    end = 50 * len(batches)
    assert (batches[:2], end < 380) == (["0", "1"], True)
    report = validate_archive(Archive.at(archive_folder), cluster)
    assert report.complete, report.findings
    assert report.offsets == report.records == 2 * end
    assert held(archive_folder) == {0: list(range(end)), 1: list(range(end))}
    before = listing(Path(archive_folder))
    for _ in range(2):
        with pytest.raises(DataLossError) as raised:
            drain(pipeline)
        assert f"{topic}-0 [{end}, 380), {topic}-1 [{end}, 390)" in str(raised.value)
    assert listing(Path(archive_folder)) == before


def test_drain_partitions_added_meanwhile(
    archive_folder: str,
    start: Start,
    drain: Drain,
    cluster: KafkaCluster,
    admin: AdminClient,
    make_topic: Any,
    send: Any,
    bootstrap_servers: str,
) -> None:
    """Partitions added during a drain are left to the next one, which reads them from 0."""
    topic = make_topic(partitions=2)
    send_slowly(send, topic, batches=20)
    pipeline = pipeline_of(topic, archive_folder, **SLOW, maxOffsetsPerTrigger=100)

    running = start(pipeline)
    wait_for(manifest_file(archive_folder, 0).exists, "the first batch")
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(20)
    # A client that has never seen the topic with two partitions.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    wait_for(
        lambda: len(producer.list_topics(topic, timeout=20).topics[topic].partitions) == 4,
        "the new partitions",
    )
    for partition in (2, 3):
        producer.produce(topic, b"new", partition=partition, timestamp=NOON)
    assert producer.flush(30) == 0
    assert not running.ended()
    first = running.finish()
    second = drain(pipeline)

    assert (first["records"], second["records"]) == (200, 2)
    assert drain(pipeline)["batches"] == 0
    both = list(range(100))
    assert held(archive_folder) == {0: both, 1: both, 2: [0], 3: [0]}
    report = validate_archive(Archive.at(archive_folder), cluster)
    assert report.findings == []
    assert (report.complete, report.offsets) == (True, 202)


def test_drain_open_transaction(
    archive_folder: str,
    drain: Drain,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    bootstrap_servers: str,
) -> None:
    """A drain stops at an open transaction and reports the number of offsets behind it."""
    topic = make_topic(partitions=1)
    tp = TopicPartition(topic, 0)
    pipeline = pipeline_of(topic, archive_folder)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(30)
    send(topic, records(5))
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic, b"open", partition=0, timestamp=NOON + number)
    assert producer.flush(30) == 0
    send(topic, records(2))

    first = drain(pipeline)
    hidden = preflight(pipeline, cluster)
    stalled = drain(pipeline)
    report = validate_archive(Archive.at(archive_folder), cluster)
    producer.commit_transaction(30)
    # The marker is written after the response.
    wait_for(lambda: cluster.latest([tp], "read_committed")[tp] == 11, "the transaction's end")
    last = drain(pipeline)

    assert (first["records"], stalled["records"], last["records"]) == (5, 0, 5)
    # 5 to 8 in the transaction, 8 and 9 after it: high watermark 10, last stable offset 5.
    assert hidden.hidden == {tp: 5}
    assert (
        f"5 offsets are in or after an open transaction and are left for a later drain: {tp} 5"
        in (hidden.warnings[0])
    )
    assert (report.complete, report.offsets, report.findings) == (True, 5, [])
    assert held(archive_folder) == {0: list(range(10))}
    assert preflight(pipeline, cluster).hidden == {}
    assert validate_archive(Archive.at(archive_folder), cluster).complete
