"""`kafka-drain translate-group`: a consumer group goes on where it was, in what was republished."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kafka_drain.archive import Archive
from kafka_drain.commands.arguments import add_archive, add_kafka, json_file, the_cluster
from kafka_drain.consumer_groups import Committed, ConsumerGroups
from kafka_drain.errors import ArchiveError, ConfigError, GroupError, TopicError
from kafka_drain.exit_codes import FAILED, OK
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.kafka_config import KafkaConfig
from kafka_drain.offsets import TopicPartition
from kafka_drain.republishing.group_records import GroupRecord, GroupRecords
from kafka_drain.republishing.group_translation import (
    TranslationPlan,
    check_held,
    parse_offsets,
    plan_translation,
)
from kafka_drain.republishing.offset_map import OffsetMap
from kafka_drain.republishing.runs import RepublishRun, list_runs, run_key
from kafka_drain.terminal import answer, say

__all__ = ["add_arguments", "run"]


def add_arguments(added: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(added)
    add_kafka(added)
    added.add_argument(
        "--run", metavar="KEY", help="the republish's run; may be left out when there is one only"
    )
    added.add_argument("--group", required=True, help="group whose offsets are translated")
    added.add_argument(
        "--to-group", metavar="GROUP", help="group that gets the new offsets (the same one)"
    )
    source = added.add_mutually_exclusive_group()
    source.add_argument(
        "--offsets-file",
        metavar="FILE",
        help="CSV with the group's offsets in the source, as kafka-consumer-groups.sh "
        "--reset-offsets --export prints it; for when the source cluster is gone",
    )
    source.add_argument(
        "--source-bootstrap-servers",
        metavar="HOST:PORT",
        help="brokers of the cluster that was drained (default: the same ones)",
    )
    source.add_argument(
        "--source-kafka-config",
        metavar="FILE",
        help="JSON file with librdkafka's settings for the cluster that was drained",
    )
    action = added.add_mutually_exclusive_group()
    action.add_argument("--apply", action="store_true", help="commit the offsets")
    action.add_argument(
        "--undo", action="store_true", help="put back what was committed before the last apply"
    )


def run(options: argparse.Namespace) -> int:
    """Plan a group's offsets in the target; commit them, or put back those before."""
    archive, cluster = Archive.at(options.archive), the_cluster(options)
    archive.document()
    to_group = options.to_group or options.group
    if not to_group or not options.group:
        raise ConfigError("--group '' is not acceptable; accepted: the name of a consumer group")
    run = _find_run(archive, options.run)
    offset_map = _read_map(run)
    found = cluster.cluster_id()
    if offset_map.cluster_id != found:
        raise ConfigError(
            f"Kafka at {cluster.config.bootstrap_servers} is cluster {found}, expected cluster "
            f"{offset_map.cluster_id}, which run {run.key} republished to; correct "
            "--bootstrap-servers"
        )
    groups = ConsumerGroups(cluster.config)
    records = GroupRecords(run.folder, to_group)
    if options.undo:
        return _undo(options, records, groups, to_group)
    plan = _plan(options, archive, run, offset_map, cluster, groups, records, to_group)
    for note in plan.notes:
        say(f"translate-group {to_group}: {note}")
    if options.apply:
        result, record = _apply(plan, records, groups)
    else:
        say("dry run: nothing was changed; --apply commits these offsets")
        result, record = "planned", None
    shown = plan.to_dict() | {"result": result, "record": str(record.path) if record else None}
    answer(options, shown, _table(plan))
    return OK


def _find_run(archive: Archive, name: str | None) -> RepublishRun:
    if name:
        named = [RepublishRun(archive.root, key) for key in (name, run_key(name))]
        for run in named:
            if run.offset_map() is not None:
                return run
    runs = [run for run in list_runs(archive.root) if run.offset_map() is not None]
    if len(runs) == 1 and not name:
        return runs[0]
    by_age = {run.key: plan.created_at if (plan := run.plan()) else "" for run in runs}
    listed = ", ".join(sorted(by_age, key=lambda key: (by_age[key], key))) or "none"
    raise ConfigError(
        (f"run {name!r} has no offset map in" if name else "no --run was given for")
        + f" {archive.root}; runs with an offset map, newest last: {listed}; "
        + ("give one with --run" if runs else "verify a republish first, which writes the map")
    )


def _read_map(run: RepublishRun) -> OffsetMap:
    content = run.offset_map()
    try:
        # Whoever removed it since is told so as for a changed one.
        return OffsetMap.from_bytes(content or b"")
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(
            f"{run.folder / 'offset-map.json'} was changed ({error}), expected the map that "
            "verify wrote; run verify again or restore it from a copy"
        ) from error


def _plan(
    options: argparse.Namespace,
    archive: Archive,
    run: RepublishRun,
    offset_map: OffsetMap,
    cluster: KafkaCluster,
    groups: ConsumerGroups,
    records: GroupRecords,
    to_group: str,
) -> TranslationPlan:
    notes: list[str] = []
    ends: dict[TopicPartition, int] = {}
    if options.offsets_file:
        committed = parse_offsets(
            _read(options.offsets_file), options.group, str(options.offsets_file)
        )
    else:
        source = _source_cluster(options) or cluster
        found = source.cluster_id()
        _check_source(archive, source, found)
        is_in_place = found == offset_map.cluster_id and to_group == options.group
        record = records.newest_open() if is_in_place else None
        targets = {partition.target for partition in offset_map.partitions}
        if record is not None and targets & set(offset_map.sources()):
            # The offsets that were translated are overwritten by those that they became.
            say(f"translate-group {to_group}: offsets before {record.written_at} are translated")
            committed = dict(record.sources)
        else:
            committed, ends = _ask_source(offset_map, source, options.group)
        if not is_in_place:
            described = ConsumerGroups(source.config).describe(options.group)
            if not described.is_idle:
                notes.append(
                    f"group {options.group} {described.who()} in the source; what it reads from "
                    "now on, the target's consumers read again"
                )
    plan = plan_translation(
        offset_map,
        group=options.group,
        to_group=to_group,
        committed=committed,
        source_ends=ends,
    )
    _check_targets(run, cluster, plan)
    described = groups.describe(to_group)
    if not described.is_idle and not options.apply:
        notes.append(f"group {to_group} {described.who()}; --apply needs it to be stopped")
    current = _offsets(groups.committed(to_group, plan.after))
    return replace(plan.with_current(current), notes=(*plan.notes, *notes))


def _source_cluster(options: argparse.Namespace) -> KafkaCluster | None:
    if options.source_kafka_config:
        return KafkaCluster(KafkaConfig(json_file(options.source_kafka_config)))
    if options.source_bootstrap_servers:
        return KafkaCluster(KafkaConfig({"bootstrap.servers": options.source_bootstrap_servers}))
    return None


def _check_source(archive: Archive, source: KafkaCluster, found: str) -> None:
    drained = archive.document()["cluster_id"]
    if found != drained:
        raise ConfigError(
            f"Kafka at {source.config.bootstrap_servers} is cluster {found}, expected cluster "
            f"{drained}, which was drained, for the offsets in the source; give "
            "--source-bootstrap-servers, or --offsets-file when that cluster is gone"
        )


def _ask_source(
    offset_map: OffsetMap, source: KafkaCluster, group: str
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return what a group has committed in the source, and where those partitions end."""
    asked = ConsumerGroups(source.config)
    committed = _offsets(asked.committed(group, offset_map.sources()))
    if not committed:
        # Not what is wanted, but what the refusal names.
        return _offsets(asked.all_committed(group)), {}
    described = source.topics({tp.topic for tp in committed})
    for tp in committed:
        drained, now = offset_map.of(tp)[-1].source_topic_id, described[tp.topic].id
        if drained and drained != now:
            raise TopicError(
                f"topic {tp.topic} was made again since it was drained (id {now}, drained "
                f"{drained}): offsets that group {group} has committed there count other records; "
                "give the group's earlier offsets with --offsets-file"
            )
    return committed, source.latest(committed, "read_committed")


def _check_targets(run: RepublishRun, cluster: KafkaCluster, plan: TranslationPlan) -> None:
    """Check that the target topics are those that were republished to, and hold the offsets."""
    after = plan.after
    described = cluster.topics({tp.topic for tp in after})
    republished = run.plan()
    ids = {target.topic: target.id for target in republished.targets} if republished else {}
    for tp in after:
        topic = described[tp.topic]
        known = ids.get(tp.topic) or topic.id
        if topic.id != known or tp.partition not in topic.partitions:
            raise TopicError(
                f"topic {tp.topic} has id {topic.id} and {len(topic.partitions)} partitions, "
                f"expected id {known} with partition {tp.partition}; it was made again since run "
                f"{run.key}. Republish anew and translate with that run. Nothing was changed"
            )
    check_held(after, cluster.earliest(after), cluster.latest(after, "read_uncommitted"))


def _apply(
    plan: TranslationPlan, records: GroupRecords, groups: ConsumerGroups
) -> tuple[str, GroupRecord | None]:
    """Commit a plan's offsets; one that was applied before isn't applied again."""
    group, after = plan.to_group, plan.after
    described = groups.idle(group, "--apply")
    before = groups.committed(group, after)
    current = _offsets(before)
    newest = records.newest_open()
    # Begun or ended by an earlier call; what is committed since is no longer "before".
    record = newest if newest is not None and newest.after == after else None
    if current == after:
        if record is not None:
            records.mark_applied(record)
        since = f", applied at {record.written_at}" if record is not None else ""
        say(f"translate-group {group}: these offsets are committed already{since}; no change")
        return "already applied", record
    if record is not None and not (record.is_between(current) and not record.is_applied):
        return _applied_before(record, current)
    if record is None:
        record = records.write(plan, before, group_existed=described.exists)
    groups.commit(group, {tp: Committed(at) for tp, at in after.items() if current.get(tp) != at})
    records.mark_applied(record)
    say(
        f"translate-group {group}: committed offsets of {len(after):,} partitions; --undo puts "
        f"back what was there before, as {record.path} has it"
    )
    return "applied", record


def _applied_before(
    record: GroupRecord, current: Mapping[TopicPartition, int]
) -> tuple[str, GroupRecord]:
    """Say that a plan was applied and somebody has committed since.

    Raises:
        GroupError: When the group isn't at or after the plan's offsets.
    """
    if record.is_applied and all(current.get(tp, -1) >= at for tp, at in record.after.items()):
        say(
            f"translate-group {record.group}: applied at {record.written_at}, the group has read "
            "on since; no change"
        )
        return "already applied", record
    moved = "; ".join(record.moved(current)) or "some of it is back where it was before"
    raise GroupError(
        f"group {record.group}: {record.path} was "
        f"{'applied' if record.is_applied else 'begun'} at {record.written_at}, but {moved}; "
        "somebody else has committed since. Nothing was changed; --undo and --apply again, or set "
        "these offsets with kafka-consumer-groups.sh --reset-offsets"
    )


def _undo(
    options: argparse.Namespace, records: GroupRecords, groups: ConsumerGroups, group: str
) -> int:
    """Put back what was committed before the newest apply that isn't undone."""
    record = records.newest_open()
    if record is None:
        undone = records.all()
        if not undone:
            raise GroupError(
                f"nothing was applied to group {group} in this run, so there is nothing to undo; "
                "check --run and --to-group"
            )
        last = undone[-1]
        say(f"translate-group {group}: {last.path} was undone already; no change")
        current = _offsets(groups.committed(group, last.after))
        left = [tp for tp in _new(last) if current.get(tp) == last.after[tp]]
        return _answer_undo(options, groups, last, "already undone", {}, left)
    groups.idle(group, "--undo")
    current = _offsets(groups.committed(group, record.after))
    moved = record.moved(current)
    if moved:
        raise GroupError(
            f"group {group}: {'; '.join(moved[:10])}{' …' if len(moved) > 10 else ''}; somebody "
            f"has committed since {record.written_at}, expected what apply left. Nothing was "
            f"changed; what was before is in {record.path}, to be set with "
            "kafka-consumer-groups.sh --reset-offsets"
        )
    back = {tp: at for tp, at in record.before.items() if current.get(tp) != at.offset}
    left = [tp for tp in _new(record) if tp in current]
    if left and not record.group_existed:
        others = groups.all_committed(group).keys() - record.after.keys()
        if not others:
            # All that it has is what apply gave it, and apply made it.
            groups.delete(group)
            left = []
    groups.commit(group, back)
    records.mark_undone(record)
    rest = "all" if not left else f"all but {len(left):,} partitions"
    say(f"translate-group {group}: {rest} is as before {record.written_at}")
    return _answer_undo(options, groups, record, "undone", back, left)


def _new(record: GroupRecord) -> list[TopicPartition]:
    """Return the partitions that had no committed offset before."""
    return sorted(record.after.keys() - record.before.keys())


def _deletions(groups: ConsumerGroups, group: str, left: list[TopicPartition]) -> list[str]:
    topics: dict[str, list[str]] = {}
    for tp in left:
        topics.setdefault(tp.topic, []).append(str(tp.partition))
    return [
        f"kafka-consumer-groups.sh --bootstrap-server {groups.config.bootstrap_servers} "
        f"--group {shlex.quote(group)} --delete-offsets --topic {topic}:{','.join(partitions)}"
        for topic, partitions in topics.items()
    ]


def _answer_undo(
    options: argparse.Namespace,
    groups: ConsumerGroups,
    record: GroupRecord,
    result: str,
    back: Mapping[TopicPartition, Committed],
    left: list[TopicPartition],
) -> int:
    if left:
        # Kafka can delete single offsets (KIP-496), confluent-kafka can't. They matter only to
        # consumers that read these topics with this group; all else was put back.
        say(
            f"translate-group {record.group}: {len(left):,} partitions had no committed offset "
            "before and keep the one that apply committed, which this client can't delete; to "
            "delete them:"
        )
        for line in _deletions(groups, record.group, left):
            say(f"  {line}")
    document = {
        "run": record.run,
        "cluster_id": record.cluster_id,
        "to_group": record.group,
        "result": result,
        "record": str(record.path),
        "put_back": [
            {"topic": tp.topic, "partition": tp.partition, "offset": at.offset}
            for tp, at in sorted(back.items())
        ],
        "left": [{"topic": tp.topic, "partition": tp.partition} for tp in left],
    }

    def show(console: Console) -> None:
        table = Table("topic", "partition", "apply left", "now")
        for tp, after in sorted(record.after.items()):
            before = record.before.get(tp)
            kept = f"{after:,}" if tp in left else "none"
            now = kept if before is None else f"{before.offset:,}"
            table.add_row(tp.topic, str(tp.partition), f"{after:,}", now)
        console.print(table)

    answer(options, document, show)
    return FAILED if left else OK


def _table(plan: TranslationPlan) -> Callable[[Console], None]:
    def show(console: Console) -> None:
        table = Table(
            *("source topic", "partition", "committed", "target topic", "partition"),
            *("new offset", "committed now", "note"),
        )
        for row in plan.rows:
            table.add_row(
                row.source.topic,
                str(row.source.partition),
                _number(row.committed),
                row.target.topic,
                str(row.target.partition),
                _number(row.offset),
                _number(row.current),
                row.note,
            )
        console.print(table)

    return show


def _number(offset: int | None) -> str:
    return "none" if offset is None else f"{offset:,}"


def _offsets(committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
    return {tp: found.offset for tp, found in committed.items()}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} isn't text: {error}") from error
