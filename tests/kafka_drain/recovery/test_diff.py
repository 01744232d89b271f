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
    Outcome,
    Part,
    PartResult,
    ScramUser,
    Settings,
    TopicState,
)
from kafka_drain.kafka.fitting import fit
from kafka_drain.recovery.diff import (
    APPLICABLE,
    Action,
    Archived,
    Kind,
    Row,
    Target,
    chosen,
    compare,
)
from tests.kafka_drain.cluster_states import group

TOPIC = TopicState("orders", "id", 3, 2, {"retention.ms": "1000"}, {"min.insync.replicas": "2"})
READ = Acl("topic", "orders", "literal", "User:a", "*", "read", "allow")
WRITE = replace(READ, operation="write")
USER = ScramUser("a", "SCRAM-SHA-512", 4096)
BROKERS = tuple(Broker(n, "b", n, None) for n in (1, 2))


def archived(
    topics: tuple[TopicState, ...] = (),
    acls: tuple[Acl, ...] = (),
    users: tuple[ScramUser, ...] = (),
    **more: object,
) -> Archived:
    settings = Settings(BROKERS, topics, acls, users)
    parts = {part: PartResult(Outcome.CAPTURED, "") for part in Part}
    facts = {"groups": (), "parts": parts, "as_of": dict.fromkeys(ASKED, "noon"), **more}
    return Archived(settings, **facts)  # type: ignore[arg-type]


def target(
    topics: tuple[TopicState, ...] = (),
    acls: tuple[Acl, ...] = (),
    users: tuple[ScramUser, ...] = (),
    brokers: tuple[Broker, ...] = BROKERS,
    values: Mapping[str, str] | None = None,
    about_acls: Outcome = Outcome.CAPTURED,
) -> Target:
    parts = {part: PartResult(Outcome.CAPTURED, "") for part in Part}
    parts[Part.ACLS] = PartResult(about_acls, "")
    state = ClusterState("other", parts, Settings(brokers, topics, acls, users), ())
    return Target(state, {"orders": values or {}})


def rows(ours: Archived, theirs: Target) -> list[Row]:
    """Return the differences, without what is always done by hand."""
    always = (Kind.QUOTAS, Kind.VERSIONS)
    return [row for row in compare(ours, theirs) if row.kind not in always]


def brief(found: list[Row]) -> list[tuple[str, str, str, str | None, str | None]]:
    return [(str(r.kind), str(r.action), r.setting, r.archived, r.target) for r in found]


def test_compare_same() -> None:
    """A target that is like the archived cluster has no difference."""
    theirs = target((TOPIC,), (READ,), (USER,), values=TOPIC.effective)

    assert rows(archived((TOPIC,), (READ,), (USER,)), theirs) == []


def test_compare_always_by_hand() -> None:
    """What can't be captured is always said, with what to do."""
    found = compare(archived(), target())

    assert [(row.kind, row.action) for row in found] == [
        (Kind.QUOTAS, Action.BY_HAND),
        (Kind.VERSIONS, Action.BY_HAND),
    ]
    assert all("kafka-" in row.note for row in found)


@pytest.mark.parametrize(
    ("brokers", "lowers"), [(BROKERS, False), (BROKERS[:1], True), ((), False)]
)
def test_compare_new_topic(brokers: tuple[Broker, ...], lowers: bool) -> None:
    """A topic is added; with fewer replicas than it had only if that is accepted."""
    (row,) = rows(archived((TOPIC,)), target(brokers=brokers))

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


@pytest.mark.parametrize("outcome", [Outcome.NOT_AUTHORISED, Outcome.UNSUPPORTED])
def test_compare_acls_unknown(outcome: Outcome) -> None:
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
    assert all("iterations=4096,password=…" in row.note for row in found)


def test_compare_groups() -> None:
    """Groups are translated after the republish."""
    (row,) = rows(archived(groups=(group(4),)), target())

    assert (row.kind, row.action, row.name) == (Kind.GROUPS, Action.BY_HAND, "billing")
    assert "translate-group ARCHIVE --from-archive --group billing" in row.note


def test_compare_rows() -> None:
    """Each row says all that a user needs, and has what is applied."""
    other = replace(TOPIC, name="payments", partitions=1)
    there = replace(TOPIC, partitions=4, config={"segment.ms": "5", "retention.bytes": "-1"})
    wide = replace(READ, principal="User:*")
    second = replace(USER, name="b")
    ours = archived((TOPIC, other), (wide,), (USER, second), groups=(group(4),))
    values = {"retention.ms": "-1", "min.insync.replicas": "1"}
    found = compare(ours, target((there,), (WRITE,), (USER,), values=values))

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
            "set for the restore; kafka-configs.sh --delete-config removes it",
        ),
        ("configs", "orders", "segment.ms", "leave", None, "5", "", "only on the target"),
        (
            *("topics", "payments", "", "add"),
            "1 partitions, replication factor 2, min.insync.replicas=2, retention.ms=1000",
            *(None, ""),
            "created without a limit of retention, so that restored records aren't deleted at "
            "once; compare again when they are verified",
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
            *("users", "b", "", "by hand", "SCRAM-SHA-512", None, ""),
            "a credential never leaves its cluster: kafka-configs.sh --alter --entity-type users "
            "--entity-name b --add-config 'SCRAM-SHA-512=[iterations=4096,password=…]'",
        ),
        (
            *("groups", "billing", "", "by hand", "1 offset", None, ""),
            "after the republish: kafka-drain translate-group ARCHIVE --from-archive --group "
            "billing",
        ),
        ("quotas", "all", "", "by hand", None, None, "", UNAVAILABLE_PARTS[Part.QUOTAS]),
        ("versions", "all", "", "by hand", None, None, "", UNAVAILABLE_PARTS[Part.VERSIONS]),
    ]
    keys = ["kind", "name", "setting", "action", "archived", "target", "lowers_safety", "note"]
    assert [*found[0].to_dict()] == keys
    items = [TOPIC, TOPIC, TOPIC, TOPIC, other, wide, WRITE]
    assert [row.item for row in found if row.item is not None] == items


def test_compare_by_hand() -> None:
    """What isn't known of the target, or isn't in the archive, is said in words."""
    two = replace(group(1), offsets=group(1).offsets * 2)
    unknown = target(about_acls=Outcome.UNSUPPORTED)
    unknown.state.parts[Part.USERS] = PartResult(Outcome.NOT_AUTHORISED, "")  # type: ignore[index]
    as_of = dict.fromkeys([Part.ACLS, Part.USERS, Part.GROUPS], "noon")
    found = rows(
        archived(acls=(READ,), users=(USER,), groups=(two,), parts={}, as_of=as_of), unknown
    )

    assert [tuple(row.to_dict().values()) for row in found] == [
        (
            *("topics", "all", "", "by hand", None, None, ""),
            "not in the archive: never described; nothing can be compared",
        ),
        (
            *("acls", "all", "", "by hand", "1 ACLs", None, ""),
            "the target's ACLs are unsupported (): it has no authorizer, or this user lacks "
            "Describe on the cluster",
        ),
        (
            *("users", "a", "", "by hand", "SCRAM-SHA-512", None, ""),
            "the target's users aren't known; a credential never leaves its cluster: "
            "kafka-configs.sh --alter --entity-type users --entity-name a --add-config "
            "'SCRAM-SHA-512=[iterations=4096,password=…]'",
        ),
        (
            *("groups", "billing", "", "by hand", "2 offsets", None, ""),
            "after the republish: kafka-drain translate-group ARCHIVE --from-archive --group "
            "billing",
        ),
    ]


def test_compare_config_of_broker_now() -> None:
    """If the target's whole configuration isn't known, what it said about the topic counts."""
    there = replace(TOPIC, config={"retention.ms": "5"}, inherited={})
    state = replace(target((there,)), values={})
    found = [r for r in rows(archived((TOPIC,)), state) if r.setting == "retention.ms"]

    assert [(row.archived, row.target) for row in found] == [("1000", "5")]


@pytest.mark.parametrize("part", [Part.TOPICS, Part.ACLS, Part.USERS, Part.GROUPS])
def test_compare_part_not_archived(part: Part) -> None:
    """A part that was never captured is said to be missing, and why."""
    parts = {p: PartResult(Outcome.CAPTURED, "") for p in Part}
    parts[part] = PartResult(Outcome.NOT_AUTHORISED, "X")
    as_of = {p: "noon" for p in ASKED if p != part}
    found = rows(archived(parts=parts, as_of=as_of), target(acls=(READ,)))
    (row,) = [row for row in found if row.action == Action.BY_HAND]

    assert str(row.kind) == str(part)
    # Without the archived ACLs, nothing is only on the target.
    assert len(found) == (1 if part == Part.ACLS else 2)
    assert "not in the archive: not_authorised X" in row.note


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("lowers", ["", "less"])
@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize("is_wanted", [False, True])
def test_chosen(kind: Kind, action: Action, lowers: str, accept: bool, is_wanted: bool) -> None:
    """Only chosen additions and changes are applied, and less safe ones only if accepted."""
    row = Row(kind, "a", action, None, None, lowers=lowers)
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
    theirs = replace(target(), fitted={"orders": fit(config, refusals, 2)})

    [added, *settings] = rows(archived((topic,)), theirs)

    assert added.action == Action.ADD
    assert isinstance(added.item, TopicState)
    assert (added.item.replication_factor, added.item.effective) == (2, TOPIC.effective)
    assert [(row.setting, row.archived, row.target, row.can_apply) for row in settings] == [
        ("message.format.version", "3.0", None, False),
        ("min.insync.replicas", "2", "2", False),
        ("retention.ms", "1000", "-1", False),
    ]
    assert "left out" in settings[0].note


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
