"""Reprocess: archived offsets are drained again, and the new files replace the old ones."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, DataLossError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.job_spec import WindowSpec, write_private
from kafka_drain.windows.reprocess.abandon import abandon_reprocess, plan_abandon
from kafka_drain.windows.reprocess.options import ReprocessOptions
from kafka_drain.windows.reprocess.plan import Cut, parse_cut
from kafka_drain.windows.reprocess.run import (
    finish_group,
    finish_reprocess,
    open_reprocess,
    plan_reprocess,
    prepare_group,
)
from kafka_drain.windows.reprocess.state import ReprocessPlan, newest_generation
from kafka_drain.windows.superseded_files import remove_superseded
from tests.brute_force import data_files, offsets_in_files
from tests.forks import kill_points, run_forked
from tests.integration.killed_steps import finish_reprocess_until, open_reprocess_until

pytestmark = pytest.mark.integration

NOON = 1_768_046_400_000  # 2026-01-10 12:00 UTC, in milliseconds
HOUR = 3_600_000
BATCHES, RECORDS = 3, 6


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A topic of two partitions."""
    return make_topic(2)


@pytest.fixture
def pipeline(
    topic: str, send: Callable[..., None], archive_folder: str, drain: Any, cluster: KafkaCluster
) -> Pipeline:
    """An archive of three sealed batches, an hour of records each."""
    found = Pipeline(name="again", topics=[topic], archive=archive_folder)
    for number in range(BATCHES):
        send_hour(send, topic, number)
        drain(found)
        assert validate_archive(Archive.at(archive_folder), cluster).complete
    return found


def send_hour(send: Callable[..., None], topic: str, number: int) -> None:
    """Send an hour's records to both partitions."""
    for partition in (0, 1):
        records = [(b"k", b"v", None, NOON + number * HOUR + n) for n in range(RECORDS)]
        send(topic, records, partition)


@pytest.fixture
def drain_file_group(spark: Any, cluster: KafkaCluster) -> Callable[..., None]:
    """Drain and seal a window as the command does, but in the shared Spark session."""
    from kafka_drain_spark.window import run_window

    def run(plan: ReprocessPlan, key: str, pipeline: Pipeline, *, seal: bool = True) -> None:
        with tempfile.TemporaryDirectory() as folder:
            job = prepare_group(plan, key, pipeline, cluster, Path(folder))
            spec = WindowSpec.read(Path(folder) / "window.json")
            write_private(job.result_path, run_window(spark, spec))
            if seal:
                finish_group(plan, job, cluster, run="tests")

    return run


@pytest.fixture
def reprocess(cluster: KafkaCluster, drain_file_group: Callable[..., None]) -> Callable[..., Any]:
    """Reprocess an archive as the command does."""

    def run(pipeline: Pipeline, cut: Cut | None, **options: Any) -> ReprocessPlan:
        plan = plan_reprocess(pipeline, cluster, cut, **options)
        open_reprocess(plan, cluster, run="tests")
        for key in plan.waiting:
            drain_file_group(plan, key, pipeline)
        finish_reprocess(plan, run="tests")
        return plan

    return run


def refuse_changed(archive: Archive, cluster: KafkaCluster, hours: int = BATCHES) -> None:
    """Compare the files with the records sent, each offset once, and validate every byte."""
    expected = {(partition, n) for partition in (0, 1) for n in range(hours * RECORDS)}
    found = offsets_in_files(archive)
    assert set(found) == expected
    assert set(found.values()) == {1}
    report = validate_archive(archive, cluster, deep=True)
    assert report.complete
    assert report.summary()["records"] == len(expected)
    trusting = validate_archive(archive, cluster, scope="open").summary()
    assert (trusting["records"], trusting["files"]) == (
        len(expected),
        len(archive_files(archive.snapshot())),
    )


def test_reprocess_from_batch(
    pipeline: Pipeline,
    topic: str,
    reprocess: Callable[..., Any],
    cluster: KafkaCluster,
    drain: Any,
    send: Callable[..., None],
) -> None:
    """Batches from 1 on are drained again; the old files, manifest and checkpoint are removed.

    Receipts stay, and drains resume where the archive ended.
    """
    archive = Archive.at(pipeline.archive)
    old = archive_files(archive.snapshot())
    written = Pipeline(**(pipeline.model_dump() | {"partition_by": []}))

    plan = reprocess(written, Cut(batch=(1, 1)))

    closed = archive.generation(1)
    assert plan.to_dict()["offsets"] == 2 * 2 * RECORDS
    assert len(closed.receipt_names()) == BATCHES
    assert not closed.checkpoint.exists()
    assert not (closed.data / "_spark_metadata").exists()
    kept = {file.path for file in archive_files(archive.snapshot())} & {file.path for file in old}
    assert {path for path in data_files(pipeline.archive) if "/generations/" in path} >= {
        f"{archive.root}/{path}" for path in kept
    }
    assert len(kept) == 2
    assert sum((Path(str(archive.root)) / file.path).exists() for file in old) == len(kept)
    assert not (archive.root / "maintenance" / "reprocess.json").exists()
    refuse_changed(archive, cluster)
    send_hour(send, topic, BATCHES)
    drain(written)
    assert validate_archive(archive, cluster).complete
    refuse_changed(archive, cluster, BATCHES + 1)


def test_reprocess_plan_changes_nothing(pipeline: Pipeline, cluster: KafkaCluster) -> None:
    """A plan lists files, bytes and offsets, and changes no file."""
    before = data_files(pipeline.archive)

    plan = plan_reprocess(pipeline, cluster, Cut(time_ms=NOON + HOUR))

    assert data_files(pipeline.archive) == before
    assert plan.to_dict()["files"] == 4
    assert "24 offsets in 1 windows replace 4 files" in plan.lines()[0]


def test_reprocess_to_another_format(
    pipeline: Pipeline, reprocess: Callable[..., Any], cluster: KafkaCluster
) -> None:
    """An archive's files can be rewritten in another format, repeatedly, by time."""
    archive = Archive.at(pipeline.archive)

    for file_format, compression in (("avro", "zstandard"), ("parquet", "zstd")):
        form = {"format": file_format, "compression": compression}
        written = Pipeline(**(pipeline.model_dump() | form))
        reprocess(written, Cut(time_ms=NOON))
        assert {file.file_format for file in archive_files(archive.snapshot())} == {file_format}
        assert validate_archive(archive, cluster, deep=True).complete

    refuse_changed(archive, cluster)


def test_reprocess_killed_between_steps(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    drain_file_group: Callable[..., None],
    reprocess: Callable[..., Any],
) -> None:
    """After each step the archive holds each offset once; the same command resumes."""
    archive = Archive.at(pipeline.archive)
    cut = Cut(offsets={TopicPartition((pipeline.topics or [""])[0], 0): 0})
    plan = plan_reprocess(pipeline, cluster, cut, offsets_per_group=10)
    first, second, third = plan.groups

    open_reprocess(plan, cluster, run="killed")
    refuse_changed(archive, cluster)
    open_reprocess(plan, cluster, run="again")
    assert [each.number for each in archive.snapshot().generations] == [1, 2]
    drain_file_group(plan, first, pipeline)
    drain_file_group(plan, second, pipeline, seal=False)
    refuse_changed(archive, cluster)
    with pytest.raises(ConfigError, match=r"a reprocess from .* was started"):
        plan_reprocess(pipeline, cluster, Cut(batch=(1, 2)))
    again = plan_reprocess(pipeline, cluster, None)
    assert list(again.waiting) == [second, third]

    reprocess(pipeline, None)

    refuse_changed(archive, cluster)
    old = [path for path in data_files(pipeline.archive) if "generations/0001/data" in path]
    assert old == []


def test_reprocess_same_batch_again(
    pipeline: Pipeline, cluster: KafkaCluster, reprocess: Callable[..., Any]
) -> None:
    """A batch id without generation means the same batch in each attempt, even a closed one."""
    archive = Archive.at(pipeline.archive)

    def asked() -> Cut | None:
        return parse_cut(
            ReprocessOptions(from_batch="1"), newest_generation=lambda: newest_generation(archive)
        )

    plan = plan_reprocess(pipeline, cluster, asked())
    open_reprocess(plan, cluster, run="killed")
    assert [each.number for each in archive.snapshot().generations] == [1, 2]

    again = reprocess(pipeline, asked())

    assert again.groups == plan.groups
    refuse_changed(archive, cluster)


def test_reprocess_killed_while_removing(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    drain_file_group: Callable[..., None],
    tmp_path: Path,
) -> None:
    """If killed at any file system change, the archive is intact, and the next run finishes."""
    plan = plan_reprocess(pipeline, cluster, Cut(batch=(1, 0)))
    open_reprocess(plan, cluster, run="tests")
    for key in plan.groups:
        drain_file_group(plan, key, pipeline)
    for number in kill_points():
        copy = tmp_path / f"killed-{number}"
        shutil.copytree(pipeline.archive, copy)
        moved = Pipeline(**(pipeline.model_dump() | {"archive": str(copy)}))
        killed = was_killed(finish_reprocess_until, moved, number)
        archive = Archive.at(str(copy))
        refuse_changed(archive, cluster)
        (copy / "maintenance" / "lock.json").unlink(missing_ok=True)
        if (copy / "maintenance" / "reprocess.json").exists():
            assert not was_killed(finish_reprocess_until, moved, 0)
        refuse_changed(archive, cluster)
        assert not archive.generation(1).checkpoint.exists()
        if not killed:
            break
    assert number > 9


def was_killed(step: Callable[..., None], *arguments: Any) -> bool:
    """Run a step in a separate process; return whether it was killed before its end."""
    code = run_forked(step, *arguments)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def test_reprocess_killed_while_opening(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    reprocess: Callable[..., Any],
    bootstrap_servers: str,
    tmp_path: Path,
) -> None:
    """If killed at any change while it freezes and rolls, nothing is lost; the run resumes."""
    cut = Cut(batch=(1, 1))
    for number in kill_points():
        copy = tmp_path / f"killed-{number}"
        shutil.copytree(pipeline.archive, copy)
        moved = Pipeline(**(pipeline.model_dump() | {"archive": str(copy)}))
        killed = was_killed(open_reprocess_until, moved, number, cut, bootstrap_servers)
        archive = Archive.at(str(copy))
        refuse_changed(archive, cluster)
        (copy / "lock.json").unlink(missing_ok=True)
        if number % 3 == 1:
            reprocess(moved, cut)
            refuse_changed(archive, cluster)
        if not killed:
            break
    assert number > 10


def test_reprocess_expired(
    pipeline: Pipeline, topic: str, cluster: KafkaCluster, bootstrap_servers: str
) -> None:
    """If Kafka no longer holds everything, it is refused: the files are the only copy."""
    from confluent_kafka import TopicPartition as KafkaTopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    gone = KafkaTopicPartition(topic, 1, RECORDS + 2)
    admin.delete_records([gone])[gone].result(20)
    before = data_files(pipeline.archive)

    with pytest.raises(DataLossError, match=rf"only copy of {topic}:1:6-18"):
        plan_reprocess(pipeline, cluster, Cut(batch=(1, 1)))
    later = plan_reprocess(pipeline, cluster, Cut(batch=(1, 2)))

    assert data_files(pipeline.archive) == before
    assert later.to_dict()["offsets"] == 2 * RECORDS


def test_reprocess_compacted(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    drain_file_group: Callable[..., None],
    topic: str,
    send: Callable[..., None],
) -> None:
    """A window with fewer records than the files it would replace isn't sealed."""
    plan = plan_reprocess(pipeline, cluster, Cut(batch=(1, 2)))
    (key,) = plan.groups
    # As if the files held a record that Kafka has compacted since.
    plan.groups[key].records[TopicPartition(topic, 0)] += 1
    open_reprocess(plan, cluster, run="tests")

    with pytest.raises(DataLossError, match=rf"{topic}-0 6 instead of 7.*only copy"):
        drain_file_group(plan, key, pipeline)

    assert key in plan.waiting
    refuse_changed(Archive.at(pipeline.archive), cluster)


def test_reprocess_beside_follower(
    pipeline: Pipeline,
    reprocess: Callable[..., Any],
    republish: Callable[..., Any],
    make_topic: Callable[..., str],
    read: Callable[[str], Any],
    topic: str,
) -> None:
    """Records that a follower has sent aren't sent again after a reprocess."""
    archive, target = Archive.at(pipeline.archive), make_topic(2)
    sent = republish(archive, target, run_name="mirror", follow=True)["records_sent"]

    reprocess(pipeline, Cut(batch=(1, 0)))
    again = republish(archive, target, run_name="mirror", follow=True)["records_sent"]

    assert (sent, again) == (BATCHES * RECORDS * 2, 0)
    assert read(target) == read(topic)


def test_reprocess_from_nowhere(pipeline: Pipeline, cluster: KafkaCluster) -> None:
    """A start that no sealed batch reaches is refused."""
    with pytest.raises(ConfigError, match="nothing is sealed from batch 9 of generation 1"):
        plan_reprocess(pipeline, cluster, Cut(batch=(1, 9)))


def test_reprocess_abandoned_half_way(
    pipeline: Pipeline, cluster: KafkaCluster, drain_file_group: Callable[..., None]
) -> None:
    """Sealed windows remain valid on their own, and another reprocess may start."""
    archive = Archive.at(pipeline.archive)
    plan = plan_reprocess(pipeline, cluster, Cut(batch=(1, 0)), offsets_per_group=1)
    open_reprocess(plan, cluster, run="tests")
    first, second, _ = plan.groups
    drain_file_group(plan, first, pipeline)
    drain_file_group(plan, second, pipeline, seal=False)

    abandon_reprocess(plan_abandon(archive), run="tests")

    assert list(archive.snapshot().folders) == [first]
    refuse_changed(archive, cluster)
    remove_superseded(archive)
    refuse_changed(archive, cluster)
    assert not plan_reprocess(pipeline, cluster, Cut(batch=(1, 0))).begun


def test_reprocess_abandoned_meanwhile(
    pipeline: Pipeline, cluster: KafkaCluster, drain_file_group: Callable[..., None]
) -> None:
    """A window drained while its reprocess is abandoned isn't sealed."""
    archive = Archive.at(pipeline.archive)
    plan = plan_reprocess(pipeline, cluster, Cut(batch=(1, 2)))
    open_reprocess(plan, cluster, run="tests")
    (key,) = plan.groups
    (archive.root / "maintenance" / "reprocess.json").unlink()

    with pytest.raises(ConfigError, match="was abandoned in the meantime"):
        drain_file_group(plan, key, pipeline)

    refuse_changed(archive, cluster)
