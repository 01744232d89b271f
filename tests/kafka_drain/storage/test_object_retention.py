"""What stores are asked to lock a file; Google's and Azure's test servers lock nothing.

On S3, `tests/stores/test_s3_immutable.py` shows it against a server.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ArchiveError, StoreUnavailableError
from kafka_drain.storage import object_retention
from kafka_drain.storage.conditional_writes import create_object
from kafka_drain.storage.immutability import Immutability, Mode, ObjectLock, Retention
from kafka_drain.storage.object_retention import (
    StoreLocks,
    creation_options,
    locked_in,
    require_lockable,
    retain,
)

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
WEAK, STRONG = Immutability("governance", 30), Immutability("compliance", 30)
UNTIL = "2026-01-31T00:00:00Z"


@dataclass
class FakeGoogle:
    """Answers as gcsfs does: objects and the bucket as Google's JSON API describes them."""

    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    bucket: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    base: str = "https://storage.googleapis.com/storage/v1/"

    def find(self, path: str) -> list[str]:
        """Return all objects below."""
        return [f"bucket/{name}" for name in self.said if f"bucket/{name}".startswith(path)]

    def split_path(self, path: str) -> tuple[str, str, None]:
        """Return bucket and name."""
        bucket, _, name = path.partition("/")
        return bucket, name, None

    def call(self, method: str, path: str, *names: str, **options: Any) -> Any:
        """Answer a request, and note what would change something."""
        if method != "GET":
            self.asked.append((method, names, options))
            return {}
        # Otherwise it returns headers and bytes.
        assert options == {"json_out": True}
        if path == "b/{}":
            return self.bucket
        if names[1] not in self.said:
            raise FileNotFoundError(names[1])
        return {"size": "3", **self.said[names[1]]}


class Path:
    """A path in the fake store."""

    def __init__(self, fs: Any, path: str, protocol: str = "gs") -> None:
        self.fs, self.path, self.protocol = fs, path, protocol

    def __truediv__(self, name: str) -> Path:
        return Path(self.fs, f"{self.path}/{name}", self.protocol)

    def __str__(self) -> str:
        return f"{self.protocol}://{self.path}"


def archive(**said: dict[str, Any]) -> Any:
    """An archive's folder with files, of which the store says something."""
    return Path(FakeGoogle({f"a/{name}": each for name, each in said.items()}), "bucket/a")


LOCKED = {"retention": {"mode": "Locked", "retainUntilTime": UNTIL}}
UNLOCKED = {"retention": {"mode": "Unlocked", "retainUntilTime": UNTIL}}


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ({}, ObjectLock(3)),
        (LOCKED, ObjectLock(3, Retention("compliance", NOW + timedelta(days=30)))),
        (UNLOCKED, ObjectLock(3, Retention("governance", NOW + timedelta(days=30)))),
        ({"temporaryHold": True}, ObjectLock(3, on_hold=True)),
        ({"eventBasedHold": True}, ObjectLock(3, on_hold=True)),
        (
            {**UNLOCKED, "retentionExpirationTime": "2026-03-01T00:00:00.5Z"},
            ObjectLock(
                3, Retention("compliance", datetime(2026, 3, 1, 0, 0, 0, 500_000, timezone.utc))
            ),
        ),
        (
            {**UNLOCKED, "retentionExpirationTime": "2026-01-02T00:00:00Z"},
            ObjectLock(3, Retention("governance", NOW + timedelta(days=30))),
        ),
    ],
)
def test_store_locks_google(said: dict[str, Any], held: ObjectLock) -> None:
    """A lock of the object, of its bucket's policy or a hold; the latest counts."""
    assert StoreLocks(archive(x=said), "look").held(["x", "gone"]) == {"x": held}


@pytest.mark.parametrize(("wanted", "mode"), [(WEAK, "Unlocked"), (STRONG, "Locked")])
def test_retain_google(wanted: Immutability, mode: str) -> None:
    """Files without such a lock are given it by objects.patch; a stronger mode is said."""
    over = {"retention": {"mode": "Unlocked", "retainUntilTime": "2026-01-01T00:00:00Z"}}
    root = archive(free={}, over=over, weak=UNLOCKED, strong=LOCKED)

    found = retain(root, ["free", "over", "weak", "strong", "free"], wanted, now=NOW)

    assert found == wanted.from_now(NOW)
    expected = {"retention": {"mode": mode, "retainUntilTime": UNTIL}}
    options = {"json": expected, "json_out": True}
    asked = [("PATCH", ("bucket", f"a/{name}"), options) for name in ("free", "over")]
    if wanted is STRONG:
        stronger = {**options, "overrideUnlockedRetention": "true"}
        asked.append(("PATCH", ("bucket", "a/weak"), stronger))
    assert sorted(root.fs.asked) == asked


def test_retain_missing() -> None:
    """A file that isn't there is named, and that nothing was sealed."""
    with pytest.raises(ArchiveError, match=r"gs://bucket/a/gone can't be locked.*was sealed"):
        retain(archive(), ["gone"], WEAK, now=NOW)


def test_retain_nothing() -> None:
    """Without the setting, nothing is asked."""
    root = archive(free={})

    assert retain(root, ["free"], None, now=NOW) is None
    assert root.fs.asked == []


def test_retain_on_a_disk(tmp_path: Any) -> None:
    """A copy of such an archive on a disk isn't sealed as if its files were locked."""
    with pytest.raises(ArchiveError, match="isn't in an object store"):
        retain(UPath(tmp_path), [], WEAK, now=NOW)
    assert locked_in(UPath(tmp_path)).files == 0


def test_store_locks_on_a_disk(tmp_path: Any) -> None:
    """Of a file on a disk, the size is known; what is gone is left out, and nothing is locked."""
    (tmp_path / "x").write_text("content")
    locks = StoreLocks(UPath(tmp_path), "look")

    assert locks.held(["x", "gone"]) == {"x": ObjectLock(7)}
    assert locks.locked(["x"]) == {}


@pytest.mark.parametrize("mode", ["governance", "compliance"])
def test_create_object_google(mode: Mode) -> None:
    """A receipt is created with its lock in one request, and only if there is none."""
    root = archive()

    create_object(root / "receipt.json", b"{}", Retention(mode, NOW + timedelta(days=30)))

    [(method, _, options)] = root.fs.asked
    assert (method, options["ifGenerationMatch"]) == ("POST", "0")
    said = "Locked" if mode == "compliance" else "Unlocked"
    assert b'"retention": {"mode": "%b"' % said.encode() in options["data"]
    assert UNTIL.encode() in options["data"]


@pytest.mark.parametrize(
    ("bucket", "seen"),
    [
        ({"objectRetention": {"mode": "Enabled"}}, ""),
        ({"objectRetention": {"mode": "Other"}}, "'Other'"),
        ({}, "None"),
    ],
)
def test_require_lockable_google(bucket: dict[str, Any], seen: str) -> None:
    """A bucket without object retention is refused, with what was seen and how to enable it."""
    root = archive()
    root.fs.bucket = bucket
    if not seen:
        require_lockable(root, WEAK)
        return

    with pytest.raises(ArchiveError, match=f"is {seen}.*--enable-per-object-retention"):
        require_lockable(root, WEAK)


def test_store_locks_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is asked for once in a run; what is gone is asked for again."""
    asked: list[str] = []
    google = object_retention._STORES["gs"]

    def ask(files: Any, path: str) -> ObjectLock:
        asked.append(path)
        return google.ask(files, path)

    monkeypatch.setitem(object_retention._STORES, "gs", google._replace(ask=ask))
    locks = StoreLocks(archive(x=LOCKED, y={}), "look", clock=lambda: NOW)

    assert locks.locked(["x", "y", "gone"]).keys() == {"x"}
    assert locks.summary(["x", "y"]).files == 1
    assert sorted(asked) == ["bucket/a/gone", "bucket/a/x", "bucket/a/y"]


def test_locked_in() -> None:
    """All files below a folder count, but those that are free by now; a hold counts for ever."""
    root = archive(x=LOCKED, y={}, z={"temporaryHold": True})
    over = {"retention": {"mode": "Locked", "retainUntilTime": "2026-01-01T00:00:00Z"}}
    root.fs.said |= {"a/b/c": {"eventBasedHold": True}, "a/b/d": over, "other/x": LOCKED}

    assert (locked_in(root).on_hold, locked_in(root / "b").on_hold) == (2, 1)
    assert locked_in(root / "b").files == 1


@dataclass
class FakeAzure:
    """A container as adlfs has it, with one blob."""

    container: Any = None
    blob: Any = None
    set: list[Any] = field(default_factory=list)

    @property
    def loop(self) -> Any:
        """The loop in which fsspec waits for answers."""
        from fsspec.asyn import get_loop

        return get_loop()

    def split_path(self, path: str) -> tuple[str, str, None]:
        """Return container and name."""
        container, _, name = path.partition("/")
        return container, name, None

    @property
    def service_client(self) -> Any:
        """Azure's client for a container or a blob."""

        def of_container(container: str) -> Any:
            assert container == "bucket"
            return self.client()

        def of_blob(*, container: str, blob: str) -> Any:
            assert (container, blob) == ("bucket", "a/x")
            return self.client()

        return SimpleNamespace(get_container_client=of_container, get_blob_client=of_blob)

    @asynccontextmanager
    async def client(self) -> Any:
        """Open a client."""
        yield self

    async def get_container_properties(self) -> Any:
        """Describe the container."""
        return self.container

    async def get_blob_properties(self) -> Any:
        """Describe the blob, or fail."""
        if isinstance(self.blob, Exception):
            raise self.blob
        return self.blob

    async def set_immutability_policy(self, policy: Any) -> None:
        """Note a lock."""
        self.set.append(policy)


def policy_of(mode: Any, until: Any, *, on_hold: bool = False) -> Any:
    policy = SimpleNamespace(policy_mode=mode, expiry_time=until)
    return SimpleNamespace(immutability_policy=policy, has_legal_hold=on_hold, size=3)


@pytest.mark.parametrize(
    ("mode", "until", "found"),
    [
        ("Locked", NOW, Retention("compliance", NOW)),
        ("unlocked", NOW.replace(tzinfo=None), Retention("governance", NOW)),
        (SimpleNamespace(value="locked"), NOW, Retention("compliance", NOW)),
        (None, None, None),
    ],
)
@pytest.mark.parametrize("on_hold", [False, True])
def test_store_locks_azure(mode: Any, until: Any, found: Any, on_hold: bool) -> None:
    """The policy of a blob's version, and its legal hold."""
    files = FakeAzure(blob=policy_of(mode, until, on_hold=on_hold))
    root: Any = Path(files, "bucket/a", "abfs")

    assert StoreLocks(root, "look").held(["x"]) == {"x": ObjectLock(3, found, on_hold)}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock shows another time than UTC."""
    with monkeypatch.context() as context:
        context.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_store_locks_azure_elsewhere() -> None:
    """A time that Azure's package gives without a zone is in UTC, wherever this machine is."""
    files = FakeAzure(blob=policy_of("Locked", NOW.replace(tzinfo=None)))
    root: Any = Path(files, "bucket/a", "abfs")

    held = StoreLocks(root, "look").held(["x"])

    assert held == {"x": ObjectLock(3, Retention("compliance", NOW))}


class OfAzure(Exception):
    """As azure-core's HttpResponseError: the response's status."""

    def __init__(self, status_code: int) -> None:
        super().__init__(status_code)
        self.status_code = status_code


def test_store_locks_azure_fails() -> None:
    """A blob that is gone has no lock; one that can't be asked for may have one."""
    files = FakeAzure(blob=OfAzure(404))
    root: Any = Path(files, "bucket/a", "abfss")

    assert StoreLocks(root, "look").locked(["x"]) == {}
    files.blob = OfAzure(403)
    with pytest.raises(OfAzure):
        StoreLocks(root, "look").locked(["x"])


@pytest.mark.parametrize(("wanted", "mode"), [(WEAK, "Unlocked"), (STRONG, "Locked")])
def test_retain_azure(wanted: Immutability, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob gets a policy, and a receipt is created with the same."""
    monkeypatch.setitem(sys.modules, "azure.storage.blob", SimpleNamespace(ImmutabilityPolicy=dict))
    files = FakeAzure(blob=policy_of(None, None))
    root: Any = Path(files, "bucket/a", "abfs")

    found = retain(root, ["x"], wanted, now=NOW)

    assert found is not None
    assert files.set == [{"expiry_time": NOW + timedelta(days=30), "policy_mode": mode}]
    assert creation_options(root, found) == {"immutability_policy": files.set[0]}


@pytest.mark.parametrize("is_enabled", [True, False])
def test_require_lockable_azure(is_enabled: bool) -> None:
    """A container without version-level immutability is refused."""
    container = SimpleNamespace(immutable_storage_with_versioning_enabled=is_enabled)
    root: Any = Path(FakeAzure(container), "bucket/a", "abfs")
    refused = pytest.raises(ArchiveError, match=r"^abfs://bucket can't lock files.*enable-vlw")

    with nullcontext() if is_enabled else refused:
        require_lockable(root, WEAK)


@dataclass
class FakeS3:
    """A bucket as s3fs has it: answers a call with what is said of it, which may be an error."""

    said: dict[str, Any]
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def split_path(self, path: str) -> tuple[str, str, None]:
        """Return bucket and key."""
        bucket, _, key = path.partition("/")
        return bucket, key, None

    def call_s3(self, method: str, **options: Any) -> Any:
        """Answer a request."""
        self.asked.append((method, options))
        answer = self.said.get(method, {})
        if isinstance(answer, Exception):
            raise answer
        return answer


def on_s3(**said: Any) -> Any:
    return Path(FakeS3(said), "bucket/a", "s3")


def head(mode: str = "", until: datetime | None = None, hold: str = "OFF") -> dict[str, Any]:
    """What S3 says of an object."""
    lock = {"ObjectLockMode": mode, "ObjectLockRetainUntilDate": until} if until else {}
    return {"ContentLength": 3, "ObjectLockLegalHoldStatus": hold, **lock}


END = NOW + timedelta(days=30)


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ({"ContentLength": 3}, ObjectLock(3)),
        (head("COMPLIANCE", END), ObjectLock(3, Retention("compliance", END))),
        (head("GOVERNANCE", END), ObjectLock(3, Retention("governance", END))),
        (head(hold="ON"), ObjectLock(3, on_hold=True)),
    ],
)
def test_store_locks_s3(said: dict[str, Any], held: ObjectLock) -> None:
    """A lock of the object's current version, or a legal hold."""
    root = on_s3(head_object=said)

    assert StoreLocks(root, "look").held(["x"]) == {"x": held}
    assert root.fs.asked == [("head_object", {"Bucket": "bucket", "Key": "a/x"})]
    # What a deletion leaves behind a marker doesn't count.
    assert locked_in(root).files == 0


@pytest.mark.parametrize(
    ("said", "wanted", "mode", "bypasses"),
    [
        (head(), WEAK, "GOVERNANCE", False),
        (head(), STRONG, "COMPLIANCE", False),
        (head("GOVERNANCE", NOW), STRONG, "COMPLIANCE", False),
        (head("GOVERNANCE", END), STRONG, "COMPLIANCE", True),
        (head("GOVERNANCE", END - timedelta(1)), WEAK, "GOVERNANCE", False),
        (head("COMPLIANCE", END - timedelta(1)), WEAK, "COMPLIANCE", False),
        (head("COMPLIANCE", END), WEAK, None, False),
        # A hold is released some day.
        (head(hold="ON"), WEAK, "GOVERNANCE", False),
    ],
)
def test_retain_s3(
    said: dict[str, Any], wanted: Immutability, mode: str | None, bypasses: bool
) -> None:
    """No lock gets weaker; the permission to change one is used only where its mode changes."""
    root = on_s3(head_object=said)

    assert retain(root, ["x"], wanted, now=NOW) == wanted.from_now(NOW)

    asked = {
        "Bucket": "bucket",
        "Key": "a/x",
        "Retention": {"Mode": mode, "RetainUntilDate": END},
        **({"BypassGovernanceRetention": True} if bypasses else {}),
    }
    assert root.fs.asked[1:] == ([("put_object_retention", asked)] if mode else [])


@pytest.mark.parametrize(
    ("error", "kind"),
    [(PermissionError("no"), ArchiveError), (ConnectionError("no"), StoreUnavailableError)],
)
@pytest.mark.parametrize("method", ["head_object", "put_object_retention"])
def test_retain_fails(method: str, error: Exception, kind: type[Exception]) -> None:
    """A store that doesn't answer is tried again; one that refuses isn't."""
    root = on_s3(**{"head_object": head(), method: error})

    with pytest.raises(kind, match="s3://bucket/a/x can't be locked until 2026-01-31") as caught:
        retain(root, ["x"], WEAK, now=NOW)

    assert type(caught.value) is kind
    assert caught.value.__cause__ is error


class OfAws(Exception):
    """As botocore's ClientError."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


def translated(code: str) -> OSError:
    """As s3fs does it."""
    error = OSError("translated")
    error.__cause__ = OfAws(code)
    return error


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ({"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}}, None),
        ({"ObjectLockConfiguration": {"ObjectLockEnabled": "Other"}}, "its Object Lock is 'Other'"),
        ({}, "its Object Lock is None"),
        (translated("ObjectLockConfigurationNotFoundError"), "it has no Object Lock"),
        (translated("NotImplemented"), r"can't be asked for \(NotImplemented: translated"),
        (PermissionError("denied"), r"can't be asked for \(denied"),
    ],
)
def test_require_lockable_s3(said: Any, seen: str | None) -> None:
    """A bucket without Object Lock is refused, and so is one that doesn't say whether it has it."""
    root = on_s3(get_object_lock_configuration=said)
    refused = pytest.raises(ArchiveError, match=f"^s3://bucket can't.*: .*{seen}.*object-lock-en")

    with refused if seen else nullcontext():
        require_lockable(root, WEAK)

    assert root.fs.asked == [("get_object_lock_configuration", {"Bucket": "bucket"})]


def test_require_lockable_s3_silent() -> None:
    """A store that doesn't answer isn't one that locks nothing."""
    silent = TimeoutError("silent")

    with pytest.raises(TimeoutError) as caught:
        require_lockable(on_s3(get_object_lock_configuration=silent), WEAK)

    assert caught.value is silent


@pytest.mark.parametrize("mode", ["governance", "compliance"])
def test_creation_options_s3(mode: Mode) -> None:
    """A receipt is created with its lock, and with the checksum without which S3 refuses that."""
    assert creation_options(on_s3(), Retention(mode, END)) == {
        "ObjectLockMode": mode.upper(),
        "ObjectLockRetainUntilDate": END,
        "ChecksumAlgorithm": "CRC32",
    }


def test_require_lockable_google_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not ask for the bucket is told which right that needs."""
    root = archive()

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("Forbidden")

    monkeypatch.setattr(root.fs, "call", refuse)
    with pytest.raises(ArchiveError, match=r"can't be asked.*Forbidden.*storage\.buckets\.get"):
        require_lockable(root, WEAK)
