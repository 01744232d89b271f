"""What is erased comes from a connection: keys as its password, or files that its extra names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.erase_connection import erase_connection_id, erased_names

PIPELINE = Pipeline(name="p", topics=["t"], archive="/a", erase_conn_id="erase")


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Set the connection that names what is erased."""
    monkeypatch.setenv("AIRFLOW_CONN_ERASE", json.dumps({"conn_type": "generic", **fields}))


@pytest.mark.parametrize(
    ("pattern", "request_id", "found"),
    [
        ("erase", "any/thing", "erase"),
        ("erase_{request}", "gdpr-17", "erase_gdpr-17"),
        ("erase_{request}", "../x", None),
        ("erase_{request}", "a b", None),
        ("erase_{request}", "", None),
    ],
)
def test_erase_connection_id(pattern: str, request_id: str, found: str | None) -> None:
    """The id has the request's if the pipeline says so, and only if that is plain."""
    if found is None:
        with pytest.raises(ConfigError, match="can't be a part of a connection's id"):
            erase_connection_id(pattern, request_id)
    else:
        assert erase_connection_id(pattern, request_id) == found


def test_erased_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are the password's lines or a file's, headers a file's; there may be neither."""
    (tmp_path / "keys").write_text("a\nhex:00ff\n")
    (tmp_path / "headers").write_text("h=1\n")
    files = {"keys_file": str(tmp_path / "keys"), "headers_file": str(tmp_path / "headers")}
    keys, headers = frozenset({b"a", b"\x00\xff"}), frozenset({("h", b"1")})

    connect(monkeypatch, password="a\nhex:00ff")
    assert erased_names(PIPELINE, "r")[:2] == (keys, None)
    connect(monkeypatch, extra=files)
    assert erased_names(PIPELINE, "r")[:2] == (keys, headers)
    connect(monkeypatch)
    assert erased_names(PIPELINE, "r") == (None, None, "the Airflow connection 'erase'")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"password": "a", "extra": {"keys_file": "/k"}}, "leave one of them out"),
        ({"extra": {"keys": "a"}}, "has keys in its extra; accepted: headers_file, keys_file"),
        ({"extra": {"keys_file": "/nowhere"}}, "/nowhere can't be read"),
        ({"password": "a\nhex:secret"}, "line 2 isn't hex"),
    ],
)
def test_erased_names_refused(
    fields: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What isn't understood is refused, without saying what is in it."""
    connect(monkeypatch, **fields)

    with pytest.raises(ConfigError, match=says) as caught:
        erased_names(PIPELINE, "r")

    assert "secret" not in str(caught.value)


def test_erased_names_no_connection() -> None:
    """A connection that isn't there is named."""
    with pytest.raises(ConfigError, match="there is no Airflow connection 'elsewhere'"):
        erased_names(PIPELINE.model_copy(update={"erase_conn_id": "elsewhere"}), "r")
