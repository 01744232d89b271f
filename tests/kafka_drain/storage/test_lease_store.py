"""A lease as a chain of numbered files, on a disk; the HDFS's own are in tests/stores."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.maintenance import unlock
from kafka_drain.storage import lease as lease_module
from kafka_drain.storage import lease_store as module
from kafka_drain.storage.lease import SECONDS, Lease, find_lease, hold_lease
from kafka_drain.storage.lease_store import NumberedFiles, OneFile, lease_store, name_of
from kafka_drain.storage.paths import locate
from tests.racing import take_at_once

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


class Clock:
    now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UPath:
    """An archive's folder, whose lease is stored as on HDFS."""

    def numbered(root: UPath) -> NumberedFiles:
        return NumberedFiles(root / ".lock")

    monkeypatch.setattr(lease_module, "lease_store", numbered)
    monkeypatch.setattr(unlock, "lease_store", numbered)
    return UPath(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_lease(root: UPath, clock: Clock, said: list[str]) -> Any:
    """A lease of 60 s that no thread renews."""

    def make(run: str, token: str | None = None) -> Lease:
        return Lease(root, run=run, seconds=60, clock=clock, token=token)

    return make


def numbers(root: UPath) -> list[int]:
    return sorted(int(name.partition(".")[0]) for name in os.listdir(str(root / ".lock")))


def test_lease_store() -> None:
    """HDFS has numbered files, each other place one."""
    assert lease_store(locate("hdfs://n:8020/a")) == NumberedFiles(locate("hdfs://n:8020/a/.lock"))
    assert lease_store(UPath("/a")) == OneFile(UPath("/a/lock.json"))
    assert lease_store(UPath("memory://b/a")) == OneFile(UPath("memory://b/a/lock.json"))


def test_hold_lease(root: UPath) -> None:
    """The newest file says who holds it, then that it was released; older ones are gone."""
    for turn in (1, 3):
        with hold_lease(root, run="r") as lease:
            assert numbers(root) == [turn]
            found = find_lease(root)
            assert found is not None
            assert (found.token, found.version) == (lease.token, str(turn))
            lease_file = json.loads((root / ".lock" / name_of(turn)).read_text())
            assert lease_file["run"] == "r"
        assert numbers(root) == [turn + 1]
        assert find_lease(root) is None
        released = json.loads((root / ".lock" / name_of(turn + 1)).read_text())
        assert released.pop("released_at")
        assert released["token"] == lease.token


def test_acquire_held(root: UPath, make_lease: Any, clock: Clock) -> None:
    """A held lease is refused, also when it is renewed, and taken when it has expired."""
    first, second = make_lease("first"), make_lease("second")
    first.acquire()
    with pytest.raises(LockedError, match="run first"):
        second.acquire()
    clock.now += timedelta(seconds=40)
    first.renew()
    clock.now += timedelta(seconds=59)
    with pytest.raises(LockedError, match="run first"):
        second.acquire()
    assert numbers(root) == [2]

    clock.now += timedelta(seconds=1)
    second.acquire()

    assert numbers(root) == [3]
    assert not first.lost.is_set()


@pytest.mark.parametrize("is_stale", [False, True])
def test_acquire_many_at_once(root: UPath, make_lease: Any, clock: Clock, is_stale: bool) -> None:
    """Of six takers at the same moment exactly one gets the lease, new or run out."""
    if is_stale:
        make_lease("dead").acquire()
        clock.now += timedelta(minutes=5)
    takers = [make_lease(str(number)) for number in range(6)]

    won, refused = take_at_once(takers)

    found = find_lease(root)
    assert found is not None
    assert won == [found.token]
    assert len(refused) == 5


@pytest.mark.parametrize("is_released", [False, True])
@pytest.mark.parametrize("does", ["renew", "release"])
def test_suspended_holder(
    root: UPath, make_lease: Any, clock: Clock, said: list[str], is_released: bool, does: str
) -> None:
    """Who wakes up after a takeover, or a release and another one, changes nothing."""
    suspended, next_one = make_lease("suspended"), make_lease("next")
    suspended.acquire()
    clock.now += timedelta(minutes=5)
    next_one.acquire()
    if is_released:
        next_one.release()
        next_one = make_lease("third")
        next_one.acquire()
    before = [(name, (root / ".lock" / name).read_text()) for name in os.listdir(root / ".lock")]

    getattr(suspended, does)()

    assert suspended.lost.is_set()
    assert "run third" in said[-1] if is_released else "run next" in said[-1]
    after = [(name, (root / ".lock" / name).read_text()) for name in os.listdir(root / ".lock")]
    assert after == before


@pytest.mark.parametrize("act", ["replace", "remove"])
def test_replace_suspended_between(root: UPath, act: str) -> None:
    """Who was suspended between its read and its write doesn't bring back an old number."""
    store = NumberedFiles(root / ".lock")
    assert store.create({"by": 1})
    seen = store.read()
    assert seen is not None
    assert seen.version == "1"
    assert store.replace({"by": 2}, seen.version)
    assert not getattr(store, act)({"by": 9}, seen.version)
    assert store.replace({"by": 3}, "2")
    assert numbers(root) == [3]

    # Number 2 is free again.
    assert not getattr(store, act)({"by": 9}, seen.version)

    assert numbers(root) == [3]
    last = store.read()
    assert last is not None
    assert json.loads(last.content) == {"by": 3}


def test_create_suspended_between(root: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who saw no lease, and then was suspended, doesn't get one that came and went."""
    store = NumberedFiles(root / ".lock")
    assert store.create({"by": 1})
    assert store.remove({"released_at": "now"}, "1")
    assert numbers(root) == [2]
    listed = module.list_folder
    # As it was before.
    seen = iter([dict[str, bool]()])
    monkeypatch.setattr(module, "list_folder", lambda path: next(seen, listed(path)))

    assert not store.create({"by": 9})

    assert numbers(root) == [2]
    assert store.create({"by": 3})
    assert numbers(root) == [3]


def test_create_held(root: UPath) -> None:
    """A lease isn't created where there is one; one that was released is none."""
    store = NumberedFiles(root / ".lock")

    assert store.read() is None
    assert store.create({"by": 1})
    assert not store.create({"by": 2})
    assert store.remove({"released_at": "now"}, "1")
    assert store.read() is None
    assert store.create({"by": 3})
    assert numbers(root) == [3]


def test_read_removed_meanwhile(root: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is superseded between the list and the read is looked for again."""
    store = NumberedFiles(root / ".lock")
    store.create({"by": 1})
    store.replace({"by": 2}, "1")
    listed = module.list_folder
    seen = iter([{name_of(1): False}])
    monkeypatch.setattr(module, "list_folder", lambda path: next(seen, listed(path)))

    found = store.read()

    assert found is not None
    assert found.version == "2"
    monkeypatch.setattr(module, "list_folder", lambda path: {name_of(1): False})
    with pytest.raises(ArchiveError, match="removed each time"):
        store.read()


def test_write_clears(root: UPath) -> None:
    """What a kill left of older ones is removed; other files aren't touched."""
    store = NumberedFiles(root / ".lock")
    store.create({"by": 1})
    for number in (1, 2, 3):
        (root / ".lock" / f".{name_of(number)}.{'0' * 32}.tmp").write_text("half")
    (root / ".lock" / "notes").write_text("x")

    store.replace({"by": 2}, "1")

    left = {f".{name_of(number)}.{'0' * 32}.tmp" for number in (2, 3)}
    assert set(os.listdir(root / ".lock")) == {name_of(2), "notes"} | left


def test_acquire_damaged(root: UPath, make_lease: Any, clock: Clock, said: list[str]) -> None:
    """A newest file that can't be parsed counts as a lease for as long as one could last."""
    first = make_lease("first")
    first.acquire()
    damaged = root / ".lock" / name_of(1)
    damaged.write_text('{"holder": "x", "run')
    clock.now = datetime.fromtimestamp(damaged.stat().st_mtime, timezone.utc)

    with pytest.raises(ArchiveError, match=r"\.lock holds .*expected the lease of a drain"):
        make_lease("second").acquire()
    first.renew()
    assert first.lost.is_set()
    clock.now += timedelta(seconds=60)
    make_lease("third").acquire()

    assert numbers(root) == [2]
    assert "can't be read" in said[-1]


def test_release_renewed_meanwhile(root: UPath, make_lease: Any, clock: Clock) -> None:
    """A driver that shares the lease may renew it while its caller releases it."""
    caller = make_lease("r")
    caller.acquire()
    driver = make_lease("r", token=caller.token)
    driver.acquire()
    assert numbers(root) == [2]
    store = NumberedFiles(root / ".lock")
    removing = iter([lambda: driver.renew()])

    class Renewed(NumberedFiles):
        def remove(self, released: dict[str, Any], version: str | None) -> bool:
            next(removing, lambda: None)()
            return super().remove(released, version)

    caller._store = Renewed(store.path)

    caller.release()

    assert not caller.lost.is_set()
    assert find_lease(root) is None
    assert numbers(root) == [4]
    driver.renew()
    assert driver.lost.is_set()


def test_unlock(root: UPath, make_lease: Any, clock: Clock, said: list[str]) -> None:
    """What is left of a killed drain is listed, watched and released."""
    make_lease("dead").acquire()
    clock.now += timedelta(minutes=5)
    (root / "windows").mkdir()
    [held] = unlock.list_leases(root, clock)

    assert held.to_dict()["lease"] == str(root / ".lock")
    waited = list[float]()
    unlock.remove_lease(held, clock=clock, wait=waited.append)

    assert sum(waited) == pytest.approx(SECONDS)
    assert list(unlock.list_leases(root, clock)) == []
    assert numbers(root) == [3]


# one file on this machine


@pytest.fixture
def one(tmp_path: Path) -> OneFile:
    """A lease in a file of this machine."""
    (tmp_path / "lock.json").write_text("{}")
    return OneFile(UPath(tmp_path / "lock.json"))


def test_alone(one: OneFile) -> None:
    """Only one of this machine's processes at a time changes a lease."""
    with one.alone() as alone, open(str(one.path), "rb") as other:
        assert alone
        for how in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, how | fcntl.LOCK_NB)

    with open(str(one.path), "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("change", ["replaced", "removed", "unchanged"])
def test_alone_changed(one: OneFile, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """A process that waited for a file which is another one by now changes nothing."""

    def waited(*_: object) -> None:
        if change == "replaced":
            (one.path.parent / "new").write_text("{}")
            os.replace(str(one.path.parent / "new"), str(one.path))
        if change == "removed":
            one.path.unlink()

    monkeypatch.setattr(fcntl, "flock", waited)

    with one.alone() as alone:
        assert alone is (change == "unchanged")


def test_alone_none(one: OneFile) -> None:
    """Where there is no lease any more, there is nothing to change."""
    one.path.unlink()

    with one.alone() as alone:
        assert not alone


def test_alone_without_locks(one: OneFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network file system without locks, a lease can be changed too."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)

    with one.alone() as alone:
        assert alone


def test_alone_not_opened(tmp_path: Path) -> None:
    """A file that can't be opened is named."""
    says = f"{tmp_path} can't be opened: Is a directory"
    with pytest.raises(ArchiveError, match=says), OneFile(UPath(tmp_path)).alone():
        pass


def test_read_time_zone(one: OneFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a lease was written doesn't depend on where this machine is."""
    at = 1_767_268_800.0
    os.utime(str(one.path), (at, at))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        stored = one.read()
    finally:
        monkeypatch.undo()
        time.tzset()

    assert stored is not None
    assert stored.written_at == datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def test_remove_run_out(one: OneFile) -> None:
    """On this machine, a lease is removed even if it has run out."""
    released_at, expires_at = "2026-01-01T12:02:00", "2026-01-01T12:01:00"

    assert one.remove({"released_at": released_at, "expires_at": expires_at}, None)

    assert one.read() is None
