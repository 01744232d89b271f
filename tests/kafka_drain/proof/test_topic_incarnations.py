"""Which incarnation of a topic was read."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.kafka.identity import NO_TOPIC_ID
from kafka_drain.proof.topic_ids import ReadFrom, read_from, write_read_from
from kafka_drain.proof.topic_incarnations import Incarnation, incarnation_of, other_incarnations
from kafka_drain.storage.json_files import write_document

OLD, NEW = "old", "new"

#: By the archive's id, the id when Spark had read, and the id that the topic has now.
TABLE = {
    (OLD, OLD, OLD): Incarnation.SAME,
    (OLD, OLD, NEW): Incarnation.SAME,
    (OLD, OLD, None): Incarnation.SAME,
    (OLD, NEW, OLD): Incarnation.OTHER,
    (OLD, NEW, NEW): Incarnation.OTHER,
    (OLD, NEW, None): Incarnation.OTHER,
    (OLD, None, OLD): Incarnation.SAME,
    (OLD, None, NEW): Incarnation.UNKNOWN,
    (OLD, None, None): Incarnation.UNKNOWN,
    **{(None, *rest): Incarnation.UNKNOWN for rest in product((OLD, NEW, None), repeat=2)},
}


@pytest.mark.parametrize(
    ("meant", "now"),
    [(NO_TOPIC_ID, NO_TOPIC_ID), (NO_TOPIC_ID, NEW), (OLD, NO_TOPIC_ID), (f"{OLD}~2", NO_TOPIC_ID)],
)
@pytest.mark.parametrize("after_read", [None, NO_TOPIC_ID, OLD])
def test_incarnation_of_untold(meant: str, after_read: str | None, now: str) -> None:
    """Zeros are no id: they aren't the same, and no batch waits for an answer that won't come."""
    assert incarnation_of(meant, after_read, now) is Incarnation.UNTOLD
    assert other_incarnations({"t": meant}, ["t"], {"t": after_read}, {"t": now}) == []
    # A topic that is gone may have been another one.
    assert other_incarnations({"t": NO_TOPIC_ID}, ["t"], {}, {}) != []


@pytest.mark.parametrize(
    "case", list(product((OLD, None), (OLD, NEW, None), (OLD, NEW, None))), ids=repr
)
def test_incarnation_of(case: tuple[str | None, str | None, str | None]) -> None:
    """The id after the read decides; the id of now only where it is still that of the archive."""
    assert incarnation_of(*case) is TABLE[case]


def test_other_incarnations() -> None:
    """Topics of which another incarnation may have been read are named, each with both ids."""
    meant = {"a": "1", "b": "2", "c": "3", "d": "4"}

    found = other_incarnations(meant, meant, {"a": "1", "b": "9"}, {"a": "8", "c": "7"})

    assert found == [
        "b has topic id 9, the archive has 2",
        "c has topic id 7, the archive has 3",
        "d no longer exists, the archive has 4",
    ]
    assert other_incarnations(meant, ["a"], {}, {"a": "1"}) == []


def test_read_from(tmp_path: Path) -> None:
    """What a drain saw is read as it was left; one that never came to its end left nothing."""
    generation = Archive(UPath(tmp_path)).generation(1)
    assert read_from(generation) is None

    for batch in (3, 4):
        write_read_from(generation, ReadFrom(batch, {"t": "1"}))

    assert read_from(generation) == ReadFrom(4, {"t": "1"})


def test_read_from_older_release(tmp_path: Path) -> None:
    """An older release has left the cluster's id as well."""
    generation = Archive(UPath(tmp_path)).generation(1)
    older = {"last_batch": 3, "cluster_id": "cluster", "topics": {"t": "1"}}
    write_document(generation.folder / "read_from.json", older)

    assert read_from(generation) == ReadFrom(3, {"t": "1"})


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"last_batch": "3", "topics": {}}', '{"last_batch": 3, "topics": "t"}'],
)
def test_read_from_damaged(tmp_path: Path, content: str) -> None:
    """A damaged document says nothing: what Kafka says now decides then."""
    generation = Archive(UPath(tmp_path)).generation(1)
    write_read_from(generation, ReadFrom(3, {}))
    (tmp_path / "generations" / "0001" / "read_from.json").write_text(content)

    assert read_from(generation) is None


def test_life_text() -> None:
    """An incarnation is shown as its value."""
    assert [str(life) for life in Incarnation] == ["same", "other", "unknown", "untold"]
