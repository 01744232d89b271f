"""What a reprocess refuses: where files may be the only copy, or have gone already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import ArchiveError, DataLossError
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.reprocess.refusals import refuse_already_replaced, refuse_expired
from kafka_drain.windows.reprocess.state import ReprocessPlan
from kafka_drain.windows.rewrite_groups import FileGroup
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """Two batches of two partitions: offsets 0 to 4 and 5 to 9."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    for at in (0, 5):
        made.seal({P0: dense(at, at + 5), P1: dense(at, at + 5)})
    return made


def plan_of(made: MadeArchive, *, begun: bool = False) -> ReprocessPlan:
    """A reprocess of both batches, each a group."""
    files = [file.path for file in made.files()]
    groups = {
        f"reprocess_{number:04d}": FileGroup(
            {tp: [OffsetRange(5 * number, 5 * number + 5)] for tp in (P0, P1)},
            files[2 * number : 2 * number + 2],
            1,
            {P0: 5, P1: 5},
        )
        for number in (0, 1)
    }
    return ReprocessPlan(
        made.archive, "test", 1, "parquet", "zstd", ["topic"], {"t": "id"}, groups, begun
    )


def kafka(first: int, other: int) -> Any:
    """A Kafka whose partitions begin at some offsets."""
    return FakeCluster({P0: Log(first, 100), P1: Log(other, 100)})


def seal(made: MadeArchive, plan: ReprocessPlan, number: int) -> None:
    """Seal a group's window."""
    key = f"reprocess_{number:04d}"
    made.seal_window(key, {P0: dense(5 * number, 5 * number + 5)}, plan.groups[key].replaces)


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(
    ("first", "other", "gone", "gone_of_second"),
    [
        (0, 0, "", ""),
        (1, 0, "t:0:0-5", ""),
        (5, 0, "t:0:0-5", ""),
        (0, 5, "t:1:0-5", ""),
        (5, 1, "t:0:0-5, t:1:0-5", ""),
        (6, 0, "t:0:0-5, t:0:5-10", "t:0:5-10"),
        (9, 9, "t:0:0-5, t:1:0-5, t:0:5-10, t:1:5-10", "t:0:5-10, t:1:5-10"),
    ],
)
def test_refuse_expired(
    made: MadeArchive, first: int, other: int, gone: str, gone_of_second: str, is_sealed: bool
) -> None:
    """What is still to be drained has to be in Kafka from its first offset on."""
    plan = plan_of(made)
    if is_sealed:
        seal(made, plan, 0)
        gone = gone_of_second
    if not gone:
        refuse_expired(plan, kafka(first, other))
        return

    with pytest.raises(DataLossError) as raised:
        refuse_expired(plan, kafka(first, other))

    assert str(raised.value) == (
        f"the archive may be the only copy of {gone}: Kafka's earliest offset is later "
        "(topic:partition:start-end). Nothing was changed; reprocess from a later batch, time or "
        "offset"
    )


def test_refuse_expired_begun(made: MadeArchive) -> None:
    """One that was begun names the way out."""
    with pytest.raises(DataLossError, match=r"End this reprocess with `kafka-drain reprocess .* -"):
        refuse_expired(plan_of(made, begun=True), kafka(1, 0))


def test_refuse_expired_many(made: MadeArchive) -> None:
    """Of many ranges five are named."""
    plan = plan_of(made)
    plan.groups["reprocess_0000"].ranges[P0][:] = [OffsetRange(n, n + 1) for n in range(5)]
    with pytest.raises(DataLossError, match=r"only copy of (t:0:\d-\d, ){4}t:0:4-5 …: Kafka's"):
        refuse_expired(plan, kafka(9, 0))
    del plan.groups["reprocess_0001"]
    with pytest.raises(DataLossError, match=r"only copy of (t:0:\d-\d, ){4}t:0:4-5: Kafka's"):
        refuse_expired(plan, kafka(9, 0))


def test_refuse_already_replaced(made: MadeArchive) -> None:
    """Another window that stands for a file of an unsealed group is named; its own are none."""
    plan = plan_of(made)
    first, second = (sorted(group.replaces) for group in plan.groups.values())
    refuse_already_replaced(plan, plan.archive.snapshot())
    seal(made, plan, 0)
    # One for files of a group that is sealed, one for others, one that isn't sealed.
    made.seal_window("repair_1", {P0: dense(0, 5)}, first)
    made.seal_window("repair_2", {P0: dense(0, 5)}, ["other"])
    made.seal_window("repair_3", {P0: dense(0, 5)}, second)
    (made.root / "windows/repair_3/receipt.json").unlink()
    refuse_already_replaced(plan, plan.archive.snapshot())

    made.seal_window("repair_4", {P0: dense(5, 10)}, ["other", *second])

    with pytest.raises(ArchiveError) as raised:
        refuse_already_replaced(plan, plan.archive.snapshot())
    assert str(raised.value).startswith(
        f"{made.root}: window repair_4 has replaced 2 files, such as {second[0]}, since the "
        "reprocess was started: it can't replace them any more. End it with `kafka-drain "
    )
    seal(made, plan, 1)
    refuse_already_replaced(plan, plan.archive.snapshot())
