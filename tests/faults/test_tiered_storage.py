"""Tiered storage: records that only the broker's remote store has, and objects that are gone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import prepare_drain
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import DataLossError, KafkaUnavailableError, SparkJobError
from kafka_drain.findings import summary
from kafka_drain.intervals import Interval
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.jars import fetch as jars
from tests.brokers import SHORT_LIVED
from tests.brute_force import offsets_in_files
from tests.conftest import Drain
from tests.faults.injection import NOON, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

MINUTE = 60_000
#: Ten of these fill a segment, whose least size is 1 MiB.
VALUE = b"v" * 99_000
PER_SEGMENT = 10
#: The broker itself keeps only the segment that it appends to.
REMOTE = {
    "remote_storage_enable": "true",
    "segment_bytes": str(1 << 20),
    "local_retention_bytes": "1",
}


@dataclass(frozen=True)
class Tiered:
    """A broker, and the folder that is its remote store."""

    local: LocalKafka
    store: Path

    def segments(self, topic: str, partition: int) -> list[int]:
        """Return the first offsets of the segments that the broker still has itself."""
        folder = self.local.folder / "node-1" / "data" / f"{topic}-{partition}"
        return sorted(int(path.stem) for path in folder.glob("*.log"))

    def objects(self, topic: str, partition: int) -> dict[int, Path]:
        """Return the remote segments of a partition by their first offsets."""
        found = self.store.rglob(f"{topic}-{partition}-*/*.log")
        return {int(path.name.partition("-")[0]): path for path in sorted(found)}

    def wait_moved(self, topic: str, active: int) -> None:
        """Wait until the broker has only the segments that begin at an offset."""

        def is_moved() -> bool:
            return all(self.segments(topic, partition) == [active] for partition in (0, 1))

        wait_for(is_moved, f"segments of {topic} before {active} in the remote store")

    @contextmanager
    def without(self, topic: str, partition: int, start: int) -> Iterator[None]:
        """Take the object of the segment that begins at an offset away, and put it back."""
        path = self.objects(topic, partition)[start]
        aside = self.store / "aside"
        path.rename(aside)
        try:
            yield
        finally:
            aside.rename(path)


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    """The broker. Each object of its store is a file of Kafka's own."""
    folder = tmp_path_factory.mktemp("tiered")
    [jar] = jars.fetch(jars.TIERED)
    storage = "org.apache.kafka.server.log.remote.storage"
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{storage}.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "rsm.config.dir": str(folder / "store"),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        # How often it copies and deletes segments.
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "200",
    }
    # The version of the jar.
    with LocalKafka(
        folder / "kafka", properties=properties, java_options=SHORT_LIVED, version="4.1.0"
    ) as started:
        yield Tiered(started, folder / "store")


@pytest.fixture(scope="module")
def bootstrap_servers(tiered: Tiered) -> str:
    """Its address, for everything in this module."""
    return tiered.local.bootstrap_servers


@pytest.fixture(scope="module")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The same broker, as the product sees it."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


@pytest.fixture
def moved(tiered: Tiered, make_topic: Callable[..., str], send: Any) -> str:
    """A topic of two partitions with 40 records each: the broker itself has the last ten."""
    topic = make_topic(2, **REMOTE)
    send_segments(send, topic, 0, 40)
    tiered.wait_moved(topic, 30)
    return topic


def send_segments(send: Any, topic: str, first: int, end: int) -> None:
    """Send records to both partitions, so that each segment begins at a multiple of ten."""
    for partition in (0, 1):
        for start in range(first, end, PER_SEGMENT):
            # All at once, the first batch may hold one record; a segment would begin at 1.
            send(topic, records(start, start + PER_SEGMENT), partition)


def records(first: int, end: int) -> list[Any]:
    """Return records with a minute between them."""
    return [(b"%d" % n, VALUE, None, NOON + n * MINUTE) for n in range(first, end)]


def minutes(first: int, end: int) -> Interval:
    """Return the time of some of the records."""
    times = (datetime.fromtimestamp((NOON + n * MINUTE) / 1000, timezone.utc) for n in (first, end))
    return Interval(*times)


def assert_exact(archive: Archive, cluster: KafkaCluster, count: int = 40) -> None:
    """Assert that the archive is proven, and that its files hold each record once."""
    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, report.findings) == (True, [])
    assert (report.records, report.offsets) == (2 * count, 2 * count)
    wanted = {(partition, offset): 1 for partition in (0, 1) for offset in range(count)}
    assert offsets_in_files(archive) == wanted


def test_drain_remote_records(
    archive_folder: str,
    cluster: KafkaCluster,
    drain: Drain,
    backfill: Callable[..., Any],
    moved: str,
) -> None:
    """What only the remote store has is drained, backfilled and proven like everything else."""
    later = {"startingTimestamp": NOON + 25 * MINUTE}
    pipeline = Pipeline(name="p", topics=[moved], archive=archive_folder, source_options=later)
    archive = Archive.at(archive_folder)
    assert drain(pipeline)["records"] == 2 * 15

    for start, end in ((0, 12), (12, 25)):
        backfill(pipeline, minutes(start, end))

    assert_exact(archive, cluster)


def test_drain_object_gone(
    archive_folder: str,
    tmp_path: Path,
    tiered: Tiered,
    cluster: KafkaCluster,
    drain: Drain,
    moved: str,
) -> None:
    """The drain ends a minute later, names the offset, and goes on from there once it's back."""
    options = {"maxOffsetsPerTrigger": 2 * PER_SEGMENT}
    pipeline = Pipeline(name="p", topics=[moved], archive=archive_folder, source_options=options)
    archive = Archive.at(archive_folder)
    with tiered.without(moved, 1, 10):
        job = prepare_drain(pipeline, cluster, tmp_path)
        began = time.monotonic()
        done = subprocess.run(
            job.application.command("local[2]"),
            env={**os.environ, **job.application.environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # With Spark's start, and a machine that does other things as well.
        assert 60 < time.monotonic() - began < 100
        with pytest.raises(SparkJobError) as raised:
            job.result()

        said = str(raised.value)
        assert f"for 60 s when the drain read {moved}-1 offset 10 (" in said
        assert f"{moved}-0" not in said
        assert said.count("an object of its remote store may be missing") == 1
        # Kafka's client asks, and warns, a thousand times a second.
        assert 10 <= done.stdout.count(f"fetching offset 10 for topic-partition {moved}-1") <= 20
        for deep in (False, True):
            report = validate_archive(archive, cluster, deep=deep)
            assert (report.records, report.offsets, report.findings) == (20, 20, [])
            assert {partition["end"] for partition in report.partitions()} == {10}

    # What was drained last can't be compared with Kafka's.
    with (
        tiered.without(moved, 1, 0),
        pytest.raises(KafkaUnavailableError, match=f"reading {moved}-1 from offset 9; the log of"),
    ):
        drain(pipeline)

    assert drain(pipeline)["records"] == 60
    assert_exact(archive, cluster)


def test_backfill_object_gone(
    archive_folder: str,
    tiered: Tiered,
    cluster: KafkaCluster,
    drain: Drain,
    backfill: Callable[..., Any],
    moved: str,
) -> None:
    """A backfill names the partition in whose missing object a time would be, or the offset."""
    options = {"startingTimestamp": NOON + 25 * MINUTE, "kafkaConsumer.pollTimeoutMs": 2000}
    pipeline = Pipeline(name="p", topics=[moved], archive=archive_folder, source_options=options)
    archive = Archive.at(archive_folder)
    drain(pipeline)
    with tiered.without(moved, 1, 10):
        with pytest.raises(KafkaUnavailableError, match=f"an offset of {moved}-1; the log of"):
            backfill(pipeline, minutes(12, 18))
        with pytest.raises(KafkaUnavailableError, match=f"at offset 10 .* reading {moved}-1 from"):
            backfill(pipeline, minutes(5, 25))
    with ExitStack() as late:
        with pytest.raises(SparkJobError, match=f"the window read {moved}-1 offset 10 \\("):
            backfill(
                pipeline,
                minutes(5, 25),
                before=lambda: late.enter_context(tiered.without(moved, 1, 10)),
            )
        assert not list(archive.root.glob("windows/*/receipt.json"))

    for start, end in ((0, 5), (5, 25)):
        backfill(pipeline, minutes(start, end))
    assert_exact(archive, cluster)


def test_validate_object_gone(
    archive_folder: str,
    tiered: Tiered,
    cluster: KafkaCluster,
    drain: Drain,
    repair: Callable[..., Any],
    moved: str,
) -> None:
    """A lost file is found although what follows its records can't be read, and repaired."""
    options = {"maxOffsetsPerTrigger": 2 * PER_SEGMENT}
    pipeline = Pipeline(name="p", topics=[moved], archive=archive_folder, source_options=options)
    archive = Archive.at(archive_folder)
    drain(pipeline)
    report = validate_archive(archive, cluster)
    files = {
        (content.partition, content.first_offset): file.path
        for receipt in report.sealed
        for file in receipt.files
        for content in file.contents
    }
    before = OffsetRange(0, PER_SEGMENT)
    for start, readable in ((0, True), (10, False)):
        (archive.root / files[1, start]).unlink()
        with tiered.without(moved, 1, 10):
            read = cluster.records(TopicPartition(moved, 1), before, "read_uncommitted")
            assert sum(batch.num_rows for batch in read) == PER_SEGMENT
            for deep in (False, True):
                if readable:
                    report = validate_archive(archive, cluster, deep=deep)
                    assert summary(report.findings)["file_missing"] == 1
                    assert not report.complete
                else:
                    with pytest.raises(KafkaUnavailableError, match=f"reading {moved}-1 from"):
                        validate_archive(archive, cluster, deep=deep)
        repair(archive, pipeline)

    assert validate_archive(archive, cluster, deep=True).complete
    assert offsets_in_files(archive).total() == 80


def test_explain_gaps_object_gone(
    archive_folder: str,
    tiered: Tiered,
    cluster: KafkaCluster,
    drain: Drain,
    make_topic: Callable[..., str],
    bootstrap_servers: str,
) -> None:
    """No offset is sealed as a marker or as aborted while its object is missing."""
    topic = make_topic(1, **REMOTE)
    settings = {"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    for number in range(40):
        producer.begin_transaction()
        producer.produce(topic, VALUE, partition=0, timestamp=NOON + number * MINUTE)
        assert producer.flush(30) == 0
        # In each remote segment, some are aborted.
        producer.abort_transaction(30) if number % 5 == 4 else producer.commit_transaction(30)
    wait_for(lambda: len(tiered.segments(topic, 0)) == 1, "remote segments")
    archive = Archive.at(archive_folder)
    drain(Pipeline(name="p", topics=[topic], archive=archive_folder))

    with tiered.without(topic, 0, list(tiered.objects(topic, 0))[1]):
        for deep in (False, True):
            with pytest.raises(KafkaUnavailableError, match=f"reading {topic}-0 from offset"):
                validate_archive(archive, cluster, deep=deep)
            assert not list(archive.generation(1).receipts())

    report = validate_archive(archive, cluster, deep=True)
    [partition] = report.partitions()
    assert (report.complete, report.records, report.findings) == (True, 32, [])
    assert partition["gaps"] == {"aborted": 8, "control": 40}


def test_drain_local_retention(
    archive_folder: str,
    tiered: Tiered,
    cluster: KafkaCluster,
    drain: Drain,
    moved: str,
    send: Any,
    admin: AdminClient,
) -> None:
    """What the broker itself no longer has hasn't expired; what is gone everywhere has."""
    pipeline = Pipeline(name="p", topics=[moved], archive=archive_folder)
    drain(pipeline)
    for end in (80, 120):
        send_segments(send, moved, end - 40, end)
        tiered.wait_moved(moved, end - 10)
        if end == 80:
            assert preflight(pipeline, cluster).warnings == []
            assert drain(pipeline)["records"] == 80
            assert_exact(Archive.at(archive_folder), cluster, 80)

    before = KafkaTopicPartition(moved, 1, 95)
    admin.delete_records([before])[before].result(30)
    with pytest.raises(DataLossError, match=rf"{moved}-1 \[80, 95\)"):
        preflight(pipeline, cluster)
