"""A broker that stops, loses the end of a log, or compacts; no other test uses it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import DataLossError
from kafka_drain.findings import summary
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive
from tests.brokers import SHORT_LIVED
from tests.conftest import Drain
from tests.faults.conftest import Start
from tests.faults.injection import (
    NOON,
    SLOW,
    held,
    listed_files,
    manifest_file,
    part_files,
    send_slowly,
    wait_for,
)
from tests.integration.command_line import listing

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker for this module, whose cleaner checks for work ten times a second."""
    folder = tmp_path_factory.mktemp("own-broker")
    properties = {
        "log.cleaner.backoff.ms": "100",
        # A killed broker may come back after that time, instead of only after 9 s.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
    }
    with LocalKafka(folder / "kafka", properties=properties, java_options=SHORT_LIVED) as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap_servers(local: LocalKafka) -> str:
    """Its address, for everything in this module."""
    return local.bootstrap_servers


@pytest.fixture(scope="module")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The same broker, as the product sees it."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


def test_drain_broker_stopped_meanwhile(
    archive_folder: str,
    local: LocalKafka,
    start: Start,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """A drain waits for a broker that is restarted meanwhile, and is exact."""
    topic = make_topic(partitions=2)
    send_slowly(send, topic, batches=60)
    pipeline = Pipeline(
        name="p",
        topics=[topic],
        archive=archive_folder,
        source_options={**SLOW, "maxOffsetsPerTrigger": 200},
    )

    running = start(pipeline)
    wait_for(manifest_file(archive_folder, 0).exists, "the first batch")
    committed = part_files(archive_folder)
    wait_for(lambda: bool(part_files(archive_folder) - committed), "a file of the second batch")
    local.stop_node(1)
    assert not running.ended()
    assert not manifest_file(archive_folder, 1).exists()
    local.start_node(1)
    result = running.finish()

    assert (result["batches"], result["records"]) == (3, 600)
    report = validate_archive(Archive.at(archive_folder), cluster)
    assert report.findings == []
    assert (report.complete, report.offsets) == (True, 600)
    assert held(archive_folder) == {0: list(range(300)), 1: list(range(300))}


def test_drain_log_truncated(
    archive_folder: str,
    local: LocalKafka,
    drain: Drain,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """A log that lost its end in a crash, below the drained offset, is refused and named."""
    topic = make_topic(partitions=2)
    send_slowly(send, topic, batches=4)
    pipeline = Pipeline(name="p", topics=[topic], archive=archive_folder)
    drain(pipeline)
    before = listing(Path(archive_folder))

    local.kill_node(1)
    [segment] = (local.folder / "node-1" / "data" / f"{topic}-1").glob("*.log")
    # What the machine hadn't flushed to disk yet: the last batch and a bit more.
    os.truncate(segment, segment.stat().st_size * 3 // 4 - 1)
    local.start_node(1)
    lost = TopicPartition(topic, 1)
    # The existing client now knows an older leader epoch than the broker.
    end = cluster.latest([lost], "read_committed")[lost]
    with pytest.raises(DataLossError) as raised:
        preflight(pipeline, cluster)

    assert 0 < end < 20
    assert f"shorter than what was drained: {lost} ends at {end}, drained up to 20." in (
        str(raised.value)
    )
    assert listing(Path(archive_folder)) == before
    # The drained records are sealed all the same, and proven without the broker's log.
    report = validate_archive(Archive.at(archive_folder), cluster)
    assert (report.offsets, report.receipts_written) == (40, 1)
    assert summary(report.findings) == {"log_rewritten": 1}
    report = validate_archive(Archive.at(archive_folder), None, deep=True)
    assert (report.complete, report.offsets, report.findings) == (True, 40, [])


def gaps(report: Report) -> dict[str, int]:
    """Return the missing offsets of the one partition by reason."""
    [partition] = report.partitions()
    return dict(partition["gaps"])


def test_drain_compacted_topic(
    archive_folder: str,
    drain: Drain,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    make_topic: Any,
    send: Any,
    read: Any,
) -> None:
    """Tombstones are drained while they exist; compacted offsets are gaps with that reason."""
    topic = make_topic(
        partitions=1, cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0.01"
    )
    tp = TopicPartition(topic, 0)
    pipeline = Pipeline(name="p", topics=[topic], archive=archive_folder)
    archive = Archive.at(archive_folder)

    def put(key: bytes, value: bytes | None) -> None:
        """Send a record that closes the previous segment."""
        at = cluster.latest([tp], "read_committed")[tp]
        send(topic, [(key, value, None, NOON + 10 * at)])

    def keys() -> list[tuple[bytes, bytes | None]]:
        return [(key, value) for key, value, *_ in read(topic)[0]]

    # Offset 0 is removed; its tombstone at 1 stays for a day.
    put(b"early", b"value")
    put(b"early", None)

    def compacted() -> bool:
        put(b"filler", b"x")
        return keys()[0] == (b"early", None)

    wait_for(compacted, "the first value compacted")
    first = drain(pipeline)
    report = validate_archive(archive, cluster)

    assert report.complete
    assert report.findings == []
    assert gaps(report) == {"compacted": report.offsets - report.records}
    assert first["records"] == report.records < report.offsets
    assert 0 not in held(archive_folder)[0]
    assert 1 in held(archive_folder)[0]

    # From now on a tombstone lasts a millisecond: `late` is removed with its own.
    entry = ConfigEntry("delete.retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)
    late = cluster.latest([tp], "read_committed")[tp]
    put(b"late", b"value")
    put(b"late", None)

    def tombstone_gone() -> bool:
        put(b"filler", b"x")
        return b"late" not in {key for key, _ in keys()}

    wait_for(tombstone_gone, "the tombstone removed")
    drain(pipeline)
    report = validate_archive(archive, cluster)

    assert report.complete
    assert report.findings == []
    assert gaps(report) == {"compacted": report.offsets - report.records}
    assert not {late, late + 1} & set(held(archive_folder)[0])
    assert part_files(archive_folder) == listed_files(archive_folder)
