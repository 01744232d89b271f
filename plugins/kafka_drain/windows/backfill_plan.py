"""Backfill: a data interval becomes offsets, once; what no receipt covers of them is drained.

    interval -> offsets           asked of Kafka once, frozen in the window's plan.json
    minus what receipts cover     read anew by each attempt
    minus what the open generation owns, drained or not
    the rest                      one bounded Spark read, proven and sealed as a window

Consecutive intervals tile the offsets: each ends at the first offset whose timestamp is at or after
its end, which is where the next one starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.coverage import Owned, read_owned
from kafka_drain.archive.journal.checks import refuse_unsound
from kafka_drain.archive.receipts import SealedFile, records_of
from kafka_drain.archive.snapshot import Snapshot, SnapshotWindow, WindowKind
from kafka_drain.archive.window import Window
from kafka_drain.config.offset_ranges import parse_acknowledgements, range_name
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import check_identity, find_partitions
from kafka_drain.errors import (
    ArchiveError,
    DataLossError,
    TopicError,
)
from kafka_drain.intervals import Interval
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge, subtract

__all__ = [
    "BackfillPlan",
    "own_windows",
    "plan_backfill",
    "standing_windows",
]

Ranges = Mapping[TopicPartition, list[OffsetRange]]


@dataclass(frozen=True)
class BackfillPlan:
    """What a backfill of one data interval will do.

    Attributes:
        archive: The archive.
        interval: The data interval.
        window: Where it is drained to; need not exist.
        offsets: The interval's offsets, of each partition.
        topic_ids: Ids of the topics that they count in.
        ranges: What is left to drain of them.
        covered_by: The receipts that cover the others, relative to the archive.
        ahead: How many the next drain will take: they lie beyond the open generation's cursor.
        acknowledged: Expired ranges that somebody has accepted.
        replaces: Files of the window that this one replaces, relative to the archive.
        held: How many records these hold of each partition.
    """

    archive: Archive
    interval: Interval
    window: Window
    offsets: dict[TopicPartition, OffsetRange]
    topic_ids: dict[str, str]
    ranges: dict[TopicPartition, list[OffsetRange]]
    covered_by: list[str] = field(default_factory=list)
    ahead: int = 0
    acknowledged: list[str] = field(default_factory=list)
    replaces: list[str] = field(default_factory=list)
    held: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def nothing_to_do(self) -> bool:
        """Whether there is nothing to drain."""
        return not self.ranges

    @property
    def left(self) -> int:
        """How many offsets there are to drain."""
        return sum(count(ranges) for ranges in self.ranges.values())

    def lines(self) -> list[str]:
        """Return the plan as people read it."""
        name = f"backfill {self.archive.root}"
        total = count(self.offsets.values())
        lines = [f"{name}: {self.interval} is {total:,} offsets, {self.left:,} of them to drain"]
        held = total - self.left - self.ahead
        if held > 0:
            by = ", ".join(self.covered_by) or "the open generation, not validated yet"
            lines.append(f"{name}: {held:,} offsets are archived already, by {by}")
        if self.ahead:
            lines.append(f"{name}: {self.ahead:,} offsets lie ahead; the next drain takes them")
        if self.replaces:
            lines.append(f"{name}: replaces {len(self.replaces):,} files of this window")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return {
            "archive": str(self.archive.root),
            "window": self.window.key,
            "start": self.interval.start.isoformat(),
            "end": self.interval.end.isoformat(),
            "offsets": count(self.offsets.values()),
            "to_drain": self.left,
            "ahead": self.ahead,
            "covered_by": self.covered_by,
        }


def plan_backfill(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    interval: Interval,
    *,
    force: bool = False,
    acknowledge_expired: Collection[str] = (),
) -> BackfillPlan:
    """Say what is left to drain of a data interval; changes nothing.

    Args:
        pipeline: What to drain, and where to.
        cluster: Where from.
        interval: The data interval.
        force: Drain the interval's own window again, and replace it.
        acknowledge_expired: Expired offsets that are accepted, as `topic:partition:start-end`.

    Raises:
        ArchiveError: When nothing was drained yet, or the archive is another pipeline's.
        TopicError: When a topic was made again since the interval's offsets were frozen.
        DataLossError: When Kafka no longer holds offsets that may be of the interval.
        ManifestInvalidError: When something that was sealed is missing or changed.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    archive = Archive.at(pipeline.archive)
    snapshot = archive.snapshot()
    if not archive.exists or snapshot.open_generation is None:
        raise ArchiveError(
            f"{archive.root} holds nothing yet; run drain_{pipeline.name} once, which decides "
            "where the archive's cursor starts. A backfill fills in what lies before that"
        )
    topics, partitions = find_partitions(pipeline, cluster)
    check_identity(snapshot, pipeline, cluster.cluster_id(), topics)
    topic_ids = {name: topic.id for name, topic in topics.items()}
    first = cluster.earliest(partitions)
    last = cluster.latest(partitions, pipeline.isolation_level)
    snapshot = refuse_unsound(snapshot).snapshot
    frozen = _frozen(snapshot.folders.get(interval.key), topic_ids)
    offsets = frozen or _resolve(snapshot, cluster, interval, last)
    owned = read_owned(snapshot, topic_ids, last)
    acknowledged = parse_acknowledgements(acknowledge_expired)
    accepted = _refuse_expired(
        interval, offsets, first, owned, acknowledged, is_frozen=bool(frozen)
    )
    window = Window(archive.root, interval.key)
    ranges, files = _left(offsets, owned.ranges, first), list[SealedFile]()
    if force:
        window, ranges, files = _replaced(snapshot, window, ranges, first)
    return BackfillPlan(
        archive=archive,
        interval=interval,
        window=window,
        offsets=offsets,
        topic_ids=topic_ids,
        ranges=ranges,
        covered_by=_covered_by(interval, offsets, first, owned),
        ahead=sum(
            max(0, r.end - max(r.start, owned.sealed.get(tp, r.end))) for tp, r in offsets.items()
        ),
        acknowledged=accepted,
        replaces=[file.path for file in files],
        held=records_of(files),
    )


def _covered_by(
    interval: Interval,
    offsets: Mapping[TopicPartition, OffsetRange],
    first: Mapping[TopicPartition, int],
    owned: Owned,
) -> list[str]:
    """Name the receipts that cover an interval, also where Kafka has forgotten its offsets."""
    if any(0 < first[tp] >= r.start for tp, r in offsets.items()):
        return owned.receipts_between(interval.start_ms, interval.end_ms)
    return owned.receipts_of({tp: [r] for tp, r in offsets.items() if len(r)})


def _frozen(
    window: SnapshotWindow | None, topic_ids: Mapping[str, str]
) -> dict[TopicPartition, OffsetRange]:
    """Return the offsets that an attempt before this one has frozen; empty when none has."""
    if window is None or window.plan_bytes is None:
        return {}
    ids = window.plan.topics
    changed = sorted(name for name, topic_id in ids.items() if topic_ids.get(name) != topic_id)
    if changed:
        raise TopicError(
            f"{', '.join(changed)} was made again since the offsets of window {window.key} were "
            "frozen: they mean other records now. What is sealed stays; the window's interval has "
            "no records in the new topic that the next drain doesn't take"
        )
    return {tp: ranges[0] for tp, ranges in window.plan.offsets().items()}


def _resolve(
    snapshot: Snapshot,
    cluster: KafkaCluster,
    interval: Interval,
    last: Mapping[TopicPartition, int],
) -> dict[TopicPartition, OffsetRange]:
    """Ask Kafka for the interval's offsets; its neighbours' frozen bounds count before that."""
    starts = cluster.at_times(dict.fromkeys(last, interval.start_ms))
    ends = cluster.at_times(dict.fromkeys(last, interval.end_ms))
    before, after = _neighbours(snapshot, interval)
    offsets = {}
    for tp, end_of_log in last.items():
        # No record is that late yet, or none that read_committed sees.
        bounds = [min(at, end_of_log) if at >= 0 else end_of_log for at in (starts[tp], ends[tp])]
        start, end = before.get(tp, bounds[0]), after.get(tp, bounds[1])
        offsets[tp] = OffsetRange(start, max(start, end))
    return offsets


def _neighbours(
    snapshot: Snapshot, interval: Interval
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return where the frozen interval before this one ends, and where the one after starts.

    What was compacted or expired meanwhile would move a bound, and leave offsets to neither.
    """
    before: dict[TopicPartition, int] = {}
    after: dict[TopicPartition, int] = {}
    start, end = interval.key.split("_")
    for window in snapshot.windows:
        if not (window.key.endswith(f"_{start}") or window.key.startswith(f"{end}_")):
            continue
        bounds = window.plan.interval
        if bounds is None:
            continue
        if Interval.parse(bounds).end == interval.start:
            before |= {tp: ranges[-1].end for tp, ranges in window.plan.offsets().items()}
        else:
            after |= {tp: ranges[0].start for tp, ranges in window.plan.offsets().items()}
    return before, after


def _left(
    offsets: Mapping[TopicPartition, OffsetRange],
    owned: Ranges,
    first: Mapping[TopicPartition, int],
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return what nobody owns of the interval and Kafka still holds."""
    left = {
        tp: subtract(OffsetRange(max(r.start, first[tp]), r.end), owned.get(tp, []))
        for tp, r in offsets.items()
        if r.end > first[tp]
    }
    return {tp: ranges for tp, ranges in left.items() if ranges}


def own_windows(snapshot: Snapshot, window: Window) -> list[SnapshotWindow]:
    """Return an interval's window and those that have replaced it, with or without a receipt."""
    return [
        w for w in snapshot.windows if w.key == window.key or w.key.startswith(f"{window.key}_")
    ]


def standing_windows(snapshot: Snapshot, window: Window) -> list[SnapshotWindow]:
    """Return the sealed windows that an interval's records are in, in the order of their sealing.

    Those are the interval's own, and the repairs that stand for files of theirs, or for a repair's;
    also one that an own window has replaced, and that a kill has left behind.
    """
    found = {w.key: w for w in own_windows(snapshot, window) if w.is_sealed}
    mending = [w for w in snapshot.sealed if w.receipt.replaces and w.kind is WindowKind.REPAIR]
    while True:
        held = {file.path for w in found.values() for file in w.receipt.files}
        gone = {path for w in found.values() for path in w.receipt.replaces}
        more = {
            w.key: w
            for w in mending
            if w.key not in found
            and (held.intersection(w.receipt.replaces) or gone & {f.path for f in w.receipt.files})
        }
        if not more:
            return sorted(found.values(), key=lambda w: w.receipt.sealed_at)
        found |= more


def _refuse_expired(
    interval: Interval,
    offsets: Mapping[TopicPartition, OffsetRange],
    first: Mapping[TopicPartition, int],
    owned: Owned,
    acknowledged: Mapping[TopicPartition, list[OffsetRange]],
    *,
    is_frozen: bool,
) -> list[str]:
    """Refuse to leave out what Kafka deleted before it was archived; return what was accepted.

    Of offsets that are gone nobody knows the time: where an interval starts with the first record
    that Kafka still holds, or before it, those that went before may be of it. They aren't when
    what the archive holds right behind them is older than the interval.
    """
    found, accepted = list[str](), list[str]()
    for tp, r in sorted(offsets.items()):
        if is_frozen:
            gone = OffsetRange(min(r.start, first[tp]), min(r.end, first[tp]))
        else:
            gone = OffsetRange(0, first[tp] if r.start <= first[tp] else 0)
        for missing in subtract(gone, owned.ranges.get(tp, [])):
            behind = owned.first_timestamp(tp, missing.end)
            if not is_frozen and behind is not None and behind < interval.start_ms:
                continue
            rest = subtract(missing, acknowledged.get(tp, []))
            found += [range_name(tp, part) for part in rest]
            accepted += [] if rest else [range_name(tp, missing)]
    if found:
        raise DataLossError(
            f"{interval}: Kafka no longer holds {', '.join(found[:5])}"
            f"{' …' if len(found) > 5 else ''}, no file does, and they may be of this interval "
            "(topic:partition:start-end). Nothing was drained; accept that they are lost "
            "(acknowledge_expired), and what Kafka still holds of the interval is drained"
        )
    return accepted


def _replaced(
    snapshot: Snapshot,
    window: Window,
    ranges: dict[TopicPartition, list[OffsetRange]],
    first: Mapping[TopicPartition, int],
) -> tuple[Window, dict[TopicPartition, list[OffsetRange]], list[SealedFile]]:
    """Return the window that replaces the interval's own, what it drains, and what it replaces.

    Raises:
        DataLossError: When Kafka no longer holds all that the window does: it is the only copy.
        ArchiveError: When maintenance has compacted the window's files, or deleted them, or a
            repair's files hold records of theirs and of others.
    """
    standing = standing_windows(snapshot, window)
    gone_already = {path for w in standing for path in w.receipt.replaces}
    held: dict[TopicPartition, list[OffsetRange]] = {}
    for w in standing:
        for part in w.receipt.partitions if w.kind is not WindowKind.REPAIR else ():
            held.setdefault(part.tp, []).append(part.range)
    expired = [
        range_name(tp, r) for tp, rs in held.items() for r in rs if len(r) and r.start < first[tp]
    ]
    if expired:
        raise DataLossError(
            f"window {window.key} may be the only copy of {', '.join(expired[:5])}: Kafka's first "
            "offset is later. Nothing was changed; leave force off"
        )
    files = {f.path: f for w in standing for f in w.receipt.files if f.path not in gone_already}
    if not files:
        return window, ranges, []
    _refuse_shared(window, standing, held, files)
    whole = {tp: merge([*held.get(tp, []), *ranges.get(tp, [])]) for tp in {*held, *ranges}}
    elsewhere = snapshot.superseded.intersection(files)
    if elsewhere:
        raise ArchiveError(
            f"window {window.key}: maintenance has compacted or deleted {len(elsewhere):,} of its "
            f"{len(files):,} files, such as {min(elsewhere)}; they can't be replaced by a backfill "
            "any more. Nothing was changed; leave force off"
        )
    # One that was killed is taken up again if its receipt will replace the same files: in the
    # moment of sealing these have to go, or readers would take both.
    own = own_windows(snapshot, window)
    begun = (w for w in own if not w.is_sealed and w.plan.replaces == sorted(files))
    following = next(begun, Window(snapshot.root, f"{window.key}_{len(own) + 1}"))
    replaced = [files[path] for path in sorted(files)]
    return following, {tp: rs for tp, rs in whole.items() if rs}, replaced


def _refuse_shared(
    window: Window,
    standing: Iterable[SnapshotWindow],
    held: Ranges,
    files: Collection[str],
) -> None:
    """Refuse to replace files of a repair that hold more than the interval's own windows did."""
    for repair in standing:
        receipt = repair.receipt
        if repair.kind is WindowKind.REPAIR and any(f.path in files for f in receipt.files):
            outside = [
                range_name(part.tp, r)
                for part in receipt.partitions
                for r in subtract(part.range, held.get(part.tp, []))
            ]
            if outside:
                raise ArchiveError(
                    f"window {window.key}: window {repair.key}, which has mended it, holds "
                    f"{', '.join(outside[:5])} of others as well; they can't be replaced by a "
                    "backfill any more. Nothing was changed; leave force off"
                )
