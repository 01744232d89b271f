"""Plan and apply the recovery of a cluster from an archive's descriptions of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.cluster_documents import Moment
from kafka_drain.archive.cluster_moments import MOMENTS, moment_at, read_settings
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.topic_settings import noted_topic_settings
from kafka_drain.errors import (
    ArchiveError,
    AuthorizationError,
    ConfigError,
    KafkaUnavailableError,
    TopicError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_changes import ClusterChanges
from kafka_drain.kafka.cluster_state import (
    ASKED,
    Acl,
    ClusterState,
    Part,
    PartOutcome,
    Settings,
    TopicState,
)
from kafka_drain.kafka.defaults import inherited_from
from kafka_drain.kafka.describing import ClusterDescriber
from kafka_drain.kafka.fitting import THROTTLES
from kafka_drain.kafka.identity import is_other_cluster
from kafka_drain.kafka.keeping import EVERYWHERE, KEEPING, is_keeping
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import say
from kafka_drain.recovery.commands import Commands
from kafka_drain.recovery.diff import Archived, Difference, TargetCluster, compare, not_compared
from kafka_drain.recovery.restored import Restored, SentTo, Translated
from kafka_drain.recovery.safety import lost_defaults
from kafka_drain.republish.groups.group_records import GroupRecords, recorded_groups
from kafka_drain.republish.planning.runs import RepublishRun, list_runs, run_key

#: Number of topics that a message names.
_SHOWN = 10


@dataclass(frozen=True)
class RecoveryPlan:
    """The differences between an archive's cluster and a target.

    Attributes:
        archived: The archive's description.
        target_id: Id of the target cluster.
        rows: The differences.
        not_compared: Why some parts can't be compared, by part.
    """

    archived: Archived
    target_id: str
    rows: tuple[Difference, ...]
    not_compared: Mapping[str, str]


def read_archived(archive: Archive, at: datetime | None) -> Archived:
    """Read an archive's description of its cluster.

    Args:
        at: Descriptions that aren't later count; None for the newest.

    Raises:
        ConfigError: When nothing was described by then.
        ArchiveError: When the folder isn't an archive.
        ManifestInvalidError: When it is damaged, so that it is unknown which records it has.
    """
    root = archive.root
    settings, as_of, groups = Settings(), dict[Part, str](), None
    newest, incomplete = moment_at(root, at), dict[Part, str]()
    for part in ASKED:
        moment = moment_at(root, at, part)
        if moment is None or newest is None:
            continue
        as_of[part] = moment.answered_at
        if why := _incomplete(part, moment, newest):
            incomplete[part] = why
        if part == Part.GROUPS:
            groups = moment.groups
        else:
            value = getattr(read_settings(root, moment), str(part))
            settings = replace(settings, **{str(part): value})
    if newest is None or not as_of:
        raise ConfigError(
            f"{root} has no description of its cluster{f' by {at.isoformat()}' if at else ''}: "
            "validations with Kafka write one unless the pipeline's describe_cluster is empty"
        )
    described = {topic.name for topic in settings.topics or ()}
    snapshot = archive.snapshot()
    held = held_topics(snapshot, described | snapshot.document.topics.keys())
    gone = _described_before(snapshot, {name: held[name] for name in held.keys() - described})
    topics = (*_before_restores(snapshot, settings.topics or ()), *(topic for topic, _ in gone))
    return Archived(
        replace(settings, topics=tuple(sorted(topics, key=lambda topic: topic.name))),
        groups,
        newest.parts,
        as_of,
        held,
        {topic.name: since for topic, since in gone},
        incomplete,
    )


def _incomplete(part: Part, moment: Moment, newest: Moment) -> str:
    """Return why a part may lack something of the cluster as it was last; empty if it doesn't.

    Args:
        moment: The newest moment at which it was captured.
        newest: The newest moment.
    """
    found = []
    if detail := moment.parts[part].detail:
        found.append(f"not all of it is in the description of {moment.answered_at}: {detail}")
    if newest.number != moment.number:
        result = newest.parts[part]
        why = f"{result.outcome} {result.detail}".strip()
        found.append(f"as of {moment.answered_at}, the last description that has it; since: {why}")
    return "; ".join(found)


def held_topics(snapshot: Snapshot, topics: Collection[str]) -> dict[str, int]:
    """Return the topics of which an archive has records, each with its number of partitions.

    Args:
        snapshot: The archive.
        topics: Those that matter.

    Raises:
        ReceiptError: When a receipt is damaged.
        ManifestInvalidError: When the archive is damaged otherwise.
    """
    held: dict[str, int] = {}

    def note(tp: TopicPartition, records: int) -> None:
        if records and tp.topic in topics:
            held[tp.topic] = max(held.get(tp.topic, 0), tp.partition + 1)

    receipts = [*filter(None, (each.last_receipt() for each in snapshot.generations))]
    receipts += [window.receipt for window in snapshot.fold.windows]
    for part in (part for receipt in receipts for part in receipt.partitions):
        note(part.tp, part.records_so_far)
    if set(topics) - held.keys():
        # The newest receipts don't name a topic that was deleted before, or name it as empty.
        for file in archive_files(snapshot):
            for content in file.sealed.contents if file.sealed else ():
                note(content.tp, content.records)
    return held


def _before_restores(snapshot: Snapshot, topics: Collection[TopicState]) -> tuple[TopicState, ...]:
    """Return topics as they were before they were created for a restore, where that was described.

    One that was restored to its own cluster is described with what the restore needs.
    """
    kept = {topic.name: topic.partitions for topic in topics if is_keeping(topic.config)}
    before = {topic.name: topic for topic, _ in _described_before(snapshot, kept)}
    return tuple(before.get(topic.name, topic) for topic in topics)


def _described_before(
    snapshot: Snapshot, partitions: Mapping[str, int]
) -> list[tuple[TopicState, str]]:
    """Return topics as they were before the description that counts, and its source.

    Args:
        snapshot: The archive.
        partitions: Number of partitions of each topic in the archive.
    """
    root, wanted = snapshot.root, dict(partitions)
    found: list[tuple[TopicState, str]] = []
    # What a restore needs may be what the topic always had.
    kept: dict[str, tuple[TopicState, str]] = {}
    for moment in MOMENTS.links(root) if wanted else ():
        if moment.parts[Part.TOPICS].outcome != PartOutcome.CAPTURED:
            continue
        for topic in read_settings(root, moment).topics or ():
            each = topic, f"the description of {moment.answered_at}"
            if is_keeping(topic.config):
                kept.setdefault(topic.name, each)
            elif wanted.pop(topic.name, None) is not None:
                found.append(each)
        if not wanted:
            break
    noted = noted_topic_settings(root) if wanted else {}
    for name in wanted.keys() & noted.keys() - kept.keys():
        settings = noted[name]
        count = max(settings.partitions, wanted[name])
        id = snapshot.document.topics.get(name, "")
        topic = TopicState(name, id, count, settings.replication_factor, settings.config, {})
        found.append((topic, "the last drain that saw it"))
    return [*found, *(kept[name] for name in wanted if name in kept)]


@dataclass(frozen=True)
class _Begun:
    """What is known of a run that was planned: when, to which cluster, and what it sends."""

    at: str
    cluster_id: str
    sends: Sequence[SentTo]


def _begun(run: RepublishRun, *, is_over: bool) -> _Begun | None:
    """Return what is known of a run; None if it wasn't planned, or nothing says what it did.

    Raises:
        ArchiveError: When its plan was changed, and it may go on.
    """
    try:
        plan = run.plan()
    except ArchiveError:
        if not is_over:
            raise
        plan = None
    if plan is not None:
        targets = {
            (shard.source.topic, shard.target_topic): plan.target(shard.target_topic).id
            for shard in plan.shards
        }
        at, cluster_id = plan.created_at, plan.cluster_id
        name, follows = plan.run, plan.through is not None
    else:
        # What an abandoned run has sent doesn't count.
        receipt = run.receipt()
        if receipt is None:
            return None
        targets = {
            (each["source_topic"], each["target_topic"]): each.get("target_topic_id", "")
            for each in receipt["sent"]
        }
        at, cluster_id = receipt["started_at"], receipt.get("cluster_id", "")
        name, follows = receipt["run"], receipt["through"] is not None
    ended = run.has_ended
    sends = [
        SentTo(run.key, source, target, topic_id, ended, name, follows)
        for (source, target), topic_id in sorted(targets.items())
    ]
    return _Begun(at, cluster_id, sends)


def read_restored(root: UPath, cluster_id: str) -> Restored:
    """Read the restores of an archive's republishes to a cluster; those of drills don't count.

    Args:
        root: Folder of the runs' state: the archive's, or another.

    Raises:
        ArchiveError: When the document of a run was changed; not the plan of one that is over.
    """
    sent: list[tuple[str, SentTo]] = []
    groups: dict[str, list[Translated]] = {}
    taken: set[str] = set()
    for run in list_runs(root):
        is_over = run.has_ended or run.is_abandoned
        if is_over or run.is_opened:
            taken.add(run.key)
        begun = _begun(run, is_over=is_over)
        if begun is None or run.is_of_drill or is_other_cluster(begun.cluster_id, cluster_id):
            continue
        if run.has_ended or (run.is_opened and not run.is_abandoned):
            sent += ((begun.at, each) for each in begun.sends)
        for group in recorded_groups(run.folder):
            record = GroupRecords(run.folder, group).newest_open()
            if record is not None:
                groups.setdefault(record.from_group, []).append(
                    Translated(
                        run.key,
                        record.group,
                        record.written_at,
                        record.is_applied,
                        frozenset(record.sources),
                        record.after,
                    )
                )
    sent.sort(key=lambda entry: entry[0])
    names = (f"restore-{number}" if number > 1 else "restore" for number in count(1))
    new_name = next(name for name in names if run_key(name) not in taken)
    return Restored([each for _, each in sent], groups, new_name)


def plan_recovery(
    archive: Archive, cluster: KafkaCluster, commands: Commands, at: datetime | None = None
) -> RecoveryPlan:
    """Compare an archive's description of its cluster with a target; changes nothing.

    Args:
        cluster: The target.
        commands: The commands that the plan names.
        at: Descriptions that aren't later count; None for the newest.

    Raises:
        ConfigError: When the archive describes no cluster.
        AuthorizationError: When this user may not see a topic's settings.
        KafkaUnavailableError: When the target doesn't answer.
    """
    archived = read_archived(archive, at)
    restored = read_restored(archive.state, cluster.cluster_id())
    topics = archived.settings.topics or ()
    # Groups may be translated, and records be sent, to topics of other names.
    others = {tp.topic for each in restored.groups.values() for one in each for tp in one.after}
    others |= {each.topic for each in restored.sent}
    all_topics = {topic.name for topic in topics} | archived.held.keys()
    existing = cluster.existing(others | all_topics)
    names = [topic.name for topic in topics if topic.name in existing]
    groups = {group.name for group in archived.groups or ()}
    asked = sorted(existing)
    state = ClusterDescriber(cluster.config).describe(
        asked,
        ASKED,
        lambda acl: acl.is_about(all_topics, groups),
        groups | {one.group for each in restored.groups.values() for one in each},
    )
    if not state.cluster_id:
        raise KafkaUnavailableError(
            f"Kafka at {cluster.config.bootstrap_servers} tells no cluster id, or doesn't describe "
            "itself now; a recovery needs both"
        )
    _refuse_untold_topics(asked, state, cluster.config.bootstrap_servers)
    missing = [topic for topic in topics if topic.name not in existing]
    values = {name: cluster.topic_config(name) for name in names}
    changes = ClusterChanges(cluster)
    brokers = inherited_from(cluster.broker_config())
    refusals = {topic.name: _refused(cluster, _wanted(topic, brokers)) for topic in missing}
    for topic in topics:
        if topic.name in existing:
            asking = _wanted(topic, brokers)
            refusals[topic.name] = _refused_changes(changes, asking, values[topic.name])
    keeping = _keeping(cluster, missing)
    target = TargetCluster(state, values, refusals, keeping, restored, brokers)
    rows = tuple(compare(archived, target, commands))
    return RecoveryPlan(archived, state.cluster_id, rows, not_compared(archived))


def _refuse_untold_topics(asked: Iterable[str], state: ClusterState, servers: str) -> None:
    """Refuse topics that exist, but weren't described: they would look like missing ones.

    Raises:
        AuthorizationError: When this user may not see one.
        KafkaUnavailableError: When the target didn't answer about one.
    """
    told = {topic.name for topic in state.settings.topics or ()}
    untold = [name for name in asked if name not in told]
    if not untold:
        return
    result = state.parts[Part.TOPICS]
    why = result.detail
    if result.outcome is not PartOutcome.CAPTURED:
        why = f"{result.outcome} {result.detail}".strip()
    named = f"{', '.join(untold[:_SHOWN])}{' …' if len(untold) > _SHOWN else ''}"
    text = f"Kafka at {servers} doesn't describe topics {named}, which it has ({why})"
    if str(PartOutcome.NOT_AUTHORISED) in why:
        raise AuthorizationError(
            f"{text}; add Describe and DescribeConfigs on them, then plan again"
        )
    raise KafkaUnavailableError(f"{text}; plan again")


def _wanted(topic: TopicState, brokers: Mapping[str, str]) -> TopicState:
    """Return a topic with the settings that it is to have where brokers set something else."""
    return replace(topic, inherited={**lost_defaults(topic, brokers), **topic.inherited})


def _refused(cluster: KafkaCluster, topic: TopicState) -> dict[str, str]:
    """Return a missing topic's settings that the target refuses."""
    asked = TopicSettings(
        topic.partitions,
        min(topic.replication_factor, cluster.brokers()),
        config={name: value for name, value in topic.effective.items() if name not in THROTTLES},
    )
    try:
        return cluster.refused_settings(topic.name, asked)
    except AuthorizationError:
        # This user can compare, but not create: refusals are reported when the plan is applied.
        return {}


def _refused_changes(
    changes: ClusterChanges, topic: TopicState, values: Mapping[str, str]
) -> dict[str, str]:
    """Return an archived topic's settings that the target refuses for the one it has."""
    differing = {
        name: value
        for name, value in topic.effective.items()
        if name not in THROTTLES and name in values and values[name] != value
    }
    try:
        return changes.refused_values(topic.name, differing)
    except AuthorizationError:
        return {}


def _keeping(cluster: KafkaCluster, missing: list[TopicState]) -> Mapping[str, str]:
    """Return the settings for a restore that the target takes."""
    for topic in missing:
        replicas = min(topic.replication_factor, cluster.brokers())
        with suppress(AuthorizationError):
            return cluster.keeping_settings(topic.name, TopicSettings(topic.partitions, replicas))
    return EVERYWHERE if missing else KEEPING


def apply_rows(rows: Iterable[Difference], cluster: KafkaCluster) -> tuple[int, list[str]]:
    """Apply differences to a target; each is one request, and may be applied again.

    A row that Kafka refuses doesn't stop the others.

    Returns:
        The number of rows that were applied, and why others weren't.

    Raises:
        KafkaUnavailableError: When the target doesn't answer; what was applied stays.
    """
    changes, done, refused = ClusterChanges(cluster), 0, []
    for row in rows:
        try:
            _apply(row, cluster, changes)
        except (AuthorizationError, TopicError) as error:
            refused.append(str(error))
            continue
        done += 1
        say(f"plan-recovery: {row.action} {row.kind} {row.name} {row.setting}".rstrip())
    return done, refused


def _apply(row: Difference, cluster: KafkaCluster, changes: ClusterChanges) -> None:
    if isinstance(row.item, Acl):
        changes.add_acl(row.item)
    elif isinstance(row.item, TopicState):
        if not cluster.create_topic(row.name, new_topic(row.item)):
            raise TopicError(f"topic {row.name} exists by now, and was left as it is; plan again")
    elif row.sets:
        changes.set_topic_config(row.name, row.sets)


def new_topic(topic: TopicState) -> TopicSettings:
    """Return the settings with which a topic is created on a target."""
    return TopicSettings(topic.partitions, topic.replication_factor, config=topic.effective)
