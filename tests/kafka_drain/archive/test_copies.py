"""The copies of sealed files: which are written, found, and removed again."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from upath import UPath

from kafka_drain.archive import copies
from kafka_drain.archive.copies import (
    KEPT,
    clear_copies,
    copied_paths,
    keep_copies,
    keep_copy,
    read_copy,
)


@pytest.fixture
def root(tmp_path: Path) -> UPath:
    """The folder of an archive."""
    return UPath(tmp_path)


def test_keep_copy(root: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy gets each new content, and isn't written again with the same."""
    for content in (b"one", b"two"):
        keep_copy(root, "windows/w/receipt.json", content)
        assert read_copy(root, "windows/w/receipt.json") == content
    monkeypatch.setattr(copies, "write_text", Mock(side_effect=AssertionError))
    keep_copy(root, "windows/w/receipt.json", b"two")


def test_read_copy_none(root: UPath) -> None:
    """There is no copy where nothing is, or where a file is in the place of its folder."""
    keep_copy(root, "a.json", b"{}")

    assert read_copy(root, "b.json") is None
    assert read_copy(root, "a.json/b.json") is None


def test_keep_copies(root: UPath) -> None:
    """Files are copied as they are now, and one that is missing keeps its copy."""
    (root / "a.json").write_text("new")
    (root / "folder").mkdir()
    (root / "folder" / "b.json").write_text("b")
    for where in ("a.json", "gone.json"):
        keep_copy(root, where, b"old")

    keep_copies(root, ["a.json", "folder/b.json", "gone.json", "a.json/c.json"])

    paths = copied_paths(root)
    assert {path: read_copy(root, path) for path in paths} == {
        "a.json": b"new",
        "folder/b.json": b"b",
        "gone.json": b"old",
    }


def test_clear_copies(root: UPath) -> None:
    """Of the given generations the newest receipts keep their copies, of others all."""
    names = [f"{number:012d}.json" for number in range(KEPT + 2)]
    for generation in ("generations/0001", "generations/0002"):
        for name in names:
            keep_copy(root, f"{generation}/receipts/{name}", b"{}")
        keep_copy(root, f"{generation}/generation.json", b"{}")

    clear_copies(root, ["generations/0001", "generations/0003"])

    def kept(generation: str) -> list[str]:
        return [path for path in copied_paths(root) if path.startswith(generation)]

    assert kept("generations/0001") == [
        "generations/0001/generation.json",
        *(f"generations/0001/receipts/{name}" for name in names[2:]),
    ]
    assert len(kept("generations/0002")) == len(names) + 1
