"""Archives that lie elsewhere than where Spark has written their paths."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive import moved
from kafka_drain.archive.moved import moved_from


def state_of(root: object, *roots: str) -> Any:
    """Return as much of a generation's state as tells where its paths lead."""
    return SimpleNamespace(
        generation=SimpleNamespace(root=root), manifest=SimpleNamespace(roots=frozenset(roots))
    )


def test_moved_from_disk(tmp_path: Path) -> None:
    """A folder is the same by whatever name, also that of a link; another one is told."""
    here, link = UPath(tmp_path / "archive"), tmp_path / "link"
    (tmp_path / "archive").mkdir()
    link.symlink_to(tmp_path / "archive")

    for written in (f"file:{here}", f"file://{here}", f"file:{link}", f"{here}/"):
        assert moved_from(state_of(here, written)) == ""
    assert moved_from(state_of(UPath(link), f"file:{here}")) == ""
    assert moved_from(state_of(here)) == ""
    assert moved_from(state_of(here, "file:///before")) == "/before"
    # Some batches may have been drained before, and some since.
    assert moved_from(state_of(here, f"file:{here}", "file:/zzz")) == "/zzz"


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("s3a://bucket/a", ""),
        ("s3://bucket/a", ""),
        ("s3a://bucket/b", "s3a://bucket/b"),
        ("s3a://other/a", "s3a://other/a"),
    ],
)
@pytest.mark.parametrize("root", ["s3://bucket/a", "s3://bucket/a/"])
def test_moved_from_store(
    root: str, written: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop's s3a is the same store as s3; another bucket or folder is told."""
    monkeypatch.setattr(moved, "is_local", lambda _: False)

    assert moved_from(state_of(root, written)) == found
