"""Plan where a consumer group continues in the target of a republish, using Kafka's offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ArchiveError, ConfigError, TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups, offsets_of
from kafka_drain.kafka.identity import (
    is_other_cluster,
    is_other_topic,
    is_told,
    topic_id_of,
)
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.groups.archived import ArchivedOffsets
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.groups.translation import (
    TranslationPlan,
    check_held,
    parse_offsets,
    plan_translation,
    untouched,
    with_metadata,
)
from kafka_drain.republish.planning.follow import runs_of
from kafka_drain.republish.planning.placement import ORIGINAL
from kafka_drain.republish.planning.plan import RepublishPlan, Target
from kafka_drain.republish.planning.runs import RepublishRun, list_runs, named_runs
from kafka_drain.republish.verifying.offset_map import (
    OffsetMap,
    PartitionMap,
    originals_map,
    started_map,
)
from kafka_drain.storage.typed_json import reason_of


def find_run(archive: Archive, name: str | None) -> RepublishRun:
    """Return the republish with a given name, or the only one that has an offset map.

    Runs of drills don't count: their targets are gone.

    Raises:
        ConfigError: When there is none, or several and no name was given; lists them.
    """
    if name:
        for run in named_runs(archive.state, name):
            if run.offset_map() is not None:
                return run
    made = (run for run in list_runs(archive.state) if not run.is_of_drill)
    runs = [run for run in made if run.offset_map() is not None]
    if len(runs) == 1 and not name:
        return runs[0]
    by_age = dict.fromkeys((run.key for run in runs), "")
    for run in runs:
        with suppress(ArchiveError):
            by_age[run.key] = plan.created_at if (plan := run.plan()) else ""
    listed = ", ".join(sorted(by_age, key=lambda key: (by_age[key], key))) or "none"
    raise ConfigError(
        (f"run {name!r} has no offset map in" if name else "no --run was given for")
        + f" {archive.root}; runs with an offset map, newest last: {listed}; "
        + ("give one with --run" if runs else "verify a republish first, which writes the map")
    )


def read_map(run: RepublishRun) -> OffsetMap:
    """Read the offset map of a republish.

    Raises:
        ArchiveError: When it was changed or removed, or is another run's.
    """
    content = run.offset_map()
    try:
        # A map that was removed since is reported like a changed one.
        found = OffsetMap.parse(content or b"")
        if found.run != run.key:
            raise ValueError(f"it is of run {found.run}")
        return found
    except ValueError as error:
        raise ArchiveError(
            f"{run.folder / 'offset-map.json'} was changed ({reason_of(error)}), expected the map "
            "that verify wrote; run verify again or restore it from a copy"
        ) from error


#: The topics of a run by name, and what `_other_maps` returns of them.
Beside: TypeAlias = tuple[
    dict[str, Target], tuple[list[OffsetMap], list[OffsetMap], set[str | int]]
]


def look_beside(
    archive: Archive, run: RepublishRun, offset_map: OffsetMap, cluster: KafkaCluster
) -> Beside:
    """Read where a run, and all others that sent to the same topics, have sent records.

    Raises:
        ArchiveError: When the plan of a run that has sent is missing: its records may be anywhere.
    """
    into = _targets(archive, run, cluster)
    return into, _other_maps(archive, run, offset_map, into)


def plan_group(
    archive: Archive,
    run: RepublishRun,
    offset_map: OffsetMap,
    cluster: KafkaCluster,
    groups: ConsumerGroups,
    records: GroupRecords,
    *,
    group: str,
    to_group: str,
    source: KafkaCluster | None = None,
    offsets_file: str = "",
    archived: ArchivedOffsets | None = None,
    apply: bool = False,
    beside: Beside | None = None,
) -> TranslationPlan:
    """Plan a group's offsets in the target of a republish.

    Args:
        archive: The archive that was republished.
        offset_map: The map from source offsets to target offsets.
        cluster: The target cluster.
        groups: The target cluster's consumer groups.
        records: Records of what was applied to the group that gets the new offsets.
        group: The group whose offsets are translated.
        to_group: The group that gets the new offsets.
        source: The cluster that was drained; None if it is the target cluster.
        offsets_file: CSV file with the group's offsets in the source, instead of asking the source.
        archived: The group's offsets in the source as the archive has them, instead of asking it.
        apply: Whether the new offsets will be committed afterwards.
        beside: The answer of `look_beside`, which is the same for all groups; None to look.

    Returns:
        The plan, with notes for the user.

    Raises:
        ConfigError: When the source isn't the cluster that was drained, the file can't be read, or
            there is nothing to translate.
        TopicError: When a topic was recreated, or the target doesn't hold an offset.
        GroupError: When Kafka answers a request about a group with an error.
    """
    notes: list[str] = []
    into, (begun, others, placements) = beside or look_beside(archive, run, offset_map, cluster)
    is_original = placements == {ORIGINAL}
    originals = _originals(archive, cluster, offset_map, [*begun, *others])
    if begun or others or originals:
        offset_map = offset_map.joined([*originals, *begun, *others])
    refuse_rewritten(offset_map)
    if others:
        runs = "1 other run" if len(others) == 1 else f"{len(others):,} other runs"
        notes.append(
            f"{runs} of this archive sent to the same topics; their records are included, so that "
            "none of them is skipped"
        )
    if begun:
        names = [each.run for each in begun]
        notes.append(
            f"no map says where {', '.join(names[:10])}{' …' if len(names) > 10 else ''} put its "
            "records, so they count from where the run started. If it is still going, let it "
            "finish, and fewer records will be read again"
        )
    ends: dict[TopicPartition, int] = {}
    metadata: Mapping[TopicPartition, str] = {}
    is_outdated = False
    if archived is not None:
        offset_map = _of_incarnations(offset_map, archived.topic_ids)
        archived.check_topics(
            {tp: offset_map.of(tp)[-1].source_topic_id for tp in offset_map.sources()}
        )
        committed, metadata = archived.committed, archived.metadata
        is_outdated = archived.is_outdated(archive.snapshot())
        notes.append(archived.note())
    elif offsets_file:
        committed = parse_offsets(_read(offsets_file), group, offsets_file)
    else:
        source = source or cluster
        found = source.cluster_id()
        _check_source(archive, source, found)
        is_in_place = found == offset_map.cluster_id and to_group == group
        record = records.newest_open() if is_in_place else None
        targets = {partition.target for partition in offset_map.partitions}
        if record is not None and targets & set(offset_map.sources()):
            # Applying has overwritten the offsets that were translated: use the recorded ones.
            notes.append(f"translating the offsets from before {record.written_at}")
            committed = dict(record.sources)
            metadata = {tp: at.metadata for tp, at in record.before.items()}
        else:
            there = {tp.topic for tp in offset_map.sources()}
            offset_map = _of_incarnations(offset_map, source.ids_of(there))
            found_there, ends = _ask_source(offset_map, source, group)
            committed = offsets_of(found_there)
            metadata = {tp: at.metadata for tp, at in found_there.items()}
        if not is_in_place:
            described = ConsumerGroups(source.config).describe(group)
            if not described.is_idle:
                notes.append(
                    f"group {group} {described.who()} in the source; records that it reads from "
                    "now on will be read again by the target's consumers"
                )
    plan = plan_translation(
        offset_map,
        group=group,
        to_group=to_group,
        committed=committed,
        is_original=is_original,
        compacted={target.topic for target in into.values() if target.is_compacted},
        source_ends=ends,
        is_outdated=is_outdated,
    )
    plan = _with_untouched(archive, into, offset_map, cluster, plan, is_original=is_original)
    plan = with_metadata(plan, metadata)
    _check_targets(run, into, cluster, plan)
    notes += _unmapped(run, offset_map)
    described = groups.describe(to_group)
    if not described.is_idle and not apply:
        notes.append(f"group {to_group} {described.who()}; stop it before you --apply")
    current = offsets_of(groups.committed(to_group, plan.after))
    return replace(plan.with_current(current), notes=(*plan.notes, *notes))


def refuse_rewritten(offset_map: OffsetMap) -> None:
    """Refuse the map of a log that was rewritten while it was archived.

    Records before and after have the same offsets; the map of one incarnation alone would skip
    those of the other, or repeat them.

    Raises:
        ConfigError: Names the partitions.
    """
    ids: dict[TopicPartition, set[str]] = {}
    for part in offset_map.partitions:
        ids.setdefault(part.source, set()).add(part.source_topic_id)
    rewritten = [str(tp) for tp, own in ids.items() if len({*map(topic_id_of, own)}) < len(own)]
    if rewritten:
        raise ConfigError(
            f"Kafka's log of {', '.join(sorted(rewritten)[:10])} was rewritten after it was "
            "archived, and records of both logs were republished: what a group has read of them "
            "can't be told by its offsets. Set the group's offsets in the target by a time, with "
            "kafka-consumer-groups.sh --reset-offsets --to-datetime. Nothing was changed"
        )


def _refuse_left_out(plan: RepublishPlan) -> None:
    """Refuse a run that left records out: a group would go on without ever having read them.

    Raises:
        ConfigError: Names the run.
    """
    if plan.change is not None and plan.change["dropped"]:
        raise ConfigError(
            f"run {plan.key} left out {plan.change['dropped']:,} records (filter, or a function), "
            "so that a group which continues in its target would never read them. Translate groups "
            "to the target of a run that leaves none out. Nothing was changed"
        )


def _targets(archive: Archive, run: RepublishRun, cluster: KafkaCluster) -> dict[str, Target]:
    """Return the topics that a run has sent to, by name; of a mirror's run, those of the mirror.

    A run of a mirror has only the topics that had new records. Those of its other runs count as
    they were when the first of these sent to them, unless they were deleted since.

    Raises:
        ArchiveError: When the plan of a run that has sent is missing: its records may be anywhere.
    """
    chosen = run.require_plan()
    found = {target.topic: target for target in chosen.targets}
    if chosen.through is None:
        return found
    beside: dict[str, Target] = {}
    for other in runs_of(archive, run.key.rpartition(".")[0]):
        if other.is_opened or other.has_ended:
            for target in other.require_plan().targets:
                beside.setdefault(target.topic, target)
    there = cluster.ids_of(beside.keys() - found.keys())
    same = {name: beside[name] for name, id in there.items()}
    return found | {n: t for n, t in same.items() if not is_other_topic(t.id, there[n])}


def _other_maps(
    archive: Archive, run: RepublishRun, offset_map: OffsetMap, into: Mapping[str, Target]
) -> tuple[list[OffsetMap], list[OffsetMap], set[str | int]]:
    """Return maps of other runs to the same topics, oldest first.

    A mirror consists of many runs, as does a backfill: a group may not have reached the records of
    the last one.

    Args:
        into: The topics whose records count, by name.

    Returns:
        Maps of runs that have started to send but have no usable map, the maps of finished runs,
        and all their placements with the run's own.

    Raises:
        ArchiveError: When the plan of a run that has sent is missing: its records may be anywhere.
    """
    chosen = run.require_plan()
    _refuse_left_out(chosen)
    targets = {(target.topic, target.id) for target in into.values()}
    mirror = run.key.rpartition(".")[0]
    placements = {chosen.placement}
    begun: list[tuple[str, OffsetMap]] = []
    found: list[tuple[str, OffsetMap]] = []
    # Others may have sent from the archive's own folder, too: there, a name is another run's.
    places = [archive.state, *([archive.root] if archive.state != archive.root else [])]
    for other in (other for place in places for other in list_runs(place)):
        is_beside = other.root == run.root
        if not (other.is_opened or other.has_ended):
            continue
        is_of_mirror = (
            chosen.through is not None and is_beside and other.key.rpartition(".")[0] == mirror
        )
        try:
            plan = other.require_plan()
        except ArchiveError:
            if is_of_mirror or not _has_sent_elsewhere(other, offset_map.cluster_id, targets):
                raise
            continue
        if is_other_cluster(plan.cluster_id, offset_map.cluster_id):
            continue
        if is_of_mirror:
            # One that left out everything has no target.
            _refuse_left_out(plan)
        same = {t.topic for t in plan.targets if (t.topic, t.id) in targets}
        if not same:
            continue
        _refuse_left_out(plan)
        placements.add(plan.placement)
        if not _has_places(other):
            begun.append((plan.created_at, _within(started_map(plan), same)))
        elif not (is_beside and other.key == run.key):
            found.append((plan.created_at, _within(read_map(other), same)))
    begun.sort(key=_age)
    found.sort(key=_age)
    return [there for _, there in begun], [there for _, there in found], placements


def _has_sent_elsewhere(
    run: RepublishRun, cluster_id: str, targets: Collection[tuple[str, str]]
) -> bool:
    """Return whether a run's receipt says that it has sent nothing to topics of a cluster.

    Args:
        targets: The topics and their ids.
    """
    receipt = run.receipt()
    if receipt is None:
        return False
    if is_other_cluster(receipt.get("cluster_id", ""), cluster_id):
        return True
    ids = dict(targets)
    return all(
        row["target_topic"] not in ids
        or is_other_topic(ids[row["target_topic"]], row.get("target_topic_id", ""))
        for row in receipt["sent"]
    )


def _originals(
    archive: Archive, cluster: KafkaCluster, offset_map: OffsetMap, others: list[OffsetMap]
) -> list[OffsetMap]:
    """Return maps of the original records of topics that were republished into themselves."""
    if is_other_cluster(archive.snapshot().document.cluster_id, offset_map.cluster_id):
        return []
    joined = offset_map.joined(others)
    incarnations = {part.incarnation for part in joined.partitions}
    in_place = {part.target for part in joined.partitions} & set(joined.sources())
    described = cluster.topics({tp.topic for tp in in_place})
    same = [
        tp
        for tp in in_place
        if any(
            source == tp and not is_other_topic(topic_id, described[tp.topic].id)
            for source, topic_id in incarnations
        )
    ]
    if not same:
        return []
    first, end = cluster.earliest(same), cluster.latest(same, "read_uncommitted")
    return [originals_map(joined, {tp: OffsetRange(first[tp], end[tp]) for tp in same})]


def _of_incarnations(offset_map: OffsetMap, topic_ids: Mapping[str, str]) -> OffsetMap:
    """Return a map in which the incarnations of topics that offsets belong to are the last ones.

    The run that was named may have restored older records, after another one had sent those.

    Args:
        topic_ids: Ids of the topics when the offsets were committed.
    """

    def is_theirs(part: PartitionMap) -> bool:
        seen, counted = topic_ids.get(part.source.topic, ""), part.source_topic_id
        return is_told(seen) and is_told(counted) and not is_other_topic(counted, seen)

    return replace(offset_map, partitions=tuple(sorted(offset_map.partitions, key=is_theirs)))


def _age(found: tuple[str, OffsetMap]) -> str:
    return found[0]


def _within(offset_map: OffsetMap, topics: set[str]) -> OffsetMap:
    kept = tuple(part for part in offset_map.partitions if part.target.topic in topics)
    return replace(offset_map, partitions=kept)


def _has_places(run: RepublishRun) -> bool:
    """Return whether a run's map says where all records are that it has sent.

    It doesn't until the run has finished. With `at_least_once`, a retried task may have put records
    out of order, and these have no place in the map.
    """
    receipt = run.receipt()
    if receipt is None or run.offset_map() is None:
        return False
    verification = receipt["verification"]
    return verification is not None and not verification["out_of_order"]


def _with_untouched(
    archive: Archive,
    into: Mapping[str, Target],
    offset_map: OffsetMap,
    cluster: KafkaCluster,
    plan: TranslationPlan,
    *,
    is_original: bool,
) -> TranslationPlan:
    """Add offsets in target partitions that got none of the group's records.

    Not in topics of the archive's own cluster that were drained: there, the group has its own.
    """
    is_in_place = not is_other_cluster(
        archive.snapshot().document.cluster_id, offset_map.cluster_id
    )
    drained = {tp.topic for tp in offset_map.sources()} if is_in_place else set()
    begun = {
        TopicPartition(target.topic, partition): at
        for target in into.values()
        for partition, at in enumerate(target.start)
    }
    # Partitions that were added since begin with what arrives.
    described = cluster.topics(cluster.existing(into.keys()))
    there = (TopicPartition(name, p) for name, topic in described.items() for p in topic.partitions)
    begun |= {tp: 0 for tp in there if tp not in begun}
    starts = {
        tp: at for tp, at in begun.items() if tp.topic not in drained and tp not in plan.after
    }
    rows = untouched(offset_map, plan.committed, starts, is_original=is_original)
    earliest = cluster.earliest([row.target for row in rows])
    # Retention may have removed records of others.
    rows = [
        replace(row, translated=at, offset=at)
        for row in rows
        for at in [max(row.offset, earliest[row.target])]
    ]
    return replace(plan, rows=(*plan.rows, *rows))


def _check_source(archive: Archive, source: KafkaCluster, found: str) -> None:
    drained = archive.snapshot().document.cluster_id
    if is_other_cluster(drained, found):
        raise ConfigError(
            f"Kafka at {source.config.bootstrap_servers} is cluster {found}, expected the drained "
            f"cluster {drained} for the offsets in the source; give --source-bootstrap-servers, or "
            "--offsets-file if that cluster is gone"
        )


def _ask_source(
    offset_map: OffsetMap, source: KafkaCluster, group: str
) -> tuple[dict[TopicPartition, Committed], dict[TopicPartition, int]]:
    """Return a group's committed offsets in the source, and the ends of those partitions."""
    asked = ConsumerGroups(source.config)
    sources = offset_map.sources()
    described = source.topics(source.existing({tp.topic for tp in sources}))
    # Those that no record was sent of count, too: later ones may come.
    there = {TopicPartition(name, p) for name, topic in described.items() for p in topic.partitions}
    committed = asked.committed(group, sorted(there))
    if not committed:
        # Offsets of other topics: only used by the error message that follows.
        return asked.all_committed(group), {}
    for tp in sorted(committed.keys() & set(sources)):
        drained, now = offset_map.of(tp)[-1].source_topic_id, described[tp.topic].id
        if is_other_topic(drained, now):
            raise TopicError(
                f"topic {tp.topic} was recreated after it was drained (id {now}, drained "
                f"{drained}): offsets that group {group} has committed there refer to other "
                "records; give the group's earlier offsets with --offsets-file"
            )
    return committed, source.latest(committed, "read_committed")


def _check_targets(
    run: RepublishRun, into: Mapping[str, Target], cluster: KafkaCluster, plan: TranslationPlan
) -> None:
    """Check that the target topics are the ones republished to, and that they hold the offsets."""
    after = plan.after
    described = cluster.topics({tp.topic for tp in after})
    ids = {name: target.id for name, target in into.items()}
    for tp in after:
        topic = described[tp.topic]
        known = ids.get(tp.topic) or topic.id
        if is_other_topic(known, topic.id) or tp.partition not in topic.partitions:
            raise TopicError(
                f"topic {tp.topic} has id {topic.id} and {len(topic.partitions)} partitions, "
                f"expected id {known} with partition {tp.partition}; it was recreated after run "
                f"{run.key}. Republish again and translate with that run. Nothing was changed"
            )
    check_held(after, cluster.earliest(after), cluster.latest(after, "read_uncommitted"))


def _unmapped(run: RepublishRun, offset_map: OffsetMap) -> list[str]:
    """Return a note about source partitions whose records have no place in the map."""
    sent = {shard.source for shard in run.require_plan().shards}
    gone = sorted(sent.difference(offset_map.sources()))
    if not gone:
        return []
    return [
        f"the compacted target has no record left that run {run.key} sent from "
        f"{', '.join(map(str, gone))}"
    ]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} isn't text: {error}") from error
