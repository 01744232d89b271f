"""Spark follows the pipeline's settings: starting positions, options, files, failures."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyarrow import orc

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.source_options import _CONSUMER, _ELSEWHERE
from kafka_drain.data_files.reader import read_offsets, read_records, topic_of
from kafka_drain.drain.drain import DrainJob, prepare_drain
from kafka_drain.errors import ConfigError, KafkaDrainError, SparkJobError
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.selection import Selection
from kafka_drain.spark.job_spec import DrainSpec
from kafka_drain.spark.submit import spark_version
from tests.conftest import Drain, manifest_files
from tests.filled_topic import assert_exact, many_partitions

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00:00 UTC, in milliseconds
MIDNIGHT = NOON + 12 * 3_600_000
QUIET = NOON + 86_400_000


def numbered(count: int, first: int = 0) -> list[Any]:
    """Return records one second apart, each with a header."""
    return [(b"k", b"%d" % n, [("n", b"%d" % n)], NOON + 1000 * n) for n in range(first, count)]


def data_files(archive: str) -> list[Path]:
    return [Path(file["path"]) for file in committed_files(Archive.at(archive))]


def held(archive: str) -> dict[str, dict[int, set[int]]]:
    """Return the offsets in the committed files, by topic and partition."""
    file_format = Archive.at(archive).generation(1).read_document().format
    found: dict[str, dict[int, set[int]]] = {}
    for path in committed_files(Archive.at(archive)):
        for item in read_offsets(
            Archive.at(path["path"]).root, file_format, topic_of(path["path"])
        ):
            offsets = found.setdefault(item.tp.topic, {}).setdefault(item.tp.partition, set())
            before = len(offsets)
            offsets.update(n for r in item.ranges for n in range(r.start, r.end))
            assert len(offsets) == before + item.records
    return found


def starting_offsets(archive: str) -> Any:
    return Archive.at(archive).generation(1).read_document().starting_offsets


@pytest.fixture
def topic(make_topic: Any, send: Any) -> str:
    """A topic of two partitions with ten records each, one second apart from noon."""
    name: str = make_topic(partitions=2)
    for partition in (0, 1):
        send(name, numbered(10), partition)
    return name


# --- what is drained ------------------------------------------------------------------------


def test_drain_assign(archive_folder: str, drain: Drain, make_topic: Any, send: Any) -> None:
    """With assign, only the named partitions are drained."""
    name = make_topic(partitions=3)
    for partition in range(3):
        send(name, numbered(4), partition)
    pipeline = Pipeline(name="p", assign={name: [0, 2]}, archive=archive_folder)

    drain(pipeline)

    assert starting_offsets(archive_folder) == {name: {"0": 0, "2": 0}}
    assert held(archive_folder) == {name: {0: {0, 1, 2, 3}, 2: {0, 1, 2, 3}}}


def test_drain_topic_pattern(
    archive_folder: str, drain: Drain, topic: str, make_topic: Any, send: Any
) -> None:
    """With a pattern, fully matching topics are drained; a new one from its start."""
    # Two leading underscores alone don't make a topic internal.
    prefix = f"__{topic}"
    make_topic(name=f"{prefix}-1", partitions=1)
    send(f"{prefix}-1", numbered(3))
    pipeline = Pipeline(name="p", topic_pattern=f"{prefix}-[0-9]", archive=archive_folder)

    drain(pipeline)
    make_topic(name=f"{prefix}-2", partitions=1)
    make_topic(name=f"{prefix}-22", partitions=1)
    send(f"{prefix}-2", numbered(2))
    result = drain(pipeline)

    assert result["records"] == 2
    assert starting_offsets(archive_folder) == {f"{prefix}-1": {"0": 0}}
    assert held(archive_folder) == {f"{prefix}-1": {0: {0, 1, 2}}, f"{prefix}-2": {0: {0, 1}}}
    document = Archive.at(archive_folder).snapshot().document
    assert sorted(document.topics) == [
        f"{prefix}-1",
        f"{prefix}-2",
    ]


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"startingOffsets": {"T": {"0": 4, "1": 7}}}, (4, 7)),
        ({"startingOffsets": {"T": {"0": -2, "1": -1}}}, (0, 10)),
        ({"startingTimestamp": "2013-01-01T12:00:03+00:00"}, (3, 3)),
        (
            {
                "startingOffsetsByTimestamp": {"T": {"0": NOON + 5000, "1": QUIET}},
                "startingOffsetsByTimestampStrategy": "latest",
            },
            (5, 10),
        ),
    ],
)
def test_drain_starting_position(
    options: dict[str, Any],
    start: tuple[int, int],
    archive_folder: str,
    drain: Drain,
    topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A starting position becomes numbers in generation.json, and exactly what follows is read."""
    options = json.loads(json.dumps(options).replace('"T"', f'"{topic}"'))
    pipeline = Pipeline(name="p", topics=[topic], archive=archive_folder, source_options=options)
    offsets = 20 - sum(start)

    result = drain(pipeline)
    printed = capsys.readouterr().out

    assert starting_offsets(archive_folder) == {topic: {"0": start[0], "1": start[1]}}
    expected = {p: set(range(start[p], 10)) for p in (0, 1) if start[p] < 10}
    assert held(archive_folder) == {topic: expected}
    assert result.pop("seconds") > 0
    assert result.pop("offsets_per_second") > 0
    assert result == {
        "archive": archive_folder,
        "batches": 1,
        "offsets": offsets,
        "records": offsets,
        "offsets_behind_latest": {"min": 0.0, "max": 0.0, "avg": 0.0},
        "start": f'{{"{topic}":{{"0":{start[0]},"1":{start[1]}}}}}',
        "end": f'{{"{topic}":{{"0":10,"1":10}}}}',
    }
    assert f"drain p: {offsets} offsets planned\n" in printed
    assert f"drain p: {offsets} of {offsets} offsets (100 %)" in printed
    assert (
        f"drain p: {offsets} records in 1 batch, offsets behind latest: min 0, max 0, avg 0\n"
        in printed
    )


def test_drain_starting_latest(archive_folder: str, drain: Drain, topic: str, send: Any) -> None:
    """`latest` is fixed when the archive is created: records that arrive later are drained."""
    pipeline = Pipeline(
        name="p",
        topics=[topic],
        archive=archive_folder,
        source_options={"startingOffsets": "latest"},
    )

    first = drain(pipeline)
    send(topic, numbered(2))
    second = drain(pipeline)

    assert (first["batches"], first["offsets"]) == (0, 0)
    assert (second["batches"], second["offsets"]) == (1, 2)
    assert starting_offsets(archive_folder) == {topic: {"0": 10, "1": 10}}
    assert held(archive_folder) == {topic: {0: {10, 11}}}


def test_drain_starting_time_of_quiet_partition(
    archive_folder: str, drain: Drain, topic: str
) -> None:
    """Strategy `error` refuses a partition without a record that late, and creates no archive."""
    times = {topic: {"0": NOON, "1": QUIET}}
    pipeline = Pipeline(
        name="p",
        topics=[topic],
        archive=archive_folder,
        source_options={"startingOffsetsByTimestamp": times},
    )

    with pytest.raises(ConfigError, match=f"{topic}-1 has no record at or after that time"):
        drain(pipeline)

    assert not Path(archive_folder).exists()


def test_drain_partition_added(
    archive_folder: str, drain: Drain, topic: str, bootstrap_servers: str
) -> None:
    """A partition that was added between two drains is read from offset 0."""
    pipeline = Pipeline(name="p", topics=[topic], archive=archive_folder)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    drain(pipeline)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    # A client that has never seen the topic with two partitions.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + 30
    while len(producer.list_topics(topic, timeout=20).topics[topic].partitions) < 3:
        assert time.monotonic() < deadline, "the broker doesn't show the new partition"
    for number in range(3):
        producer.produce(topic, b"%d" % number, partition=2)
    assert producer.flush(30) == 0
    result = drain(pipeline)

    assert (result["offsets"], result["records"]) == (3, 3)
    assert held(archive_folder) == {topic: {0: set(range(10)), 1: set(range(10)), 2: {0, 1, 2}}}


def test_drain_isolation_level(
    tmp_path: Path, drain: Drain, make_topic: Any, bootstrap_servers: str
) -> None:
    """Aborted records are left out unless read_uncommitted is set."""
    name = make_topic(partitions=1)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(30)
    for value, end in ((b"no", producer.abort_transaction), (b"yes", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(30)
        end()
    committed = Pipeline(name="p", topics=[name], archive=str(tmp_path / "committed"))
    uncommitted = Pipeline(
        name="p",
        topics=[name],
        archive=str(tmp_path / "uncommitted"),
        source_options={"kafka.isolation.level": "read_uncommitted"},
    )

    results = [drain(committed), drain(uncommitted)]

    # Each transaction ends with a marker, which takes an offset.
    assert [(r["offsets"], r["records"]) for r in results] == [(4, 1), (4, 2)]
    assert held(committed.archive) == {name: {0: {2}}}
    assert held(uncommitted.archive) == {name: {0: {0, 2}}}


# --- how it is sliced -----------------------------------------------------------------------


def test_drain_max_offsets_per_trigger(archive_folder: str, drain: Drain, topic: str) -> None:
    """MaxOffsetsPerTrigger splits a drain into batches that are no larger."""
    pipeline = Pipeline(
        name="p",
        topics=[topic],
        archive=archive_folder,
        source_options={"maxOffsetsPerTrigger": 6},
    )

    result = drain(pipeline)
    archive = Archive.at(archive_folder)
    checkpoint, _ = archive.generation(1).read_checkpoint({})
    ends = [sum(checkpoint.ends[batch].values()) for batch in sorted(checkpoint.ends)]

    assert result["batches"] == len(ends) == len(manifest_files(archive))
    assert max(b - a for a, b in zip([0, *ends], ends, strict=False)) <= 6
    assert (result["offsets"], result["records"], ends[-1]) == (20, 20, 20)
    assert held(archive_folder) == {topic: {0: set(range(10)), 1: set(range(10))}}


@pytest.mark.parametrize(
    ("options", "sink_options", "files"),
    [
        ({}, {}, [10, 10]),
        ({"minPartitions": 4}, {}, [5, 5, 5, 5]),
        pytest.param(
            *({"maxRecordsPerPartition": 5}, {}, [5, 5, 5, 5]),
            marks=pytest.mark.skipif(spark_version() < (4,), reason="Spark 4 has it"),
        ),
        ({}, {"maxRecordsPerFile": 4}, [4, 4, 2, 4, 4, 2]),
    ],
)
def test_drain_records_per_file(
    options: dict[str, Any],
    sink_options: dict[str, Any],
    files: list[int],
    archive_folder: str,
    drain: Drain,
    topic: str,
) -> None:
    """minPartitions, maxRecordsPerPartition and maxRecordsPerFile make more and smaller files."""
    pipeline = Pipeline(
        name="p",
        topics=[topic],
        archive=archive_folder,
        source_options=options,
        sink_options=sink_options,
    )

    drain(pipeline)
    rows = [pq.ParquetFile(path).metadata.num_rows for path in data_files(archive_folder)]

    assert sorted(rows) == sorted(files)
    assert held(archive_folder) == {topic: {0: set(range(10)), 1: set(range(10))}}


def test_drain_partitions_per_task(
    archive_folder: str,
    drain: Drain,
    republish: Callable[..., dict[str, Any]],
    cluster: KafkaCluster,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    read: Callable[[str], dict[int, list[Any]]],
) -> None:
    """Many partitions in few files are proven, found and restored like each in its own."""
    topic, target = many_partitions(make_topic, send), make_topic(partitions=40)
    pipeline = Pipeline(name="p", topics=[topic], archive=archive_folder, partitions_per_task=5)

    drain(pipeline)
    assert_exact(Path(archive_folder), cluster, 40 * 50)
    archive = Archive.at(archive_folder)
    receipt = archive.generation(1).last_receipt()
    answer = republish(archive, target)
    criteria = Criteria(keys=frozenset([b"k"]), selection=Selection.of(partitions=[39]))
    found = [match.position.offset for match in Search(archive, criteria, limit=100).matches()]

    assert receipt is not None
    assert [len(file.contents) for file in receipt.files] == [5] * 8
    assert {content.tp.partition for file in receipt.files for content in file.contents} == {
        *range(40)
    }
    assert (answer["records"], answer["exactly_once"]) == (2_000, True)
    assert read(target) == read(topic)
    assert sorted(found) == [*range(50)]


# --- files ----------------------------------------------------------------------------------


def parquet_codec(path: Path) -> str:
    return str(pq.ParquetFile(path).metadata.row_group(0).column(0).compression)


def orc_codec(path: Path) -> str:
    return str(orc.ORCFile(path).compression)


def avro_codec(path: Path) -> str:
    with path.open("rb") as source:
        return str(fastavro.reader(source).metadata["avro.codec"])


def json_codec(path: Path) -> str:
    with gzip.open(path, "rt") as lines:
        assert json.loads(next(lines))["topic"]
    return "".join(path.suffixes[-2:])


@pytest.mark.parametrize(
    ("file_format", "compression", "codec", "expected"),
    [
        ("parquet", "", parquet_codec, "ZSTD"),
        ("parquet", "gzip", parquet_codec, "GZIP"),
        ("avro", "", avro_codec, "zstandard"),
        ("json", "", json_codec, ".json.gz"),
        ("orc", "", orc_codec, "ZSTD"),
    ],
)
def test_drain_compression(
    file_format: Any,
    compression: str,
    codec: Callable[[Path], str],
    expected: str,
    archive_folder: str,
    drain: Drain,
    topic: str,
) -> None:
    """The files are compressed as the pipeline says, and contain headers by default."""
    pipeline = Pipeline(
        name="p",
        topics=[topic],
        archive=archive_folder,
        format=file_format,
        compression=compression,
        partition_by=[],
    )

    drain(pipeline)
    files = data_files(archive_folder)
    rows = [
        row
        for path in files
        for batch in read_records(Archive.at(str(path)).root, file_format, 1 << 20)
        for row in batch.to_pylist()
    ]

    assert {codec(path) for path in files} == {expected}
    assert len(rows) == 20
    assert all(row["headers"] == [{"key": "n", "value": row["value"]}] for row in rows)


@pytest.mark.parametrize(
    ("given", "has_dictionary"), [({}, False), ({"parquet.enable.dictionary": True}, True)]
)
def test_drain_parquet_options(
    given: dict[str, Any], has_dictionary: bool, archive_folder: str, drain: Drain, topic: str
) -> None:
    """Parquet options reach the files, although Spark's streaming sink alone would ignore them."""
    pipeline = Pipeline(name="p", topics=[topic], archive=archive_folder, sink_options=given)

    drain(pipeline)

    for path in data_files(archive_folder):
        group = pq.ParquetFile(path).metadata.row_group(0)
        encodings = {e for n in range(group.num_columns) for e in group.column(n).encodings}
        assert any("DICTIONARY" in encoding for encoding in encodings) is has_dictionary


def test_drain_parquet_statistics(archive_folder: str, drain: Drain, topic: str) -> None:
    """Readers that skip row groups do so by these columns; values aren't compared for nothing."""
    drain(Pipeline(name="p", topics=[topic], archive=archive_folder))

    for path in data_files(archive_folder):
        group = pq.ParquetFile(path).metadata.row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        bounded = {each.path_in_schema for each in columns if each.has_column_index}
        assert bounded >= {"partition", "offset", "timestamp", "key"}
        if spark_version() >= (4, 1):
            assert "value" not in bounded


def test_drain_large_records_row_groups(
    archive_folder: str, drain: Drain, make_topic: Any, send: Any
) -> None:
    """A row group of large records is written when it is full, not after Parquet's 100 rows."""
    topic, size = make_topic(partitions=1), 1 << 20
    send(topic, [(b"k", os.urandom(size), [], NOON) for _ in range(12)])
    pipeline = Pipeline(
        name="p",
        topics=[topic],
        archive=archive_folder,
        source_options={"maxOffsetsPerTrigger": 12},
        sink_options={"parquet.block.size": 3 * size, "parquet.page.size": size},
    )

    drain(pipeline)

    (path,) = data_files(archive_folder)
    file = pq.ParquetFile(path).metadata
    groups = [file.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert sum(groups) == 12
    assert max(groups) <= 4


def test_drain_orc_options(archive_folder: str, drain: Drain, topic: str) -> None:
    """ORC options reach the files, and don't leak into the next drain."""
    pipeline = Pipeline(
        name="p",
        topics=[topic],
        archive=archive_folder,
        format="orc",
        sink_options={"orc.row.index.stride": 2000},
    )
    other = pipeline.model_copy(update={"archive": f"{archive_folder}-2", "sink_options": {}})

    strides = []
    for one in (pipeline, other):
        drain(one)
        strides.append({orc.ORCFile(p).row_index_stride for p in data_files(one.archive)})

    assert strides == [{2000}, {10000}]


def test_drain_splits_a_hot_partition(
    archive_folder: str, drain: Drain, make_topic: Any, bootstrap_servers: str
) -> None:
    """A partition much larger than a core's share is read by several tasks, each record once."""
    name, count = make_topic(partitions=2), 600_000
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50, "log_level": 0})
    for n in range(count):
        while True:
            try:
                producer.produce(name, b"v", partition=0, timestamp=NOON + n)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    producer.produce(name, b"v", partition=1, timestamp=NOON)
    assert producer.flush(60) == 0

    drain(Pipeline(name="p", topics=[name], archive=archive_folder))
    rows = sorted(pq.ParquetFile(path).metadata.num_rows for path in data_files(archive_folder))

    assert rows == [1, count // 2, count // 2]
    assert held(archive_folder) == {name: {0: set(range(count)), 1: {0}}}


def test_drain_partition_by_hour(
    archive_folder: str, drain: Drain, make_topic: Any, send: Any
) -> None:
    """Folders are named by topic, date and hour in UTC, whatever the machine's time zone."""
    name = make_topic(partitions=1)
    send(name, [(b"k", b"v", None, MIDNIGHT - 1), (b"k", b"v", None, MIDNIGHT)])
    pipeline = Pipeline(
        name="p", topics=[name], archive=archive_folder, partition_by=["topic", "date", "hour"]
    )

    drain(pipeline)
    data = Path(archive_folder) / "generations" / "0001" / "data"

    assert {str(path.parent.relative_to(data)) for path in data_files(archive_folder)} == {
        f"topic={name}/date=2013-01-01/hour=23",
        f"topic={name}/date=2013-01-02/hour=00",
    }


# --- the job --------------------------------------------------------------------------------


@pytest.fixture
def prepare(cluster: Any, tmp_path: Path) -> Callable[[Pipeline], tuple[DrainJob, DrainSpec]]:
    """Prepare a drain, which the test then runs as spark-submit would."""

    def run(pipeline: Pipeline) -> tuple[DrainJob, DrainSpec]:
        folder = tmp_path / "run"
        folder.mkdir()
        job = prepare_drain(pipeline, cluster, folder)
        return job, DrainSpec.read(folder / "drain.json")

    return run


@pytest.fixture
def run_job(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[DrainSpec], int]:
    """Run a job in the shared session, which outlives it."""
    from kafka_drain_spark import job
    from kafka_drain_spark.drain import run_drain

    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    return lambda spec: job.run_jobs([spec], run_drain)


def test_run_job_with_log_levels(
    archive_folder: str, prepare: Any, run_job: Any, spark: Any, topic: str
) -> None:
    """Log levels reach the loggers in the driver's JVM; the result names the Spark version."""
    pipeline = Pipeline(
        name="p", topics=[topic], archive=archive_folder, log_levels={"kafka": "ERROR"}
    )
    logger = "org.apache.spark.sql.kafka010"
    log4j = spark._jvm.org.apache.logging.log4j

    job, spec = prepare(pipeline)
    try:
        code = run_job(spec)
        level = log4j.LogManager.getLogger(logger).getLevel().toString()
    finally:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.WARN)
    result = job.result()

    assert (code, level) == (0, "ERROR")
    assert (result["records"], result["spark_version"]) == (20, spark.version)
    assert result["session_seconds"] >= 0


def check_failed(job: DrainJob, code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Check that a job failed with one log line and the same text in the error."""
    printed = capsys.readouterr().out
    with pytest.raises(KafkaDrainError) as caught:
        job.result()
    message = str(caught.value)

    assert code == 1
    assert "\n" not in message
    assert "\tat " not in printed
    assert message.endswith(printed.split("ERROR ")[1].rstrip("\n"))
    return message


def test_run_job_topic_deleted_after_plan(
    archive_folder: str,
    prepare: Any,
    run_job: Any,
    topic: str,
    bootstrap_servers: str,
    cluster: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If a topic is deleted between plan and query, the error is one line."""
    pipeline = Pipeline(name="p", topics=[topic], archive=archive_folder)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    job, spec = prepare(pipeline)
    admin.delete_topics([topic])[topic].result(20)
    message = check_failed(job, run_job(spec), capsys)

    assert "UnknownTopicOrPartitionException" in message


def test_run_job_checkpoint_unreadable(
    archive_folder: str,
    drain: Drain,
    prepare: Any,
    run_job: Any,
    topic: str,
    send: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If Spark can't read a checkpoint, the error is one line, and no manifest changes."""
    pipeline = Pipeline(name="p", topics=[topic], archive=archive_folder)
    archive = Archive.at(archive_folder)

    drain(pipeline)
    send(topic, numbered(1))
    job, spec = prepare(pipeline)
    (archive.generation(1).checkpoint / "offsets" / "0").write_text("v9\n{}\n")
    message = check_failed(job, run_job(spec), capsys)

    assert message.startswith("the drain failed in Spark: ")
    assert manifest_files(archive) == ["0"]
    with pytest.raises(SparkJobError):
        job.result()


def test_consumer_options_of_connector(spark: Any) -> None:
    """The accepted consumer options are those of the connector's kafka-clients."""
    config = spark._jvm.org.apache.kafka.clients.consumer.ConsumerConfig
    refused = {name.removeprefix("kafka.") for name in _ELSEWHERE}

    names = {
        name
        for name in config.configNames()
        # Kafka's own tests use the ones called internal.
        if name.split(".")[0] not in ("security", "sasl", "ssl", "internal") and name not in refused
    }

    if spark_version() >= (4,):
        assert set(_CONSUMER) == names
    # An older client logs unknown options and continues.
    assert set(_CONSUMER) >= names


@pytest.mark.parametrize("named", ["topics", "assign"])
def test_drain_internal_topic(
    named: str, archive_folder: str, drain: Drain, cluster: KafkaCluster, make_topic: Any
) -> None:
    """A named internal topic is drained and proven like any other."""
    name = "__consumer_offsets"
    topic = make_topic()
    ConsumerGroups(cluster.config).commit(topic, {TopicPartition(topic, 0): Committed(7)})
    partitions = list(cluster.topics([name])[name].partitions)
    source: dict[str, Any] = (
        {"topics": [name]} if named == "topics" else {"assign": {name: partitions}}
    )
    pipeline = Pipeline(name="internal", archive=archive_folder, **source)
    result = drain(pipeline)

    assert result["records"] > 0
    assert set(held(archive_folder)) == {name}
    report = validate_archive(Archive.at(archive_folder), cluster)
    assert report.complete, report.findings


def test_drain_pattern_matches_whole_names(
    archive_folder: str, drain: Drain, cluster: KafkaCluster, make_topic: Any, send: Any
) -> None:
    """A pattern matches only topics whose whole name it matches."""
    topic = make_topic(partitions=1)
    longer = make_topic(partitions=1, name=f"{topic}-longer")
    for each in (topic, longer):
        send(each, numbered(5))
    pipeline = Pipeline(name="pattern", topic_pattern=f"{topic}|none", archive=archive_folder)
    result = drain(pipeline)

    assert result["records"] == 5
    assert held(archive_folder) == {topic: {0: set(range(5))}}
    assert validate_archive(Archive.at(archive_folder), cluster).complete
