"""What a backfill drains of an interval: what Kafka still holds and nobody owns, or it says so."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.window import range_rows
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, DataLossError, KafkaUnavailableError, TopicError
from kafka_drain.intervals import Interval, milliseconds
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.backfill_plan import BackfillPlan, plan_backfill
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import (
    END,
    add_batch,
    golden_cluster,
    in_kafka,
    open_next,
    sealed_copy,
)
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
MINUTE = 60_000
#: Kafka has a record a minute: the hour from noon has offsets 60 to 119.
FIRST_MS = milliseconds(NOON - timedelta(hours=1))
HOUR = Interval(NOON, NOON + timedelta(hours=1))


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


class Backfilled:
    """An archive whose open generation starts behind the hour, and the Kafka that it is of."""

    def __init__(self, folder: Path, start: int = 150) -> None:
        self.made = MadeArchive(folder / "archive", {"t": "id"})
        self.made.archive.generation(1).write(
            starting_offsets={P0: start},
            file_format="parquet",
            partition_by=["topic"],
            topic_ids={"t": "id"},
            reason="test",
        )
        self.pipeline = Pipeline(name="made", topics=["t"], archive=str(self.made.root))
        self.first, self.end, self.topic_id = 0, 200, "id"

    def plan(self, interval: Interval = HOUR, **options: Any) -> BackfillPlan:
        """Plan a backfill of the hour, or another."""
        times = {offset: FIRST_MS + offset * MINUTE for offset in range(self.first, self.end)}
        cluster: Any = FakeCluster(
            {P0: Log(self.first, self.end, times=times)}, topic_ids={"t": self.topic_id}
        )
        return plan_backfill(self.pipeline, cluster, interval, **options)

    def window(self, start: int, end: int, minutes: int, key: str = "repair_1") -> None:
        """Seal a window of some offsets, whose first record is so many minutes after eleven."""
        self.made.seal_window(key, {P0: dense(start, end, FIRST_MS + minutes * MINUTE - start)})

    def freeze(self, interval: Interval, start: int, end: int, *, seals: bool = False) -> None:
        """Leave an interval's plan, and a window if wanted, as a backfill before this one does."""
        plan = {
            "ranges": range_rows({P0: [R(start, end)]}),
            "interval": [interval.start.isoformat(), interval.end.isoformat()],
            "topics": {"t": "id"},
            "partition_by": ["topic"],
        }
        self.made.seal_window(interval.key, {P0: dense(start, end)}, **plan)
        if not seals:
            (self.made.root / "windows" / interval.key / "receipt.json").unlink()


@pytest.fixture
def backfilled(tmp_path: Path) -> Backfilled:
    """An archive of which nothing is sealed, before Kafka has deleted anything."""
    return Backfilled(tmp_path)


def hour(number: int) -> Interval:
    """The hour that begins so many hours after noon."""
    return Interval(NOON + timedelta(hours=number), NOON + timedelta(hours=number + 1))


def test_plan_backfill(backfilled: Backfilled) -> None:
    """An interval's offsets are those of its first record to the one behind it."""
    plan = backfilled.plan()

    assert plan.offsets == {P0: R(60, 120)}
    assert plan.ranges == {P0: [R(60, 120)]}
    assert (plan.left, plan.ahead, plan.nothing_to_do) == (60, 0, False)
    assert (plan.topic_ids, plan.window.key) == ({"t": "id"}, HOUR.key)
    assert (plan.covered_by, plan.acknowledged, plan.replaces, plan.held) == ([], [], [], {})
    root = backfilled.made.root
    assert plan.lines() == [f"backfill {root}: {HOUR} has 60 offsets, 60 left to drain"]
    assert plan.to_dict() == {
        "archive": str(root),
        "window": HOUR.key,
        "start": "2026-01-01T12:00:00+00:00",
        "end": "2026-01-01T13:00:00+00:00",
        "offsets": 60,
        "to_drain": 60,
        "ahead": 0,
        "covered_by": [],
        "of_no_interval": 0,
    }


@pytest.mark.parametrize(
    ("number", "offsets"),
    [(-2, R(0, 0)), (-1, R(0, 60)), (0, R(60, 120)), (2, R(180, 200)), (3, R(200, 200))],
)
def test_plan_backfill_tiles(backfilled: Backfilled, number: int, offsets: OffsetRange) -> None:
    """Intervals tile the offsets; where no record is that late, they end with the log."""
    assert backfilled.plan(hour(number)).offsets == {P0: offsets}


@pytest.mark.parametrize("question", ["first_since", "times_from"])
def test_plan_backfill_deleted_meanwhile(
    backfilled: Backfilled, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that Kafka deletes while they are looked up don't make an interval empty."""
    ask = getattr(FakeCluster, question)

    def delete_before(cluster: FakeCluster, *asked: Any) -> Any:
        cluster.logs[P0] = replace(cluster.logs[P0], first=130)
        return ask(cluster, *asked)

    monkeypatch.setattr(FakeCluster, question, delete_before)

    with pytest.raises((DataLossError, KafkaUnavailableError)):
        backfilled.plan()


def test_plan_backfill_owned(backfilled: Backfilled) -> None:
    """What windows hold isn't drained again, nor what the open generation will drain."""
    backfilled.window(70, 80, 70)

    plan = backfilled.plan(Interval(NOON, NOON + timedelta(hours=2)))

    assert plan.ranges == {P0: [R(60, 70), R(80, 150)]}
    assert plan.covered_by == ["windows/repair_1/receipt.json"]
    # The generation has sealed nothing yet.
    assert plan.ahead == 30
    root = backfilled.made.root
    assert plan.lines()[1:] == [
        f"backfill {root}: 10 offsets are already archived, by windows/repair_1/receipt.json",
        f"backfill {root}: 30 offsets are left to the next drain",
    ]
    backfilled.made.seal({P0: dense(150, 170)})
    assert backfilled.plan(Interval(NOON, NOON + timedelta(hours=2))).ahead == 10


def test_plan_backfill_nothing_left(backfilled: Backfilled) -> None:
    """What is all archived needs nothing, and says by what."""
    backfilled.window(60, 120, 60)

    plan = backfilled.plan()

    assert plan.nothing_to_do
    assert plan.covered_by == ["windows/repair_1/receipt.json"]


@pytest.mark.parametrize(
    ("first", "accepts", "lost", "accepted"),
    [
        # The interval starts behind Kafka's first record: that is older.
        (0, [], "", []),
        (59, [], "", []),
        # With it: what went before may be of the interval.
        (60, [], "t:0:0-60", []),
        (70, [], "t:0:0-70", []),
        (120, [], "t:0:0-120", []),
        (70, ["t:0:0-70"], "", ["t:0:0-70"]),
        (70, ["t:0:0-90"], "", ["t:0:0-70"]),
        # One offset that is accepted isn't all of them.
        (70, ["t:0:0-1"], "t:0:1-70", []),
        (70, ["t:0:1-70"], "t:0:0-1", []),
        (70, ["t:0:30-40"], "t:0:0-30, t:0:40-70", []),
        (70, ["t:1:0-70"], "t:0:0-70", []),
    ],
)
def test_plan_backfill_expired(
    backfilled: Backfilled, first: int, accepts: Sequence[str], lost: str, accepted: list[str]
) -> None:
    """What Kafka deleted before it was archived is refused, unless somebody accepts all of it."""
    backfilled.first = first
    if lost:
        with pytest.raises(DataLossError) as raised:
            backfilled.plan(acknowledged=parse_ranges("accepted", accepts))
        assert str(raised.value).startswith(
            f"{HOUR}: Kafka no longer holds {lost}, no file contains them, and they may "
            "belong to this interval"
        )
        return

    plan = backfilled.plan(acknowledged=parse_ranges("accepted", accepts))

    assert plan.acknowledged == accepted
    assert plan.ranges == {P0: [R(max(60, first), 120)]}


@pytest.mark.parametrize(
    ("frozen", "held", "expired", "archived"),
    [
        # Where the bounds come from Kafka, deleted offsets are before the interval.
        (None, None, 0, 0),
        (R(50, 110), None, 20, 0),
        # Offsets in a window are archived, whatever Kafka has deleted.
        (R(50, 110), R(50, 70), 0, 20),
        (R(50, 110), R(60, 70), 10, 10),
        (R(50, 110), R(60, 80), 10, 20),
    ],
)
def test_plan_backfill_expired_offsets_counted(
    backfilled: Backfilled,
    frozen: OffsetRange | None,
    held: OffsetRange | None,
    expired: int,
    archived: int,
) -> None:
    """Offsets that expired and whose loss was accepted aren't counted as archived."""
    backfilled.first = 70
    if frozen:
        backfilled.freeze(HOUR, frozen.start, frozen.end)
    if held:
        backfilled.window(held.start, held.end, held.start)

    plan = backfilled.plan(acknowledged=parse_ranges("accepted", ["t:0:0-70"]))

    assert plan.expired == expired
    said = "\n".join(plan.lines())
    assert (f" {expired} offsets expired before they were archived" in said) is bool(expired)
    assert (f" {archived} offsets are already archived, by " in said) is bool(archived)
    assert ("already archived" in said) is bool(archived)


@pytest.mark.parametrize(
    ("minutes", "lost"),
    [
        # What is held right behind the lost ones is older than the interval, and so are they.
        (0, ""),
        (59, ""),
        (60, "t:0:0-20"),
        (90, "t:0:0-20"),
    ],
)
def test_plan_backfill_expired_before(backfilled: Backfilled, minutes: int, lost: str) -> None:
    """What was lost before something older than the interval isn't of it."""
    backfilled.first = 65
    backfilled.window(20, 65, minutes)
    if lost:
        with pytest.raises(DataLossError, match=f"no longer holds {lost}, no file"):
            backfilled.plan()
    else:
        assert backfilled.plan().ranges == {P0: [R(65, 120)]}


@pytest.mark.parametrize("odd", [0, -1, FIRST_MS + 59 * MINUTE])
def test_plan_backfill_expired_before_late_record(backfilled: Backfilled, odd: int) -> None:
    """One old record of a segment says nothing of the records that were lost before it."""
    backfilled.first = 65
    rows = dense(20, 65, FIRST_MS + 80 * MINUTE - 20)
    rows[40] = odd
    backfilled.made.seal_window("repair_1", {P0: rows})

    with pytest.raises(DataLossError, match="no longer holds t:0:0-20, no file"):
        backfilled.plan()


def test_plan_backfill_expired_before_file_of_topics(backfilled: Backfilled) -> None:
    """Old records of another topic in the same file say nothing of the records that were lost."""
    backfilled.first = 65
    rows = dense(20, 65, FIRST_MS + 80 * MINUTE - 20) | dense(40, 41, FIRST_MS)
    backfilled.made.topic_ids |= {"u": "id-u"}
    backfilled.made.partition_by = []
    [_] = backfilled.made.seal_window(
        "repair_1", {P0: rows, TopicPartition("u", 0): dense(20, 120, FIRST_MS)}
    )

    with pytest.raises(DataLossError, match="no longer holds t:0:0-20, no file"):
        backfilled.plan()


def test_plan_backfill_expired_before_long_segment(backfilled: Backfilled) -> None:
    """Of a segment that goes on in the interval, the records right behind the lost ones count."""
    backfilled.first = 65
    rows = {at: FIRST_MS + (at - 10) * MINUTE for at in range(20, 65)} | dense(
        62, 65, FIRST_MS + 61 * MINUTE
    )
    backfilled.made.seal_window("repair_1", {P0: rows})

    assert backfilled.plan().ranges == {P0: [R(65, 120)]}


def test_plan_backfill_expired_many(tmp_path: Path) -> None:
    """Of many ranges five are named."""
    backfilled = Backfilled(tmp_path)
    backfilled.first = 70
    for number in range(5):
        backfilled.window(10 * number + 5, 10 * number + 10, 60, f"repair_{number}")

    with pytest.raises(DataLossError, match=r"holds (t:0:\d+-\d+, ){4}t:0:40-45 …, no file"):
        backfilled.plan()
    backfilled.window(50, 70, 60, "repair_9")
    with pytest.raises(DataLossError, match=r"holds (t:0:\d+-\d+, ){4}t:0:40-45, no file"):
        backfilled.plan()


@pytest.mark.parametrize(
    ("first", "lost", "left"),
    [
        (0, "", [R(50, 110)]),
        (50, "", [R(50, 110)]),
        (51, "t:0:50-51", []),
        (80, "t:0:50-80", []),
        (130, "t:0:50-110", []),
    ],
)
def test_plan_backfill_frozen(
    backfilled: Backfilled, first: int, lost: str, left: list[OffsetRange]
) -> None:
    """Offsets that were frozen count, whatever Kafka would say now; lost are those of them."""
    backfilled.freeze(HOUR, 50, 110)
    backfilled.first = first
    if lost:
        with pytest.raises(DataLossError, match=f"no longer holds {lost}, no file"):
            backfilled.plan()
        assert backfilled.plan(acknowledged=parse_ranges("accepted", [lost])).acknowledged == [lost]
    else:
        assert backfilled.plan().ranges == {P0: left}


@pytest.mark.parametrize(
    ("first", "refused"), [(0, False), (60, False), (61, True), (119, True), (130, True)]
)
def test_plan_backfill_force_expired(backfilled: Backfilled, first: int, refused: bool) -> None:
    """A window may be the only copy of what Kafka has deleted since: force doesn't replace it."""
    backfilled.freeze(HOUR, 60, 120, seals=True)
    backfilled.first = first
    if refused:
        with pytest.raises(DataLossError) as raised:
            backfilled.plan(force=True)
        assert str(raised.value).startswith(
            f"window {HOUR.key} may be the only copy of t:0:60-120: Kafka's earliest "
            "offset is later."
        )
    else:
        plan = backfilled.plan(force=True)
        assert plan.ranges == {P0: [R(60, 120)]}
        assert plan.window.key == f"{HOUR.key}_2"
        assert len(plan.replaces) == 1
        assert plan.held == {P0: 60}
    # Without force there is nothing to do.
    assert backfilled.plan().nothing_to_do


@pytest.mark.parametrize("is_sealed", [False, True])
def test_plan_backfill_neighbours(backfilled: Backfilled, is_sealed: bool) -> None:
    """An interval begins where the frozen one before it ends, and ends where the next begins."""
    backfilled.freeze(hour(-1), 0, 55, seals=is_sealed)
    assert backfilled.plan().offsets == {P0: R(55, 120)}
    backfilled.freeze(hour(1), 125, 140, seals=is_sealed)
    assert backfilled.plan().offsets == {P0: R(55, 125)}
    # Neither of these is a neighbour.
    backfilled.freeze(hour(-3), 0, 1)
    backfilled.freeze(hour(3), 199, 200)
    assert backfilled.plan().offsets == {P0: R(55, 125)}
    assert backfilled.plan(hour(2)).offsets == {P0: R(140, 199)}


def test_plan_backfill_neighbours_meet(backfilled: Backfilled) -> None:
    """Where neighbours leave nothing between them, the interval is empty."""
    backfilled.freeze(hour(-1), 0, 130)
    backfilled.freeze(hour(1), 110, 140)

    plan = backfilled.plan()

    assert plan.offsets == {P0: R(130, 130)}
    assert plan.nothing_to_do


def test_plan_backfill_topic_made_again(backfilled: Backfilled) -> None:
    """Frozen offsets of a topic that was made again since mean other records."""
    backfilled.freeze(HOUR, 60, 120)
    backfilled.made.open_generation(t="id-2")
    backfilled.topic_id = "id-2"

    with pytest.raises(
        TopicError, match="t was recreated, or its log rewritten, after the offsets of window"
    ):
        backfilled.plan()


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_plan_backfill_rewritten_unsealed(tmp_path: Path, is_rewritten: bool) -> None:
    """A log that has other records than an unsealed batch isn't the one that was drained."""
    archive, cluster = sealed_copy(tmp_path / "archive"), golden_cluster()
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 8)
    document = archive.snapshot().document
    pipeline = Pipeline(
        name=document.pipeline,
        topics=["flights"],
        archive=str(archive.root),
        partition_by=["topic"],
    )
    if is_rewritten:
        cluster.contents = lambda tp, span: [
            found for found in in_kafka(tp, span) if int(found["offset"]) < END
        ]
    expected = (
        pytest.raises(DataLossError, match="was rewritten") if is_rewritten else nullcontext()
    )

    with expected:
        plan_backfill(pipeline, cluster, HOUR)  # type: ignore[arg-type]


def test_plan_backfill_nothing_drained(tmp_path: Path) -> None:
    """An archive that is no archive yet has no cursor that a backfill could fill in before."""
    backfilled = Backfilled(tmp_path)
    backfilled.pipeline = Pipeline(name="made", topics=["t"], archive=str(tmp_path / "none"))

    with pytest.raises(ArchiveError, match="is empty; run drain_made once"):
        backfilled.plan()


def test_plan_backfill_covered_by_forgotten(backfilled: Backfilled) -> None:
    """Where Kafka has forgotten the interval's offsets, receipts are found by their times."""
    backfilled.first = 130
    backfilled.window(0, 60, 0, "repair_1")
    backfilled.window(60, 120, 60, "repair_2")
    backfilled.window(120, 130, 120, "repair_3")

    plan = backfilled.plan()

    assert plan.nothing_to_do
    assert plan.covered_by == ["windows/repair_2/receipt.json"]


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("other", [TopicPartition("t", 1), TopicPartition("u", 0)])
def test_plan_backfill_no_longer_named(
    backfilled: Backfilled, other: TopicPartition, is_sealed: bool, force: bool
) -> None:
    """What an interval's window has of a partition that is no longer named stays as it is."""
    topics = {"t": "id", other.topic: "id" if other.topic == "t" else "id-u"}
    offsets = {P0: [R(60, 120)], other: [R(5, 9)]}
    plan: dict[str, Any] = {
        "ranges": range_rows(offsets),
        "interval": [HOUR.start.isoformat(), HOUR.end.isoformat()],
        "topics": topics,
        "partition_by": ["topic"],
    }
    backfilled.made.topic_ids = topics
    backfilled.made.seal_window(HOUR.key, {P0: dense(60, 120), other: dense(5, 9)}, **plan)
    if not is_sealed:
        (backfilled.made.root / "windows" / HOUR.key / "receipt.json").unlink()

    if is_sealed and not force:
        found = backfilled.plan()
        assert (found.offsets, found.nothing_to_do) == ({P0: R(60, 120)}, True)
        return
    way_on = "without force" if is_sealed else "move its folder"
    with pytest.raises(TopicError, match=f"{other} too, .*no longer names.*{way_on}"):
        backfilled.plan(force=force)


def left_out(folder: Path) -> MadeArchive:
    """An archive whose second generation goes on without partition 1, drained up to 160 before."""
    made = MadeArchive(folder / "archive", {"t": "id"})
    made.start_at({P0: 150, P1: 150})
    made.seal({P0: dense(150, 160), P1: dense(150, 160)})
    made.open_generation()
    made.start_at({P0: 160})
    made.seal({P0: dense(160, 170)})
    return made


def plan_both(made: MadeArchive, **options: Any) -> BackfillPlan:
    """Plan a backfill of the hour, of a topic with two partitions."""
    times = {offset: FIRST_MS + offset * MINUTE for offset in range(200)}
    cluster: Any = FakeCluster(
        {tp: Log(0, 200, times=times) for tp in (P0, P1)}, topic_ids={"t": "id"}
    )
    pipeline = Pipeline(name="made", topics=["t"], archive=str(made.root))
    return plan_backfill(pipeline, cluster, HOUR, **options)


@pytest.mark.parametrize("is_rolled", [False, True])
def test_plan_backfill_left_out_and_named_again(tmp_path: Path, is_rolled: bool) -> None:
    """What is before a partition's first drain isn't the open generation's, as that goes on."""
    made = left_out(tmp_path)
    if is_rolled:
        made.open_generation()
        made.start_at({P0: 170})

    plan = plan_both(made)

    assert plan.ranges == {P0: [R(60, 120)], P1: [R(60, 120)]}
    assert plan.ahead == 0


@pytest.mark.parametrize("is_sealed", [False, True])
def test_plan_backfill_named_after_frozen(tmp_path: Path, is_sealed: bool) -> None:
    """A partition that is named after an interval was frozen is drained to another window."""
    made = left_out(tmp_path)
    plan: dict[str, Any] = {
        "ranges": range_rows({P0: [R(60, 120)]}),
        "interval": [HOUR.start.isoformat(), HOUR.end.isoformat()],
        "topics": {"t": "id"},
        "partition_by": ["topic"],
    }
    made.seal_window(HOUR.key, {P0: dense(60, 120)}, **plan)
    if not is_sealed:
        (made.root / "windows" / HOUR.key / "receipt.json").unlink()
    made.open_generation()
    made.start_at({P0: 170, P1: 160})
    left = {P1: [R(60, 120)]} if is_sealed else {P0: [R(60, 120)], P1: [R(60, 120)]}

    found = plan_both(made)

    assert (found.ranges, found.window.key) == (left, f"{HOUR.key}_2")
    # Once it is sealed, its frozen offsets count, and nothing is left.
    plan["ranges"] = range_rows({P0: [R(60, 120)], P1: [R(60, 118)]})
    rows = {tp: dense(60, 120 if tp == P0 else 118) for tp in left}
    made.seal_window(found.window.key, rows, **plan)
    found = plan_both(made)
    assert (found.offsets, found.nothing_to_do) == ({P0: R(60, 120), P1: R(60, 118)}, True)
    if is_sealed:
        forced = plan_both(made, force=True)
        assert (forced.window.key, len(forced.replaces)) == (f"{HOUR.key}_3", 2)
        pipeline = Pipeline(name="made", assign={"t": [0]}, archive=str(made.root))
        cluster: Any = FakeCluster({P0: Log(0, 200)}, topic_ids={"t": "id"})
        assert plan_backfill(pipeline, cluster, HOUR).nothing_to_do


@pytest.mark.parametrize("topic_id", ["id-u", "id-u-2"])
@pytest.mark.parametrize("is_left_out", [False, True])
def test_plan_backfill_topic_added(tmp_path: Path, is_left_out: bool, topic_id: str) -> None:
    """A topic that is named since the last drain is the next one's from its beginning on.

    A window with its records would have them twice. One that was left out and is named again goes
    on where it ended, unless it was made again.
    """
    u0 = TopicPartition("u", 0)
    made = MadeArchive(tmp_path / "archive", {"t": "id"} | ({"u": "id-u"} if is_left_out else {}))
    made.start_at({P0: 150} | ({u0: 150} if is_left_out else {}))
    made.seal({P0: dense(150, 160)} | ({u0: dense(150, 160)} if is_left_out else {}))
    if is_left_out:
        made.archive.generation(2).write(
            starting_offsets={P0: 160},
            file_format="parquet",
            partition_by=["topic"],
            topic_ids={"t": "id"},
            reason="test",
        )
    times = {offset: FIRST_MS + offset * MINUTE for offset in range(200)}
    cluster: Any = FakeCluster(
        {tp: Log(0, 200, times=times) for tp in (P0, u0)}, topic_ids={"t": "id", "u": topic_id}
    )
    pipeline = Pipeline(name="made", topics=["t", "u"], archive=str(made.root))

    plan = plan_backfill(pipeline, cluster, HOUR)

    goes_on = is_left_out and topic_id == "id-u"
    assert plan.ranges == {P0: [R(60, 120)]} | ({u0: [R(60, 120)]} if goes_on else {})
    assert plan.ahead == (0 if goes_on else 60)


def test_plan_backfill_neighbour_named_later(tmp_path: Path) -> None:
    """An interval begins where the one before ends, also of a partition that was named later.

    That is in the other window of the interval before; what is between the two is in neither.
    """
    made = left_out(tmp_path)
    before = hour(-1)
    for key, offsets in (
        (before.key, {P0: R(0, 55)}),
        (f"{before.key}_2", {P0: R(0, 55), P1: R(0, 50)}),
    ):
        own = {tp: r for tp, r in offsets.items() if tp == P0 or key != before.key}
        rows = {tp: dense(r.start, r.end) for tp, r in own.items() if key == before.key or tp == P1}
        made.seal_window(
            key,
            rows,
            ranges=range_rows({tp: [r] for tp, r in own.items()}),
            interval=[before.start.isoformat(), before.end.isoformat()],
            topics={"t": "id"},
            partition_by=["topic"],
        )
    made.open_generation()
    made.start_at({P0: 170, P1: 160})

    assert plan_both(made).offsets == {P0: R(55, 120), P1: R(50, 120)}


def test_plan_backfill_none_named_any_more(tmp_path: Path) -> None:
    """An interval that was sealed for partitions that are no longer named is drained for others.

    To run it without force, as one with force is told, is what was done.
    """
    made = left_out(tmp_path)
    made.seal_window(
        HOUR.key,
        {P1: dense(60, 120)},
        ranges=range_rows({P1: [R(60, 120)]}),
        interval=[HOUR.start.isoformat(), HOUR.end.isoformat()],
        topics={"t": "id"},
        partition_by=["topic"],
    )
    times = {offset: FIRST_MS + offset * MINUTE for offset in range(200)}
    cluster: Any = FakeCluster({P0: Log(0, 200, times=times)}, topic_ids={"t": "id"})
    pipeline = Pipeline(name="made", assign={"t": [0]}, archive=str(made.root))

    plan = plan_backfill(pipeline, cluster, HOUR)

    assert (plan.ranges, plan.window.key) == ({P0: [R(60, 120)]}, f"{HOUR.key}_2")
    with pytest.raises(TopicError, match="or run it without force"):
        plan_backfill(pipeline, cluster, HOUR, force=True)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_plan_backfill_other_topic_made_again(tmp_path: Path, is_sealed: bool) -> None:
    """A topic that was made again doesn't keep an interval's records of others from being drained.

    Of one that was begun, the message names the way on.
    """
    u0, p1 = TopicPartition("u", 0), TopicPartition("t", 1)
    made = MadeArchive(tmp_path / "archive", {"t": "id", "u": "id-u"})
    made.start_at({P0: 150, u0: 150})
    made.seal({P0: dense(150, 160), u0: dense(150, 160)})
    made.seal_window(
        HOUR.key,
        {P0: dense(60, 120), u0: dense(60, 120)},
        ranges=range_rows({P0: [R(60, 120)], u0: [R(60, 120)]}),
        interval=[HOUR.start.isoformat(), HOUR.end.isoformat()],
        topics={"t": "id", "u": "id-u"},
        partition_by=["topic"],
    )
    if not is_sealed:
        (made.root / "windows" / HOUR.key / "receipt.json").unlink()
    made.open_generation(u="id-u-2")
    made.start_at({P0: 160, p1: 150, u0: 0})
    times = {offset: FIRST_MS + offset * MINUTE for offset in range(200)}
    cluster: Any = FakeCluster(
        {tp: Log(0, 200, times=times) for tp in (P0, p1, u0)},
        topic_ids={"t": "id", "u": "id-u-2"},
    )
    pipeline = Pipeline(name="made", topics=["t", "u"], archive=str(made.root))

    if not is_sealed:
        with pytest.raises(
            TopicError, match=r"u was recreated.*move its folder out of the archive"
        ):
            plan_backfill(pipeline, cluster, HOUR)
        (made.root / "windows" / HOUR.key).rename(made.root.parent / "moved")
    plan = plan_backfill(pipeline, cluster, HOUR)

    assert plan.ranges == {p1: [R(60, 120)]} | ({} if is_sealed else {P0: [R(60, 120)]})
    assert plan.window.key == f"{HOUR.key}_2" if is_sealed else HOUR.key
    if is_sealed:
        with pytest.raises(TopicError, match=r"u was recreated.*What is sealed stays"):
            plan_backfill(pipeline, cluster, HOUR, force=True)


def test_plan_backfill_after_killed_roll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed roll has said in its generation only that a log was rewritten: that drains it."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.start_at({P0: 0})
    made.seal({P0: dense(0, 100)})
    monkeypatch.setattr(Archive, "update_topics", lambda *_: None)
    made.open_generation(t="id~2")
    made.start_at({P0: 80})
    times = {offset: FIRST_MS + offset * MINUTE for offset in range(200)}
    cluster: Any = FakeCluster({P0: Log(0, 200, times=times)}, topic_ids={"t": "id"})
    pipeline = Pipeline(name="made", topics=["t"], archive=str(made.root))

    assert not plan_backfill(pipeline, cluster, HOUR).ranges


def test_plan_backfill_made_again_beside_rewritten(tmp_path: Path) -> None:
    """Of a begun window, the way on is named if one log was rewritten and one topic made again."""
    u0 = TopicPartition("u", 0)
    made = MadeArchive(tmp_path / "archive", {"t": "id", "u": "id-u"})
    made.start_at({P0: 150, u0: 150})
    made.seal({P0: dense(150, 160), u0: dense(150, 160)})
    made.seal_window(
        HOUR.key,
        {P0: dense(60, 120), u0: dense(60, 120)},
        ranges=range_rows({P0: [R(60, 120)], u0: [R(60, 120)]}),
        interval=[HOUR.start.isoformat(), HOUR.end.isoformat()],
        topics={"t": "id", "u": "id-u"},
        partition_by=["topic"],
    )
    (made.root / "windows" / HOUR.key / "receipt.json").unlink()
    made.open_generation(t="id~2", u="id-u-2")
    made.start_at({P0: 155, u0: 0})
    times = {offset: FIRST_MS + offset * MINUTE for offset in range(200)}
    cluster: Any = FakeCluster(
        {tp: Log(0, 200, times=times) for tp in (P0, u0)}, topic_ids={"t": "id", "u": "id-u-2"}
    )
    pipeline = Pipeline(name="made", topics=["t", "u"], archive=str(made.root))

    with pytest.raises(TopicError, match=r"t, u was recreated.*move its folder out of the archive"):
        plan_backfill(pipeline, cluster, HOUR)
    (made.root / "windows" / HOUR.key).rename(made.root.parent / "moved")

    assert plan_backfill(pipeline, cluster, HOUR).ranges == {P0: [R(60, 120)]}


def test_plan_backfill_open_transaction(backfilled: Backfilled) -> None:
    """An archive that begins at a log's end, behind an open transaction's start, lost nothing."""
    times = {offset: FIRST_MS + offset * MINUTE for offset in range(200)}
    cluster: Any = FakeCluster({P0: Log(0, 200, 140, times)}, topic_ids={"t": "id"})

    plan = plan_backfill(backfilled.pipeline, cluster, HOUR)

    assert plan.ranges == {P0: [R(60, 120)]}


@pytest.mark.parametrize(
    ("source", "gone"),
    [({"topics": ["t"]}, "t-1 now"), ({"topic_pattern": "[tu]"}, "t-1, u-0 now")],
)
def test_plan_backfill_not_listed(tmp_path: Path, source: dict[str, Any], gone: str) -> None:
    """Without partitions that drains have read, an interval isn't taken for whole."""
    made = MadeArchive(tmp_path / "archive", {"t": "id", "u": "id-u"})
    made.start_at({P0: 150, P1: 150, TopicPartition("u", 0): 150})
    times = {offset: FIRST_MS + offset * MINUTE for offset in range(200)}
    cluster: Any = FakeCluster({P0: Log(0, 200, times=times)}, topic_ids=made.topic_ids)

    with pytest.raises(KafkaUnavailableError, match=f"doesn't list {gone}"):
        plan_backfill(Pipeline(name="made", archive=str(made.root), **source), cluster, HOUR)
