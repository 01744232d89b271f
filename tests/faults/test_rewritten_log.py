"""Logs that lose their end and grow again: what was drained of them isn't what Kafka has now."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.reader import read_records
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import DataLossError, TopicError
from kafka_drain.findings import errors, summary
from kafka_drain.intervals import Interval
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.repair_plan import plan_repair
from kafka_drain.windows.roll import plan_roll, roll
from tests.brokers import SHORT_LIVED
from tests.conftest import Drain
from tests.faults.injection import NOON, wait_for
from tests.integration.command_line import listing

pytestmark = pytest.mark.integration

T = TypeVar("T")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker for this module."""
    folder = tmp_path_factory.mktemp("rewritten")
    properties = {
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


def records(name: str, first: int, end: int, since: int = NOON) -> list[Any]:
    return [(b"k", b"%s-%d" % (name.encode(), n), None, since + n) for n in range(first, end)]


def time_at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def archived(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of everything in an archive but what each validation observes."""
    return {name: found for name, found in listing(folder).items() if name != "observed.json"}


def values_of(archive: Archive) -> list[bytes]:
    """Return the values of all records that readers get, sorted."""
    return sorted(
        value
        for file in archive_files(archive.snapshot())
        for batch in read_records(archive.root / file.path, "parquet", 1 << 20)
        for value in batch["value"].to_pylist()
    )


def send_each(send: Any, topic: str, some: list[Any]) -> None:
    """Send records in batches of one, so that a log can be cut at any offset."""
    for record in some:
        send(topic, [record])


def each_archived(
    folder: Path, topics: Mapping[T, str]
) -> tuple[dict[T, Pipeline], dict[T, Archive]]:
    """Return pipelines that drain each topic to an archive of its own, and the archives."""
    pipelines = {
        name: Pipeline(name=f"to-{name}", topics=[topic], archive=str(folder / str(name)))
        for name, topic in topics.items()
    }
    return pipelines, {name: Archive.at(each.archive) for name, each in pipelines.items()}


def segment_of(local: LocalKafka, topic: str) -> Path:
    """Return the only segment of partition 0 of a topic."""
    [segment] = (local.folder / "node-1" / "data" / f"{topic}-0").glob("*.log")
    return segment


def cut(local: LocalKafka, topics: dict[str, int]) -> None:
    """Kill the broker, and leave it a part of partition 0 of each topic: so many records of 20."""
    cut_at(local, {t: segment_of(local, t).stat().st_size * n // 20 for t, n in topics.items()})


def cut_at(local: LocalKafka, topics: dict[str, int]) -> None:
    """Kill the broker, and leave it so many bytes of partition 0 of each topic, and one more."""
    local.kill_node(1)
    for topic, kept in topics.items():
        os.truncate(segment_of(local, topic), kept + 1)
    local.start_node(1)


def test_drain_log_rewritten(
    tmp_path: Path,
    local: LocalKafka,
    drain: Drain,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """A log that lost its end and grew again is refused, with the first offset that is another.

    Whether it grew beyond what was drained, up to it, or got the same records again.
    """
    cases = {
        "grown": (records("new", 13, 28), "another record than the archive"),
        "refilled": (records("new", 13, 20), "another record than the archive"),
        "repeated": (records("old", 13, 20), "leader epoch"),
    }
    topics = {name: make_topic(partitions=1) for name in cases}
    pipelines, archives = each_archived(tmp_path, topics)
    for name, topic in topics.items():
        send_each(send, topic, records("old", 0, 20))
        drain(pipelines[name])
        assert validate_archive(archives[name], cluster).complete

    cut(local, dict.fromkeys(topics.values(), 13))
    for name, (some, _) in cases.items():
        tp = TopicPartition(topics[name], 0)
        wait_for(lambda tp=tp: cluster.latest([tp], "read_uncommitted")[tp] == 13, "a shorter log")
        send_each(send, topics[name], some)

    for name, (some, why) in cases.items():
        tp = TopicPartition(topics[name], 0)
        assert cluster.latest([tp], "read_committed")[tp] == 13 + len(some)
        before = archived(tmp_path / name)
        with pytest.raises(DataLossError) as raised:
            preflight(pipelines[name], cluster)
        assert f"{tp} from offset 13 on (offset 19 has " in str(raised.value)
        assert why in str(raised.value)
        for scope in ("open", "all"):
            report = validate_archive(archives[name], cluster, scope=scope, deep=scope == "all")
            assert summary(report.findings) == {"log_rewritten": 1}
            assert (report.complete, report.receipts_written) == (False, 0)
        assert archived(tmp_path / name) == before

    for name, (some, _) in cases.items():
        # The way on: what Kafka has now, beside what was archived, and each record once.
        roll(plan_roll(archives[name], cluster, rewritten=True))
        assert drain(pipelines[name])["records"] == len(some)
        report = validate_archive(archives[name], cluster, deep=True)
        assert (report.complete, report.findings) == (True, [])
        assert report.records == 20 + len(some)
        assert values_of(archives[name]) == sorted(
            value for _, value, *_ in [*records("old", 0, 20), *some]
        )
        assert drain(pipelines[name])["batches"] == 0


def test_drain_log_rewritten_behind_newest(
    tmp_path: Path,
    local: LocalKafka,
    drain: Drain,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """A log that lost only aborted records and markers, and has others in their place, is refused.

    Also one of which no record was archived.
    """
    topics = {count: make_topic(partitions=1) for count in (10, 0)}
    pipelines, archives = each_archived(tmp_path, topics)
    kept: dict[str, int] = {}
    now = int(time.time() * 1000)
    for count, topic in topics.items():
        # Markers are of now: a segment has times that are close together.
        send_each(send, topic, records("old", 0, count, now))
        kept[topic] = segment_of(local, topic).stat().st_size
        producer = Producer(
            {"bootstrap.servers": local.bootstrap_servers, "transactional.id": topic}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"aborted", partition=0)
        assert producer.flush(60) == 0
        producer.abort_transaction(30)
        drain(pipelines[count])
        for scope in ("open", "all"):
            report = validate_archive(archives[count], cluster, scope=scope)
            assert (report.complete, report.findings) == (True, [])
        assert drain(pipelines[count])["batches"] == 0

    cut_at(local, kept)
    for topic in topics.values():
        tp = TopicPartition(topic, 0)
        wait_for(lambda tp=tp: not cluster.latest([tp], "read_uncommitted")[tp] % 10, "a cut")
        send_each(send, topic, records("new", 0, 8, now))

    for count, topic in topics.items():
        said = f"{TopicPartition(topic, 0)} from offset {count} on (offset {count} has a record"
        with pytest.raises(DataLossError) as raised:
            preflight(pipelines[count], cluster)
        assert said in str(raised.value)
        for scope in ("open", "all"):
            report = validate_archive(archives[count], cluster, scope=scope)
            assert summary(report.findings) == {"log_rewritten": 1}
        roll(plan_roll(archives[count], cluster, rewritten=True))
        assert drain(pipelines[count])["records"] == 8
        report = validate_archive(archives[count], cluster, deep=True)
        assert (report.complete, report.findings, report.records) == (True, [], count + 8)


def test_drain_log_rewritten_below_generations(
    tmp_path: Path,
    local: LocalKafka,
    drain: Drain,
    backfill: Any,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """Where only a backfilled window has the records that were rewritten, it is noticed, too.

    After the roll, a backfill of the same hours archives nothing twice: neither the records before
    the rewritten ones, nor those of a partition that wasn't rewritten.
    """
    topic = make_topic(partitions=2)
    pipeline = Pipeline(
        name="late",
        topics=[topic],
        archive=str(tmp_path / "late"),
        source_options={"startingOffsets": "latest"},
    )
    archive, tp = Archive.at(pipeline.archive), TopicPartition(topic, 0)
    send_each(send, topic, records("old", 0, 20))
    send(topic, records("other", 0, 20), partition=1)
    drain(pipeline)
    hours = [Interval(time_at(NOON + at), time_at(NOON + at + 10)) for at in (0, 10)]
    backfill(pipeline, hours[0])
    assert validate_archive(archive, cluster).findings == []
    assert len(values_of(archive)) == 20
    backfill(pipeline, hours[1])
    assert len(values_of(archive)) == 40

    cut(local, {topic: 13})
    wait_for(lambda: cluster.latest([tp], "read_uncommitted")[tp] == 13, "a shorter log")
    report = validate_archive(archive, cluster)
    assert summary(report.findings) == {"log_rewritten": 1}
    send_each(send, topic, records("new", 13, 28))
    with pytest.raises(DataLossError, match=f"{tp} from offset 13 on"):
        preflight(pipeline, cluster)
    for interval in hours:
        with pytest.raises(DataLossError, match=f"{tp} from offset 13 on"):
            backfill(pipeline, interval)
    assert summary(validate_archive(archive, cluster).findings) == {"log_rewritten": 1}

    roll(plan_roll(archive, cluster, rewritten=True))
    for again in (hours[0], Interval(hours[0].start, hours[1].end)):
        assert backfill(pipeline, again).left == 0
    with pytest.raises(TopicError, match="or its log rewritten, after the offsets of window"):
        backfill(pipeline, hours[1])
    assert drain(pipeline)["records"] == 15
    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, report.findings) == (True, [])
    sent = [*records("old", 0, 20), *records("other", 0, 20), *records("new", 13, 28)]
    assert values_of(archive) == sorted(value for _, value, *_ in sent)


def test_drain_disk_restored(
    tmp_path: Path,
    local: LocalKafka,
    drain: Drain,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """A broker whose disk is put back from a snapshot has fewer records than were drained.

    Whether or not others have taken their offsets since; what is archived stays, and the records
    that came after the snapshot are archived beside it.
    """
    topic = make_topic(partitions=1)
    pipeline = Pipeline(name="disk", topics=[topic], archive=str(tmp_path / "archive"))
    archive, tp = Archive.at(pipeline.archive), TopicPartition(topic, 0)
    disk = local.folder / "node-1" / "data"
    send(topic, records("old", 0, 13))
    local.kill_node(1)
    shutil.copytree(disk, tmp_path / "snapshot")
    local.start_node(1)
    send(topic, records("old", 13, 20))
    drain(pipeline)
    assert validate_archive(archive, cluster).complete

    local.kill_node(1)
    shutil.rmtree(disk)
    shutil.copytree(tmp_path / "snapshot", disk)
    local.start_node(1)
    wait_for(lambda: cluster.latest([tp], "read_uncommitted")[tp] == 13, "the log of the snapshot")
    for scope in ("open", "all"):
        report = validate_archive(archive, cluster, scope=scope)
        assert (report.complete, summary(report.findings)) == (False, {"log_rewritten": 1})
    send(topic, records("new", 13, 28))
    with pytest.raises(DataLossError, match=f"{tp} from offset 13 on"):
        preflight(pipeline, cluster)

    roll(plan_roll(archive, cluster, rewritten=True))
    assert drain(pipeline)["records"] == 15
    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, report.findings) == (True, [])
    sent = [*records("old", 0, 20), *records("new", 13, 28)]
    assert values_of(archive) == sorted(value for _, value, *_ in sent)


@pytest.mark.parametrize("is_lost", [False, True])
def test_drain_log_rewritten_before_seal(
    tmp_path: Path,
    local: LocalKafka,
    drain: Drain,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    is_lost: bool,
) -> None:
    """What was drained before a log was rewritten is sealed after it, before a roll goes on.

    Unless a file of it is lost: then the roll says what it leaves, and leaves it when it is told.
    """
    topic = make_topic(partitions=1)
    pipeline = Pipeline(name="open", topics=[topic], archive=str(tmp_path / "archive"))
    archive, tp = Archive.at(pipeline.archive), TopicPartition(topic, 0)
    send_each(send, topic, records("old", 0, 20))
    drain(pipeline)
    cut(local, {topic: 13})
    wait_for(lambda: cluster.latest([tp], "read_uncommitted")[tp] == 13, "a shorter log")
    send_each(send, topic, records("new", 13, 28))
    if is_lost:
        [note] = (tmp_path / "archive").glob("generations/0001/fingerprints/*.json")
        note.unlink()

    with pytest.raises(DataLossError, match=f"{tp} from offset 13 on|{tp} at or before 19"):
        preflight(pipeline, cluster)
    with pytest.raises(DataLossError, match=f"only copy of records of {tp}.*--leave-unsealed"):
        plan_roll(archive, cluster, rewritten=True)
    report = validate_archive(archive, cluster)
    assert not report.complete
    assert report.receipts_written == (0 if is_lost else 1)
    assert plan_repair(archive, report).ranges == ({tp: [OffsetRange(0, 20)]} if is_lost else {})

    roll(plan_roll(archive, cluster, rewritten=True, leave_unsealed=is_lost))
    assert drain(pipeline)["records"] == (28 if is_lost else 15)
    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, errors(report.findings)) == (True, [])
    old = records("old", 0, 13 if is_lost else 20)
    assert values_of(archive) == sorted(value for _, value, *_ in [*old, *records("new", 13, 28)])
