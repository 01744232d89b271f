"""Values that tasks wrote to Airflow's database are decoded safely."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from kafka_drain_airflow.pages.database import plain

VALUE = {"text": "a", "number": 7, "none": None, "list": [1.5, True, {"deep": "b"}]}


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("value", [VALUE, "text", 7, None, [], "caf\u00e9"])
def test_plain(value: Any) -> None:
    """A value decodes the same from text, bytes, a pickle of any protocol, and natively."""
    text = json.dumps(value)

    assert plain(text) == value
    assert plain(text.encode()) == value
    assert isinstance(value, str) or plain(value) == value
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert plain(pickle.dumps(value, protocol)) == value


def test_plain_of_hostile_pickle(tmp_path: Path) -> None:
    """A pickle that would execute code is returned unchanged."""
    target = tmp_path / "made"
    value = pickle.dumps({"path": Hostile(target)})

    assert plain(value) == value
    assert not target.exists()
    pickle.loads(value)
    assert target.exists()


@pytest.mark.parametrize("value", [b"\x80", b"\x80\x04.", b"\xff", b"", "", "{", b"\x80\xff", 7.5])
def test_plain_of_anything(value: Any) -> None:
    """A value that is neither JSON nor a pickle is returned unchanged."""
    assert plain(value) == value
