"""Where the next generation starts, and topics that it leaves out: the golden archive, and more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.cli.main import main
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.reader import read_offsets
from kafka_drain.drain.preflight import DrainPlan, preflight
from kafka_drain.errors import (
    ArchiveError,
    CheckpointError,
    ConfigError,
    DataLossError,
    LockedError,
    ManifestInvalidError,
    TopicError,
)
from kafka_drain.findings import errors, summary
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, to_spark_json
from kafka_drain.output import Level, level_of
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.committed_files import read_committed_files
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.storage.immutability import Locked
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows import roll as rolling
from kafka_drain.windows.roll import (
    RollPlan,
    plan_roll,
    roll,
    roll_between_drains,
    run_roll,
)
from tests.kafka_drain.archive.test_soundness import cut
from tests.kafka_drain.archives import offsets_of, seal_rows, sealed_files
from tests.kafka_drain.drain.test_preflight import plan_batch
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    golden_cluster,
    row,
    sealed_copy,
    write_rows,
)
from tests.kafka_drain.republish.planning.test_plan import PLAN
from tests.kafka_drain.windows.test_repair_plan_again import all_lost

G0 = TopicPartition("gone", 0)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An archive whose open generation has drained topic `gone` too, to 7; all is sealed."""
    archive = sealed_copy(tmp_path / "archive")
    archive.update_topics(archive.snapshot().document, {"gone": "id-of-gone"})
    generation = archive.generation(2)
    generation.write(
        starting_offsets={P0: END, P1: END, G0: 7},
        file_format="parquet",
        partition_by=["topic"],
        topic_ids=archive.snapshot().document.topics,
        reason="rollover",
    )
    return archive


def cluster_with(**logs: Log) -> Any:
    """The golden archive's cluster, with one-partition topics beside."""
    golden = golden_cluster()
    beside = {TopicPartition(name, 0): log for name, log in logs.items()}
    return FakeCluster(
        {**golden.logs, **beside},
        id=golden.id,
        topic_ids=golden.topic_ids,
        contents=golden.contents,
    )


def rewritten_cluster(
    *rewritten: TopicPartition, first: dict[TopicPartition, int] | None = None
) -> Any:
    """The golden archive's cluster, whose logs of some partitions have other records.

    Args:
        first: Where logs begin that no longer have what came before.
    """
    found = cluster_with(gone=Log(end=9))
    found.logs |= {tp: replace(found.logs[tp], first=at) for tp, at in (first or {}).items()}
    contents = found.contents
    found.contents = lambda tp, span: [] if tp in rewritten else contents(tp, span)
    return found


def plan_drain(archive: Archive, cluster: FakeCluster, *topics: str) -> DrainPlan:
    document, any_cluster = archive.snapshot().document, cluster
    pipeline = Pipeline(
        name=document.pipeline,
        topics=list(topics),
        archive=str(archive.root),
        partition_by=["topic"],
    )
    return preflight(pipeline, any_cluster)  # type: ignore[arg-type]


def do(plan: RollPlan) -> None:
    roll(plan)


def test_roll_lease_lost(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A roll that was suspended changes nothing once its lease is over: a drain may have gone on.

    Neither does it remove a window.
    """
    plan = plan_roll(archive, cluster_with(gone=Log(end=9)))  # type: ignore[arg-type]
    plan = replace(plan, voided=["repair_1"])
    monkeypatch.setattr(rolling, "_void", lambda *_: pytest.fail("a window is removed"))
    now = [datetime(2026, 1, 1, tzinfo=timezone.utc)]

    with hold_lease(archive.root, run="roll", clock=lambda: now[0]) as lease:
        now[0] += timedelta(hours=1)
        with pytest.raises(LockedError, match="suspended"):
            roll(plan, lease=lease)

    assert archive.snapshot().generations[-1].number == plan.closed.number


@pytest.mark.parametrize("is_sealed", [False, True])
def test_roll_lease_lost_while_opening(archive: Archive, is_sealed: bool) -> None:
    """If more was sealed until the generation was written, it would start too early: it goes."""
    plan = plan_roll(archive, cluster_with(gone=Log(end=9)))  # type: ignore[arg-type]
    receipts = plan.closed.folder / "receipts"
    receipts.mkdir(exist_ok=True)
    looks = iter([None, LockedError("it expired while this process was suspended")])

    def confirm() -> None:
        if error := next(looks):
            if is_sealed:
                (receipts / "999999999999.json").write_text("{}")
            raise error

    lease: Any = Mock(confirm=confirm)
    if is_sealed:
        with pytest.raises(LockedError):
            roll(plan, lease=lease)
    else:
        roll(plan, lease=lease)

    assert archive.generation(plan.closed.number + 1).folder.exists() is not is_sealed


def test_plan_roll_topic_deleted(archive: Archive) -> None:
    """A topic that doesn't exist any more locks no other; what was drained of it stays sealed."""
    cluster = cluster_with()
    files = archive.generation(1).list_data_files()
    with pytest.raises(CheckpointError, match=r"gone-0, .* `kafka-drain roll .*--leave-out gone`"):
        plan_drain(archive, cluster, "flights")

    plan = plan_roll(archive, cluster)
    do(plan)

    assert plan.starting_offsets == {P0: END, P1: END}
    assert "topic gone no longer exists" in plan.reason
    assert "stops draining gone-0" in plan.lines()[1]
    assert plan_drain(archive, cluster, "flights").start == {P0: END, P1: END}
    assert archive.generation(1).list_data_files() == files
    assert validate_archive(archive, cluster, deep=True).findings == []


def test_plan_roll_leave_out(archive: Archive) -> None:
    """A topic that a pipeline no longer names is left out when it is said."""
    cluster = cluster_with(gone=Log(end=9))

    assert plan_roll(archive, cluster).starting_offsets == {P0: END, P1: END, G0: 7}
    plan = plan_roll(archive, cluster, ["gone"])
    assert plan.to_dict() == {
        "archive": str(archive.root),
        "closed": 2,
        "opened": 3,
        "reason": plan.reason,
        "starting_offsets": to_spark_json({P0: END, P1: END}),
        "unsealed_files": 0,
        "left_out": '{"gone":{"0":7}}',
        "given_up": [],
        "not_read": [],
        "voided": [],
        "to_repair": False,
    }
    assert f"roll {archive.root}: stops draining gone-0 7; everything" in plan.lines()[1]
    do(plan)

    assert plan_drain(archive, cluster, "flights").start == {P0: END, P1: END}


def test_plan_roll_leave_out_unsealed(archive: Archive) -> None:
    """Unsealed records of what is left out, which no drain reads again, are named and accepted."""
    generation, cluster = archive.generation(2), cluster_with(gone=Log(first=8, end=12))
    add_gone(generation, 0, 50, 11)
    # Damaged, so that validation can't seal it.
    (Path(str(generation.checkpoint)) / "offsets" / "0").unlink()
    both = plan_roll(archive, cluster, leave_unsealed=True)
    assert (both.given_up, both.not_read) == ({G0: [OffsetRange(7, 8)]}, {})

    plan = plan_roll(archive, cluster, ["gone"], leave_unsealed=True)
    assert plan.given_up == both.given_up
    assert plan.not_read == {G0: [OffsetRange(8, 11)]}
    assert plan.to_dict()["not_read"] == [{"topic": "gone", "partition": 0, "start": 8, "end": 11}]
    cluster.logs[G0] = Log(end=12)
    with pytest.raises(ConfigError, match="--apply"):
        run_roll(archive, cluster, ["gone"], run="r")
    plan = run_roll(archive, cluster, ["gone"], may_discard=True, run="r")

    assert plan.given_up == {}
    (line,) = [line for line in plan.lines() if "gone-0 [7, 11)" in line]
    assert level_of(line) == Level.WARNING
    assert plan_drain(archive, cluster, "flights").start == {P0: END, P1: END}
    assert plan_drain(archive, cluster, "flights", "gone").start[G0] == 7


def test_plan_roll_leave_out_unknown(archive: Archive) -> None:
    """What the generation doesn't drain can't be left out of the next one."""
    with pytest.raises(ConfigError, match=r"nope.* flights-0, flights-1, gone-0"):
        plan_roll(archive, cluster_with(gone=Log(end=9)), ["nope"])


def test_plan_roll_leave_out_short(archive: Archive) -> None:
    """A log that is left out may be shorter than what was drained of it; what was is kept."""
    cluster = cluster_with(gone=Log(end=5))
    with pytest.raises(DataLossError, match="gone-0 ends at 5, sealed to 7"):
        plan_roll(archive, cluster)

    plan = plan_roll(archive, cluster, ["gone"])
    add_gone(archive.generation(2), 0, 50, 9)
    with pytest.raises(DataLossError, match="gone-0 ends at 5, sealed to 7"):
        plan_roll(archive, cluster, ["gone"], leave_unsealed=True)
    do(plan)

    assert (plan.left_out, plan.discards) == ({G0: 7}, False)
    assert plan_drain(archive, cluster, "flights").start == {P0: END, P1: END}
    # Named again, it is the same as before.
    with pytest.raises(DataLossError, match="gone-0"):
        plan_drain(archive, cluster, "flights", "gone")


def test_preflight_left_out_and_named_again(archive: Archive) -> None:
    """A topic that is named again goes on where it was drained to: no record is there twice."""
    cluster = cluster_with(gone=Log(end=9))
    do(plan_roll(archive, cluster, ["gone"]))

    plan = plan_drain(archive, cluster, "flights", "gone")

    assert plan.start == plan.starting_offsets == {P0: END, P1: END, G0: 7}


def test_preflight_named_again_in_a_drained_generation(archive: Archive) -> None:
    """Spark would read a topic that is named again from its beginning; a roll makes it go on."""
    cluster = cluster_with(gone=Log(end=9))
    do(plan_roll(archive, cluster, ["gone"]))
    add_batch(archive.generation(3), 0, END, 50)
    validate_archive(archive, cluster)

    with pytest.raises(CheckpointError, match=r"gone-0 to 7, .*`kafka-drain roll"):
        plan_drain(archive, cluster, "flights", "gone")
    do(plan_roll(archive, cluster))

    assert plan_drain(archive, cluster, "flights", "gone").start == {P0: 50, P1: 50, G0: 7}


@pytest.mark.parametrize("marker", [None, 7])
def test_preflight_left_out_repaired_and_named_again(
    marker: int | None, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a repair had drained before a partition was left out isn't drained again.

    Nor if a transaction's marker is where it was sealed to.
    """
    generation, cluster = archive.generation(2), cluster_with(gone=Log(end=20))
    add_gone(generation, 0, 50, 9)
    # Damaged: what the file had is in the repair's windows.
    (Path(str(generation.checkpoint)) / "offsets" / "0").unlink()
    next(Path(str(generation.data)).glob("topic=gone/*")).unlink()
    seal_rows(archive, "repair_2", {G0: range(8, 9)})
    if marker is None:
        seal_rows(archive, "repair_1", {G0: range(7, 8)})
    monkeypatch.setattr(
        gap_explanation,
        "classify_gaps",
        lambda _, asked: [
            Gap(tp, r, GapReason.CONTROL) for tp, ranges in asked.items() for r in ranges
        ],
    )
    flights = cluster.contents
    cluster.contents = lambda tp, span: (
        [row(tp, at) for at in range(20) if at in span and at != marker]
        if tp == G0
        else flights(tp, span)
    )
    plan = plan_roll(archive, cluster, ["gone"])
    assert (plan.voided, plan.discards) == ([], False)
    do(plan)

    drain = plan_drain(archive, cluster, "flights", "gone")

    assert drain.start == {P0: END, P1: END, G0: 9}
    generation = archive.generation(3)
    generation.write(
        starting_offsets=drain.starting_offsets,
        file_format="parquet",
        partition_by=["topic"],
        topic_ids=archive.snapshot().document.topics,
        reason="rollover",
        is_new=False,
    )
    assert plan_drain(archive, cluster, "flights", "gone").start == drain.start
    # Nor does a roll take the marker for a hole.
    assert plan_roll(archive, cluster).starting_offsets[G0] == 9
    add_gone(generation, 0, 50, 12, gone_start=9)
    for written in (1, 0):
        report = validate_archive(archive, cluster)
        assert (errors(report.findings), report.receipts_written) == ([], written)


def test_preflight_left_out_and_made_again(archive: Archive) -> None:
    """A topic of the same name that is made after it was left out is drained from its beginning."""
    do(plan_roll(archive, cluster_with()))
    cluster = cluster_with(gone=Log(end=3))
    cluster.topic_ids |= {"gone": "new-id"}

    assert plan_drain(archive, cluster, "flights", "gone").start[G0] == 0


def test_preflight_left_out_beside_rewritten(archive: Archive) -> None:
    """A repair stands for a partition's offsets also once another one's log was rewritten."""
    seal_rows(archive, "repair_1", {P1: range(END, END + 3)})
    do(plan_roll(archive, cluster_with(gone=Log(end=9)), ["flights:1"]))  # type: ignore[arg-type]
    rewritten = rewritten_cluster(P0)
    do(plan_roll(archive, rewritten, rewritten=True))

    assert plan_drain(archive, rewritten, "flights", "gone").start[P1] == END + 3


def test_preflight_left_out_made_again_and_named_again(archive: Archive) -> None:
    """A repair of a topic's earlier life doesn't stand for records that it has since it was made.

    Named again, it goes on where it was drained to, though the repair has these offsets.
    """
    seal_rows(archive, "repair_1", {G0: range(7, 9)})
    cluster = gone_and_back()
    cluster.topic_ids |= {"gone": "new-id"}
    do(plan_roll(archive, cluster))
    add_gone(archive.generation(3), 0, 50, 7, gone_start=0)
    assert validate_archive(archive, cluster).receipts_written == 1
    do(plan_roll(archive, cluster, ["gone"]))

    plan = plan_drain(archive, cluster, "flights", "gone")

    assert plan.start == {P0: 50, P1: 50, G0: 7}


def test_plan_roll_topic_deleted_unsealed(archive: Archive) -> None:
    """Files that no receipt seals may be the only copy of a topic that is gone: no roll."""
    generation = archive.generation(2)
    add_batch(generation, 0, END, 50)
    # Damaged, so that validation can't seal it.
    (Path(str(generation.checkpoint)) / "offsets" / "0").unlink()

    with pytest.raises(DataLossError, match=r"only copy .*gone-0"):
        plan_roll(archive, cluster_with())


def add_gone(
    generation: Generation, batch: int, end: int, gone_end: int, gone_start: int = 7
) -> None:
    """Commit a batch of flights and of topic `gone`, which a drain that was killed then left."""
    add_batch(generation, batch, END, end)
    if gone_end > gone_start:
        data = Path(str(generation.data))
        path = data / "topic=gone" / f"part-00000-{batch}.parquet"
        write_rows(path, "parquet", [row(G0, offset) for offset in range(gone_start, gone_end)])
        entry = {"path": path.as_uri(), "size": path.stat().st_size, "isDir": False}
        log = data / "_spark_metadata" / str(batch)
        line = json.dumps(entry | {"modificationTime": 0, "action": "add"})
        log.write_text(log.read_text() + f"\n{line}")
    ends = to_spark_json({P0: end, P1: end, G0: gone_end})
    offsets = Path(str(generation.checkpoint)) / "offsets" / str(batch)
    offsets.write_text(f"v1\n{{}}\n{ends}")


def test_validate_deleted_topic_brought_nothing(archive: Archive) -> None:
    """A topic that is gone, and that a batch read nothing of, doesn't keep it from being sealed."""
    add_gone(archive.generation(2), 0, 50, 7)

    for written in (1, 0):
        report = validate_archive(archive, cluster_with())
        assert (errors(report.findings), report.receipts_written) == ([], written)


def gone_and_back() -> Any:
    """A cluster with topic `gone`, as `add_gone` has drained it to 9."""
    cluster = cluster_with(gone=Log(end=9))
    of_others = cluster.contents

    def contents(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
        if tp != G0:
            return list(of_others(tp, span))
        return [row(tp, offset) for offset in range(span.start, min(span.end, 9))]

    cluster.contents = contents
    return cluster


def test_validate_batch_without_deleted_topic(archive: Archive) -> None:
    """With failOnDataLoss=false, Spark drops a topic that is deleted before it plans a batch.

    What was drained of it before stays, and counts.
    """
    add_gone(archive.generation(2), 0, 50, 9)
    before = validate_archive(archive, gone_and_back())
    assert (errors(before.findings), before.receipts_written) == ([], 1)

    add_batch(archive.generation(2), 1, 50, 60)

    for written in (1, 0):
        report = validate_archive(archive, cluster_with(), scope="all")
        assert (errors(report.findings), report.receipts_written) == ([], written)
        assert report.records == before.records + 20
    receipt = archive.generation(2).last_receipt()
    assert receipt is not None
    assert receipt.ends == {P0: 60, P1: 60, G0: 9}
    assert any("topic=gone" in file.path for file in archive_files(archive.snapshot()))


@pytest.mark.parametrize("is_sealed", [True, False])
def test_preflight_topic_back_that_a_batch_lacks(is_sealed: bool, archive: Archive) -> None:
    """A topic that Kafka didn't list for a while isn't drained again from its beginning."""
    cluster = gone_and_back()
    add_gone(archive.generation(2), 0, 50, 9)
    assert validate_archive(archive, cluster).receipts_written == 1
    add_batch(archive.generation(2), 1, 50, 60)
    if is_sealed:
        assert validate_archive(archive, cluster).receipts_written == 1

    with pytest.raises(CheckpointError, match=r"gone-0 to 9, .*`kafka-drain roll"):
        plan_drain(archive, cluster, "flights", "gone")
    validate_archive(archive, cluster)
    do(plan_roll(archive, cluster))

    assert plan_drain(archive, cluster, "flights", "gone").start == {P0: 60, P1: 60, G0: 9}


def test_preflight_topic_back_that_a_pending_batch_lacks(archive: Archive) -> None:
    """Nor if the drain was stopped in the batch without it: Spark would finish that, and go on.

    The batch after it would read the topic from its beginning.
    """
    cluster = gone_and_back()
    add_gone(archive.generation(2), 0, 50, 9)
    assert validate_archive(archive, cluster).receipts_written == 1
    plan_batch(archive.generation(2), 1, {P0: 60, P1: 60})

    with pytest.raises(CheckpointError, match=r"gone-0.*`kafka-drain roll"):
        plan_drain(archive, cluster, "flights", "gone")
    validate_archive(archive, cluster)
    do(plan_roll(archive, cluster))

    assert plan_drain(archive, cluster, "flights", "gone").start == {P0: 50, P1: 50, G0: 9}


def test_roll_last_drain_of_deleted_topic(archive: Archive) -> None:
    """What nobody can confirm any more locks no archive: a person leaves it, told what it is."""
    generation, cluster = archive.generation(2), cluster_with()
    add_gone(generation, 0, 50, 9)
    for _ in range(2):
        report = validate_archive(archive, cluster)
        assert summary(errors(report.findings)) == {"topic_made_again": 1}
        assert report.receipts_written == 0
    with pytest.raises(CheckpointError, match=r"it can't seal.*roll .* --leave-unsealed"):
        plan_roll(archive, cluster)
    files = generation.list_data_files()

    plan = plan_roll(archive, cluster, leave_unsealed=True)
    do(plan)

    assert plan.given_up == {G0: [OffsetRange(7, 9)]}
    assert plan.to_dict()["given_up"] == [{"topic": "gone", "partition": 0, "start": 7, "end": 9}]
    assert "can no longer deliver, and readers won't get: gone-0 [7, 9)" in plan.lines()[-1]
    assert [level_of(line) for line in plan.lines()[-2:]] == [Level.WARNING, Level.WARNING]
    assert plan.starting_offsets == {P0: END, P1: END}
    assert generation.list_data_files() == files
    add_batch(archive.generation(3), 0, END, 50)
    for written in (1, 0):
        report = validate_archive(archive, cluster)
        assert (errors(report.findings), report.receipts_written) == ([], written)


def test_roll_leave_unsealed_expired(archive: Archive) -> None:
    """Of what Kafka still has nothing is given up; what it hasn't is named by partition."""
    add_batch(archive.generation(2), 0, END, 50)
    cluster = cluster_with(gone=Log(end=9))
    cluster.logs[P1] = Log(first=END + 3, end=1000)
    with pytest.raises(CheckpointError, match="--leave-unsealed"):
        plan_roll(archive, cluster)
    (Path(str(archive.generation(2).checkpoint)) / "offsets" / "0").unlink()
    with pytest.raises(DataLossError, match=r"flights-1 \[42, 45\).*--leave-unsealed"):
        plan_roll(archive, cluster)

    plan = plan_roll(archive, cluster, leave_unsealed=True)

    assert plan.given_up == {P1: [OffsetRange(END, END + 3)]}
    assert plan.starting_offsets == {P0: END, P1: END, G0: 7}
    cluster.logs[P1] = Log(end=1000)
    assert plan_roll(archive, cluster).given_up == {}


def test_roll_made_again_names_earlier_life(archive: Archive) -> None:
    """Where a topic was made again, its earlier life's records aren't drained again, and named."""
    add_gone(archive.generation(2), 0, 50, 9)
    cluster = cluster_with(gone=Log(end=3))
    cluster.topic_ids |= {"gone": "new-id"}

    plan = plan_roll(archive, cluster)

    assert plan.given_up == {G0: [OffsetRange(7, 9)]}
    assert plan.starting_offsets == {P0: END, P1: END, G0: 0}


def test_roll_made_again_keeps_earlier_window(archive: Archive) -> None:
    """A repair's window of a topic's earlier life stays: no drain reads its records again."""
    seal_rows(archive, "repair_1", {G0: range(7, 9)})
    cluster = cluster_with(gone=Log(end=20))
    cluster.topic_ids |= {"gone": "new-id"}
    do(plan_roll(archive, cluster))

    plan = plan_roll(archive, cluster)
    do(plan)

    assert (plan.starting_offsets[G0], plan.voided, plan.discards) == (0, [], False)
    assert [window.key for window in archive.snapshot().sealed] == ["repair_1"]


def repaired_then_lost(archive: Archive) -> Generation:
    """Mend an unsealed batch by a window, and lose the checkpoint."""
    generation = archive.generation(2)
    drained, _ = add_batch(generation, 0, END, END + 8)
    cut(generation, 0, drained, range(END, END + 5))
    seal_rows(archive, "repair_1", {P0: range(END + 5, END + 8)})
    shutil.rmtree(str(generation.checkpoint))
    return generation


def test_roll_voids_repair_of_unsealed(archive: Archive) -> None:
    """What a repair drained of an unsealed batch is there once when it is drained again."""
    repaired_then_lost(archive)
    cluster = cluster_with(gone=Log(end=9))
    validate_archive(archive, cluster)

    plan = plan_roll(archive, cluster)
    do(plan)

    assert (plan.voided, plan.to_repair) == (["repair_1"], False)
    assert "removes window repair_1" in plan.lines()[-1]
    assert "a mirror that has sent it is refused" in plan.lines()[-1]
    assert archive.snapshot().windows == ()
    add_batch(archive.generation(3), 0, END, END + 8)
    for written in (1, 0):
        report = validate_archive(archive, cluster, deep=True)
        assert (errors(report.findings), report.receipts_written) == ([], written)
    assert records_in(archive, P0) == list(range(END + 8))


def test_roll_voids_noted(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal notes that a window goes while it is there: killed then, nothing is missing."""
    repaired_then_lost(archive)
    plan = plan_roll(archive, cluster_with(gone=Log(end=9)))
    receipt = archive.root / "windows" / "repair_1" / "receipt.json"
    seen: list[bool] = []

    def note(root: Any, noted: Any) -> None:
        seen.append(receipt.is_file())
        note_sealed(root, noted)

    monkeypatch.setattr(rolling, "note_sealed", note)

    do(plan)

    assert seen == [True]
    assert not receipt.is_file()


@pytest.mark.parametrize("how", ["other records", "fewer records", "unreadable"])
def test_roll_voids_other_records(archive: Archive, how: str) -> None:
    """A window isn't removed unless Kafka holds each of its records, or the user accepts it."""
    repaired_then_lost(archive)
    cluster = cluster_with(gone=Log(end=9))
    held = cluster.contents
    [file] = archive.snapshot().fold.live_files
    where = f"flights:0:{END + 5}-{END + 8}"

    def contents(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = held(tp, span)
        if how == "fewer records":
            return [row for row in rows if row["offset"] != END + 6]
        return [row | {"value": b"other"} for row in rows]

    cluster.contents = held if how == "unreadable" else contents
    if how == "unreadable":
        (archive.root / file).write_bytes(b"PAR1")
    before = archive.snapshot().windows[0].receipt

    with pytest.raises(DataLossError, match=f"--replace-changed {where}"):
        plan_roll(archive, cluster)
    with pytest.raises(DataLossError, match=f"--replace-changed {where}"):
        run_roll(archive, cluster, may_discard=True, run="test")

    assert archive.snapshot().windows[0].receipt == before
    assert plan_roll(archive, cluster, replaceable=parse_ranges("accepted", [where])).voided == [
        "repair_1"
    ]


@dataclass(frozen=True, kw_only=True)
class Earlier(Archive):
    """An archive whose first snapshot was begun some time ago."""

    begun: Snapshot

    def snapshot(self) -> Snapshot:
        return self.begun


def test_plan_roll_voids_repair_of_sealed(archive: Archive) -> None:
    """What a window of an earlier release stands for besides, no drain reads again: it is said."""
    generation, cluster = archive.generation(2), cluster_with(gone=Log(end=9))
    add_batch(generation, 0, END, 50)
    assert validate_archive(archive, cluster).receipts_written == 1
    drained, _ = add_batch(generation, 1, 50, 58)
    cut(generation, 1, drained, range(50, 55))
    lost = sealed_files(generation, P1)
    seal_rows(archive, "repair_1", {P0: range(55, 58), P1: offsets_of(lost)}, lost)
    shutil.rmtree(str(generation.checkpoint))
    validate_archive(archive, cluster)

    plan = plan_roll(archive, cluster)

    assert (plan.voided, plan.to_repair) == (["repair_1"], True)
    assert any("repair" in line and "--apply" in line for line in plan.lines())


def test_plan_roll_sealed_meanwhile(archive: Archive) -> None:
    """Where the first look was at a moving archive, the roll is planned from the second one.

    Planned from the first, the next generation would drain a sealed batch again, and keep the
    window that holds what it drains.
    """
    generation, cluster = archive.generation(2), cluster_with(gone=Log(end=9))
    begun = archive.snapshot()
    assert begun.generations[-1].receipt_names() == []
    assert begun.folders == {}
    add_batch(generation, 0, END, 50)
    assert validate_archive(archive, cluster).receipts_written == 1
    drained, _ = add_batch(generation, 1, 50, 58)
    cut(generation, 1, drained, range(50, 55))
    seal_rows(archive, "repair_1", {P0: range(55, 58)})
    shutil.rmtree(str(generation.checkpoint))
    validate_archive(archive, cluster)

    plan = plan_roll(Earlier(archive.root, begun=begun), cluster)

    assert plan.closed.receipt_names() == generation.receipt_names()
    assert plan.starting_offsets == {P0: 50, P1: 50, G0: 7}
    assert plan.voided == ["repair_1"]


def gives_up(archive: Archive) -> FakeCluster:
    """Leave unsealed files whose records Kafka no longer has; return its cluster."""
    add_batch(archive.generation(2), 0, END, END + 8)
    # Damaged, so that validation can't seal it.
    (Path(str(archive.generation(2).checkpoint)) / "offsets" / "0").unlink()
    cluster = cluster_with(gone=Log(end=9))
    cluster.logs[P0] = Log(first=END + 6, end=1000)
    return cluster  # type: ignore[no-any-return]


def voids(archive: Archive) -> FakeCluster:
    """Leave a window whose offsets the next generation drains again; return the cluster."""
    repaired_then_lost(archive)
    return cluster_with(gone=Log(end=9))  # type: ignore[no-any-return]


def adds(archive: Archive) -> FakeCluster:
    """Return the cluster of an archive that is all sealed."""
    return cluster_with(gone=Log(end=9))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("make", "flags", "code", "discards", "rolls"),
    [
        (adds, [], 0, False, True),
        (adds, ["--apply"], 0, False, True),
        (adds, ["--dry-run"], 0, False, False),
        (voids, [], 2, True, False),
        (voids, ["--apply"], 0, True, True),
        (voids, ["--dry-run"], 0, True, False),
        (gives_up, [], 2, True, False),
        (gives_up, ["--apply"], 0, True, True),
        (gives_up, ["--dry-run"], 0, True, False),
    ],
)
def test_roll_command(
    archive: Archive,
    make: Any,
    flags: list[str],
    code: int,
    discards: bool,
    rolls: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A roll that only adds acts by default; one that discards something needs --apply."""
    cluster = make(archive)
    leave = ["--leave-unsealed"] if make is gives_up else []
    assert plan_roll(archive, cluster, leave_unsealed=bool(leave)).discards is discards
    windows = [window.key for window in archive.snapshot().windows]
    monkeypatch.setattr("kafka_drain.cli.commands.roll.cluster_from", lambda _: cluster)

    assert main(["roll", str(archive.root), *leave, *flags]) == code

    said = capsys.readouterr()
    assert (len(archive.snapshot().generations) == 3) is rolls
    there = [window.key for window in archive.snapshot().windows]
    assert (there == windows) is (not rolls or make is not voids)
    assert f"roll {archive.root}: closes generation 2" in said.err
    assert ("Pass --apply to carry it out" in said.err) is (code == 2)
    if "--dry-run" in flags:
        how = "pass --apply" if discards else "omit --dry-run"
        assert said.err.endswith(f"dry run: nothing was changed; {how} to carry it out\n")
    assert not (archive.root / "lock.json").exists()


def test_run_roll_elsewhere(tmp_path: Path) -> None:
    """In a folder that isn't an archive, a roll leaves nothing behind."""
    with pytest.raises(ArchiveError):
        run_roll(Archive.at(str(tmp_path)), cluster_with(), run="test")

    assert list(tmp_path.iterdir()) == []


def test_readers_of_unsealed_twice(archive: Archive) -> None:
    """Readers don't get twice what a window and an unsealed file hold; a roll helps."""
    add_batch(archive.generation(2), 0, END, END + 8)
    cluster = cluster_with(gone=Log(end=9))
    # As an older release's roll left it: the generation drained what a repair had drained.
    seal_rows(archive, "repair_1", {P0: range(END + 5, END + 8)})

    for _ in range(2):
        report = validate_archive(archive, cluster)
        assert summary(errors(report.findings)) == {"segment_overlap": 1}
        assert report.receipts_written == 0
        with pytest.raises(ManifestInvalidError, match=r"flights-0 .* twice.*--leave-unsealed"):
            archive_files(archive.snapshot())

    do(plan_roll(archive, cluster, leave_unsealed=True))
    assert records_in(archive, P0) == list(range(END))
    add_batch(archive.generation(3), 0, END, END + 8)
    assert records_in(archive, P0) == list(range(END + 8))
    for written in (1, 0):
        report = validate_archive(archive, cluster)
        assert (errors(report.findings), report.receipts_written) == ([], written)


def test_readers_of_unsealed_repaired(archive: Archive) -> None:
    """What a repair drained of a file that had lost it, readers get from the window, once."""
    generation = archive.generation(2)
    drained, _ = add_batch(generation, 0, END, END + 8)
    cut(generation, 0, drained, range(END, END + 5))
    seal_rows(archive, "repair_1", {P0: range(END + 5, END + 8)})

    assert records_in(archive, P0) == list(range(END + 8))


def test_roll_repair_of_unsealed_expired(archive: Archive) -> None:
    """A window of which Kafka has nothing any more stays; where it has some, nothing is done."""
    repaired_then_lost(archive)
    cluster = cluster_with(gone=Log(end=9))

    cluster.logs[P0] = Log(first=END + 6, end=1000)
    for leave in (False, True):
        with pytest.raises(DataLossError, match="only copy" if not leave else "window repair_1"):
            plan_roll(archive, cluster, leave_unsealed=leave)
    cluster.logs[P0] = Log(first=END + 8, end=1000)

    plan = plan_roll(archive, cluster, leave_unsealed=True)

    assert (plan.voided, plan.given_up) == ([], {P0: [OffsetRange(END, END + 5)]})


def records_in(archive: Archive, tp: TopicPartition) -> list[int]:
    """Return the offsets that readers get of a partition."""
    return sorted(
        offset
        for file in archive_files(archive.snapshot())
        for content in read_offsets(archive.root / file.path, file.file_format, tp.topic)
        if content.tp == tp
        for r in content.ranges
        for offset in range(r.start, r.end)
    )


def test_plan_roll_rewritten(archive: Archive) -> None:
    """Logs with other records go on as another incarnation of their topic; others as they are."""
    rewritten = rewritten_cluster(P0, P1, G0)
    known = archive.snapshot().document.topics["flights"]

    plan = plan_roll(archive, rewritten, rewritten=True)
    do(plan)

    assert plan.reason == "log of flights was rewritten"
    assert plan.starting_offsets == {P0: 0, P1: 0, G0: 7}
    assert plan.topic_ids == {"flights": f"{known}~2", "gone": "id-of-gone"}
    drained = plan_drain(archive, rewritten, "flights", "gone")
    assert drained.start == plan.starting_offsets
    assert drained.topics["flights"].id == f"{known}~2"
    assert validate_archive(archive, rewritten).complete  # type: ignore[arg-type]
    # Kafka's id of it is still the same, and another one is another topic.
    again = plan_roll(archive, rewritten)  # type: ignore[arg-type]
    assert again.topic_ids == plan.topic_ids
    rewritten.topic_ids["flights"] = "another"
    other = plan_roll(archive, rewritten)  # type: ignore[arg-type]
    assert other.topic_ids["flights"] == "another"


def test_plan_roll_rewritten_after_repair(archive: Archive) -> None:
    """A partition beside a rewritten one goes on behind what repairs hold of it, not before."""
    seal_rows(archive, "repair_2", {P1: range(END + 3, END + 5), P0: range(END, END + 2)})
    seal_rows(archive, "repair_1", {P1: range(END, END + 3)})
    rewritten = rewritten_cluster(P0)

    plan = plan_roll(archive, rewritten, rewritten=True)

    assert plan.starting_offsets == {P0: 0, P1: END + 5, G0: 7}
    assert plan.voided == []


def test_plan_roll_rewritten_unsealed_beside(archive: Archive) -> None:
    """Of an unsealed file, a roll names what Kafka has no more, also beside a rewritten log."""
    add_batch(archive.generation(2), 0, END, END + 8)
    rewritten = rewritten_cluster(P0, first={P1: END + 3})

    plan = plan_roll(archive, rewritten, leave_unsealed=True, rewritten=True)

    assert plan.given_up == {
        P0: [OffsetRange(END, END + 8)],
        P1: [OffsetRange(END, END + 3)],
    }


@pytest.mark.parametrize(
    ("differs", "starts", "lost"),
    [
        # The log was rewritten before the unsealed batch was drained, and has all of it.
        (lambda at: at < END, 0, {}),
        # Only records of the batch were lost, some of them.
        (lambda at: at >= END + 3, END, {P0: [OffsetRange(END + 3, END + 8)]}),
        (lambda at: True, 0, {P0: [OffsetRange(END, END + 8)]}),
    ],
)
def test_plan_roll_rewritten_unsealed(
    differs: Callable[[int], bool], starts: int, lost: Any, archive: Archive
) -> None:
    """Of unsealed files, what Kafka has no more is given up, not what the next drain reads."""
    add_batch(archive.generation(2), 0, END, END + 8)
    cluster = cluster_with(gone=Log(end=9))
    contents = cluster.contents
    cluster.contents = lambda tp, span: [
        row for row in contents(tp, span) if tp != P0 or not differs(row["offset"])
    ]

    plan = plan_roll(archive, cluster, leave_unsealed=True, rewritten=True)

    assert (plan.given_up, plan.starting_offsets[P0]) == (lost, starts)
    assert plan.discards is bool(lost)


def test_plan_roll_rewritten_repair_removed(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is removed is drained again, of partitions beside a rewritten one as well."""
    seal_rows(archive, "repair_1", {P1: range(END, END + 3)})
    seal_rows(archive, "repair_2", {P1: range(END + 3, END + 5), G0: range(7, 9)})
    seal_rows(archive, "repair_3", {P1: range(END + 5, END + 8)})
    rewritten = rewritten_cluster(P0)
    flights = rewritten.contents
    rewritten.contents = lambda tp, span: (
        [row(G0, at) for at in range(7, 9)] if tp == G0 else flights(tp, span)
    )
    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)

    plan = plan_roll(archive, rewritten, rewritten=True)

    assert plan.starting_offsets == {P0: 0, P1: END + 3, G0: 7}
    assert plan.voided == ["repair_2", "repair_3"]


def test_plan_roll_rewritten_repair_torn(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that stays for a rewritten log's sake must not be drained again in part."""
    seal_rows(archive, "repair_1", {P1: range(END + 3, END + 5), P0: range(END, END + 2)})
    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)

    with pytest.raises(DataLossError, match=r"window repair_1 .*some twice"):
        plan_roll(archive, rewritten_cluster(P0), rewritten=True)


@pytest.mark.parametrize(("first", "passed"), [(2, 1), (3, 5), (4, 5)])
def test_plan_roll_rewritten_deleted_before_repair(
    first: int, passed: int, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of offsets before a window that Kafka has deleted, nothing is left to drain again."""
    seal_rows(archive, "repair_1", {P1: range(END, END + 1)})
    seal_rows(archive, "repair_2", {P1: range(END + 3, END + 5)})
    rewritten = rewritten_cluster(P0, first={P1: END + first})
    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)

    plan = plan_roll(archive, rewritten, rewritten=True)

    assert plan.starting_offsets[P1] == END + passed


@pytest.mark.parametrize(("reason", "passed"), [(GapReason.CONTROL, 6), (GapReason.LOST, 3)])
def test_plan_roll_rewritten_hole_in_repairs(
    reason: GapReason, passed: int, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a marker between windows, nothing of theirs is drained again; a record is drained."""
    seal_rows(archive, "repair_1", {P1: range(END, END + 3)})
    seal_rows(archive, "repair_2", {P1: range(END + 4, END + 6)})
    rewritten = rewritten_cluster(P0)
    monkeypatch.setattr(
        gap_explanation,
        "classify_gaps",
        lambda _, asked: [Gap(tp, r, reason) for tp, ranges in asked.items() for r in ranges],
    )

    plan = plan_roll(archive, rewritten, rewritten=True)

    assert plan.starting_offsets == {P0: 0, P1: END + passed, G0: 7}
    assert plan.voided == ([] if reason == GapReason.CONTROL else ["repair_2"])


def test_roll_rewritten_killed(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A roll that is killed before archive.json has the new incarnation is completed by a drain."""
    rewritten = rewritten_cluster(P0, P1, G0)
    known = archive.snapshot().document.topics["flights"]
    plan = plan_roll(archive, rewritten, rewritten=True)
    with monkeypatch.context() as killed:
        killed.setattr(Archive, "update_topics", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            do(plan)
    assert archive.snapshot().document.topics["flights"] == known

    drained = plan_drain(archive, rewritten, "flights", "gone")

    assert drained.topics["flights"].id == f"{known}~2"
    assert drained.start == {P0: 0, P1: 0, G0: 7}


@pytest.mark.parametrize(
    ("log", "is_short"),
    [
        (Log(end=END - 1), True),
        (Log(end=END), False),
        # Behind an open transaction, it is there.
        (Log(end=END, stable=END - 5), False),
    ],
)
def test_plan_roll_log_short(archive: Archive, log: Log, is_short: bool) -> None:
    """A log that lost its end isn't gone on with: new records would be skipped."""
    cluster = cluster_with(gone=Log(end=9))
    cluster.logs[P0] = log

    if is_short:
        says = f"flights-0 ends at {END - 1}, sealed to {END}.*--rewritten"
        with pytest.raises(DataLossError, match=says):
            plan_roll(archive, cluster)
    else:
        assert plan_roll(archive, cluster).starting_offsets[P0] == END


@pytest.mark.parametrize("step", ["planned", "opening"])
def test_roll_validated_meanwhile(
    step: str, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A validation, which holds no lease, seals what a roll is about to leave unsealed: it doesn't.

    The next generation would drain the batch again, and each drain would refuse that.
    """
    add_batch(archive.generation(2), 0, END, 50)
    cluster = cluster_with(gone=Log(end=9))
    write = Generation.write

    def validated(self: Generation, **values: Any) -> None:
        monkeypatch.undo()
        assert validate_archive(archive, cluster).receipts_written == 1
        write(self, **values)

    plan = plan_roll(archive, cluster, leave_unsealed=True)
    assert plan.starting_offsets == {P0: END, P1: END, G0: 7}
    if step == "planned":
        assert validate_archive(archive, cluster).receipts_written == 1
    else:
        monkeypatch.setattr(Generation, "write", validated)

    with pytest.raises(LockedError, match="validation has sealed more"):
        roll(plan, lease=Mock())

    assert archive.snapshot().generations[-1].number == 2
    assert plan_drain(archive, cluster, "flights").start == {P0: 50, P1: 50}
    again = plan_roll(archive, cluster)
    assert (again.starting_offsets[P0], again.starting_offsets[P1]) == (50, 50)


@pytest.mark.parametrize("has_drained", [True, False])
def test_roll_drained_meanwhile(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, has_drained: bool
) -> None:
    """What a drain has committed since the lease was over isn't left out: the roll takes it back.

    Suspended right before the write, which nothing can keep a process from.
    """
    cluster = cluster_with(gone=Log(end=9))
    plan = plan_roll(archive, cluster)
    write = Generation.write

    def suspended(self: Generation, **values: Any) -> None:
        monkeypatch.undo()
        if has_drained:
            add_batch(archive.generation(2), 0, END, 50)
        write(self, **values)

    monkeypatch.setattr(Generation, "write", suspended)
    lease = Mock()
    lease.confirm.side_effect = [None, LockedError("it expired while this process was suspended")]

    with pytest.raises(LockedError, match="suspended") if has_drained else nullcontext():
        roll(plan, lease=lease)

    assert archive.snapshot().generations[-1].number == (2 if has_drained else 3)
    assert validate_archive(archive, cluster).receipts_written == int(has_drained)


@pytest.mark.parametrize("step", ["generation", "topics"])
def test_roll_suspended(step: str, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspended until another process has opened what it was to open, it leaves that as it is."""
    cluster = cluster_with(gone=Log(end=9))
    plan = plan_roll(archive, cluster)
    opened = archive.generation(3)

    def another() -> None:
        archive.update_topics(archive.snapshot().document, {"more": "id-of-more"})
        if step == "generation":
            opened.write(
                starting_offsets={P0: END + 5, P1: END, G0: 9},
                file_format="parquet",
                partition_by=["topic"],
                topic_ids=archive.snapshot().document.topics,
                reason="rollover",
            )

    write = Generation.write

    def suspended(self: Generation, **values: Any) -> None:
        monkeypatch.undo()
        if step == "generation":
            another()
        write(self, **values)
        if step == "topics":
            another()

    monkeypatch.setattr(Generation, "write", suspended)

    refused = pytest.raises(LockedError, match="meanwhile")
    with refused if step == "generation" else nullcontext():
        do(plan)

    assert archive.snapshot().document.topics["more"] == "id-of-more"
    if step == "generation":
        assert opened.read_document().first_offsets()[P0] == END + 5


def test_plan_roll_not_rewritten(archive: Archive) -> None:
    """Asked to go on with rewritten logs where there are none, it changes nothing."""
    with pytest.raises(ConfigError, match=r"no log of .* was rewritten"):
        plan_roll(archive, cluster_with(gone=Log(end=9)), rewritten=True)


def test_roll_between_drains_waits(archive: Archive, said: list[str]) -> None:
    """While a drain holds the lease, it is said which, and how long it is waited for."""
    with hold_lease(archive.root, run="nightly"):
        rolled = roll_between_drains(archive, cluster_with(), run="terminal", wait_seconds=0.5)

    waiting, skipped = said
    assert rolled is None
    assert waiting.startswith(f"roll {archive.root}: waiting, for 0 s at most: ")
    assert "nightly" in waiting
    assert skipped.startswith(f"roll {archive.root}: WARNING skipped this time: ")


def test_roll_between_drains_refused(archive: Archive, said: list[str]) -> None:
    """What waiting can't mend, as a loss, fails at once; batches to be sealed are waited for."""
    cluster = cluster_with(gone=Log(end=9))
    cluster.logs[P0] = Log(end=END - 1)
    with pytest.raises(DataLossError):
        roll_between_drains(archive, cluster, run="terminal", wait_seconds=60)
    assert said == []

    cluster.logs[P0] = Log(end=1000)
    add_batch(archive.generation(2), 0, END, 50)
    assert roll_between_drains(archive, cluster, run="terminal", wait_seconds=0) is None
    assert "without a receipt" in said[-1]
    assert len(archive.snapshot().generations) == 2


def test_roll_voids_locked(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that the store locks can't be removed: nothing is begun that would need it."""
    repaired_then_lost(archive)
    plan = plan_roll(archive, cluster_with(gone=Log(end=9)))
    monkeypatch.setattr(rolling, "locked_in", lambda _: Locked(files=1))

    with pytest.raises(ArchiveError, match=r"repair_1 can't be removed.*Nothing was changed"):
        do(plan)

    assert [window.key for window in archive.snapshot().sealed] == ["repair_1"]
    assert len(archive.snapshot().generations) == 2


def begin_to_send(archive: Archive) -> RepublishRun:
    """Let a republish begin to send the archive's only window."""
    [window] = archive.snapshot().sealed
    [shard, *_] = PLAN.shards
    files = tuple(replace(file, path=window.receipt.files[0].path) for file in shard.files)
    run = RepublishRun(archive.root, "r")
    run.write_plan(replace(PLAN, key="r", shards=(replace(shard, files=files),)))
    run.mark_opened(PLAN)
    return run


def assert_rolls_after(run: RepublishRun, plan: RollPlan) -> None:
    """The window that a republish sends is there; once that is abandoned, the roll goes on."""
    archive = plan.archive
    assert [window.key for window in archive.snapshot().sealed] == ["repair_1"]
    assert len(archive.snapshot().generations) == 2
    run.abandon(datetime(2026, 1, 1, tzinfo=timezone.utc))
    do(plan)
    assert len(archive.snapshot().generations) == 3


def test_roll_voids_needed(archive: Archive) -> None:
    """A window that an unfinished republish sends isn't removed: that could never end without."""
    repaired_then_lost(archive)
    plan = plan_roll(archive, cluster_with(gone=Log(end=9)))
    run = begin_to_send(archive)

    says = r"republish r still needs window repair_1.*--abandon r --apply`. Nothing was changed"
    with pytest.raises(ArchiveError, match=says):
        do(plan)

    assert_rolls_after(run, plan)


def test_roll_voids_needed_meanwhile(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that a republish began to send while the roll waited to remove it."""
    repaired_then_lost(archive)
    plan = plan_roll(archive, cluster_with(gone=Log(end=9)))
    wait = rolling.wait_for_lease

    def begins(*place: Any, **how: Any) -> Any:
        begin_to_send(archive)
        return wait(*place, **how)

    monkeypatch.setattr(rolling, "wait_for_lease", begins)

    with pytest.raises(ArchiveError, match=r"republish r still needs window repair_1"):
        do(plan)

    assert_rolls_after(RepublishRun(archive.root, "r"), plan)


def without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the key of the files that a roll reads."""

    def read(*given: Any) -> Any:
        files, findings = read_committed_files(*given)
        return [replace(file, locked="there is no key") for file in files], findings

    monkeypatch.setattr(rolling, "read_committed_files", read)


def test_roll_voids_without_key(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that can't be read now can't be compared: their window isn't removed."""
    repaired_then_lost(archive)
    without_key(monkeypatch)

    with pytest.raises(DataLossError, match=rf"flights:0:{END + 5}-{END + 8}.* can't be compared"):
        plan_roll(archive, cluster_with(gone=Log(end=9)))


def test_roll_rewritten_without_key(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are unsealed files left out that can't be read now: they may be the only copy."""
    add_batch(archive.generation(2), 0, END, 50)
    without_key(monkeypatch)
    cluster = cluster_with(gone=Log(end=9))

    with pytest.raises(DataLossError, match=r"may be the only copy of records of .*flights-0"):
        plan_roll(archive, cluster, rewritten=True)


def test_plan_roll_receipt_lost(archive: Archive) -> None:
    """Where the newest receipt is lost, its batch isn't left out like one that was never sealed."""
    generation, cluster = archive.generation(2), cluster_with(gone=Log(end=9))
    add_batch(generation, 0, END, 50)
    assert validate_archive(archive, cluster).receipts_written == 1
    (generation.folder / "receipts" / generation.receipt_names()[-1]).unlink()

    for leave in (False, True):
        with pytest.raises(CheckpointError, match=r"That means: .*What to do: "):
            plan_roll(archive, cluster, leave_unsealed=leave)


def test_plan_roll_topic_not_seen(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that can't be described, and is there, isn't left out as a deleted one."""
    cluster = cluster_with()
    assert plan_roll(archive, cluster).left_out == {G0: 7}
    monkeypatch.setattr(cluster, "has_topic", lambda name: True)
    monkeypatch.setattr(cluster, "counting", lambda _: cluster)

    with pytest.raises(TopicError, match="gone"):
        plan_roll(archive, cluster)


def test_plan_roll_left_out_repaired(archive: Archive) -> None:
    """A window whose offsets the next generation doesn't drain again stays: readers need it."""
    repaired_then_lost(archive)
    cluster = cluster_with(gone=Log(end=9))
    validate_archive(archive, cluster)

    plan = plan_roll(archive, cluster, ["flights:0"])

    assert plan.starting_offsets == {P1: END, G0: 7}
    assert plan.voided == []


def test_preflight_left_out_of_rewritten_and_named_again(archive: Archive) -> None:
    """A partition left out, of which another one was rewritten since, goes on where it ended."""
    do(plan_roll(archive, cluster_with(gone=Log(end=9)), ["flights:1"]))
    rewritten = rewritten_cluster(P0)
    do(plan_roll(archive, rewritten, rewritten=True))

    plan = plan_drain(archive, rewritten, "flights", "gone")

    assert plan.start == {P0: 0, P1: END, G0: 7}


@pytest.mark.parametrize("is_short", [False, True])
def test_roll_left_out_then_rewritten(archive: Archive, is_short: bool) -> None:
    """The roll that a drain names goes on with a log rewritten while its topic was left out."""
    cluster = cluster_with(gone=Log(end=9))
    flights = cluster.contents
    cluster.contents = lambda tp, span: (
        [row(G0, at) for at in range(9)] if tp == G0 else flights(tp, span)
    )
    add_gone(archive.generation(2), 0, END, 9)
    assert validate_archive(archive, cluster).receipts_written == 1
    do(plan_roll(archive, cluster, ["gone"]))
    assert plan_drain(archive, cluster, "flights", "gone").start[G0] == 9
    if is_short:
        cluster.logs[G0] = Log(end=5)
    else:
        cluster.contents = lambda tp, span: [] if tp == G0 else flights(tp, span)
    with pytest.raises(DataLossError, match=r"gone-0.*roll .*--rewritten"):
        plan_drain(archive, cluster, "flights", "gone")

    do(plan_roll(archive, cluster, rewritten=True))

    assert plan_drain(archive, cluster, "flights", "gone").start[G0] < 9


def test_plan_roll_left_out_torn(archive: Archive) -> None:
    """A window that stays for what is left out can't be drained again in part: leave out later."""
    seal_rows(archive, "repair_1", {P0: range(END, END + 3), P1: range(END, END + 3)})
    cluster = cluster_with(gone=Log(end=9))

    with pytest.raises(DataLossError, match=r"repair_1 .*left out \(flights-0\).*leave none"):
        plan_roll(archive, cluster, ["flights:0"])

    assert plan_roll(archive, cluster).voided == ["repair_1"]


def test_plan_roll_left_out_stays_left_out(archive: Archive) -> None:
    """A rewritten log that is left out stays so where that is said."""
    do(plan_roll(archive, cluster_with(gone=Log(end=9)), ["flights:1"]))
    rewritten = rewritten_cluster(P0, P1)

    assert plan_roll(archive, rewritten, rewritten=True).starting_offsets == {P0: 0, P1: 0, G0: 7}
    plan = plan_roll(archive, rewritten, ["flights:1"], rewritten=True)
    assert plan.starting_offsets == {P0: 0, G0: 7}


def test_roll_between_drains_discards(archive: Archive) -> None:
    """Nobody was asked whether a window may go: it stays."""
    repaired_then_lost(archive)

    with pytest.raises(ConfigError, match=r"removes window repair_1.*--apply"):
        roll_between_drains(archive, cluster_with(gone=Log(end=9)), run="t", wait_seconds=0)

    assert [window.key for window in archive.snapshot().sealed] == ["repair_1"]
