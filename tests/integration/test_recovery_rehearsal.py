"""A recovery as on the day, rehearsed: ten topics, three groups, killed in each of its steps.

What the source held, and which record each group reads next, is kept here, and nowhere else.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.cluster_moments import MOMENTS
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_state import ASKED
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups
from kafka_drain.kafka.describing import ClusterDescriber
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.cluster_capture import describe_with
from kafka_drain.proof.validation import validate_archive
from tests.faults.injection import wait_for
from tests.faults.republishing import alter_topic, read_topic
from tests.integration.command_line import Ended, kafka_drain, kafka_drain_killed

pytestmark = pytest.mark.integration

PARTITIONS, RECORDS = 2, 30
NOON = 1_357_041_600_000  # 2013-01-01 12:00:00 UTC, in milliseconds
DAY = 86_400_000
LARGE = random.Random(2).randbytes(300_000)

#: Settings of each topic when it is filled.
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "compacted": {"cleanup_policy": "compact"},
    "both": {"cleanup_policy": "compact,delete"},
    "ahead": {"message_timestamp_after_max_ms": str(1000 * DAY)},
    "large": {"max_message_bytes": "1000000"},
    "short": {},
    "bounded": {"message_timestamp_before_max_ms": str(100_000 * DAY)},
    "deleted": {},
    "deleted-stamped": {"message_timestamp_type": "LogAppendTime"},
    "empty": {},
}
DELETED = ("deleted", "deleted-stamped")
#: What is changed once all is drained; no record that is archived would be taken any more.
CHANGED = {
    "ahead": ("message.timestamp.after.max.ms", "3600000"),
    "large": ("max.message.bytes", "50000"),
    "short": ("retention.ms", "3600000"),
    "bounded": ("message.timestamp.before.max.ms", "3600000"),
}
#: Groups, each with what it commits as metadata, and how far into each partition it has read.
GROUPS = {"streams": ("AgAAAXgVs6wA", 7), "méta/ group #1": ("", 0), "done": ("x", RECORDS)}


@dataclass
class Rehearsal:
    """What was lost, and where it is to be restored.

    Attributes:
        archive: The archive.
        names: The topics' names, by their name here.
        groups: The groups' names, by their name here.
        content: What each topic held, by partition.
        next: The value that each group reads next, None at the end, by topic and partition.
        config: The settings that each topic had.
        first: When the cluster was described first, with all topics.
        target: The new cluster.
    """

    archive: Archive
    target: KafkaCluster
    names: dict[str, str]
    groups: dict[str, str]
    content: dict[str, dict[int, list[Any]]] = field(default_factory=dict)
    next: dict[tuple[str, str, int], bytes | None] = field(default_factory=dict)
    config: dict[str, dict[str, str]] = field(default_factory=dict)
    first: str = ""

    def command(self, name: str, *arguments: str, kill: int = 0) -> Ended:
        servers = self.target.config.bootstrap_servers
        given = (name, self.archive.root, "--bootstrap-servers", servers, "--json", *arguments)
        if kill:
            return kafka_drain_killed(Path(str(self.archive.root)), kill, *given)
        return kafka_drain(*given)

    def finish(self, kills: tuple[int, ...], name: str, *arguments: str) -> dict[str, Any]:
        """Kill a command at several of its changes, and then let it end.

        Returns:
            Its answer.
        """
        killed = 0
        for kill in kills:
            ended = self.command(name, *arguments, kill=kill)
            # Later on, fewer changes may be left.
            assert ended.code in (-SIGKILL, 0), ended.err
            killed += ended.code == -SIGKILL
        assert killed >= min(5, len(kills)), name
        ended = self.command(name, *arguments)
        assert ended.code == 0, ended.err
        return dict(json.loads(ended.out))

    def plan(self, *arguments: str) -> dict[str, Any]:
        ended = self.command("plan-recovery", *arguments)
        assert ended.code == 0, ended.err
        return dict(json.loads(ended.out))

    def left(self) -> dict[tuple[str, str], str]:
        """Return what is left to be done: the action for each kind and name."""
        answer = self.plan()
        left = ("add", "change", "later", "by hand")
        rows = [row for row in answer["rows"] if row["action"] in left]
        assert answer["left"] == len(rows)
        return {(row["kind"], row["name"]): row["action"] for row in rows}


def fill(rehearsal: Rehearsal, send: Any, make_topic: Any) -> None:
    """Fill the topics; each record has a value of its own."""
    now = int(time.time() * 1000)
    for short, config in TOPICS.items():
        make_topic(PARTITIONS, rehearsal.names[short], **config)
        start = now + 30 * DAY if short == "ahead" else NOON
        for partition in range(PARTITIONS if short != "empty" else 0):
            records = [
                (b"key %d" % (n % 5), f"{short} {partition}-{n}".encode(), [("n", b"%d" % n)], at)
                for n in range(RECORDS)
                for at in [start + n]
            ]
            if short == "large":
                records[3] = (b"key", LARGE + b"%d" % partition, None, NOON)
            send(rehearsal.names[short], records, partition)


def commit(rehearsal: Rehearsal, cluster: KafkaCluster) -> None:
    """Let each group have read a part of each partition."""
    for short, (metadata, read) in GROUPS.items():
        offsets = {}
        for topic, name in rehearsal.names.items():
            for partition in range(PARTITIONS):
                values = [each[1] for each in rehearsal.content[topic][partition]]
                offset = min(read, len(values))
                offsets[TopicPartition(name, partition)] = Committed(offset, metadata)
                rehearsal.next[short, topic, partition] = (
                    values[offset] if offset < len(values) else None
                )
        ConsumerGroups(cluster.config).commit(rehearsal.groups[short], offsets)


@pytest.fixture
def rehearsal(
    tmp_path: Path,
    make_topic: Any,
    send: Any,
    drain: Any,
    cluster: KafkaCluster,
    other_cluster: KafkaCluster,
) -> Rehearsal:
    """Topics that were drained, changed, in part deleted, and described before and after."""
    mark = uuid.uuid4().hex[:6]
    names = {short: f"{short}-{mark}" for short in TOPICS}
    groups = {short: f"{short} {mark}" for short in GROUPS}
    pipeline = Pipeline(
        name="rehearsed", topics=[*names.values()], archive=str(tmp_path / "my archive")
    )
    archive = Archive.at(pipeline.archive)
    made = Rehearsal(archive, other_cluster, names, groups)
    servers = cluster.config.bootstrap_servers
    fill(made, send, make_topic)
    made.content = {short: read_topic(servers, name) for short, name in names.items()}
    drain(pipeline)
    commit(made, cluster)
    describe = describe_with(cluster.config, ASKED)
    assert validate_archive(archive, cluster, describe=describe).complete
    (first,) = MOMENTS.links(archive.root)
    made.first = first.answered_at
    for short, (setting, value) in CHANGED.items():
        alter_topic(servers, names[short], setting, value)
    state = ClusterDescriber(cluster.config).describe(list(names.values()))
    made.config = {topic.name: topic.effective for topic in state.settings.topics or ()}
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.delete_topics([names[short] for short in DELETED]).values():
        future.result(30)
    wait_for(
        lambda: not {names[short] for short in DELETED} & set(cluster.topic_names()), "deletion"
    )
    validate_archive(archive, cluster, describe=describe)
    assert next(MOMENTS.links(archive.root)).number == 2
    return made


@pytest.mark.parametrize(
    "kills",
    [(1, 4), pytest.param((1, 2, 1, 3, 1, 5, 8, 13, 21, 34), marks=pytest.mark.soak)],
    ids=len,
)
def test_recovery(rehearsal: Rehearsal, kills: tuple[int, ...]) -> None:
    """Everything comes back in the documented order, whatever is killed, and nothing is left."""
    made, names, groups = rehearsal, rehearsal.names, rehearsal.groups
    servers = made.target.config.bootstrap_servers
    topics = {("topics", name): "add" for name in names.values()}
    waiting = {("groups", name): "by hand" for name in groups.values()}
    assert made.left() == topics | waiting
    assert not {row["name"] for row in made.plan("--at", made.first)["rows"]} - {
        *names.values(),
        *groups.values(),
    }

    made.finish(kills, "plan-recovery", "--apply", "topics,configs,acls")
    restoring = {("configs", names[short]): "later" for short in TOPICS if short != "empty"}
    assert made.left() == restoring | waiting
    # Nothing is set back too early, not even if that is accepted.
    assert made.plan("--apply", "configs", "--accept-lower-safety")["applied"] == 0
    assert made.left() == restoring | waiting

    made.finish(kills, "republish", "--same-topics", "--run-name", "restore", "--apply")
    for short, name in names.items():
        assert read_topic(servers, name) == made.content[short], short
    verified = dict.fromkeys(restoring, "change")
    assert made.left() == verified | waiting

    for short, name in groups.items():
        named = ("--run", "restore", f"--group={name}", "--from-archive", "--apply")
        answer = made.finish(kills, "translate-group", *named)
        assert answer["summary"].startswith("exact"), short
    # Only what no record of the archive leads to.
    left = {("groups", name): "by hand" for name in groups.values()}
    assert made.left() == verified | left
    empty = {TopicPartition(names["empty"], p): Committed(0) for p in range(PARTITIONS)}
    for name in groups.values():
        ConsumerGroups(made.target.config).commit(name, empty)
    assert made.left() == verified
    check_groups(made)

    refused = made.command("plan-recovery", "--apply", "configs")
    assert refused.code == 1
    assert made.left() == verified
    made.finish(kills, "plan-recovery", "--apply", "configs", "--accept-lower-safety")
    assert made.left() == {}
    again = made.plan("--apply", "topics,configs,acls", "--accept-lower-safety")
    assert (again["applied"], again["left"]) == (0, 0)
    for short, name in names.items():
        if short not in DELETED:
            assert made.target.topic_settings(name).config == made.config[name], short
    stamped = made.target.topic_settings(names["deleted-stamped"]).config
    assert stamped["message.timestamp.type"] == "LogAppendTime"


def check_groups(made: Rehearsal) -> None:
    """Check which record each group reads next, and what it has committed with its offsets."""
    servers = made.target.config.bootstrap_servers
    there = {short: read_topic(servers, name) for short, name in made.names.items()}
    groups = ConsumerGroups(made.target.config)
    for short, (metadata, _) in GROUPS.items():
        for topic, name in made.names.items():
            tps = [TopicPartition(name, partition) for partition in range(PARTITIONS)]
            committed = groups.committed(made.groups[short], tps)
            if topic in DELETED:
                # Kafka had forgotten these with the topics.
                assert committed == {}, (short, topic)
                continue
            if topic == "empty":
                continue
            for tp in tps:
                at = committed[tp]
                # Of one transaction, so that offsets count records.
                values = [each[1] for each in there[topic][tp.partition]]
                found = values[at.offset] if at.offset < len(values) else None
                assert found == made.next[short, topic, tp.partition], (short, tp)
                assert at.metadata == metadata, (short, tp)
