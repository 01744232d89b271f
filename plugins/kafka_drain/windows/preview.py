"""Preview a backfill of many data intervals: what is archived of each, and what is left.

Each interval is planned as its run would be. What its offsets have in the open generation, no
backfill drains: the receipts of drains say whether it is sealed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta, timezone
from enum import Enum
from itertools import groupby
from typing import Any

from kafka_drain.archive.coverage import read_owned
from kafka_drain.clock import Clock, utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, DataLossError
from kafka_drain.intervals import Interval, milliseconds
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import Offsets
from kafka_drain.output import say
from kafka_drain.windows.backfill_plan import BackfillPlan, plan_backfill
from kafka_drain.windows.time_bounds import TimeBounds

#: Maximum number of intervals in a preview.
MOST = 10_000
#: Number of intervals in a row of the strip.
ROW = 24


class State(str, Enum):
    """What a backfill finds of a data interval."""

    SEALED = "sealed"
    MISSING = "missing"
    PARTLY = "partly"
    LOST = "lost"
    AHEAD = "ahead"
    EMPTY = "empty"
    NOT_OVER = "not_over"

    @property
    def mark(self) -> str:
        """The interval in the strip."""
        return _MARKS[self][0]

    @property
    def words(self) -> str:
        """The state in the legend."""
        return _MARKS[self][1]


_MARKS = {
    State.SEALED: ("#", "sealed: a backfill changes nothing"),
    State.MISSING: ("o", "not archived, still in Kafka: a backfill drains it"),
    State.PARTLY: ("%", "partly sealed, the rest still in Kafka: a backfill drains the rest"),
    State.LOST: ("!", "offsets have expired, or Kafka's log was rewritten: its backfill stops"),
    State.AHEAD: (">", "the next drain takes it, or its validation seals it"),
    State.EMPTY: (".", "no records"),
    State.NOT_OVER: ("?", "not over yet"),
}


@dataclass(frozen=True)
class PreviewedInterval:
    """A data interval, and the numbers of its offsets.

    Attributes:
        sealed: Offsets that receipts prove.
        left: Offsets that its backfill would drain.
        ahead: Offsets that the next drain takes, or that its validation has yet to seal.
        why: What its backfill would say of lost offsets; empty otherwise.
    """

    interval: Interval
    state: State
    sealed: int = 0
    left: int = 0
    ahead: int = 0
    why: str = ""


@dataclass(frozen=True)
class Preview:
    """The preview of a backfill."""

    archive: str
    intervals: Sequence[PreviewedInterval]

    def lines(self) -> list[str]:
        """Return a strip of marks with its legend, and the intervals that need attention."""
        rows = [self.intervals[at : at + ROW] for at in range(0, len(self.intervals), ROW)]
        lines = [
            f"{_minute(row[0].interval)}  {''.join(one.state.mark for one in row)}" for row in rows
        ]
        numbers = Counter(one.state for one in self.intervals)
        lines += [f"{one.mark} {numbers[one]:,} {one.words}" for one in State if numbers[one]]
        for state, group in groupby(self.intervals, lambda one: one.state):
            same = list(group)
            if state in (State.MISSING, State.PARTLY, State.LOST):
                span = Interval(same[0].interval.start, same[-1].interval.end)
                left = sum(one.left for one in same)
                lines.append(f"{state.mark} {span}: {same[0].why or f'{left:,} offsets to drain'}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as JSON types."""
        rows = []
        for one in self.intervals:
            row = asdict(one) | {"state": one.state.value}
            interval = row.pop("interval")
            rows.append({name: at.isoformat() for name, at in interval.items()} | row)
        return {"archive": self.archive, "intervals": rows}


def state_of(
    *, is_over: bool, is_lost: bool, sealed: int, left: int, ahead: int, is_archived: bool
) -> State:
    """Return the state of an interval by the numbers of its offsets.

    Args:
        is_archived: Whether receipts have records of its times, though Kafka has no longer.
    """
    if not is_over:
        return State.NOT_OVER
    if is_lost:
        return State.LOST
    if left:
        return State.PARTLY if sealed or is_archived else State.MISSING
    if ahead:
        return State.AHEAD
    return State.SEALED if sealed or is_archived else State.EMPTY


def intervals_of(whole: Interval, minutes: int) -> list[Interval]:
    """Divide a span of time into intervals of so many minutes.

    Raises:
        ConfigError: When they don't fill it, or are too many.
    """
    length = (whole.end - whole.start) / timedelta(minutes=1)
    number = int(length // minutes) if minutes > 0 else 0
    if not 0 < number <= MOST or number * minutes != length:
        raise ConfigError(
            f"{whole} isn't 1 to {MOST:,} intervals of {minutes} minutes; change --start, --end or "
            "--interval-minutes"
        )
    each = timedelta(minutes=minutes)
    starts = [whole.start + each * n for n in range(number)]
    return [Interval(start, start + each) for start in starts]


def preview_backfill(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    intervals: Sequence[Interval],
    *,
    clock: Clock = utc_now,
) -> Preview:
    """Plan the backfill of each of some intervals, without changing anything.

    Args:
        intervals: Adjacent data intervals, in their order.
        clock: Returns the current time; replaced in tests.

    Raises:
        KafkaDrainError: As `plan_backfill` does, but for lost offsets.
    """
    now, found = clock(), list[PreviewedInterval]()
    rest: _OpenGeneration | None = None
    for number, interval in enumerate(intervals):
        if number and number % 100 == 0:
            say(f"backfill {pipeline.archive}: {number:,} of {len(intervals):,} intervals planned")
        if interval.end > now:
            found.append(PreviewedInterval(interval, State.NOT_OVER))
            continue
        try:
            plan = plan_backfill(pipeline, cluster, interval, clock=clock)
        except DataLossError as error:
            found.append(PreviewedInterval(interval, State.LOST, why=str(error)))
            continue
        rest = rest or _OpenGeneration(plan, pipeline, cluster, milliseconds(now))
        sealed, ahead = rest.count(plan)
        state = state_of(
            is_over=True,
            is_lost=plan.expired > 0,
            sealed=sealed,
            left=plan.left,
            ahead=ahead,
            is_archived=bool(plan.covered_by),
        )
        found.append(PreviewedInterval(interval, state, sealed, plan.left, ahead))
    return Preview(pipeline.archive, found)


class _OpenGeneration:
    """The offsets of intervals in the open generation, which no backfill drains.

    Plans have Kafka's own lookup of these, which one record with a wrong clock spoils.
    """

    def __init__(
        self, plan: BackfillPlan, pipeline: Pipeline, cluster: KafkaCluster, now: int
    ) -> None:
        snapshot = plan.archive.snapshot()
        generation = snapshot.open_generation
        starts = generation.starting_offsets if generation else {}
        self._starts = {tp: at for tp, at in starts.items() if tp in plan.offsets}
        self._first = cluster.earliest(plan.offsets)
        last = cluster.latest(plan.offsets, pipeline.isolation_level)
        self._ends = {tp: max(last[tp], start) for tp, start in self._starts.items()}
        self._sealed = read_owned(snapshot, plan.topic_ids, last).sealed
        self._bounds = TimeBounds(cluster, self._first, self._ends, now)
        self._divided: tuple[int, Offsets] = (-1, {})

    def count(self, plan: BackfillPlan) -> tuple[int, int]:
        """Return the numbers of an interval's offsets that are sealed, here or below, and ahead."""
        sealed, ahead = -plan.left - plan.expired, 0
        reaches = any(plan.offsets[tp].end >= start for tp, start in self._starts.items())
        starts = self._at(plan.interval.start_ms) if reaches else {}
        ends = self._at(plan.interval.end_ms) if reaches else {}
        for tp, r in plan.offsets.items():
            begin = self._starts.get(tp, r.start)
            sealed_end = self._sealed.get(tp, begin if tp in self._starts else r.end)
            sealed += max(0, min(r.end, begin) - r.start)
            start = max(begin, starts.get(tp, r.start))
            end = max(start, ends.get(tp, r.end if tp not in self._starts else start))
            sealed += max(0, min(end, sealed_end) - start)
            ahead += max(0, end - max(start, sealed_end))
            # One that was added to its topic later is the open generation's from its beginning on.
            since = starts.get(tp) if tp in self._starts else r.start
            if since is not None and since <= (first := self._first.get(tp, 0)):
                # Deleted in Kafka, maybe of this interval, and no receipt has them yet.
                ahead += max(0, first - sealed_end)
        return sealed, ahead

    def _at(self, time: int) -> Offsets:
        """Return where a time divides the offsets; an interval starts where the last one ended."""
        if self._divided[0] != time:
            # Read on from there: behind a record with a wrong clock, each lookup reads all others.
            before, divided = self._divided
            known = divided if before < time else {}
            found = self._bounds.of(time, list(self._starts), known)
            found = {tp: at if at >= 0 else self._ends[tp] for tp, at in found.items()}
            self._divided = time, found
        return self._divided[1]


def _minute(interval: Interval) -> str:
    return interval.start.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
