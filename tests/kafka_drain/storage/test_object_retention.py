"""What Google's store and Azure's are asked to lock a file: their test servers lock nothing.

On S3, `tests/stores/test_s3_immutable.py` shows it against a server.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ArchiveError
from kafka_drain.storage import object_retention
from kafka_drain.storage.conditional_writes import create_object
from kafka_drain.storage.immutability import Immutability, Mode, ObjectLock, Retention
from kafka_drain.storage.object_retention import StoreLocks, locked_in, require_lockable, retain

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

    def split_path(self, path: str) -> tuple[str, str, None]:
        """Return bucket and name."""
        bucket, _, name = path.partition("/")
        return bucket, name, None

    def call(self, method: str, path: str, *names: str, **options: Any) -> Any:
        """Answer a request, and note what would change something."""
        if method != "GET":
            self.asked.append((method, names, options))
            return {}
        if path == "b/{}":
            return self.bucket
        if names[1] not in self.said:
            raise FileNotFoundError(names[1])
        return {"size": "3", **self.said[names[1]]}


class Path:
    """A path in the fake store."""

    protocol = "gs"

    def __init__(self, fs: FakeGoogle, path: str) -> None:
        self.fs, self.path = fs, path

    def __truediv__(self, name: str) -> Path:
        return Path(self.fs, f"{self.path}/{name}")

    def __str__(self) -> str:
        return f"gs://{self.path}"


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
    root = archive(free={}, weak=UNLOCKED, strong=LOCKED)

    found = retain(root, ["free", "weak", "strong", "free"], wanted, now=NOW)

    assert found == wanted.from_now(NOW)
    expected = {"retention": {"mode": mode, "retainUntilTime": UNTIL}}
    options = {"json": expected, "json_out": True}
    asked = [("PATCH", ("bucket", "a/free"), options)]
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


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (("Locked", NOW), Retention("compliance", NOW)),
        (("unlocked", NOW.replace(tzinfo=None)), Retention("governance", NOW)),
        ((None, None), None),
    ],
)
def test_store_locks_azure(policy: tuple[Any, Any], found: Any) -> None:
    """The policy of a blob's version, and its legal hold."""
    mode, until = policy
    said = SimpleNamespace(
        immutability_policy=SimpleNamespace(policy_mode=mode, expiry_time=until),
        has_legal_hold=found is None,
        size=3,
    )

    class Blob:
        async def get_blob_properties(self) -> Any:
            return said

    @asynccontextmanager
    async def client(**_: str) -> Any:
        yield Blob()

    from fsspec.asyn import get_loop

    files = SimpleNamespace(
        loop=get_loop(),
        split_path=lambda path: (*path.split("/", 1), None),
        service_client=SimpleNamespace(get_blob_client=client),
    )

    assert object_retention._ask_azure(files, "bucket/x") == ObjectLock(3, found, found is None)
