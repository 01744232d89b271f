"""A chain of sealed documents: which link is the newest, and which are damaged.

`test_cluster_moments.py` and `test_schema_seals.py` damage chains of both kinds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from upath import UPath

from kafka_drain.archive import sealed_chain
from kafka_drain.archive.format import Link
from kafka_drain.archive.sealed_chain import Damage, SealedChain
from kafka_drain.storage.sealed_json import SealedName


def parse(content: bytes, _: str) -> Link:
    return Link.parse(content)


CHAIN = SealedChain("notes", parse)


def append(root: Path, number: int, previous: str | None = None) -> Link:
    sealed = Link(number=number, previous=previous).sealed()
    assert CHAIN.append(UPath(root), sealed)
    return sealed.value


@pytest.fixture
def three(tmp_path: Path) -> list[Link]:
    """A chain of three links."""
    notes: list[Link] = []
    for number in (1, 2, 3):
        notes.append(append(tmp_path, number, notes[-1].sha256 if notes else None))
    return notes


def test_append_number_taken(three: list[Link], tmp_path: Path) -> None:
    """Of two runs that write the same number, the second is told so, and overwrites nothing."""
    assert not CHAIN.append(UPath(tmp_path), Link(number=3, previous=None).sealed())
    assert CHAIN.read(UPath(tmp_path), 3) == three[2]
    assert CHAIN.newest(UPath(tmp_path)) == SealedName(3, three[2].sha256)


@pytest.mark.parametrize("head", [None, 1, 2, 3])
def test_append_head_lagging(
    head: int | None, three: list[Link], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed before it renews the head leaves it one link behind, however it was."""
    path = tmp_path / "notes.json"
    path.unlink()
    if head is not None:
        path.write_text(json.dumps({"number": head, "sha256": three[head - 1].sha256}))
    monkeypatch.setattr(sealed_chain, "create_text", Mock(side_effect=KeyboardInterrupt))

    with pytest.raises(KeyboardInterrupt):
        append(tmp_path, 4, three[2].sha256)

    found = json.loads(path.read_text())
    assert (found["number"], found["sha256"]) == (3, three[2].sha256)


@pytest.mark.parametrize(
    ("gone", "head", "expected"),
    [
        ((), 3, 3),
        ((), 2, 3),
        ((), None, 3),
        ((3,), 3, 3),
        ((3,), None, 2),
        ((2,), 1, 1),
        ((1, 2, 3), None, None),
    ],
)
def test_newest(
    gone: tuple[int, ...], head: int | None, expected: int | None, three: list[Link], tmp_path: Path
) -> None:
    """The head counts, and what follows it without a hole; without a head, the highest number."""
    path = tmp_path / "notes.json"
    if head is None:
        path.unlink()
    else:
        path.write_text(json.dumps({"number": head, "sha256": three[head - 1].sha256}))
    for number in gone:
        (tmp_path / CHAIN.where(number)).unlink()

    newest = CHAIN.newest(UPath(tmp_path))

    assert (newest and newest.number) == expected


def needing(wanted: int) -> Callable[[UPath, Link], Damage | None]:
    return lambda root, link: Damage("a file", "is gone") if link.number == wanted else None


@pytest.mark.parametrize(("number", "is_newest"), [(3, True), (2, False)])
def test_check_needs(number: int, is_newest: bool, three: list[Link], tmp_path: Path) -> None:
    """What a link needs is checked with it, and its damage doesn't hide the links before."""
    chain = SealedChain("notes", parse, needing(number))
    root = UPath(tmp_path)

    found = chain.check(root, {}, chain.newest(root), whole=True)

    assert found == [Damage("a file", "is gone", is_newest)]
    assert [link.number for link in chain.links(root)] == [n for n in (3, 2, 1) if n != number]


@pytest.mark.parametrize(("whole", "expected"), [(True, [1]), (False, [])])
def test_check_named_only(
    whole: bool, expected: list[int], three: list[Link], tmp_path: Path
) -> None:
    """Unless all links are checked, only the newest and those that receipts name are read."""
    root = UPath(tmp_path)
    (tmp_path / CHAIN.where(1)).unlink()

    found = CHAIN.check(root, {2: three[1].sha256}, CHAIN.newest(root), whole=whole)

    assert [damage.where for damage in found] == [CHAIN.where(number) for number in expected]
