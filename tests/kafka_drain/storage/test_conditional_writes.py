"""Conditional writes as each store is asked for them, and which errors say that it refuses."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from upath import UPath

from kafka_drain.storage.conditional_writes import (
    create_object,
    is_refused,
    replace_object,
    version_of,
)
from kafka_drain.storage.immutability import Retention
from kafka_drain.storage.schemes import HDFS, PACKAGES


class OfAzure(Exception):
    """As azure-core's HttpResponseError: the response's status."""

    def __init__(self, status_code: int) -> None:
        super().__init__(status_code)
        self.status_code = status_code


class OfGoogle(OSError):
    """As gcsfs' HttpError: the response's status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class OfAws(Exception):
    """As botocore's ClientError, which s3fs translates: S3's own code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


def translated(cause: Exception) -> OSError:
    """As s3fs does it."""
    error = OSError("translated")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileExistsError("there"), True),
        (FileNotFoundError("gone"), False),
        (OfAzure(412), True),
        (OfAzure(409), True),
        (OfAzure(403), False),
        (OfGoogle(412), True),
        (OfGoogle(409), True),
        (OfGoogle(503), False),
        (translated(OfAws("PreconditionFailed")), True),
        (translated(OfAws("ConditionalRequestConflict")), True),
        (translated(OfAws("NoSuchKey")), True),
        (translated(OfAws("412")), True),
        (translated(OfAws("409")), True),
        (translated(OfAws("AccessDenied")), False),
        (translated(ValueError("not AWS's")), False),
        (OSError("timed out"), False),
    ],
)
def test_is_refused(error: Exception, expected: bool) -> None:
    """A condition that isn't met is no failure; anything else is one."""
    assert is_refused(error) is expected


def test_version_of_local_file(tmp_path: object) -> None:
    """A file of this machine has no version; a link creates it exclusively."""
    assert version_of(UPath(f"{tmp_path}")) is None


def test_schemes_all_known() -> None:
    """Each store has its conditions, but HDFS, whose lease is a chain of files."""
    from kafka_drain.storage import conditional_writes

    assert {*conditional_writes._STORES} == {*PACKAGES} - {HDFS}


class Files:
    """A store's file system that notes what it is asked for."""

    base = "https://storage.googleapis.com/storage/v1/"

    def __init__(self, **described: Any) -> None:
        self.described = described
        self.asked: list[tuple[Any, dict[str, Any]]] = []

    def info(self, path: str) -> dict[str, Any]:
        return self.described

    def pipe_file(self, path: str, content: bytes, **how: Any) -> None:
        self.asked.append(((path, content), how))

    def call(self, *what: str, **how: Any) -> None:
        self.asked.append((what, how))

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, name = path.partition("/")
        return bucket, name, None


def at(protocol: str, **described: Any) -> Any:
    """An object of a store."""
    return SimpleNamespace(protocol=protocol, path="bucket/a/lock.json", fs=Files(**described))


@pytest.mark.parametrize(
    ("protocol", "described", "version"),
    [
        *((scheme, {"ETag": '"e1"'}, '"e1"') for scheme in ("s3", "s3a")),
        *((scheme, {"etag": "0x8D"}, "0x8D") for scheme in ("abfs", "abfss")),
        ("gs", {"generation": 17, "etag": "x"}, "17"),
        ("gs", {}, None),
        ("memory", {"ETag": "e1"}, None),
    ],
)
def test_version_of(protocol: str, described: dict[str, Any], version: str | None) -> None:
    """A version is what the store itself changes with each write."""
    assert version_of(at(protocol, **described)) == version


def test_replace_object_s3() -> None:
    """S3 writes only if the object has the ETag that was read."""
    path = at("s3")

    replace_object(path, b"x", '"e1"')

    assert path.fs.asked == [((path.path, b"x"), {"IfMatch": '"e1"'})]


def test_replace_object_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure's store, only if it wasn't modified since."""
    core = SimpleNamespace(MatchConditions=SimpleNamespace(IfNotModified="not modified"))
    monkeypatch.setitem(sys.modules, "azure.core", core)
    path = at("abfss")

    replace_object(path, b"x", "0x8D")

    [(what, how)] = path.fs.asked
    assert what == (path.path, b"x")
    assert how == {"etag": "0x8D", "match_condition": "not modified"}


def test_replace_object_google() -> None:
    """Google's, only if it still is that generation."""
    path = at("gs")

    replace_object(path, b"content", "17")

    [(what, how)] = path.fs.asked
    assert what == ("POST", "https://storage.googleapis.com/upload/storage/v1/b/bucket/o")
    assert how["ifGenerationMatch"] == "17"
    assert b'{"name": "a/lock.json"}' in how["data"]
    assert b"\n\ncontent\n--part--" in how["data"]


@pytest.mark.parametrize("protocol", ["s3", "abfs", "gs", "memory"])
def test_create_object(protocol: str) -> None:
    """Without a lock, each store's file system creates exclusively itself."""
    path = at(protocol)

    create_object(path, b"x")

    assert path.fs.asked == [((path.path, b"x"), {"mode": "create"})]


def test_create_object_locked_s3() -> None:
    """S3 gets the lock in the same request, which only creates."""
    path = at("s3")
    until = datetime(2026, 1, 1, tzinfo=timezone.utc)

    create_object(path, b"x", Retention("compliance", until))

    [(what, how)] = path.fs.asked
    assert what == (path.path, b"x")
    assert (how["mode"], how["ObjectLockMode"]) == ("create", "COMPLIANCE")
    assert how["ObjectLockRetainUntilDate"] == until


def test_create_object_locked_google() -> None:
    """Google's store gets the lock in the same request, and only creates: generation 0."""
    path = at("gs")
    until = datetime(2026, 1, 1, tzinfo=timezone.utc)

    create_object(path, b"x", Retention("governance", until))

    [(_, how)] = path.fs.asked
    assert how["ifGenerationMatch"] == "0"
    assert b'"retention"' in how["data"]
