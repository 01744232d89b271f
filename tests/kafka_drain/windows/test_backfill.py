"""What a backfill with force may replace, and what readers find before and after it."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.files import archive_files
from kafka_drain.archive.journal.entries import Noted
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.window import Window, range_rows
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import (
    ArchiveError,
    DataLossError,
    LockedError,
    ManifestInvalidError,
    TopicError,
)
from kafka_drain.intervals import Interval, milliseconds
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition, from_spark_json
from kafka_drain.proof.sealing import Identity
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.spark.job_spec import WindowSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.immutability import Locked
from kafka_drain.storage.lease import Lease, wait_for_lease
from kafka_drain.windows import backfill
from kafka_drain.windows import window_jobs as windows
from kafka_drain.windows.backfill import (
    finish_backfill,
    open_backfill,
    refuse_incomplete,
    run_backfill,
    sealed_windows,
)
from kafka_drain.windows.backfill_plan import BackfillPlan, plan_backfill
from kafka_drain.windows.repair import finish_repair
from kafka_drain.windows.window_jobs import WindowJob, open_window, prepare_window
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.made_archive import Batch, MadeArchive, dense
from tests.kafka_drain.republish.planning.test_plan import PLAN

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
HOUR = Interval(NOON, NOON.replace(hour=13))
#: What the interval's window holds.
ROWS: Batch = {P0: dense(0, 10), P1: dense(0, 10)}


def _write_result(job: WindowJob, rows: Batch) -> None:
    """Write what Spark says of what it has read."""
    records = sum(map(len, rows.values()))
    write_private(job.result_path, {"records": records, "fingerprint": None})


class Backfilled:
    """An archive with the window of one interval, and the Kafka that it was drained from."""

    def __init__(self, folder: Path) -> None:
        self.made = MadeArchive(folder / "archive", {"flights": "id-1"})
        self.pipeline = Pipeline(name="made", topics=["flights"], archive=str(self.made.root))
        self.cluster: KafkaCluster = FakeCluster(
            {P0: Log(end=100), P1: Log(end=100)}, topic_ids=self.made.topic_ids
        )  # type: ignore[assignment]
        self.old = [file.path for file in self.made.seal_window(HOUR.key, ROWS, **self.in_plan())]
        self._folder = folder

    def in_plan(self) -> dict[str, object]:
        """Return what the plan of a window of the interval says."""
        ranges = {tp: [OffsetRange(min(rows), max(rows) + 1)] for tp, rows in ROWS.items()}
        return {
            "ranges": range_rows(ranges),
            "interval": [HOUR.start.isoformat(), HOUR.end.isoformat()],
            "topics": self.made.topic_ids,
            "partition_by": ["topic"],
        }

    def plan(self) -> BackfillPlan:
        """Plan to drain the interval's window again."""
        return plan_backfill(self.pipeline, self.cluster, HOUR, force=True)

    def drained(self, plan: BackfillPlan, rows: Batch) -> WindowJob:
        """Freeze a plan, and write some rows as Spark does."""
        folder = self._folder / "run"
        folder.mkdir(mode=0o700, exist_ok=True)
        job = open_backfill(plan, self.pipeline, self.cluster, folder)
        self.made.write(f"{plan.window.data_name}/{job.attempt}", rows)
        _write_result(job, rows)
        return job

    def finish(self, plan: BackfillPlan, job: WindowJob) -> Receipt:
        """Prove and seal what was written."""
        return finish_backfill(plan, job, self.cluster, run="test")

    def read(self) -> list[tuple[TopicPartition, int, int]]:
        """Return what readers take: partition, first and last offset of each file."""
        return sorted(
            (content.tp, content.first, content.last)
            for file in archive_files(self.made.archive.snapshot())
            if file.sealed is not None
            for content in file.sealed.contents
        )


@pytest.fixture
def backfilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backfilled:
    """An interval's window with twenty records in two files."""
    monkeypatch.setattr(windows, "prepare_application", fake_application)
    return Backfilled(tmp_path)


def test_finish_backfill_fewer_records(backfilled: Backfilled) -> None:
    """With force, a window with fewer records than the one that it would replace isn't sealed."""
    before, plan = backfilled.read(), backfilled.plan()
    fewer: Batch = {P0: dense(0, 10), P1: dense(0, 4)}
    job = backfilled.drained(plan, fewer)
    # As if Kafka had said of the others that they are compacted.
    job.ranges[P1][:] = [OffsetRange(0, 4)]

    with pytest.raises(DataLossError, match=r"flights-1 4 instead of 10.*only copy"):
        backfilled.finish(plan, job)

    assert backfilled.read() == before
    assert all((backfilled.made.root / path).is_file() for path in backfilled.old)


def test_finish_backfill_followed(backfilled: Backfilled) -> None:
    """A window that an earlier attempt's driver has written is sealed where it is."""
    before, plan = backfilled.read(), backfilled.plan()
    earlier = backfilled.drained(plan, ROWS)
    retried = backfilled.drained(plan, {P0: dense(0, 1)})
    _write_result(retried, ROWS)
    result = json.loads(retried.result_path.read_text())
    retried.result_path.write_text(json.dumps(result | {"attempt": earlier.attempt}))

    receipt = backfilled.finish(plan, retried)

    assert {file.path.split("/")[3] for file in receipt.files} == {earlier.attempt}
    assert backfilled.read() == before


def test_finish_backfill_force(backfilled: Backfilled) -> None:
    """With force the new window takes the place of the old one, which is removed."""
    before, plan = backfilled.read(), backfilled.plan()

    receipt = backfilled.finish(plan, backfilled.drained(plan, ROWS))

    assert receipt.replaces == tuple(sorted(backfilled.old))
    assert backfilled.read() == before
    assert [w.key for w in backfilled.made.archive.snapshot().sealed] == [plan.window.key]


def test_finish_backfill_force_after_repair(backfilled: Backfilled) -> None:
    """A new window takes the place of the repair's files too: no record is there twice."""
    before, made = backfilled.read(), backfilled.made
    lost, sound = backfilled.old
    (made.root / lost).unlink()
    [repaired] = made.seal_window("repair_1", {P0: dense(0, 10)}, [lost])
    assert backfilled.read() == before
    plan = backfilled.plan()

    backfilled.finish(plan, backfilled.drained(plan, ROWS))

    assert plan.replaces == sorted([sound, repaired.path])
    assert plan.held == {P0: 10, P1: 10}
    assert backfilled.read() == before
    assert [w.key for w in made.archive.snapshot().windows if w.is_sealed] == [plan.window.key]


@pytest.mark.parametrize("removed", range(4))
def test_finish_backfill_force_killed(backfilled: Backfilled, removed: int) -> None:
    """Killed at any removal, each record is there once, and so it is after the next force."""
    before, made = backfilled.read(), backfilled.made
    lost, sound = backfilled.old
    [repaired] = made.seal_window("repair_1", {P0: dense(0, 10)}, [lost])
    made.seal_window("repair_2", {P0: dense(0, 10)}, [repaired.path])
    again = made.archive.snapshot().windows[-1].receipt.files[0].path
    made.seal_window(f"{HOUR.key}_2", ROWS, [sound, again], **backfilled.in_plan())
    for key in (HOUR.key, "repair_1", "repair_2")[:removed]:
        next(w for w in made.archive.snapshot().windows if w.key == key).folder.joinpath(
            "receipt.json"
        ).unlink()
        assert backfilled.read() == before
    plan = backfilled.plan()

    backfilled.finish(plan, backfilled.drained(plan, ROWS))

    assert backfilled.read() == before
    assert [w.key for w in made.archive.snapshot().windows if w.is_sealed] == [plan.window.key]


def test_finish_backfill_force_order(
    backfilled: Backfilled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is replaced goes oldest first, and the journal notes each before it goes.

    Killed anywhere, no sealed receipt is missing, and who replaces a file is there as long as it.
    """
    made = backfilled.made
    lost, sound = backfilled.old
    [repaired] = made.seal_window("repair_1", {P0: dense(0, 10)}, [lost])
    made.seal_window(f"{HOUR.key}_2", ROWS, [sound, repaired.path], **backfilled.in_plan())
    plan = backfilled.plan()
    job = backfilled.drained(plan, ROWS)
    seen: list[tuple[str, bool, list[str]]] = []

    def note(root: Any, noted: Noted) -> None:
        sealed = sorted(window.key for window in made.archive.snapshot().sealed)
        for where in noted.documents:
            seen.append((where.split("/")[1], (root / where).is_file(), sealed))
        note_sealed(root, noted)

    monkeypatch.setattr(backfill, "note_sealed", note)

    backfilled.finish(plan, job)

    keys = [HOUR.key, "repair_1", f"{HOUR.key}_2"]
    new = plan.window.key
    # The new window was sealed before.
    assert seen == [(key, True, sorted([*keys[number:], new])) for number, key in enumerate(keys)]


def begin_to_send(backfilled: Backfilled) -> RepublishRun:
    """Let a republish begin to send a file of the interval's first window."""
    [shard, *_] = PLAN.shards
    files = tuple(replace(file, path=backfilled.old[0]) for file in shard.files)
    run = RepublishRun(backfilled.made.root, "r")
    run.write_plan(replace(PLAN, key="r", shards=(replace(shard, files=files),)))
    run.mark_opened(PLAN)
    return run


@pytest.mark.parametrize("kept", ["locked", "sent", "held back"])
def test_finish_backfill_force_kept(
    backfilled: Backfilled, monkeypatch: pytest.MonkeyPatch, said: list[str], kept: str
) -> None:
    """A window that stays keeps those after it that replace its files: no record is twice.

    It stays if its store locks it, if a republish still sends it, or if the window after it has
    other records.
    """
    before, made, old = backfilled.read(), backfilled.made, set(backfilled.old)
    made.seal_window(f"{HOUR.key}_2", ROWS, backfilled.old, **backfilled.in_plan())
    if kept == "locked":

        def locked_in(folder: Any) -> Locked:
            return Locked(files=2 if folder.name == HOUR.key else 0)

        monkeypatch.setattr(backfill, "locked_in", locked_in)
    elif kept == "sent":
        begin_to_send(backfilled)
    else:
        monkeypatch.setattr(backfill, "held_back", lambda _, paths: old & paths)

    for number in (3, 4):
        plan = backfilled.plan()
        backfilled.finish(plan, backfilled.drained(plan, ROWS))

        assert plan.window.key == f"{HOUR.key}_{number}"
        assert backfilled.read() == before
        assert all((made.root / path).is_file() for path in backfilled.old)
        assert {HOUR.key, plan.window.key} <= {w.key for w in made.archive.snapshot().sealed}
    assert any(f"keeping window {HOUR.key}: " in line for line in said) is (kept != "held back")


@pytest.mark.parametrize("is_over", [False, True])
def test_finish_backfill_force_needed(
    backfilled: Backfilled, said: list[str], is_over: bool
) -> None:
    """A window that an unfinished republish sends stays: without its files, that can't go on."""
    before, made = backfilled.read(), backfilled.made
    run = begin_to_send(backfilled)
    if is_over:
        run.abandon(NOON)
    plan = backfilled.plan()

    backfilled.finish(plan, backfilled.drained(plan, ROWS))

    assert backfilled.read() == before
    there = [(made.root / path).is_file() for path in backfilled.old]
    assert there == [not is_over, not is_over]
    says = f"keeping window {HOUR.key}: republish r still needs its files; if it won't be resumed"
    assert any(says in line for line in said) is not is_over
    # The next one with force removes it.
    run.abandon(NOON)
    plan = backfilled.plan()
    backfilled.finish(plan, backfilled.drained(plan, ROWS))
    assert backfilled.read() == before
    assert [w.key for w in made.archive.snapshot().sealed] == [plan.window.key]


def test_plan_backfill_force_shared_repair(backfilled: Backfilled) -> None:
    """A repair of something else as well isn't replaced: refused, nothing changes."""
    before = backfilled.made.seal_window("20260101T100000Z_20260101T110000Z", {P1: dense(50, 60)})
    lost = [backfilled.old[0], before[0].path]
    batch: Batch = {P0: dense(0, 10), P1: dense(50, 60)}
    backfilled.made.seal_window("repair_1", batch, lost)

    says = "repair_1, which repaired it, also contains flights:1:50-60"
    with pytest.raises(ArchiveError, match=says):
        backfilled.plan()


def test_refuse_incomplete_repaired(backfilled: Backfilled) -> None:
    """An interval whose lost file a repair has drained again is complete."""
    lost = backfilled.old[0]
    (backfilled.made.root / lost).unlink()
    backfilled.made.seal_window("repair_1", {P0: dense(0, 10)}, [lost])

    refuse_incomplete(plan_backfill(backfilled.pipeline, backfilled.cluster, HOUR))


@pytest.mark.parametrize("covered_by", [[], ["windows/other/receipt.json"]])
def test_refuse_incomplete_left(backfilled: Backfilled, covered_by: list[str]) -> None:
    """An interval with an offset in no segment isn't complete, whatever others hold."""
    plan = plan_backfill(backfilled.pipeline, backfilled.cluster, HOUR)
    refuse_incomplete(plan)
    left = {P0: [OffsetRange(10, 12)], P1: [OffsetRange(3, 4)]}

    says = "3 offsets are in no segment: flights:0:10-12, flights:1:3-4"
    with pytest.raises(ManifestInvalidError, match=says):
        refuse_incomplete(replace(plan, ranges=left, covered_by=covered_by))


def test_refuse_incomplete_damaged(backfilled: Backfilled) -> None:
    """Nor is one with a file that is gone."""
    (backfilled.made.root / backfilled.old[0]).unlink()
    plan = plan_backfill(backfilled.pipeline, backfilled.cluster, HOUR)

    with pytest.raises(ManifestInvalidError, match=f"file_missing: {backfilled.old[0]}"):
        refuse_incomplete(plan)


def test_plan_backfill_force_rewritten(backfilled: Backfilled) -> None:
    """What was archived of a log that was rewritten since stays: force would drain others."""
    backfilled.made.open_generation(flights="id-1~2")
    backfilled.made.start_at({P0: 10, P1: 10})
    plan = plan_backfill(backfilled.pipeline, backfilled.cluster, HOUR)
    assert (plan.left, plan.covered_by) == (0, [f"windows/{HOUR.key}/receipt.json"])

    with pytest.raises(TopicError, match="flights was recreated, or its log rewritten"):
        backfilled.plan()


@pytest.mark.parametrize(("end", "is_short"), [(100, False), (101, True)])
def test_plan_backfill_truncated(backfilled: Backfilled, end: int, is_short: bool) -> None:
    """A log that was cut before the generation's start: its next records would be in no window."""
    backfilled.made.start_at({P0: end, P1: 100})

    if not is_short:
        assert plan_backfill(backfilled.pipeline, backfilled.cluster, HOUR).nothing_to_do
        return
    with pytest.raises(DataLossError, match=r"flights-0 ends at 100, drained up to 101.*roll"):
        plan_backfill(backfilled.pipeline, backfilled.cluster, HOUR)


@pytest.mark.parametrize("key", ["compact_0001", "repair_1"])
def test_finish_backfill_force_taken(backfilled: Backfilled, key: str) -> None:
    """What has taken the place of a file since force was planned keeps it: nothing is twice."""
    made, plan = backfilled.made, backfilled.plan()
    job = backfilled.drained(plan, ROWS)
    made.seal_window(key, {P0: dense(0, 10)}, backfilled.old[:1])
    before = backfilled.read()

    with pytest.raises(LockedError, match=f"{key} has replaced 1 of the same files"):
        backfilled.finish(plan, job)

    assert backfilled.read() == before


@pytest.mark.parametrize("owner", ["", "generation", "window"])
def test_finish_backfill_owned(backfilled: Backfilled, owner: str) -> None:
    """Offsets that another segment owns since they were planned aren't sealed, drained or not."""
    made, generation = backfilled.made, {"file_format": "parquet", "partition_by": ["topic"]}
    generation |= {"topic_ids": made.topic_ids, "reason": "test"}
    made.archive.generation(1).write(starting_offsets={P0: 100, P1: 100}, **generation)  # type: ignore[arg-type]
    hour = Interval(NOON.replace(hour=14), NOON.replace(hour=15))
    window = Window(made.root, hour.key)
    offsets = OffsetRange(20, 30)
    plan = BackfillPlan(made.archive, hour, window, {P0: offsets}, made.topic_ids, {P0: [offsets]})
    job = backfilled.drained(plan, {P0: dense(20, 30)})
    if owner == "generation":
        # It has drained nothing yet.
        made.archive.generation(2).write(starting_offsets={P0: 0, P1: 0}, **generation)  # type: ignore[arg-type]
    if owner == "window":
        made.seal_window("repair_1", {P0: dense(25, 35)})

    if owner:
        with pytest.raises(LockedError, match=r"sealed some of flights:0:20-30 in the meantime"):
            backfilled.finish(plan, job)
    else:
        assert backfilled.finish(plan, job).records == 10
    assert window.has_receipt() is not bool(owner)


def test_finish_backfill_owned_while_waiting(
    backfilled: Backfilled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that another run seals while this one waits for it aren't sealed a second time.

    Also if the log was rewritten behind them since the other run was planned.
    """
    made = backfilled.made
    made.start_at({P0: 100, P1: 100})
    hour = Interval(NOON.replace(hour=14), NOON.replace(hour=15))
    offsets, rows = OffsetRange(20, 30), {P0: dense(20, 30)}
    first = BackfillPlan(
        made.archive,
        hour,
        Window(made.root, hour.key),
        {P0: offsets},
        dict(made.topic_ids),
        {P0: [offsets]},
    )
    earlier = backfilled.drained(first, rows)
    made.open_generation(flights="id-1~2")
    made.start_at({P0: 100, P1: 100})
    window = Window(made.root, f"{hour.key}_2")
    plan = replace(first, window=window, topic_ids=made.topic_ids)
    job = backfilled.drained(plan, rows)

    def waited(root: UPath, *, run: str) -> AbstractContextManager[Lease]:
        monkeypatch.setattr(backfill, "wait_for_lease", wait_for_lease)
        backfilled.finish(first, earlier)
        return wait_for_lease(root, run=run)

    monkeypatch.setattr(backfill, "wait_for_lease", waited)

    with pytest.raises(LockedError, match=r"sealed some of flights:0:20-30 in the meantime"):
        backfilled.finish(plan, job)

    assert backfilled.read() == [(P0, 0, 9), (P0, 20, 29), (P1, 0, 9)]


def test_finish_backfill_rolled_meanwhile(backfilled: Backfilled) -> None:
    """What a log has had since it was rewritten is the open generation's, not an older plan's."""
    made = backfilled.made
    made.start_at({P0: 100, P1: 100})
    hour = Interval(NOON.replace(hour=14), NOON.replace(hour=15))
    offsets = OffsetRange(20, 30)
    window = Window(made.root, hour.key)
    plan = BackfillPlan(
        made.archive, hour, window, {P0: offsets}, dict(made.topic_ids), {P0: [offsets]}
    )
    job = backfilled.drained(plan, {P0: dense(20, 30)})
    made.open_generation(flights="id-1~2")
    made.start_at({P0: 25, P1: 100})

    with pytest.raises(LockedError, match=r"sealed some of flights:0:20-30 in the meantime"):
        backfilled.finish(plan, job)


def test_finish_backfill_owned_later(backfilled: Backfilled) -> None:
    """What the open generation has yet to drain is its own, to the last range of a window."""
    made, generation = backfilled.made, {"file_format": "parquet", "partition_by": ["topic"]}
    generation |= {"topic_ids": made.topic_ids, "reason": "test"}
    made.archive.generation(1).write(starting_offsets={P0: 100, P1: 100}, **generation)  # type: ignore[arg-type]
    hour = Interval(NOON.replace(hour=14), NOON.replace(hour=15))
    ranges = [OffsetRange(20, 25), OffsetRange(30, 35)]
    window = Window(made.root, hour.key)
    plan = BackfillPlan(
        made.archive, hour, window, {P0: OffsetRange(20, 35)}, made.topic_ids, {P0: ranges}
    )
    job = backfilled.drained(plan, {P0: dense(20, 25) | dense(30, 35)})
    made.archive.generation(2).write(starting_offsets={P0: 28, P1: 100}, **generation)  # type: ignore[arg-type]

    with pytest.raises(LockedError, match=r"sealed some of flights:0:30-35 in the meantime"):
        backfilled.finish(plan, job)

    assert not window.has_receipt()


@pytest.fixture
def lost(backfilled: Backfilled) -> str:
    """A file of the interval's window that is gone."""
    (backfilled.made.root / backfilled.old[0]).unlink()
    return backfilled.old[0]


def drained_again(backfilled: Backfilled, lost: str, folder: Path) -> WindowJob:
    """Open the window of a repair of a lost file, and write its records."""
    ranges = {P0: [OffsetRange(0, 10)]}
    pipeline, archive = backfilled.pipeline, backfilled.made.archive
    window = open_window(archive, "repair_1", ranges, pipeline=pipeline, replaces=[lost])
    job = prepare_window(
        window, ranges, pipeline=pipeline, cluster=backfilled.cluster, folder=folder
    )
    rows = {P0: dense(0, 10)}
    backfilled.made.write(f"{window.data_name}/{job.attempt}", rows)
    _write_result(job, rows)
    return job


@pytest.mark.parametrize(
    ("ranges", "selected"),
    [
        ({P0: [OffsetRange(0, 10)], P1: [OffsetRange(2, 4)]}, []),
        (
            {P0: [OffsetRange(0, 3), OffsetRange(5, 10)], P1: [OffsetRange(2, 4)]},
            [(0, 0, 3), (0, 5, 10), (1, 2, 4)],
        ),
    ],
)
def test_prepare_window_selects(
    backfilled: Backfilled,
    tmp_path: Path,
    ranges: dict[TopicPartition, list[OffsetRange]],
    selected: list[tuple[int, int, int]],
) -> None:
    """Of what lies between a partition's first and last offset, the wanted is selected.

    Where all of it is wanted, nothing is: the source reads exactly that.
    """
    tmp_path.chmod(0o700)
    pipeline = backfilled.pipeline
    window = open_window(
        backfilled.made.archive, "repair_1", ranges, pipeline=pipeline, replaces=[]
    )

    prepare_window(window, ranges, pipeline=pipeline, cluster=backfilled.cluster, folder=tmp_path)

    spec = WindowSpec.read(tmp_path / "window.json")
    assert [(r["partition"], r["start"], r["end"]) for r in spec.ranges] == selected
    ends = {tp: rs[-1].end for tp, rs in ranges.items()}
    assert from_spark_json(spec.reader_options["endingOffsets"]) == ends
    starts = {tp: rs[0].start for tp, rs in ranges.items()}
    assert from_spark_json(spec.reader_options["startingOffsets"]) == starts
    # What expires while it is read ends the job, and isn't skipped.
    assert spec.reader_options["failOnDataLoss"] == "true"


def test_prepare_window_spec(
    backfilled: Backfilled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is told how the plan says that files are written; a password is in its own file."""
    asked: list[dict[str, Any]] = []

    def application(name: str, **given: Any) -> SparkApplication:
        asked.append(given)
        return fake_application(name, **given)

    monkeypatch.setattr(windows, "prepare_application", application)
    tmp_path.chmod(0o700)
    ranges = {P0: [OffsetRange(0, 10)], P1: [OffsetRange(2, 4)]}
    window = open_window(
        backfilled.made.archive, "repair_1", ranges, pipeline=backfilled.pipeline, replaces=[]
    )
    # Changed since: the plan counts.
    pipeline = backfilled.pipeline.model_copy(
        update={
            "partition_by": [],
            "compression": "gzip",
            "log_levels": {"a.logger": "DEBUG"},
            "source_options": {"minPartitions": 4, "maxOffsetsPerTrigger": 5},
        }
    )
    secured = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    secured |= {"sasl.username": "archiver", "sasl.password": "s3cr3t-pass"}
    backfilled.cluster.config = KafkaConfig({"bootstrap.servers": "broker:9092", **secured})

    job = prepare_window(
        window, ranges, pipeline=pipeline, cluster=backfilled.cluster, folder=tmp_path
    )

    spec = WindowSpec.read(tmp_path / "window.json")
    assert (spec.window, spec.offsets, spec.file_format) == ("repair_1", 12, "parquet")
    assert spec.partition_by == [*spec.columns] == ["topic", "date"]
    assert spec.path == f"{backfilled.made.root}/windows/repair_1/data/{job.attempt}"
    assert spec.result_path == str(job.result_path)
    assert spec.log_levels == {"a.logger": "DEBUG"}
    assert spec.writer_options["compression"] == "gzip"
    options = spec.reader_options
    assert json.loads(options["assign"]) == {"flights": [0, 1]}
    assert (options["kafka.sasl.mechanism"], options["minPartitions"]) == ("PLAIN", "4")
    # Each drain's limit isn't one of a window, which is read at once.
    assert "maxOffsetsPerTrigger" not in options
    assert "s3cr3t-pass" not in (tmp_path / "window.json").read_text()
    assert "s3cr3t-pass" in Path(spec.secrets_path).read_text()
    assert asked == [
        {
            "kind": "window",
            "spec_path": tmp_path / "window.json",
            "pipeline": pipeline,
            "folder": tmp_path,
        }
    ]


def test_open_window_of_the_same_second(backfilled: Backfilled) -> None:
    """Another plan in the same second gets another name; the same plan is gone on with."""
    keys = [
        open_window(
            backfilled.made.archive,
            "repair_1",
            {P0: [OffsetRange(0, end)]},
            pipeline=backfilled.pipeline,
            replaces=[],
        ).key
        for end in (10, 5, 10, 4)
    ]

    assert keys == ["repair_1", "repair_1_2", "repair_1", "repair_1_3"]


@pytest.mark.parametrize("times", [1, 2])
def test_finish_repair_replaced(
    backfilled: Backfilled, lost: str, tmp_path: Path, times: int
) -> None:
    """A repair seals nothing where force has replaced the lost file's window meanwhile."""
    tmp_path.chmod(0o700)
    job = drained_again(backfilled, lost, tmp_path)
    for _ in range(times):
        plan = backfilled.plan()
        backfilled.finish(plan, backfilled.drained(plan, ROWS))
    before = backfilled.read()

    with pytest.raises(LockedError, match="in the meantime"):
        finish(backfilled, job)

    assert backfilled.read() == before


def test_finish_repair_again(backfilled: Backfilled, lost: str, tmp_path: Path) -> None:
    """A repair that ends twice is sealed once, and readers have its records."""
    tmp_path.chmod(0o700)
    job = drained_again(backfilled, lost, tmp_path)

    assert finish(backfilled, job) == finish(backfilled, job)
    assert backfilled.read() == [(P0, 0, 9), (P1, 0, 9)]


def finish(backfilled: Backfilled, job: WindowJob) -> Receipt:
    """Prove and seal a repair's window."""
    identity = Identity("made", "cluster-1", backfilled.made.topic_ids)
    return finish_repair(job, backfilled.cluster, identity, run="test")


def test_finish_backfill_rest(backfilled: Backfilled) -> None:
    """What is left of an interval whose window is sealed is sealed as another window.

    Such as offsets that had expired, and that another replica still has.
    """
    backfilled.made.start_at({P0: 100, P1: 100})
    later = Interval(HOUR.end, HOUR.end.replace(hour=14))
    both = {tp: [OffsetRange(10, 20)] for tp in (P0, P1)}
    frozen = backfilled.in_plan() | {
        "ranges": range_rows(both),
        "interval": [later.start.isoformat(), later.end.isoformat()],
    }
    backfilled.made.seal_window(later.key, {P0: dense(15, 20), P1: dense(10, 20)}, **frozen)
    plan = plan_backfill(backfilled.pipeline, backfilled.cluster, later)
    assert plan.ranges == {P0: [OffsetRange(10, 15)]}

    receipt = backfilled.finish(plan, backfilled.drained(plan, {P0: dense(10, 15)}))

    assert (receipt.window, receipt.records) == (f"{later.key}_2", 5)
    again = plan_backfill(backfilled.pipeline, backfilled.cluster, later)
    refuse_incomplete(again)
    assert again.nothing_to_do


def test_finish_backfill_rest_killed(backfilled: Backfilled) -> None:
    """A window for the rest that was begun goes on."""
    backfilled.made.start_at({P0: 100, P1: 100})
    later = Interval(HOUR.end, HOUR.end.replace(hour=14))
    frozen = backfilled.in_plan() | {
        "ranges": range_rows({tp: [OffsetRange(10, 20)] for tp in (P0, P1)}),
        "interval": [later.start.isoformat(), later.end.isoformat()],
    }
    backfilled.made.seal_window(later.key, {P0: dense(15, 20), P1: dense(10, 20)}, **frozen)
    plan = plan_backfill(backfilled.pipeline, backfilled.cluster, later)
    backfilled.drained(plan, {P0: dense(10, 15)})

    again = plan_backfill(backfilled.pipeline, backfilled.cluster, later)

    assert again.window.key == plan.window.key == f"{later.key}_2"
    receipt = backfilled.finish(again, backfilled.drained(again, {P0: dense(10, 15)}))
    assert receipt.records == 5


def test_plan_backfill_no_longer_named_after_force(backfilled: Backfilled) -> None:
    """What force has drained again is sealed: of partitions no longer named, it stays as it is.

    Its first window has only a plan then. That was sealed: without it, nothing more is.
    """
    backfilled.made.start_at({P0: 100, P1: 100})
    plan = backfilled.plan()
    backfilled.finish(plan, backfilled.drained(plan, ROWS))
    root = str(backfilled.made.root)
    pipeline = Pipeline(name="made", assign={"flights": [0]}, archive=root)
    cluster: Any = FakeCluster({P0: Log(end=100)}, topic_ids=backfilled.made.topic_ids)

    assert plan_backfill(pipeline, cluster, HOUR).nothing_to_do
    with pytest.raises(TopicError, match="or run it without force"):
        plan_backfill(pipeline, cluster, HOUR, force=True)


def test_finish_backfill_force_named_later(tmp_path: Path, backfilled: Backfilled) -> None:
    """A forced backfill that was begun without a partition isn't continued with it.

    Its plan is frozen: a receipt with offsets that it doesn't have would be damage.
    """
    made = backfilled.made = MadeArchive(tmp_path / "left-out", {"flights": "id-1"})
    made.start_at({P0: 100, P1: 100})
    made.open_generation()
    made.start_at({P0: 100})
    frozen = backfilled.in_plan() | {"ranges": range_rows({P0: [OffsetRange(0, 10)]})}
    made.seal_window(HOUR.key, {P0: dense(0, 10)}, **frozen)
    times = {at: milliseconds(HOUR.start) + at * 360_000 for at in range(100)}
    backfilled.cluster = FakeCluster(
        {tp: Log(end=100, times=times) for tp in (P0, P1)}, topic_ids=made.topic_ids
    )  # type: ignore[assignment]
    root = str(made.root)
    backfilled.pipeline = Pipeline(name="made", assign={"flights": [0]}, archive=root)
    killed = backfilled.plan()
    backfilled.drained(killed, {P0: dense(0, 10)})
    backfilled.pipeline = Pipeline(name="made", topics=["flights"], archive=root)

    plan = backfilled.plan()
    assert plan.ranges == {tp: [OffsetRange(0, 10)] for tp in (P0, P1)}
    backfilled.finish(plan, backfilled.drained(plan, ROWS))

    assert plan_backfill(backfilled.pipeline, backfilled.cluster, HOUR).nothing_to_do
    assert backfilled.read() == [(P0, 0, 9), (P1, 0, 9)]


def test_open_backfill_frozen_meanwhile(backfilled: Backfilled, tmp_path: Path) -> None:
    """Of two runs that freeze other offsets at once, the first one's count."""
    plan = backfilled.plan()
    one = replace(
        plan,
        offsets={P0: plan.offsets[P0]},
        ranges={P0: plan.ranges[P0]},
    )
    backfilled.drained(one, {P0: dense(0, 10)})

    with pytest.raises(LockedError, match="another run has frozen other offsets"):
        backfilled.drained(plan, ROWS)


def test_finish_backfill_rest_rewritten(backfilled: Backfilled) -> None:
    """A window for the rest that was begun before the log was rewritten isn't continued after it.

    Its plan has the topic's former incarnation: a receipt with another one would be damage.
    """
    made = backfilled.made
    made.start_at({P0: 100, P1: 100})
    later = Interval(HOUR.end, HOUR.end.replace(hour=14))
    frozen = backfilled.in_plan() | {
        "ranges": range_rows({tp: [OffsetRange(10, 20)] for tp in (P0, P1)}),
        "interval": [later.start.isoformat(), later.end.isoformat()],
    }
    made.seal_window(later.key, {P0: dense(15, 20), P1: dense(10, 20)}, **frozen)
    killed = plan_backfill(backfilled.pipeline, backfilled.cluster, later)
    backfilled.drained(killed, {P0: dense(10, 15)})
    # The log is rewritten behind what the interval has of it.
    made.open_generation(flights="id-1~2")
    made.start_at({P0: 100, P1: 100})

    plan = plan_backfill(backfilled.pipeline, backfilled.cluster, later)
    assert plan.ranges == {P0: [OffsetRange(10, 15)]}
    backfilled.finish(plan, backfilled.drained(plan, {P0: dense(10, 15)}))

    assert plan_backfill(backfilled.pipeline, backfilled.cluster, later).nothing_to_do


def test_open_backfill_plan(backfilled: Backfilled, tmp_path: Path) -> None:
    """The window's plan says why it is written, of which interval and topics, and as what."""
    plan = backfilled.plan()
    pipeline = backfilled.pipeline.model_copy(update={"format": "orc", "partition_by": ["topic"]})
    tmp_path.chmod(0o700)

    open_backfill(plan, pipeline, backfilled.cluster, tmp_path)

    frozen = json.loads((plan.window.folder / "plan.json").read_text())
    assert (frozen["kind"], frozen["format"], frozen["partition_by"]) == (
        "backfill",
        "orc",
        ["topic"],
    )
    assert frozen["interval"] == [HOUR.start.isoformat(), HOUR.end.isoformat()]
    assert frozen["topics"] == backfilled.made.topic_ids
    assert frozen["replaces"] == sorted(backfilled.old)
    assert frozen["ranges"] == range_rows({tp: [OffsetRange(0, 10)] for tp in (P0, P1)})


@pytest.mark.parametrize("accepted", [False, True])
def test_run_backfill(
    backfilled: Backfilled, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    """A whole backfill with force: figures and receipt; other records only if accepted."""
    specs: list[WindowSpec] = []

    def application(name: str, *, spec_path: Path, **given: Any) -> SparkApplication:
        made = fake_application(name, spec_path=spec_path, **given)
        return replace(made, arguments=[str(spec_path)])

    def spark(asked: SparkApplication) -> None:
        specs.append(WindowSpec.read(Path(asked.arguments[0])))
        [spec] = specs
        # Of one partition, the times are others than the archived ones.
        rows = {P0: dense(0, 10), P1: dense(0, 10, 7)}
        backfilled.made.write(
            Path(spec.path).relative_to(str(backfilled.made.root)).as_posix(), rows
        )
        write_private(Path(spec.result_path), {"records": 20, "fingerprint": None})

    monkeypatch.setattr(windows, "prepare_application", application)
    plan, before = backfilled.plan(), backfilled.read()
    others = {P1: [OffsetRange(0, 10)]} if accepted else {}

    def run() -> dict[str, Any]:
        return run_backfill(
            plan, backfilled.pipeline, backfilled.cluster, spark, run="test", replaceable=others
        )

    if not accepted:
        with pytest.raises(DataLossError, match=r"flights:1:0-10"):
            run()
        assert all((backfilled.made.root / path).is_file() for path in backfilled.old)
        return
    done = run()

    receipt = backfilled.made.archive.snapshot().sealed[-1].receipt
    assert receipt.changed == ("flights:1:0-10",)
    assert done == plan.to_dict() | {"records": 20, "receipt": receipt.where}
    assert backfilled.read() == before
    assert not any((backfilled.made.root / path).is_file() for path in backfilled.old)


def test_finish_backfill_cluster_changed(backfilled: Backfilled) -> None:
    """What was read from another cluster than the archive's isn't sealed."""
    plan = backfilled.plan()
    job = backfilled.drained(plan, ROWS)
    backfilled.cluster.id = "another"  # type: ignore[attr-defined]

    with pytest.raises(ArchiveError, match="but the connection leads to another"):
        backfilled.finish(plan, job)

    assert not plan.window.has_receipt()


def test_sealed_windows(backfilled: Backfilled) -> None:
    """The interval's windows are those of its key, not another interval's."""
    made = backfilled.made
    later = Interval(HOUR.end, HOUR.end.replace(hour=14))
    made.seal_window(later.key, {P0: dense(10, 12)}, kind="backfill")
    [lost, _] = backfilled.old
    made.seal_window("repair_1", {P0: dense(0, 10)}, [lost])

    assert [each.window for each in sealed_windows(backfilled.plan())] == [HOUR.key]
