"""Target topics: whatever would change, drop or refuse records is found before the first one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.errors import (
    AuthorizationError,
    ConfigError,
    KafkaUnavailableError,
    TopicError,
)
from kafka_drain.kafka.acls import TARGET
from kafka_drain.kafka.keeping import AFTER, KEEPING
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning import targets
from kafka_drain.republish.planning.plan import Target
from kafka_drain.republish.planning.record_sizes import Large
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.shards import ShardFile
from kafka_drain.republish.planning.targets import (
    Need,
    PlannedTargets,
    check_names,
    create_targets,
    plan_targets,
    remove_made,
)
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
NOW_MS = int(NOW.timestamp() * 1000)
HOUR = 3_600_000
T0 = TopicPartition("t", 0)

#: Records of the last hour.
NEED = Need(2, NOW_MS - HOUR, NOW_MS, ("t",), ())


def cluster_of(partitions: int = 2, **config: str) -> FakeCluster:
    """A cluster with topic copy."""
    logs = {TopicPartition("copy", p): Log(end=3 + p) for p in range(partitions)}
    return FakeCluster(
        logs,
        topic_ids={"copy": "its id"},
        configs={"copy": {name.replace("_", "."): value for name, value in config.items()}},
    )


def look(
    made: MadeArchive, cluster: FakeCluster, need: Need = NEED, **asked: Any
) -> tuple[tuple[Target, ...], list[str]]:
    """Look at topic copy as a target."""
    request = RepublishRequest(target_topic="copy", **asked)
    planned = plan_targets(made.root, cluster, {"copy": need}, request, NOW)  # type: ignore[arg-type]
    return planned.targets, planned.notes


def test_plan_targets_fine(made: MadeArchive) -> None:
    """A target that takes everything is described, with where each partition ends."""
    cluster = cluster_of(retention_ms=str(2 * HOUR), retention_bytes="-1")

    assert look(made, cluster) == ((Target("copy", "its id", 2, (3, 4), False),), [])


@pytest.mark.parametrize(
    ("source", "is_said"),
    [
        (None, True),
        (TopicSettings(2, 1, compacted=False), True),
        (TopicSettings(2, 1, compacted=True), False),
    ],
)
def test_plan_targets_compacted(
    source: TopicSettings | None, is_said: bool, made: MadeArchive
) -> None:
    """A target that compacts what its source wasn't known to compact keeps less: that is said."""
    if source is not None:
        write_topic_settings(made.root, {"t": source})

    [target], notes = look(made, cluster_of(cleanup_policy="delete,compact"))

    assert target.is_compacted
    said = [note.startswith("WARNING Kafka compacts topic copy") for note in notes]
    assert said == [True] * is_said


@pytest.mark.parametrize(
    ("policy", "kept", "is_said"),
    [
        ("compact", "1000", True),
        ("delete,compact", "86399999", True),
        ("compact", "86400000", False),
        ("delete", "1000", False),
    ],
)
def test_plan_targets_short_tombstones(
    made: MadeArchive, policy: str, kept: str, is_said: bool
) -> None:
    """A target that soon deletes records without a value is named, with the way."""
    _, notes = look(made, cluster_of(cleanup_policy=policy, delete_retention_ms=kept))

    found = [note for note in notes if "delete.retention.ms" in note]
    assert bool(found) is is_said
    assert all("--add-config delete.retention.ms=86400000" in note for note in found)


def test_plan_targets_limited_by_size(made: MadeArchive) -> None:
    """A target that deletes by size may do so while records arrive: that is said, with the way."""
    _, notes = look(made, cluster_of(retention_bytes="5"))

    [note] = notes
    assert note.startswith("WARNING topic copy has retention.bytes=5")
    assert "--alter --topic copy --add-config retention.bytes=-1" in note
    # What compacts alone deletes nothing by size.
    assert len(look(made, cluster_of(retention_bytes="5", cleanup_policy="compact"))[1]) == 1


def test_plan_targets_open_transaction(made: MadeArchive) -> None:
    """Records of an open transaction were there before the run, too."""
    cluster = cluster_of()
    cluster.logs = {tp: replace(log, stable=0) for tp, log in cluster.logs.items()}

    [target], _ = look(made, cluster)

    assert target.start == (3, 4)


def test_plan_targets_missing(made: MadeArchive) -> None:
    """A missing topic isn't created unasked; the refusal names the option that does."""
    write_topic_settings(made.root, {"t": TopicSettings(2, 1)})
    request = RepublishRequest(target_topic="new")

    with pytest.raises(TopicError, match=r"new doesn't exist; --create-target .*Nothing was sent"):
        plan_targets(made.root, FakeCluster({}), {"new": NEED}, request, NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "need", "says"),
    [
        (
            {"message_timestamp_type": "LogAppendTime"},
            NEED,
            r"message\.timestamp\.type=LogAppendTime, which replaces the records' own timestamps",
        ),
        (
            {"retention_ms": str(HOUR - 1)},
            NEED,
            r"retention\.ms=3599999, and the oldest record has timestamp 2026-05-31T23:00:00\.000Z",
        ),
        (
            {"cleanup_policy": "compact,delete", "retention_ms": "0"},
            NEED,
            r"retention\.ms=0, .*Kafka would delete it at once",
        ),
        (
            {"message_timestamp_before_max_ms": str(HOUR - 1)},
            NEED,
            r"message\.timestamp\.before\.max\.ms=3599999, .*Kafka would refuse it",
        ),
        (
            {"message_timestamp_difference_max_ms": str(HOUR - 1)},
            NEED,
            r"message\.timestamp\.difference\.max\.ms=3599999",
        ),
        (
            {"message_timestamp_after_max_ms": "0"},
            replace(NEED, newest_ms=NOW_MS + 1),
            r"message\.timestamp\.after\.max\.ms=0, and the newest record has timestamp "
            r"2026-06-01T00:00",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_plan_targets_refused(
    made: MadeArchive, config: dict[str, str], need: Need, says: str
) -> None:
    """A setting that would change or drop records is named, with its value and the command."""
    with pytest.raises(TopicError, match=says) as caught:
        look(made, cluster_of(**config), need)

    (setting,) = [name.replace("_", ".") for name in config if name != "cleanup_policy"]
    assert (
        "kafka-configs.sh --bootstrap-server fake:9092 --alter --topic copy --add-config "
        f"{setting}={KEEPING[setting]}, or"
    ) in str(caught.value)
    assert str(caught.value).endswith("Nothing was sent")
    # Spark's own sink sets timestamps anew.
    look(made, cluster_of(**config), need, delivery="at_least_once")


@pytest.mark.parametrize(
    "config",
    [
        {"retention_ms": str(HOUR)},
        {"retention_ms": "-1"},
        {"retention_ms": "0", "cleanup_policy": "compact"},
        {"message_timestamp_before_max_ms": str(HOUR)},
        {"message_timestamp_difference_max_ms": str(HOUR)},
        {"message_timestamp_after_max_ms": "0"},
        {"message_timestamp_type": "CreateTime"},
    ],
    ids=str,
)
def test_plan_targets_just_enough(made: MadeArchive, config: dict[str, str]) -> None:
    """A setting that just suffices is accepted."""
    look(made, cluster_of(**config))


@pytest.mark.parametrize("need", [Need(2, None, None, ("t",), ())])
def test_plan_targets_unknown_times(made: MadeArchive, need: Need) -> None:
    """Without known timestamps only what replaces them all is refused."""
    look(made, cluster_of(retention_ms="0", message_timestamp_before_max_ms="0"), need)

    with pytest.raises(TopicError, match="LogAppendTime"):
        look(made, cluster_of(message_timestamp_type="LogAppendTime"), need)


def test_plan_targets_unknown_retention(made: MadeArchive) -> None:
    """A topic that doesn't tell its retention is accepted, however old the records are."""
    look(made, cluster_of(), replace(NEED, oldest_ms=0))


def test_plan_targets_partitions(made: MadeArchive) -> None:
    """A target with too few partitions is refused, unless keys are placed anew."""
    with pytest.raises(
        TopicError, match=r"copy has 1 partitions, but the records need 2 .*Nothing"
    ):
        look(made, cluster_of(1))

    [target], _ = look(made, cluster_of(1), placement="key")
    assert target.partitions == 1


@pytest.mark.parametrize("missing", TARGET)
def test_plan_targets_acl_missing(made: MadeArchive, missing: str) -> None:
    """A right that this user lacks is named before the first record."""
    cluster = cluster_of()
    cluster.allowed["copy"] = {*TARGET, "ALTER"} - {missing}

    with pytest.raises(AuthorizationError, match=f"may not {missing} on topic copy.*add the ACL"):
        look(made, cluster)


# sizes


def test_plan_targets_record_too_large(made: MadeArchive) -> None:
    """A record that the target wouldn't take is named by its offset and file."""
    asked: list[tuple[str, int, str]] = []

    def larger(*about: Any) -> list[Large]:
        asked.append(about)
        return [Large("a.parquet", 5, 100_001, 100_070)]

    cluster = cluster_of(max_message_bytes="90000", compression_type="gzip")
    request = RepublishRequest(target_topic="copy")
    with pytest.raises(
        TopicError,
        match=r"max\.message\.bytes=90000, the record at offset 5 in a\.parquet has 100,001 bytes, "
        r"and needs 100,070 .*Nothing was sent",
    ):
        plan_targets(made.root, cluster, {"copy": NEED}, request, NOW, larger)  # type: ignore[arg-type]

    assert asked == [("copy", 90_000, "gzip")]


# topics that are made


def make(
    made: MadeArchive,
    source: TopicSettings,
    need: Need = NEED,
    cluster: FakeCluster | None = None,
    larger: Any = lambda *_: (),
) -> tuple[TopicSettings, list[str]]:
    """Make topic new like a source; return how it was made, and what a dry run says before."""
    write_topic_settings(made.root, {"t": source})
    cluster = cluster or FakeCluster({})
    request = RepublishRequest(target_topic="new", create_target=True)

    def plan() -> PlannedTargets:
        return plan_targets(made.root, cluster, {"new": need}, request, NOW, larger)  # type: ignore[arg-type]

    dry = plan()
    assert not cluster.has_topic("new")

    ids: dict[str, str] = {}
    create_targets(cluster, dry.new, ids)  # type: ignore[arg-type]

    assert ids == {"new": "id-of-new"}
    after = plan()
    assert (after.notes, after.new) == ([], {})
    partitions = after.targets[0].partitions
    # A topic that isn't there yet begins with nothing in each partition.
    assert dry.targets[0] == Target("new", "", partitions, (0,) * partitions)
    return cluster.topic_settings("new"), dry.notes


def test_create_targets_like_source(made: MadeArchive) -> None:
    """A missing topic is made like its source; a dry run says how, setting by setting."""
    source = TopicSettings(4, 1, config={"cleanup.policy": "compact", "segment.ms": "5"})

    settings, notes = make(made, source)

    assert settings == source
    assert notes == [
        "topic new will be created: 4 partitions, replication factor 1, cleanup.policy=compact, "
        "segment.ms=5",
        "  new: cleanup.policy=compact: kept",
        "  new: segment.ms=5: kept",
    ]


def test_create_targets_asks_with_copied(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Throttles are a matter of the source's brokers: the target isn't even asked for them."""
    throttled = "leader.replication.throttled.replicas"
    cluster, asked = FakeCluster({}), list[Any]()
    cluster.words = {throttled: "Policy: no"}
    ask = cluster.refused_settings
    monkeypatch.setattr(
        cluster, "refused_settings", lambda name, of: asked.append((name, of)) or ask(name, of)
    )
    source = TopicSettings(2, 5, config={throttled: "*", "retention.ms": "-1"})

    settings, _ = make(made, source, cluster=cluster)

    assert settings.config == {"retention.ms": "-1"}
    assert asked == [("new", TopicSettings(2, 3, config={"retention.ms": "-1"}))]


def test_create_targets_refused_as_a_whole(made: MadeArchive) -> None:
    """A topic that Kafka refuses as a whole is refused in the plan, with a way on."""
    cluster = FakeCluster({})
    cluster.refused = {"new"}

    with pytest.raises(TopicError, match=r"new can't be created like .* policy.*--create-target"):
        make(made, TopicSettings(2, 1), cluster=cluster)


def test_create_targets_of_later_source(made: MadeArchive) -> None:
    """The topic is made like the first of its sources whose settings are known."""
    need = replace(NEED, sources=("unknown", "t"))

    assert make(made, TopicSettings(4, 1), need)[0].partitions == 4


def test_create_targets_fitted(made: MadeArchive) -> None:
    """What the target doesn't take is left out or changed, and each setting has its line."""
    cluster = FakeCluster({})
    cluster.words = {
        "confluent.tier.enable": "Unknown topic config name: confluent.tier.enable",
        "segment.bytes": "Invalid value 5 for configuration …: Value must be at least 1048576",
    }
    config = {"segment.bytes": "5", "confluent.tier.enable": "true", "retention.ms": "-1"}

    settings, notes = make(made, TopicSettings(2, 5, config=config), cluster=cluster)

    assert settings.config == {"segment.bytes": "1048576", "retention.ms": "-1"}
    assert "replication factor 3" in notes[0]
    assert "the source has 5, the target 3 brokers" in notes[0]
    assert [note.partition(": ")[2] for note in notes[1:]] == [
        "confluent.tier.enable=true: left out (the target doesn't know it)",
        "retention.ms=-1: kept",
        "segment.bytes=5: raised, segment.bytes=1048576 (the target takes at least 1048576)",
    ]


def test_create_targets_setting_refused(made: MadeArchive) -> None:
    """A setting that records may depend on isn't left out: topic, setting and a way on are said."""
    cluster = FakeCluster({})
    cluster.words = {"cleanup.policy": "Policy: only delete"}

    with pytest.raises(
        TopicError, match=r"topic new .* cleanup\.policy=compact: .*only delete.*--create-target"
    ):
        make(made, TopicSettings(2, 1, config={"cleanup.policy": "compact"}), cluster=cluster)


@pytest.mark.parametrize(
    ("config", "broker", "source_takes", "expected"),
    [
        ({}, {"message.max.bytes": "1000"}, 900, 5000),
        ({}, {"message.max.bytes": "1000"}, 9000, 9000),
        ({"max.message.bytes": "1000"}, {"message.max.bytes": "9000"}, 1000, 5000),
        ({}, {}, 900, 5000),
    ],
    ids=str,
)
def test_create_targets_for_large_records(
    made: MadeArchive,
    config: dict[str, str],
    broker: dict[str, str],
    source_takes: int,
    expected: int,
) -> None:
    """A new topic takes the largest record, whatever the source's limit is today."""
    cluster = FakeCluster({})
    cluster.broker = broker
    source = TopicSettings(2, 1, source_takes, config)

    def larger(_: str, limit: int, codec: str) -> list[Large]:
        records = [Large("a.parquet", 7, 4900, 5000), Large("b.parquet", 8, 3900, 4000)]
        return [record for record in records if record.batch > limit]

    settings, notes = make(made, source, cluster=cluster, larger=larger)

    assert settings.config["max.message.bytes"] == str(expected)
    assert "would refuse the record at offset 7 in a.parquet" in notes[0]


@pytest.mark.parametrize(
    ("config", "broker", "asked"),
    [
        ({}, {}, (900, "producer")),
        ({}, {"compression.type": "zstd"}, (900, "zstd")),
        ({"compression.type": "gzip"}, {"compression.type": "zstd"}, (900, "gzip")),
        ({"segment.bytes": "500"}, {}, (500, "producer")),
        ({"max.message.bytes": "700"}, {}, (700, "producer")),
    ],
)
def test_create_targets_limits(
    made: MadeArchive, config: dict[str, str], broker: dict[str, str], asked: tuple[int, str]
) -> None:
    """Records are measured by the topic's lowest limit, and with its compression."""
    cluster, limits = FakeCluster({}), list[Any]()
    cluster.broker = {"message.max.bytes": "900"} | broker

    def larger(*about: Any) -> tuple[()]:
        limits.append(about)
        return ()

    make(made, TopicSettings(2, 1, 800, config), cluster=cluster, larger=larger)

    assert limits[0] == ("new", *asked)


def test_create_targets_limit_not_told(made: MadeArchive) -> None:
    """A broker that doesn't tell its limit may have a lower one: the source's is set."""
    cluster = FakeCluster({})
    cluster.broker = {}

    assert make(made, TopicSettings(2, 1, 4321), cluster=cluster)[0].config == {
        "max.message.bytes": "4321"
    }


@pytest.mark.parametrize(("segment", "expected"), [("5000", "6000"), ("9000", "9000")])
def test_create_targets_largest_batch(made: MadeArchive, segment: str, expected: str) -> None:
    """Limits are raised to the largest batch, which needn't be that of the largest record."""
    records = [Large("a.parquet", 7, 5000, 5500), Large("b.parquet", 8, 100, 6000)]

    settings, _ = make(
        made,
        TopicSettings(2, 1, 900, {"segment.bytes": segment, "max.message.bytes": "900"}),
        larger=lambda _, limit, codec: [each for each in records if each.batch > limit],
    )

    assert settings.config == {"max.message.bytes": "6000", "segment.bytes": expected}


def test_remove_made_unsure(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """A topic stays if a transaction is open in it, or if Kafka doesn't answer, which is said."""
    cluster = FakeCluster({TopicPartition("open", 0): Log(end=1, stable=0)})
    remove_made(cluster, {"open": "id-of-open"})  # type: ignore[arg-type]
    assert cluster.topic_names() == ["open"]

    def silent(*_: object) -> None:
        raise KafkaUnavailableError("no answer")

    monkeypatch.setattr(cluster, "latest", silent)
    remove_made(cluster, {"open": "id-of-open"})  # type: ignore[arg-type]
    assert "topic open" in said[-1]
    assert "no answer" in said[-1]


def test_remove_made(made: MadeArchive, said: list[str]) -> None:
    """A topic is removed only if it is the one that was made, and nothing was ever sent to it."""
    logs = {
        TopicPartition(name, 0): Log(end=int(name == "used")) for name in ("mine", "used", "other")
    }
    cluster = FakeCluster(logs)
    ids = {"mine": "id-of-mine", "used": "id-of-used", "other": "another id", "gone": "id"}

    remove_made(cluster, ids)  # type: ignore[arg-type]

    assert cluster.topic_names() == ["other", "used"]
    assert said[0] == "topic mine, which this run had created, was removed again"
    assert "topic gone" in said[1]


def test_create_targets_more_partitions(made: MadeArchive) -> None:
    """The target has as many partitions as the records need, where the source had fewer."""
    assert make(made, TopicSettings(1, 1))[0].partitions == 2


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"retention.ms": "-1"}),
        (
            {"retention.ms": "-1", "retention.bytes": "1000"},
            {"retention.ms": "-1", "retention.bytes": "-1"},
        ),
        (
            {"retention.bytes": "1000", "cleanup.policy": "compact"},
            {"retention.bytes": "1000", "cleanup.policy": "compact"},
        ),
        (
            {"delete.retention.ms": "1000", "cleanup.policy": "compact"},
            {"delete.retention.ms": "86400000", "cleanup.policy": "compact"},
        ),
        ({"retention.ms": "1000"}, {"retention.ms": "-1"}),
        ({"retention.ms": "-1"}, {"retention.ms": "-1"}),
        (
            {"retention.ms": "1000", "cleanup.policy": "compact"},
            {"retention.ms": "1000", "cleanup.policy": "compact"},
        ),
        (
            {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"},
            {"retention.ms": "-1", "message.timestamp.type": "CreateTime"},
        ),
        (
            {"retention.ms": "-1", "message.timestamp.before.max.ms": "1000"},
            {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)},
        ),
    ],
    ids=str,
)
def test_create_targets_for_old_records(
    made: MadeArchive, config: dict[str, str], expected: dict[str, str]
) -> None:
    """A setting of the source that would drop or change old records isn't taken over."""
    need = replace(NEED, oldest_ms=NOW_MS - 8 * 24 * HOUR)

    settings, notes = make(made, TopicSettings(2, 1, config=config), need)

    assert settings.config == expected
    is_said = "the source's would refuse, drop or change old records" in notes[0]
    assert is_said == (config != expected)


@pytest.mark.parametrize(
    ("config", "broker", "expected"),
    [
        ({}, {}, {}),
        # Kafka 4's own bound.
        ({}, {"log.message.timestamp.after.max.ms": str(HOUR)}, {AFTER: KEEPING[AFTER]}),
        ({AFTER: str(HOUR)}, {}, {AFTER: KEEPING[AFTER]}),
        (
            {AFTER: str(9 * HOUR)},
            {"log.message.timestamp.after.max.ms": str(HOUR)},
            {AFTER: str(9 * HOUR)},
        ),
        (
            {},
            {"log.message.timestamp.type": "LogAppendTime"},
            {"message.timestamp.type": "CreateTime"},
        ),
    ],
    ids=str,
)
def test_create_targets_for_records_ahead(
    made: MadeArchive, config: dict[str, str], broker: dict[str, str], expected: dict[str, str]
) -> None:
    """A bound that would refuse records from the future isn't taken over, not from brokers."""
    cluster = FakeCluster({})
    cluster.broker |= broker
    need = replace(NEED, newest_ms=NOW_MS + 2 * HOUR)

    assert make(made, TopicSettings(2, 1, config=config), need, cluster)[0].config == expected


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ({"log.retention.hours": "168"}, {}),
        ({"log.retention.hours": "24"}, {"retention.ms": "-1"}),
        ({"log.retention.hours": "-1"}, {}),
        ({"log.retention.hours": "168", "log.retention.minutes": "60"}, {"retention.ms": "-1"}),
        ({"log.retention.hours": "1", "log.retention.ms": str(72 * HOUR)}, {}),
        ({"log.retention.hours": "1", "log.retention.ms": "-1"}, {}),
        ({"log.retention.hours": "-1", "log.retention.bytes": "5"}, {"retention.bytes": "-1"}),
        ({"log.retention.hours": "-1", "log.retention.bytes": "-1"}, {}),
    ],
    ids=str,
)
def test_create_targets_retention_of_brokers(
    made: MadeArchive, broker: dict[str, str], expected: dict[str, str]
) -> None:
    """Brokers that would delete old records at once don't get them without a longer retention."""
    cluster = FakeCluster({})
    cluster.broker |= broker
    need = replace(NEED, oldest_ms=NOW_MS - 48 * HOUR)

    assert make(made, TopicSettings(2, 1), need, cluster)[0].config == expected


def test_create_targets_for_new_records(made: MadeArchive) -> None:
    """Of records that the source still keeps, its retention is taken over."""
    config = {"retention.ms": str(2 * HOUR)}

    assert make(made, TopicSettings(2, 1, config=config))[0].config == config


def test_create_targets_leaves_others(made: MadeArchive) -> None:
    """A topic that another client has just made is left as it is, and isn't this run's."""
    cluster = cluster_of(retention_ms="-1")
    before = cluster.topic_settings("copy")
    ids: dict[str, str] = {}

    create_targets(cluster, {"copy": TopicSettings(9, 1)}, ids)  # type: ignore[arg-type]

    assert (cluster.topic_settings("copy"), ids) == (before, {})


def test_create_targets_source_unknown(made: MadeArchive) -> None:
    """An archive that doesn't know how its source was set up says so."""
    request = RepublishRequest(target_topic="new", create_target=True)

    with pytest.raises(
        TopicError, match=r"doesn't have the settings of t, expected in topics\.json"
    ):
        plan_targets(made.root, FakeCluster({}), {"new": NEED}, request, NOW)  # type: ignore[arg-type]


# what records ask of a topic

times = st.none() | st.integers(-5, 5)
needs = st.builds(
    Need,
    st.integers(1, 9),
    times,
    times,
    st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    st.lists(
        st.sampled_from([ShardFile(p, "parquet", 1, "", 0, 0, 1, True) for p in "xyz"]),
        unique=True,
    ).map(tuple),
)


@given(needs, needs, needs)
def test_need_plus_property(a: Need, b: Need, c: Need) -> None:
    """What is asked together is the most of each, in whatever order it is put together."""
    both = Need.together([a, b])

    assert Need.together([both, c]) == Need.together([a, Need.together([b, c])])
    assert both.partitions == max(a.partitions, b.partitions)
    oldest = [need.oldest_ms for need in (a, b) if need.oldest_ms is not None]
    newest = [need.newest_ms for need in (a, b) if need.newest_ms is not None]
    assert (both.oldest_ms, both.newest_ms) == (
        min(oldest, default=None),
        max(newest, default=None),
    )
    assert set(both.sources) == {*a.sources, *b.sources}
    assert set(both.files) == {*a.files, *b.files}


def test_age_of_old_record_in_message(made: MadeArchive) -> None:
    """The message tells the time of the oldest record, to the millisecond."""
    oldest = int((NOW - timedelta(days=40, milliseconds=-7)).timestamp() * 1000)

    with pytest.raises(TopicError, match=r"oldest record has timestamp 2026-04-22T00:00:00\.007Z"):
        look(made, cluster_of(retention_ms=str(HOUR)), replace(NEED, oldest_ms=oldest))


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_check_names_of_kafka(name: str) -> None:
    """Kafka's own topics are no targets."""
    with pytest.raises(ConfigError, match=f"target topic {name} is one of Kafka's internal topics"):
        check_names(["copy", name])


def test_plan_targets_reads_once(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noted of the sources is read once, however many targets there are."""
    read: list[Any] = []
    noted = targets.noted_compaction
    monkeypatch.setattr(targets, "noted_compaction", lambda root: read.append(root) or noted(root))
    logs = {TopicPartition(name, p): Log(end=3) for name in ("copy", "more") for p in (0, 1)}
    request = RepublishRequest(target_topic="copy")

    plan_targets(made.root, FakeCluster(logs), {"copy": NEED, "more": NEED}, request, NOW)  # type: ignore[arg-type]

    assert len(read) == 1
