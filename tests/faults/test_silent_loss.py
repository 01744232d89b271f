"""Faults after which plain Spark reports success but loses data, or hides a stall."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import STALL_SECONDS
from kafka_drain.clock import utc_now
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import CheckpointError, DataLossError
from kafka_drain.findings import errors, summary
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.roll import plan_roll, roll

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00 UTC, in milliseconds


@pytest.fixture
def pipeline(make_topic: Any, archive_folder: str) -> Pipeline:
    """A pipeline of a topic with one partition."""
    return Pipeline(
        name="faults",
        topics=[make_topic(partitions=1)],
        archive=archive_folder,
        partition_by=["topic"],
    )


@pytest.fixture
def send_more(pipeline: Pipeline, send: Any) -> Callable[[int], None]:
    """Send the given number of records to the pipeline's topic."""

    def run(number: int) -> None:
        [topic] = pipeline.topics or []
        send(topic, [(b"k", b"v%d" % n, None, NOON + n) for n in range(number)])

    return run


@pytest.fixture
def archive(pipeline: Pipeline) -> Archive:
    """The pipeline's archive."""
    return Archive.at(pipeline.archive)


@pytest.fixture
def validate(archive: Archive, cluster: KafkaCluster) -> Callable[..., Report]:
    """Validate and seal."""

    def run(**options: Any) -> Report:
        return validate_archive(archive, cluster, **options)

    return run


def after_transactions() -> datetime:
    """Return a time at which no currently open transaction can still be in progress."""
    return utc_now() + timedelta(seconds=STALL_SECONDS)


def folder_of(archive: Archive, name: str) -> Path:
    return Path(str(archive.generation(1).folder)) / name


@pytest.mark.parametrize("name", ["metadata", "sources/0/0", "commits/0", "offsets/0"])
def test_checkpoint_garbage(
    name: str,
    pipeline: Pipeline,
    archive: Archive,
    cluster: KafkaCluster,
    drain: Any,
    send_more: Any,
    validate: Any,
) -> None:
    """Fault 72: what Spark can't read is named before it starts; a roll resumes exactly."""
    send_more(5)
    drain(pipeline)
    assert validate().complete
    send_more(5)
    drain(pipeline)
    assert validate().complete
    path = folder_of(archive, "checkpoint") / name
    path.with_name(f".{path.name}.crc").unlink()
    path.write_bytes(b"\x00{")
    send_more(5)

    with pytest.raises(CheckpointError, match=f"checkpoint/{name}: .+run `kafka-drain roll "):
        drain(pipeline)
    for _ in range(2):
        report = validate()
        assert summary(errors(report.findings)) == {"checkpoint_corrupt": 1}
        assert report.receipts_written == 0
    roll(plan_roll(archive, cluster))
    assert drain(pipeline)["offsets"] == 5
    report = validate()

    assert report.findings == report.gaps == []
    assert report.records == 15


def test_checkpoint_deleted(
    pipeline: Pipeline,
    archive: Archive,
    cluster: KafkaCluster,
    drain: Any,
    send_more: Any,
    validate: Any,
) -> None:
    """Fault 7: Spark would skip renumbered batches; preflight refuses, a roll resumes exactly."""
    for _ in range(2):
        send_more(10)
        drain(pipeline)
        assert validate().complete
    shutil.rmtree(folder_of(archive, "checkpoint"))
    send_more(10)

    with pytest.raises(CheckpointError, match=r"checkpoint_missing.*kafka-drain roll"):
        drain(pipeline)
    roll(plan_roll(archive, cluster))
    assert drain(pipeline)["offsets"] == 10

    report = validate()
    assert (report.complete, report.records, report.offsets) == (True, 30, 30)


def test_checkpoint_and_manifest_deleted(
    pipeline: Pipeline, archive: Archive, drain: Any, send_more: Any, validate: Any
) -> None:
    """With both deleted, the archive looks new; only the receipts show that it isn't."""
    send_more(10)
    drain(pipeline)
    assert validate().complete
    shutil.rmtree(folder_of(archive, "checkpoint"))
    shutil.rmtree(folder_of(archive, "data/_spark_metadata"))

    with pytest.raises(CheckpointError, match="checkpoint_missing"):
        drain(pipeline)


def test_manifest_compacted_during_validation(
    pipeline: Pipeline, archive: Archive, drain: Any, send_more: Any, validate: Any
) -> None:
    """Fault 19: batches and a compaction during validation don't look like damage."""
    send_more(12)
    slow = pipeline.model_copy(update={"source_options": {"maxOffsetsPerTrigger": "1"}})
    ended = threading.Event()

    def drain_slowly() -> None:
        try:
            drain(slow)
        finally:
            ended.set()

    drains = threading.Thread(target=drain_slowly)
    drains.start()
    reports: list[Report] = []
    while not ended.is_set():
        if archive.exists and archive.snapshot().open_generation:
            reports.append(validate())
    drains.join()
    reports.append(validate())

    assert len(reports) > 2
    assert [errors(report.findings) for report in reports] == [[]] * len(reports)
    assert (reports[-1].records, reports[-1].offsets) == (12, 12)
    assert "9.compact" in {p.name for p in folder_of(archive, "data/_spark_metadata").iterdir()}


def test_retention_of_sink(
    pipeline: Pipeline, archive: Archive, drain: Any, send_more: Any, validate: Any
) -> None:
    """Fault 20: Spark's `retention` drops old files from the manifest; receipts still hold."""
    short = pipeline.model_copy(update={"sink_options": {"retention": "1s"}})
    for _ in range(11):
        send_more(2)
        drain(short)
        assert validate().complete

    listed = archive.generation(1).read_manifest()[0].files
    report = validate()

    assert len(listed) < 11
    assert (report.complete, report.records, report.files) == (True, 22, 11)
    assert report.findings == []


@pytest.mark.parametrize("name", ["data/_spark_metadata/.0.crc", "checkpoint/offsets/.0.crc"])
def test_crc_damaged(
    pipeline: Pipeline, archive: Archive, drain: Any, send_more: Any, validate: Any, name: str
) -> None:
    """Fault 21: a bad `.crc` is named before Spark fails with a stack trace."""
    send_more(5)
    drain(pipeline)
    crc = folder_of(archive, name)
    *most, last = crc.read_bytes()
    crc.write_bytes(bytes([*most, last ^ 1]))
    send_more(5)

    with pytest.raises(CheckpointError, match=r"checksum_mismatch.*\.0\.crc"):
        drain(pipeline)

    assert summary(errors(validate().findings)) == {"checksum_mismatch": 1}
    crc.unlink()
    assert drain(pipeline)["offsets"] == 5
    assert validate().complete


def test_retention_passed_cursor(
    pipeline: Pipeline,
    archive: Archive,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    drain: Any,
    send_more: Any,
    validate: Any,
) -> None:
    """Faults 27, 28: refused, naming the ranges; if accepted, the loss is in the receipt."""
    send_more(10)
    drain(pipeline)
    assert validate().complete
    send_more(20)
    [topic] = pipeline.topics or []
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for future in admin.delete_records([KafkaTopicPartition(topic, 0, 16)]).values():
        future.result(30)
    lost = f"{topic}:0:10-16"

    with pytest.raises(DataLossError, match=rf"{topic}-0 \[10, 16\).*{lost}"):
        drain(pipeline)
    with pytest.raises(DataLossError, match=f"{topic}:0:10-16"):
        drain(pipeline, acknowledged=parse_ranges("accepted", [f"{topic}:0:10-15"]))

    assert drain(pipeline, acknowledged=parse_ranges("accepted", [lost]))["offsets"] == 20
    assert not validate().complete
    report = validate(acknowledged=parse_ranges("accepted", [lost]))
    assert report.complete
    assert summary(report.findings) == {"offset_expired": 1}
    receipt = archive.generation(1).last_receipt()
    assert receipt is not None
    assert receipt.acknowledged == (lost,)
    assert validate().complete


@pytest.fixture
def open_transaction(
    bootstrap_servers: str, pipeline: Pipeline
) -> Iterator[Callable[[], Producer]]:
    """Start a transaction with three records and leave it open."""
    producers: list[Producer] = []

    def run() -> Producer:
        [topic] = pipeline.topics or []
        producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "log_level": 0}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, b"open %d" % number, partition=0, timestamp=NOON)
        assert producer.flush(30) == 0
        producers.append(producer)
        return producer

    yield run
    for producer in producers:
        producer.abort_transaction(30)


def test_transaction_left_open(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    drain: Any,
    send_more: Any,
    validate: Any,
    open_transaction: Any,
) -> None:
    """Faults 32, 33: waiting offsets are reported, and a stall over runs isn't a green 0 rows."""
    send_more(4)
    open_transaction()
    send_more(2)

    plan = preflight(pipeline, cluster)
    assert sum(plan.hidden.values()) == 5
    assert drain(pipeline)["offsets"] == 4
    assert validate(run="first").complete
    # A retry of the same run reports the same.
    assert validate(run="first").complete

    # Another run within a transaction's maximum duration is not a stall.
    assert validate(run="soon").complete
    plan = preflight(pipeline, cluster, clock=after_transactions)
    [warning] = [w for w in plan.warnings if "STALLED" in w]
    assert "a producer left a transaction open" in warning
    assert drain(pipeline)["offsets"] == 0
    report = validate(run="second", clock=after_transactions)

    assert summary(report.findings) == {"stalled": 1}
    assert "5 offsets wait behind an open transaction" in str(report.findings[0])


def test_stall_ends(
    pipeline: Pipeline, drain: Any, send_more: Any, validate: Any, bootstrap_servers: str
) -> None:
    """Once the transaction has ended, the next run drains the waiting offsets and is green."""
    [topic] = pipeline.topics or []
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0, timestamp=NOON)
    assert producer.flush(30) == 0
    send_more(2)
    drain(pipeline)
    validate(run="first")
    assert not validate(run="second", clock=after_transactions).complete

    producer.commit_transaction(30)

    assert drain(pipeline)["offsets"] == 4
    report = validate(run="third")
    assert report.complete
    assert report.records == 3


def test_read_uncommitted_on_transactions(
    pipeline: Pipeline, cluster: KafkaCluster, send_more: Any, open_transaction: Any
) -> None:
    """Fault 37: preflight warns of read_uncommitted only for a topic with transactions."""
    uncommitted = pipeline.model_copy(
        update={"source_options": {"kafka.isolation.level": "read_uncommitted"}}
    )
    send_more(3)
    assert preflight(uncommitted, cluster).warnings == []

    open_transaction()

    assert [w for w in preflight(pipeline, cluster).warnings if "read_uncommitted" in w] == []
    [warning] = preflight(uncommitted, cluster).warnings
    assert "has transactions" in warning
