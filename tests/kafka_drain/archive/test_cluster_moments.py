"""Moments of a cluster: written when something has changed, chained, and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from upath import UPath

from kafka_drain.archive.cluster_documents import ClusterDocumentError, parse_moment, settings_path
from kafka_drain.archive.cluster_moments import (
    MOMENTS,
    check_moments,
    judge,
    moment_at,
    note_moment,
    read_settings,
)
from kafka_drain.findings import Reason
from kafka_drain.kafka.cluster_state import ClusterState, Part, PartOutcome
from kafka_drain.storage.sealed_json import SealedName
from tests.kafka_drain.cluster_states import SETTINGS, group, state


def note(root: Path, at: int, seen: ClusterState) -> SealedName:
    """Note what a cluster answers at an hour of a day."""
    text = f"2026-01-01T{at:02}:00:00.000+00:00"
    return note_moment(UPath(root), seen, asked_at=text, answered_at=text)


def test_note_moment_when_changed(tmp_path: Path) -> None:
    """A moment is written only if the cluster isn't what it was, and settings only once."""
    first = note(tmp_path, 1, state(1))
    again = note(tmp_path, 2, state(1))
    moved = note(tmp_path, 3, state(2))
    fewer = note(tmp_path, 4, state(2, replace(SETTINGS, users=())))
    back = note(tmp_path, 5, state(2))

    assert [name.number for name in (first, again, moved, fewer, back)] == [1, 1, 2, 3, 4]
    assert again == first
    assert len([*(tmp_path / "cluster/settings").iterdir()]) == 2
    assert MOMENTS.newest(UPath(tmp_path)) == back


def test_note_moment_round_trip(tmp_path: Path) -> None:
    """What was noted is what is read."""
    root = UPath(tmp_path)
    noted = note(tmp_path, 1, state(7))
    moment = MOMENTS.read(root, noted.number)

    assert moment.groups == (group(7),)
    assert moment.parts == state().parts
    assert read_settings(root, moment) == SETTINGS
    assert (moment.name, moment.previous) == (noted, None)


def test_note_moment_chain(tmp_path: Path) -> None:
    """Each moment has the hash of the one before."""
    names = [note(tmp_path, at, state(at)) for at in range(1, 4)]
    found = list(MOMENTS.links(UPath(tmp_path)))

    assert [moment.name for moment in found] == names[::-1]
    assert [moment.previous for moment in found] == [names[1].sha256, names[0].sha256, None]


def test_newest_name_without_head(tmp_path: Path) -> None:
    """A run that was killed before it renewed the head has written its moment all the same."""
    root = UPath(tmp_path)
    note(tmp_path, 1, state(1))
    head = (tmp_path / "cluster.json").read_bytes()
    second = note(tmp_path, 2, state(2))
    (tmp_path / "cluster.json").write_bytes(head)

    assert MOMENTS.newest(root) == second
    (tmp_path / "cluster.json").unlink()
    assert MOMENTS.newest(root) == second
    assert note(tmp_path, 3, state(3)).number == 3


@pytest.mark.parametrize(
    ("hour", "groups", "topics"), [(0, None, None), (1, 1, 1), (2, 1, 2), (3, 1, 2), (None, 1, 2)]
)
def test_moment_at(
    hour: int | None, groups: int | None, topics: int | None, tmp_path: Path
) -> None:
    """The newest moment that isn't later counts, of those at which the part was captured."""
    note(tmp_path, 1, state(1))
    note(tmp_path, 2, state(2, groups=PartOutcome.NOT_AUTHORISED))
    at = None if hour is None else datetime.fromisoformat(f"2026-01-01T{hour:02}:30:00+00:00")

    found = moment_at(UPath(tmp_path), at, Part.GROUPS)
    other = moment_at(UPath(tmp_path), at, Part.TOPICS)

    assert (found and found.number) == groups
    assert (other and other.number) == topics


@pytest.mark.parametrize("is_newest", [False, True])
def test_judge(is_newest: bool) -> None:
    """Only damage to the newest moment does harm: a recovery takes that one."""
    lost, damaged = ("cluster_state_lost", "error"), ("cluster_state_damaged", "warning")

    reason = judge(is_newest=is_newest)

    assert (reason.value, reason.severity) == (lost if is_newest else damaged)


def remove(path: Path) -> None:
    path.unlink()


def edit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"classic", b"consumer").replace(b"4096", b"1"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def reseal(path: Path) -> None:
    """Change what a group has read, with a hash that is right."""
    moment = parse_moment(path.read_bytes())
    path.write_bytes(replace(moment, groups=()).to_bytes())


@pytest.mark.parametrize(
    ("number", "harm", "words", "whole"),
    [
        (3, remove, "is missing", False),
        (3, edit, "was changed", False),
        (3, cut, "was changed", False),
        (3, reseal, "was changed", False),
        (1, remove, "is missing", True),
        (1, edit, "was changed", True),
        (2, reseal, "was changed", True),
        (1, reseal, "was changed", True),
    ],
)
def test_check_moments_damaged(
    number: int, harm: Callable[[Path], None], words: str, whole: bool, tmp_path: Path
) -> None:
    """A moment that is gone, edited, cut or sealed anew is found; the others aren't blamed."""
    root = UPath(tmp_path)
    for at in range(1, 4):
        note(tmp_path, at, state(at))
    newest = MOMENTS.newest(root)
    assert check_moments(root, {}, newest, whole=True) == []
    harm(tmp_path / f"cluster/{number:012d}.json")

    found = check_moments(root, {}, newest, whole=whole)

    assert [(f.reason, f.subject) for f in found] == [
        (judge(is_newest=number == 3), f"cluster/{number:012d}.json")
    ]
    assert words in found[0].detail


@pytest.mark.parametrize("harm", [remove, edit, cut])
def test_check_moments_settings(harm: Callable[[Path], None], tmp_path: Path) -> None:
    """Settings that are gone or edited are found, for each moment that needs them."""
    root = UPath(tmp_path)
    note(tmp_path, 1, state(1))
    name = note(tmp_path, 2, state(2))
    where = settings_path(MOMENTS.read(root, 2).settings or "")
    harm(tmp_path / where)

    found = check_moments(root, {}, name, whole=True)

    assert [(f.reason, f.subject) for f in found] == [
        (Reason.CLUSTER_STATE_LOST, where),
        (Reason.CLUSTER_STATE_DAMAGED, where),
    ]


def test_check_moments_end_gone(tmp_path: Path) -> None:
    """If the newest moments and the head are gone, a receipt still names one of them."""
    root = UPath(tmp_path)
    note(tmp_path, 1, state(1))
    second = note(tmp_path, 2, state(2))
    (tmp_path / MOMENTS.where(2)).unlink()
    (tmp_path / "cluster.json").unlink()

    found = check_moments(root, {2: second.sha256}, MOMENTS.newest(root), whole=False)

    assert [(f.reason, f.subject) for f in found] == [(Reason.CLUSTER_STATE_LOST, MOMENTS.where(2))]


@pytest.mark.parametrize("harm", [remove, edit])
def test_note_moment_after_damage(harm: Callable[[Path], None], tmp_path: Path) -> None:
    """A cluster that is described anew makes the damage harmless, whatever it answers."""
    root = UPath(tmp_path)
    note(tmp_path, 1, state(1))
    second = note(tmp_path, 2, state(2))
    harm(tmp_path / MOMENTS.where(2))

    third = note(tmp_path, 3, state(2))

    assert third.number == 3
    assert [f.reason for f in check_moments(root, {}, third, whole=True)] == [
        Reason.CLUSTER_STATE_DAMAGED
    ]
    assert MOMENTS.read(root, 3).previous == second.sha256


def test_note_moment_settings_damaged(tmp_path: Path) -> None:
    """Settings that were damaged are written again, as their name says what they were."""
    root = UPath(tmp_path)
    note(tmp_path, 1, state(1))
    where = settings_path(MOMENTS.read(root, 1).settings or "")
    cut(tmp_path / where)

    newest = note(tmp_path, 2, state(1))

    assert newest.number == 2
    assert check_moments(root, {}, newest, whole=True) == []


def test_read_settings_exchanged(tmp_path: Path) -> None:
    """Settings under the name of others are refused, though their seal is right."""
    root = UPath(tmp_path)
    note(tmp_path, 1, state(1))
    note(tmp_path, 2, state(1, replace(SETTINGS, users=())))
    ours, other = (settings_path(MOMENTS.read(root, n).settings or "") for n in (1, 2))
    (tmp_path / ours).write_bytes((tmp_path / other).read_bytes())

    with pytest.raises(ClusterDocumentError, match="restore it from a copy"):
        read_settings(root, MOMENTS.read(root, 1))
