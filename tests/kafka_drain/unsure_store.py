"""A store that answers some requests with an error, which fsspec's `isfile` takes for "no"."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem
from upath import UPath

_NUMBERS = itertools.count()


def unsure_store(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> UPath:
    """Return an empty folder of a store that doesn't say whether there is a file of some name."""

    def info(self: Any, path: str, **options: Any) -> Any:
        if path.endswith(name):
            raise error
        return described(self, path, **options)

    described = MemoryFileSystem.info
    monkeypatch.setattr(MemoryFileSystem, "info", info)
    # As in s3fs, gcsfs and adlfs.
    monkeypatch.setattr(MemoryFileSystem, "isfile", AbstractFileSystem.isfile)
    monkeypatch.setattr(MemoryFileSystem, "exists", AbstractFileSystem.exists)
    return UPath(f"memory://unsure/{next(_NUMBERS)}")
