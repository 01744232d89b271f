"""Translate a group's committed offsets in the source to offsets in the target. Opens nothing."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_drain.errors import ConfigError, TopicError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.verifying.offset_map import OffsetMap, PartitionMap, resume_offset

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of one source partition to the offset in one target partition.

    Attributes:
        committed: The group's offset there; None when it has none.
        translated: The group's offset for this source partition alone.
        offset: The group's offset: that of the first record that it hasn't read from any source
            partition that leads to this target partition; after the last one if it has read all.
        note: Origin of the offset, as text for the user.
        read_again: Number of records of the source partition that are read again.
        is_bound: Whether that number is a maximum, because it isn't known exactly.
        current: Offset committed by the target group for the target partition; None for none.
        may_be_read_again: Number of further records of which nobody knows whether the group has
            read them.
        metadata: The committed metadata that is committed again; empty for none.
    """

    source: TopicPartition
    committed: int | None
    target: TopicPartition
    translated: int
    offset: int
    note: str
    read_again: int = 0
    is_bound: bool = False
    current: int | None = None
    may_be_read_again: int = 0
    metadata: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON types."""
        return {
            "source_topic": self.source.topic,
            "source_partition": self.source.partition,
            "committed": self.committed,
            "target_topic": self.target.topic,
            "target_partition": self.target.partition,
            "translated": self.translated,
            "offset": self.offset,
            "current": self.current,
            "read_again": self.read_again,
            "may_be_read_again": self.may_be_read_again,
            "metadata": self.metadata,
            "is_bound": self.is_bound,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class TranslationPlan:
    """The offsets to commit.

    Attributes:
        run: Name of the run's folder.
        cluster_id: Id of the target cluster.
        group: The group whose offsets are translated.
        to_group: The group that gets them.
        committed: The offsets that are translated.
        rows: The contributions to the offsets.
        left_alone: Source partitions without a committed offset: they get none in the target.
        notes: Notes for the user to read before applying the plan.
    """

    run: str
    cluster_id: str
    group: str
    to_group: str
    committed: Mapping[TopicPartition, int]
    rows: tuple[Contribution, ...]
    left_alone: tuple[TopicPartition, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def after(self) -> dict[TopicPartition, int]:
        """The offset to commit for each target partition."""
        return {row.target: row.offset for row in sorted(self.rows, key=lambda row: row.target)}

    @property
    def metadata(self) -> dict[TopicPartition, str]:
        """The metadata to commit, for each target partition that gets any."""
        return {row.target: row.metadata for row in self.rows if row.metadata}

    @property
    def read_again(self) -> int:
        """Number of records that the group reads again."""
        return sum(row.read_again for row in self.rows)

    @property
    def may_be_read_again(self) -> int:
        """Number of further records of which nobody knows whether the group has read them."""
        return sum(row.may_be_read_again for row in self.rows)

    @property
    def is_bound(self) -> bool:
        """Whether that number is a maximum, because it isn't known exactly."""
        return any(row.is_bound for row in self.rows)

    def summary(self) -> str:
        """Return a summary of the records that are read again; none is skipped."""
        some = "1 record is" if self.read_again == 1 else f"{self.read_again:,} records are"
        again = f"{'at most ' if self.is_bound else ''}{some} read again"
        if maybe := self.may_be_read_again:
            again = f"{again}, and " if self.read_again else ""
            again += f"up to {maybe:,} {'more ' if self.read_again else ''}may be read again"
        is_exact = not (self.read_again or maybe)
        said = "exact: no record is read again, none is skipped" if is_exact else again
        said += "" if is_exact else "; none is skipped"
        return said + (
            ", except where the group has no committed offset" if self.left_alone else ""
        )

    def with_current(self, current: Mapping[TopicPartition, int]) -> TranslationPlan:
        """Return the plan with the offsets that the target group has committed now."""
        return replace(
            self,
            rows=tuple(replace(row, current=current.get(row.target)) for row in self.rows),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return {
            "run": self.run,
            "cluster_id": self.cluster_id,
            "group": self.group,
            "to_group": self.to_group,
            "summary": self.summary(),
            "read_again": self.read_again,
            "may_be_read_again": self.may_be_read_again,
            "is_bound": self.is_bound,
            "rows": [row.to_dict() for row in self.rows],
            "left_alone": [
                {"topic": tp.topic, "partition": tp.partition} for tp in self.left_alone
            ],
            "notes": list(self.notes),
        }


def plan_translation(
    offset_map: OffsetMap,
    *,
    group: str,
    to_group: str,
    committed: Mapping[TopicPartition, int],
    is_original: bool = True,
    compacted: Collection[str] = (),
    source_ends: Mapping[TopicPartition, int] | None = None,
    is_outdated: bool = False,
) -> TranslationPlan:
    """Translate a group's offsets.

    No record that the group hasn't read is skipped: if several source partitions or runs lead to
    one target partition, the group continues at the first unread record, and may read others again.

    If the group has offsets for a topic, a partition of that topic without a committed offset
    counts as not read at all where it shares a target partition, and wherever a run didn't keep
    partitions: later records of partitions that the group reads may go anywhere. Elsewhere such
    partitions are left alone, as the consumers' auto.offset.reset decides about them in the
    source, too.

    Args:
        offset_map: Offsets of the runs' records in the target.
        group: The group whose offsets these are.
        to_group: The group that gets the new ones.
        committed: The group's offsets in the source.
        is_original: Whether the runs kept partitions' numbers.
        compacted: Target topics that Kafka compacts: some of the records may be gone by now.
        source_ends: End offsets of the source partitions, as far as known.
        is_outdated: Whether the archive holds records that were drained after the offsets were
            noted: the group may have read on since.

    Raises:
        ConfigError: When the run sent no record, or the group has no offset for any topic that it
            read.
    """
    sources = offset_map.sources()
    if not sources:
        raise ConfigError(
            f"run {offset_map.run} sent no record, so there is no offset in its target that group "
            f"{group} could go on at. Translate with a run that sent records, or start the group "
            "with auto.offset.reset=earliest. Nothing was changed"
        )
    known = {tp.topic for tp in sources}
    usable = {tp: at for tp, at in sorted(committed.items()) if tp.topic in known}
    if not usable:
        raise ConfigError(
            f"group {group} has {_listed(committed)}, expected some of those that run "
            f"{offset_map.run} read: {_shown(sources)}; correct --group or --run"
        )
    parts = _by_pair(offset_map, [tp for tp in sources if tp in usable])
    targets = {target for _, target in parts}
    topics = {tp.topic for tp in usable}
    unread = [tp for tp in sources if tp not in usable and tp.topic in topics]
    shared = {
        pair: maps
        for pair, maps in _by_pair(offset_map, unread).items()
        if not is_original or pair[1] in targets
    }
    left_alone = sorted(set(unread).difference(source for source, _ in shared))
    parts |= shared
    leading: dict[TopicPartition, list[PartitionMap]] = {}
    for (_, target), maps in parts.items():
        leading.setdefault(target, []).extend(maps)
    offsets = {target: resume_offset(maps, usable) for target, maps in leading.items()}
    rows = tuple(
        _row(
            maps,
            _extent(offset_map, source),
            usable.get(source),
            offsets[target],
            is_compacted=target.topic in compacted,
            is_outdated=is_outdated,
        )
        for (source, target), maps in sorted(parts.items(), key=lambda item: item[0])
    )
    return TranslationPlan(
        run=offset_map.run,
        cluster_id=offset_map.cluster_id,
        group=group,
        to_group=to_group,
        committed=usable,
        rows=rows,
        left_alone=tuple(left_alone),
        notes=(
            *_elsewhere(group, {tp.topic for tp in committed} - known),
            *_notes(offset_map, usable, source_ends or {}, left_alone, rows),
        ),
    )


def _elsewhere(group: str, topics: Collection[str]) -> Iterable[str]:
    """Yield a note of the topics of a group of which no record was sent."""
    if topics:
        shown = ", ".join(sorted(topics)[:_SHOWN]) + (" …" if len(topics) > _SHOWN else "")
        yield (
            f"no record of {shown} was sent to these targets, where group {group} has offsets, "
            "too: none is committed there, so auto.offset.reset decides, and by default skips what "
            "arrives before the first consumer does; set them with kafka-consumer-groups.sh "
            "--reset-offsets --to-earliest"
        )


def untouched(
    offset_map: OffsetMap,
    committed: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    *,
    is_original: bool,
) -> list[Contribution]:
    """Return a group's offsets in target partitions that got none of its records.

    Without an offset there, `auto.offset.reset` would decide, and by default it skips what arrives
    before the first consumer does.

    Args:
        offset_map: Offsets of the runs' records in the target.
        committed: The group's offsets in the source.
        starts: The run's start in each target partition that the group has no offset for.
        is_original: Whether partitions kept their numbers.
    """
    leads = {(part.source.topic, part.target.topic) for part in offset_map.partitions}
    rows: dict[TopicPartition, Contribution] = {}
    for source, at in sorted(committed.items()):
        for target, start in starts.items():
            fits = not is_original or target.partition == source.partition
            if (source.topic, target.topic) in leads and fits:
                note = "got no record: from where the run started"
                rows.setdefault(target, Contribution(source, at, target, start, start, note))
    return [rows[target] for target in sorted(rows)]


def with_metadata(plan: TranslationPlan, metadata: Mapping[TopicPartition, str]) -> TranslationPlan:
    """Return a plan that commits the group's metadata again, and names the exceptions.

    An application may keep in it what belongs to the very offset, as Kafka Streams keeps a
    partition's time. So it goes where a source partition and a target partition belong to each
    other, and the group continues at the offset that it had committed.

    Args:
        metadata: Metadata of the group's offsets in the source.
    """
    targets: dict[TopicPartition, set[TopicPartition]] = {}
    sources: dict[TopicPartition, set[TopicPartition]] = {}
    for row in plan.rows:
        targets.setdefault(row.source, set()).add(row.target)
        sources.setdefault(row.target, set()).add(row.source)
    rows, left = [], dict[TopicPartition, str]()
    for row in plan.rows:
        text = metadata.get(row.source, "")
        why = ""
        if len(targets[row.source]) > 1:
            why = "its records are in several partitions"
        elif len(sources[row.target]) > 1:
            why = f"{row.target} has records of other partitions, too"
        elif row.read_again:
            why = "the group continues before that offset"
        if text and why:
            left[row.source] = f"{text!r} of {row.source} ({why})"
        rows.append(replace(row, metadata="" if why else text))
    if not left:
        return replace(plan, rows=tuple(rows))
    named = "; ".join([left[tp] for tp in sorted(left)][:_SHOWN]) + (" …" * (len(left) > _SHOWN))
    note = f"metadata that was committed with offsets isn't committed again: {named}"
    return replace(plan, rows=tuple(rows), notes=(*plan.notes, note))


def _by_pair(
    offset_map: OffsetMap, sources: Iterable[TopicPartition]
) -> dict[tuple[TopicPartition, TopicPartition], list[PartitionMap]]:
    """Return the maps by source and target partition."""
    found: dict[tuple[TopicPartition, TopicPartition], list[PartitionMap]] = {}
    for source in sources:
        for part in offset_map.of(source):
            found.setdefault((source, part.target), []).append(part)
    return found


def _row(
    maps: list[PartitionMap],
    extent: tuple[int, int],
    committed: int | None,
    offset: int,
    *,
    is_compacted: bool,
    is_outdated: bool,
) -> Contribution:
    source, target = maps[0].source, maps[0].target
    read = committed or 0
    alone = resume_offset(maps, {source: read})
    again = sum(part.read_again(read, offset) for part in maps)
    # For a joined block, it is unknown which of its records were read.
    is_bound = any(
        is_compacted
        or not all(block.is_exact for block in part.blocks)
        or (part.may_be_repeated and not part.is_repeated)
        for part in maps
        if part.read_again(read, offset)
    )
    said = [_where(extent, committed)]
    if again:
        records = "1 record is" if again == 1 else f"{again:,} records are"
        said.append(f"{'up to ' if is_bound else ''}{records} read again")
    if offset < alone:
        said.append("another source partition lags")
    maybe = sum(part.unread(read) for part in maps) if is_outdated and committed is not None else 0
    if maybe:
        records = "1 record" if maybe == 1 else f"{maybe:,} records"
        said.append(f"up to {records} may be read again: drained after the offset was noted")
    return Contribution(
        source=source,
        committed=committed,
        target=target,
        translated=alone,
        offset=offset,
        note="; ".join(filter(None, said)) or "exact",
        read_again=again,
        may_be_read_again=maybe,
        is_bound=is_bound,
    )


def _where(extent: tuple[int, int], at: int | None) -> str:
    """Return an offset's place beside the republished records; empty if it is among them."""
    first, end = extent
    if at is None:
        return "no committed offset: from the first republished record"
    if at < first:
        return f"before the first republished record, offset {first:,}"
    return f"after the last republished record, offset {end - 1:,}" if at > end else ""


def _extent(offset_map: OffsetMap, source: TopicPartition) -> tuple[int, int]:
    """Return a source partition's first republished offset, and the offset after the last one."""
    found = offset_map.of(source)
    return min(p.blocks[0].source_start for p in found), max(p.blocks[-1].source_end for p in found)


def _notes(
    offset_map: OffsetMap,
    committed: Mapping[TopicPartition, int],
    source_ends: Mapping[TopicPartition, int],
    left_alone: Collection[TopicPartition],
    rows: Iterable[Contribution],
) -> Iterable[str]:
    for tp, at in committed.items():
        if tp in source_ends:
            begin = max(at, _extent(offset_map, tp)[1]) if offset_map.of(tp) else at
            lag = source_ends[tp] - begin
            if lag > 0:
                yield (
                    f"{tp}: lag of {lag:,}: offsets {begin:,} to {source_ends[tp] - 1:,} of the "
                    "source were neither republished nor read by the group"
                )
    if any(row.offset < row.translated for row in rows):
        yield (
            "several source partitions lead to one target partition: the group continues at the "
            "first record that it hasn't read from any of them, so that nothing is skipped; it "
            "reads some records again"
        )
    if left_alone:
        yield (
            f"no committed offset for {_shown(left_alone)}: none is committed in the target "
            "either, and the consumers' auto.offset.reset decides"
        )


def _listed(offsets: Collection[TopicPartition]) -> str:
    return f"committed offsets of {_shown(offsets)}" if offsets else "no committed offsets"


def _shown(partitions: Collection[TopicPartition]) -> str:
    more = " …" if len(partitions) > _SHOWN else ""
    return ", ".join(map(str, sorted(partitions)[:_SHOWN])) + more


def check_held(
    after: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> None:
    """Check that the target holds the new offsets.

    Args:
        after: The new offsets.
        earliest: Log start offset of each target partition.
        latest: High watermark of each.

    Raises:
        TopicError: When offsets are out of range; names all of them.
    """
    outside = [
        f"{tp}: new offset {offset:,} is "
        + (
            f"beyond the end {latest[tp]:,}"
            if offset > latest[tp]
            else f"below the start {earliest[tp]:,}"
        )
        for tp, offset in after.items()
        if not earliest[tp] <= offset <= latest[tp]
    ]
    if outside:
        shown = "; ".join(outside[:_SHOWN]) + (" …" if len(outside) > _SHOWN else "")
        raise TopicError(
            f"{shown}; expected offsets that the target holds. Beyond the end: the topic was "
            "recreated after the run; below the start: retention has deleted republished records. "
            "Republish to a new topic (retention.ms=-1) and translate with that run. Nothing was "
            "changed"
        )


def parse_offsets(text: str, group: str, where: str) -> dict[TopicPartition, int]:
    """Parse the output of `kafka-consumer-groups.sh --export --reset-offsets`.

    Lines are `topic,partition,offset`, or `group,topic,partition,offset`, of which only those of
    the group are used.

    Args:
        text: The file's text.
        where: Name of the file, for messages.

    Raises:
        ConfigError: When a line has another form, or no line belongs to the group.
    """
    found: dict[TopicPartition, int] = {}
    others: set[str] = set()
    # A spreadsheet program may have put a byte order mark before the first line.
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    for line in lines:
        fields = [value.strip() for value in line]
        if not any(fields):
            continue
        owner = fields[0] if len(fields) == 4 else group
        if len(fields) not in (3, 4) or not all(re.fullmatch("[0-9]+", v) for v in fields[-2:]):
            raise ConfigError(
                f"{where} line {lines.line_num} is {','.join(line)!r}, expected "
                "topic,partition,offset or group,topic,partition,offset, as "
                "kafka-consumer-groups.sh --reset-offsets --export prints them"
            )
        if owner != group:
            others.add(owner)
            continue
        tp, offset = TopicPartition(fields[-3], int(fields[-2])), int(fields[-1])
        if found.setdefault(tp, offset) != offset:
            raise ConfigError(
                f"{where} line {lines.line_num} has offset {offset} for {tp}, but an earlier line "
                f"has {found[tp]}; keep only one of them"
            )
    if not found:
        named = f"only those of {', '.join(sorted(others)[:_SHOWN])}" if others else "only blanks"
        raise ConfigError(f"{where} has no offsets of group {group}, {named}")
    return found
