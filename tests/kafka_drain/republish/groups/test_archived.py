"""A group's offsets from the archive alone."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.cluster_moments import note_moment
from kafka_drain.errors import ConfigError, TopicError
from kafka_drain.kafka.cluster_state import Part, PartOutcome, PartResult
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.archived import archived_offsets
from kafka_drain.storage.sealed_json import SealedName
from tests.kafka_drain.cluster_states import state

P0 = TopicPartition("orders", 0)


@pytest.fixture
def root(tmp_path: Path) -> UPath:
    """An archive that noted the group's offset 1 at one o'clock, 2 at two; then it wasn't told."""
    found = UPath(tmp_path)
    for hour, seen in ((1, state(1)), (2, state(2)), (3, state(3, groups=PartOutcome.UNANSWERED))):
        at = f"2026-01-01T{hour:02}:00:00.000+00:00"
        note_moment(found, seen, asked_at=at, answered_at=at)
    return found


@pytest.mark.parametrize(
    ("at", "offset"), [("01:00", 1), ("01:59", 1), ("02:00", 2), ("09:00", 2), (None, 2)]
)
def test_archived_offsets(at: str | None, offset: int, root: UPath) -> None:
    """The newest offsets that aren't later count; the result says as of when they are."""
    time = datetime.fromisoformat(f"2026-01-01T{at}:00+00:00") if at else None

    found = archived_offsets(root, "billing", time)

    assert found.committed == {P0: offset}
    assert f"2026-01-01T0{offset}:00" in found.note()
    assert found.topic_ids == {"orders": "id-1"}


def receipt(number: int | None, *, described: bool = True, hour: int = 0) -> Any:
    """A generation's newest receipt, which names a moment."""
    name = SealedName(number, "0") if number is not None else None
    at = f"2026-01-01T{hour:02}:00:00.000+00:00"
    return SimpleNamespace(cluster=name, described=described, sealed_at=at)


@pytest.mark.parametrize(
    ("receipts", "expected"),
    [
        ([], False),
        ([None], False),
        # Sealed before anything was described.
        ([receipt(None)], False),
        # The newest description was damaged then, so that the receipt names none.
        ([receipt(None, hour=2)], True),
        ([receipt(None, hour=3)], True),
        ([receipt(2)], False),
        ([receipt(2, described=False)], True),
        # Groups weren't captured then.
        ([receipt(3)], True),
        ([receipt(1), receipt(3)], True),
        ([receipt(3), None], True),
        ([receipt(1, described=False), receipt(2)], False),
    ],
)
def test_is_outdated(receipts: list[Any], expected: bool, root: UPath) -> None:
    """What was sealed after the description, the group may have read as well."""
    generations = [SimpleNamespace(last_receipt=lambda each=each: each) for each in receipts]
    snapshot: Any = SimpleNamespace(generations=generations)

    assert archived_offsets(root, "billing", None).is_outdated(snapshot) is expected


def test_archived_offsets_too_early(root: UPath) -> None:
    """Before the first description nothing is known, which isn't the same as no offsets."""
    with pytest.raises(ConfigError, match="no offsets of consumer groups at or before"):
        archived_offsets(root, "billing", datetime.fromisoformat("2026-01-01T00:59:00+00:00"))


def test_archived_offsets_other_group(root: UPath) -> None:
    """A group that had no offsets is refused; those that had are named."""
    with pytest.raises(ConfigError, match=r"group shipping had no offsets .* there were billing"):
        archived_offsets(root, "shipping", None)


def test_archived_offsets_untold(root: UPath) -> None:
    """A group that Kafka didn't tell then isn't said to have had no offsets."""
    why = "billing: unanswered"
    parts = {**state(4).parts, Part.GROUPS: PartResult(PartOutcome.CAPTURED, why)}
    at = "2026-01-01T04:00:00.000+00:00"
    note_moment(root, replace(state(4), parts=parts, groups=()), asked_at=at, answered_at=at)

    with pytest.raises(ConfigError, match=rf"isn't described at .* \({why}\).* or --at"):
        archived_offsets(root, "billing", None)


def test_archived_offsets_edited(root: UPath) -> None:
    """Offsets that were edited are never used: an older moment counts."""
    path = root / "cluster/000000000002.json"
    path.write_bytes(path.read_bytes().replace(b'"offset":2', b'"offset":9'))

    assert archived_offsets(root, "billing", None).committed == {P0: 1}


@pytest.mark.parametrize(
    ("partition", "id", "is_refused"),
    [
        (0, "id-1", False),
        (0, "", False),
        (0, "id-0", True),
        # The group has no offset there.
        (1, "id-0", False),
    ],
)
def test_check_topics(partition: int, id: str, is_refused: bool, root: UPath) -> None:
    """Offsets of a topic that had been recreated by then name other records."""
    found = archived_offsets(root, "billing", None)
    refused = pytest.raises(TopicError, match="name other records")

    with refused if is_refused else nullcontext():
        found.check_topics(
            {TopicPartition("orders", partition): id, TopicPartition("unknown", 0): "id-7"}
        )
