"""Maintenance with a real broker and real Spark: what it rewrites, deletes and keeps."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from benchmarks.synthetic import unseal_newest
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.scrubs import WHERE, oldest_read
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.records import RowBounds
from kafka_drain.errors import ArchiveError, LockedError, ManifestInvalidError, SparkJobError
from kafka_drain.gaps import GapReason
from kafka_drain.intervals import Interval, time_text
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.maintain import plan_maintenance, run_maintenance
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.runs import list_runs
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.job_spec import CompactSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows.backfill import refuse_incomplete
from tests.brute_force import data_files, offsets_in_files
from tests.forks import kill_points, run_forked
from tests.integration.killed_steps import maintain_until
from tests.kafka_drain.golden import seal_repair

pytestmark = pytest.mark.integration

NOON = 1_768_046_400_000  # 2026-01-10 12:00 UTC, in milliseconds
HOUR = 3_600_000
BATCHES, RECORDS = 4, 6

Maintain = Callable[..., dict[str, Any]]


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A topic of two partitions."""
    return make_topic(2)


@pytest.fixture
def growing(
    topic: str, send: Callable[..., None], archive_folder: str, drain: Any, cluster: KafkaCluster
) -> Pipeline:
    """An archive with four sealed batches, one hour of records each, in eight files."""
    found = Pipeline(name="kept", topics=[topic], archive=archive_folder)
    fill(found, send, drain, cluster, range(BATCHES))
    return found


@pytest.fixture
def pipeline(
    copied: Callable[..., Pipeline],
    send: Callable[..., None],
    drain: Any,
    cluster: KafkaCluster,
) -> Pipeline:
    """A copy of such an archive, for tests that don't send or drain any more."""
    return copied(lambda first: fill(first, send, drain, cluster, range(BATCHES)))


def fill(
    pipeline: Pipeline,
    send: Callable[..., None],
    drain: Any,
    cluster: KafkaCluster,
    hours: range,
) -> None:
    """Send an hour's records to both partitions, drain and seal them; hour by hour."""
    [topic] = pipeline.topics or []
    for number in hours:
        for partition in (0, 1):
            records = [(b"k", b"v", None, NOON + number * HOUR + n) for n in range(RECORDS)]
            send(topic, records, partition)
        drain(pipeline)
        assert validate_archive(Archive.at(pipeline.archive), cluster).complete


@pytest.fixture
def maintain(cluster: KafkaCluster, runner: SparkRunner) -> Maintain:
    """Maintain an archive; by default ten days from now, when its generation is due."""

    def run(pipeline: Pipeline, *, days: int = 10, **changes: Any) -> dict[str, Any]:
        return run_maintenance(
            changed(pipeline, **changes),
            cluster,
            runner,
            run="tests",
            clock=lambda: utc_now() + timedelta(days=days),
        )

    return run


def changed(pipeline: Pipeline, **changes: Any) -> Pipeline:
    """Return a pipeline with changed keys."""
    return Pipeline(**(pipeline.model_dump() | changes))


def live_files(pipeline: Pipeline) -> set[str]:
    """Return the files that readers use."""
    return {file.path for file in archive_files(Archive.at(pipeline.archive).snapshot())}


def refuse_changed(pipeline: Pipeline, cluster: KafkaCluster, *, is_repaired: bool = False) -> None:
    """Compare the files with Kafka's content, and validate every byte."""
    archive = Archive.at(pipeline.archive)
    [topic] = pipeline.topics or []
    ends = cluster.latest([TopicPartition(topic, n) for n in (0, 1)], "read_committed")
    expected = {(tp.partition, offset) for tp, end in ends.items() for offset in range(end)}
    found = offsets_in_files(archive)
    assert set(found) == expected
    assert set(found.values()) == {1}
    report = validate_archive(archive, cluster, deep=True)
    assert report.complete
    assert report.summary()["records"] == len(expected)
    if is_repaired:
        # For a closed generation it relies on the newest receipt, which counts the damaged file.
        return
    trusting = validate_archive(archive, cluster, scope="open").summary()
    assert (trusting["records"], trusting["files"]) == (
        len(expected),
        len(archive_files(archive.snapshot())),
    )


def test_maintain_compacts_closed_generation(
    growing: Pipeline,
    maintain: Maintain,
    cluster: KafkaCluster,
    send: Callable[..., None],
    drain: Any,
) -> None:
    """A closed generation's files become one, sorted by offset; a second run does nothing.

    Drains continue. The receipts stay, and the new one names them with their hashes.
    """
    archive = Archive.at(growing.archive)
    old = archive_files(archive.snapshot())
    receipts = {receipt.where: receipt.sha256 for receipt in archive.generation(1).receipts()}

    figures = maintain(growing)

    assert (figures["files_before"], figures["files_after"]) == (2 * BATCHES, 1)
    assert figures["rolled"]
    [window] = archive.snapshot().windows
    receipt = window.receipt
    assert receipt.provenance == receipts
    assert set(receipt.replaces) == {file.path for file in old}
    assert len(archive.generation(1).receipt_names()) == BATCHES
    assert not archive.generation(1).checkpoint.exists()
    [file] = archive_files(archive.snapshot())
    rows = pq.read_table(f"{archive.root}/{file.path}", columns=["partition", "offset"])
    held = list(zip(*rows.to_pydict().values(), strict=True))
    assert held == sorted(held)
    refuse_changed(growing, cluster)
    before = data_files(growing.archive)

    again = maintain(growing)

    assert data_files(growing.archive) == before
    assert again["windows"] == []
    fill(growing, send, drain, cluster, range(BATCHES, BATCHES + 1))
    refuse_changed(growing, cluster)


@pytest.mark.parametrize("file_format", ["parquet", "avro", "json", "orc"])
def test_maintain_odd_path(
    topic: str,
    send: Callable[..., None],
    tmp_path: Path,
    drain: Any,
    cluster: KafkaCluster,
    maintain: Maintain,
    file_format: str,
) -> None:
    """A folder's name may look like a pattern, and have another one beside it that isn't a URI."""
    (tmp_path / "co:lon").mkdir()
    folder = tmp_path / "[prod] {eu} st*ar? back\\slash p%20q # größe"
    pipeline = Pipeline(name="kept", topics=[topic], archive=str(folder), format=file_format)
    fill(pipeline, send, drain, cluster, range(2))

    found = maintain(pipeline)

    assert len(live_files(pipeline)) < 4
    assert found["files_before"] == 4
    report = validate_archive(Archive.at(pipeline.archive), cluster, deep=True)
    assert (report.complete, report.findings) == (True, [])
    assert report.records == 2 * 2 * RECORDS


def test_maintain_row_groups(
    topic: str,
    send: Callable[..., None],
    archive_folder: str,
    drain: Any,
    cluster: KafkaCluster,
    maintain: Maintain,
    republish: Callable[..., dict[str, Any]],
    make_topic: Callable[..., str],
) -> None:
    """A reader of one hour in a compacted day reads only the row groups with that hour."""
    pipeline = Pipeline(
        name="kept",
        topics=[topic],
        archive=archive_folder,
        sink_options={"parquet.block.size": 1 << 16},
    )
    for number in range(4):
        for partition in (0, 1):
            records = [
                (b"%d" % n, os.urandom(60), None, NOON + number * HOUR + n) for n in range(5_000)
            ]
            send(topic, records, partition)
        drain(pipeline)
        assert validate_archive(Archive.at(archive_folder), cluster).complete
    maintain(pipeline)
    archive = Archive.at(archive_folder)
    [file] = archive_files(archive.snapshot())
    path = Path(archive_folder) / file.path
    assert file.sealed is not None
    index = file.sealed.index_sha256
    assert index is not None
    wanted = RowBounds(from_ms=NOON + HOUR, to_ms=NOON + 2 * HOUR, index_sha256=index)

    rows = sum(batch.num_rows for batch in read_records(path, "parquet", 1 << 20, wanted))

    assert pq.ParquetFile(path).num_row_groups > 16
    assert 10_000 <= rows < 20_000
    hour = {"from_time": time_text(wanted.from_ms or 0), "to_time": time_text(wanted.to_ms or 0)}
    sent = republish(archive, make_topic(2), **hour)
    assert sent["records"] == 10_000


def test_maintain_leaves_open_generation(
    pipeline: Pipeline, maintain: Maintain, cluster: KafkaCluster
) -> None:
    """Before the generation is due, nothing is done: files of the open one belong to Spark."""
    before = data_files(pipeline.archive)

    figures = maintain(pipeline, days=6)

    assert data_files(pipeline.archive) - {f"{pipeline.archive}/{WHERE}"} == before
    assert not figures["rolled"]


@pytest.mark.parametrize("is_drained", [False, True])
def test_maintain_cannot_roll(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    runner: SparkRunner,
    is_drained: bool,
    said: list[str],
) -> None:
    """While a drain runs or isn't validated yet, its generation isn't closed, even if due."""
    archive = Archive.at(pipeline.archive)
    with ExitStack() as stack:
        if is_drained:
            unseal_newest(Path(pipeline.archive), 1)
        else:
            stack.enter_context(hold_lease(archive.root, run="a drain"))
        before = data_files(pipeline.archive)

        figures = run_maintenance(
            pipeline, cluster, runner, run="tests", wait_seconds=0.5, clock=later
        )

        assert data_files(pipeline.archive) - {f"{pipeline.archive}/{WHERE}"} == before
    assert (figures["rolled"], figures["windows"]) == (False, [])
    assert any("WARNING skipped this time" in line for line in said)


def test_maintain_rolls_long_manifest(pipeline: Pipeline, maintain: Maintain) -> None:
    """A generation is closed if its manifest has too many lines."""
    assert not maintain(pipeline, days=0, max_manifest_lines=2 * BATCHES)["rolled"]

    assert maintain(pipeline, days=0, max_manifest_lines=2 * BATCHES - 1)["rolled"]


def test_plan_maintenance_changes_nothing(pipeline: Pipeline) -> None:
    """A plan lists what would be closed, compacted and deleted, and changes no file."""
    before = data_files(pipeline.archive)

    plan = plan_maintenance(pipeline, clock=lambda: utc_now() + timedelta(days=10))

    assert data_files(pipeline.archive) == before
    assert plan.to_dict()["compacted_files"] == 2 * BATCHES
    assert "closes the open generation: it was opened 10 days ago" in plan.lines()[0]
    assert "generation 1: 8 files" in plan.lines()[1]


@pytest.mark.parametrize(
    ("file_format", "compression"), [("avro", "zstandard"), ("json", "gzip"), ("orc", "zstd")]
)
def test_maintain_compacts_format(
    topic: str,
    send: Callable[..., None],
    archive_folder: str,
    drain: Any,
    cluster: KafkaCluster,
    maintain: Maintain,
    file_format: str,
    compression: str,
) -> None:
    """Other formats are compacted too, with unchanged headers, nulls and times."""
    pipeline = Pipeline(
        name="kept",
        topics=[topic],
        archive=archive_folder,
        format=file_format,
        compression=compression,
        partition_by=[],
    )
    archive = Archive.at(archive_folder)
    for _ in range(3):
        send(topic, [(None, b"v", [("h", b"1"), ("h", None)], NOON + 1), (b"k", None, None, NOON)])
        drain(pipeline)
        assert validate_archive(archive, cluster).complete

    figures = maintain(pipeline)

    assert (figures["files_before"], figures["files_after"]) == (3, 1)
    assert validate_archive(archive, cluster, deep=True).complete
    [window] = archive.snapshot().windows
    sealed = [receipt.fingerprint for receipt in archive.generation(1).receipts()]
    assert None not in sealed
    assert window.receipt.records == 6


def test_maintain_refuses_other_content(
    pipeline: Pipeline, cluster: KafkaCluster, runner: SparkRunner, maintain: Maintain
) -> None:
    """A new file that lacks a row isn't sealed, and no old file is removed."""
    before = live_files(pipeline)

    def loses(application: SparkApplication) -> None:
        runner(application)
        spec = CompactSpec.read(application.specs[0])
        [path] = Path(spec.path).rglob("part-*.parquet")
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.slice(1), path)

    with pytest.raises(ManifestInvalidError, match="offset_missing") as raised:
        run_maintenance(pipeline, cluster, loses, run="tests", clock=later)

    assert "holds 23 records, the old files held 24" in str(raised.value)
    assert live_files(pipeline) == before
    maintain(pipeline)
    refuse_changed(pipeline, cluster)


def test_maintain_refuses_changed_source(
    pipeline: Pipeline, cluster: KafkaCluster, runner: SparkRunner, maintain: Maintain
) -> None:
    """An old file that differs from what Spark read isn't compacted, even when retried."""
    before = live_files(pipeline)
    sources: dict[Path, bytes] = {}

    def changes(application: SparkApplication) -> None:
        spec = CompactSpec.read(application.specs[0])
        path = Path(spec.sources[0]["files"][0])
        sources.setdefault(path, path.read_bytes())
        table = pq.read_table(path, partitioning=None)
        values = pa.array([b"w", *table["value"].to_pylist()[1:]], pa.binary())
        pq.write_table(table.set_column(table.column_names.index("value"), "value", values), path)
        # Hadoop would detect it by its own checksum.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        runner(application)
        for changed, content in sources.items():
            changed.write_bytes(content)

    for _ in range(2):
        with pytest.raises(ManifestInvalidError, match=r"content_changed: .+ have fingerprint"):
            run_maintenance(pipeline, cluster, changes, run="tests", clock=later)
        assert {
            file.path for file in archive_files(Archive.at(pipeline.archive).snapshot())
        } == before
        assert all(Path(pipeline.archive, path).is_file() for path in before)

    maintain(pipeline)
    refuse_changed(pipeline, cluster)


def test_maintain_spark_fails(
    pipeline: Pipeline, cluster: KafkaCluster, maintain: Maintain
) -> None:
    """If Spark fails, its leftovers are a copy that the next run removes."""

    def fails(application: SparkApplication) -> None:
        spec = CompactSpec.read(application.specs[0])
        Path(spec.path, "topic=x").mkdir(parents=True)
        Path(spec.path, "topic=x", "part-0.parquet").write_bytes(b"half")
        write_private(Path(spec.result_path), {"error": "no space left"})

    with pytest.raises(SparkJobError, match="no space left"):
        run_maintenance(pipeline, cluster, fails, run="tests", clock=later)
    refuse_changed(pipeline, cluster)

    maintain(pipeline)

    assert not any("topic=x" in path for path in data_files(pipeline.archive))
    refuse_changed(pipeline, cluster)


def later() -> datetime:
    """Ten days from now."""
    return utc_now() + timedelta(days=10)


def test_maintain_while_another_replaces(
    pipeline: Pipeline, cluster: KafkaCluster, runner: SparkRunner
) -> None:
    """Of two windows for the same file, only one is sealed: readers never get a record twice."""
    archive = Archive.at(pipeline.archive)

    def beaten(application: SparkApplication) -> None:
        runner(application)
        receipt = archive.generation(1).last_receipt()
        assert receipt is not None
        file = receipt.files[0].path
        [held] = receipt.files[0].contents
        read = pq.read_table(str(archive.root / file)).to_pylist()
        rows = [each | {"topic": held.topic} for each in read]
        seal_repair(archive, "reprocess_0009", rows, [file], WindowKind.REPROCESS)

    with pytest.raises(LockedError, match="reprocess_0009 has replaced 1 of the same files"):
        run_maintenance(pipeline, cluster, beaten, run="tests", clock=later)

    assert [window.key for window in archive.snapshot().windows if window.is_sealed] == [
        "reprocess_0009"
    ]


def test_maintain_compacts_windows(
    topic: str,
    send: Callable[..., None],
    archive_folder: str,
    drain: Any,
    backfill: Callable[..., Any],
    repair: Callable[..., Any],
    cluster: KafkaCluster,
    maintain: Maintain,
) -> None:
    """The windows of a backfill are put together; its runs go on being done, but force is refused.

    What a repair has drained of them goes with them. The empty hours and the open generation's
    files are left.
    """
    for number in (0, 1, 3):
        for partition in (0, 1):
            send(topic, [(b"k", b"v", None, NOON + number * HOUR + n) for n in (0, 1)], partition)
    late = Pipeline(
        name="kept",
        topics=[topic],
        archive=archive_folder,
        source_options={"startingOffsets": "latest"},
    )
    drain(late)
    archive = Archive.at(archive_folder)
    assert validate_archive(archive, cluster).complete
    hours = [hour(number) for number in range(5)]
    for interval in hours:
        backfill(late, interval)
    send(topic, [(b"k", b"v", None, NOON + 6 * HOUR)])
    drain(late)
    assert validate_archive(archive, cluster).complete
    first = next(w for w in archive.snapshot().windows if w.key == hours[0].key)
    (archive.root / first.receipt.files[0].path).unlink()
    repair(archive, late)

    figures = maintain(late, days=0)

    assert (figures["files_before"], figures["files_after"]) == (7, 2)
    refuse_changed(late, cluster, is_repaired=True)
    before = data_files(archive_folder)
    for interval in hours:
        refuse_incomplete(backfill(late, interval))
    assert maintain(late, days=0)["windows"] == []
    with pytest.raises(ArchiveError, match="compacted or deleted 2 of its 2 files"):
        backfill(late, hours[1], force=True)
    assert data_files(archive_folder) == before


def hour(number: int) -> Interval:
    """Return an hour of the records' day."""
    start = datetime.fromtimestamp(NOON / 1000 + 3600 * number, timezone.utc)
    return Interval(start, start + timedelta(hours=1))


def test_maintain_compacts_repaired(
    growing: Pipeline, maintain: Maintain, repair: Callable[..., Any], cluster: KafkaCluster
) -> None:
    """Records that a repair has drained again are compacted with the intact ones."""
    archive = Archive.at(growing.archive)
    damaged = archive_files(archive.snapshot())[0].path
    (Path(growing.archive) / damaged).unlink()
    repair(archive, growing)

    figures = maintain(growing)

    assert figures["files_after"] == 1
    [sealed] = [w.receipt for w in archive.snapshot().windows if w.supersedes]
    assert len(sealed.replaces) == 2 * BATCHES
    assert damaged not in sealed.replaces
    refuse_changed(growing, cluster, is_repaired=True)


@pytest.mark.parametrize("partition_by", [["topic", "date"], ["topic", "date", "hour"]])
def test_repair_of_compacted(
    topic: str,
    send: Callable[..., None],
    archive_folder: str,
    drain: Any,
    maintain: Maintain,
    repair: Callable[..., Any],
    cluster: KafkaCluster,
    partition_by: list[str],
) -> None:
    """A damaged compacted file is named with its offsets, and a repair drains them again."""
    pipeline = Pipeline(
        name="kept", topics=[topic], archive=archive_folder, partition_by=partition_by
    )
    for _ in range(3):
        fill(pipeline, send, drain, cluster, range(2))
    maintain(pipeline)
    archive = Archive.at(archive_folder)
    damaged = archive_files(archive.snapshot())[0].path
    (Path(archive_folder) / damaged).unlink()

    report = validate_archive(archive, cluster)
    lost = sum(len(gap.range) for gap in report.gaps if gap.reason == GapReason.LOST)
    assert lost == (72 if partition_by == ["topic", "date"] else 36)
    assert report.summary()["records"] == 72 - lost
    repair(archive, pipeline)

    refuse_changed(pipeline, cluster, is_repaired=True)
    assert validate_archive(archive, cluster).summary()["records"] == 72
    assert damaged not in {file.path for file in archive_files(archive.snapshot())}


def test_maintain_compacts_transactions(
    topic: str,
    archive_folder: str,
    drain: Any,
    bootstrap_servers: str,
    cluster: KafkaCluster,
    maintain: Maintain,
) -> None:
    """Markers and aborted records remain the same gaps."""
    pipeline = Pipeline(name="kept", topics=[topic], archive=archive_folder)
    archive = Archive.at(archive_folder)
    settings = {"bootstrap.servers": bootstrap_servers, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"v", b"k", partition, timestamp=NOON + number)
        # Records not sent yet when a transaction is aborted never get an offset.
        producer.flush(20)
        (producer.commit_transaction if number % 3 else producer.abort_transaction)(20)
        drain(pipeline)
        assert validate_archive(archive, cluster).complete
    del producer

    maintain(pipeline)

    [window] = archive.snapshot().windows
    receipt = window.receipt
    assert (receipt.records, receipt.offsets) == (8, 24)
    gaps = {reason for part in receipt.partitions for reason in part.gaps}
    assert {GapReason.ABORTED, GapReason.CONTROL} == gaps
    assert validate_archive(archive, cluster, deep=True).complete


def test_maintain_retention(
    growing: Pipeline,
    maintain: Maintain,
    cluster: KafkaCluster,
    send: Callable[..., None],
    drain: Any,
    topic: str,
) -> None:
    """Files whose newest record is too old are deleted, with receipts; newer and open ones stay."""
    archive = Archive.at(growing.archive)
    send(topic, [(b"k", b"new", None, int(utc_now().timestamp() * 1000))])
    drain(growing)
    assert validate_archive(archive, cluster).complete

    figures = maintain(growing, retention_days=30)

    assert (figures["files_before"], figures["files_after"]) == (2 * BATCHES + 1, 1)
    assert set(offsets_in_files(archive)) == {(0, BATCHES * RECORDS)}
    [window] = archive.snapshot().windows
    receipt = window.receipt
    assert (receipt.records, receipt.offsets) == (0, 2 * BATCHES * RECORDS)
    assert {reason for part in receipt.partitions for reason in part.gaps} == {GapReason.DELETED}
    report = validate_archive(archive, cluster, deep=True)
    assert report.complete
    [first, second] = report.partitions()
    assert (first["records"], first["gaps"]) == (1, {"deleted": BATCHES * RECORDS})
    assert (second["records"], second["gaps"]) == (0, {"deleted": BATCHES * RECORDS})
    before = data_files(growing.archive)
    assert maintain(growing, retention_days=30)["windows"] == []
    assert data_files(growing.archive) == before
    fill(growing, send, drain, cluster, range(2))


@pytest.mark.parametrize("layout", [["topic"], ["topic", "date"]], ids=str)
def test_maintain_retention_future(
    make_topic: Callable[..., str],
    send: Callable[..., None],
    archive_folder: str,
    drain: Any,
    cluster: KafkaCluster,
    maintain: Maintain,
    layout: list[str],
) -> None:
    """Microseconds sent as milliseconds keep files, as the plan says, and with a bound none."""
    topic = make_topic(1, message_timestamp_after_max_ms=str((1 << 63) - 1))
    pipeline = Pipeline(name="kept", topics=[topic], archive=archive_folder, partition_by=layout)
    archive, wrong = Archive.at(archive_folder), (NOON + 3) * 1000
    send(topic, [(b"k", b"v", None, NOON + n) for n in range(3)] + [(b"k", b"v", None, wrong)])
    drain(pipeline)
    assert validate_archive(archive, cluster).complete
    asked = {"retention_days": 30, "target_file_bytes": 1 << 40}

    unbounded = maintain(pipeline, days=31, **asked)

    [held] = archive_files(archive.snapshot())
    assert (unbounded["files_after"], held.records) == (1, 4 if layout == ["topic"] else 1)
    ahead = utc_now() + timedelta(days=31)
    plan = plan_maintenance(changed(pipeline, **asked), clock=lambda: ahead)
    [said] = plan.to_dict()["held"]
    assert f"{held.path} ({topic}-0: {wrong} ms since 1970)" in said
    assert maintain(pipeline, days=29, **asked, max_future_days=1)["files_after"] == 1

    figures = maintain(pipeline, days=31, **asked, max_future_days=1)

    assert (figures["files_before"], figures["files_after"]) == (1, 0)
    report = validate_archive(archive, cluster, deep=True)
    assert report.complete
    assert report.partitions()[0]["gaps"] == {"deleted": 4}


@pytest.mark.parametrize("retention_days", [None, 30])
def test_maintain_killed(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    runner: SparkRunner,
    tmp_path: Path,
    retention_days: int | None,
) -> None:
    """If killed at any file system change, the archive is intact, and the next run finishes."""
    written = tmp_path / "written"

    def keeps(application: SparkApplication) -> None:
        runner(application)
        spec = CompactSpec.read(application.specs[0])
        shutil.copytree(spec.path, written / "data")
        shutil.copy(spec.result_path, written / "result.json")
        raise SparkJobError("killed")

    with pytest.raises(SparkJobError):
        run_maintenance(pipeline, cluster, keeps, run="tests", clock=later)
    kept = changed(pipeline, retention_days=retention_days)
    for number in kill_points():
        copy = tmp_path / f"killed-{number}"
        shutil.copytree(pipeline.archive, copy)
        moved = changed(kept, archive=str(copy))
        code = run_forked(maintain_until, moved, number, written)
        assert code in (0, -signal.SIGKILL)
        refuse_torn(moved, cluster, retention_days)
        for lock in copy.rglob("lock.json"):
            lock.unlink()
        assert run_forked(maintain_until, moved, 0, written) == 0
        refuse_torn(moved, cluster, retention_days)
        names = [file.path for file in archive_files(Archive.at(str(copy)).snapshot())]
        assert len(names) == (1 if retention_days is None else 0)
        assert not any("part-" in path for path in data_files(str(copy)) if names == [])
        if code == 0:
            break
    assert number > 16


def refuse_torn(pipeline: Pipeline, cluster: KafkaCluster, retention_days: int | None) -> None:
    """Check that an archive is entirely before or entirely after its change."""
    if retention_days is None:
        refuse_changed(pipeline, cluster)
        return
    archive = Archive.at(pipeline.archive)
    assert len(offsets_in_files(archive)) in (0, 2 * BATCHES * RECORDS)
    assert validate_archive(archive, cluster, deep=True).complete


def test_maintain_keeps_what_a_republish_needs(
    pipeline: Pipeline,
    maintain: Maintain,
    cluster: KafkaCluster,
    republish: Callable[..., dict[str, Any]],
    make_topic: Callable[..., str],
) -> None:
    """Files that a planned republish needs stay until it has finished, and are then removed."""
    archive = Archive.at(pipeline.archive)
    target = make_topic(2)
    receipt = republish(archive, target, run_name="slow")
    [run] = list_runs(archive.root)
    (Path(str(run.folder)) / "receipt.json").rename(Path(pipeline.archive) / "kept.json")

    maintain(pipeline)

    assert sum("/generations/" in path and "part-" in path for path in files_of(pipeline)) == 8
    refuse_changed(pipeline, cluster)
    (Path(pipeline.archive) / "kept.json").rename(Path(str(run.folder)) / "receipt.json")
    maintain(pipeline)
    assert len(files_of(pipeline)) == 1
    assert receipt["records"] == 2 * BATCHES * RECORDS
    refuse_changed(pipeline, cluster)


def files_of(pipeline: Pipeline) -> list[str]:
    """Return the data files that lie in an archive."""
    return [p for p in data_files(pipeline.archive) if Path(p).name.startswith("part-")]


def test_maintain_sends_followers_nothing_again(
    pipeline: Pipeline,
    maintain: Maintain,
    republish: Callable[..., dict[str, Any]],
    make_topic: Callable[..., str],
) -> None:
    """Records that a follower has sent aren't sent again from the compacted files."""
    archive, target = Archive.at(pipeline.archive), make_topic(2)
    assert republish(archive, target, follow=True)["records"] == 2 * BATCHES * RECORDS

    maintain(pipeline)
    assert republish(archive, target, follow=True)["records"] == 0
    maintain(pipeline, retention_days=30)

    assert republish(archive, target, follow=True)["records"] == 0


def test_maintain_waits_for_followers(
    growing: Pipeline,
    maintain: Maintain,
    republish: Callable[..., dict[str, Any]],
    make_topic: Callable[..., str],
    send: Callable[..., None],
    drain: Any,
    cluster: KafkaCluster,
) -> None:
    """Files that a follower has half sent are compacted once it has caught up; no duplicates."""
    archive, target = Archive.at(growing.archive), make_topic(2)
    republish(archive, target, follow=True)
    fill(growing, send, drain, cluster, range(BATCHES, BATCHES + 1))

    assert maintain(growing)["windows"] == []
    waiting = plan_maintenance(growing, clock=later).lines()
    assert republish(archive, target, follow=True)["records"] == 2 * RECORDS
    assert maintain(growing)["files_after"] == 1

    assert any("has sent only some of them so far" in line for line in waiting)
    assert republish(archive, target, follow=True)["records"] == 0
    refuse_changed(growing, cluster)


def test_maintain_scrub(
    growing: Pipeline, maintain: Maintain, repair: Any, cluster: KafkaCluster
) -> None:
    """A flipped byte is found when its file is read again, and again, until it is repaired."""
    archive = Archive.at(growing.archive)
    note_overview(archive, validate_archive(archive, cluster), "reports/first.json")
    path = Path(growing.archive, sorted(live_files(growing))[3])
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    assert validate_archive(archive, cluster).complete  # it looks at sizes alone

    for days in (3, 4):
        with pytest.raises(
            ManifestInvalidError, match=rf"file_changed 1\n.*{path.name}(?s:.*)repair"
        ):
            maintain(growing, days=days, scrub_days=2)

    assert [file.path for file, _ in validate_archive(archive, cluster).damaged] == [
        path.relative_to(growing.archive).as_posix()
    ]
    repair(archive, growing)
    note_overview(archive, validate_archive(archive, cluster), "reports/second.json")
    figures = maintain(growing, days=6, scrub_days=2)
    assert figures["scrubbed_files"] > 0
    oldest = oldest_read(archive.root, utc_now() + timedelta(days=6))
    assert oldest is not None
    assert not oldest.doubt
    assert validate_archive(archive, cluster, deep=True).complete
