"""Plan a backfill: resolve a data interval to offsets once, and drain those without a receipt.

    interval -> offsets           queried from Kafka once, then frozen in the window's plan.json
    minus covered by receipts     read again by each attempt, as far as the index doesn't say it
    minus the open generation's   whether drained yet or not
    the rest                      one bounded Spark read, proven and sealed as a window

Consecutive intervals tile the offsets: each ends where its end divides them (see `time_bounds`),
which is where the next one starts. What no interval up to now holds is named by each plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.coverage import Owned, read_owned
from kafka_drain.archive.documents import WindowPlan
from kafka_drain.archive.fold import WindowKind, is_of_interval
from kafka_drain.archive.generation_state import read_state
from kafka_drain.archive.incarnations import log_ends
from kafka_drain.archive.index import Index, Query
from kafka_drain.archive.receipts import Receipt, SealedFile, records_of
from kafka_drain.archive.snapshot import Snapshot, SnapshotWindow
from kafka_drain.archive.soundness import refuse_unsound
from kafka_drain.archive.window import Window
from kafka_drain.clock import Clock, utc_now
from kafka_drain.config.offset_ranges import ACKNOWLEDGE, NOTHING, Accepted, range_name
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.kafka_checks import refuse_rewritten, refuse_truncated
from kafka_drain.drain.preflight import check_identity, find_partitions
from kafka_drain.errors import (
    KEY_ERRORS,
    ArchiveError,
    DataFileError,
    DataLossError,
    KafkaUnavailableError,
    TopicError,
)
from kafka_drain.intervals import Interval, TimeRange, milliseconds
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import earlier_incarnations
from kafka_drain.offsets import (
    OffsetRange,
    Offsets,
    Ranges,
    TopicPartition,
    count,
    merge,
    subtract,
    without,
)
from kafka_drain.output import Level, Line
from kafka_drain.proof.log_tails import archived_tails, unsealed_tails
from kafka_drain.windows.time_bounds import LOOKAHEAD, TimeBounds


@dataclass(frozen=True)
class BackfillPlan:
    """The plan of a backfill of one data interval.

    Attributes:
        interval: The data interval.
        window: The window to write; need not exist.
        offsets: The interval's offsets, by partition.
        topic_ids: Ids of the topics that the offsets refer to.
        ranges: The offsets that are left to drain.
        covered_by: The receipts that cover the other offsets, relative to the archive.
        ahead: Number of offsets at or after the open generation's sealed end; the next drain takes
            them.
        expired: Number of offsets that Kafka no longer holds and no segment contains.
        acknowledged: Expired ranges that the user has accepted as lost.
        accepts: Offsets that the user accepts if they turn out to be gone.
        replaces: Files of an earlier window that this one replaces, relative to the archive.
        held: Number of records in the replaced files, by partition.
        of_no_interval: Offsets before the open generation that are in no segment, and that no
            interval up to now holds.
    """

    archive: Archive
    interval: Interval
    window: Window
    offsets: dict[TopicPartition, OffsetRange]
    topic_ids: dict[str, str]
    ranges: dict[TopicPartition, list[OffsetRange]]
    covered_by: list[str] = field(default_factory=list)
    ahead: int = 0
    expired: int = 0
    acknowledged: list[str] = field(default_factory=list)
    accepts: Ranges = field(default_factory=dict)
    replaces: list[str] = field(default_factory=list)
    held: dict[TopicPartition, int] = field(default_factory=dict)
    of_no_interval: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)

    @property
    def nothing_to_do(self) -> bool:
        """Whether nothing is left to drain."""
        return not self.ranges

    @property
    def left(self) -> int:
        """The number of offsets left to drain."""
        return sum(count(ranges) for ranges in self.ranges.values())

    def lines(self) -> list[str]:
        """Return the plan as lines of text for the user."""
        name = f"backfill {self.archive.root}"
        total = count(self.offsets.values())
        lines = [f"{name}: {self.interval} has {total:,} offsets, {self.left:,} left to drain"]
        held = total - self.left - self.ahead - self.expired
        if held > 0:
            by = ", ".join(self.covered_by) or "the open generation, not validated yet"
            lines.append(f"{name}: {held:,} offsets are already archived, by {by}")
        if self.expired:
            lines.append(f"{name}: {self.expired:,} offsets expired before they were archived")
        if self.ahead:
            lines.append(f"{name}: {self.ahead:,} offsets are left to the next drain")
        if self.replaces:
            lines.append(f"{name}: replaces {len(self.replaces):,} files of this window")
        return lines + [
            Line(
                f"{name}: WARNING {count(ranges):,} offsets of {tp} belong to no interval up to "
                f"now: {', '.join(map(str, ranges[:3]))}. Their records have no timestamp, or are "
                "dated after now, so no backfill takes them; another archive that starts at the "
                "earliest offsets does",
                Level.WARNING,
            )
            for tp, ranges in self.of_no_interval.items()
        ]

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
            "of_no_interval": sum(map(count, self.of_no_interval.values())),
        }


def plan_backfill(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    interval: Interval,
    *,
    force: bool = False,
    acknowledged: Accepted = NOTHING,
    clock: Clock = utc_now,
) -> BackfillPlan:
    """Plan the rest of a data interval, without changing anything.

    Args:
        pipeline: The pipeline to drain, with its archive.
        cluster: The Kafka cluster to drain from.
        interval: The data interval.
        force: Drain the interval's own window again, and replace it.
        acknowledged: Expired or unexplained offsets to accept as lost.
        clock: Returns the current time; replaced in tests.

    Raises:
        ArchiveError: When nothing was drained yet, or the archive belongs to another pipeline.
        TopicError: When a topic was recreated after the interval's offsets were frozen.
        DataLossError: When Kafka no longer holds offsets that may belong to the interval, or its
            log was rewritten since it was drained, or ends before the open generation's.
        ManifestInvalidError: When something sealed is missing or changed.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    archive = Archive.at(pipeline.archive)
    snapshot = archive.snapshot()
    generation = snapshot.open_generation if archive.exists else None
    if generation is None:
        raise ArchiveError(
            f"{archive.root} is empty; run drain_{pipeline.name} once to decide where the archive "
            "starts. A backfill fills in the offsets before that"
        )
    cluster = cluster.counting(snapshot.topics_now)
    topics, partitions = find_partitions(pipeline, cluster)
    check_identity(snapshot, pipeline, cluster.cluster_id(), topics)
    topic_ids = {name: topic.id for name, topic in topics.items()}
    first = cluster.earliest(partitions)
    last = cluster.latest(partitions, pipeline.isolation_level)
    own = frozenset(_near(snapshot, interval))
    checked = refuse_unsound(snapshot, query=None if force else Query(names=own)).snapshot
    frozen = _frozen(checked, interval, topic_ids, partitions, force=force)
    bounds = TimeBounds(cluster, first, _ends(snapshot, last), milliseconds(clock()))
    unknown = {tp: end for tp, end in last.items() if tp not in frozen}
    offsets = frozen | (_resolve(checked, bounds, interval, unknown) if unknown else {})
    # Again, as what was deleted before the lookups is in none of them.
    first = cluster.earliest(partitions)
    if checked.skipped is None:
        snapshot = checked
    else:
        asked = _asked(checked.skipped.index, interval, offsets, first, own)
        snapshot = refuse_unsound(snapshot, query=asked).snapshot
    owned = read_owned(snapshot, topic_ids, last)
    # Records that it takes for archived already must be those in Kafka, and so must earlier ones.
    high = cluster.latest(partitions, "read_uncommitted")
    state = read_state(snapshot, generation)
    drained = {*generation.starting_offsets, *state.cursor}
    _refuse_unlisted(pipeline, sorted(drained.difference(partitions)))
    tails, new = archived_tails(snapshot, partitions), state.new
    unsealed, _ = unsealed_tails(generation, generation.document.format, new)
    refuse_rewritten(snapshot, cluster, tails, first, high, unsealed, new)
    # The plan would be frozen without the offsets that new records get up to there.
    refuse_truncated(archive.root, owned.sealed, high, {})
    accepted = _refuse_expired(
        interval, offsets, first, owned, acknowledged, frozen, partial(_times_from, snapshot)
    )
    window = Window(archive.root, interval.key)
    ranges, files = _left(offsets, owned.ranges, first), list[SealedFile]()
    if force:
        window, ranges, files = _replaced(snapshot, window, ranges, first, topic_ids)
    if ranges and not files:
        window = _for_rest(snapshot, window, ranges, topic_ids)
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
        expired=sum(count(ranges) for ranges in _expired(offsets, owned.ranges, first).values()),
        acknowledged=accepted,
        accepts=acknowledged,
        replaces=[file.path for file in files],
        held=records_of(files),
        of_no_interval={
            tp: rest
            for tp, ranges in bounds.of_no_interval().items()
            if (rest := [part for r in ranges for part in subtract(r, owned.ranges.get(tp, []))])
        },
    )


def _refuse_unlisted(pipeline: Pipeline, lacks: Sequence[TopicPartition]) -> None:
    """Refuse to take an interval for whole without partitions that drains read.

    Raises:
        KafkaUnavailableError: Names them.
    """
    pattern = pipeline.topic_pattern
    named = [
        tp
        for tp in lacks
        if tp.topic in (pipeline.topics or ()) or (pattern and re.fullmatch(pattern, tp.topic))
    ]
    if named:
        raise KafkaUnavailableError(
            f"Kafka doesn't list {', '.join(map(str, named))} now, which drains have read: the "
            "interval would lack their records. Try again; if it stays so, a drain says what to do"
        )


def _ends(snapshot: Snapshot, last: Offsets) -> dict[TopicPartition, int]:
    """Return the latest ends of a backfill's offsets: the starts of the open generation."""
    generation = snapshot.open_generation
    starts = generation.starting_offsets if generation else {}
    return {tp: min(end, starts.get(tp, end)) for tp, end in last.items()}


def _near(snapshot: Snapshot, interval: Interval) -> Iterator[str]:
    """Yield the folders of an interval's windows, and of those of the intervals next to it."""
    for key, window in snapshot.folders.items():
        if is_of_interval(key, interval.key) or _is_next_to(key, interval):
            yield window.name


def _is_next_to(key: str, interval: Interval) -> bool:
    start, end = interval.key.split("_")
    # Another window of an interval has partitions that were named after its first one was frozen.
    return key.split("_")[1:2] == [start] or key.startswith(f"{end}_")


def _asked(
    index: Index,
    interval: Interval,
    offsets: Mapping[TopicPartition, OffsetRange],
    first: Offsets,
    near: frozenset[str],
) -> Query:
    """Return the query for the segments that a plan depends on.

    That is what covers the interval's offsets, or may have records of its times if Kafka has
    deleted some; and what holds the first offset after some that Kafka has deleted, whose time says
    whether these may belong to the interval.
    """
    asked = {tp: [r] for tp, r in offsets.items() if len(r)}
    for (tp, _), ranges in index.covered.items():
        behind = [
            OffsetRange(r.start, r.start + 1) for r in ranges if 0 < r.start <= first.get(tp, 0)
        ]
        if behind:
            asked[tp] = merge([*asked.get(tp, []), *behind])
    if _may_be_deleted(offsets, first):
        times = TimeRange(interval.start_ms, interval.end_ms)
        near = near.union(row.name for row in index.rows if row.may_hold(times))
    return Query(offsets=asked, names=near, claimed=True)


def _may_be_deleted(offsets: Mapping[TopicPartition, OffsetRange], first: Offsets) -> bool:
    """Return whether Kafka may have deleted records of an interval."""
    return any(0 < first[tp] >= r.start for tp, r in offsets.items())


def _covered_by(
    interval: Interval, offsets: Mapping[TopicPartition, OffsetRange], first: Offsets, owned: Owned
) -> list[str]:
    """Name the receipts that cover an interval, even if Kafka no longer has its offsets."""
    if _may_be_deleted(offsets, first):
        return owned.receipts_between(interval.start_ms, interval.end_ms)
    return owned.receipts_of({tp: [r] for tp, r in offsets.items() if len(r)})


def _frozen(
    snapshot: Snapshot,
    interval: Interval,
    topic_ids: Mapping[str, str],
    named: Collection[TopicPartition],
    *,
    force: bool,
) -> dict[TopicPartition, OffsetRange]:
    """Return the offsets that previous attempts froze; empty if there was none.

    The first plan with a partition counts; another window's has one that was named later.
    """
    found: dict[TopicPartition, OffsetRange] = {}
    known: set[TopicPartition] = set()
    own = [w for w in snapshot.folders.values() if is_of_interval(w.key, interval.key)]
    for window in sorted(own, key=lambda w: (len(w.key), w.key)):
        if window.plan_bytes is not None:
            whole = {tp: ranges[0] for tp, ranges in window.plan.offsets().items()}
            whole = {tp: r for tp, r in whole.items() if tp not in known}
            # One that was replaced with force has a plan only.
            is_sealed = any(w.is_sealed and w.plan.offsets().keys() >= whole.keys() for w in own)
            known |= whole.keys()
            found |= _frozen_by(
                snapshot,
                window,
                whole,
                topic_ids,
                named,
                force=force,
                is_sealed=is_sealed,
            )
    return found


def _frozen_by(
    snapshot: Snapshot,
    window: SnapshotWindow,
    whole: Mapping[TopicPartition, OffsetRange],
    topic_ids: Mapping[str, str],
    named: Collection[TopicPartition],
    *,
    force: bool,
    is_sealed: bool,
) -> dict[TopicPartition, OffsetRange]:
    """Return those of a window's frozen offsets that count.

    Those of an earlier incarnation of a topic count if they are sealed, and its log still has them.
    Sealed ones of partitions that the pipeline no longer names are left alone, and so are those of
    a topic that was made again, or whose log was rewritten, beside others.
    """
    offsets = {tp: r for tp, r in whole.items() if tp in named}
    left = sorted(whole.keys() - offsets.keys())
    if left and (force or not is_sealed):
        way_on = "run it without force" if is_sealed else "move its folder out of the archive"
        raise TopicError(
            f"window {window.key} has offsets of {', '.join(map(str, left))} too, which the "
            f"pipeline no longer names. Nothing was changed; name them again, or {way_on}"
        )
    known = window.plan.topics
    ids = {tp.topic: known[tp.topic] for tp in offsets if tp.topic in known}
    if all(topic_ids.get(name) == topic_id for name, topic_id in ids.items()):
        return offsets
    ends = log_ends(snapshot, topic_ids, offsets)
    changed = sorted(
        tp.topic
        for tp, r in offsets.items()
        if topic_ids.get(tp.topic) != (topic_id := ids.get(tp.topic, ""))
        and (force or not is_sealed or r.end > ends.get((tp, topic_id), 0))
    )
    are_all = {tp.topic for tp in named}.issubset(changed)
    if changed and is_sealed and not force and not are_all:
        # Of the others, the interval may have more: these are resolved in their new logs, of which
        # the open generation has what isn't sealed.
        return {tp: r for tp, r in offsets.items() if tp.topic not in changed}
    if changed:
        names = ", ".join(dict.fromkeys(changed))
        way_on = (
            "What is sealed stays; any records of the interval in the new log are taken by the "
            "next drain"
        )
        if not is_sealed and (
            not are_all
            or any(
                ids.get(name) in earlier_incarnations(topic_ids.get(name, "")) for name in changed
            )
        ):
            way_on = (
                "The window isn't sealed: move its folder out of the archive, and run the backfill "
                "again"
            )
        raise TopicError(
            f"{names} was recreated, or its log rewritten, after the offsets of window "
            f"{window.key} were frozen: they refer to other records now. {way_on}"
        )
    return offsets


def _resolve(
    snapshot: Snapshot, bounds: TimeBounds, interval: Interval, last: Offsets
) -> dict[TopicPartition, OffsetRange]:
    """Query the interval's offsets from Kafka; frozen bounds of adjacent intervals win."""
    before, after = _neighbours(snapshot, interval)
    starts = before | bounds.of(interval.start_ms, [tp for tp in last if tp not in before], {})
    ends = after | bounds.of(interval.end_ms, [tp for tp in last if tp not in after], starts)
    found = {}
    for tp, end_of_log in last.items():
        # -1: no record is that late. An offset may also be beyond what read_committed sees.
        start, end = (
            min(at, end_of_log) if at >= 0 else end_of_log for at in (starts[tp], ends[tp])
        )
        found[tp] = OffsetRange(start, max(start, end))
    return found


def _neighbours(
    snapshot: Snapshot, interval: Interval
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the end of the frozen interval before this one, and the start of the one after it.

    Compaction or retention may have moved a bound since, leaving offsets to neither interval.
    """
    before: dict[TopicPartition, int] = {}
    after: dict[TopicPartition, int] = {}
    for window in snapshot.folders.values():
        if not _is_next_to(window.key, interval) or not window.is_begun:
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
    offsets: Mapping[TopicPartition, OffsetRange], owned: Ranges, first: Offsets
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the interval's offsets that no segment owns and Kafka still holds."""
    left = {
        tp: subtract(OffsetRange(max(r.start, first[tp]), r.end), owned.get(tp, []))
        for tp, r in offsets.items()
        if r.end > first[tp]
    }
    return {tp: ranges for tp, ranges in left.items() if ranges}


def _expired(
    offsets: Mapping[TopicPartition, OffsetRange], owned: Ranges, first: Offsets
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the interval's offsets that no segment owns and Kafka no longer holds."""
    return {
        tp: subtract(OffsetRange(min(r.start, first[tp]), min(r.end, first[tp])), owned.get(tp, []))
        for tp, r in offsets.items()
    }


def _refuse_expired(
    interval: Interval,
    offsets: Mapping[TopicPartition, OffsetRange],
    first: Offsets,
    owned: Owned,
    acknowledged: Ranges,
    frozen: Collection[TopicPartition],
    times_from: Callable[[Sequence[Receipt], TopicPartition, int], Sequence[int]],
) -> list[str]:
    """Refuse to skip offsets that Kafka deleted before they were archived; return accepted ones.

    The timestamps of deleted offsets are unknown: if an interval starts at or before the first
    record that Kafka still holds, the deleted records before that may belong to it. They don't if
    the archived records right after them are, by and large, older than the interval.
    """
    found, accepted = list[str](), list[str]()
    for tp, r in sorted(offsets.items()):
        is_frozen = tp in frozen
        if is_frozen:
            gone = OffsetRange(min(r.start, first[tp]), min(r.end, first[tp]))
        else:
            gone = OffsetRange(0, first[tp] if r.start <= first[tp] else 0)
        for missing in subtract(gone, owned.ranges.get(tp, [])):
            if not is_frozen and _is_older(interval, owned, tp, missing.end, times_from):
                continue
            rest = subtract(missing, acknowledged.get(tp, []))
            found += [range_name(tp, part) for part in rest]
            accepted += [] if rest else [range_name(tp, missing)]
    if found:
        raise DataLossError(
            f"{interval}: Kafka no longer holds {', '.join(found[:5])}"
            f"{' …' if len(found) > 5 else ''}, no file contains them, and they may belong to this "
            "interval (topic:partition:start-end). Nothing was drained; accept the loss "
            f"({ACKNOWLEDGE}) to drain what Kafka still holds of the interval"
        )
    return accepted


def _is_older(
    interval: Interval,
    owned: Owned,
    tp: TopicPartition,
    offset: int,
    times_from: Callable[[Sequence[Receipt], TopicPartition, int], Sequence[int]],
) -> bool:
    """Return whether the archived records from an offset on are older than an interval.

    One record of a segment may be late, or have a wrong clock, or no time: that says nothing of
    those before the segment.
    """
    found = owned.receipts_at(tp, offset)
    if not found:
        return False
    _, part = found[0]
    if part.first_timestamp is None or part.first_timestamp >= interval.start_ms:
        return False
    if part.last_timestamp is not None and part.last_timestamp < interval.start_ms:
        return True
    times = times_from([receipt for receipt, _ in found], tp, offset)
    return 2 * sum(time < interval.start_ms for time in times) > len(times)


def _times_from(
    snapshot: Snapshot, receipts: Iterable[Receipt], tp: TopicPartition, offset: int
) -> Sequence[int]:
    """Return the times of the next records in files of segments; none if none can be read."""
    # Not at the top: few backfills need pyarrow, and importing it takes a while.
    import pyarrow as pa
    import pyarrow.compute as pc

    from kafka_drain.data_files.reader import read_columns, topic_of

    found: list[tuple[int, int]] = []
    for receipt in receipts:
        owner = snapshot.folders[receipt.window].plan if receipt.window else None
        written = owner or snapshot.generation(receipt.generation or 0).document
        for file in snapshot.fold.live(receipt.files):
            contents = (each for each in file.contents if each.tp == tp)
            if not any(c.first <= offset + LOOKAHEAD and c.last >= offset for c in contents):
                continue
            topic = topic_of(file.path)
            needed = ["partition", "offset", "timestamp", *(["topic"] if topic is None else [])]
            with suppress(ArchiveError, DataFileError, *KEY_ERRORS, OSError):
                for batch in read_columns(snapshot.root / file.path, written.format, needed):
                    wanted = (pc.field("partition") == tp.partition) & (
                        pc.field("offset") >= offset
                    )
                    if topic is None:
                        wanted &= pc.field("topic") == tp.topic
                    rows = (
                        pa.Table.from_batches([batch])
                        .filter(wanted)
                        .sort_by("offset")[: LOOKAHEAD + 1]
                    )
                    times = rows["timestamp"]
                    # A datetime can't be as late as a record's time.
                    times = times.cast(pa.timestamp("us", times.type.tz), safe=False).cast("int64")
                    pairs = zip(rows["offset"].to_pylist(), times.to_pylist(), strict=True)
                    found += [(at, time // 1000) for at, time in pairs if time is not None]
                    found = sorted(found)[: LOOKAHEAD + 1]
    return [time for _, time in found]


def _replaced(
    snapshot: Snapshot,
    window: Window,
    ranges: dict[TopicPartition, list[OffsetRange]],
    first: Offsets,
    topic_ids: Mapping[str, str],
) -> tuple[Window, dict[TopicPartition, list[OffsetRange]], list[SealedFile]]:
    """Return the window that replaces the interval's own, its ranges, and the replaced files.

    Raises:
        DataLossError: When Kafka no longer holds everything in the window: it is the only copy.
        ArchiveError: When maintenance has compacted or deleted files of the window, or a repair's
            files contain records of this window and of others.
    """
    standing = snapshot.fold.standing_for(window.key)
    held: dict[TopicPartition, list[OffsetRange]] = {}
    for w in standing.windows:
        for part in w.receipt.partitions if w.kind is not WindowKind.REPAIR else ():
            held.setdefault(part.tp, []).append(part.range)
    expired = [
        range_name(tp, r) for tp, rs in held.items() for r in rs if len(r) and r.start < first[tp]
    ]
    if expired:
        raise DataLossError(
            f"window {window.key} may be the only copy of {', '.join(expired[:5])}: Kafka's "
            "earliest offset is later. Nothing was changed; run it without force"
        )
    files = standing.live_files
    if not files:
        return window, ranges, []
    _refuse_shared(window, standing.of_kind(WindowKind.REPAIR), held, files)
    whole = {tp: merge([*held.get(tp, []), *ranges.get(tp, [])]) for tp in {*held, *ranges}}
    elsewhere = snapshot.fold.gone.intersection(files)
    if elsewhere:
        raise ArchiveError(
            f"window {window.key}: maintenance has compacted or deleted {len(elsewhere):,} of its "
            f"{len(files):,} files, such as {min(elsewhere)}; a backfill can't replace them any "
            "more. Nothing was changed; run it without force"
        )
    # A killed attempt's window is reused if its receipt will replace the same files: they must be
    # superseded at the moment of sealing, or readers would take both.
    own = snapshot.of_interval(window.key)
    ranges = {tp: rs for tp, rs in whole.items() if rs}
    begun = (
        w
        for w in own
        if w.can_continue({"replaces": sorted(files)}) and is_planned(ranges, topic_ids, w.plan)
    )
    following = next(begun, _next_window(snapshot, window))
    return following, ranges, [files[path] for path in sorted(files)]


def is_planned(ranges: Ranges, topic_ids: Mapping[str, str], plan: WindowPlan) -> bool:
    """Return whether a window's frozen plan has some offsets, of the same incarnations of topics.

    Its receipt may have no others.
    """
    planned, ids = plan.offsets(), plan.topics
    return not any(
        without(rs, planned.get(tp, ()))
        or ids.get(tp.topic, topic_ids[tp.topic]) != topic_ids[tp.topic]
        for tp, rs in ranges.items()
    )


def _for_rest(
    snapshot: Snapshot, window: Window, ranges: Ranges, topic_ids: Mapping[str, str]
) -> Window:
    """Return the window for what is left of an interval: its first one if that can have it.

    That isn't so if it is sealed, or if its plan was frozen before a partition was named, or before
    a log was rewritten.
    """
    own = [w for w in snapshot.of_interval(window.key) if w.plan_bytes is not None]
    if all(w.key != window.key for w in own):
        return window
    # A first window that was replaced with force has a plan that was sealed: it stays as it is.
    is_replaced = any(w.is_sealed for w in own)
    begun = (
        w
        for w in sorted(own, key=lambda w: (len(w.key), w.key))
        if w.can_continue({"replaces": []})
        and is_planned(ranges, topic_ids, w.plan)
        and not (is_replaced and w.key == window.key)
    )
    return next(begun, _next_window(snapshot, window))


def _next_window(snapshot: Snapshot, window: Window) -> Window:
    """Return another window of an interval; its name isn't taken yet."""
    number = len(snapshot.of_interval(window.key)) + 1
    while f"{window.key}_{number}" in snapshot.folders:
        number += 1
    return Window(snapshot.root, f"{window.key}_{number}")


def _refuse_shared(
    window: Window, repairs: Iterable[SnapshotWindow], held: Ranges, files: Collection[str]
) -> None:
    """Refuse to replace a repair's files that contain more than the interval's own windows did."""
    for repair in repairs:
        receipt = repair.receipt
        if any(f.path in files for f in receipt.files):
            outside = [
                range_name(part.tp, r)
                for part in receipt.partitions
                for r in subtract(part.range, held.get(part.tp, []))
            ]
            if outside:
                raise ArchiveError(
                    f"window {window.key}: window {repair.key}, which repaired it, also contains "
                    f"{', '.join(outside[:5])} of other windows; a backfill can't replace its "
                    "files any more. Nothing was changed; run it without force"
                )
