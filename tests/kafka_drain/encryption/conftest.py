"""What the tests of keys share: a file with master keys."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_drain.encryption import data_keys
from kafka_drain.encryption.kms import FILE_VARIABLE

MASTERS = {"old": bytes(range(32)), "new": bytes(range(32, 64))}


@pytest.fixture
def masters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a file that has the named master keys, and no others."""
    path = tmp_path / "master-keys.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))

    def write(*names: str) -> Path:
        path.touch(mode=0o600)
        keys = {name: base64.b64encode(MASTERS[name]).decode() for name in names}
        path.write_text(json.dumps(keys))
        data_keys._data_key.cache_clear()
        return path

    return write
