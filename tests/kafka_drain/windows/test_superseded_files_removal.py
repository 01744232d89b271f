"""Which files may be removed because windows stand for them: every combination."""

from __future__ import annotations

from itertools import product

import pytest

from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Finding, Reason
from kafka_drain.windows.superseded_files import held_before, removable

DAMAGE = Finding(Reason.FILE_SIZE, "windows/b/data/1", "has 3 bytes, was sealed with 4")


@pytest.mark.parametrize(("there", "is_needed"), list(product((False, True), repeat=2)))
@pytest.mark.parametrize("damage", list(product(([], [DAMAGE]), repeat=2)))
def test_removable(there: bool, is_needed: bool, damage: tuple[list[Finding], ...]) -> None:
    """A file goes when nobody needs it and all that is relied on is as it was sealed."""
    found = dict(zip(("b", "c"), damage, strict=True))
    files = ["g1", "g2"] if there else []
    needed = {"g1", "g9"} if is_needed else set()

    if any(damage):
        with pytest.raises(ManifestInvalidError):
            removable(files, needed, found)
    else:
        expected = {(True, True): ["g2"], (True, False): ["g1", "g2"]}
        assert removable(files, needed, found) == expected.get((there, is_needed), [])


def test_removable_sorted() -> None:
    """Files go in the order of their names, so that a killed run's rest is the end."""
    assert removable({"c", "a", "b"}, (), {}) == ["a", "b", "c"]


def test_removable_refused() -> None:
    """The window is named, with at most five of its findings."""
    with pytest.raises(ManifestInvalidError) as raised:
        removable(["g1"], (), {"b": [], "c": [DAMAGE] * 6})

    shown = "; ".join([str(DAMAGE)] * 5)
    says = f"window c differs from what was sealed: {shown}; nothing was removed"
    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], []),
        (["generations/0001/data/a"], ["generations/0001/data/a"]),
        # What another window has replaced isn't behind it.
        (
            ["windows/w1/data/b"],
            ["generations/0001/data/a", "generations/0001/data/b", "windows/w1/data/b"],
        ),
        (
            ["windows/w2/data/c"],
            [
                "generations/0001/data/a",
                "generations/0001/data/b",
                "windows/w1/data/b",
                "windows/w2/data/c",
            ],
        ),
    ],
)
def test_held_before(paths: list[str], expected: list[str]) -> None:
    """Through all windows: what was compacted twice before it was erased is named as well."""
    replaced = {
        "windows/w1": ["generations/0001/data/a", "generations/0001/data/b"],
        "windows/w2": ["windows/w1/data/b"],
        "windows/w3": ["generations/0002/data/d"],
    }

    assert held_before(paths, replaced) == frozenset(expected)
