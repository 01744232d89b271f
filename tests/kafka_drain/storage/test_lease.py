"""The lease of an archive's one writer, by a clock that stands still until it is told to move."""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import open_drain
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import ArchiveError, LockedError, StoreUnavailableError, TopicError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.maintenance.unlock import list_leases, remove_lease
from kafka_drain.offsets import TopicPartition
from kafka_drain.storage import lease as lease_module
from kafka_drain.storage import lease_store
from kafka_drain.storage.json_files import create_document
from kafka_drain.storage.lease import (
    Lease,
    find_lease,
    hold_lease,
    is_held,
    refuse_while_held,
    wait_for_lease,
)
from kafka_drain.storage.lease_store import OneFile
from tests.faults.injection import wait_for
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.racing import take_at_once

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
FOREVER = 1e6
PATIENCE = 20


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def root(tmp_path: Path) -> UPath:
    """An archive's folder, with something in it."""
    root = UPath(tmp_path / "archive")
    root.mkdir()
    (root / "archive.json").write_text("{}")
    return root


@pytest.fixture
def make_lease(root: UPath, clock: Clock, said: list[str]) -> Any:
    """A lease of 60 s that no thread renews."""

    def make(run: str = "first", root: UPath = root) -> Lease:
        return Lease(root, run=run, seconds=60, clock=clock)

    return make


def lock(root: UPath) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((root / "lock.json").read_text())
    return document


def names(root: UPath) -> list[str]:
    return sorted(os.listdir(str(root)))


# --- holding --------------------------------------------------------------------------------


def test_hold_lease_says_who(root: UPath, clock: Clock, said: list[str]) -> None:
    """While the body runs, lock.json says who holds it and until when; afterwards it is gone."""
    with hold_lease(root, run="manual__1", clock=clock) as lease:
        document = lock(root)
        inside = names(root)

    assert f"process {os.getpid()}" in document.pop("holder")
    assert document == {
        "run": "manual__1",
        "acquired_at": "2026-01-01T12:00:00.000+00:00",
        "expires_at": "2026-01-01T12:01:00.000+00:00",
        "token": lease.token,
    }
    assert inside == ["archive.json", "lock.json"]
    assert names(root) == ["archive.json"]
    assert not lease.lost.is_set()
    assert said == []


def test_hold_lease_body_raises(root: UPath) -> None:
    """The lease is released when the body fails, and the failure is what the caller sees."""
    with pytest.raises(ZeroDivisionError), hold_lease(root, run="r"):
        raise ZeroDivisionError

    assert names(root) == ["archive.json"]


def test_hold_lease_ends_at_once(root: UPath) -> None:
    """Leaving the context doesn't wait for the next renewal, and no thread is left."""
    before = threading.active_count()

    with hold_lease(root, run="r", seconds=FOREVER):
        assert threading.active_count() == before + 1

    assert threading.active_count() == before


@pytest.mark.parametrize("name", ["", "new", "new/deep"])
def test_hold_lease_in_new_folder(tmp_path: Path, name: str) -> None:
    """A folder that had to be made for the lease is gone again when nothing else came into it."""
    base = tmp_path / "base"
    base.mkdir()
    with hold_lease(UPath(base / name), run="r"):
        assert (base / name / "lock.json").exists()

    assert list(base.rglob("*")) == []
    assert base.exists()


def test_hold_lease_folder_filled(tmp_path: Path) -> None:
    """A folder that was filled stays."""
    with hold_lease(UPath(tmp_path / "new"), run="r"):
        (tmp_path / "new" / "archive.json").touch()

    assert os.listdir(tmp_path / "new") == ["archive.json"]


# --- refusing and taking over ---------------------------------------------------------------


def test_acquire_held(root: UPath, make_lease: Any, clock: Clock, said: list[str]) -> None:
    """A second taker is told who drains, since when and until when, and changes nothing."""
    make_lease("scheduled__1").acquire()
    before = (root / "lock.json").stat().st_mtime_ns
    clock.move(59.999)

    with pytest.raises(LockedError) as error, hold_lease(root, run="r", clock=clock):
        pytest.fail("two writers")

    for fragment in (
        str(root),
        f"process {os.getpid()} (run scheduled__1)",
        "since 2026-01-01T12:00:00.000+00:00",
        "until 2026-01-01T12:01:00.000+00:00",
        "Try again when it has finished",
    ):
        assert fragment in str(error.value)
    with pytest.raises(LockedError):
        refuse_while_held(root, clock=clock)
    assert (root / "lock.json").stat().st_mtime_ns == before
    assert names(root) == ["archive.json", "lock.json"]


def test_acquire_stale(root: UPath, make_lease: Any, clock: Clock, said: list[str]) -> None:
    """A lease that ran out is taken over, and the log says from whom."""
    make_lease("scheduled__1").acquire()
    clock.move(60)
    refuse_while_held(root, clock=clock)
    taker = make_lease("scheduled__2")

    taker.acquire()

    assert lock(root)["token"] == taker.token
    assert lock(root)["acquired_at"] == "2026-01-01T12:01:00.000+00:00"
    assert len(said) == 1
    assert f"process {os.getpid()} (run scheduled__1), which expired" in said[0]
    assert names(root) == ["archive.json", "lock.json"]


@pytest.mark.parametrize("stale", [False, True])
def test_acquire_many_at_once(root: UPath, make_lease: Any, clock: Clock, stale: bool) -> None:
    """Of many takers at the same moment exactly one gets the lease, new or run out."""
    for number in range(30):
        (root / "lock.json").unlink(missing_ok=True)
        if stale:
            make_lease("dead").acquire()
            clock.move(61)
        takers = [make_lease(f"{number}-{n}") for n in range(8)]

        won, refused = take_at_once(takers)

        assert won == [lock(root)["token"]]
        assert len(refused) == len(takers) - 1
        assert names(root) == ["archive.json", "lock.json"]


UNREADABLE = [
    b"",
    b'{"holder": "a',
    b"[]",
    b"\xff",
    b'{"holder": "a"}',
    # No offset from UTC: another time on each machine.
    b'{"holder": "a", "run": "r", "acquired_at": "2026-01-01T12:00:00", '
    b'"expires_at": "2026-01-01T12:00:00", "token": "t"}',
]


@pytest.mark.parametrize("content", UNREADABLE)
def test_acquire_unreadable(
    root: UPath, make_lease: Any, clock: Clock, said: list[str], content: bytes
) -> None:
    """A lock.json that is no lease is refused until it is as old as a lease can get."""
    path = root / "lock.json"
    path.write_bytes(content)
    os.utime(str(path), (NOON.timestamp(), NOON.timestamp()))
    clock.move(59)

    with pytest.raises(
        ArchiveError, match=r"lock\.json holds b.* remove it if no drain is running, or"
    ):
        make_lease().acquire()
    assert path.read_bytes() == content

    clock.move(1)
    taker = make_lease()
    taker.acquire()

    assert lock(root)["token"] == taker.token
    assert "lock.json can't be read" in said[0]


def test_acquire_folder_in_its_place(root: UPath, make_lease: Any) -> None:
    """A lock.json that is a folder is an error that names it."""
    (root / "lock.json").mkdir()

    with pytest.raises(ArchiveError, match=r"lock\.json can't be read"):
        make_lease().acquire()


def test_acquire_leads_nowhere(root: UPath, make_lease: Any) -> None:
    """A lock.json that is neither there nor free ends in an error, not in a loop."""
    os.symlink("nowhere", str(root / "lock.json"))

    with pytest.raises(ArchiveError, match="neither be created nor read; remove it"):
        make_lease().acquire()


# --- renewing and losing --------------------------------------------------------------------


def test_renew(root: UPath, make_lease: Any, clock: Clock) -> None:
    """A renewal moves the end and nothing else."""
    lease = make_lease()
    lease.acquire()
    before = lock(root)
    clock.move(20)

    lease.renew()

    assert lock(root) == before | {"expires_at": "2026-01-01T12:01:20.000+00:00"}
    assert not lease.lost.is_set()


def test_renew_takes_time(
    root: UPath, make_lease: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder counts its lease as ended when lock.json does, even if the renewal took long."""
    lease = make_lease()
    lease.acquire()
    write = type(lease._store).replace

    def slowly(*given: Any) -> Any:
        clock.move(10)
        return write(*given)

    monkeypatch.setattr(type(lease._store), "replace", slowly)

    lease.renew()

    assert lock(root)["expires_at"] == "2026-01-01T12:01:00.000+00:00"
    clock.move(49)
    lease.confirm()
    clock.move(1)
    with pytest.raises(LockedError, match="expired while this process was suspended"):
        lease.confirm()


def test_hold_lease_renews(root: UPath, clock: Clock) -> None:
    """A thread renews while the body runs."""
    with hold_lease(root, run="r", seconds=0.03, clock=clock):
        before = lock(root)["expires_at"]
        clock.now += timedelta(milliseconds=20)
        wait_for(lambda: lock(root)["expires_at"] > before, "a renewal", patience=PATIENCE)


@pytest.mark.parametrize(
    ("happened", "says"),
    [
        ("taken", "(run second). Another drain"),
        ("removed", "is missing"),
        ("garbled", "can't be read"),
    ],
)
def test_renew_no_longer_ours(
    root: UPath, make_lease: Any, clock: Clock, said: list[str], happened: str, says: str
) -> None:
    """A holder whose lease was taken is told once, and leaves what is there alone."""
    lease = make_lease()
    lease.acquire()
    (root / "lock.json").unlink()
    if happened == "taken":
        make_lease("second").acquire()
    elif happened == "garbled":
        (root / "lock.json").write_text("{")
    before = (root / "lock.json").read_bytes() if happened != "removed" else None

    lease.renew()
    lease.release()

    assert lease.lost.is_set()
    assert len(said) == 1
    assert "THE LEASE IS LOST" in said[0]
    assert says in said[0]
    assert ((root / "lock.json").read_bytes() if before is not None else None) == before


def test_renew_too_late(root: UPath, make_lease: Any, clock: Clock, said: list[str]) -> None:
    """A lease that ran out isn't renewed: another may count on its end."""
    lease = make_lease()
    lease.acquire()
    before = lock(root)
    clock.move(60)

    lease.renew()

    assert lease.lost.is_set()
    assert "expired at 2026-01-01T12:01:00.000+00:00 before it was renewed" in said[0]
    assert lock(root) == before
    lease.release()
    assert names(root) == ["archive.json"]


def test_renew_not_writable(
    root: UPath, make_lease: Any, clock: Clock, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that can't be written is said each time, and costs the lease when it runs out."""
    lease = make_lease()
    lease.acquire()

    def fail(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        clock.move(40)
        lease.renew()
        assert not lease.lost.is_set()
        clock.move(19.999)
        lease.renew()
        assert not lease.lost.is_set()
    clock.move(0.001)
    lease.renew()

    assert lease.lost.is_set()
    assert ["No space left on device" in line for line in said] == [True, True, False]
    assert "THE LEASE IS LOST" in said[-1]


def test_keep_store_hangs(root: UPath, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is lost when it expires, though a request hangs; a late answer changes nothing."""
    lease = Lease(root, run="r", seconds=0.3)
    lease.acquire()
    before = lock(root)
    answers = threading.Event()

    def hang(root: UPath) -> Any:
        answers.wait(2 * PATIENCE)
        return find_lease(root)

    monkeypatch.setattr(lease_module, "find_lease", hang)
    keeper = threading.Thread(target=lease.keep, args=(threading.Event(),))
    keeper.start()

    assert lease.lost.wait(PATIENCE)
    [renewal] = [thread for thread in threading.enumerate() if thread.name == "renewal"]
    answers.set()
    renewal.join(PATIENCE)
    keeper.join(PATIENCE)

    assert (lock(root), lease.lost.is_set()) == (before, True)
    assert ["THE LEASE IS LOST" in line for line in said] == [True]
    with pytest.raises(LockedError):
        lease.confirm()


@pytest.mark.parametrize(("ago", "waits"), [(0, 20), (40, 20), (55, 5), (61, -1)])
def test_keep_waits(make_lease: Any, clock: Clock, ago: float, waits: float) -> None:
    """The next renewal is a third of a lease away, and never later than the lease's end."""
    lease = make_lease()
    lease.acquire()
    clock.move(ago)
    waited: list[float] = []

    class Ended:
        def wait(self, seconds: float) -> bool:
            waited.append(seconds)
            return True

    lease.keep(Ended())

    assert waited == [waits]


def test_release_of_another(root: UPath, make_lease: Any, clock: Clock, said: list[str]) -> None:
    """A holder that was too late leaves the lease of the next one alone, and is told."""
    late, following = make_lease("late"), make_lease("following")
    late.acquire()
    clock.move(61)
    following.acquire()

    late.release()

    assert lock(root)["token"] == following.token
    assert late.lost.is_set()
    assert "(run following). Another drain" in said[-1]


def test_confirm(root: UPath, make_lease: Any, clock: Clock) -> None:
    """A lease that has expired, or that was lost, allows nothing more, whoever has it now."""
    lease = make_lease()
    lease.acquire()
    clock.move(59)
    lease.confirm()
    lease.renew()
    clock.move(59)
    lease.confirm()

    clock.move(1)
    with pytest.raises(LockedError, match="expired while this process was suspended"):
        lease.confirm()

    clock.move(-30)
    lease.confirm()
    lease.lost.set()
    with pytest.raises(LockedError):
        lease.confirm()


def test_hold_lease_lost(root: UPath, said: list[str]) -> None:
    """The body of a lost lease goes on to its end, and nothing is raised."""
    with hold_lease(root, run="r", seconds=0.03) as lease:
        (root / "lock.json").unlink()
        assert lease.lost.wait(PATIENCE)

    assert ["THE LEASE IS LOST" in line for line in said] == [True]


# --- drains ---------------------------------------------------------------------------------


def test_wait_for_lease_says_for_whom(
    monkeypatch: pytest.MonkeyPatch, root: UPath, said: list[str]
) -> None:
    """A wait that isn't short names the holder, once, and how long it lasts at most."""
    monkeypatch.setattr(lease_module, "SHORT_SECONDS", 0.2)

    with (
        hold_lease(root, run="nightly"),
        pytest.raises(LockedError, match="nightly"),
        wait_for_lease(root, run="erase", wait_seconds=1.0),
    ):
        pass

    [waiting] = said
    assert re.match(r"waiting, for [01] s at most: .* is being drained by .*nightly", waiting)


def test_wait_for_lease_short(root: UPath, said: list[str]) -> None:
    """Nothing is said of a wait that is over within seconds."""
    holding, released = threading.Event(), threading.Event()

    def hold() -> None:
        with hold_lease(root, run="nightly"):
            holding.set()
            released.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(30)
    threading.Timer(0.3, released.set).start()
    with wait_for_lease(root, run="erase", wait_seconds=30):
        assert lock(root)["run"] == "erase"
    thread.join()

    assert said == []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster to prepare drains with, on a machine that needs no Java for it."""
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    return ClusterInPython({TopicPartition("a", 0): Log(end=30)})


class ClusterInPython(FakeCluster):
    """A fake cluster that a job spec can be made for.

    Attributes:
        answers: How many preflights still find the topic.
    """

    config = KafkaConfig({"bootstrap.servers": "broker:9092"})
    answers = 9

    def topics(self, names: Any, needed: Any = ()) -> Any:
        self.answers -= 1
        return super().topics(names if self.answers >= 0 else ["gone"], needed)


def pipeline_to(folder: Path) -> Pipeline:
    return Pipeline(name="p", topics=["a"], archive=str(folder))


def test_open_drain_first(cluster: Any, tmp_path: Path) -> None:
    """The first drain makes the archive under the lease, and leaves no lease behind."""
    folder = tmp_path / "new" / "archive"

    with open_drain(pipeline_to(folder), cluster, tmp_path, run="r"):
        inside = names(UPath(folder))

    assert inside == ["archive.json", "generations", "lock.json", "topics.json"]
    assert names(UPath(folder)) == ["archive.json", "generations", "topics.json"]


@pytest.mark.parametrize("answers", [0, 1])
def test_open_drain_refused(cluster: Any, tmp_path: Path, answers: int) -> None:
    """A drain that is refused, before the lease or under it, leaves no folder behind."""
    cluster.answers = answers
    folder = tmp_path / "new" / "archive"

    with (
        pytest.raises(TopicError),
        open_drain(pipeline_to(folder), cluster, tmp_path, run="r"),
    ):
        pytest.fail("wasn't refused")

    assert cluster.answers == -1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("seconds", "kind", "says"),
    [(59, LockedError, "is being drained by"), (60, ArchiveError, "has no generation.json")],
)
def test_open_drain_looks_damaged(
    cluster: Any, make_lease: Any, clock: Clock, tmp_path: Path, seconds: int, kind: Any, says: str
) -> None:
    """What looks like damage while another drain writes is none; without one it is."""
    folder = tmp_path / "new"
    pipeline = pipeline_to(folder)
    with open_drain(pipeline, cluster, tmp_path, run="r"):
        pass
    (folder / "generations" / "0001" / "generation.json").unlink()
    (folder / "generations" / "0001" / "data").mkdir(exist_ok=True)
    make_lease(root=UPath(folder)).acquire()
    clock.move(seconds)

    with (
        pytest.raises(kind, match=says),
        open_drain(pipeline, cluster, tmp_path, run="r", clock=clock),
    ):
        pytest.fail("wasn't refused")


def test_open_drain_to_file(cluster: Any, tmp_path: Path) -> None:
    """A file in the archive's place is refused as one, though there can be no lease in it."""
    (tmp_path / "file").touch()

    with (
        pytest.raises(ArchiveError, match="is a file, not a folder"),
        open_drain(pipeline_to(tmp_path / "file"), cluster, tmp_path, run="r"),
    ):
        pytest.fail("wasn't refused")


def test_preflight_of_folder_with_lease(cluster: Any, tmp_path: Path) -> None:
    """A new folder with only a lease, or half a document, in it is as good as an empty one."""
    (tmp_path / "lock.json").touch()
    (tmp_path / f".lock.json.{uuid.uuid4().hex}.tmp").touch()
    (tmp_path / f".archive.json.{uuid.uuid4().hex}.tmp").touch()

    assert preflight(pipeline_to(tmp_path), cluster).offsets == 30

    (tmp_path / "lock.json.txt").touch()
    with pytest.raises(ArchiveError, match="isn't empty and isn't an archive"):
        preflight(pipeline_to(tmp_path), cluster)


# --- object stores and odd file systems -----------------------------------------------------


def test_lease_in_object_store(make_lease: Any, clock: Clock, said: list[str]) -> None:
    """In a store without links the lease is taken, refused, taken over, renewed and released."""
    root = UPath("memory://lease/archive")
    first, second = make_lease("first", root), make_lease("second", root)
    first.acquire()
    with pytest.raises(LockedError, match="run first"):
        second.acquire()
    clock.move(60)

    second.acquire()
    first.renew()
    second.renew()

    assert first.lost.is_set()
    assert not second.lost.is_set()
    first.release()
    assert lock(root)["run"] == "second"
    second.release()
    assert not (root / "lock.json").exists()


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EBUSY, StoreUnavailableError), (errno.EINVAL, ArchiveError)]
)
def test_find_lease_store_busy(
    number: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that asks for less haste is unavailable: the run is repeated, not given up."""

    def refuse(_: UPath) -> None:
        raise OSError(number, "SlowDown")

    monkeypatch.setattr(lease_store, "version_of", refuse)

    with pytest.raises(kind, match=r"lock\.json.*SlowDown"):
        find_lease(UPath("memory://lease/busy"))


def test_create_document_below_file(tmp_path: Path) -> None:
    """A folder that can't be made is an error, not a document that is there already."""
    (tmp_path / "file").touch()

    with pytest.raises(ArchiveError, match=r"a\.json can't be written"):
        create_document(UPath(tmp_path / "file" / "a.json"), {})


# --- from the future ------------------------------------------------------------------------

YEARS = 1_200 * 86_400


@pytest.fixture
def from_future(root: UPath, make_lease: Any, clock: Clock) -> dict[str, Any]:
    """A lease that was left by a drain whose clock was years ahead."""
    clock.move(YEARS)
    make_lease("scheduled__1").acquire()
    clock.move(-YEARS)
    return lock(root)


@pytest.fixture
def watcher(root: UPath, clock: Clock, said: list[str]) -> Any:
    """A lease's taker that calls a function in place of each wait."""

    def make(wait: Any) -> Lease:
        return Lease(root, run="second", seconds=60, clock=clock, wait=wait)

    return make


def test_acquire_from_future_not_renewed(
    root: UPath, from_future: dict[str, Any], watcher: Any, said: list[str], clock: Clock
) -> None:
    """A lease of a clock that was wrong is watched for its length, then taken over; both said."""
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.move(seconds)

    taker = watcher(wait)

    taker.acquire()

    assert sum(waited) == pytest.approx(60)
    assert lock(root)["token"] == taker.token
    # It lasts from when it was taken, not from when the watch began.
    assert lock(root)["expires_at"] == "2026-01-01T12:02:00.000+00:00"
    assert "lasts until 2029-04-15T12:01:00.000+00:00" in said[0]
    assert "this machine's clock says 2026-01-01T12:00:00.000+00:00" in said[0]
    assert "wrong by 1,200 days 0 h or more" in said[0]
    assert "run scheduled__1), which is from the future and wasn't renewed" in said[1]


def test_acquire_from_future_renewed(
    root: UPath, from_future: dict[str, Any], watcher: Any, clock: Clock
) -> None:
    """A lease from the future that is renewed is held, whichever clock is wrong."""
    renewed = from_future | {"expires_at": "2029-04-15T12:01:20.000+00:00"}

    def renew(_: float) -> None:
        (root / "lock.json").write_text(json.dumps(renewed))

    with pytest.raises(LockedError, match=r"renewed while it was watched, and .* wrong by 1,200"):
        watcher(renew).acquire()

    assert lock(root) == renewed


@pytest.mark.parametrize("second", ["right", "future"])
def test_acquire_from_future_taken_by_another(
    root: UPath, from_future: dict[str, Any], watcher: Any, second: str
) -> None:
    """What another has taken while it was watched is the other's, whatever its clock."""
    other = from_future | {"token": "other", "run": "other"}
    if second == "right":
        other["expires_at"] = "2026-01-01T12:00:30.000+00:00"

    with pytest.raises(LockedError, match=r"run other"):
        watcher(lambda _: (root / "lock.json").write_text(json.dumps(other))).acquire()

    assert lock(root) == other


def test_acquire_from_future_released(
    root: UPath, from_future: dict[str, Any], watcher: Any
) -> None:
    """One that is released while it is watched is free at once."""
    taker = watcher(lambda _: (root / "lock.json").unlink())
    taker.acquire()

    assert lock(root)["token"] == taker.token


@pytest.mark.parametrize("content", UNREADABLE)
def test_acquire_unreadable_from_future(
    root: UPath, watcher: Any, content: bytes, said: list[str]
) -> None:
    """A lock.json that is no lease and has a date in the future blocks no longer either."""
    path = root / "lock.json"
    path.write_bytes(content)
    os.utime(str(path), (NOON.timestamp() + YEARS, NOON.timestamp() + YEARS))
    taker = watcher(lambda _: None)

    taker.acquire()

    assert lock(root)["token"] == taker.token
    assert "can't be read" in said[0]


def test_acquire_own(root: UPath, make_lease: Any) -> None:
    """A store's answer that was lost is no reason to be locked out by oneself."""
    lease = make_lease()
    lease.acquire()
    lease.acquire()

    assert lock(root)["token"] == lease.token


@pytest.mark.parametrize(
    ("token", "ago", "taken"),
    [
        ("same", 0, True),
        ("same", 59, True),
        # Its other holder was killed before this one began.
        ("same", 61, True),
        ("other", 59, False),
        ("other", 61, True),
    ],
)
def test_acquire_shared(
    root: UPath, clock: Clock, said: list[str], token: str, ago: float, taken: bool
) -> None:
    """Who shares a lease gets it for its full duration; another's only when that has run out."""
    Lease(root, run="r", clock=clock, token=token).acquire()
    clock.move(ago)
    shared = Lease(root, run="r", clock=clock, token="same")

    if not taken:
        with pytest.raises(LockedError):
            shared.acquire()
        return
    shared.acquire()
    clock.move(59)
    shared.renew()

    assert lock(root)["token"] == "same"
    assert not shared.lost.is_set()


def test_hold_lease_left(root: UPath, said: list[str]) -> None:
    """A lease that is left to a driver stays, and is the driver's to renew."""
    with hold_lease(root, run="r") as lease:
        driver = Lease(root, run="r", token=lease.token)
        driver.acquire()
        lease.left.set()

    driver.renew()

    assert lock(root)["token"] == lease.token
    assert (said, driver.lost.is_set()) == ([], False)


def test_refuse_while_held_from_future(
    root: UPath, from_future: dict[str, Any], clock: Clock
) -> None:
    """A lease from the future doesn't hide for years what else is wrong."""
    refuse_while_held(root, clock=clock)


# --- unlock ---------------------------------------------------------------------------------


def test_unlock_shows_all(root: UPath, make_lease: Any, clock: Clock, tmp_path: Path) -> None:
    """Each lease of an archive is listed with holder, times, and how far the clocks differ."""
    make_lease("drain").acquire()
    clock.move(YEARS)
    make_lease("maintain", root=root / "maintenance").acquire()
    clock.move(30 - YEARS)
    make_lease("window", root=root / "windows").acquire()
    clock.move(60)
    before = {path: path.read_bytes() for path in tmp_path.rglob("lock.json")}

    drain, maintain, window = (held.to_dict() for held in list_leases(root, clock))

    assert (drain["run"], drain["seconds_left"]) == ("drain", -30)
    assert drain["state"].startswith("expired")
    assert (maintain["run"], maintain["state"].partition(";")[0]) == ("maintain", "from the future")
    assert maintain["clock_ahead_seconds"] == YEARS - 90
    assert maintain["lease"] == str(root / "maintenance" / "lock.json")
    assert window["state"].startswith("expired")
    assert (window["acquired_at"], window["now"]) == (
        "2026-01-01T12:00:30.000+00:00",
        "2026-01-01T12:01:30.000+00:00",
    )
    assert {path: path.read_bytes() for path in tmp_path.rglob("lock.json")} == before


@pytest.mark.parametrize("moved", [60, -YEARS])
def test_unlock_removes(
    root: UPath, make_lease: Any, clock: Clock, said: list[str], moved: float
) -> None:
    """A lease that ran out or is from the future is removed after a minute without renewal."""
    make_lease().acquire()
    clock.move(moved)
    waited: list[float] = []
    (held,) = list_leases(root, clock)

    remove_lease(held, clock=clock, wait=waited.append)

    assert sum(waited) == pytest.approx(60)
    assert names(root) == ["archive.json"]


@pytest.mark.parametrize("moved", [0, 59, 60, YEARS, -YEARS])
def test_unlock_holder_alive(
    root: UPath, make_lease: Any, clock: Clock, said: list[str], moved: float
) -> None:
    """Whichever clock is wrong, the lease of a holder that renews it stays."""
    make_lease().acquire()
    renewed = lock(root) | {"expires_at": "2026-01-01T12:01:20.000+00:00"}
    clock.move(moved)
    (held,) = list_leases(root, clock)

    def renew(_: float) -> None:
        (root / "lock.json").write_text(json.dumps(renewed))

    with pytest.raises(LockedError):
        remove_lease(held, clock=clock, wait=renew)

    assert lock(root)["run"] == "first"


@pytest.mark.parametrize(
    ("moved", "held"), [(0.0, True), (59.9, True), (60.0, False), (-61.0, False), (-59.0, True)]
)
def test_is_held(root: UPath, make_lease: Any, clock: Clock, moved: float, held: bool) -> None:
    """A lease is held until it expires; one from the future may be of a clock that was wrong."""
    assert not is_held(root, clock=clock)
    make_lease("nightly").acquire()
    clock.move(moved)

    assert is_held(root, clock=clock) is held
    if held:
        with pytest.raises(LockedError, match=r"\(run nightly\)"):
            refuse_while_held(root, clock=clock)
    else:
        refuse_while_held(root, clock=clock)


@pytest.mark.parametrize("content", UNREADABLE)
def test_is_held_unreadable(root: UPath, content: bytes) -> None:
    """What is no lease holds nothing."""
    (root / "lock.json").write_bytes(content)

    assert not is_held(root)
    refuse_while_held(root)


def test_is_held_not_read(root: UPath) -> None:
    """A lock.json that can't be read keeps nobody from reading the archive."""
    (root / "lock.json").mkdir()

    assert not is_held(root)
    refuse_while_held(root)


def test_renew_written_by_sharer(
    root: UPath, make_lease: Any, clock: Clock, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal that who shares the lease was faster with is this holder's, too."""
    lease = make_lease()
    lease.acquire()
    renewed = lock(root) | {"expires_at": "2026-01-01T12:02:00.000+00:00"}

    def faster(*_: Any) -> bool:
        (root / "lock.json").write_text(json.dumps(renewed))
        return False

    monkeypatch.setattr(type(lease._store), "replace", faster)
    clock.move(50)
    lease.renew()
    clock.move(60)

    lease.confirm()
    assert (said, lease.lost.is_set()) == ([], False)
    clock.move(10)
    with pytest.raises(LockedError, match="expired while this process was suspended"):
        lease.confirm()


def test_hold_lease_answered_late(
    root: UPath, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that has run out when the store answers isn't held."""
    create = OneFile.create

    def slow(self: OneFile, document: Any) -> bool:
        made = create(self, document)
        clock.move(61)
        return made

    monkeypatch.setattr(OneFile, "create", slow)
    with pytest.raises(LockedError, match="expired"), hold_lease(root, run="x", clock=clock):
        pytest.fail("held")
