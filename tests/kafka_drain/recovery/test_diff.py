"""The differences between an archived cluster and a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kafka_drain.kafka.cluster_state import (
    ASKED,
    UNAVAILABLE_PARTS,
    Acl,
    Broker,
    ClusterState,
    Part,
    PartOutcome,
    PartResult,
    ScramUser,
    Settings,
    TopicState,
)
from kafka_drain.kafka.identity import NO_TOPIC_ID
from kafka_drain.kafka.keeping import BEFORE, KEEPING
from kafka_drain.offsets import TopicPartition
from kafka_drain.recovery.commands import Commands
from kafka_drain.recovery.diff import (
    APPLICABLE,
    LEFT,
    Action,
    Archived,
    Difference,
    Kind,
    TargetCluster,
    chosen,
    compare,
    not_compared,
)
from kafka_drain.recovery.restored import Restored, SentTo, Translated
from tests.kafka_drain.cluster_states import group
from tests.tables import each_of

TOPIC = TopicState("orders", "id", 3, 2, {"retention.ms": "1000"}, {"min.insync.replicas": "2"})
READ = Acl("topic", "orders", "literal", "User:a", "*", "read", "allow")
WRITE = replace(READ, operation="write")
USER = ScramUser("a", "SCRAM-SHA-512", 4096)
COMMANDS = Commands("/my archive", "new:9092", ("--bootstrap-servers", "new:9092"))
BROKERS = tuple(Broker(n, "b", n, None) for n in (1, 2))


def archived(
    topics: tuple[TopicState, ...] = (),
    acls: tuple[Acl, ...] = (),
    users: tuple[ScramUser, ...] = (),
    **more: object,
) -> Archived:
    settings = Settings(BROKERS, topics, acls, users)
    parts = {part: PartResult(PartOutcome.CAPTURED, "") for part in Part}
    facts = {"groups": (), "parts": parts, "as_of": dict.fromkeys(ASKED, "noon"), **more}
    return Archived(settings, **facts)  # type: ignore[arg-type]


def target(
    topics: tuple[TopicState, ...] = (),
    acls: tuple[Acl, ...] = (),
    users: tuple[ScramUser, ...] = (),
    brokers: tuple[Broker, ...] = BROKERS,
    values: Mapping[str, str] | None = None,
    about_acls: PartOutcome = PartOutcome.CAPTURED,
) -> TargetCluster:
    parts = {part: PartResult(PartOutcome.CAPTURED, "") for part in Part}
    parts[Part.ACLS] = PartResult(about_acls, "")
    state = ClusterState("other", parts, Settings(brokers, topics, acls, users), ())
    return TargetCluster(state, {"orders": values or {}})


def rows(ours: Archived, theirs: TargetCluster) -> list[Difference]:
    return compare(ours, theirs, COMMANDS)


def brief(found: list[Difference]) -> list[tuple[str, str, str, str | None, str | None]]:
    return [(str(r.kind), str(r.action), r.setting, r.archived, r.target) for r in found]


def test_compare_same() -> None:
    """A target that is like the archived cluster has no difference."""
    theirs = target((TOPIC,), (READ,), (USER,), values=TOPIC.effective)

    assert rows(archived((TOPIC,), (READ,), (USER,)), theirs) == []


def test_not_compared() -> None:
    """What nobody can compare is said, with what to do, and isn't a difference."""
    assert rows(archived(), target()) == []
    assert not_compared(archived()) == {
        "quotas": UNAVAILABLE_PARTS[Part.QUOTAS],
        "versions": UNAVAILABLE_PARTS[Part.VERSIONS],
    }


@pytest.mark.parametrize(
    ("brokers", "lowers"), [(BROKERS, False), (BROKERS[:1], True), ((), False)]
)
def test_compare_new_topic(brokers: tuple[Broker, ...], lowers: bool) -> None:
    """A topic is added; with fewer replicas than it had only if that is accepted."""
    row, *settings = rows(archived((TOPIC,)), target(brokers=brokers))

    assert not any(each.action in LEFT for each in settings)
    assert (row.kind, row.action, row.name, row.target) == (
        Kind.TOPICS,
        Action.ADD,
        "orders",
        None,
    )
    assert "3 partitions, replication factor 2, min.insync.replicas=2" in (row.archived or "")
    assert bool(row.lowers) == lowers


@pytest.mark.parametrize(
    ("partitions", "replicas", "expected"),
    [
        (3, 2, []),
        (4, 2, [(Action.LEAVE, "3 partitions", "4 partitions")]),
        (2, 2, [(Action.BY_HAND, "3 partitions", "2 partitions")]),
        (3, 1, [(Action.BY_HAND, "replication factor 2", "replication factor 1")]),
        (3, 3, []),
    ],
)
def test_compare_partitions(
    partitions: int, replicas: int, expected: list[tuple[Action, str, str]]
) -> None:
    """Neither partitions nor replicas of a topic that exists are changed."""
    there = replace(TOPIC, partitions=partitions, replication_factor=replicas)
    found = rows(archived((TOPIC,)), target((there,), values=TOPIC.effective))

    assert [(row.action, row.archived, row.target) for row in found] == expected
    assert {(row.kind, row.name) for row in found} <= {(Kind.TOPICS, "orders")}
    assert not any(row.can_apply for row in found)


def test_compare_fewer_brokers() -> None:
    """A topic with a replica on each broker can't have more, so nothing is left to do."""
    there = replace(TOPIC, replication_factor=1)
    theirs = target((there,), values={**TOPIC.effective, "min.insync.replicas": "1"})
    theirs = target((there,), brokers=BROKERS[:1], values=theirs.values["orders"])

    found = rows(archived((TOPIC,)), theirs)

    assert [row.action for row in found] == [Action.LEAVE, Action.LEAVE]
    assert "no more brokers" in found[0].note


@pytest.mark.parametrize(
    ("config", "values", "expected"),
    [
        ({}, {"retention.ms": "9", "min.insync.replicas": "2"}, ("change", "1000", "9", False)),
        ({}, {"retention.ms": "-1", "min.insync.replicas": "2"}, ("change", "1000", "-1", True)),
        (
            {"retention.ms": "1000", "segment.ms": "5"},
            {"retention.ms": "1000", "min.insync.replicas": "2", "segment.ms": "5"},
            ("leave", None, "5", False),
        ),
        (
            {"retention.ms": "1000"},
            {"retention.ms": "1000", "min.insync.replicas": "1"},
            ("change", "2", "1", False),
        ),
        # A broker lists every setting that it knows.
        ({"retention.ms": "1000"}, {"retention.ms": "1000"}, ("leave", "2", None, False)),
    ],
)
def test_compare_config(
    config: dict[str, str],
    values: dict[str, str],
    expected: tuple[str, str | None, str | None, bool],
) -> None:
    """A value that differs is changed, one that only the target has is left."""
    there = replace(TOPIC, config=config, inherited={})
    (row,) = rows(archived((TOPIC,)), target((there,), values=values))

    assert (str(row.action), row.archived, row.target, bool(row.lowers)) == expected


def test_compare_acls() -> None:
    """An ACL that is missing is added, one that only the target has is left."""
    found = rows(archived(acls=(READ,)), target(acls=(WRITE,)))

    assert brief(found) == [
        ("acls", "add", "", "there", None),
        ("acls", "leave", "", None, "there"),
    ]


@pytest.mark.parametrize("outcome", [PartOutcome.NOT_AUTHORISED, PartOutcome.UNSUPPORTED])
def test_compare_acls_unknown(outcome: PartOutcome) -> None:
    """A target whose ACLs aren't known gets none: they may all be there."""
    found = rows(archived(acls=(READ, WRITE)), target(about_acls=outcome))

    assert brief(found) == [("acls", "by hand", "", "2 ACLs", None)]
    assert rows(archived(), target(about_acls=outcome)) == []


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ((), True),
        ((USER,), False),
        ((replace(USER, iterations=8192),), False),
        ((replace(USER, mechanism="SCRAM-SHA-256"),), True),
    ],
)
def test_compare_users(there: tuple[ScramUser, ...], missing: bool) -> None:
    """A user without that mechanism is made by hand; the command says which iterations."""
    found = rows(archived(users=(USER,)), target(users=there))

    assert bool(found) == missing
    assert all("iterations=4096,password=${NEW_PASSWORD:?}" in row.note for row in found)


ORDERS_0 = TopicPartition("orders", 0)
SENT = SentTo("restore-1", "orders", "orders", "new-id", is_verified=True, name="the first")
GONE_ON = Translated("restore-1", "billing", "noon", True, frozenset({ORDERS_0}), {ORDERS_0: 4})
#: The topic as the target has it.
THERE = replace(TOPIC, id="new-id")
#: As it was created for the restore.
RESTORING = replace(THERE, config={**KEEPING, "min.insync.replicas": "2"}, inherited={})


def restored_to(
    *sent: SentTo,
    there: TopicState = THERE,
    translated: Translated | None = None,
    offset: int | None = None,
    groups: PartOutcome = PartOutcome.CAPTURED,
    untold: str = "",
) -> TargetCluster:
    """A target with topic orders, to which runs have restored, and in which the group may be."""
    found = target((there,), values={**TOPIC.effective, **there.config})
    found.state.parts[Part.GROUPS] = PartResult(groups, untold)  # type: ignore[index]
    group_there = () if offset is None else (group(offset),)
    return replace(
        found,
        state=replace(found.state, groups=group_there),
        restored=Restored(sent, {} if translated is None else {"billing": [translated]}),
    )


@pytest.mark.parametrize(
    ("theirs", "action", "says"),
    [
        (
            restored_to(),
            "by hand",
            "republish first: kafka-drain republish '/my archive' --bootstrap-servers new:9092 "
            "--same-topics --run-name restore --apply; kafka-drain translate-group '/my archive' "
            "--bootstrap-servers new:9092 --run restore --group=billing --from-archive --apply",
        ),
        (
            restored_to(SENT),
            "by hand",
            "kafka-drain translate-group '/my archive' --bootstrap-servers new:9092 --run "
            "restore-1 --group=billing --from-archive --apply",
        ),
        # Records of a topic that was recreated are gone.
        (restored_to(replace(SENT, topic_id="older")), "by hand", "republish first: "),
        # That run goes on.
        (
            restored_to(replace(SENT, is_verified=False)),
            "by hand",
            "republish first: kafka-drain republish '/my archive' --bootstrap-servers new:9092 "
            "--same-topics --run-name 'the first' --apply; kafka-drain translate-group "
            "'/my archive' --bootstrap-servers new:9092 --run restore-1 ",
        ),
        (
            restored_to(replace(SENT, is_verified=False, follows=True)),
            "by hand",
            "republish first: kafka-drain republish '/my archive' --bootstrap-servers new:9092 "
            "--same-topics --follow --run-name 'the first' --apply",
        ),
        (
            restored_to(SENT, offset=9),
            "by hand",
            "has offsets in the target that no run of this archive has translated; kafka-drain ",
        ),
        (
            restored_to(SENT, translated=replace(GONE_ON, is_applied=False), offset=4),
            "by hand",
            "begun with run restore-1 at noon, and not finished; kafka-drain translate-group ",
        ),
        (
            restored_to(SENT, translated=GONE_ON),
            "by hand",
            "translated with run restore-1 at noon, but orders-0 is at no offset instead of 4; ",
        ),
        (
            restored_to(SENT, translated=GONE_ON, offset=3),
            "by hand",
            "translated with run restore-1 at noon, but orders-0 is at 3 instead of 4; ",
        ),
        (restored_to(SENT, translated=GONE_ON, offset=4), "done", "translated with run restore-1"),
        (restored_to(SENT, translated=GONE_ON, offset=9), "done", "translated with run restore-1"),
        (
            restored_to(SENT, translated=GONE_ON, groups=PartOutcome.NOT_AUTHORISED),
            "done",
            "translated with run restore-1; the target doesn't tell its offsets",
        ),
        # It tells those of others only.
        (
            restored_to(SENT, translated=GONE_ON, untold="1 group isn't described"),
            "done",
            "translated with run restore-1; the target doesn't tell its offsets",
        ),
    ],
)
def test_compare_groups(theirs: TargetCluster, action: str, says: str) -> None:
    """A group's row says what became of it, and has the commands for what is left."""
    found = rows(archived((TOPIC,), groups=(group(4),), held={"orders": 3}), theirs)
    (row,) = [row for row in found if row.kind == Kind.GROUPS]

    assert (str(row.action), row.note[: len(says)]) == (action, says)


def test_compare_groups_other_topic_sent() -> None:
    """What another run has sent isn't sent again, which is refused: only the rest is."""
    theirs = restored_to(replace(SENT, source="paid", topic="paid", topic_id="paid-id"))
    state = theirs.state
    topics = (THERE, replace(THERE, name="paid", id="paid-id"))
    theirs = replace(
        theirs,
        state=replace(state, settings=replace(state.settings, topics=topics)),
        restored=replace(theirs.restored, new_name="restore-2"),
    )

    held = {"orders": 3, "paid": 3}
    found = rows(archived((TOPIC,), groups=(group(4),), held=held), theirs)

    (row,) = [row for row in found if row.kind == Kind.GROUPS]
    assert row.note == (
        "republish first: kafka-drain republish '/my archive' --bootstrap-servers new:9092 "
        "--same-topics --topic=orders --run-name restore-2 --apply; kafka-drain translate-group "
        "'/my archive' --bootstrap-servers new:9092 --run restore-2 --group=billing "
        "--from-archive --apply"
    )


@pytest.mark.parametrize(("offset", "is_done"), [(None, False), (0, True)])
def test_compare_groups_without_records(offset: int | None, is_done: bool) -> None:
    """Of a topic that the archive has no record of, nothing is translated: a command is named."""
    found = rows(archived((TOPIC,), groups=(group(4),)), restored_to(offset=offset))
    (row,) = [row for row in found if row.kind == Kind.GROUPS]

    assert (row.action == Action.DONE) is is_done
    assert is_done or row.note == (
        "the archive has no record of orders: kafka-consumer-groups.sh --bootstrap-server "
        "new:9092 --reset-offsets --group=billing --topic orders --to-earliest --execute"
    )


@pytest.mark.parametrize(
    ("sent", "held", "action"),
    [
        ((), {"orders": 3}, "later"),
        ((replace(SENT, is_verified=False),), {"orders": 3}, "later"),
        ((SENT, replace(SENT, is_verified=False)), {"orders": 3}, "later"),
        ((replace(SENT, topic_id="older"),), {"orders": 3}, "later"),
        ((SENT,), {"orders": 3}, "change"),
        # Nothing will be sent to it.
        ((), {}, "change"),
    ],
)
def test_compare_restoring(sent: tuple[SentTo, ...], held: dict[str, int], action: str) -> None:
    """What a restore has set is set back at once, when its records are verified."""
    theirs = restored_to(*sent, there=RESTORING)
    (row,) = rows(archived((TOPIC,), held=held), theirs)

    assert (str(row.action), row.setting) == (action, "")
    assert row.sets == {**dict.fromkeys(KEEPING), "retention.ms": "1000"}
    assert row.lowers
    assert row.can_apply is (action == "change")
    assert ("--apply configs --accept-lower-safety" in row.note) is (action == "later")


@pytest.mark.parametrize("id", ["id", NO_TOPIC_ID])
def test_compare_restoring_without_ids(id: str) -> None:
    """Where no id tells that the topic is another one, its settings tell what it was made for."""
    there = replace(RESTORING, id=id)
    ours = archived((replace(TOPIC, id=id),), held={"orders": 3})

    for sent, action in (((), "later"), ((replace(SENT, topic_id=id),), "change")):
        row = next(r for r in rows(ours, restored_to(*sent, there=there)) if len(r.sets) > 1)
        assert str(row.action) == action


def test_compare_restoring_refused_value() -> None:
    """A value that the target refuses isn't replaced by its brokers' own, but named."""
    theirs = restored_to(SENT, there=RESTORING)
    theirs = replace(theirs, refusals={"orders": {"retention.ms": "no policy"}})

    found = {row.setting: row for row in rows(archived((TOPIC,), held={"orders": 3}), theirs)}

    assert "retention.ms" not in found[""].sets
    assert found["retention.ms"].action == Action.BY_HAND


@pytest.mark.parametrize(("sent", "action"), [((), "later"), ((SENT,), "change")])
def test_compare_restoring_longer_retention(sent: tuple[SentTo, ...], action: str) -> None:
    """What would delete restored records waits until they are verified, whoever has set it."""
    there = replace(THERE, config={"retention.ms": "31536000000"})

    found = rows(archived((TOPIC,), held={"orders": 3}), restored_to(*sent, there=there))

    assert [str(row.action) for row in found if row.setting == "retention.ms"] == [action]


def test_compare_restoring_same() -> None:
    """What the topic had anyway isn't set back."""
    ours = {**KEEPING, "min.insync.replicas": "2"}
    theirs = restored_to(there=RESTORING)

    assert rows(archived((replace(TOPIC, config=ours, inherited={}),)), theirs) == []


def test_compare_restoring_partly() -> None:
    """Of a topic for which somebody has set back something, the rest is compared one by one."""
    there = replace(RESTORING, config={**RESTORING.config, "retention.bytes": "7"})

    found = rows(archived((TOPIC,), held={"orders": 3}), restored_to(there=there))

    assert {row.setting: str(row.action) for row in found} == {
        "retention.ms": "later",
        **dict.fromkeys(KEEPING.keys() - {"retention.ms"}, "leave"),
    }
    assert sum("--delete-config" in row.note for row in found) == len(KEEPING) - 2


@pytest.mark.parametrize(
    ("now", "sent", "expected"),
    [
        # Created by others, like its source: no restore would keep the timestamps.
        ("LogAppendTime", (), ("change", "CreateTime", "LogAppendTime")),
        ("CreateTime", (), ("later", "LogAppendTime", "CreateTime")),
        ("CreateTime", (SENT,), ("change", "LogAppendTime", "CreateTime")),
        ("LogAppendTime", (SENT,), None),
    ],
)
def test_compare_timestamp_type(
    now: str, sent: tuple[SentTo, ...], expected: tuple[str, str, str] | None
) -> None:
    """A topic has CreateTime as long as records are to be restored, and then what it had."""
    config = {"message.timestamp.type": "LogAppendTime"}
    ours = replace(TOPIC, config=config, inherited={})
    there = replace(THERE, config={"message.timestamp.type": now}, inherited={})

    found = rows(archived((ours,), held={"orders": 3}), restored_to(*sent, there=there))

    assert [(str(r.action), r.archived, r.target) for r in found] == (
        [expected] if expected else []
    )
    for row in found:
        assert row.sets == {"message.timestamp.type": row.archived}
        assert bool(row.lowers) is (row.archived == "LogAppendTime")


def test_compare_own_cluster() -> None:
    """The archived topic itself isn't restored: what has changed since is a difference."""
    config = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    there = replace(TOPIC, config=config, inherited=TOPIC.inherited)

    found = rows(archived((TOPIC,), held={"orders": 3}), restored_to(there=there))

    assert [(r.setting, str(r.action)) for r in found] == [
        ("retention.ms", "change"),
        ("message.timestamp.type", "leave"),
    ]


def test_compare_gone_topic() -> None:
    """A topic that was deleted before the description, but not from the archive, is a row."""
    ours = archived((TOPIC,), held={"orders": 3, "lost": 2}, gone={"orders": "that of noon"})

    added, lost = [row for row in rows(ours, target()) if row.kind == Kind.TOPICS]

    assert (added.action, lost.action) == (Action.ADD, Action.BY_HAND)
    assert "not in the newest description, but the archive has records of it" in added.note
    assert "settings from that of noon" in added.note
    assert lost.note.endswith(
        "kafka-topics.sh --bootstrap-server new:9092 --create --topic lost --partitions 2"
    )


def test_compare_rows() -> None:
    """Each row says all that a user needs, and has what is applied."""
    other = replace(TOPIC, name="payments", partitions=1)
    there = replace(TOPIC, partitions=4, config={"segment.ms": "5", "retention.bytes": "-1"})
    wide = replace(READ, principal="User:*")
    second = replace(USER, name="b c")
    ours = archived((TOPIC, other), (wide,), (USER, second), held={"payments": 1})
    values = {"retention.ms": "-1", "min.insync.replicas": "1"}
    theirs = target((there,), (WRITE,), (USER,), values=values)
    found = rows(ours, replace(theirs, keeping={"retention.ms": "-1"}))

    assert [tuple(row.to_dict().values()) for row in found] == [
        (
            *("topics", "orders", "", "leave", "3 partitions", "4 partitions", ""),
            "Kafka can't remove partitions; original partitions fit, or --placement key",
        ),
        (
            *("configs", "orders", "min.insync.replicas", "change", "2", "1", ""),
            "set by the brokers of the archived cluster",
        ),
        (
            *("configs", "orders", "retention.ms", "change", "1000", "-1"),
            *("deletes records that it keeps now", ""),
        ),
        (
            *("configs", "orders", "retention.bytes", "leave", None, "-1", ""),
            "only on the target; if it was set for a restore: kafka-configs.sh --bootstrap-server "
            "new:9092 --alter --entity-type topics --entity-name orders --delete-config "
            "retention.bytes",
        ),
        ("configs", "orders", "segment.ms", "leave", None, "5", "", "only on the target"),
        (
            *("topics", "payments", "", "add"),
            "1 partitions, replication factor 2, min.insync.replicas=2, retention.ms=1000",
            *(None, ""),
            "created with what a restore needs, which is set back once its records are verified: "
            "retention.ms=-1",
        ),
        (
            *("configs", "payments", "min.insync.replicas", "leave", "2", "2", ""),
            "on the new topic: kept",
        ),
        (
            *("configs", "payments", "retention.ms", "leave", "1000", "-1", ""),
            "on the new topic: kept",
        ),
        (
            *("acls", "allow User:* from * to read topic orders", "", "add", "there", None),
            *("allows everybody", ""),
        ),
        (
            *("acls", "allow User:a from * to write topic orders", "", "leave", None, "there"),
            *("", "only on the target"),
        ),
        (
            *("users", "b c", "", "by hand", "SCRAM-SHA-512", None, ""),
            "a credential never leaves its cluster; with a new password in NEW_PASSWORD: "
            "kafka-configs.sh --bootstrap-server new:9092 --alter --entity-type users "
            "--entity-name 'b c' --add-config "
            '"SCRAM-SHA-512=[iterations=4096,password=${NEW_PASSWORD:?}]"',
        ),
    ]
    keys = ["kind", "name", "setting", "action", "archived", "target", "lowers_safety", "note"]
    assert [*found[0].to_dict()] == keys
    made = replace(other, config={"min.insync.replicas": "2", "retention.ms": "-1"}, inherited={})
    assert [row.item for row in found if row.item is not None] == [made, wide, WRITE]
    assert [row.sets for row in found if row.sets] == [
        {"min.insync.replicas": "2"},
        {"retention.ms": "1000"},
    ]


def test_compare_by_hand() -> None:
    """What isn't known of the target is said in words."""
    unknown = target(about_acls=PartOutcome.UNSUPPORTED)
    unknown.state.parts[Part.USERS] = PartResult(PartOutcome.NOT_AUTHORISED, "")  # type: ignore[index]
    acls, users = rows(archived(acls=(READ,), users=(USER,)), unknown)

    assert tuple(acls.to_dict().values()) == (
        *("acls", "all", "", "by hand", "1 ACLs", None, ""),
        "the target's ACLs are unsupported (): it has no authorizer, or this user lacks "
        "Describe on the cluster",
    )
    assert (users.action, users.archived, users.target) == (Action.BY_HAND, "SCRAM-SHA-512", None)
    assert users.note.startswith("the target's users aren't known; a credential never leaves")


@pytest.mark.parametrize(("now", "action"), [("1", "leave"), ("3", "change")])
def test_compare_existing_topic_fitted(now: str, action: str) -> None:
    """A value that the target can't have isn't set again and again."""
    topic = replace(TOPIC, config={"min.insync.replicas": "2", "segment.bytes": "9"}, inherited={})
    there = replace(THERE, replication_factor=1, config={}, inherited={})
    values = {"min.insync.replicas": now, "segment.bytes": "1048576"}
    refusals = {"orders": {"segment.bytes": "Value must be at least 1048576"}}
    theirs = replace(target((there,), values=values), refusals=refusals)

    found = [row for row in rows(archived((topic,)), theirs) if row.kind == Kind.CONFIGS]

    assert [(r.setting, str(r.action), r.archived, r.target) for r in found] == [
        ("min.insync.replicas", action, "1", now),
        ("segment.bytes", "leave", "1048576", "1048576"),
    ]
    assert "lowered" in found[0].note
    assert "raised" in found[1].note


def test_compare_config_of_broker_now() -> None:
    """If the target's whole configuration isn't known, what it said about the topic counts."""
    there = replace(TOPIC, config={"retention.ms": "5"}, inherited={})
    state = replace(target((there,)), values={})
    found = [r for r in rows(archived((TOPIC,)), state) if r.setting == "retention.ms"]

    assert [(row.archived, row.target) for row in found] == [("1000", "5")]


@pytest.mark.parametrize("part", [Part.TOPICS, Part.ACLS, Part.USERS, Part.GROUPS])
def test_compare_part_not_archived(part: Part) -> None:
    """A part that was never captured is said to be missing, and why."""
    parts = {p: PartResult(PartOutcome.CAPTURED, "") for p in Part}
    parts[part] = PartResult(PartOutcome.NOT_AUTHORISED, "X")
    as_of = {p: "noon" for p in ASKED if p != part}
    ours = archived(parts=parts, as_of=as_of)

    assert not_compared(ours)[str(part)] == "not in the archive: not_authorised X"
    # Without the archived ACLs, nothing is only on the target.
    assert len(rows(ours, target(acls=(READ,)))) == (0 if part == Part.ACLS else 1)


@each_of("kind", Kind)
@each_of("action", Action)
@each_of("lowers", ["", "less"])
@each_of("accept", [False, True])
@each_of("is_wanted", [False, True])
def test_chosen(kind: Kind, action: Action, lowers: str, accept: bool, is_wanted: bool) -> None:
    """Only chosen additions and changes are applied, and less safe ones only if accepted."""
    row = Difference(kind, "a", action, None, None, lowers=lowers)
    applies = is_wanted and kind in APPLICABLE and action in (Action.ADD, Action.CHANGE)
    is_held = applies and bool(lowers) and not accept

    found, held = chosen([row], [kind] if is_wanted else [], accept_lower_safety=accept)

    assert found == ([row] if applies and not is_held else [])
    assert held == ([row] if is_held else [])


def test_compare_new_topic_fitted() -> None:
    """A new topic has a row for each setting; what is applied is what the target takes."""
    topic = replace(TOPIC, replication_factor=3)
    config = {**TOPIC.effective, "message.format.version": "3.0"}
    refusals = {"message.format.version": "Unknown topic config name: message.format.version"}
    topic = replace(topic, config=config, inherited={})
    theirs = replace(target(), refusals={"orders": refusals})

    [added, *settings] = rows(archived((topic,), held={"orders": 3}), theirs)

    assert added.action == Action.ADD
    assert isinstance(added.item, TopicState)
    assert (added.item.replication_factor, added.item.effective) == (
        2,
        {**TOPIC.effective, **KEEPING},
    )
    assert [(row.setting, row.archived, row.target, row.can_apply) for row in settings] == [
        ("message.format.version", "3.0", None, False),
        ("min.insync.replicas", "2", "2", False),
        ("retention.ms", "1000", "-1", False),
    ]
    assert "left out" in settings[0].note


def test_compare_new_topic_without_records() -> None:
    """Nothing is restored to it: it is created with its own settings, and nothing is set back."""
    added, *_ = rows(archived((TOPIC,)), target())

    assert isinstance(added.item, TopicState)
    assert added.item.effective == TOPIC.effective
    assert added.note == "the archive has no record of it"


def test_compare_existing_topic_unknown_setting() -> None:
    """What an existing topic's brokers don't know, or what throttles replicas, isn't applied."""
    ours = {"leader.replication.throttled.replicas": "0:1", "confluent.x": "y"}
    topic = replace(TOPIC, config=ours, inherited={})
    there = replace(TOPIC, config={}, inherited={})
    values = {"leader.replication.throttled.replicas": "", "retention.ms": "1"}

    found = rows(archived((topic,)), target((there,), values=values))

    assert [(row.setting, row.action) for row in found] == [
        ("confluent.x", Action.LEAVE),
        ("leader.replication.throttled.replicas", Action.LEAVE),
    ]
    assert ["left out" in found[0].note, "never copied" in found[1].note] == [True, True]


#: A topic that had Kafka's defaults.
PLAIN = replace(TOPIC, config={}, inherited={})


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("retention.ms", "3600000", ("change", "604800000", "")),
        ("unclean.leader.election.enable", "true", ("change", "false", "")),
        ("cleanup.policy", "compact", ("change", "delete", "removes records by delete")),
        ("message.timestamp.before.max.ms", "1000", ("change", KEEPING[BEFORE], "")),
        # They are safer, or neither.
        ("min.insync.replicas", "2", ("leave", "1", "")),
        ("retention.ms", "-1", ("leave", "604800000", "")),
        ("compression.type", "zstd", ("leave", "Kafka's default", "")),
        # Kafka's default has changed with a release.
        ("message.timestamp.after.max.ms", "1000", ("leave", "Kafka's default", "")),
        # They set what is Kafka's default anyway.
        ("retention.ms", "604800000", None),
        ("segment.bytes", "1073741824", None),
    ],
)
def test_compare_default_set_by_brokers(
    setting: str, value: str, expected: tuple[str, str, str] | None
) -> None:
    """Kafka's default isn't what the target's brokers set; where that is less safe, it is set."""
    there = replace(PLAIN, id="other", inherited={setting: value})

    found = rows(archived((PLAIN,)), target((there,), values=there.inherited))

    assert [(str(r.action), r.archived, r.lowers) for r in found] == [expected] * bool(expected)
    for row in found:
        assert (row.setting, row.target) == (setting, value)
        assert row.sets == ({setting: row.archived} if row.action == Action.CHANGE else {})
        assert "Kafka's default" in row.note
        assert "the target's brokers" in row.note


def test_compare_default_set_by_brokers_of_both() -> None:
    """What the brokers of the archived cluster had set isn't Kafka's default."""
    ours = replace(PLAIN, inherited={"retention.ms": "3600000"})
    there = replace(ours, id="other")

    assert rows(archived((ours,)), target((there,), values=there.inherited)) == []


#: Less safe than Kafka's defaults.
HOURLY = {
    "retention.ms": "3600000",
    "cleanup.policy": "compact",
    "unclean.leader.election.enable": "true",
}


def test_compare_new_topic_default_set_by_brokers() -> None:
    """A new topic gets Kafka's default where the target's brokers set something less safe."""
    theirs = replace(target(), brokers=HOURLY)

    [added, *settings] = rows(archived((PLAIN,)), theirs)

    assert isinstance(added.item, TopicState)
    assert added.item.config == {
        "cleanup.policy": "delete",
        "retention.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
    assert {row.setting: row.target for row in settings} == added.item.config
    assert all("Kafka's default" in row.note for row in settings)


@pytest.mark.parametrize("brokers", [HOURLY, {"retention.ms": "604800000"}, {}])
def test_compare_restoring_default(brokers: Mapping[str, str]) -> None:
    """What is set back is what the topic had, also if the target's brokers set something else."""
    unclean = "unclean.leader.election.enable"
    inherited = {unclean: brokers[unclean]} if unclean in brokers else {}
    there = replace(RESTORING, config=KEEPING, inherited=inherited)
    theirs = restored_to(SENT, there=there)
    theirs = replace(theirs, brokers=brokers, values={"orders": there.effective})

    [row, *others] = rows(archived((PLAIN,), held={"orders": 3}), theirs)

    assert [each.sets for each in others] == [{unclean: "false"}] * (brokers is HOURLY)
    # cleanup.policy was set to Kafka's default, which then stays.
    kept = {"retention.ms": "604800000"} if brokers is HOURLY else dict.fromkeys(["retention.ms"])
    back = dict.fromkeys(KEEPING.keys() - ({"cleanup.policy"} if brokers is HOURLY else set()))
    assert row.sets == {**back, **kept}
    assert "as the topic did before" not in row.lowers
    assert ("retention.ms=604800000" in (row.archived or "")) is bool(brokers)
    assert ("doesn't tell what its brokers set" in row.note) is not brokers


def test_compare_default_set_already() -> None:
    """A topic that has Kafka's default of its own, where its brokers set another, is as it was."""
    there = replace(PLAIN, id="other", config={"retention.ms": "604800000"})
    theirs = replace(target((there,), values=there.config), brokers={"retention.ms": "3600000"})

    assert rows(archived((PLAIN,)), theirs) == []
