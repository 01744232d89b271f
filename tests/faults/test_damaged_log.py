"""A broker that lost a segment in the middle of a log, or holds a batch with a flipped bit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import SourceRecordError
from kafka_drain.findings import summary
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.records import read_records
from kafka_drain.kafka.single_records import read_single_records, read_times
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.gap_probe import classify_gaps
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.unkept_records import WAY_OUT
from tests.brokers import SHORT_LIVED
from tests.conftest import Drain
from tests.faults.injection import NOON

pytestmark = pytest.mark.integration

#: Of two of these, the second is in a segment of its own: Kafka's least size is 1 MiB.
LARGE = b"v" * 600_000
SEGMENTS = {"segment.bytes": str(1 << 20), "retention.ms": "-1"}
#: In the fifth of its batches, of ten records each, a bit is flipped.
CORRUPT = "corrupt"
#: The hole of each topic that has one: start and end. A marker, whose time is that of the broker,
#: begins a segment after a record of long ago.
HOLES = {"plain": (1, 2), "later": (1, 2), "transactions": (1, 4)}
#: In the batch behind the marker of its first transaction, at offset 1, a bit is flipped.
BEHIND_MARKER = "behind_marker"


@dataclass(frozen=True)
class Damaged:
    """A cluster whose logs were damaged while it was stopped."""

    bootstrap_servers: str


def send_plain(servers: str, topic: str) -> None:
    """Send three records, each of which gets a segment."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(3):
        producer.produce(topic, LARGE, partition=0, timestamp=NOON + number)
        assert producer.flush(30) == 0


def send_transactions(servers: str, topic: str) -> None:
    """Send three transactions, of a record and a marker each, the last of them aborted."""
    for number, end in enumerate(("commit", "commit", "abort")):
        settings = {"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, LARGE, partition=0, timestamp=NOON + number)
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if end == "commit" else producer.abort_transaction(30)


def send_two(servers: str, topic: str) -> None:
    """Send two transactions of a record each."""
    settings = {"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    for value in (b"first", b"second"):
        producer.begin_transaction()
        # Now, as the markers: after a record of long ago, they would begin a segment.
        producer.produce(topic, value, partition=0)
        producer.commit_transaction(30)


def send_batches(servers: str, topic: str) -> None:
    """Send ten batches of ten records."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1000, "log_level": 0})
    for batch in range(10):
        for number in range(10):
            value = b"%03d" % (10 * batch + number)
            producer.produce(topic, value, partition=0, timestamp=NOON + number)
        assert producer.flush(30) == 0


def remove_segments(partition: Path, start: int, end: int) -> None:
    """Remove the files of the segments that start within some offsets."""
    found = {path.stem for path in partition.glob("*.log")}
    assert f"{end:020d}" in found
    for stem in (stem for stem in found if start <= int(stem) < end):
        for path in partition.glob(f"{stem}.*"):
            path.unlink()


def flip_bit(partition: Path, value: bytes) -> None:
    """Flip a bit of a record's value."""
    [path] = partition.glob("*.log")
    content = bytearray(path.read_bytes())
    assert content.count(value) == 1
    content[content.index(value)] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    """A broker with all the damages of this module; it is restarted only once."""
    folder = tmp_path_factory.mktemp("damaged") / "kafka"
    with LocalKafka(folder, java_options=SHORT_LIVED) as local:
        servers = local.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        wanted = [
            NewTopic(name, 1, 1, config=SEGMENTS) for name in [*HOLES, CORRUPT, BEHIND_MARKER]
        ]
        for made in admin.create_topics(wanted).values():
            made.result(30)
        send_plain(servers, "plain")
        send_plain(servers, "later")
        send_transactions(servers, "transactions")
        send_batches(servers, CORRUPT)
        send_two(servers, BEHIND_MARKER)
        local.stop()
        data = folder / "node-1" / "data"
        for name, hole in HOLES.items():
            remove_segments(data / f"{name}-0", *hole)
        flip_bit(data / f"{CORRUPT}-0", b"045")
        flip_bit(data / f"{BEHIND_MARKER}-0", b"second")
        local.start()
        yield Damaged(local.bootstrap_servers)


@pytest.fixture(scope="module")
def bootstrap_servers(damaged: Damaged) -> str:
    """Its address, for everything in this module."""
    return damaged.bootstrap_servers


@pytest.fixture(scope="module")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The same broker, as the product sees it."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


def said(gaps: list[Gap]) -> list[tuple[str, str]]:
    """Return offsets and reasons, in order."""
    return [(str(g.range), str(g.reason)) for g in sorted(gaps, key=lambda g: g.range.start)]


def gaps_of(report: Report) -> dict[str, int]:
    """Return the missing offsets of the one partition by reason."""
    [partition] = report.partitions()
    return dict(partition["gaps"])


def test_validate_hole(archive_folder: str, drain: Drain, cluster: KafkaCluster) -> None:
    """A lost segment of a topic without transactions is never sealed, but on the user's word."""
    drain(Pipeline(name="p", topics=["plain"], archive=archive_folder))
    archive = Archive.at(archive_folder)

    for deep in (False, True):
        report = validate_archive(archive, cluster, deep=deep)

        assert (report.complete, report.sealed, gaps_of(report)) == (False, [], {"unexplained": 1})
        assert summary(report.findings) == {"offset_unexplained": 1}
        assert "plain-0" in str(report.findings[0])
        assert "(--acknowledge-expired plain:0:1-2)" in report.findings[0].detail

    report = validate_archive(
        archive, cluster, acknowledged=parse_ranges("accepted", ["plain:0:1-2"])
    )
    assert (report.complete, report.records, report.offsets) == (True, 2, 3)
    assert summary(report.findings) == {"offset_expired": 1}
    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, report.findings) == (True, [])
    assert gaps_of(report) == {"unexplained": 1}


def test_validate_hole_compacted_later(
    archive_folder: str, drain: Drain, cluster: KafkaCluster, bootstrap_servers: str
) -> None:
    """Compaction that was switched on after the drain doesn't explain what the drain missed."""
    drain(Pipeline(name="p", topics=["later"], archive=archive_folder))
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, "later", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.incremental_alter_configs([topic])[topic].result(30)

    report = validate_archive(Archive.at(archive_folder), cluster)

    assert (report.complete, gaps_of(report)) == (False, {"unexplained": 1})


def test_classify_gaps_hole_among_transactions(cluster: KafkaCluster) -> None:
    """The marker behind a hole is a marker; the hole isn't, though two are lost in it."""
    missing = {TopicPartition("transactions", 0): [OffsetRange(1, 4), OffsetRange(4, 6)]}

    assert said(classify_gaps(cluster, missing)) == [
        ("[1, 4)", "unexplained"),
        ("[4, 5)", "aborted"),
        ("[5, 6)", "control"),
    ]


def test_classify_gaps_before_corrupt_batch(cluster: KafkaCluster) -> None:
    """A marker is one, whatever the batch behind it: nobody has asked for that."""
    tp = TopicPartition(BEHIND_MARKER, 0)

    found = classify_gaps(cluster, {tp: [OffsetRange(1, 2), OffsetRange(3, 4)]})

    assert found == [
        Gap(tp, OffsetRange(1, 2), GapReason.CONTROL),
        Gap(tp, OffsetRange(3, 4), GapReason.CONTROL),
    ]
    with pytest.raises(SourceRecordError, match=f"{tp} offset 2: the batch .* is damaged"):
        classify_gaps(cluster, {tp: [OffsetRange(1, 3)]})


def test_drain_corrupt_batch(archive_folder: str, drain: Drain) -> None:
    """A batch whose checksum is wrong is named, with the way past it."""
    with pytest.raises(SourceRecordError, match=r"^corrupt-0 offset 40: ") as raised:
        drain(Pipeline(name="p", topics=[CORRUPT], archive=archive_folder))

    assert WAY_OUT in str(raised.value)
    assert "replica" in str(raised.value)


def test_read_corrupt_batch(cluster: KafkaCluster) -> None:
    """Our own readers refuse what Java's client refuses."""
    tp = TopicPartition(CORRUPT, 0)
    says = re.escape("corrupt-0 offset 40: ")

    with pytest.raises(SourceRecordError, match=says):
        list(read_records(cluster.config, tp, OffsetRange(0, 100), "read_uncommitted"))
    with pytest.raises(SourceRecordError, match=says):
        classify_gaps(cluster, {tp: [OffsetRange(45, 46)]})
    with pytest.raises(SourceRecordError, match=says):
        read_single_records(cluster.config, {tp: 45})
    with pytest.raises(SourceRecordError, match=says):
        read_times(cluster.config, {tp: 0}, 100, {tp: 100})
