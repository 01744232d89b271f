"""What tests of several modules start from: archives, each made once and copied; master keys."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.encryption import data_keys
from kafka_drain.encryption.kms import FILE_VARIABLE
from tests.kafka_drain.archives import make_sealed
from tests.kafka_drain.golden import sealed_copy


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A copy of the golden archive, sealed."""
    return sealed_copy(tmp_path / "archive")


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The golden archive, sealed; no test changes it."""
    return sealed_copy(tmp_path_factory.mktemp("golden") / "archive")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with everything that is sealed; not to be changed."""
    folder = tmp_path_factory.mktemp("made") / "archive"
    make_sealed(folder)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(made, tmp_path / "archive")


@pytest.fixture
def masters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a file that has the named master keys, each another one, and no others."""
    path = tmp_path / "master-keys.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))

    def write(*names: str) -> Path:
        path.touch(mode=0o600)
        keys = {name: hashlib.sha256(name.encode()).digest() for name in names}
        path.write_text(json.dumps({n: base64.b64encode(key).decode() for n, key in keys.items()}))
        data_keys._data_key.cache_clear()
        return path

    return write
