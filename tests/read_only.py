"""Folders that can't be written, in each way that there is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

#: The user that owns nothing.
NOBODY = 65534


@contextmanager
def read_only(folder: Path, *, recursive: bool = False) -> Iterator[None]:
    """Prevent changes in a folder; for root, who may do anything, by a file attribute.

    Args:
        folder: The folder.
        recursive: Whether that holds for what is in it too.
    """
    folders = [folder, *(p for p in folder.rglob("*") if recursive and p.is_dir())]
    if os.geteuid():
        for each in folders:
            each.chmod(0o555)
    else:
        told = ["chattr", "+i", *map(str, folders)]
        changed = subprocess.run(told, capture_output=True, text=True, check=False)
        if changed.returncode:
            pytest.skip(f"root can't make a folder read-only here: {changed.stderr.strip()}")
    try:
        yield
    finally:
        if os.geteuid():
            for each in folders:
                each.chmod(0o755)
        else:
            subprocess.run(["chattr", "-i", *map(str, folders)], check=True)


@contextmanager
def immutable(folder: Path) -> Iterator[None]:
    """Prevent changes in a folder and all that is in it."""
    with read_only(folder, recursive=True):
        yield


@contextmanager
def mounted_read_only(folder: Path) -> Iterator[None]:
    """Mount a folder read-only where it is."""
    if os.geteuid():
        pytest.skip("only root can mount")
    bound = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False)
    if bound.returncode:
        pytest.skip(f"nothing can be mounted here: {bound.stderr.decode().strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def of_other_user(folder: Path) -> Iterator[None]:
    """Be another user than the folder's owner, who may read it; needs root."""
    if os.geteuid():
        pytest.skip("only root can be another user")
    # pytest's own folders are their owner's alone.
    opened = [parent for parent in folder.parents if parent.stat().st_uid == 0]
    modes = {parent: parent.stat().st_mode & 0o7777 for parent in opened}
    for parent, mode in modes.items():
        parent.chmod(mode | 0o055)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        for parent, mode in modes.items():
            parent.chmod(mode)


#: Each way, by its name.
WAYS: dict[str, Callable[[Path], AbstractContextManager[None]]] = {
    "immutable": immutable,
    "mounted": mounted_read_only,
    "other user": of_other_user,
}
