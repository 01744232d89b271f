"""Which columns Spark encrypts, and what parquet-java is told; no key is in what may be shown."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, MapType, StringType, StructType
from upath import UPath

from kafka_drain.archive.keys import keys_for_writing
from kafka_drain.config.encryption import Encryption
from kafka_drain.encryption.kms import FILE_VARIABLE
from kafka_drain.errors import ConfigError, KeyUnavailableError
from kafka_drain_spark.encryption import _REDACTED, leaves_of, set_keys, settings

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def test_leaves_of_kinds() -> None:
    """Leaves are named as in Spark's Parquet files."""
    decoded = StructType().add("a", LongType()).add("m", MapType(StringType(), HEADERS))

    assert list(leaves_of("key", BinaryType())) == ["key"]
    assert list(leaves_of("headers", HEADERS)) == [
        "headers.list.element.key",
        "headers.list.element.value",
    ]
    assert list(leaves_of("d", decoded)) == [
        "d.a",
        "d.m.key_value.key",
        "d.m.key_value.value.list.element.key",
        "d.m.key_value.value.list.element.value",
    ]


@pytest.mark.parametrize("name", ["a.b", "a,b", "a;b", "a:b"])
def test_leaves_of_name_refused(name: str) -> None:
    """A name that would name another column is refused, at any depth."""
    for kind in (BinaryType(), LongType()):
        with pytest.raises(ConfigError, match="can't be encrypted"):
            list(leaves_of(name, kind))
    with pytest.raises(ConfigError, match="can't be encrypted"):
        list(leaves_of("d", StructType().add(name, LongType())))


class Session:
    """Keeps settings, as a session's `conf` does."""

    def __init__(self) -> None:
        self.conf = self
        self.kept: dict[str, str] = {}

    def set(self, name: str, value: str) -> None:
        """Keep a setting."""
        self.kept[name] = value


@pytest.fixture
def encryption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a job is told of an archive with two data keys, of which one's master key is lost."""
    path = tmp_path / "keys.json"
    path.touch(mode=0o600)
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    key = base64.b64encode(bytes(32)).decode()
    for name in ("lost", "m"):
        path.write_text(json.dumps({name: key}))
        made = keys_for_writing(UPath(tmp_path), Encryption(kms="file", key=name))
    assert made is not None
    return made


def test_set_keys_all_but_plain(encryption: dict[str, Any]) -> None:
    """All columns but those that prove offsets, and those of folders, are encrypted."""
    session, schema = Session(), StructType()
    for name in ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"):
        schema = schema.add(name, BinaryType())
    schema = schema.add("headers", HEADERS).add("date", StringType()).add("extra", LongType())

    set_keys(session, encryption, schema, ["date"])  # type: ignore[arg-type]

    kept, current = session.kept, encryption["current"]
    assert kept["parquet.encryption.column.keys"] == (
        f"{current}:key,value,headers.list.element.key,headers.list.element.value,extra"
    )
    assert kept["parquet.encryption.footer.key"] == current
    secret = kept["parquet.encryption.key.list"]
    [(id_, key)] = [each.split(":") for each in secret.split(",")]
    assert (id_, len(base64.b64decode(key))) == (current, 32)
    shown = [name for name, value in kept.items() if key in value]
    assert all(re.search(_REDACTED, name) for name in shown)
    assert kept["spark.sql.redaction.options.regex"] == _REDACTED
    assert key not in json.dumps(encryption)


def test_set_keys_none() -> None:
    """Without encryption, a session stays as it is."""
    session = Session()
    set_keys(session, None)  # type: ignore[arg-type]

    assert session.kept == {}


def test_settings_read_only(encryption: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What only reads isn't told what to encrypt; without the current master key, it fails."""
    assert not {"parquet.encryption.footer.key", "parquet.encryption.column.keys"} & set(
        settings(encryption, [])
    )
    monkeypatch.setenv(FILE_VARIABLE, "/nowhere")
    with pytest.raises(KeyUnavailableError):
        settings(encryption, ["key"])
