"""A reprocess is planned from the archive as it was checked: on the golden archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, ConfigError, DataLossError, LockedError, TopicError
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.maintenance.retention import plan_deletions, seal_deletions
from kafka_drain.offsets import OffsetRange, TopicPartition, from_spark_json
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.follow import follower_key, new_files, through_now
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.spark.job_spec import WindowSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows import window_jobs
from kafka_drain.windows.reprocess import run as running
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.refusals import refuse_expired
from kafka_drain.windows.reprocess.run import (
    finish_reprocess,
    open_reprocess,
    plan_from,
    plan_reprocess,
    run_reprocess,
)
from kafka_drain.windows.reprocess.state import (
    ReprocessPlan,
    reprocess_path,
    unfinished_reprocess,
)
from kafka_drain.windows.superseded_files import remove_superseded
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    golden_cluster,
    in_kafka,
    open_next,
    write_rows,
)
from tests.kafka_drain.made_archive import EPOCH, NOW, MadeArchive
from tests.kafka_drain.republish.receipts import receipt_of

CUT = Cut(batch=(1, 13))


def drain_next(archive: Archive) -> None:
    """Roll, drain a batch and seal it, as another process does."""
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    assert validate_archive(archive, golden_cluster()).receipts_written == 1


class Meanwhile(FakeCluster):
    """A cluster that is asked while another process drains."""

    def __init__(self, archive: Archive) -> None:
        golden = golden_cluster()
        super().__init__(golden.logs, id=golden.id, topic_ids=golden.topic_ids)
        self._archive = archive
        # Shared with the copies that count topics as an archive does.
        self._drained: list[Archive] = []

    @property
    def has_drained(self) -> bool:
        return bool(self._drained)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if not self.has_drained:
            self._drained.append(self._archive)
            drain_next(self._archive)
        return super().earliest(partitions)


def assert_all(plan: ReprocessPlan, archive: Archive) -> None:
    """Assert that a plan closes the second generation, and covers its only batch."""
    assert plan.closes == 2
    *_, newest = plan.groups.values()
    assert newest.ranges == {P0: [OffsetRange(END, 50)], P1: [OffsetRange(END, 50)]}
    [receipt] = archive.snapshot().generations[1].receipts()
    assert sorted(newest.replaces) == sorted(file.path for file in receipt.files)


def test_plan_reprocess_drained_meanwhile(archive: Archive, pipeline: Pipeline) -> None:
    """What another process has drained until Kafka answered is reprocessed as well."""
    cluster: Any = Meanwhile(archive)

    plan = plan_reprocess(pipeline, cluster, CUT, offsets_per_group=1)

    assert cluster.has_drained
    assert_all(plan, archive)


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize(
    ("cluster", "named", "error"),
    [
        ({"id": "another"}, {}, ArchiveError),
        ({"topic_ids": {"flights": "made again"}}, {}, TopicError),
        ({}, {"name": "another"}, ArchiveError),
    ],
    ids=["cluster", "topic made again", "pipeline"],
)
def test_plan_reprocess_of_another(
    archive: Archive,
    pipeline: Pipeline,
    cluster: dict[str, Any],
    named: dict[str, str],
    error: type[Exception],
    is_begun: bool,
) -> None:
    """What a reprocess replaces is in no other Kafka, topic or pipeline: it is refused."""
    kafka: Any = golden_cluster()
    if is_begun:
        open_reprocess(plan_reprocess(pipeline, kafka, CUT), kafka, run="tests")
    for name, value in cluster.items():
        setattr(kafka, name, value)

    with pytest.raises(error):
        plan_reprocess(pipeline.model_copy(update=named), kafka, None if is_begun else CUT)


def test_plan_from_sealed_meanwhile(archive: Archive, pipeline: Pipeline) -> None:
    """Where the first look was at a moving archive, the plan is made from the second one.

    Made from receipts of the first and files of the second, it would leave out the newest batch.
    """
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    begun = archive.snapshot()
    assert [len(generation.receipt_names()) for generation in begun.generations] == [3, 0]
    assert validate_archive(archive, golden_cluster()).receipts_written == 1  # type: ignore[arg-type]

    plan = plan_from(begun, pipeline, begun.document.topics, CUT, 1)

    assert_all(plan, archive)


def test_open_reprocess_killed_before_roll(
    archive: Archive, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reprocess that was frozen, and killed before it closed the generation, still closes it."""
    cluster: Any = golden_cluster()

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    plan = plan_reprocess(pipeline, cluster, CUT)
    with monkeypatch.context() as patched:
        patched.setattr(running, "roll", killed)
        with pytest.raises(KeyboardInterrupt):
            open_reprocess(plan, cluster, run="killed")
    assert [each.number for each in archive.snapshot().generations] == [1]

    again = plan_reprocess(pipeline, cluster, None)
    open_reprocess(again, cluster, run="again")

    assert again.begun
    assert [each.number for each in archive.snapshot().generations] == [1, 2]


def test_open_reprocess_resumed(archive: Archive, pipeline: Pipeline) -> None:
    """A resumed reprocess leaves the generation that drains write to by then open."""
    cluster: Any = golden_cluster()
    pipeline = pipeline.model_copy(update={"partition_by": ["topic"]})
    open_reprocess(plan_reprocess(pipeline, cluster, CUT), cluster, run="begun")
    add_batch(archive.generation(2), 0, END, 50)
    assert validate_archive(archive, cluster).receipts_written == 1

    open_reprocess(plan_reprocess(pipeline, cluster, None), cluster, run="resumed")

    assert [each.number for each in archive.snapshot().generations] == [1, 2]


class Spark:
    """Takes the place of Spark: writes what Kafka holds of each window, changed as asked.

    Args:
        changed: Returns the records that are written in the place of Kafka's.
    """

    def __init__(self, changed: Callable[[list[dict[str, Any]]], Any] = lambda rows: rows) -> None:
        self.changed = changed
        self.specs: list[WindowSpec] = []

    def __call__(self, application: SparkApplication) -> None:
        spec = WindowSpec.read(Path(application.arguments[0]))
        self.specs.append(spec)
        starts, ends = (
            from_spark_json(spec.reader_options[f"{name}Offsets"])
            for name in ("starting", "ending")
        )
        rows = [row for tp in (P0, P1) for row in in_kafka(tp, OffsetRange(starts[tp], ends[tp]))]
        rows = self.changed(rows)
        path = Path(spec.path.removeprefix("file://"), "topic=flights", "part-0")
        write_rows(path.with_suffix(f".{spec.file_format}"), spec.file_format, rows)
        write_private(Path(spec.result_path), {"records": len(rows), "fingerprint": None})


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function takes the place of Spark."""

    def application(name: str, *, spec_path: Path, **given: Any) -> SparkApplication:
        made = fake_application(name, spec_path=spec_path, **given)
        return replace(made, arguments=[str(spec_path)])

    monkeypatch.setattr(window_jobs, "prepare_application", application)


@pytest.mark.usefixtures("without_java")
def test_run_reprocess_killed(archive: Archive, pipeline: Pipeline, said: list[str]) -> None:
    """Killed between two windows, it is resumed: the rest, in the format that it was begun with."""
    cluster: Any = golden_cluster()
    pipeline = pipeline.model_copy(
        update={"partition_by": ["topic"], "format": "orc", "compression": "zstd"}
    )
    plan = plan_reprocess(pipeline, cluster, Cut(batch=(1, 12)), offsets_per_group=1)
    first, second = plan.groups
    old = {path for group in plan.groups.values() for path in group.replaces}
    before = sum((archive.root / path).stat().st_size for path in old)

    def killed(rows: object) -> None:
        if len(spark.specs) > 1:
            raise KeyboardInterrupt
        return rows  # type: ignore[return-value]

    spark = Spark(killed)
    with pytest.raises(KeyboardInterrupt):
        run_reprocess(plan, pipeline, cluster, spark, run="killed")
    assert [window.key for window in archive.snapshot().sealed] == [first]
    assert all((archive.root / path).is_file() for path in old)

    again = Spark()
    changed = pipeline.model_copy(update={"format": "parquet", "compression": "snappy"})
    resumed = plan_reprocess(changed, cluster, None)
    done = run_reprocess(resumed, changed, cluster, again, run="resumed")

    assert [spec.window for spec in spark.specs] == [first, second]
    [spec] = again.specs
    assert (spec.window, spec.file_format) == (second, "orc")
    assert spec.writer_options["compression"] == "zstd"
    assert done == {"removed_files": len(old), "removed_bytes": before}
    assert unfinished_reprocess(archive) is None
    assert not any((archive.root / path).exists() for path in old)
    for key, group in plan.groups.items():
        records = sum(group.records.values())
        assert f"reprocess {archive.root}: window {key} holds {records:,} records" in said
        receipt = next(w.receipt for w in archive.snapshot().sealed if w.key == key)
        assert (receipt.records, list(receipt.replaces)) == (records, sorted(group.replaces))
        assert receipt.changed == ()
    assert validate_archive(archive, cluster, deep=True).complete


def other(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give an offset another record."""
    return [row | {"value": b"other"} if row["offset"] == 40 else row for row in rows]


@pytest.mark.usefixtures("without_java")
@pytest.mark.parametrize("accepted", [{}, {P0: [OffsetRange(40, 41)]}, dict.fromkeys((P0, P1))])
def test_run_reprocess_other_records(
    archive: Archive, pipeline: Pipeline, accepted: dict[TopicPartition, Any]
) -> None:
    """Other records than the archived ones replace nothing, unless each of them is accepted."""
    cluster: Any = golden_cluster()
    plan = plan_reprocess(pipeline, cluster, CUT)
    [group] = plan.groups.values()
    replaceable = {tp: ranges or [OffsetRange(40, 41)] for tp, ranges in accepted.items()}

    def run() -> object:
        return run_reprocess(
            plan, pipeline, cluster, Spark(other), run="tests", replaceable=replaceable
        )

    if len(accepted) == 2:
        run()
        [window] = archive.snapshot().sealed
        assert window.receipt.changed == ("flights:0:40-41", "flights:1:40-41")
    else:
        with pytest.raises(DataLossError, match="; end this reprocess with `kafka-drain reprocess"):
            run()
        assert archive.snapshot().sealed == []
        assert all((archive.root / path).is_file() for path in group.replaces)
        assert unfinished_reprocess(archive) is not None


@pytest.mark.usefixtures("without_java")
def test_run_reprocess_fewer_records(archive: Archive, pipeline: Pipeline) -> None:
    """A window with fewer records than the files isn't sealed, and the way out is named."""
    cluster: Any = golden_cluster()
    plan = plan_reprocess(pipeline, cluster, CUT)
    [(key, group)] = plan.groups.items()
    # As if Kafka had said of the rest that it is compacted.
    fewer = {tp: [OffsetRange(r.start, 40)] for tp, [r] in group.ranges.items()}
    plan = replace(plan, groups={key: replace(group, ranges=fewer)})

    with pytest.raises(DataLossError, match=r"only copy.*; end this reprocess with `kafka-drain"):
        run_reprocess(
            plan,
            pipeline,
            cluster,
            Spark(lambda rows: [row for row in rows if row["offset"] < 40]),
            run="tests",
        )

    assert archive.snapshot().sealed == []


@pytest.mark.usefixtures("without_java")
@pytest.mark.parametrize("begun", [False, True])
def test_run_reprocess_abandoned(archive: Archive, pipeline: Pipeline, begun: bool) -> None:
    """Abandoned while a window is drained, also if another one began since, none is sealed."""
    cluster: Any = golden_cluster()
    plan = plan_reprocess(pipeline, cluster, CUT)
    [(key, group)] = plan.groups.items()

    def abandoned(rows: object) -> object:
        reprocess_path(archive).unlink()
        if begun:
            replace(plan, groups={f"{key}_other": group}).document().create(reprocess_path(archive))
        return rows

    with pytest.raises(ConfigError, match=r"the reprocess from .* was abandoned in the meantime"):
        run_reprocess(plan, pipeline, cluster, Spark(abandoned), run="tests")

    assert archive.snapshot().sealed == []
    assert all((archive.root / path).is_file() for path in group.replaces)


def test_open_reprocess_another_faster(archive: Archive, pipeline: Pipeline) -> None:
    """Of two that were planned, the second to begin is refused, and closes nothing."""
    cluster: Any = golden_cluster()
    plans = [plan_reprocess(pipeline, cluster, Cut(batch=(1, batch))) for batch in (12, 13)]
    document = plans[0].document()
    assert document.create(reprocess_path(archive))

    with pytest.raises(ConfigError, match="another reprocess was faster"):
        open_reprocess(plans[1], cluster, run="tests")

    assert [each.number for each in archive.snapshot().generations] == [1]
    assert unfinished_reprocess(archive) == replace(plans[0], begun=True)


def test_open_reprocess_new_generation(archive: Archive, pipeline: Pipeline) -> None:
    """Drains go on in a generation that has the reprocess's format and folders."""
    cluster: Any = golden_cluster()
    changed = pipeline.model_copy(update={"partition_by": ["topic"], "format": "orc"})

    open_reprocess(plan_reprocess(changed, cluster, CUT), cluster, run="tests")

    newest = archive.snapshot().generations[-1].document
    assert (newest.format, newest.partition_by, newest.reason) == ("orc", ["topic"], "reprocess")


@pytest.mark.parametrize("folder", ["", "maintenance"])
def test_reprocess_while_another_runs(archive: Archive, pipeline: Pipeline, folder: str) -> None:
    """Nothing is begun beside a drain, and nothing is removed beside a maintenance."""
    cluster: Any = golden_cluster()
    plan = plan_reprocess(pipeline, cluster, CUT)

    def run() -> object:
        if folder:
            return finish_reprocess(replace(plan, groups={}), run="tests")
        return open_reprocess(plan, cluster, run="tests")

    with hold_lease(archive.root / folder, run="other"), pytest.raises(LockedError, match="other"):
        run()

    assert unfinished_reprocess(archive) is None


@pytest.mark.parametrize(
    ("last", "segments"), [(None, 3), ((1, 13), 3), ((1, 12), 2), ((1, 11), 1)]
)
def test_plan_reprocess_last(
    archive: Archive, pipeline: Pipeline, last: tuple[int, int] | None, segments: int
) -> None:
    """The last segment to drain again is the one that was named, with it."""
    cluster: Any = golden_cluster()

    plan = plan_reprocess(pipeline, cluster, Cut(batch=(1, 0)), offsets_per_group=1, last=last)

    receipts = list(archive.snapshot().generations[0].receipts())[:segments]
    assert sorted(p for group in plan.groups.values() for p in group.replaces) == sorted(
        file.path for receipt in receipts for file in receipt.files
    )


IDS = {"flights": "id"}
FIRST = Cut(batch=(1, 0))
OLD, YOUNG = (int((NOW - timedelta(days=days) - EPOCH).total_seconds() * 1000) for days in (31, 1))


def delete_old(made: MadeArchive) -> None:
    """Delete what is older than 30 days, as maintenance does."""
    snapshot = made.archive.snapshot()
    found = plan_deletions(snapshot, snapshot.generations[:-1], 30, NOW)
    assert found
    seal_deletions(made.archive, found, run="tests")
    remove_superseded(made.archive)


def plan_of(made: MadeArchive) -> ReprocessPlan:
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))
    return plan_from(made.archive.snapshot(), pipeline, IDS, FIRST)


def test_reprocess_after_retention(tmp_path: Path) -> None:
    """What retention has deleted isn't drained again, and no mirror sends it a second time."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal({P0: {0: OLD, 1: OLD}, P1: {0: OLD}})
    sent = through_now(made.archive.snapshot())
    # Of the second batch, only one partition's file is too old.
    made.seal({P0: {2: YOUNG, 3: YOUNG}, P1: {1: OLD}})
    made.open_generation()
    delete_old(made)

    [(key, group)] = plan_of(made).groups.items()

    assert group.ranges == {P0: [OffsetRange(2, 4)]}
    again = {tp: dict.fromkeys(range(r.start, r.end), YOUNG) for tp, [r] in group.ranges.items()}
    made.seal_window(key, again, group.replaces, kind="reprocess", replaced=group.replaced())
    snapshot = made.archive.snapshot()
    files = new_files(snapshot, sent, through_now(snapshot))
    assert [(c.tp, c.first, c.last) for f in files if f.sealed for c in f.sealed.contents] == [
        (P0, 2, 3)
    ]
    logs: Any = FakeCluster({P0: Log(end=4), P1: Log(end=2)}, id="cluster-1", topic_ids=IDS)
    report = validate_archive(made.archive, logs)
    assert report.complete
    rows = [(row["records"], row["gaps"]) for row in report.to_dict()["partitions"]]
    assert rows == [(2, {"deleted": 2}), (0, {"deleted": 2})]


def test_reprocess_after_retention_between(tmp_path: Path) -> None:
    """Of a partition whose old and young records take turns, only the young ones are drained."""
    made = MadeArchive(tmp_path / "archive", IDS, partition_by=("topic", "date"))
    made.seal({P0: {0: OLD, 1: YOUNG, 2: OLD, 3: YOUNG, 4: OLD}})
    made.open_generation()
    delete_old(made)

    [group] = plan_of(made).groups.values()

    assert group.ranges == {P0: [OffsetRange(1, 2), OffsetRange(3, 4)]}
    assert group.records == {P0: 2}


def test_reprocess_after_retention_expired(tmp_path: Path) -> None:
    """Kafka needn't hold what retention has deleted: the archive isn't its only copy."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal({P0: {0: OLD, 1: OLD}})
    made.seal({P0: {2: YOUNG, 3: YOUNG}})
    made.open_generation()
    delete_old(made)
    logs: Any = FakeCluster({P0: Log(first=2, end=4)}, id="cluster-1", topic_ids=IDS)

    refuse_expired(plan_of(made), logs)


def test_reprocess_after_retention_of_transactions(tmp_path: Path) -> None:
    """Markers between and after deleted records aren't drained for themselves."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal({P0: {0: OLD, 2: OLD}}, gaps=markers(3))
    made.seal({P0: {4: YOUNG, 6: YOUNG}}, gaps=markers(7))
    made.open_generation()
    delete_old(made)
    logs: Any = FakeCluster({P0: Log(first=4, end=8)}, id="cluster-1", topic_ids=IDS)

    plan = plan_of(made)

    [(key, group)] = plan.groups.items()
    assert group.ranges == {P0: [OffsetRange(4, 8)]}
    refuse_expired(plan, logs)
    again = {P0: {4: YOUNG, 6: YOUNG}}
    made.seal_window(
        key,
        again,
        group.replaces,
        gaps=markers(7),
        kind="reprocess",
        replaced=group.replaced(),
    )
    report = validate_archive(made.archive, logs)
    assert report.complete
    [row] = [(row["records"], row["gaps"]) for row in report.to_dict()["partitions"]]
    assert row == (2, {"deleted": 2, "control": 2, "compacted": 2})


def markers(*offsets: int) -> list[Gap]:
    return [Gap(P0, OffsetRange(at, at + 1), GapReason.CONTROL) for at in offsets]


def test_reprocess_of_deleted_transactions(tmp_path: Path) -> None:
    """Nor are they all that there is to drain again."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal({P0: {0: OLD, 2: OLD}}, gaps=markers(3))
    made.open_generation()
    delete_old(made)

    with pytest.raises(ConfigError, match=r"^retention has deleted all from batch 0 of generation"):
        plan_of(made)


def test_reprocess_of_deleted(tmp_path: Path) -> None:
    """Where retention has deleted everything, there is nothing to drain again."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal({P0: {0: OLD, 1: OLD}})
    made.open_generation()
    delete_old(made)

    with pytest.raises(ConfigError, match=r"^retention has deleted all from batch 0 of generation"):
        plan_of(made)


def test_reprocess_of_what_came_back(tmp_path: Path) -> None:
    """Deleted records that an earlier release has drained again are drained like others."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal({P0: {0: OLD, 1: OLD}})
    [file] = made.seal({P0: {2: YOUNG, 3: YOUNG}})
    made.open_generation()
    delete_old(made)
    rows = {P0: {0: OLD, 1: OLD, 2: YOUNG, 3: YOUNG}}
    sums = {"files": 1, "bytes": file.bytes, "records": [{"topic": "flights", "partition": 0,
            "records": 2}]}  # fmt: skip
    made.seal_window(
        "reprocess_0002_0001",
        rows,
        [file.path],
        kind="reprocess",
        replaced=sums,
        sealed_at=(NOW + timedelta(days=3650)).isoformat(),
    )

    [group] = plan_of(made).groups.values()

    assert group.ranges == {P0: [OffsetRange(0, 4)]}


def test_reprocess_of_repair_for_more_topics(tmp_path: Path) -> None:
    """A repair's file is replaced, although its window holds a topic that is no longer drained."""
    made = MadeArchive(tmp_path / "archive", {**IDS, "trains": "id-2"})
    trains = TopicPartition("trains", 0)
    [earlier] = made.seal({trains: {0: YOUNG}})
    both = dict(made.topic_ids)
    made.topic_ids = dict(IDS)
    made.open_generation()
    lost, other = made.seal({P0: {0: YOUNG}, P1: {0: YOUNG}})
    made.open_generation()
    made.topic_ids = both
    rows = {P0: {0: YOUNG}, trains: {0: YOUNG}}
    repaired, _ = made.seal_window("repair_1", rows, [lost.path, earlier.path], kind="repair")
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))

    plan = plan_from(made.archive.snapshot(), pipeline, IDS, Cut(batch=(2, 0)))

    [group] = plan.groups.values()
    assert sorted(group.replaces) == sorted([repaired.path, other.path])


def test_open_reprocess_rolled_meanwhile(archive: Archive, pipeline: Pipeline) -> None:
    """Drains go on with the reprocess's format, also if another process has rolled before it."""
    cluster: Any = golden_cluster()
    changed = pipeline.model_copy(update={"partition_by": ["topic"], "format": "orc"})
    plan = plan_reprocess(changed, cluster, CUT)
    assert plan.document().create(reprocess_path(archive))
    running.roll(running.plan_roll(archive, cluster))

    open_reprocess(plan_reprocess(changed, cluster, None), cluster, run="again")

    newest = archive.snapshot().generations[-1].document
    assert (newest.format, newest.partition_by) == ("orc", ["topic"])


def test_plan_reprocess_half_sent(archive: Archive, pipeline: Pipeline) -> None:
    """Segments of which a mirror has sent only some aren't put together: it could never go on."""
    [first, *_] = archive.snapshot().generations[0].receipt_names()
    run = RepublishRun(archive.root, f"{follower_key('m')}.000001")
    run.write_receipt(receipt_of(key=run.key, through={"generations": {"1": first}, "windows": []}))

    with pytest.raises(ArchiveError, match=rf"mirror {follower_key('m')} has sent only some"):
        plan_reprocess(pipeline, golden_cluster(), Cut(batch=(1, 0)))
