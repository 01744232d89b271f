"""An archive's data keys: the newest document counts, and only its master key opens it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from upath import UPath

from kafka_drain.encryption import data_keys
from kafka_drain.encryption.data_keys import (
    FOLDER,
    data_key,
    file_name,
    list_keys,
    older_documents,
    open_key,
    parse_key,
    read_key,
    root_of,
    wrapped_document,
)
from kafka_drain.encryption.kms import KmsError, KmsSilentError
from kafka_drain.errors import (
    ArchiveError,
    KafkaDrainError,
    KeyUnavailableError,
    KmsUnavailableError,
    StoreUnavailableError,
)

ID, DATA_KEY = "0123456789abcdef", bytes(range(200, 232))

Masters = Callable[..., Path]


def write(root: Path, version: int, master: str) -> None:
    """Write the data key's document, wrapped by a master key."""
    (root / FOLDER).mkdir(exist_ok=True)
    document = wrapped_document(ID, DATA_KEY, "file", master)
    (root / FOLDER / file_name(ID, version)).write_text(json.dumps(document))


@pytest.mark.parametrize(
    "path",
    [
        "generations/0001/data/topic=windows/part-0.parquet",
        "generations/0001/data/part-0.parquet",
        "windows/compact_0001/data/ab/topic=a/part-0.parquet",
    ],
)
def test_root_of_data_file(path: str) -> None:
    """An archive is found from its data files, also if it lies in one."""
    for root in ("/a", "/windows/b", "/generations/x/windows"):
        assert root_of(Path(root, path)) == Path(root)


def test_root_of_other_file() -> None:
    """A file outside an archive says where its key would be."""
    with pytest.raises(KeyUnavailableError, match=r"isn't in an archive, whose folder keys/"):
        root_of(Path("/tmp/part-0.parquet"))


def test_list_keys_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that doesn't answer is an outage, not a traceback of its package."""
    silent = type("EndpointConnectionError", (Exception,), {"__module__": "botocore.exceptions"})

    def fail(*_: object, **__: object) -> None:
        raise silent("nobody there")

    for name in ("ls", "cat_file"):
        monkeypatch.setattr(MemoryFileSystem, name, fail)
    root = UPath("memory://silent/archive")

    with pytest.raises(StoreUnavailableError, match="its store doesn't answer"):
        list_keys(root)
    with pytest.raises(StoreUnavailableError, match="its store doesn't answer"):
        read_key(root / FOLDER / file_name(ID, 1))


def test_data_key_newest(tmp_path: Path, masters: Masters) -> None:
    """The document with the highest version counts, unfinished and other files don't."""
    masters("old", "new")
    write(tmp_path, 1, "old")
    write(tmp_path, 2, "new")
    (tmp_path / FOLDER / f".{file_name(ID, 3)}.{'0' * 32}.tmp").touch()
    masters("new")

    assert data_key(tmp_path, ID) == DATA_KEY
    assert list_keys(tmp_path) == {ID: tmp_path / FOLDER / file_name(ID, 2)}
    assert older_documents(tmp_path) == [tmp_path / FOLDER / file_name(ID, 1)]


def test_data_key_lost(tmp_path: Path, masters: Masters) -> None:
    """A lost master key, and a lost document, are said in words; a key that is back is used."""
    masters("old")
    with pytest.raises(KeyUnavailableError, match="has no data key 0123456789abcdef"):
        data_key(tmp_path, ID)
    assert older_documents(tmp_path) == []
    write(tmp_path, 1, "old")
    masters("new")
    with pytest.raises(KeyUnavailableError, match=r"master key 'old' of file.*has no key 'old'"):
        data_key(tmp_path, ID)
    masters("old")
    assert data_key(tmp_path, ID) == DATA_KEY


def test_wrapped_document_unusable(masters: Masters) -> None:
    """A master key that isn't there wraps nothing."""
    masters("new")
    with pytest.raises(KeyUnavailableError, match=r"master key 'old' of file can't wrap"):
        wrapped_document(ID, DATA_KEY, "file", "old")


@pytest.mark.parametrize(
    ("opened", "error", "message"),
    [
        (KmsError("only wraps"), KeyUnavailableError, "can't wrap a data key: only wraps"),
        (KmsSilentError("is sealed"), KmsUnavailableError, "can't wrap a data key now: is sealed"),
        (DATA_KEY[::-1], KeyUnavailableError, "gives back something else than it was given"),
    ],
    ids=["only wraps", "sealed", "another key"],
)
def test_wrapped_document_not_opened(
    monkeypatch: pytest.MonkeyPatch, opened: Any, error: type[KafkaDrainError], message: str
) -> None:
    """No data key is used that its master key hasn't given back: nobody could decrypt with it."""
    kms = Mock(wrap=Mock(return_value="wrapped"), unwrap=Mock(side_effect=[opened]))
    monkeypatch.setattr(data_keys, "open_kms", lambda _: kms)

    with pytest.raises(error, match=message):
        wrapped_document(ID, DATA_KEY, "aws", "m")


@pytest.mark.parametrize("size", [0, 16, 33])
def test_open_key_no_data_key(masters: Masters, size: int) -> None:
    """What a master key opens is used only if it can be a data key."""
    masters("m")

    with pytest.raises(KeyUnavailableError, match="opens something that isn't a data key"):
        open_key(wrapped_document(ID, bytes(size), "file", "m"))


@pytest.fixture
def sealed_vault(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A Vault that is sealed; the addresses that were asked."""
    asked: list[str] = []

    def post(url: str, **_: object) -> Any:
        asked.append(url)
        return SimpleNamespace(status_code=503, json=lambda: {"errors": ["Vault is sealed"]})

    monkeypatch.setattr("requests.post", post)
    monkeypatch.setenv("VAULT_ADDR", "http://vault")
    monkeypatch.setenv("VAULT_TOKEN", "the token")
    return asked


def test_wrapped_document_sealed(sealed_vault: list[str]) -> None:
    """A KMS that is sealed for now is no missing key: the run is repeated."""
    with pytest.raises(KmsUnavailableError, match="Vault is sealed"):
        wrapped_document(ID, DATA_KEY, "vault", "m")

    assert len(sealed_vault) == 1


def test_data_key_sealed(
    tmp_path: Path, sealed_vault: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KMS that doesn't give a key now isn't asked by each file, but again after a minute."""
    document = {"format_version": 1, "id": ID, "kms": "vault", "key": "m", "wrapped": "vault:v1:A"}
    path = tmp_path / FOLDER / file_name(ID, 1)
    path.parent.mkdir()
    path.write_text(json.dumps(document | {"created_at": "2026-01-01T00:00:00.000+00:00"}))

    for _ in range(3):
        with pytest.raises(KmsUnavailableError, match=r"Vault is sealed.*later"):
            data_key(tmp_path, ID)
    assert len(sealed_vault) == 1

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    with pytest.raises(KmsUnavailableError):
        data_key(tmp_path, ID)
    assert len(sealed_vault) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "isn't JSON"),
        (b"[]", "isn't a JSON object"),
        (b"{}", "format_version None"),
        (b'{"format_version": true}', "format_version True"),
        (b'{"format_version": 2}', "use the release that wrote it"),
        (b'{"format_version": 1}', "has id None, expected text"),
    ],
)
def test_parse_key_changed(content: bytes, message: str) -> None:
    """A document of another form is refused, with what is there."""
    with pytest.raises(ArchiveError, match=message):
        parse_key("keys/x.json", content)
