"""How source topics were set up: noted at each drain, read by a restore."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from kafka_drain.archive.topic_settings import (
    noted_compaction,
    read_topic_settings,
    write_topic_settings,
)
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import open_drain
from kafka_drain.errors import ArchiveError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application

SMALL = TopicSettings(2, 1)
LARGE = TopicSettings(12, 3, 5_000_000, {"retention.ms": "1000", "cleanup.policy": "compact"})

names = st.text("abc._-", min_size=1, max_size=4)
settings_of = st.builds(
    TopicSettings,
    st.integers(1, 1000),
    st.integers(1, 5),
    st.integers(0, 1 << 31),
    st.dictionaries(names, st.text(max_size=4)),
)


def test_read_topic_settings_of_older_archive(tmp_path: Path) -> None:
    """An archive that no drain of this release wrote to knows no settings."""
    assert read_topic_settings(UPath(tmp_path)) == {}


@settings(max_examples=40)
@given(st.lists(st.dictionaries(names, settings_of), max_size=4))
def test_write_topic_settings_property(
    tmp_path_factory: pytest.TempPathFactory, drains: list[dict[str, TopicSettings]]
) -> None:
    """Each topic is known as the last drain that had it saw it."""
    root = UPath(tmp_path_factory.mktemp("topics"))
    expected: dict[str, TopicSettings] = {}

    for seen in drains:
        write_topic_settings(root, seen)
        expected |= seen

    assert read_topic_settings(root) == expected


def test_write_topic_settings_unchanged(tmp_path: Path) -> None:
    """What is known already isn't written again."""
    root = UPath(tmp_path)
    write_topic_settings(root, {"a": SMALL, "b": LARGE})
    (root / "topics.json").chmod(0o400)
    before = (root / "topics.json").stat().st_mtime_ns, (root / "topics.json").stat().st_ino

    write_topic_settings(root, {"b": LARGE})
    write_topic_settings(root, {})

    after = (root / "topics.json").stat().st_mtime_ns, (root / "topics.json").stat().st_ino
    assert before == after


@pytest.mark.parametrize(
    ("drains", "expected"),
    [
        ([], {}),
        # An older release noted only what is set on the topic itself.
        ([({}, None)], {}),
        ([({"cleanup.policy": "compact,delete"}, None)], {"a": True}),
        ([({"cleanup.policy": "delete"}, None)], {"a": False}),
        ([({}, False)], {"a": False}),
        ([({}, True)], {"a": True}),
        ([({}, False), ({}, True)], {"a": True}),
        # What compaction removed before it was switched off is gone.
        ([({}, True), ({}, False)], {"a": True}),
        ([({"cleanup.policy": "compact"}, None), ({}, False)], {"a": True}),
        ([({"cleanup.policy": "delete"}, None), ({}, False)], {"a": False}),
    ],
)
def test_noted_compaction(
    tmp_path: Path,
    drains: list[tuple[dict[str, str], bool | None]],
    expected: dict[str, bool],
) -> None:
    """A topic that was compacted at one drain stays one that was."""
    for config, compacted in drains:
        seen = TopicSettings(1, 1, config=config, compacted=compacted)
        write_topic_settings(UPath(tmp_path), {"a": seen})

    assert noted_compaction(UPath(tmp_path)).was == expected


def test_noted_compaction_made_again(tmp_path: Path) -> None:
    """Another topic under the same name wasn't compacted, nor is anything known of it before."""
    root, compacted = UPath(tmp_path), TopicSettings(1, 1, compacted=True)
    write_topic_settings(root, {"a": compacted}, {"a": "old"})
    assert noted_compaction(root, {"a": "old~2"}).was == {"a": True}
    assert noted_compaction(root, {"a": "new"}).was == {}

    write_topic_settings(root, {"a": replace(compacted, compacted=False)}, {"a": "new"})

    assert noted_compaction(root, {"a": "new"}).was == {"a": False}
    assert noted_compaction(root, {"a": "old"}).was == {}


def test_noted_compaction_begins(tmp_path: Path) -> None:
    """Where compaction began stays noted: for this log, and if it is known to have been off."""
    root, tp = UPath(tmp_path), TopicPartition("a", 0)

    def drain(compacted: bool | None, at: int, name: str = "a", topic_id: str = "id") -> None:
        seen = {name: TopicSettings(1, 1, compacted=compacted)}
        write_topic_settings(root, seen, {name: topic_id}, {TopicPartition(name, 0): at})

    drain(None, at=1)
    drain(True, at=2)
    assert noted_compaction(root, {"a": "id"}).begins == {}
    drain(False, at=3, topic_id="new")
    assert noted_compaction(root, {"a": "new"}).begins == {}
    for compacted, at in ((True, 4), (True, 5), (False, 6), (True, 7)):
        drain(compacted, at, topic_id="new")
        drain(compacted, at, name="b")
        assert noted_compaction(root, {"a": "new", "b": "id"}).begins == {tp: 4}
    assert noted_compaction(root, {"a": "new~2"}).begins == {}

    drain(True, at=1, topic_id="new~2")

    assert noted_compaction(root, {"a": "new~2"}).begins == {}


def test_noted_compaction_ends(tmp_path: Path) -> None:
    """Where the log ended when compaction was first seen to be off, until it is on again."""
    root, tp = UPath(tmp_path), TopicPartition("a", 0)

    def drain(compacted: bool | None, end: int, topic_id: str = "id") -> dict[TopicPartition, int]:
        """Drain, and return what is noted then."""
        seen = {"a": TopicSettings(1, 1, compacted=compacted)}
        write_topic_settings(root, seen, {"a": topic_id}, {tp: 0}, {tp: end})
        return dict(noted_compaction(root, {"a": topic_id}).ends)

    assert drain(False, 1) == drain(True, 2) == {}
    assert drain(False, 3) == drain(False, 4) == {tp: 3}
    # A broker that doesn't tell may compact it.
    assert drain(None, 5) == {}
    assert drain(False, 6) == {tp: 6}
    assert drain(True, 7) == {}
    assert drain(False, 8) == {tp: 8}
    assert noted_compaction(root, {"a": "id~2"}).ends == {}
    assert drain(False, 9, "id~2") == {tp: 9}
    assert drain(False, 1, "another") == {}


def test_noted_compaction_ends_partition_added(tmp_path: Path) -> None:
    """A partition that is added after compaction is off wasn't compacted from its end on then."""
    root = UPath(tmp_path)
    old, new = TopicPartition("a", 0), TopicPartition("a", 1)

    def drain(compacted: bool, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Drain, and return what is noted then."""
        seen = {"a": TopicSettings(len(ends), 1, compacted=compacted)}
        write_topic_settings(root, seen, {"a": "id"}, {}, ends)
        return dict(noted_compaction(root, {"a": "id"}).ends)

    drain(True, {old: 1})
    assert drain(False, {old: 2}) == {old: 2}
    assert drain(False, {old: 3, new: 4}) == {old: 2, new: 4}
    assert drain(False, {old: 5, new: 6}) == {old: 2, new: 4}
    # One that isn't named now stays noted.
    assert drain(False, {new: 7}) == {old: 2, new: 4}


def test_read_topic_settings_damaged(tmp_path: Path) -> None:
    """A file that isn't JSON is an error of the archive."""
    (tmp_path / "topics.json").write_text('{"a": ')

    with pytest.raises(ArchiveError, match=r"topics\.json isn't JSON"):
        read_topic_settings(UPath(tmp_path))


def test_topic_settings_changed() -> None:
    """Changed settings leave the others as they are, and the original too."""
    assert LARGE.with_partitions(3) == TopicSettings(3, 3, 5_000_000, LARGE.config)
    assert LARGE.with_config("retention.ms", "-1").config == {
        "retention.ms": "-1",
        "cleanup.policy": "compact",
    }
    assert LARGE.config["retention.ms"] == "1000"


def test_topic_settings_text() -> None:
    """People read partitions, copies and what is set for the topic itself."""
    assert str(SMALL) == "2 partitions, replication factor 1"
    assert str(LARGE) == (
        "12 partitions, replication factor 3, cleanup.policy=compact, retention.ms=1000"
    )


def test_prepare_drain_notes_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain notes how its topics are set up before it reads them."""
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    logs = {TopicPartition("a", 0): Log(end=3), TopicPartition("a", 1): Log(end=3)}
    cluster = FakeCluster(logs, configs={"a": {"retention.ms": "5"}})
    cluster.config = KafkaConfig({"bootstrap.servers": "broker:9092"})  # type: ignore[attr-defined]
    pipeline = Pipeline(name="p", topics=["a"], archive=str(tmp_path / "archive"))

    with open_drain(pipeline, cluster, tmp_path, run="r"):  # type: ignore[arg-type]
        document = json.loads((tmp_path / "archive" / "topics.json").read_text())

    assert document == {
        "a": {
            "partitions": 2,
            "replication_factor": 1,
            "max_message_bytes": 1_048_588,
            "config": {"retention.ms": "5"},
            "compacted": False,
            "topic_id": "id-of-a",
        }
    }
