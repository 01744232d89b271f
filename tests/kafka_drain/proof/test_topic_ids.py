"""Which topic ids Kafka has, and what a drain noted of those that it saw."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import TopicError
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.topic_ids import (
    ReadFrom,
    read_from,
    refuse_other_incarnations,
    topic_ids_now,
    write_read_from,
)
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.tables import each_of

#: An internal topic, which Kafka's list leaves out, and two others.
THERE = ("__consumer_offsets", "a", "b")


def cluster(**topic_ids: str) -> Any:
    """Return a cluster with the topics of `THERE`."""
    return FakeCluster({TopicPartition(name, 0): Log() for name in THERE}, topic_ids=topic_ids)


@each_of(
    ("names", "expected"),
    [
        ([], {}),
        (["a"], {"a": "id-of-a"}),
        (["a", "gone"], {"a": "id-of-a"}),
        (["gone"], {}),
        (["__consumer_offsets"], {"__consumer_offsets": "id-of-__consumer_offsets"}),
    ],
)
def test_topic_ids_now(names: list[str], expected: dict[str, str]) -> None:
    """A topic that is gone has no id; an internal one, which isn't listed, has its own."""
    assert topic_ids_now(cluster(), names) == expected


@each_of(
    ("meant", "refused"),
    [
        ({}, None),
        ({"a": "id-of-a", "b": "id-of-b"}, None),
        ({"__consumer_offsets": "id-of-__consumer_offsets"}, None),
        ({"a": "id-of-a", "b": "another"}, "b has topic id id-of-b, the archive has another"),
        ({"gone": "id-of-gone"}, "gone no longer exists, the archive has id-of-gone"),
    ],
)
def test_refuse_other_incarnations(meant: Mapping[str, str], refused: str | None) -> None:
    """Only what was certainly read from the same topics passes."""
    if refused is None:
        refuse_other_incarnations(cluster(), meant, "so what")
        return
    with pytest.raises(TopicError, match=f"{refused}.*: so what"):
        refuse_other_incarnations(cluster(), meant, "so what")


def test_read_from(tmp_path: Path) -> None:
    """What a drain saw is read as it was noted; without a note, or with half of one, nothing."""
    generation = Archive.at(str(tmp_path)).generation(1)
    seen = ReadFrom(7, {"a": "id-of-a"})

    assert read_from(generation) is None
    write_read_from(generation, seen)
    assert read_from(generation) == seen
    note = tmp_path / "generations" / "0001" / "read_from.json"
    note.write_bytes(note.read_bytes()[:-4])
    assert read_from(generation) is None
