"""Which data key new files are encrypted with; that what is encrypted stays so."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive import keys
from kafka_drain.archive.keys import (
    choose_key,
    damaged_keys,
    encryption_of,
    is_encrypted,
    keys_for_writing,
    plan_rewrap,
    refuse_encrypted,
)
from kafka_drain.config.encryption import Encryption
from kafka_drain.encryption import data_keys
from kafka_drain.encryption.data_keys import FOLDER, data_key, older_documents
from kafka_drain.encryption.kms import FILE_VARIABLE
from kafka_drain.errors import ArchiveError, ConfigError, KeyUnavailableError

OLD, NEW = Encryption(kms="file", key="old"), Encryption(kms="file", key="new")


@pytest.fixture
def have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the named master keys, and no others."""
    path = tmp_path / "keys.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))

    def write(*names: str, **others: str) -> None:
        path.touch(mode=0o600)
        named = dict.fromkeys(names) | others
        keys_of = {name: (other or name) for name, other in named.items()}
        made = {
            name: base64.b64encode((content * 32)[:32].encode()).decode()
            for name, content in keys_of.items()
        }
        path.write_text(json.dumps(made))
        data_keys._data_key.cache_clear()

    return write


def row(kms: str, key: str, at: str) -> dict[str, str]:
    return {"kms": kms, "key": key, "created_at": at}


@pytest.mark.parametrize(
    ("documents", "encryption", "chosen"),
    [
        ({}, None, None),
        ({}, OLD, None),
        ({"a": row("file", "old", "1")}, OLD, "a"),
        ({"a": row("file", "old", "1")}, NEW, None),
        ({"a": row("aws", "old", "1")}, OLD, None),
        ({"a": row("file", "old", "2"), "b": row("file", "old", "1")}, OLD, "a"),
        ({"a": row("file", "old", "1"), "b": row("file", "old", "2")}, OLD, "b"),
        ({"a": row("file", "old", "1"), "b": row("file", "new", "2")}, OLD, "a"),
    ],
)
def test_choose_key(
    documents: dict[str, Any], encryption: Encryption | None, chosen: str | None
) -> None:
    """The newest data key that the pipeline's master key opens; a new one if there is none."""
    assert choose_key(documents, encryption) == chosen


def test_choose_key_not_encrypting() -> None:
    """An archive with data keys gets no files that anybody can read."""
    with pytest.raises(ConfigError, match="the pipeline has no `encryption`"):
        choose_key({"a": row("file", "old", "1")}, None)


def test_keys_for_writing_rotated(tmp_path: Path, have: Callable[..., None]) -> None:
    """One data key for each master key, made once; a missing master key changes nothing."""
    root = UPath(tmp_path / "archive")
    assert keys_for_writing(root, None) is None
    assert not is_encrypted(root)
    refuse_encrypted(root, "x doesn't decrypt")
    have()
    with pytest.raises(KeyUnavailableError):
        keys_for_writing(root, OLD)
    assert not is_encrypted(root)
    assert encryption_of(root) is None

    have("old", "new")
    first = keys_for_writing(root, OLD)
    assert first == keys_for_writing(root, OLD)
    second = keys_for_writing(root, NEW)
    assert encryption_of(root) == NEW
    assert first is not None
    assert second is not None
    assert first["current"] != second["current"]
    assert {each["id"] for each in second["keys"]} == {first["current"], second["current"]}
    have("old")
    with pytest.raises(KeyUnavailableError, match="has no key 'new'"):
        keys_for_writing(root, NEW)
    have("new")
    assert keys_for_writing(root, NEW) == second
    with pytest.raises(ConfigError, match="has encrypted files, which x doesn't decrypt"):
        refuse_encrypted(root, "x doesn't decrypt")


def test_rewrap_killed(
    tmp_path: Path, have: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same data key under another master key; killed before the old document went, it goes on.

    Without the old master key, nothing is changed.
    """
    root = UPath(tmp_path / "archive")
    with pytest.raises(ConfigError, match="has no data keys"):
        plan_rewrap(root, NEW)
    have("old", "new")
    made = keys_for_writing(root, OLD)
    assert made is not None
    opened = data_key(root, made["current"])
    have("new")
    with pytest.raises(KeyUnavailableError):
        plan_rewrap(root, NEW).apply()
    have("old", "new")
    kill_rewrap(root, monkeypatch)
    assert len(older_documents(root)) == 1

    again = plan_rewrap(root, NEW)
    assert (len(again.due), again.kept) == (0, 1)
    again.apply()

    have("new")
    assert data_key(root, made["current"]) == opened
    assert [path.name for path in (root / FOLDER).iterdir()] == [f"{made['current']}.0002.json"]


@pytest.mark.parametrize(
    "second", ["2026-01-01T00:00:00.000+00:00", "2025-12-31T23:59:59.000+00:00"]
)
def test_keys_for_writing_same_time(
    tmp_path: Path, have: Callable[..., None], monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    """A later data key is the newest, also within a millisecond, or with a clock set back."""
    root = UPath(tmp_path / "archive")
    have("old", "new")
    ids = iter(["b" * 16, "a" * 16])
    monkeypatch.setattr("kafka_drain.archive.keys.secrets.token_hex", lambda size: next(ids))
    times = iter(["2026-01-01T00:00:00.000+00:00", second])
    monkeypatch.setattr(data_keys, "now_text", lambda: next(times, second))

    older, newest = keys_for_writing(root, OLD), keys_for_writing(root, NEW)

    assert older is not None
    assert newest is not None
    assert encryption_of(root) == NEW
    plan_rewrap(root, NEW).apply()
    again = keys_for_writing(root, NEW)
    assert again is not None
    assert again["current"] == newest["current"] != older["current"]


@pytest.mark.parametrize("changed", ["never", "9999-12-31T23:59:59.999+00:00"])
def test_keys_for_writing_time_changed(
    tmp_path: Path, have: Callable[..., None], changed: str
) -> None:
    """A data key whose time somebody has changed doesn't hinder that another is made."""
    root = UPath(tmp_path / "archive")
    have("old", "new")
    keys_for_writing(root, OLD)
    [path] = (root / FOLDER).iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"created_at": changed}))

    made = keys_for_writing(root, NEW)

    assert made is not None
    times = {each["id"]: each["created_at"] for each in made["keys"]}
    assert times.pop(made["current"]) < changed
    assert list(times.values()) == [changed]


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        ("2026-01-02T00:00:00.000+00:00", "2026-01-03T00:00:00.000+00:00"),
        ("2030-01-01T00:00:00.000+00:00", "2030-01-01T00:00:00.001+00:00"),
    ],
)
def test_keys_for_writing_clock_ahead(
    tmp_path: Path,
    have: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    ahead: str,
    expected: str,
) -> None:
    """A data key is later than all others, and made now unless one of these is of the future."""
    root = UPath(tmp_path / "archive")
    have("old", "ahead", "new")
    times = iter(["2026-01-01T00:00:00.000+00:00", ahead, "2026-01-03T00:00:00.000+00:00"])
    monkeypatch.setattr(data_keys, "now_text", lambda: next(times))
    for encryption in (OLD, Encryption(kms="file", key="ahead")):
        keys_for_writing(root, encryption)

    made = keys_for_writing(root, NEW)

    assert made is not None
    [own] = [each for each in made["keys"] if each["id"] == made["current"]]
    assert own["created_at"] == expected


def test_rewrap_other_master_key(
    tmp_path: Path, have: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only document that can be opened isn't removed; the error says how to go on with it.

    A killed rewrap has written another, for a master key that was made again since.
    """
    root = UPath(tmp_path / "archive")
    have("old", "new")
    made = keys_for_writing(root, OLD)
    assert made is not None
    opened = data_key(root, made["current"])
    kill_rewrap(root, monkeypatch)
    have("old", "new", new="other")

    with pytest.raises(
        KeyUnavailableError, match=r"0002\.json, which an earlier run wrote"
    ) as said:
        plan_rewrap(root, NEW).apply()

    written = root / FOLDER / f"{made['current']}.0002.json"
    assert f"remove {written}, and run this again" in str(said.value)
    written.unlink()
    plan_rewrap(root, NEW).apply()
    data_keys._data_key.cache_clear()
    assert data_key(root, made["current"]) == opened
    assert [path.name for path in (root / FOLDER).iterdir()] == [written.name]


@pytest.mark.parametrize("to", ["old", "third"])
def test_rewrap_lost_since(
    to: str, tmp_path: Path, have: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master key of a killed rewrap is lost: the error names the document that opens.

    Whichever master key is to follow, what it says to do gives the data key back.
    """
    root = UPath(tmp_path / "archive")
    have("old", "new")
    made = keys_for_writing(root, OLD)
    assert made is not None
    opened = data_key(root, made["current"])
    kill_rewrap(root, monkeypatch)
    have("old", "third")
    to_third = Encryption(kms="file", key=to)

    with pytest.raises(KeyUnavailableError, match="has no key 'new'") as said:
        plan_rewrap(root, to_third).apply()

    kept, written = (root / FOLDER / f"{made['current']}.000{n}.json" for n in (1, 2))
    assert f"{kept}, which it replaced, was kept" in str(said.value)
    assert f"remove {written}, and run this again" in str(said.value)
    written.unlink()
    plan_rewrap(root, to_third).apply()
    data_keys._data_key.cache_clear()
    assert data_key(root, made["current"]) == opened
    assert encryption_of(root) == to_third


def test_read_beside_rewrap(
    tmp_path: Path, have: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that a rewrap replaces after it was listed: the new one is read.

    Otherwise a validation reports a missing data file, and a drain ends.
    """
    root = UPath(tmp_path / "archive")
    have("old", "new")
    made = keys_for_writing(root, OLD)
    assert made is not None
    opened, listed = data_key(root, made["current"]), data_keys.list_keys(root)
    list_keys, waiting = data_keys.list_keys, list[Any]()
    for module in (data_keys, keys):
        monkeypatch.setattr(
            module, "list_keys", lambda root: waiting.pop() if waiting else list_keys(root)
        )
    plan_rewrap(root, NEW).apply()

    waiting.append(listed)
    data_keys._data_key.cache_clear()
    assert data_key(root, made["current"]) == opened
    waiting.append(listed)
    assert encryption_of(root) == NEW
    waiting.append(listed)
    assert damaged_keys(root) == []
    waiting.append(listed)
    again = keys_for_writing(root, NEW)
    assert again is not None
    assert again["current"] == made["current"]


def test_encryption_of_newer(tmp_path: Path, have: Callable[..., None]) -> None:
    """A KMS that only a newer release knows is named, without a traceback."""
    root = UPath(tmp_path / "archive")
    have("old")
    keys_for_writing(root, OLD)
    [path] = (root / FOLDER).iterdir()
    path.write_text(path.read_text().replace('"file"', '"gcp"'))

    with pytest.raises(ArchiveError, match="of 'gcp' this release doesn't know"):
        encryption_of(root)


def kill_rewrap(root: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a rewrap after it has written, before it removes what that replaces."""
    with monkeypatch.context() as patch:

        def killed(root: UPath) -> list[UPath]:
            raise KeyboardInterrupt

        patch.setattr(keys, "older_documents", killed)
        with pytest.raises(KeyboardInterrupt):
            plan_rewrap(root, NEW).apply()


def test_rewrap_order(tmp_path: Path, have: Callable[..., None]) -> None:
    """An older data key that gets the newest one's master key doesn't become the newest."""
    root = UPath(tmp_path / "archive")
    have("old", "new")
    older, newest = keys_for_writing(root, OLD), keys_for_writing(root, NEW)
    assert older is not None
    assert newest is not None

    plan = plan_rewrap(root, NEW)
    assert ([*plan.due], plan.kept) == ([older["current"]], 1)
    plan.apply()

    again = keys_for_writing(root, NEW)
    assert again is not None
    assert again["current"] == newest["current"] != older["current"]
    assert {each["key"] for each in again["keys"]} == {NEW.key}
    assert encryption_of(root) == NEW


def test_rewrap_beside_another(
    tmp_path: Path, have: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that another rewrap has removed meanwhile is no error."""
    root = UPath(tmp_path / "archive")
    have("old", "new")
    keys_for_writing(root, OLD)
    found = keys.older_documents

    def remove(root: UPath) -> list[UPath]:
        older = found(root)
        for path in older:
            path.unlink()
        return older

    monkeypatch.setattr(keys, "older_documents", remove)

    plan_rewrap(root, NEW).apply()

    assert [path.name[-9:] for path in (root / FOLDER).iterdir()] == ["0002.json"]


def test_rewrap_lost_of_one(
    tmp_path: Path, have: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a lost master key, nobody is told to remove the document of another data key."""
    root = UPath(tmp_path / "archive")
    have("old", "new", "lost")
    keys_for_writing(root, OLD)
    kill_rewrap(root, monkeypatch)
    lost = keys_for_writing(root, Encryption(kms="file", key="lost"))
    assert lost is not None
    have("old", "new")

    with pytest.raises(KeyUnavailableError, match="has no key 'lost'") as said:
        plan_rewrap(root, NEW).apply()

    assert "remove" not in str(said.value)
    assert len([*(root / FOLDER).iterdir()]) == 3


def test_damaged_keys_beside_rewrap(
    tmp_path: Path, have: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that is gone since it was listed hides no other that is damaged."""
    have("old", "new")
    root = UPath(tmp_path)
    for encryption in (OLD, NEW):
        keys_for_writing(root, encryption)
    first, second = sorted((tmp_path / FOLDER).iterdir())
    listed = data_keys.list_keys(root)
    first.unlink()
    second.write_bytes(b"")
    monkeypatch.setattr(keys, "list_keys", lambda _: listed)

    assert [found.where for found in damaged_keys(root)] == [f"{FOLDER}/{second.name}"]


def test_damaged_keys(tmp_path: Path, have: Callable[..., None]) -> None:
    """A key document that is empty, or that of another key, is found without any master key."""
    have("old", "new")
    root = UPath(tmp_path)
    for encryption in (OLD, NEW):
        keys_for_writing(root, encryption)
    first, second = sorted((tmp_path / FOLDER).iterdir())
    assert damaged_keys(root) == []

    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(b"")

    told = [(finding.where, finding.detail) for finding in damaged_keys(root)]
    assert [where for where, _ in told] == [f"{FOLDER}/{first.name}", f"{FOLDER}/{second.name}"]
    assert "is of data key" in told[0][1]
    assert "isn't JSON" in told[1][1]
    first.write_bytes(one.replace(b'"old"', b'""').replace(b'"new"', b'""'))
    assert "expected text" in damaged_keys(root)[0].detail


def test_rewrap_beside_lost(tmp_path: Path, have: Callable[..., None]) -> None:
    """A data key that the new master key doesn't open keeps no others' old documents."""
    root = UPath(tmp_path / "archive")
    have("old", "new")
    older = keys_for_writing(root, OLD)
    keys_for_writing(root, NEW)
    assert older is not None
    have("old", "new", new="other")

    with pytest.raises(KeyUnavailableError):
        plan_rewrap(root, NEW).apply()

    names = [path.name for path in (root / FOLDER).iterdir()]
    assert [n for n in names if n.startswith(older["current"])] == [f"{older['current']}.0002.json"]
