"""What an archive knows of topics, and what its republishes have restored; no broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.cluster_moments import note_moment
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.errors import ArchiveError, AuthorizationError, ConfigError, KafkaUnavailableError
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.cluster_state import (
    Acl,
    ClusterState,
    Part,
    PartOutcome,
    PartResult,
    Settings,
    TopicState,
)
from kafka_drain.kafka.consumer_groups import Committed
from kafka_drain.kafka.keeping import EVERYWHERE, KEEPING
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.recovery import recovery
from kafka_drain.recovery.commands import Commands
from kafka_drain.recovery.diff import Action, Difference, Kind, not_compared
from kafka_drain.recovery.recovery import held_topics, read_archived, read_restored
from kafka_drain.recovery.restored import SentTo
from kafka_drain.republish.groups.group_records import GroupRecords, recorded_groups
from kafka_drain.republish.groups.translation import Contribution, TranslationPlan
from kafka_drain.republish.planning.previous_runs import sent as sent_by
from kafka_drain.republish.planning.runs import RepublishRun, drill_run, run_key
from tests.kafka_drain.cluster_states import SETTINGS, state
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.republish.planning.test_previous_runs import note, plan_of
from tests.kafka_drain.republish.receipts import receipt_of

ORDERS, LOST = TopicPartition("orders", 0), TopicPartition("lost", 2)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive with records of two topics, and a third without any."""
    made = MadeArchive(tmp_path / "archive", {"orders": "1", "lost": "2", "quiet": "3"})
    made.seal_window("a", {ORDERS: dense(0, 3), LOST: dense(0, 3)})
    return made


def describe(made: MadeArchive, hour: int, *topics: str, **settings: str) -> None:
    config = {"hour": str(hour)} | settings
    listed = tuple(TopicState(name, f"id-{name}", 4, 1, config, {}) for name in topics)
    at = f"2026-01-01T{hour:02}:00:00.000+00:00"
    note_moment(made.root, state(hour, Settings(topics=listed)), asked_at=at, answered_at=at)


def test_held_topics(made: MadeArchive) -> None:
    """Each topic with records is named, with as many partitions as they need."""
    found = held_topics(made.archive.snapshot(), ["orders", "lost", "quiet"])

    assert found == {"orders": 1, "lost": 3}
    assert held_topics(made.archive.snapshot(), ["orders"]) == {"orders": 1}


def test_held_topics_of_generations(tmp_path: Path) -> None:
    """What generations hold counts too, also of a topic that their newest receipts don't name."""
    made = MadeArchive(tmp_path / "archive", {"orders": "1", "lost": "2", "quiet": "3"})
    made.seal({ORDERS: dense(0, 3), LOST: dense(0, 3)})
    made.seal({ORDERS: dense(3, 5)})
    made.open_generation()

    found = held_topics(made.archive.snapshot(), ["orders", "lost", "quiet"])

    assert found == {"orders": 1, "lost": 3}


def test_held_topics_without_new_records(tmp_path: Path) -> None:
    """A topic's newest segment may hold no record, though earlier ones do."""
    made = MadeArchive(tmp_path / "archive", {"orders": "1", "lost": "2"})
    made.seal({ORDERS: dense(0, 3), LOST: dense(0, 3)})
    made.seal({ORDERS: dense(3, 5)}, gaps=[Gap(LOST, OffsetRange(3, 5), GapReason.COMPACTED)])

    assert held_topics(made.archive.snapshot(), ["lost"]) == {"lost": 3}


def test_held_topics_of_earlier_generation(tmp_path: Path) -> None:
    """A topic that was made again may hold no record yet, though the deleted one did."""
    made = MadeArchive(tmp_path / "archive", {"orders": "1", "lost": "2"})
    made.seal({ORDERS: dense(0, 3), LOST: dense(0, 3)})
    made.seal({ORDERS: dense(3, 5)})
    made.open_generation(lost="3")
    made.seal({ORDERS: dense(5, 6)}, gaps=[Gap(LOST, OffsetRange(0, 2), GapReason.COMPACTED)])
    made.open_generation()

    assert held_topics(made.archive.snapshot(), ["lost"]) == {"lost": 3}


def test_read_archived_nothing_described(made: MadeArchive) -> None:
    """Without a description by the given time, or with an empty one, nothing can be recovered."""
    early = datetime(2026, 1, 1, 0, 30, tzinfo=timezone.utc)

    with pytest.raises(ConfigError, match="has no description of its cluster"):
        read_archived(made.archive, None)
    nothing = {part: PartResult(PartOutcome.UNANSWERED, "_TIMED_OUT") for part in recovery.ASKED}
    seen = replace(state(1, Settings()), parts={**state(1).parts, **nothing}, groups=None)
    note_moment(made.root, seen, asked_at="2026-01-01", answered_at="2026-01-01T00:45+00:00")
    with pytest.raises(ConfigError, match="has no description of its cluster"):
        read_archived(made.archive, None)
    describe(made, 1, "orders")
    with pytest.raises(ConfigError, match="by 2026-01-01T00:30:00"):
        read_archived(made.archive, early)
    assert read_archived(made.archive, early.replace(hour=2)).settings.topics


def test_read_archived_gone(made: MadeArchive) -> None:
    """A topic that was deleted is as in the last description that has it."""
    for hour, topics in ((1, ["orders", "lost"]), (2, ["orders", "lost"]), (3, ["orders"])):
        describe(made, hour, *topics)

    found = read_archived(made.archive, None)

    topics = {topic.name: topic.config for topic in found.settings.topics or ()}
    assert topics == {"orders": {"hour": "3"}, "lost": {"hour": "2"}}
    assert found.gone == {"lost": "the description of 2026-01-01T02:00:00.000+00:00"}
    assert found.held == {"orders": 1, "lost": 3}


def test_read_archived_restored_to_its_own_cluster(made: MadeArchive) -> None:
    """What was described while a restore needed it isn't what the topic had."""
    describe(made, 1, "orders")
    for hour in (2, 3):
        describe(made, hour, "orders", **KEEPING)

    (found,) = read_archived(made.archive, None).settings.topics or ()

    assert found.config == {"hour": "1"}


def test_read_archived_kept_for_ever(made: MadeArchive) -> None:
    """A topic that never had anything else had this."""
    describe(made, 1, "orders", **KEEPING)

    (found,) = read_archived(made.archive, None).settings.topics or ()

    assert found.config == {"hour": "1", **KEEPING}


def test_read_archived_gone_kept_for_ever(made: MadeArchive) -> None:
    """Nor is one that was deleted left out because it had what a restore needs."""
    describe(made, 1, "orders", "lost", **KEEPING)
    describe(made, 2, "orders")

    found = read_archived(made.archive, None)

    assert found.gone == {"lost": "the description of 2026-01-01T01:00:00.000+00:00"}


@pytest.mark.parametrize("is_noted", [True, False])
def test_read_archived_never_described(made: MadeArchive, is_noted: bool) -> None:
    """Else it is as the last drain saw it, if one has noted that."""
    describe(made, 1, "orders")
    if is_noted:
        write_topic_settings(made.root, {"lost": TopicSettings(2, 1, config={"a": "b"})})

    found = read_archived(made.archive, None)

    assert found.gone == ({"lost": "the last drain that saw it"} if is_noted else {})
    lost = [topic for topic in found.settings.topics or () if topic.name == "lost"]
    assert lost == ([TopicState("lost", "2", 3, 1, {"a": "b"}, {})] if is_noted else [])
    assert found.held["lost"] == 3


def test_read_archived_gone_untold_since(made: MadeArchive) -> None:
    """Descriptions without topics hide none of the older ones."""
    describe(made, 1, "orders", "lost")
    refused = PartResult(PartOutcome.NOT_AUTHORISED, "TOPIC_AUTHORIZATION_FAILED")
    untold(made, 2, Part.TOPICS, refused, settings=replace(SETTINGS, topics=None))
    describe(made, 3, "orders")

    found = read_archived(made.archive, None)

    assert found.gone == {"lost": "the description of 2026-01-01T01:00:00.000+00:00"}


def untold(made: MadeArchive, hour: int, part: Part, result: PartResult, **found: Any) -> None:
    """Describe a cluster that doesn't tell all of a part."""
    seen = replace(state(hour), **found)
    seen = replace(seen, parts={**seen.parts, part: result})
    at = f"2026-01-01T{hour:02}:00:00.000+00:00"
    note_moment(made.root, seen, asked_at=at, answered_at=at)


def test_read_archived_groups_untold(made: MadeArchive) -> None:
    """A group whose offsets Kafka didn't tell has no row: the plan says which one is missing."""
    note_moment(made.root, state(1), asked_at="2026-01-01", answered_at="2026-01-01T01:00+00:00")
    assert not {"groups", "acls"} & not_compared(read_archived(made.archive, None)).keys()
    untold(made, 2, Part.GROUPS, PartResult(PartOutcome.CAPTURED, "billing: unanswered"), groups=())

    found = read_archived(made.archive, None)

    assert found.groups == ()
    assert "billing: unanswered" in not_compared(found)["groups"]


def test_read_archived_part_untold_since(made: MadeArchive) -> None:
    """If a part was refused since, the plan says that it is an older one, unless that is asked."""
    note_moment(made.root, state(1), asked_at="2026-01-01", answered_at="2026-01-01T01:00+00:00")
    refused = PartResult(PartOutcome.NOT_AUTHORISED, "CLUSTER_AUTHORIZATION_FAILED")
    untold(made, 2, Part.ACLS, refused, settings=replace(SETTINGS, acls=None))

    found = read_archived(made.archive, None)

    assert found.settings.acls == SETTINGS.acls
    assert not_compared(found)["acls"] == (
        "as of 2026-01-01T01:00+00:00, the last description that has it; since: not_authorised "
        "CLUSTER_AUTHORIZATION_FAILED"
    )
    earlier = read_archived(made.archive, datetime(2026, 1, 1, 1, 30, tzinfo=timezone.utc))
    assert not {"groups", "acls"} & not_compared(earlier).keys()


@pytest.mark.parametrize("part", [Part.TOPICS, Part.ACLS, Part.USERS])
def test_read_archived_part_never_told(made: MadeArchive, part: Part) -> None:
    """A part that was never captured is left out, and what was captured is there all the same."""
    result = PartResult(PartOutcome.NOT_AUTHORISED, "refused")
    untold(made, 1, part, result, settings=replace(SETTINGS, **{str(part): None}))

    found = read_archived(made.archive, None)

    assert set(recovery.ASKED) - found.as_of.keys() == {part}
    assert found.groups is not None
    assert [group.name for group in found.groups] == ["billing"]
    assert found.settings.brokers == SETTINGS.brokers
    assert not_compared(found)[str(part)] == "not in the archive: not_authorised refused"


def test_read_restored(tmp_path: Path) -> None:
    """Runs to this cluster count, finished or not; drills, others' and abandoned ones don't."""
    root = UPath(tmp_path)
    note(root, plan_of("whole", 0, 10), is_done=True)
    note(root, plan_of("begun", 10, 20), is_done=False)
    note(root, plan_of(run_key(drill_run("20260101T000000Z-00000000")), 0, 9), is_done=True)
    plan = plan_of("whole", 0, 10)
    (shard,) = plan.shards
    sent = [
        SentTo(
            key,
            shard.source.topic,
            shard.target_topic,
            plan.target(shard.target_topic).id,
            done,
            plan.run,
        )
        for key, done in (("begun", False), ("whole", True))
    ]

    found = read_restored(root, plan.cluster_id)

    assert sorted(found.sent, key=lambda each: each.run) == sent
    assert read_restored(root, "another").sent == []
    clock: Any = SimpleNamespace(isoformat=lambda: "now")
    RepublishRun(root, "begun").abandon(clock)
    assert [each.run for each in read_restored(root, plan.cluster_id).sent] == ["whole"]


def test_read_restored_plan_damaged(tmp_path: Path) -> None:
    """The damaged plan of a run that is over stops no recovery: its receipt tells what it sent."""
    root = UPath(tmp_path)
    plan = plan_of("whole", 0, 10)
    note(root, plan, is_done=False)
    told = {"cluster_id": plan.cluster_id, "run": plan.run, "sent": sent_by(plan)}
    RepublishRun(root, "whole").write_receipt(receipt_of(key="whole", **told))
    before = read_restored(root, plan.cluster_id)
    (RepublishRun(root, "whole").folder / "plan.json").write_bytes(b"{}")
    note(root, plan_of("begun", 10, 20), is_done=False)
    begun = RepublishRun(root, "begun")
    (begun.folder / "plan.json").write_bytes(b"{}")
    with pytest.raises(ArchiveError, match=r"plan.json was changed .* --abandon begun --apply"):
        read_restored(root, plan.cluster_id)
    clock: Any = SimpleNamespace(isoformat=lambda: "now")
    begun.abandon(clock)

    found = read_restored(root, plan.cluster_id)

    assert len(before.sent) == 1
    assert found.sent == before.sent
    assert read_restored(root, "another").sent == []


@pytest.mark.parametrize("has_plan", [True, False])
@pytest.mark.parametrize("follows", [True, False])
def test_read_restored_mirror(has_plan: bool, follows: bool, tmp_path: Path) -> None:
    """A mirror is known as one, by its plan or by its receipt."""
    root = UPath(tmp_path)
    through: Any = {"generations": {}, "windows": []} if follows else None
    plan = plan_of("whole", 0, 10, through=through)
    note(root, plan, is_done=False)
    run = RepublishRun(root, "whole")
    told = {"cluster_id": plan.cluster_id, "run": plan.run, "sent": sent_by(plan)}
    run.write_receipt(receipt_of(key="whole", through=through, **told))
    if not has_plan:
        (run.folder / "plan.json").write_bytes(b"{}")

    [found] = read_restored(root, plan.cluster_id).sent

    assert (found.follows, found.name, found.topic_id) == (follows, plan.run, "copy-id")


def test_read_restored_can_be_resumed(tmp_path: Path) -> None:
    """An unfinished run is resumed by its name; what was begun anywhere isn't a new one's."""
    root = UPath(tmp_path)
    keys = {name: run_key(name) for name in ("my restore", "restore", "restore-2")}
    note(root, plan_of(keys["my restore"], 0, 10, run="my restore"), is_done=False)
    note(root, plan_of(keys["restore-2"], 10, 20, run="restore-2", cluster_id="2"), is_done=True)
    note(root, plan_of(keys["restore"], 20, 30, run="restore"), is_done=False)
    clock: Any = SimpleNamespace(isoformat=lambda: "now")
    RepublishRun(root, keys["restore"]).abandon(clock)

    found = read_restored(root, plan_of("any").cluster_id)

    begun = found.unfinished_run("a", {"copy": "copy-id"})
    assert begun is not None
    assert run_key(begun.name) == begun.run == keys["my restore"]
    assert found.new_name == "restore-3"


def test_read_restored_groups(tmp_path: Path) -> None:
    """Translations count by the group that had the offsets, until they are undone."""
    root = UPath(tmp_path)
    plan = plan_of("whole", 0, 10)
    note(root, plan, is_done=True)
    run, name = RepublishRun(root, "whole"), "méta/ group #1-20260101T000000000000Z"
    row = Contribution(ORDERS, 5, LOST, 7, 7, "")
    made = TranslationPlan("whole", plan.cluster_id, "from", name, {ORDERS: 5}, (row,))
    records = GroupRecords(run.folder, name)
    record = records.write(made, {LOST: Committed(1)}, group_existed=True)

    assert recorded_groups(run.folder) == [name]
    (begun,) = read_restored(root, plan.cluster_id).groups["from"]
    assert (begun.run, begun.written_at) == ("whole", record.written_at)
    assert (begun.group, begun.is_applied, begun.sources, begun.after) == (
        *(name, False),
        *({ORDERS}, {LOST: 7}),
    )
    records.mark_applied(record)
    assert read_restored(root, plan.cluster_id).groups["from"][0].is_applied
    records.mark_undone(record)
    assert read_restored(root, plan.cluster_id).groups == {}


class Changes:
    """Takes the place of what changes a cluster, or asks it what it would refuse.

    Attributes:
        asked: Settings that it was asked about, by topic.
        done: What was changed.
        fails: What changing something raises, by its name.
    """

    def __init__(self) -> None:
        self.asked: dict[str, dict[str, str]] = {}
        self.done: list[str] = []
        self.fails: dict[str, Exception] = {}

    def refused_values(self, topic: str, values: dict[str, str]) -> dict[str, str]:
        self.asked[topic] = values
        return {}

    def set_topic_config(self, topic: str, sets: dict[str, str | None]) -> None:
        if topic in self.fails:
            raise self.fails[topic]
        self.done.append(topic)


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    """The target's changes."""
    made = Changes()
    monkeypatch.setattr(recovery, "ClusterChanges", lambda _: made)
    return made


def answers(
    monkeypatch: pytest.MonkeyPatch,
    answer: ClusterState,
    about: list[Callable[[Acl], bool]] | None = None,
) -> list[Any]:
    """Let the target describe itself; returns what it is asked for, which ACLs in `about`."""
    asked: list[Any] = []

    class Describer:
        def __init__(self, config: object) -> None:
            """Describe any cluster."""

        def describe(self, topics: list[str], parts: Any, acls: Any, groups: set[str]) -> Any:
            assert parts == recovery.ASKED
            asked.extend([topics, groups])
            if about is not None:
                about.append(acls)
            return answer

    monkeypatch.setattr(recovery, "ClusterDescriber", Describer)
    return asked


def test_plan_recovery_asks(
    made: MadeArchive, changes: Changes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is asked about settings that differ, and about what was translated to it.

    The settings are those of the given time; translations are found where runs keep their state.
    """
    describe(made, 1, "orders", a="1", b="2")
    describe(made, 3, "orders", a="5", b="6")
    archive = made.archive.keeping_state_in(tmp_path / "state")
    note(archive.state, plan_of("sent", 10, 20, cluster_id="other"), is_done=True)
    row = Contribution(ORDERS, 3, TopicPartition("moved", 0), 3, 3, "exact")
    plan = TranslationPlan("sent", "other", "billing", "renamed", {ORDERS: 3}, (row,))
    records = GroupRecords(RepublishRun(archive.state, "sent").folder, "renamed")
    records.mark_applied(records.write(plan, {}, group_existed=False))
    there = tuple(TopicState(name, "id", 1, 1, {}, {}) for name in ("moved", "orders"))
    answer = state(9, Settings(topics=there, acls=(), users=(), brokers=()))
    about: list[Callable[[Acl], bool]] = []
    asked = answers(monkeypatch, answer, about)
    logs = {TopicPartition(name, 0): Log() for name in ("orders", "moved", "unknown")}
    unclean = "unclean.leader.election.enable"
    values = {"orders": {"a": "1", "b": "3", "hour": "1", "c": "4", unclean: "true"}}
    target: Any = FakeCluster(logs, id="other", configs=values)
    target.broker[unclean] = "true"
    at = datetime(2026, 1, 1, 2, tzinfo=timezone.utc)

    plan = recovery.plan_recovery(archive, target, Commands("/a", "new:9092"), at)

    assert changes.asked == {"orders": {"b": "2", unclean: "false"}}
    assert [row.sets for row in plan.rows if row.setting == unclean] == [{unclean: "false"}]
    assert asked == [["moved", "orders"], {"billing", "renamed"}]
    [is_asked] = about
    named = [("topic", "orders"), ("topic", "lost"), ("group", "billing"), ("topic", "moved")]
    acls = [Acl(kind, name, "literal", "User:a", "*", "read", "allow") for kind, name in named]
    assert [is_asked(acl) for acl in acls] == [True, True, True, False]
    assert plan.target_id == "cluster-1"
    assert plan.not_compared == not_compared(plan.archived)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (PartResult(PartOutcome.UNANSWERED, "_TIMED_OUT"), KafkaUnavailableError),
        (PartResult(PartOutcome.CAPTURED, "orders: unanswered"), KafkaUnavailableError),
        (PartResult(PartOutcome.CAPTURED, "orders: not_authorised"), AuthorizationError),
        (
            PartResult(PartOutcome.NOT_AUTHORISED, "TOPIC_AUTHORIZATION_FAILED"),
            AuthorizationError,
        ),
    ],
)
@pytest.mark.parametrize("described", ["orders", "quiet"])
def test_plan_recovery_untold_topic(
    described: str,
    result: PartResult,
    error: type[Exception],
    made: MadeArchive,
    changes: Changes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic that the target has, but doesn't describe, is never taken for a missing one."""
    describe(made, 1, described)
    is_whole = result.outcome is PartOutcome.CAPTURED
    there = state(9, Settings(topics=() if is_whole else None, acls=(), users=(), brokers=()))
    answers(monkeypatch, replace(there, parts={**there.parts, Part.TOPICS: result}))
    target: Any = FakeCluster({ORDERS: Log()}, id="other", configs={"orders": {}})

    with pytest.raises(error, match=f"doesn't describe topics orders.*{result.detail}"):
        recovery.plan_recovery(made.archive, target, Commands("/a", "new:9092"))


class Asked(FakeCluster):
    """A target that may refuse to say what it would take, by topic; it notes what it was asked."""

    def __init__(self, *refused: str) -> None:
        super().__init__({}, id="other", refused=refused)
        self.shapes: dict[str, TopicSettings] = {}
        self.words = {"hour": "Unknown topic config"}

    def refused_settings(self, name: str, settings: TopicSettings) -> dict[str, str]:
        self.shapes[name] = settings
        if name in self.refused:
            raise AuthorizationError(f"no CREATE on {name}")
        return super().refused_settings(name, settings)

    def keeping_settings(self, name: str, settings: TopicSettings) -> dict[str, str]:
        if name in self.refused:
            raise AuthorizationError(f"no CREATE on {name}")
        return {"kept.by": f"{name} {settings.partitions} {settings.replication_factor}"}


@pytest.mark.parametrize(
    ("refused", "keeping"),
    [
        ([], {"kept.by": "lost 4 3"}),
        (["lost"], {"kept.by": "orders 4 3"}),
        (["lost", "orders"], EVERYWHERE),
    ],
)
def test_plan_recovery_missing_topics(
    refused: list[str],
    keeping: dict[str, str],
    made: MadeArchive,
    changes: Changes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target is asked about what it lacks; a user who may not create can compare all the same.

    No topic is asked for with more replicas than there are brokers.
    """
    config = {"hour": "1", "retention.ms": "5", "leader.replication.throttled.replicas": "*"}
    listed = tuple(TopicState(name, name, 4, 5, config, {}) for name in ("lost", "orders"))
    at = "2026-01-01T01:00:00.000+00:00"
    note_moment(made.root, state(1, Settings(topics=listed)), asked_at=at, answered_at=at)
    answers(monkeypatch, state(9, Settings(topics=(), acls=(), users=(), brokers=())))
    target: Any = Asked(*refused)

    plan = recovery.plan_recovery(made.archive, target, Commands("/a", "new:9092"))

    shape = TopicSettings(4, 3, config={"hour": "1", "retention.ms": "5"})
    assert target.shapes == {"lost": shape, "orders": shape}
    added = {row.name: row.item for row in plan.rows if row.action == Action.ADD}
    assert added.keys() == {"lost", "orders"}
    for topic in added.values():
        assert isinstance(topic, TopicState)
        assert topic.config.items() >= dict(keeping).items()
    unknown = {row.name for row in plan.rows if row.setting == "hour" and "know it" in row.note}
    assert unknown == {"lost", "orders"} - set(refused)
    assert plan.target_id == "cluster-1"


def test_plan_recovery_target_refuses_comparison(
    made: MadeArchive, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may not change a topic's settings sees how they differ; throttles aren't asked."""
    throttled = "follower.replication.throttled.replicas"
    describe(made, 1, "orders", **{"retention.ms": "5", throttled: "*"})
    there = (TopicState("orders", "id-orders", 4, 1, {}, {}),)
    answers(monkeypatch, state(9, Settings(topics=there, acls=(), users=(), brokers=())))
    asked: list[dict[str, str]] = []

    def refuses(topic: str, values: dict[str, str]) -> dict[str, str]:
        asked.append(values)
        raise AuthorizationError("no ALTER_CONFIGS on orders")

    monkeypatch.setattr(changes, "refused_values", refuses)
    values = {"retention.ms": "7", throttled: "", "hour": "1"}
    target: Any = FakeCluster({ORDERS: Log()}, id="other", configs={"orders": values})

    plan = recovery.plan_recovery(made.archive, target, Commands("/a", "new:9092"))

    assert asked == [{"retention.ms": "5"}]
    changed = [row.sets for row in plan.rows if row.setting == "retention.ms"]
    assert changed == [{"retention.ms": "5"}]


def test_plan_recovery_no_cluster_id(
    made: MadeArchive, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the target's id, nothing says which restores were to it: there is no plan."""
    describe(made, 1, "orders")
    answers(monkeypatch, replace(state(9, Settings(topics=())), cluster_id=""))
    target: Any = FakeCluster({}, id="other")

    with pytest.raises(KafkaUnavailableError, match="tells no cluster id"):
        recovery.plan_recovery(made.archive, target, Commands("/a", "new:9092"))


def test_read_restored_order(tmp_path: Path) -> None:
    """The newest run is the one that was begun last, whatever its name."""
    root = UPath(tmp_path)
    for hour, key in ((3, "b"), (4, "a"), (1, "c")):
        at = f"2026-01-01T{hour:02}:00:00.000+00:00"
        note(root, plan_of(key, hour * 10, hour * 10 + 9, created_at=at), is_done=True)

    found = read_restored(root, plan_of("any").cluster_id)

    assert [each.run for each in found.sent] == ["c", "b", "a"]
    assert found.newest_run("a", {"copy": "copy-id"}) == "a"


def test_apply_rows_kinds(changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ACL is added, a topic created with its settings, and a setting removed again.

    A row that sets nothing changes nothing.
    """
    added: list[Acl] = []
    set_: list[tuple[str, dict[str, str | None]]] = []
    monkeypatch.setattr(changes, "add_acl", added.append, raising=False)
    monkeypatch.setattr(changes, "set_topic_config", lambda *row: set_.append(row))
    acl = Acl("topic", "orders", "literal", "User:a", "*", "read", "allow")
    topic = TopicState("new", "id", 4, 2, {"a": "b"}, {"c": "d"})
    unset = {"retention.ms": None}
    rows = [
        Difference(Kind.ACLS, str(acl), Action.ADD, "there", None, item=acl),
        Difference(Kind.TOPICS, "new", Action.ADD, "", None, item=topic),
        Difference(Kind.CONFIGS, "orders", Action.CHANGE, "", "1", setting="s", sets=unset),
        Difference(Kind.CONFIGS, "none", Action.CHANGE, "", "1", setting="s"),
    ]
    target: Any = FakeCluster({})
    created: list[tuple[str, TopicSettings]] = []
    monkeypatch.setattr(target, "create_topic", lambda *row: not created.append(row))

    assert recovery.apply_rows(rows, target) == (4, [])

    assert added == [acl]
    assert created == [("new", TopicSettings(4, 2, config={"a": "b", "c": "d"}))]
    assert set_ == [("orders", unset)]


def test_apply_rows_topic_exists(changes: Changes, said: list[str]) -> None:
    """A topic that somebody has created since the plan isn't one that was restored."""
    topics = [TopicState(name, "id", 1, 1, {}, {}) for name in ("orders", "new")]
    rows = [Difference(Kind.TOPICS, t.name, Action.ADD, "", None, item=t) for t in topics]
    target: Any = FakeCluster({ORDERS: Log()})

    done, [refused] = recovery.apply_rows(rows, target)

    assert (done, said) == (1, ["plan-recovery: add topics new"])
    assert "topic orders exists by now" in refused


def test_apply_rows(changes: Changes) -> None:
    """What the target refuses stops no other change; that it has gone away does."""
    rows = [
        Difference(Kind.CONFIGS, name, Action.CHANGE, "1", "2", setting="s", sets={"s": "1"})
        for name in ("a", "b", "c")
    ]
    cluster: Any = None
    changes.fails["b"] = AuthorizationError("no ALTER_CONFIGS on b")
    assert recovery.apply_rows(rows, cluster) == (2, ["no ALTER_CONFIGS on b"])
    assert changes.done == ["a", "c"]

    changes.fails["b"] = KafkaUnavailableError("gone")
    with pytest.raises(KafkaUnavailableError, match="gone"):
        recovery.apply_rows(rows, cluster)
    assert changes.done == ["a", "c", "a"]


def test_plan_recovery_hidden_topic(
    made: MadeArchive, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that isn't listed to this user isn't a missing one."""
    describe(made, 1, "orders")
    answers(monkeypatch, state(9, Settings(topics=(), acls=(), users=(), brokers=())))
    target: Any = FakeCluster({ORDERS: Log()}, id="other", allowed={"orders": set()})
    monkeypatch.setattr(target, "topic_names", list)

    with pytest.raises(AuthorizationError, match="DESCRIBE on topic orders"):
        recovery.plan_recovery(made.archive, target, Commands("/a", "new:9092"))


def test_plan_recovery_renamed_target(
    made: MadeArchive, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent to a topic of another name isn't sent again."""
    describe(made, 1, "orders")
    plan = plan_of("sent", 10, 20, cluster_id="other", source=ORDERS)
    note(made.root, plan, is_done=True)
    there = (TopicState("copy", "copy-id", 1, 1, {}, {}),)
    told = state(9, Settings(topics=there, acls=(), users=(), brokers=()))
    asked = answers(monkeypatch, told)
    target: Any = Asked()
    target.logs = {TopicPartition("copy", 0): Log()}

    rows = recovery.plan_recovery(made.archive, target, Commands("/a", "n:1")).rows

    assert asked[0] == ["copy"]
    assert not any("republish first" in row.note for row in rows if row.kind == Kind.GROUPS)
