"""Which files below a folder are data files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from upath import UPath

from kafka_drain.archive.generation import list_data_files


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run the body as a user to whom permissions apply."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["lost+found", "@eaDir", ".snapshot"])
def test_list_data_files_of_volume(name: str) -> None:
    """A folder that the file system keeps is left aside, readable or not; nothing in it is data."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "topic=t" / name).mkdir(parents=True)
        (root / "topic=t" / "part-0.parquet").write_bytes(b"1234")
        (root / "topic=t" / name / "part-1.parquet").write_bytes(b"1")
        (root / "topic=t" / name).chmod(0o000)
        try:
            with as_nobody():
                found = list_data_files(UPath(root))
        finally:
            (root / "topic=t" / name).chmod(0o755)

    assert found == {"topic=t/part-0.parquet": 4}


def test_list_data_files_unreadable() -> None:
    """Another folder that can't be read is an error, not an empty one."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "topic=t").mkdir()
        (root / "topic=t").chmod(0o000)
        try:
            with as_nobody(), pytest.raises(PermissionError):
                list_data_files(UPath(root))
        finally:
            (root / "topic=t").chmod(0o755)
