"""Republishes of real archives to a real broker: which records, to where, by which engine."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from kafka_drain.archive.archive import Archive
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, MachineError, TopicError
from kafka_drain.intervals import time_text
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.engines.select import Engines
from kafka_drain.republish.planning.request import RESTORED, RepublishRequest
from kafka_drain.republish.run import plan_republish
from kafka_drain.spark.job_spec import SendSpec, SinkSpec, write_private
from kafka_drain.spark.submit import SparkApplication, prepare_application
from tests.faults.injection import wait_for
from tests.integration.command_line import kafka_drain

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00:00 UTC, in milliseconds
RECORDS = 40

Topic = dict[int, list[Any]]


def records(source: str, number: int = RECORDS, first: int = 0) -> list[Any]:
    """Return records of which no two are alike, with keys that partitions share.

    Times go back and forth, as those of several producers do.
    """
    return [
        (
            None if n % 7 == 0 else b"key %d" % (n % 10),
            None if n % 11 == 0 else f"value {n} of {source}".encode(),
            [("a", source.encode()), ("a", None)] if n % 3 == 0 or n % 11 == 0 else None,
            NOON + 10 * n + (5 - 12 * (n % 2)),
        )
        for n in range(first, first + number)
    ]


class Source:
    """Two topics, and a sealed archive of them in each requested format."""

    def __init__(self, one: str, two: str, drain: Any, cluster: KafkaCluster) -> None:
        self.one = one
        self.two = two
        self._drain = drain
        self._cluster = cluster
        self._archives: dict[str, Archive] = {}

    def archive(self, folder: Path, file_format: str = "parquet") -> Archive:
        """Return the archive in a format; it is drained on first request."""
        if file_format not in self._archives:
            pipeline = Pipeline(
                name="restored",
                topics=[self.one, self.two],
                archive=str(folder / file_format),
                format=file_format,
            )
            self._drain(pipeline)
            archive = Archive.at(pipeline.archive)
            assert validate_archive(archive, self._cluster).complete
            self._archives[file_format] = archive
        return self._archives[file_format]


@pytest.fixture(scope="module")
def built() -> dict[str, Source]:
    """Shared by the tests; none of them changes it except by new runs."""
    return {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the archives."""
    return tmp_path_factory.mktemp("republished")


@pytest.fixture
def source(
    built: dict[str, Source], make_topic: Any, send: Any, drain: Any, cluster: KafkaCluster
) -> Source:
    """Two topics: one with three partitions, one of them empty, and one with two."""
    if not built:
        one = make_topic(partitions=3, segment_ms="3600000", max_message_bytes="2000000")
        two = make_topic(partitions=2)
        for topic, partition in ((one, 0), (one, 2), (two, 0), (two, 1)):
            send(topic, records(f"{topic}-{partition}"), partition=partition)
        built["it"] = Source(one, two, drain, cluster)
    return built["it"]


@pytest.fixture
def archive(source: Source, folder: Path) -> Archive:
    """The sealed archive of both topics."""
    return source.archive(folder)


def only(topic: str, **more: Any) -> dict[str, Any]:
    return {"topics": [topic], **more}


def end_of(cluster: KafkaCluster, topic: str) -> int:
    """Return the number of offsets in a topic, including transaction markers."""
    partitions = [TopicPartition(topic, p) for p in cluster.topics([topic])[topic].partitions]
    return sum(cluster.latest(partitions, "read_uncommitted").values())


# which records


@pytest.mark.parametrize("moment", [NOON + 103, NOON + 205])
def test_republish_to_a_moment(
    moment: int, source: Source, archive: Archive, make_topic: Any, read: Any, republish: Any
) -> None:
    """A restore to a point in time has exactly the records before it, to the millisecond."""
    target = make_topic(partitions=3)
    before = read(source.one)
    assert any(time == moment for rows in before.values() for *_, time in rows)

    receipt = republish(archive, target, **only(source.one, to_time=time_text(moment)))

    expected = {p: [row for row in rows if row[3] < moment] for p, rows in before.items()}
    assert read(target) == expected
    assert receipt["records"] == sum(map(len, expected.values()))


def test_republish_offsets(
    source: Source, archive: Archive, make_topic: Any, read: Any, republish: Any
) -> None:
    """Of each partition, only the named offsets are sent, in order."""
    target = make_topic(partitions=3)
    one = source.one
    offsets = [f"{one}:0:5-9", f"{one}:0:30-31", f"{one}:2:0-1"]

    republish(archive, target, offsets=offsets)

    before = read(one)
    assert read(target) == {
        0: [*before[0][5:9], before[0][30]],
        1: [],
        2: before[2][:1],
    }


def test_republish_partition_without_records(
    source: Source, archive: Archive, cluster: KafkaCluster, make_topic: Any, republish: Any
) -> None:
    """A partition drained empty is fine; one that never existed is refused, with exit code 2."""
    target = make_topic(partitions=3)
    servers = ("--bootstrap-servers", cluster.config.bootstrap_servers)
    asked = ("--target-topic", target, "--topic", source.one, "--partition", "77")

    empty = republish(archive, target, **only(source.one, partitions=[1]))
    unknown = kafka_drain("republish", archive.root, *servers, *asked)

    assert empty["records_sent"] == 0
    assert unknown.code == 2
    assert f"never held partition 77 of {source.one}" in unknown.err
    assert end_of(cluster, target) == 0


# to where


def test_republish_renamed_topics(
    source: Source, archive: Archive, make_topic: Any, read: Any, republish: Any
) -> None:
    """Each topic goes to a name derived from its own, except the renamed one."""
    restored = make_topic(3, name=f"{source.one}_restored")
    renamed = make_topic(2)

    receipt = republish(archive, "{topic}_restored", rename={source.two: renamed})

    assert read(restored) == read(source.one)
    assert read(renamed) == read(source.two)
    assert receipt["verification"]["is_exact"]


def test_republish_by_key(
    source: Source,
    archive: Archive,
    make_topic: Any,
    read: Any,
    republish: Any,
    spark: Any,
    bootstrap_servers: str,
) -> None:
    """With another number of partitions, keys are placed as by Kafka's Java producer."""
    target, expected = make_topic(partitions=7), make_topic(partitions=7)
    before = read(source.one)
    keys = sorted({row[0] for rows in before.values() for row in rows} - {None})

    republish(archive, target, **only(source.one), placement="key")
    places = java_places(spark, bootstrap_servers, expected, keys)

    after = read(target)
    found = {row[0]: p for p, rows in after.items() for row in rows if row[0] is not None}
    assert found == places
    assert len(set(places.values())) > 1
    # In order for each key of each source partition; records without key stay with their partition.
    keyless = {p: [row for row in rows if row[0] is None] for p, rows in before.items()}
    for partition, rows in after.items():
        assert [row for row in rows if row[0] is None] == keyless.get(partition, [])
        for key in {row[0] for row in rows} - {None}:
            for rows_before in before.values():
                sent = [row for row in rows_before if row[0] == key]
                assert [row for row in rows if row in sent] == sent
    assert sum(map(len, after.values())) == 2 * RECORDS


def java_places(
    spark: Any, bootstrap_servers: str, topic: str, keys: list[bytes]
) -> dict[bytes, int]:
    """Send keys with Kafka's own Java producer; return the partition chosen for each."""
    jvm = spark.sparkContext._jvm
    serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
    properties = jvm.java.util.Properties()
    for name, value in {
        "bootstrap.servers": bootstrap_servers,
        "key.serializer": serializer,
        "value.serializer": serializer,
    }.items():
        properties.setProperty(name, value)
    clients = jvm.org.apache.kafka.clients.producer
    producer = clients.KafkaProducer(properties)
    try:
        sent = {key: producer.send(clients.ProducerRecord(topic, key, b"")) for key in keys}
        return {key: future.get().partition() for key, future in sent.items()}
    finally:
        producer.close()


def test_republish_to_one_partition(
    source: Source, archive: Archive, make_topic: Any, read: Any, republish: Any
) -> None:
    """All records can go to one partition; those of a source partition stay in order."""
    target = make_topic(partitions=2)

    republish(archive, target, **only(source.one), placement=1)

    before, after = read(source.one), read(target)
    assert after[0] == []
    assert len(after[1]) == 2 * RECORDS
    for rows in before.values():
        assert [row for row in after[1] if row in rows] == rows


def test_republish_provenance(
    source: Source, archive: Archive, make_topic: Any, read: Any, republish: Any
) -> None:
    """Headers state each record's origin, after its existing headers."""
    target = make_topic(partitions=3)

    republish(archive, target, **only(source.one), provenance=True)

    before = read(source.one)
    added = [
        (len(before[p][offset][2] or []), dict(row[2][-3:]), p, offset)
        for p, rows in read(target).items()
        for offset, row in enumerate(rows)
    ]
    assert len(added) == 2 * RECORDS
    for own, headers, partition, offset in added:
        assert sorted(headers.values()) == sorted(
            [source.one.encode(), b"%d" % partition, b"%d" % offset]
        )
        assert own in (0, 2)
    unchanged = {
        p: [(*row[:2], row[2][:-3] or None, row[3]) for row in rows]
        for p, rows in read(target).items()
    }
    assert unchanged == before


def test_republish_creates_target(
    source: Source, archive: Archive, cluster: KafkaCluster, read: Any, republish: Any
) -> None:
    """A missing target is created like its source, and gets its records."""
    target = f"{source.one}_made"

    republish(archive, target, **only(source.one), create_target=True)

    assert cluster.topic_settings(target) == cluster.topic_settings(source.one)
    assert cluster.topic_settings(target).config["segment.ms"] == "3600000"
    assert read(target) == read(source.one)


def test_republish_creates_all_targets_or_none(
    source: Source, archive: Archive, cluster: KafkaCluster, republish: Any
) -> None:
    """A name that Kafka rejects or considers a duplicate is found before any topic is created."""
    before = cluster.topic_names()
    names = {
        "x" * 250: (ConfigError, r"\(250 characters\) is not acceptable"),
        f"{source.one}.made_first": (ConfigError, "differ only in dots and underscores"),
        # Only Kafka knows that a topic has a colliding name.
        "collides.with": (TopicError, "collides with"),
    }
    cluster.create_topic("collides_with", TopicSettings(1, 1))

    for name, (error, says) in names.items():
        target = f"{source.one}_made_first"
        with pytest.raises(error, match=says):
            republish(archive, target, rename={source.two: name}, create_target=True)

    assert cluster.topic_names() == sorted([*before, "collides_with"])


# into the source


@pytest.fixture
def own_source(
    tmp_path: Path, drain: Any, send: Any, cluster: KafkaCluster, make_topic: Any
) -> Any:
    """A topic of its own and its sealed archive, for a test to destroy."""
    topic = make_topic(partitions=2)
    send(topic, records("p0", 5), partition=0)
    send(topic, records("p1", 7), partition=1)
    pipeline = Pipeline(name="own", topics=[topic], archive=str(tmp_path / "archive"))
    drain(pipeline)
    archive = Archive.at(pipeline.archive)
    assert validate_archive(archive, cluster).complete
    return topic, archive


def test_republish_without_target(
    own_source: Any, cluster: KafkaCluster, read: Any, republish: Any
) -> None:
    """Without a target, records go to a topic next to the source, which stays unchanged."""
    topic, archive = own_source
    before = read(topic)

    republish(archive, RESTORED, create_target=True)

    assert read(topic) == before == read(f"{topic}.restored")


def test_republish_restores_source(
    own_source: Any,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    make_topic: Any,
    send: Any,
    read: Any,
    republish: Any,
) -> None:
    """A source that holds records, recreated or not, isn't a target; once deleted, it is."""
    topic, archive = own_source
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    before = read(topic)

    for target in (None, "{topic}", topic):
        says = rf"{topic} is a source .* holds 12 offsets.* duplicated"
        with pytest.raises(TopicError, match=says):
            republish(archive, target)
    assert read(topic) == before

    # Recreated by a producer that still sends to it.
    delete_topic(admin, cluster, topic)
    made_again(cluster, make_topic, topic)
    send(topic, records("new", 1))
    with pytest.raises(TopicError, match=r"holds 1 offsets, .* recreated after it was archived"):
        republish(archive, None)

    # Deleted.
    delete_topic(admin, cluster, topic)
    receipt = republish(archive, None, run_name="gone", create_target=True)
    assert receipt["verification"]["is_exact"]
    assert read(topic) == before

    # Recreated, and empty.
    delete_topic(admin, cluster, topic)
    made_again(cluster, make_topic, topic)
    assert republish(archive, None, run_name="empty")["verification"]["is_exact"]
    assert read(topic) == before

    # Emptied, and then named explicitly.
    ends = cluster.latest([TopicPartition(topic, p) for p in (0, 1)], "read_uncommitted")
    admin_ends = [KafkaTopicPartition(tp.topic, tp.partition, end) for tp, end in ends.items()]
    for future in admin.delete_records(admin_ends).values():
        future.result(20)
    assert republish(archive, None, run_name="emptied", repeat=True)["verification"]["is_exact"]
    with pytest.raises(TopicError, match="they would be mixed"):
        republish(archive, None, run_name="twice", repeat=True)
    receipt = republish(archive, None, run_name="twice", repeat=True, into_source=True)
    assert receipt["verification"]["is_exact"]


def delete_topic(admin: AdminClient, cluster: KafkaCluster, topic: str) -> None:
    """Delete a topic, and wait until it is gone."""
    admin.delete_topics([topic])[topic].result(20)
    wait_for(lambda: not cluster.has_topic(topic), "the deletion")


def made_again(cluster: KafkaCluster, make_topic: Any, topic: str) -> None:
    """Recreate a topic of two partitions, and wait until it exists."""
    make_topic(2, name=topic)
    wait_for(lambda: cluster.has_topic(topic), "the topic")


# Spark


def test_prepare_application_without_connector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the Kafka connector isn't downloaded, only what needs it fails."""
    pipeline = Pipeline(name="restored", topics=["any"], archive=str(tmp_path))

    def prepare(kind: str, *, needs_connector: bool) -> SparkApplication:
        return prepare_application(
            "republish",
            kind=kind,
            spec_path=tmp_path / "spec.json",
            pipeline=pipeline,
            folder=tmp_path,
            needs_connector=needs_connector,
        )

    fetched = prepare("send", needs_connector=False)
    monkeypatch.setenv("KAFKA_DRAIN_CACHE", str(tmp_path / "empty"))
    bare = prepare("send", needs_connector=False)

    # On the class path; otherwise no class in the CDS archive would match.
    assert fetched.conf["spark.driver.extraClassPath"].split(":") == fetched.jars
    assert bare.jars == []
    assert "spark.driver.extraClassPath" not in bare.conf
    with pytest.raises(MachineError, match="kafka-drain jars"):
        prepare("sink", needs_connector=True)


@pytest.fixture
def by_spark(
    spark: Any, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Republish with Spark as the command does, but in the shared session."""
    from kafka_drain_spark.send import run_send
    from kafka_drain_spark.sink import run_sink

    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)

    def submit(application: SparkApplication) -> None:
        spec: Any
        if application.kind == "send":
            spark.sparkContext.addPyFile(str(application.py_files))
            spec = SendSpec.read(application.specs[0])
            result = run_send(spark, spec)
        else:
            spec = SinkSpec.read(application.specs[0])
            result = run_sink(spark, spec)
        write_private(Path(spec.result_path), result)

    def run(archive: Archive, target_topic: str, **asked: Any) -> dict[str, Any]:
        planned = plan_republish(
            archive,
            cluster,
            RepublishRequest(target_topic=target_topic, **asked),
            now=utc_now(),
            apply=True,
        )
        run_folder = tmp_path / planned.plan.key
        run_folder.mkdir(mode=0o700)
        pipeline = Pipeline(name="restored", topics=["any"], archive=str(archive.root))
        engines = Engines(str(archive.root), cluster, pipeline, run_folder, submit)
        return planned.execute(engines, utc_now)

    return run


# pyspark leaves the socket of a collect() to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("file_format", ["parquet", "avro", "json"])
def test_republish_by_spark(
    file_format: str, source: Source, folder: Path, make_topic: Any, read: Any, by_spark: Any
) -> None:
    """Spark's executors send each record unchanged, exactly once, from archives in each format."""
    target = make_topic(partitions=3)
    archive = source.archive(folder, file_format)

    receipt = by_spark(archive, target, **only(source.one), engine="spark")

    assert read(target) == read(source.one)
    assert (receipt["engine"], receipt["exactly_once"]) == ("spark", True)
    assert receipt["records_sent"] == receipt["verification"]["records"] == 2 * RECORDS


def test_republish_at_least_once(
    source: Source,
    archive: Archive,
    make_topic: Any,
    read: Any,
    by_spark: Any,
    tmp_path: Path,
) -> None:
    """Spark's own sink keeps everything but the timestamps, and the receipt says so."""
    target = make_topic(partitions=3, max_message_bytes="100000")

    receipt = by_spark(archive, target, partitions=[0, 2], delivery="at_least_once")

    after = {p: [row[:3] for row in rows] for p, rows in read(target).items()}
    for topic in (source.one, source.two):
        for partition, rows in read(topic).items():
            wanted = [row[:3] for row in rows] if partition != 1 else []
            assert [row for row in after[partition] if row in wanted] == wanted
    assert {p: len(rows) for p, rows in after.items()} == {0: 2 * RECORDS, 1: 0, 2: RECORDS}
    assert receipt["records"] == 3 * RECORDS
    assert (receipt["delivery"], receipt["exactly_once"]) == ("at_least_once", False)
    # Batches that the target accepts: if one is split, Spark doesn't notice rejected records.
    spec = SinkSpec.read(tmp_path / receipt["key"] / "republish.json")
    assert spec.writer_options["kafka.batch.size"] == "50000"


# runs


def test_republish_planned_before_another(
    archive: Archive,
    source: Source,
    cluster: KafkaCluster,
    make_topic: Any,
    read: Any,
    republish: Callable[..., dict[str, Any]],
) -> None:
    """A planned run that never started is refused if another has sent the same since."""
    target = make_topic(partitions=3)
    request = RepublishRequest(
        target_topic=target, **only(source.one), engine="worker", run_name="planned-first"
    )
    planned = plan_republish(archive, cluster, request, now=utc_now(), apply=True)
    planned.run.write_plan(planned.plan)
    receipt = republish(archive, target, **only(source.one), run_name="sent-second")
    resumed = plan_republish(archive, cluster, request, now=utc_now(), apply=True)
    no_engine: Any = None

    with pytest.raises(ConfigError, match=r"run sent-second-.* has sent records"):
        resumed.execute(no_engine, utc_now)

    assert sum(map(len, read(target).values())) == receipt["records"]


def test_republish_run_again(
    source: Source,
    archive: Archive,
    cluster: KafkaCluster,
    make_topic: Any,
    read: Any,
    republish: Any,
) -> None:
    """A finished run sends nothing more; another run to the same topic only if allowed."""
    target = make_topic(partitions=3)
    selection = only(source.one)

    first = republish(archive, target, run_name="first", **selection)
    end = end_of(cluster, target)
    again = republish(archive, target, run_name="first", **selection)
    with pytest.raises(ConfigError, match=r"run first-\w+ has sent records .* duplicated"):
        republish(archive, target, run_name="second", **selection)

    assert (first["records_sent"], again["records_sent"]) == (2 * RECORDS, 0)
    assert {**again, "records_sent": 0} == {**first, "records_sent": 0}
    assert end_of(cluster, target) == end

    republish(archive, target, run_name="second", **selection, repeat=True)

    assert read(target) == {p: rows * 2 for p, rows in read(source.one).items()}


def test_republish_follow(
    tmp_path: Path,
    drain: Any,
    send: Any,
    cluster: KafkaCluster,
    make_topic: Any,
    read: Any,
    republish: Any,
) -> None:
    """A mirror that follows an archive equals the source after each drain."""
    source, target = make_topic(partitions=2), make_topic(partitions=2)
    pipeline = Pipeline(name="followed", topics=[source], archive=str(tmp_path / "archive"))
    archive = Archive.at(pipeline.archive)
    sent = []

    for number in range(3):
        send(source, records("p0", 5, first=5 * number), partition=0)
        send(source, records("p1", number, first=10 * number), partition=1)
        drain(pipeline)
        assert validate_archive(archive, cluster).complete
        sent.append(republish(archive, target, run_name="mirror", follow=True)["records_sent"])
        assert read(target) == read(source)

    end = end_of(cluster, target)
    nothing = republish(archive, target, run_name="mirror", follow=True)

    assert sent == [5, 6, 7]
    assert nothing["records_sent"] == 0
    assert end_of(cluster, target) == end


def test_republish_follow_target_made_again(
    own_source: Any,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    drain: Any,
    send: Any,
    make_topic: Any,
    read: Any,
    republish: Any,
) -> None:
    """A mirror doesn't resume in a recreated target, nor report that it is done."""
    source, archive = own_source
    target = make_topic(partitions=2)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    republish(archive, target, run_name="mirror", follow=True)
    before = re.escape(cluster.topics([target])[target].id)
    delete_topic(admin, cluster, target)
    made_again(cluster, make_topic, target)
    after = re.escape(cluster.topics([target])[target].id)
    says = rf"id {before}, which has been recreated since: its id is now {after}\. .* another run"

    # With nothing new to send, and with something.
    for _ in range(2):
        with pytest.raises(TopicError, match=says):
            republish(archive, target, run_name="mirror", follow=True)
    send(source, records("p1", 3, first=100), partition=1)
    drain(Pipeline(name="own", topics=[source], archive=str(archive.root)))
    assert validate_archive(archive, cluster).complete
    for _ in range(2):
        with pytest.raises(TopicError, match=says):
            republish(archive, target, run_name="mirror", follow=True)

    assert not any(read(target).values())
    assert republish(archive, target, run_name="mirror-2", follow=True)["records_sent"] == 15
    assert read(target) == read(source)


def test_republish_records_per_second(
    source: Source, archive: Archive, make_topic: Any, read: Any, republish: Any
) -> None:
    """A rate limit holds: records take at least the expected time, and all arrive."""
    target = make_topic(partitions=3)
    began = time.monotonic()

    republish(archive, target, **only(source.one), records_per_second=2 * RECORDS)

    assert time.monotonic() - began >= 1.0
    assert read(target) == read(source.one)
