"""Commit a group's translated offsets in the target of a republish, and restore the old ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kafka_drain.errors import GroupError
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups, offsets_of
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import say
from kafka_drain.republish.groups.group_records import GroupRecord, GroupRecords
from kafka_drain.republish.groups.translation import TranslationPlan


@dataclass(frozen=True)
class Undone:
    """The result of an undo, or its preview.

    Attributes:
        record: The record of the apply that is undone.
        result: `planned`, `undone` or `already undone`.
        back: The offsets that are restored.
        left: Partitions that had no committed offset before, and keep the one that apply committed.
    """

    record: GroupRecord
    result: str
    back: Mapping[TopicPartition, Committed]
    left: list[TopicPartition]


def apply_plan(
    plan: TranslationPlan, records: GroupRecords, groups: ConsumerGroups
) -> tuple[str, GroupRecord | None]:
    """Commit a plan's offsets; a plan that was applied before isn't applied again.

    Returns:
        `applied` or `already applied`, and the record of it.

    Raises:
        GroupInUseError: When the group has members.
        GroupError: When another client has committed since an earlier apply.
    """
    group, after = plan.to_group, plan.after
    described = groups.idle(group, "--apply")
    before = groups.committed(group, after)
    current = offsets_of(before)
    wanted = {tp: Committed(at, plan.metadata.get(tp, "")) for tp, at in after.items()}
    newest = records.newest_open()
    # Started or finished by an earlier call; offsets committed since are no longer "before".
    record = newest if newest is not None and newest.after == after else None
    # The group's own consumers may have committed the same offsets with other metadata since.
    if before == wanted or (current == after and record is not None and record.is_applied):
        if record is not None:
            records.mark_applied(record)
        since = f", applied at {record.written_at}" if record is not None else ""
        say(f"translate-group {group}: these offsets are already committed{since}; no change")
        return "already applied", record
    if record is not None and (record.is_applied or not record.is_between(current)):
        return _applied_before(record, current)
    if record is None:
        record = records.write(plan, before, group_existed=described.exists)
    groups.commit(group, {tp: to for tp, to in wanted.items() if before.get(tp) != to})
    records.mark_applied(record)
    say(
        f"translate-group {group}: committed offsets of {len(after):,} partitions; --undo --apply "
        f"restores the previous ones, which are recorded in {record.path}"
    )
    return "applied", record


def _applied_before(
    record: GroupRecord, current: Mapping[TopicPartition, int]
) -> tuple[str, GroupRecord]:
    """Report that a plan was applied before and that the group has committed since.

    Raises:
        GroupError: When the group isn't at or after the plan's offsets.
    """
    if record.is_applied and all(current.get(tp, -1) >= at for tp, at in record.after.items()):
        say(
            f"translate-group {record.group}: applied at {record.written_at}, and the group has "
            "read on since; no change"
        )
        return "already applied", record
    moved = record.moved(current)
    said = "; ".join(moved) or "some offsets are back at their previous values"
    # An undo refuses what another client has committed.
    undone = "" if moved else "undo it (--undo --apply) and --apply again, or "
    raise GroupError(
        f"group {record.group}: {record.path} was "
        f"{'applied' if record.is_applied else 'started'} at {record.written_at}, but {said}; "
        f"another client has committed since. Nothing was changed; {undone}set the offsets that "
        "apply commits with kafka-consumer-groups.sh --reset-offsets"
    )


def undo(records: GroupRecords, groups: ConsumerGroups, group: str, *, apply: bool) -> Undone:
    """Show, and with `apply` restore, the offsets before the newest apply not yet undone.

    Raises:
        GroupInUseError: When the group has members.
        GroupError: When nothing was applied, or another client has committed since.
    """
    record = records.newest_open()
    if record is None:
        undone = records.all()
        if not undone:
            raise GroupError(
                f"nothing was applied to group {group} in this run, so there is nothing to undo; "
                "check --run and --to-group"
            )
        last = undone[-1]
        say(f"translate-group {group}: {last.path} was already undone; no change")
        current = offsets_of(groups.committed(group, last.after))
        left = [tp for tp in _new(last) if current.get(tp) == last.after[tp]]
        return Undone(last, "already undone", {}, left)
    return _undo(record, records, groups, apply=apply)


def undo_all(
    recorded: Sequence[GroupRecords], groups: ConsumerGroups, group: str, *, apply: bool
) -> list[Undone]:
    """Show, and with `apply` restore, the offsets before all applies of several runs.

    Args:
        recorded: The group's records of each run, oldest run first.

    Raises:
        GroupInUseError: When the group has members.
        GroupError: When another client has committed since.
    """
    found = [(records, record) for records in recorded for record in records.all()]
    # An undo that was killed has left what later applies have added.
    added = {(tp, record.after[tp]) for _, record in found for tp in _new(record)}
    held: dict[TopicPartition, Committed] | None = None
    if not apply:
        held = groups.committed(group, sorted({tp for _, record in found for tp in record.after}))
    done = []
    for records, record in reversed(found):
        if not record.is_undone:
            undone = _undo(record, records, groups, apply=apply, held=held, added=added)
            done.append(undone)
            held = None if held is None else {**held, **undone.back}
    return done


def _undo(
    record: GroupRecord,
    records: GroupRecords,
    groups: ConsumerGroups,
    *,
    apply: bool,
    held: Mapping[TopicPartition, Committed] | None = None,
    added: Collection[tuple[TopicPartition, int]] = (),
) -> Undone:
    """Show, and with `apply` restore, the offsets before an apply.

    Args:
        held: The offsets that the group has once later applies are undone; None to ask Kafka.
        added: Offsets that this and other applies have added where there were none.
    """
    group = record.group
    groups.idle(group, "--undo")
    now = groups.committed(group, record.after) if held is None else held
    now = {tp: now[tp] for tp in record.after if tp in now}
    current = offsets_of(now)
    moved = record.moved(current)
    if moved:
        raise GroupError(
            f"group {group}: {'; '.join(moved[:10])}{' …' if len(moved) > 10 else ''}; another "
            f"client has committed since {record.written_at}, expected the offsets that apply "
            f"committed. Nothing was changed; the previous offsets are in {record.path}; set them "
            "with kafka-consumer-groups.sh --reset-offsets"
        )
    back = {tp: at for tp, at in record.before.items() if now.get(tp) != at}
    left = [tp for tp in _new(record) if tp in current]
    # Apply created the group, and the group has no offsets other than those from applies.
    is_ours = bool(left) and not record.group_existed
    if is_ours:
        others = groups.all_committed(group).items()
        is_ours = all(tp in record.after or (tp, at.offset) in added for tp, at in others)
    left = [] if is_ours else left
    if not apply:
        return Undone(record, "planned", back, left)
    if is_ours:
        groups.delete(group)
    groups.commit(group, back)
    records.mark_undone(record)
    rest = "all" if not left else f"all but {len(left):,} partitions"
    say(f"translate-group {group}: restored {rest} to the state before {record.written_at}")
    return Undone(record, "undone", back, left)


def _new(record: GroupRecord) -> list[TopicPartition]:
    """Return the partitions that had no committed offset before."""
    return sorted(record.after.keys() - record.before.keys())
