"""Plan and apply the recovery of a cluster from an archive's descriptions of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from upath import UPath

from kafka_drain.archive.cluster_moments import MOMENTS, moment_at, read_settings
from kafka_drain.errors import AuthorizationError, ConfigError, KafkaUnavailableError, TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_changes import ClusterChanges
from kafka_drain.kafka.cluster_state import ASKED, Acl, Part, Settings, TopicState
from kafka_drain.kafka.describing import ClusterDescriber
from kafka_drain.kafka.fitting import THROTTLES, Fitted, fit
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.recovery.diff import KEEP, Action, Archived, Kind, Row, Target, compare


@dataclass(frozen=True)
class RecoveryPlan:
    """The differences between an archive's cluster and a target.

    Attributes:
        archived: What the archive knows.
        target_id: Id of the target cluster.
        rows: The differences.
    """

    archived: Archived
    target_id: str
    rows: tuple[Row, ...]


def read_archived(root: UPath, at: datetime | None) -> Archived:
    """Read what an archive knows of its cluster.

    Args:
        root: The archive's folder.
        at: Descriptions that aren't later count; None for the newest.

    Raises:
        ConfigError: When nothing was described by then.
    """
    settings, as_of, groups = Settings(), {}, None
    for part in ASKED:
        moment = moment_at(root, at, part)
        if moment is None:
            continue
        as_of[part] = moment.answered_at
        if part == Part.GROUPS:
            groups = moment.groups
        else:
            value = getattr(read_settings(root, moment), str(part))
            settings = replace(settings, **{str(part): value})
    if not as_of:
        raise ConfigError(
            f"{root} has no description of its cluster{f' by {at.isoformat()}' if at else ''}: "
            "validations with Kafka write one unless the pipeline's describe_cluster is empty"
        )
    newest = next(MOMENTS.links(root))
    return Archived(settings, groups, newest.parts, as_of)


def plan_recovery(root: UPath, cluster: KafkaCluster, at: datetime | None = None) -> RecoveryPlan:
    """Compare what an archive knows of its cluster with a target; changes nothing.

    Args:
        root: The archive's folder.
        cluster: The target.
        at: Descriptions that aren't later count; None for the newest.

    Raises:
        ConfigError: When the archive describes no cluster.
        KafkaUnavailableError: When the target doesn't answer.
    """
    archived = read_archived(root, at)
    existing = set(cluster.topic_names())
    names = [topic.name for topic in archived.settings.topics or () if topic.name in existing]
    state = ClusterDescriber(cluster.config).describe(
        names, [Part.TOPICS, Part.ACLS, Part.USERS, Part.BROKERS]
    )
    if not state.cluster_id:
        raise KafkaUnavailableError(
            f"Kafka at {cluster.config.bootstrap_servers} doesn't describe itself; try again"
        )
    topics, groups = _names(archived)
    mine = tuple(acl for acl in state.settings.acls or () if acl.is_about(topics, groups))
    state = replace(state, settings=replace(state.settings, acls=mine))
    missing = [topic for topic in archived.settings.topics or () if topic.name not in existing]
    target = Target(
        state,
        {name: cluster.topic_config(name) for name in names},
        {topic.name: _fitted(cluster, topic) for topic in missing},
    )
    return RecoveryPlan(archived, state.cluster_id, tuple(compare(archived, target)))


def _fitted(cluster: KafkaCluster, topic: TopicState) -> tuple[Fitted, ...]:
    """Return what becomes of a missing topic's settings; asks the target."""
    replicas = min(topic.replication_factor, cluster.brokers())
    asked = replace(
        new_topic(topic),
        replication_factor=replicas,
        config={name: value for name, value in topic.effective.items() if name not in THROTTLES},
    )
    try:
        refusals = cluster.refused_settings(topic.name, asked)
    except AuthorizationError:
        # This user can compare, but create nothing: what is refused is said when it is applied.
        refusals = {}
    return fit(topic.effective, refusals, replicas)


def _names(archived: Archived) -> tuple[list[str], list[str]]:
    topics = [topic.name for topic in archived.settings.topics or ()]
    return topics, [group.name for group in archived.groups or ()]


def apply_rows(
    rows: Iterable[Row], cluster: KafkaCluster, say: Callable[[str], None]
) -> tuple[int, list[str]]:
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


def _apply(row: Row, cluster: KafkaCluster, changes: ClusterChanges) -> None:
    if isinstance(row.item, Acl):
        changes.add_acl(row.item)
    elif isinstance(row.item, TopicState) and row.kind == Kind.TOPICS:
        cluster.create_topic(row.name, new_topic(row.item))
    elif row.action == Action.CHANGE and row.archived is not None:
        changes.set_topic_config(row.name, row.setting, row.archived)


def new_topic(topic: TopicState) -> TopicSettings:
    """Return the settings with which a topic is created on a target."""
    return TopicSettings(
        topic.partitions, topic.replication_factor, config={**topic.effective, **KEEP}
    )
