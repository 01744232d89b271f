"""The files hold what Spark read, or nothing is sealed: real Kafka, real Spark files."""

from __future__ import annotations

import ctypes
import gc
import warnings
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.inspection import committed_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.reader import read_records
from kafka_drain.errors import ManifestInvalidError, SourceRecordError
from kafka_drain.findings import summary
from kafka_drain.intervals import Interval
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00 UTC, in milliseconds
FORMATS = {"parquet": "uncompressed", "avro": "uncompressed", "json": "none", "orc": "none"}


def found(report: Report) -> dict[str, int]:
    return summary(report.findings)


def records(number: int) -> list[Any]:
    """Return records whose values can be found in a file's bytes."""
    return [(b"key %d" % n, b"genuine %d" % n, [("h", b"%d" % n)], NOON + n) for n in range(number)]


def change(path: Path, number: int) -> None:
    """Change a record's value in a file without changing its size and offsets."""
    before, after = b"genuine %d" % number, b"altered %d" % number
    if path.suffix == ".json":
        before, after = b64encode(before), b64encode(after)
    content = path.read_bytes()
    assert before in content, f"{path} has its values elsewhere"
    path.write_bytes(content.replace(before, after))


def change_one(folder: str, number: int = 1) -> None:
    """Change a record in one of the data files below a folder."""
    change(min(path for path in Path(folder).rglob("part-*") if path.is_file()), number)


@pytest.mark.parametrize("file_format", FORMATS)
def test_validate_content_changed_before_seal(
    file_format: str,
    archive_folder: str,
    drain: Any,
    repair: Any,
    republish: Any,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    read: Any,
) -> None:
    """A record changed before its batch was sealed is always found; repair restores it."""
    topic, target = make_topic(partitions=2), make_topic(partitions=2)
    for partition in (0, 1):
        send(topic, records(5), partition=partition)
    pipeline = Pipeline(
        name="changed",
        topics=[topic],
        archive=archive_folder,
        format=file_format,
        compression=FORMATS[file_format],
    )
    drain(pipeline)
    change_one(archive_folder)
    archive = Archive.at(archive_folder)

    for scope in ("open", "all"):
        report = validate_archive(archive, cluster, scope=scope)

        assert found(report)["records_changed"] == 1
        assert {str(gap.reason) for gap in report.gaps} == {"lost"}
        assert report.receipts_written == 0
        assert "Spark read" in str(report.findings[0])

    repair(archive, pipeline)

    for expected in ({"file_replaced": 1}, {}):
        report = validate_archive(archive, cluster)
        assert found(report) == expected
        assert (report.complete, report.records) == (True, 10)
    assert archive.generation(1).last_receipt() is not None
    send(topic, records(3))
    drain(pipeline)
    assert validate_archive(archive, cluster, deep=True).complete
    republish(archive, target)
    assert read(target) == read(topic)


def test_validate_content_changed_compacted(
    archive_folder: str, drain: Any, cluster: KafkaCluster, make_topic: Any, send: Any
) -> None:
    """If Kafka no longer holds the records either, the changed file stays and is never sealed."""
    from confluent_kafka import TopicPartition as KafkaTopicPartition
    from confluent_kafka.admin import AdminClient

    topic = make_topic(partitions=1)
    send(topic, records(5))
    pipeline = Pipeline(
        name="changed", topics=[topic], archive=archive_folder, compression="uncompressed"
    )
    drain(pipeline)
    change_one(archive_folder)
    gone = KafkaTopicPartition(topic, 0, 4)
    admin = AdminClient(dict(cluster.config.for_librdkafka()))
    admin.delete_records([gone])[gone].result(20)
    archive = Archive.at(archive_folder)

    for _ in range(2):
        report = validate_archive(archive, cluster)

        assert found(report)["records_changed"] == 1
        assert {str(gap.reason) for gap in report.gaps} == {"expired", "lost"}
        assert report.receipts_written == 0


def test_validate_content_changed_failed_drain(
    archive_folder: str, drain: Any, cluster: KafkaCluster, make_topic: Any, send: Any
) -> None:
    """Fault 88: batches that were committed before their drain failed are compared too."""
    topic = make_topic(partitions=1, **ANY_TIME)
    send(topic, [*records(5), (b"k", b"v", None, 1 << 62)])
    pipeline = Pipeline(
        name="changed",
        topics=[topic],
        archive=archive_folder,
        compression="uncompressed",
        source_options={"maxOffsetsPerTrigger": 2},
    )
    with pytest.raises(SourceRecordError):
        drain(pipeline)
    files = [path for path in Path(archive_folder).rglob("part-*") if path.is_file()]
    [changed] = [path for path in files if b"genuine 1" in path.read_bytes()]
    change(changed, 1)
    archive = Archive.at(archive_folder)

    for _ in range(2):
        report = validate_archive(archive, cluster)

        assert found(report)["records_changed"] == 1
        assert report.receipts_written == 0
    changed.write_bytes(changed.read_bytes().replace(b"altered 1", b"genuine 1"))
    report = validate_archive(archive, cluster)
    assert (found(report), report.receipts_written) == ({}, 2)
    assert all(receipt.fingerprint for receipt in report.sealed)


def test_windows_content_changed_before_seal(
    archive_folder: str,
    drain: Any,
    repair: Any,
    backfill: Any,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """The files of a repair's or a backfill's window are also compared before it is sealed."""
    topic = make_topic(partitions=1)
    send(topic, records(5))
    pipeline = Pipeline(
        name="changed",
        topics=[topic],
        archive=archive_folder,
        compression="uncompressed",
        source_options={"startingOffsets": {topic: {"0": 3}}},
    )
    drain(pipeline)
    archive = Archive.at(archive_folder)
    assert validate_archive(archive, cluster).complete
    windows = f"{archive_folder}/windows"
    Path(committed_files(archive)[0]["path"]).unlink()

    with pytest.raises(ManifestInvalidError, match=r"content_changed: .*; Spark read "):
        repair(archive, pipeline, after=lambda: change_one(windows, 3))

    assert not any(window.is_sealed for window in archive.snapshot().windows)
    assert not validate_archive(archive, cluster).complete
    repair(archive, pipeline)
    assert validate_archive(archive, cluster).complete

    # Offsets 0 to 2 are before the generation.
    interval = Interval.parse(["2013-01-01T12:00:00+00:00", "2013-01-01T13:00:00+00:00"])
    with pytest.raises(ManifestInvalidError, match=r"content_changed: .*; Spark read "):
        backfill(pipeline, interval, after=lambda: change_one(windows))
    assert validate_archive(archive, cluster).complete


#: Times that cause trouble in formats, calendars and libraries, in milliseconds since 1970.
TIMES = [
    -1,  # Kafka's "no timestamp"
    -999,
    -1000,
    -1001,
    1,
    999,
    NOON,
    -12_219_292_800_000,  # 1582-10-15, the first day of the Gregorian calendar
    -12_219_292_800_001,
    -14_831_769_600_000,  # 1500-01-01
    -62_135_596_800_000,  # 0001-01-01, the null date of .NET
    -62_135_553_600_000 - 3_600_000,
    253_402_300_799_999,  # 9999-12-31
    253_402_300_800_000,  # the year 10000
    1_767_225_600_000_000,  # microseconds mistaken for milliseconds
    -30_610_224_000_001,  # the year 999
]
ANY_TIME = {
    "message_timestamp_after_max_ms": str(2**63 - 1),
    "message_timestamp_before_max_ms": str(2**63 - 1),
}


@pytest.mark.parametrize("file_format", FORMATS)
def test_drain_any_time(
    file_format: str,
    archive_folder: str,
    drain: Any,
    backfill: Any,
    cluster: KafkaCluster,
    spark: Any,
    make_topic: Any,
    send: Any,
    read: Any,
) -> None:
    """Each time is in the files as in Kafka, for both a drain and a window."""
    from kafka_drain_spark.reader import read_archive

    topic = make_topic(partitions=2, **ANY_TIME)
    sent = [(b"k", b"v %d" % n, None, time) for n, time in enumerate(TIMES)]
    send(topic, sent, partition=0)
    send(topic, sent, partition=1)
    in_kafka = {p: [record[3] for record in held] for p, held in read(topic).items()}
    assert set(TIMES) - {-1} <= set(in_kafka[0])
    pipeline = Pipeline(name="times", topics=[topic], archive=archive_folder, format=file_format)
    drain(pipeline)
    archive = Archive.at(archive_folder)

    report = validate_archive(archive, cluster)

    assert (found(report), report.receipts_written) == ({}, 1)
    assert found(validate_archive(archive, cluster, deep=True)) == {}
    assert times_in_files(archive) == in_kafka
    if file_format != "json":
        # Spark's own JSON reader supports only years of four digits.
        rows = read_archive(spark, archive_folder).selectExpr(
            "partition", "offset", "unix_millis(timestamp) AS time"
        )
        by_spark: dict[int, list[int]] = {0: [], 1: []}
        with warnings.catch_warnings():
            # pyspark leaves the socket of a collect() to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            for row in rows.orderBy("partition", "offset").collect():
                by_spark[row["partition"]].append(row["time"])
            gc.collect()
        assert by_spark == in_kafka


def times_in_files(archive: Archive) -> dict[int, list[int]]:
    """Return the milliseconds in an archive's files, by partition and in the order of offsets."""
    rows: list[tuple[int, int, int]] = []
    for file in archive_files(archive.snapshot()):
        for batch in read_records(archive.root / file.path, file.file_format, 1 << 20):
            rows += zip(
                batch["partition"].to_pylist(),
                batch["offset"].to_pylist(),
                (time // 1000 for time in batch["timestamp"].cast(pa.int64()).to_pylist()),
                strict=True,
            )
    times: dict[int, list[int]] = {}
    for partition, _, time in sorted(rows):
        times.setdefault(partition, []).append(time)
    return times


@pytest.mark.parametrize(
    ("time", "why"),
    [
        (-171_595 * 86_400_000, "on one of two days"),
        (-171_596 * 86_400_000, "on one of two days"),
        (-62_135_769_600_001, "before the year 1"),
        (1 << 62, "outside the years -290,308 to 294,247 that Spark can represent"),
    ],
)
def test_drain_time_refused(
    time: int,
    why: str,
    archive_folder: str,
    drain: Any,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """A time that Spark can't represent ends the drain, which names the record."""
    topic = make_topic(partitions=2, **ANY_TIME)
    send(topic, records(3), partition=1)
    send(topic, [(b"k", b"v", None, time)], partition=1)
    pipeline = Pipeline(name="times", topics=[topic], archive=archive_folder)

    for _ in range(2):
        with pytest.raises(SourceRecordError, match=f"{topic}-1 offset 3: .*{why}") as raised:
            drain(pipeline)

        assert "--acknowledge-expired" in str(raised.value)
        report = validate_archive(Archive.at(archive_folder), cluster)
        assert (report.records, report.receipts_written) == (0, 0)


def test_drain_header_name_refused(
    archive_folder: str,
    drain: Any,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    bootstrap_servers: str,
) -> None:
    """A header name that isn't UTF-8 ends the drain; without headers, the pipeline resumes."""
    topic = make_topic(partitions=1)
    send(topic, records(2))
    send_header(bootstrap_servers, topic, b"\xff\xfe name")
    pipeline = Pipeline(name="names", topics=[topic], archive=archive_folder)

    with pytest.raises(SourceRecordError, match=f"{topic}-0 offset 2: the name of one of its"):
        drain(pipeline)

    assert validate_archive(Archive.at(archive_folder), cluster).records == 0
    without = pipeline.model_copy(update={"source_options": {"includeHeaders": "false"}})
    assert drain(without)["records"] == 3


def send_header(servers: str, topic: str, name: bytes) -> None:
    """Send a record whose header name is arbitrary bytes, which Python's client can't."""
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    kafka = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
    kafka.rd_kafka_conf_new.restype = ctypes.c_void_p
    kafka.rd_kafka_new.restype = ctypes.c_void_p
    conf, error = ctypes.c_void_p(kafka.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    setting = (b"bootstrap.servers", servers.encode())
    assert kafka.rd_kafka_conf_set(conf, *setting, error, ctypes.c_size_t(512)) == 0, error.value
    producer = ctypes.c_void_p(
        kafka.rd_kafka_new(ctypes.c_int(0), conf, error, ctypes.c_size_t(512))
    )
    copied = 2
    # As librdkafka's RD_KAFKA_V_…: topic, partition, value, flags, header, end.
    failed = kafka.rd_kafka_producev(
        producer,
        *(ctypes.c_int(1), topic.encode()),
        *(ctypes.c_int(3), ctypes.c_int(0)),
        *(ctypes.c_int(4), b"v", ctypes.c_size_t(1)),
        *(ctypes.c_int(7), ctypes.c_int(copied)),
        *(ctypes.c_int(9), name, b"h", ctypes.c_ssize_t(1)),
        ctypes.c_int(0),
    )
    assert failed == 0
    assert kafka.rd_kafka_flush(producer, ctypes.c_int(20_000)) == 0
    kafka.rd_kafka_destroy(producer)
