"""Backfills of data intervals, on a real broker with real Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, DataLossError, LockedError
from kafka_drain.intervals import Interval
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition, count
from kafka_drain.progress import read_progress_line
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.job_spec import WindowSpec, write_private
from kafka_drain.windows.backfill import finish_backfill, open_backfill, refuse_incomplete
from kafka_drain.windows.backfill_plan import BackfillPlan, plan_backfill
from kafka_drain.windows.preview import preview_backfill
from tests.brute_force import data_files, offsets_in_files, refuse_inexact
from tests.faults.injection import wait_for

pytestmark = pytest.mark.integration

DAY = datetime(2026, 1, 10, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)

#: The open generation starts here.
LATE = 20

Backfill = Callable[..., BackfillPlan]


def hour(number: int, hours: int = 1) -> Interval:
    """Return an hour of the day, or several hours."""
    return Interval(DAY + number * HOUR, DAY + (number + hours) * HOUR)


def at(hours: float) -> int:
    """Return a time of the day in milliseconds since 1970."""
    return int((DAY + hours * HOUR).timestamp() * 1000)


def record(hours: float) -> tuple[bytes, bytes, None, int]:
    """Return a record of a time of the day."""
    return b"k", f"{hours}".encode(), None, at(hours)


def delete_before(servers: str, topic: str, offsets: dict[int, int]) -> None:
    """Let Kafka delete what comes before an offset of each partition."""
    from confluent_kafka import TopicPartition as KafkaTopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers})
    gone = [KafkaTopicPartition(topic, *each) for each in offsets.items()]
    for future in admin.delete_records(gone).values():
        future.result(20)


def late_pipeline(topic: str, archive: str) -> Pipeline:
    """Return a pipeline whose generation starts at hour 20."""
    return Pipeline(
        name="day",
        topics=[topic],
        archive=archive,
        source_options={
            "startingTimestamp": str(at(LATE)),
            "startingOffsetsByTimestampStrategy": "latest",
        },
    )


@pytest.fixture
def abort(bootstrap_servers: str, cluster: KafkaCluster) -> Callable[..., None]:
    """Send records to partition 0 in a transaction that is aborted."""
    from confluent_kafka import Producer

    def run(topic: str, records: list[Any]) -> None:
        producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "log_level": 0}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for key, value, headers, timestamp in records:
            producer.produce(
                topic, value, key, 0, timestamp=timestamp, headers=headers, on_delivery=None
            )
        assert producer.flush(30) == 0
        producer.abort_transaction(30)
        # The broker responds before it has written the markers.
        tps = [TopicPartition(topic, 0)]
        wait_for(
            lambda: (
                cluster.latest(tps, "read_committed") == cluster.latest(tps, "read_uncommitted")
            ),
            "the transaction's end",
        )

    return run


@pytest.fixture
def pipeline(
    make_topic: Callable[..., str], send: Callable[..., None], archive_folder: str, drain: Any
) -> Pipeline:
    """An archive whose generation starts at hour 20, with a day of records in Kafka.

    Partition 0 has records out of order, partition 1 nothing from hour 5 to 9 and after 21,
    partition 2 nothing at all.
    """
    topic = make_topic(3)
    out_of_order = [(n * 7 % 240) / 10 if n % 5 == 0 else n / 10 for n in range(240)]
    send(topic, [record(hours) for hours in out_of_order], 0)
    send(topic, [record(n / 4) for n in range(84) if not 5 <= n / 4 < 10], 1)
    found = late_pipeline(topic, archive_folder)
    drain(found)
    return found


def test_backfill_progress(
    pipeline: Pipeline,
    backfill: Backfill,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While Spark reads, it is told how much of the window there is."""
    monkeypatch.setattr("kafka_drain_spark.tasks.PROGRESS_SECONDS", 0.01)

    plan = backfill(pipeline, hour(0, 20))

    shown = [line for line in map(read_progress_line, capsys.readouterr().out.split("\n")) if line]
    assert {(line.job, line.name, line.unit, line.total) for line in shown} == {
        ("window", plan.window.key, "offsets", plan.left)
    }


def test_backfill_day_before_generation(
    pipeline: Pipeline, backfill: Backfill, cluster: KafkaCluster
) -> None:
    """Intervals of two hours fill the range before the generation: each offset once, without gaps.

    If run again in another order, they change nothing.
    """
    archive = Archive.at(pipeline.archive)
    validate_archive(archive, cluster)
    intervals = [hour(number, 2) for number in range(0, 24, 2)]

    for interval in intervals[::2] + intervals[1::2]:
        refuse_incomplete(backfill(pipeline, interval) and backfill(pipeline, interval))

    assert pipeline.topics is not None
    refuse_inexact(archive, cluster, pipeline.topics[0], 3)
    assert validate_archive(archive, cluster, deep=True).complete
    before = data_files(pipeline.archive)
    plans = [backfill(pipeline, interval) for interval in reversed(intervals)]
    assert all(plan.nothing_to_do for plan in plans)
    assert data_files(pipeline.archive) == before
    assert sum(count(plan.offsets.values()) for plan in plans) == 240 + 64


def test_backfill_covered_says_by_which_receipts(
    pipeline: Pipeline, backfill: Backfill, cluster: KafkaCluster
) -> None:
    """An interval that is already archived names the receipts that cover it, and writes nothing."""
    archive = Archive.at(pipeline.archive)
    validate_archive(archive, cluster)
    backfill(pipeline, hour(18, 2))

    straddling = backfill(pipeline, hour(19, 2))
    inside = backfill(pipeline, hour(22))

    assert straddling.nothing_to_do
    assert straddling.covered_by == [
        "generations/0001/receipts/000000000000.json",
        f"windows/{hour(18, 2).key}/receipt.json",
    ]
    assert inside.covered_by == ["generations/0001/receipts/000000000000.json"]
    assert [window.key for window in archive.snapshot().windows] == [hour(18, 2).key]


def test_backfill_from_first_year(
    pipeline: Pipeline, backfill: Backfill, cluster: KafkaCluster
) -> None:
    """An interval from 0001-01-01, .NET's null date, starts with the first record."""
    archive = Archive.at(pipeline.archive)
    validate_archive(archive, cluster)
    long_ago = Interval.parse(("0001-01-01", "1969-12-31"))
    ever = Interval.parse(("0001-01-01", "2100-01-01"))

    before = backfill(pipeline, long_ago)
    plan = backfill(pipeline, ever)

    assert before.nothing_to_do
    assert count(plan.offsets.values()) == 240 + 64
    assert [window.key for window in archive.snapshot().windows] == [
        "00010101T000000Z_21000101T000000Z"
    ]
    assert pipeline.topics is not None
    refuse_inexact(archive, cluster, pipeline.topics[0], 3)
    assert validate_archive(archive, cluster, deep=True).complete


def test_backfill_straddles_cursor(
    pipeline: Pipeline, backfill: Backfill, cluster: KafkaCluster, send: Any
) -> None:
    """A window ends where the generation starts; offsets beyond it are left to the cursor."""
    validate_archive(Archive.at(pipeline.archive), cluster)
    assert pipeline.topics is not None
    send(pipeline.topics[0], [record(23.99)], 1)

    plan = backfill(pipeline, hour(19, 20))

    assert plan.ahead == 1
    assert 0 < plan.left < count(plan.offsets.values())


def test_backfill_future(pipeline: Pipeline, backfill: Backfill) -> None:
    """An interval in the future has nothing to drain, and nothing is frozen."""
    future = datetime.now(timezone.utc) + timedelta(days=30)

    plan = backfill(pipeline, Interval(future, future + HOUR))

    assert plan.nothing_to_do
    assert not Archive.at(pipeline.archive).snapshot().windows


def test_backfill_expired_refused(
    pipeline: Pipeline, backfill: Backfill, bootstrap_servers: str, cluster: KafkaCluster
) -> None:
    """Expired offsets that may be in the interval are named; if accepted, the rest is drained."""
    assert pipeline.topics is not None
    topic = pipeline.topics[0]
    delete_before(bootstrap_servers, topic, {1: 6})

    with pytest.raises(DataLossError, match=rf"no longer holds {topic}:1:0-6"):
        backfill(pipeline, hour(0, 4))
    assert not Archive.at(pipeline.archive).snapshot().windows
    accepted = backfill(
        pipeline, hour(0, 4), acknowledged=parse_ranges("accepted", [f"{topic}:1:0-6"])
    )

    window = Archive.at(pipeline.archive).snapshot().windows[0].receipt
    assert accepted.ranges[TopicPartition(topic, 1)] == [OffsetRange(6, 16)]
    assert window.acknowledged == (f"{topic}:1:0-6",)


def test_backfill_expired_and_archived(
    pipeline: Pipeline, backfill: Backfill, bootstrap_servers: str, cluster: KafkaCluster
) -> None:
    """Records that Kafka has deleted but the archive holds are covered, and the receipt says so."""
    assert pipeline.topics is not None
    topic = pipeline.topics[0]
    validate_archive(Archive.at(pipeline.archive), cluster)
    backfill(pipeline, hour(0, LATE))
    ends = cluster.latest([TopicPartition(topic, n) for n in range(2)], "read_committed")
    delete_before(bootstrap_servers, topic, {tp.partition: end for tp, end in ends.items()})

    early, late = backfill(pipeline, hour(3)), backfill(pipeline, hour(21))

    assert early.nothing_to_do
    assert early.covered_by[-1] == f"windows/{hour(0, LATE).key}/receipt.json"
    assert late.nothing_to_do
    assert late.covered_by[0] == "generations/0001/receipts/000000000000.json"


def test_backfill_force_replaces_window(
    pipeline: Pipeline, backfill: Backfill, cluster: KafkaCluster
) -> None:
    """With force, the interval's window is drained again; each offset is there exactly once."""
    archive = Archive.at(pipeline.archive)
    validate_archive(archive, cluster)
    backfill(pipeline, hour(0, LATE))
    old = {file.path for file in archive_files(archive.snapshot())}
    old_generation = {path for path in old if path.startswith("generations/")}
    counted = offsets_in_files(archive)

    forced = backfill(pipeline, hour(0, LATE), force=True)

    new = {file.path for file in archive_files(archive.snapshot())}
    assert set(forced.replaces) == old - new
    assert offsets_in_files(archive) == counted
    assert validate_archive(archive, cluster, deep=True).complete
    assert backfill(pipeline, hour(0, LATE)).nothing_to_do

    again = backfill(pipeline, hour(0, LATE), force=True)

    # The receipt itself says so: a kill right after it leaves no offset in two windows.
    assert (
        list(again.window.read_receipt().replaces) == again.replaces == sorted(new - old_generation)
    )
    assert offsets_in_files(archive) == counted


def test_backfill_old_attempt_ends_later(
    pipeline: Pipeline, backfill: Backfill, cluster: KafkaCluster, spark: Any, tmp_path: Path
) -> None:
    """If an attempt believed dead writes after its retry was sealed, nothing changes."""
    from kafka_drain_spark.window import run_window

    archive = Archive.at(pipeline.archive)
    tmp_path.chmod(0o700)
    plan = plan_backfill(pipeline, cluster, hour(0))
    old = open_backfill(plan, pipeline, cluster, tmp_path)
    retried = backfill(pipeline, hour(0))
    sealed, counted = retried.window.read_receipt(), offsets_in_files(archive)

    write_private(old.result_path, run_window(spark, WindowSpec.read(tmp_path / "window.json")))
    with pytest.raises(LockedError, match="another run has sealed"):
        finish_backfill(plan, old, cluster, run="old")

    assert retried.window.read_receipt() == sealed
    assert offsets_in_files(archive) == counted
    assert validate_archive(archive, cluster, deep=True).complete


def test_backfill_force_beside_window_without_files(
    make_topic: Callable[..., str],
    send: Callable[..., None],
    abort: Callable[..., None],
    archive_folder: str,
    drain: Any,
    backfill: Backfill,
) -> None:
    """A window of aborted records has a receipt but no file: it stays when another is replaced."""
    topic = make_topic(1)
    abort(topic, [record(1)] * 2)
    send(topic, [record(hours) for hours in (2, LATE, LATE + 1)])
    pipeline = late_pipeline(topic, archive_folder)
    drain(pipeline)
    backfill(pipeline, hour(1))
    backfill(pipeline, hour(2))
    archive = Archive.at(archive_folder)

    backfill(pipeline, hour(2), force=True)
    again = backfill(pipeline, hour(1), force=True)

    empty = next(w for w in archive.snapshot().windows if w.key == hour(1).key)
    assert empty.receipt.files == ()
    assert again.nothing_to_do


def test_backfill_without_generation(
    pipeline: Pipeline, backfill: Backfill, tmp_path_factory: Any
) -> None:
    """Before the first drain, the cursor's start is unknown: refused, and nothing is created."""
    folder = tmp_path_factory.mktemp("new") / "archive"
    new = pipeline.model_copy(update={"archive": str(folder)})

    with pytest.raises(ArchiveError, match="run drain_day once"):
        backfill(new, hour(0))
    assert not folder.exists()


def test_backfill_wrong_clocks(
    make_topic: Any,
    send: Any,
    cluster: KafkaCluster,
    archive_folder: str,
    backfill: Backfill,
    drain: Any,
) -> None:
    """Records dated far ahead hide none of those behind them from the intervals' backfills."""
    topic = make_topic(partitions=1, message_timestamp_after_max_ms=str((1 << 63) - 1))
    pipeline = Pipeline(
        name="day",
        topics=[topic],
        archive=archive_folder,
        source_options={"startingOffsets": "latest"},
    )
    times = [at(n / 10) for n in range(61)]
    # Microseconds sent as milliseconds; a producer that is two hours ahead, for a while.
    times[15] *= 1000
    times[30:33] = [time + 7_200_000 for time in times[30:33]]
    send(topic, [(b"k", b"%d" % n, None, time) for n, time in enumerate(times)])
    drain(pipeline)

    plans = [backfill(pipeline, hour(number)) for number in (4, 0, 1, 2, 3, 5, 6)]

    assert offsets_in_files(Archive.at(archive_folder)) == {(0, n): 1 for n in range(61)}
    assert not any(plan.of_no_interval for plan in plans)
    assert validate_archive(Archive.at(archive_folder), cluster).complete


def test_backfill_first_record_ahead(
    make_topic: Any,
    send: Any,
    cluster: KafkaCluster,
    archive_folder: str,
    backfill: Backfill,
    drain: Any,
) -> None:
    """A first record dated an hour behind the interval doesn't hide the second one, inside it."""
    topic = make_topic(partitions=1)
    pipeline = Pipeline(
        name="day",
        topics=[topic],
        archive=archive_folder,
        source_options={"startingOffsets": "latest"},
    )
    send(topic, [record(2), record(0.5)])
    drain(pipeline)

    assert backfill(pipeline, hour(0)).left == 2
    assert offsets_in_files(Archive.at(archive_folder)) == {(0, 0): 1, (0, 1): 1}


def test_preview(
    pipeline: Pipeline, backfill: Backfill, cluster: KafkaCluster, bootstrap_servers: str
) -> None:
    """Each hour of the day is what drains, windows and Kafka have of it; nothing is changed."""
    assert pipeline.topics is not None
    [topic] = pipeline.topics
    archive, day = Archive.at(pipeline.archive), [hour(number) for number in range(24)]

    def strip() -> str:
        found = preview_backfill(pipeline, cluster, day)
        return "".join(one.state.mark for one in found.intervals)

    # Of partition 0, a record that is ahead of its time lets the generation start in hour 3; of
    # partition 1, there is nothing from hour 5 to 9.
    assert strip() == "ooooo>>>>>oooooooooo>>>>"
    validate_archive(archive, cluster)
    backfill(pipeline, hour(3))
    before = data_files(pipeline.archive)
    assert strip() == "ooo#%#####%%%%%%%%%%####"
    delete_before(bootstrap_servers, topic, {0: 50, 1: 20})
    assert strip() == "!!!#!!!!!!!%%%%%%%%%####"
    assert data_files(pipeline.archive) == before
