"""New files: whole or not there, and never in the place of another."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafka_drain.cli.new_file import new_file
from kafka_drain.errors import ConfigError


@pytest.mark.parametrize("links", [True, False])
def test_new_file(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there at the end, for its owner only, and nothing beside it."""
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    path = tmp_path / "out.jsonl"
    with new_file(path) as file:
        file.write(b"a\n")
        assert not path.exists()

    assert path.read_bytes() == b"a\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [path]


def no_link(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_new_file_existing(tmp_path: Path) -> None:
    """Another file is kept, also one made meanwhile, and a link that leads nowhere."""
    path = tmp_path / "out.jsonl"
    with pytest.raises(ConfigError, match="exists, and isn't overwritten"), new_file(path):
        path.write_text("mine")
    with pytest.raises(ConfigError, match="exists, and isn't overwritten"), new_file(path):
        pytest.fail("opened")
    assert path.read_text() == "mine"
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="exists"), new_file(tmp_path / "link"):
        pytest.fail("opened")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "out.jsonl"]


def test_new_file_failed(tmp_path: Path) -> None:
    """What ends in the middle leaves nothing."""
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "out.jsonl") as file:
        file.write(b"%d" % (1 // 0))
    with pytest.raises(ConfigError, match="No such file"), new_file(tmp_path / "no" / "out.jsonl"):
        pytest.fail("opened")
    assert not [*tmp_path.iterdir()]


def test_new_file_other_file(tmp_path: Path) -> None:
    """What the body can't read isn't said of the new file."""
    with pytest.raises(FileNotFoundError), new_file(tmp_path / "out.jsonl"):
        (tmp_path / "read").read_bytes()

    assert not [*tmp_path.iterdir()]
