"""A lease in a store that replaces an object only if nobody else has since it was read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.storage import conditional_writes, json_files
from kafka_drain.storage import lease as lease_module
from kafka_drain.storage import lease_store as module
from kafka_drain.storage.lease import Lease, find_lease, hold_lease
from kafka_drain.storage.lease_store import OneFile

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


class Clock:
    now = NOON

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Store:
    """What a store does with conditions, in memory; a test may lose answers, or come between."""

    def __init__(self, root: UPath) -> None:
        self.path = root / "lock.json"
        #: What happens before the next conditional write is looked at.
        self.before: Callable[[], object] = lambda: None
        #: Raised in place of the answer to the next conditional write, which is carried out.
        self.lost: Exception | None = None
        self.conditions: list[str] = []

    def replace(self, files: Any, path: str, content: bytes, version: str) -> None:
        """Write content if the object has a version."""
        before, self.before = self.before, lambda: None
        before()
        self.conditions.append(version)
        if str(files.info(path)["created"]) != version:
            raise FileExistsError(path)
        files.pipe_file(path, content)
        if self.lost is not None:
            lost, self.lost = self.lost, None
            raise lost

    def put(self, **content: Any) -> None:
        """Write the object, whatever it is."""
        self.path.fs.pipe_file(self.path.path, json.dumps(content).encode())

    def holder(self) -> str:
        found = find_lease(self.path.parent)
        assert found is not None
        return str(found.run)


_NUMBERS = count()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store with an archive, of which nobody holds the lease."""
    root = UPath(f"memory://stores/{next(_NUMBERS)}")
    store = Store(root)
    conditions = conditional_writes._Conditions("created", store.replace)
    monkeypatch.setitem(conditional_writes._STORES, "memory", conditions)
    (root / "archive.json").write_text("{}")
    yield store
    root.fs.rm(root.path, recursive=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_lease(store: Store, clock: Clock, said: list[str]) -> Callable[..., Lease]:
    """A lease of 60 s that no thread renews."""

    def make(run: str, token: str | None = None) -> Lease:
        return Lease(store.path.parent, run=run, seconds=60, clock=clock, token=token)

    return make


def test_read_replaced_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads a lease while it is renewed doesn't get the new one's version with the old one."""
    store.put(by=1)
    kept = OneFile(store.path)
    read = module.read_bytes

    def read_first(path: UPath) -> bytes:
        content = read(path)
        store.put(by=2)
        return content

    with monkeypatch.context() as patch:
        patch.setattr(module, "read_bytes", read_first)
        seen = kept.read()

    assert seen is not None
    assert json.loads(seen.content) == {"by": 1}
    assert not kept.replace({"by": 3}, seen.version)
    assert json.loads(read(store.path)) == {"by": 2}


def test_read_none(store: Store) -> None:
    """Where there is no object, there is no lease."""
    assert OneFile(store.path).read() is None


def test_acquire_expired_twice(
    make_lease: Callable[..., Lease], store: Store, clock: Clock
) -> None:
    """Of two that take over the same lease, the one that comes second is refused."""
    make_lease("dead").acquire()
    clock.move(60)
    first, second = make_lease("first"), make_lease("second")
    store.before = first.acquire

    with pytest.raises(LockedError, match="run first"):
        second.acquire()

    assert store.holder() == "first"
    assert not first.lost.is_set()


def test_acquire_renewed_meanwhile(
    make_lease: Callable[..., Lease], store: Store, clock: Clock
) -> None:
    """A lease that its holder renews at the last moment isn't taken from him."""
    holder, taker = make_lease("holder"), make_lease("taker")
    holder.acquire()
    clock.move(60)

    def renews() -> None:
        clock.move(-1)
        holder.renew()

    store.before = renews

    with pytest.raises(LockedError, match="run holder"):
        taker.acquire()

    assert not holder.lost.is_set()
    assert store.holder() == "holder"


def test_renew_taken_meanwhile(
    make_lease: Callable[..., Lease], store: Store, clock: Clock, said: list[str]
) -> None:
    """A renewal that comes too late replaces nothing, and its holder is told."""
    holder, taker = make_lease("holder"), make_lease("taker")
    holder.acquire()
    clock.move(59)

    def takes() -> None:
        clock.move(1)
        taker.acquire()

    store.before = takes
    holder.renew()

    assert holder.lost.is_set()
    assert "THE LEASE IS LOST: it now belongs to" in said[-1]
    assert store.holder() == "taker"
    holder.release()
    assert store.holder() == "taker"


@pytest.mark.parametrize("does", ["renew", "take over"])
def test_replace_answer_lost(
    does: str, make_lease: Callable[..., Lease], store: Store, clock: Clock
) -> None:
    """A write that a client repeats after its answer was lost is refused, but is its own."""
    lease = make_lease("holder")
    if does == "renew":
        lease.acquire()
        clock.move(30)
        store.lost = FileExistsError()
        lease.renew()
    else:
        make_lease("dead").acquire()
        clock.move(60)
        store.lost = FileExistsError()
        lease.acquire()

    assert store.lost is None
    assert not lease.lost.is_set()
    found = find_lease(store.path.parent)
    assert found is not None
    assert (found.run, found.expires_at) == ("holder", clock.now + timedelta(seconds=60))
    clock.move(59)
    lease.renew()
    assert not lease.lost.is_set()


@pytest.mark.parametrize("is_own", [True, False])
def test_replace_refused(is_own: bool, store: Store) -> None:
    """A refusal is one only if the object isn't what was to be written."""
    store.put(by=1)
    kept = OneFile(store.path)
    seen = kept.read()
    assert seen is not None
    if is_own:
        store.lost = FileExistsError()
    else:
        store.before = lambda: store.put(by=2)

    assert kept.replace({"by": 3}, seen.version) is is_own

    last = kept.read()
    assert last is not None
    assert json.loads(last.content) == {"by": 3 if is_own else 2}


def test_replace_fails(make_lease: Callable[..., Lease], store: Store, clock: Clock) -> None:
    """What isn't a refusal is no takeover either: it is an error that names the file."""
    make_lease("dead").acquire()
    clock.move(60)

    def fails() -> None:
        raise OSError("connection reset")

    store.before = fails

    with pytest.raises(ArchiveError, match=r"lock\.json can't be written: connection reset"):
        make_lease("taker").acquire()

    assert store.holder() == "dead"


def test_renew_fails(
    make_lease: Callable[..., Lease], store: Store, clock: Clock, said: list[str]
) -> None:
    """A renewal that the store doesn't take is tried again, until the lease has run out."""
    lease = make_lease("holder")
    lease.acquire()

    def fails() -> None:
        raise OSError("connection reset")

    for seconds, lost in ((20, False), (20, False), (20, True)):
        clock.move(seconds)
        store.before = fails
        lease.renew()
        assert lease.lost.is_set() is lost
    assert "THE LEASE IS LOST" in said[-1]


def test_renew_unreachable(
    make_lease: Callable[..., Lease], clock: Clock, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store can't even be read, the lease is kept for as long as it lasts."""
    lease = make_lease("holder")
    lease.acquire()

    def fails(_: UPath) -> None:
        raise OSError("connection reset")

    monkeypatch.setattr(lease_module, "find_lease", fails)

    for seconds, lost in ((59, False), (1, True)):
        clock.move(seconds)
        lease.renew()
        assert lease.lost.is_set() is lost
    assert "lock.json is missing or unreachable" in said[-1]


def test_renew_shared(make_lease: Callable[..., Lease], store: Store, clock: Clock) -> None:
    """A renewal that the other holder of a shared lease has come before is as good."""
    driver = make_lease("driver")
    driver.acquire()
    caller = make_lease("caller", token=driver.token)
    caller.acquire()
    clock.move(40)
    store.before = driver.renew

    caller.renew()

    assert not caller.lost.is_set()
    clock.move(59)
    caller.renew()
    assert not caller.lost.is_set()


@pytest.mark.parametrize(("seconds", "stays"), [(59, False), (60, True)])
def test_release_expired(
    seconds: float,
    stays: bool,
    make_lease: Callable[..., Lease],
    store: Store,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An expired lease isn't removed: it may be another's by the time the store removes it."""
    lease = make_lease("holder")
    lease.acquire()
    clock.move(seconds)
    real = OneFile.remove

    def remove(self: OneFile, *arguments: Any) -> bool:
        if stays:
            make_lease("taker").acquire()
        return real(self, *arguments)

    monkeypatch.setattr(OneFile, "remove", remove)

    lease.release()

    found = find_lease(store.path.parent)
    assert (found.run if found else None) == ("taker" if stays else None)


@pytest.mark.parametrize("winner", ["own", "other", "none"])
def test_create_answer_lost(winner: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A creation that is refused is one's own if the object is; else it is another's, or gone."""
    document = {"by": "me"}

    def refuses(path: UPath, content: bytes, retention: object) -> None:
        if winner == "own":
            path.fs.pipe_file(path.path, content)
        elif winner == "other":
            store.put(by="you")
        raise FileExistsError(path)

    monkeypatch.setattr(json_files, "create_object", refuses)

    assert OneFile(store.path).create(document) is (winner == "own")


def test_create_overwritten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store that knows no exclusive creation, who was overwritten at once finds out."""
    create = json_files.create_object

    def overwrites(path: UPath, content: bytes, retention: object) -> None:
        create(path, content)
        store.put(by="you")

    monkeypatch.setattr(json_files, "create_object", overwrites)

    assert not OneFile(store.path).create({"by": "me"})


def test_hold_lease_conditions(store: Store, said: list[str]) -> None:
    """A lease is created only if there is none, renewed only if it is the holder's, and removed."""
    with hold_lease(store.path.parent, run="first") as lease:
        with pytest.raises(LockedError, match="run first"), hold_lease(store.path.parent, run="x"):
            pass
        version = str(store.path.fs.info(store.path.path)["created"])
        lease.renew()
        assert store.conditions == [version]

    assert find_lease(store.path.parent) is None
    assert said == []
