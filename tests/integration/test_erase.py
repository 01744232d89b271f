"""Erasure with a real broker and real Spark: none is left or returns, all else is there."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.erasures import read_erasures
from kafka_drain.archive.files import archive_files
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.gaps import GapReason
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.erase import lift_erasure, plan_erasure, run_erasure
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.maintenance.maintain import run_maintenance
from kafka_drain.offsets import count
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.runs import list_runs
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.job_spec import WindowSpec, write_private
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import (
    finish_group,
    finish_reprocess,
    open_reprocess,
    plan_reprocess,
    prepare_group,
)

pytestmark = pytest.mark.integration

NOON = 1_768_046_400_000  # 2026-01-10 12:00 UTC, in milliseconds
HOUR = 3_600_000
BATCHES, KEYS = 3, 6
#: Two of six keys.
GONE = frozenset({b"user-1", b"user-4"})
REQUEST = ErasureRequest("req-17", "privacy@example.com", keys=GONE)
NOTHING = {"windows": [], "erased": 0, "locked_files": 0, "locked_until": None}

Records = Counter[tuple[bytes, int, int]]
Erase = Callable[..., dict[str, Any]]


@pytest.fixture
def pipeline(
    copied: Callable[..., Pipeline],
    send: Callable[..., None],
    drain: Any,
    cluster: KafkaCluster,
) -> Pipeline:
    """A copy of an archive with three sealed batches of two partitions, six keys in each."""

    def fill(first: Pipeline) -> None:
        for number in range(BATCHES):
            send_hour(send, first, number)
            drain(first)
            assert validate_archive(Archive.at(first.archive), cluster).complete

    return copied(fill)


def send_hour(send: Callable[..., None], pipeline: Pipeline, number: int) -> None:
    """Send an hour's records, one of each key, to both partitions."""
    [topic] = pipeline.topics or []
    for partition in (0, 1):
        send(topic, hour_of(partition, number), partition)


def hour_of(partition: int, number: int) -> list[Any]:
    """An hour's records of a partition."""
    at = NOON + number * HOUR
    return [
        (b"user-%d" % n, b"value-%d" % n, [("n", b"%d" % n)], at + n + 10 * partition)
        for n in range(KEYS)
    ]


def sent(hours: int = BATCHES, but: frozenset[bytes] = frozenset()) -> Records:
    """What was sent: key, partition and offset of each record, without some keys."""
    return Counter(
        (key, partition, number * KEYS + n)
        for partition in (0, 1)
        for number in range(hours)
        for n, (key, *_) in enumerate(hour_of(partition, number))
        if key not in but
    )


def lying(archive: Archive, paths: list[str] | None = None) -> Records:
    """Read every data file that lies in the archive's folder, whether or not a reader gets it."""
    found = Path(str(archive.root)).rglob("part-*.parquet") if paths is None else map(Path, paths)
    rows: Records = Counter()
    for path in found:
        table = pq.ParquetFile(path).read(["key", "partition", "offset"])
        rows.update(zip(*table.to_pydict().values(), strict=True))
    return rows


def names_in(archive: Archive, texts: frozenset[bytes]) -> list[str]:
    """Return the files of an archive, of whatever kind, with one of the texts in them."""
    paths = [path for path in Path(str(archive.root)).rglob("*") if path.is_file()]
    return [str(path) for path in paths if any(text in path.read_bytes() for text in texts)]


def refuse_inexact(archive: Archive, cluster: KafkaCluster, expected: Records) -> None:
    """Read what lies there, and let two deep validations prove it."""
    assert lying(archive) == expected
    for _ in range(2):
        report = validate_archive(archive, cluster, deep=True)
        assert report.complete, report.findings
        assert report.summary()["records"] == expected.total()


@pytest.fixture
def erase(cluster: KafkaCluster, runner: SparkRunner) -> Erase:
    """Erase records as the command does, but in the shared Spark session."""

    def run(pipeline: Pipeline, request: ErasureRequest | None = REQUEST) -> dict[str, Any]:
        return run_erasure(pipeline, cluster, runner, request, run="tests", wait_seconds=0)

    return run


@pytest.fixture
def reprocess(spark: Any, cluster: KafkaCluster) -> Callable[[Pipeline], None]:
    """Reprocess all of an archive, in the shared Spark session."""
    from kafka_drain_spark.window import run_window

    def run(pipeline: Pipeline) -> None:
        plan = plan_reprocess(pipeline, cluster, Cut(batch=(1, 0)))
        open_reprocess(plan, cluster, run="tests")
        for key in plan.waiting:
            with tempfile.TemporaryDirectory() as folder:
                job = prepare_group(plan, key, pipeline, cluster, Path(folder))
                spec = WindowSpec.read(Path(folder) / "window.json")
                write_private(job.result_path, run_window(spark, spec))
                finish_group(plan, job, cluster, run="tests")
        finish_reprocess(plan, run="tests")

    return run


def test_erase(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    erase: Erase,
    republish: Callable[..., dict[str, Any]],
    make_topic: Callable[..., str],
    read: Callable[[str], dict[int, list[Any]]],
) -> None:
    """No file has an erased record, all others are there once; the receipt says which, not what.

    A republish leaves them out, and the same request again changes nothing.
    """
    archive, left = Archive.at(pipeline.archive), sent(but=GONE)
    old = {file.path: file.sealed for file in archive_files(archive.snapshot())}
    planned = plan_erasure(pipeline, cluster, REQUEST)
    assert (planned.records, planned.rolls, planned.obstacles) == (12, True, [])
    assert lying(archive) == sent()
    assert not read_erasures(archive.root)

    assert erase(pipeline)["erased"] == 12

    refuse_inexact(archive, cluster, left)
    assert names_in(archive, GONE) == []
    [window] = archive.snapshot().fold.windows
    gaps = {
        (part.partition, offset)
        for part in window.receipt.partitions
        for r in part.gaps[GapReason.ERASED]
        for offset in range(r.start, r.end)
    }
    assert gaps == {(partition, offset) for _, partition, offset in sent() - left}
    assert window.plan.erasures == [
        {"erasure": 1, "request": "req-17", "by": "privacy@example.com", "records": 12}
    ]
    assert window.plan.hashes == {path: sealed.sha256 for path, sealed in old.items() if sealed}
    report = validate_archive(archive, cluster)
    assert [row["gaps"] for row in report.partitions()] == [{"erased": 6}, {"erased": 6}]
    target = make_topic(2)
    assert republish(archive, target)["records"] == left.total()
    assert {key for rows in read(target).values() for key, *_ in rows}.isdisjoint(GONE)

    assert erase(pipeline) == NOTHING
    assert erase(pipeline, None) == NOTHING
    other = ErasureRequest("req-17", "privacy@example.com", keys=frozenset({b"user-2"}))
    with pytest.raises(ConfigError, match="was accepted before, for other records"):
        erase(pipeline, other)
    refuse_inexact(archive, cluster, left)


def test_erase_stays(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    erase: Erase,
    repair: Callable[..., Any],
    reprocess: Callable[[Pipeline], None],
) -> None:
    """Damage to the new files is found; neither a repair nor a reprocess brings a record back."""
    archive, left = Archive.at(pipeline.archive), sent(but=GONE)
    erase(pipeline)
    [file] = archive_files(archive.snapshot())
    path = Path(pipeline.archive) / file.path
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    assert not validate_archive(archive, cluster, deep=True).complete
    path.unlink()

    repair(archive, pipeline)

    refuse_inexact(archive, cluster, left)
    reprocess(pipeline)
    refuse_inexact(archive, cluster, left)
    assert count(r for rs in archive.snapshot().fold.erased.values() for r in rs) == 12
    assert erase(pipeline, None) == NOTHING


@pytest.mark.parametrize("for_ever", [False, True])
def test_erase_drained_later(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    runner: SparkRunner,
    erase: Erase,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    drain: Any,
    republish: Callable[..., dict[str, Any]],
    archive_folder: str,
    for_ever: bool,
) -> None:
    """Records that Kafka had before the request are erased once they are drained, others stay.

    Nothing is republished before. An erasure for ever takes the others too; a lifted one nothing.
    """
    shutil.rmtree(archive_folder)
    pipeline = Pipeline(**(pipeline.model_dump() | {"topics": [make_topic(2)]}))
    archive = Archive.at(pipeline.archive)
    send_hour(send, pipeline, 0)
    drain(pipeline)
    assert validate_archive(archive, cluster).complete
    send_hour(send, pipeline, 1)
    request = ErasureRequest("req-17", "privacy@example.com", keys=GONE, for_ever=for_ever)
    erase(pipeline, request)
    send_hour(send, pipeline, 2)
    drain(pipeline)
    assert validate_archive(archive, cluster).complete
    with pytest.raises(ArchiveError, match=r"holds . records that erasure 1"):
        republish(archive, make_topic(2))

    later = utc_now() + timedelta(days=10)
    run_maintenance(pipeline, cluster, runner, run="tests", clock=lambda: later)
    run_maintenance(pipeline, cluster, runner, run="tests", clock=lambda: later)

    kept = sent(3) - sent(3 if for_ever else 2) + sent(3 if for_ever else 2, but=GONE)
    refuse_inexact(archive, cluster, kept)
    assert republish(archive, make_topic(2))["records"] == kept.total()
    [erasure] = read_erasures(archive.root)
    assert erasure.done is not None
    assert erasure.done.records == sent(3).total() - kept.total()
    lift_erasure(archive, 1, "the same", run="tests")
    send_hour(send, pipeline, 3)
    drain(pipeline)
    assert validate_archive(archive, cluster).complete
    with pytest.raises(ConfigError, match="no erasure is in force"):
        erase(pipeline, None)
    assert lying(archive) == kept + (sent(4) - sent(3))


def test_erase_waits_for_republish(
    pipeline: Pipeline,
    erase: Erase,
    republish: Callable[..., dict[str, Any]],
    make_topic: Callable[..., str],
) -> None:
    """An unfinished republish still sends erased records: it has to end first."""
    archive = Archive.at(pipeline.archive)
    republish(archive, make_topic(2), run_name="slow")
    [run] = list_runs(archive.root)
    receipt = Path(str(run.folder)) / "receipt.json"
    receipt.rename(receipt.with_name("kept"))

    with pytest.raises(ArchiveError, match=r"republish slow-.* still needs some of the files"):
        erase(pipeline)
    assert lying(archive) == sent()

    receipt.with_name("kept").rename(receipt)
    erase(pipeline)
    assert lying(archive) == sent(but=GONE)


def test_erase_followed(
    pipeline: Pipeline,
    erase: Erase,
    republish: Callable[..., dict[str, Any]],
    make_topic: Callable[..., str],
    send: Callable[..., None],
    drain: Any,
    cluster: KafkaCluster,
    archive_folder: str,
) -> None:
    """A follower is sent nothing again, and of what it hasn't sent only what is left."""
    shutil.rmtree(archive_folder)
    pipeline = Pipeline(**(pipeline.model_dump() | {"topics": [make_topic(2)]}))
    archive, target = Archive.at(pipeline.archive), make_topic(2)
    for number in range(BATCHES):
        send_hour(send, pipeline, number)
        drain(pipeline)
        assert validate_archive(archive, cluster).complete
        if number == 0:
            assert republish(archive, target, follow=True)["records"] == 2 * KEYS
    plan = plan_erasure(pipeline, cluster, REQUEST)
    assert f"topics that they were republished to: {target}" in plan.copies

    assert len(erase(pipeline)["windows"]) == 2

    assert republish(archive, target, follow=True)["records"] == 2 * 2 * (KEYS - len(GONE))
    assert republish(archive, target, follow=True)["records"] == 0


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"headers": frozenset({("n", b"2")})}, {b"user-2"}),
        ({"from_ms": NOON + HOUR, "to_ms": NOON + HOUR + 2}, {b"user-0", b"user-1"}),
    ],
)
def test_erase_by_header_or_time(
    pipeline: Pipeline, cluster: KafkaCluster, erase: Erase, named: Any, expected: set[bytes]
) -> None:
    """Records are named by a header, or by their time."""
    archive = Archive.at(pipeline.archive)

    erase(pipeline, ErasureRequest("req-18", "x", **named))

    gone = sent() - lying(archive)
    assert {key for key, *_ in gone} == expected
    refuse_inexact(archive, cluster, sent() - gone)
