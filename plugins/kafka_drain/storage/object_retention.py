"""Locks of objects against deletion, as the file system of each store wants them told.

S3 calls them Object Lock, Azure version-level immutability, Google object retention. A store locks
versions: what is written over a locked object becomes another version, or is refused. Imports no
store's package.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, NamedTuple

from upath import UPath

from kafka_drain.clock import Clock, utc_now
from kafka_drain.errors import ArchiveError, StoreUnavailableError
from kafka_drain.intervals import from_iso
from kafka_drain.progress import Progress, Ticker
from kafka_drain.storage.immutability import (
    Immutability,
    Locked,
    Mode,
    ObjectLock,
    Retention,
    to_set,
)
from kafka_drain.storage.outages import code_of, is_momentary
from kafka_drain.storage.paths import is_local
from kafka_drain.storage.s3 import S3_SCHEMES

#: Requests at the same time.
_LANES = 16


class _Locks(NamedTuple):
    """The requests of a store for locks.

    Attributes:
        ask: Returns what is said of an object; raises FileNotFoundError.
        set: Locks an object; is also told how it was locked before.
        able: Returns why objects of a path's bucket can't be locked; empty if they can.
        remedy: Advice if they can't.
    """

    ask: Callable[[Any, str], ObjectLock]
    set: Callable[[Any, str, Retention, Retention | None], object]
    able: Callable[[Any, str], str]
    remedy: str


def _ask_s3(files: Any, path: str) -> ObjectLock:
    bucket, key, _ = files.split_path(path)
    said = files.call_s3("head_object", Bucket=bucket, Key=key)
    return ObjectLock(
        said["ContentLength"],
        _retention(said.get("ObjectLockMode"), said.get("ObjectLockRetainUntilDate")),
        said.get("ObjectLockLegalHoldStatus") == "ON",
    )


def _set_on_s3(files: Any, path: str, asked: Retention, before: Retention | None) -> None:
    bucket, key, _ = files.split_path(path)
    files.call_s3(
        "put_object_retention",
        Bucket=bucket,
        Key=key,
        Retention={"Mode": asked.mode.upper(), "RetainUntilDate": asked.until},
        # It changes the lock of somebody else, which needs a permission even if it gets stronger.
        **({"BypassGovernanceRetention": True} if _changes(asked, before) else {}),
    )


def _able_on_s3(files: Any, path: str) -> str:
    bucket, _, _ = files.split_path(path)
    try:
        said = files.call_s3("get_object_lock_configuration", Bucket=bucket)
    except PermissionError as error:
        return f"its Object Lock can't be asked for ({error})"
    except OSError as error:
        code = code_of(error.__cause__)
        if code == "ObjectLockConfigurationNotFoundError":
            return "it has no Object Lock"
        if not code:
            raise
        return f"its Object Lock can't be asked for ({code}: {error})"
    seen = said.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled")
    return "" if seen == "Enabled" else f"its Object Lock is {seen!r}, expected 'Enabled'"


def _ask_azure(files: Any, path: str) -> ObjectLock:
    try:
        said = _of_blob(files, path, lambda blob: blob.get_blob_properties())
    except Exception as error:
        if getattr(error, "status_code", None) == 404:
            raise FileNotFoundError(path) from error
        raise
    policy = said.immutability_policy
    mode = _our_mode(_text(policy.policy_mode).capitalize())
    return ObjectLock(said.size, _retention(mode, policy.expiry_time), bool(said.has_legal_hold))


def _set_on_azure(files: Any, path: str, asked: Retention, before: Retention | None) -> None:
    policy = _azure_policy(asked)
    _of_blob(files, path, lambda blob: blob.set_immutability_policy(policy))


def _azure_policy(asked: Retention) -> Any:
    from azure.storage.blob import ImmutabilityPolicy

    return ImmutabilityPolicy(expiry_time=asked.until, policy_mode=_locked_or_not(asked.mode))


def _able_on_azure(files: Any, path: str) -> str:
    container, _, _ = files.split_path(path)

    async def ask() -> Any:
        async with files.service_client.get_container_client(container) as client:
            return await client.get_container_properties()

    said = _wait(files, ask)
    if said.immutable_storage_with_versioning_enabled:
        return ""
    return "its support for version-level immutability isn't enabled"


def _of_blob(files: Any, path: str, request: Callable[[Any], Any]) -> Any:
    container, name, _ = files.split_path(path)

    async def ask() -> Any:
        async with files.service_client.get_blob_client(container=container, blob=name) as blob:
            return await request(blob)

    return _wait(files, ask)


def _wait(files: Any, ask: Callable[[], Any]) -> Any:
    from fsspec.asyn import sync

    return sync(files.loop, ask)


def _ask_gcs(files: Any, path: str) -> ObjectLock:
    bucket, name, _ = files.split_path(path)
    said = files.call("GET", "b/{}/o/{}", bucket, name, json_out=True)
    of_object = said.get("retention") or {}
    found = [
        _retention(mode, None if text is None else from_iso(text))
        for mode, text in (
            # What a bucket's own policy keeps, nobody can delete.
            ("compliance", said.get("retentionExpirationTime")),
            (_our_mode(of_object.get("mode")), of_object.get("retainUntilTime")),
        )
    ]
    kept = [retention for retention in found if retention is not None]
    return ObjectLock(
        int(said["size"]),
        max(kept, key=lambda retention: (retention.until, retention.mode), default=None),
        bool(said.get("temporaryHold") or said.get("eventBasedHold")),
    )


def _set_on_gcs(files: Any, path: str, asked: Retention, before: Retention | None) -> None:
    bucket, name, _ = files.split_path(path)
    files.call(
        "PATCH",
        "b/{}/o/{}",
        bucket,
        name,
        json={"retention": gcs_retention(asked)},
        json_out=True,
        # As on S3.
        **({"overrideUnlockedRetention": "true"} if _changes(asked, before) else {}),
    )


def _able_on_gcs(files: Any, path: str) -> str:
    bucket, _, _ = files.split_path(path)
    said = files.call("GET", "b/{}", bucket, json_out=True)
    seen = (said.get("objectRetention") or {}).get("mode")
    return "" if seen == "Enabled" else f"its object retention is {seen!r}, expected 'Enabled'"


def gcs_retention(asked: Retention) -> dict[str, str]:
    """Return a lock as an object of Google's JSON API has it."""
    return {
        "mode": _locked_or_not(asked.mode),
        "retainUntilTime": f"{asked.until.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
    }


def creation_options(path: UPath, retention: Retention) -> dict[str, Any]:
    """Return the options of fsspec's `pipe_file`, on S3 or Azure, to create an object locked."""
    if path.protocol in ("abfs", "abfss"):
        return {"immutability_policy": _azure_policy(retention)}
    return {
        "ObjectLockMode": retention.mode.upper(),
        "ObjectLockRetainUntilDate": retention.until,
        # S3 refuses such a request without one, and older releases of botocore send none.
        "ChecksumAlgorithm": "CRC32",
    }


def _changes(asked: Retention, before: Retention | None) -> bool:
    return before is not None and before.mode != asked.mode


def _locked_or_not(mode: Mode) -> str:
    # Azure's words and Google's.
    return "Locked" if mode == "compliance" else "Unlocked"


def _our_mode(seen: str | None) -> str:
    return "compliance" if seen == "Locked" else "governance"


def _retention(mode: str | None, until: datetime | None) -> Retention | None:
    if until is None:
        return None
    # Azure's package gives a time in UTC without saying so.
    until = until.replace(tzinfo=timezone.utc) if until.tzinfo is None else until
    asked: Mode = "compliance" if (mode or "").lower() == "compliance" else "governance"
    return Retention(asked, until.astimezone(timezone.utc))


def _text(value: Any) -> str:
    return str(getattr(value, "value", value) or "")


_S3 = _Locks(
    _ask_s3,
    _set_on_s3,
    _able_on_s3,
    "Object Lock has to be enabled for the bucket, which also makes it keep versions: `aws s3api "
    "create-bucket --object-lock-enabled-for-bucket`, or for a bucket that keeps versions `aws "
    "s3api put-object-lock-configuration`; and the login needs s3:GetBucketObjectLockConfiguration",
)
_AZURE = _Locks(
    _ask_azure,
    _set_on_azure,
    _able_on_azure,
    "enable version-level immutability for the container: `az storage container-rm create "
    "--enable-vlw`, or `migrate-vlw` for one that exists",
)
_GCS = _Locks(
    _ask_gcs,
    _set_on_gcs,
    _able_on_gcs,
    "enable object retention for the bucket: `gcloud storage buckets create "
    "--enable-per-object-retention`, or `buckets update` for one that exists; and the login needs "
    "storage.buckets.get",
)
_STORES = {"s3": _S3, "s3a": _S3, "abfs": _AZURE, "abfss": _AZURE, "gs": _GCS}


def can_lock(root: UPath) -> bool:
    """Return whether an archive is in a store that may lock files."""
    return root.protocol in _STORES


def require_lockable(root: UPath, wanted: Immutability) -> None:
    """Check that a store locks the objects of an archive's bucket; changes nothing.

    Raises:
        ArchiveError: When it can't; says what was seen, and what to do.
    """
    bucket = f"{root.protocol}://{root.path.lstrip('/').partition('/')[0]}"
    locks = _STORES[root.protocol]
    try:
        seen = locks.able(root.fs, root.path)
    except Exception as error:
        if is_momentary(error):
            raise
        seen = f"it can't be asked for that ({error})"
    if seen:
        raise ArchiveError(
            f"{bucket} can't lock files for {wanted}, as immutable_days asks for: {seen}. "
            f"{locks.remedy[0].upper()}{locks.remedy[1:]}. Nothing was drained"
        )


def retain(
    root: UPath, paths: Iterable[str], asked_for: Immutability | None, *, now: datetime
) -> Retention | None:
    """Lock files that others wrote; those that are locked already, for as long, are left alone.

    If killed, it can simply be run again.

    Args:
        paths: The files, relative to it.
        asked_for: Their lock; None for none.

    Returns:
        The lock, which their receipt is to have too; None for none.

    Raises:
        ArchiveError: When a file is missing, or the store refuses to lock it.
        StoreUnavailableError: When it doesn't answer, or is busy.
    """
    if asked_for is None:
        return None
    if not can_lock(root):
        raise ArchiveError(
            f"{root} asks in archive.json for files that are locked for {asked_for}, but it isn't "
            "in an object store, where alone files can be locked; nothing was sealed. If this is a "
            "copy, set `immutable` to null in its archive.json"
        )
    store, wanted = _STORES[root.protocol], asked_for.from_now(now)

    def lock(path: str) -> None:
        where = (root / path).path
        try:
            held = store.ask(root.fs, where)
            before = held.retention if held.is_locked(now) else None
            if (asked := to_set(held, wanted, now)) is not None:
                store.set(root.fs, where, asked, before)
        except Exception as error:
            # Each store has its own exceptions.
            kind = StoreUnavailableError if is_momentary(error) else ArchiveError
            raise kind(
                f"{root / path} can't be locked until {wanted.until.isoformat()}: "
                f"{type(error).__name__}: {error}; nothing was sealed. Check that the login may "
                "lock files (docs/immutable.md says what it needs), then run this again"
            ) from error

    _each(lock, sorted(set(paths)), f"lock {root}")
    return wanted


class StoreLocks:
    """A store's locks on an archive's files: each is asked for once in a run.

    Args:
        root: The archive's folder; no file of a local one is locked.
        what: Prefix of the lines of progress.
        clock: Returns the time at which a lock counts; None for the current one.
    """

    def __init__(self, root: UPath, what: str, clock: Clock | None = None) -> None:
        self._root, self._what = root, what
        self._clock = clock or utc_now
        self._known: dict[str, ObjectLock] = {}

    def held(self, paths: Iterable[str]) -> dict[str, ObjectLock]:
        """Return the locks on files, relative to the archive; those that are gone are left out.

        Raises:
            Exception: Of the store's package, when it can't be asked.
        """
        wanted = sorted(set(paths))
        new = [path for path in wanted if path not in self._known]
        if is_local(self._root):
            for path in new:
                self._ask(path)
        else:
            _each(self._ask, new, self._what)
        return {path: self._known[path] for path in wanted if path in self._known}

    def locked(self, paths: Iterable[str]) -> dict[str, ObjectLock]:
        """Return the files that the store refuses to delete now."""
        if not can_lock(self._root):
            return {}
        now = self._clock()
        return {path: held for path, held in self.held(paths).items() if held.is_locked(now)}

    def summary(self, paths: Iterable[str]) -> Locked:
        """Return in short which of some files the store refuses to delete now."""
        return Locked.of(self.locked(paths).values(), self._clock())

    def _ask(self, path: str) -> None:
        where = self._root / path
        with suppress(FileNotFoundError):
            if can_lock(self._root):
                self._known[path] = _STORES[where.protocol].ask(where.fs, where.path)
            else:
                self._known[path] = ObjectLock(int(where.stat().st_size))


def locked_in(folder: UPath) -> Locked:
    """Return the unused files of a folder that the store refuses to delete or hide now.

    In S3's buckets that lock, a deletion hides: the locked version stays behind a marker.
    """
    if not can_lock(folder) or folder.protocol in S3_SCHEMES:
        return Locked()
    prefix = folder.path.rstrip("/") + "/"
    paths = [path.removeprefix(prefix) for path in folder.fs.find(folder.path)]
    return StoreLocks(folder, f"look {folder}").summary(paths)


def _each(act: Callable[[str], None], paths: list[str], what: str) -> None:
    ticker, counting, done = Ticker(what, Progress("files", len(paths))), threading.Lock(), 0

    def one(path: str) -> None:
        nonlocal done
        act(path)
        with counting:
            done += 1
            ticker.at(done)

    with ThreadPoolExecutor(_LANES) as pool:
        list(pool.map(one, paths))
