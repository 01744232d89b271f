"""An archive's data keys: the newest document counts, and only its master key opens it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from functools import partial
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
    read_keys,
    root_of,
    wrapped_document,
)
from kafka_drain.encryption.kms import KmsError, KmsSilentError
from kafka_drain.errors import (
    ArchiveError,
    KafkaDrainError,
    KeyUnavailableError,
    KmsUnavailableError,
    MachineError,
    StoreUnavailableError,
)

ID, DATA_KEY = "0123456789abcdef", bytes(range(200, 232))

Masters = Callable[..., Path]


def write(root: Path | UPath, version: int, master: str) -> None:
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
        (MachineError("no boto3"), KeyUnavailableError, "can't wrap a data key: no boto3"),
        (DATA_KEY[::-1], KeyUnavailableError, "gives back something else than it was given"),
    ],
    ids=["only wraps", "sealed", "not installed", "another key"],
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


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (KmsError("denied"), KeyUnavailableError, "isn't available: denied"),
        (KmsSilentError("busy"), KmsUnavailableError, "can't be asked for now: busy"),
        (MachineError("no boto3"), KeyUnavailableError, "isn't available: no boto3"),
    ],
)
def test_open_key_refused(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[KafkaDrainError], message: str
) -> None:
    """A master key that can't be had is named, with whether trying again may help."""
    monkeypatch.setattr(data_keys, "open_kms", Mock(side_effect=raised))

    with pytest.raises(error, match=f"master key 'm' of aws.*{message}"):
        open_key({"kms": "aws", "key": "m", "wrapped": "w", "id": ID})


def test_data_key_in_store(masters: Masters) -> None:
    """The data keys of an archive in a store are read there."""
    masters("m")
    root = UPath("memory://data-keys/archive")
    write(root, 1, "m")

    assert data_key(root, ID) == DATA_KEY


def test_data_key_another_damaged(tmp_path: Path, masters: Masters) -> None:
    """A damaged document hinders only who needs its data key, who is told so."""
    masters("m")
    write(tmp_path, 1, "m")
    (tmp_path / FOLDER / file_name("f" * 16, 1)).write_text("{")

    assert data_key(tmp_path, ID) == DATA_KEY
    with pytest.raises(KeyUnavailableError, match=r"data key f{16} can't be read: .*isn't JSON"):
        data_key(tmp_path, "f" * 16)
    with pytest.raises(ArchiveError, match="isn't JSON"):
        read_keys(tmp_path)
    shutil.rmtree(tmp_path / FOLDER)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / file_name("e" * 16, 1)).mkdir()
    with pytest.raises(KeyUnavailableError, match=r"data key e{16} can't be read: "):
        data_key(tmp_path, "e" * 16)


def test_read_keys_rewrapped_meanwhile(
    tmp_path: Path, masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that a rewrap replaces before it is read is looked for again, but not for ever."""
    masters("m")
    write(tmp_path, 1, "m")
    read, versions = data_keys._content, iter(range(1, 1000))

    def rewrap(last: int, path: Path) -> bytes:
        if (version := next(versions)) < last:
            write(tmp_path, version + 1, "m")
            path.unlink()
        return read(path)

    monkeypatch.setattr(data_keys, "_content", partial(rewrap, 3))
    assert read_keys(tmp_path)[ID]["id"] == ID
    monkeypatch.setattr(data_keys, "_content", partial(rewrap, 1000))
    with pytest.raises(ArchiveError, match="removed each time"):
        read_keys(tmp_path)


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
        (b'{"format_version": 1, "id": ""}', "has id '', expected text"),
    ],
)
def test_parse_key_changed(content: bytes, message: str) -> None:
    """A document of another form is refused, with what is there."""
    with pytest.raises(ArchiveError, match=message):
        parse_key("keys/x.json", content)


def test_parse_key_of_another(masters: Masters) -> None:
    """A document in the place of another data key's is refused; elsewhere it says its id itself."""
    masters("m")
    content = json.dumps(wrapped_document(ID, DATA_KEY, "file", "m")).encode()

    assert parse_key(f"keys/{file_name(ID, 7)}", content) == parse_key("copy.json", content)
    with pytest.raises(ArchiveError, match=f"is of data key '{ID}', expected '{'f' * 16}'"):
        parse_key(f"keys/{file_name('f' * 16, 1)}", content)


def test_list_keys_any_order(
    tmp_path: Path, masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The highest version counts in whatever order a file system lists them."""
    masters("m")
    for version in (1, 2, 10):
        write(tmp_path, version, "m")
    files = sorted((tmp_path / FOLDER).iterdir(), reverse=True)
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(files))

    assert list_keys(tmp_path) == {ID: files[0]}
    assert older_documents(tmp_path) == files[:0:-1]


def test_data_key_asked_once(
    tmp_path: Path, masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KMS that has answered isn't asked again, and one data key's isn't another archive's."""
    masters("m")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, 1, "m")
    asked = list[str]()
    monkeypatch.setattr(
        data_keys, "open_key", lambda document: asked.append(document["id"]) or DATA_KEY
    )

    for _ in range(3):
        assert [data_key(tmp_path / name, ID) for name in ("a", "b")] == [DATA_KEY] * 2

    assert asked == [ID] * 2


def test_data_key_sealed_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KMS that is silent for one archive is asked for another, whose KMS may be another."""

    def silent(root: str, _: str) -> bytes:
        if root == str(tmp_path / "a"):
            raise KmsUnavailableError("sealed")
        return DATA_KEY

    monkeypatch.setattr(data_keys, "_data_key", silent)

    with pytest.raises(KmsUnavailableError, match="sealed"):
        data_key(tmp_path / "a", ID)
    assert data_key(tmp_path / "b", ID) == DATA_KEY
