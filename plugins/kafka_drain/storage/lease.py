"""The lease of an archive's one writer, `<archive>/lock.json`.

A drain holds it from its first write to its last, and renews it while it lives. After a kill it
runs out by itself, and the next drain takes it over.

Locally `lock.json` is made as a hard link, which one of many gets, and changed only under the
kernel's lock on that very file, which ends with the process: no crash leaves anything but a lease
that runs out. S3 makes it only where there is none, and replaces it only while it is what was read.
On another object store, of two drains that take over one lease in the same moment, the one that was
overwritten finds out at its next renewal. The machines' clocks have to agree to within a part of
the lease; one that seems to last longer than any could is watched, and taken over when it isn't
renewed (lease_takeover.py).

A process that was stopped for longer than its lease can't be kept from writing when it goes on.
Then Spark's checkpoint and manifest let only one of the two commit a batch.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from upath import UPath

from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.progress import duration_text
from kafka_drain.storage.json_files import create_document, replace_document, version_of
from kafka_drain.storage.lease_takeover import Takeover, clock_ahead, may_take_over
from kafka_drain.storage.paths import is_local, read_bytes, require_reachable

__all__ = [
    "Clock",
    "FoundLease",
    "Lease",
    "find_lease",
    "hold_lease",
    "is_held",
    "is_renewed_since",
    "refuse_while_held",
    "utc_now",
    "wait_for_lease",
]

Clock = Callable[[], datetime]

NAME = "lock.json"
SECONDS = 60.0
# How long to wait for a lease that others hold for moments; one that was killed runs out.
WAIT_SECONDS = 180.0
# How often a lease can be released and taken while one drain tries to get it.
TRIES = 100
# How often a lease is looked at while it is watched.
LOOKS = 30


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(timezone.utc)


def is_renewed_since(
    root: UPath, found: FoundLease, lasts: timedelta, wait: Callable[[float], object]
) -> bool:
    """Watch a lease for its whole length, or until it is changed; tell whether it was."""
    for _ in range(LOOKS):
        wait(lasts.total_seconds() / LOOKS)
        if find_lease(root) != found:
            return True
    return False


def refuse_while_held(root: UPath, *, clock: Clock = utc_now) -> None:
    """Refuse to go on while a drain holds the lease.

    What can't be read isn't held, nor is a lease from the future: whether its holder lives would
    have to be watched.

    Raises:
        LockedError: Says who holds it.
    """
    found, now = _find_held(root, clock), clock()
    if found is not None:
        raise _locked(root, found, now, timedelta(seconds=SECONDS))


def is_held(root: UPath, *, clock: Clock = utc_now) -> bool:
    """Say whether a drain holds the lease, as `refuse_while_held` does."""
    return _find_held(root, clock) is not None


def _find_held(root: UPath, clock: Clock) -> FoundLease | None:
    try:
        found = find_lease(root)
    except ArchiveError:
        return None
    if found is None or found.expires_at is None:
        return None
    held = found.takeover(clock(), timedelta(seconds=SECONDS)) is Takeover.HELD
    return found if held else None


@contextmanager
def hold_lease(
    root: UPath,
    *,
    run: str,
    say: Callable[[str], None],
    seconds: float = SECONDS,
    clock: Clock = utc_now,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Lease]:
    """Take the lease, renew it from a thread while the body runs, and release it.

    The body isn't ended when the lease is lost: `say` gets a line, and `lost` is set.

    Args:
        root: The archive's folder; made where there is none, and removed again if it stays empty.
        run: Who holds it, for people: Airflow's run id, or `terminal`.
        say: Takes lines about a lease that was taken over or lost.
        seconds: How long it lasts without renewal; it is renewed every third of that.
        clock: The time; replaced in tests.
        wait: Waits for so many seconds, between looks at a lease from the future.

    Raises:
        LockedError: When another holds it.
        ArchiveError: When the folder can't be written, or the lock in it can't be read.
        StoreUnavailableError: When the archive's object store doesn't answer.
    """
    require_reachable(root)
    made = [folder for folder in (root, *root.parents) if is_local(root) and not folder.exists()]
    lease = Lease(root, run=run, say=say, seconds=seconds, clock=clock, wait=wait)
    try:
        lease.acquire()
        ended = threading.Event()
        thread = threading.Thread(target=lease.keep, args=(ended,), name="lease", daemon=True)
        thread.start()
        try:
            yield lease
        finally:
            ended.set()
            thread.join()
            lease.release()
    finally:
        # Innermost first; the first one that isn't empty ends it.
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


@contextmanager
def wait_for_lease(
    root: UPath,
    *,
    run: str,
    say: Callable[[str], None],
    wait_seconds: float = WAIT_SECONDS,
) -> Iterator[Lease]:
    """Take a lease that others hold for moments only; as `hold_lease`, but wait for it.

    Raises:
        LockedError: When another still holds it after `wait_seconds`.
    """
    deadline = time.monotonic() + wait_seconds
    with ExitStack() as stack:
        while True:
            try:
                lease = stack.enter_context(hold_lease(root, run=run, say=say))
                break
            except LockedError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.2)
        yield lease


class Lease:
    """One holder's view of a lease.

    Attributes:
        path: Where it is.
        token: Tells this holder's lease from every other.
        lost: Set when it is no longer this holder's.
    """

    def __init__(
        self,
        root: UPath,
        *,
        run: str,
        say: Callable[[str], None],
        seconds: float = SECONDS,
        clock: Clock = utc_now,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.path = root / NAME
        self.token = uuid.uuid4().hex
        self.lost = threading.Event()
        self._root = root
        self._run = run
        self._say = say
        self._lasts = timedelta(seconds=seconds)
        self._clock = clock
        self._wait = wait
        self._acquired_at = self._expires_at = clock()

    def acquire(self) -> None:
        """Take the lease, or take over one that ran out.

        One from the future is watched for its whole length, and taken over when it isn't renewed.

        Raises:
            LockedError: When another holds it.
            ArchiveError: When the folder can't be written, or the lock in it can't be read.
        """
        watched: FoundLease | None = None
        for _ in range(TRIES):
            self._acquired_at = now = self._clock()
            self._expires_at = now + self._lasts
            if create_document(self.path, self._document(self._expires_at)):
                return
            found = find_lease(self._root)
            if found is None:
                # Released in this moment.
                continue
            is_renewed = None if watched is None else found != watched
            takeover = found.takeover(now, self._lasts, token=self.token, is_renewed=is_renewed)
            if takeover is Takeover.OWN:
                # The store had written it before its answer was lost.
                self._expires_at = found.expires_at or now
                return
            if takeover is Takeover.WATCH:
                self._say(
                    f"{self._root}: {found.in_future(now, self._lasts)}. The lease is watched for "
                    f"{duration_text(self._lasts.total_seconds())}: a holder that lives renews it"
                )
                is_renewed_since(self._root, found, self._lasts, self._wait)
                watched = found
                continue
            if takeover is Takeover.HELD:
                raise self._refusal(found, now)
            if self._replace(found):
                self._say(f"{self._root}: took over the lease of {found}, which {_why(takeover)}")
                return
        raise ArchiveError(f"{self.path} can neither be made nor read; remove it")

    def _replace(self, found: FoundLease) -> bool:
        """Put this lease in the place of one that still is what was read."""
        with _alone(self.path) as alone:
            return (
                alone
                and find_lease(self._root) == found
                and replace_document(self.path, self._document(self._expires_at), found.version)
            )

    def _refusal(self, found: FoundLease, now: datetime) -> LockedError | ArchiveError:
        if found.expires_at is not None:
            return _locked(self._root, found, now, self._lasts)
        return ArchiveError(
            f"{self.path} holds {found.content[:40]!r}, expected the lease of a drain; remove "
            f"it if no drain runs, or try again after {_iso(found.written_at + self._lasts)}"
        )

    def keep(self, ended: threading.Event) -> None:
        """Renew until the end, or until the lease is lost."""
        while not self.lost.is_set() and not ended.wait(self._lasts.total_seconds() / 3):
            self.renew()

    def renew(self) -> None:
        """Let the lease last its full time from now; says so when it is lost."""
        try:
            with _alone(self.path):
                now, found = self._clock(), find_lease(self._root)
                # One that ran out isn't renewed: another may already count on that.
                if found is None or found.token != self.token or now >= self._expires_at:
                    self._lose(found)
                    return
                document = self._document(now + self._lasts)
                if replace_document(self.path, document, found.version):
                    self._expires_at = now + self._lasts
                else:
                    self._lose(find_lease(self._root))
        except Exception as error:
            # Each store has errors of its own, and none may end the thread that renews.
            self._say(f"{self._root}: the lease couldn't be renewed: {error}")
            if self._clock() >= self._expires_at:
                self._lose(None)

    def release(self) -> None:
        """Remove the lease if it still is this holder's."""
        try:
            with _alone(self.path):
                found = find_lease(self._root)
                if found is not None and found.token == self.token:
                    self.path.unlink()
                elif not self.lost.is_set():
                    self._lose(found)
        except Exception as error:
            self._say(f"{self.path} couldn't be removed ({error}); it runs out by itself")

    def _document(self, expires_at: datetime) -> dict[str, Any]:
        return {
            "holder": _holder(),
            "run": self._run,
            "acquired_at": _iso(self._acquired_at),
            "expires_at": _iso(expires_at),
            "token": self.token,
        }

    def _lose(self, found: FoundLease | None) -> None:
        self.lost.set()
        if found is None:
            seen = "lock.json is gone or out of reach"
        elif found.token == self.token:
            seen = f"it ran out at {_iso(self._expires_at)} before it was renewed"
        else:
            seen = f"it is {found}'s now"
        self._say(
            f"{self._root}: THE LEASE IS LOST: {seen}. Another drain may write at the same time; "
            "Spark lets one of them commit a batch and fails the other, so start no third one, "
            "and validate when both have ended"
        )


@dataclass(frozen=True, slots=True)
class FoundLease:
    """A `lock.json` as it was read; the fields are None when it holds no lease."""

    content: bytes
    written_at: datetime
    holder: str | None = None
    run: str | None = None
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    token: str | None = None
    version: str | None = None

    def __str__(self) -> str:
        if self.expires_at is None:
            return f"a drain whose lock.json can't be read ({self.content[:40]!r})"
        return f"{self.holder} (run {self.run})"

    def ends_at(self, lasts: timedelta) -> datetime:
        """Return until when it lasts; of what is no lease, until when one could."""
        return self.expires_at or self.written_at + lasts

    def takeover(
        self,
        now: datetime,
        lasts: timedelta,
        *,
        token: str = "",
        is_renewed: bool | None = None,
    ) -> Takeover:
        """Decide whether it may be taken over, as `may_take_over` does."""
        return may_take_over(
            is_own=bool(token) and self.token == token,
            expires_at=self.ends_at(lasts),
            now=now,
            lasts=lasts,
            is_renewed=is_renewed,
        )

    def in_future(self, now: datetime, lasts: timedelta) -> str:
        """Return how far it is in the future, for people; empty where the clocks may agree."""
        ends_at = self.ends_at(lasts)
        ahead = clock_ahead(ends_at, now, lasts)
        if not ahead:
            return ""
        return (
            f"the lease of {self} lasts until {_iso(ends_at)}, but by this machine's clock it is "
            f"{_iso(now)}: one of the two clocks is wrong by "
            f"{duration_text(ahead.total_seconds())} or more"
        )


def find_lease(root: UPath) -> FoundLease | None:
    """Read the `lock.json` in a folder; None when there is none.

    Raises:
        ArchiveError: When it can't be read.
    """
    path = root / NAME
    try:
        # First: what was written after it is noticed, at the latest by the store.
        version = version_of(path)
        content = read_bytes(path)
        written_at = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArchiveError(f"{path} can't be read: {error.strerror or error}") from error
    try:
        document = json.loads(content)
        return FoundLease(
            content,
            written_at,
            holder=str(document["holder"]),
            run=str(document["run"]),
            acquired_at=_time(document["acquired_at"]),
            expires_at=_time(document["expires_at"]),
            token=str(document["token"]),
            version=version,
        )
    except (ValueError, TypeError, KeyError):
        return FoundLease(content, written_at, version=version)


def _time(text: str) -> datetime:
    # Without an offset it would be another time on each machine.
    if (time := datetime.fromisoformat(text)).tzinfo is None:
        raise ValueError(text)
    return time


def _iso(time: datetime | None) -> str:
    return time.isoformat(timespec="milliseconds") if time else "?"


def _why(takeover: Takeover) -> str:
    if takeover is Takeover.RAN_OUT:
        return "ran out"
    return "is from the future and wasn't renewed for as long as a lease lasts"


def _locked(root: UPath, found: FoundLease, now: datetime, lasts: timedelta) -> LockedError:
    in_future = found.in_future(now, lasts)
    return LockedError(
        f"{root} is being drained by {found} since {_iso(found.acquired_at)}, expected no other "
        f"drain; its lease lasts until {_iso(found.expires_at)} and is renewed while it runs. Try "
        "again when it has ended; if it was killed, when its lease has run out"
        + (f". It was renewed while it was watched, and {in_future}; set it" if in_future else "")
    )


def _holder() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user that has no name.
        user = f"user {os.getuid()}"
    return f"{user} on {socket.gethostname()}, process {os.getpid()}"


@contextmanager
def _alone(path: UPath) -> Iterator[bool]:
    """Keep others from changing a file; False when it was replaced or removed in this moment."""
    if not is_local(path):
        yield True
        return
    try:
        file = open(str(path), "r+b")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        yield False
        return
    except OSError as error:
        raise ArchiveError(f"{path} can't be opened: {error.strerror or error}") from error
    with file:
        # Some network file systems have no such lock; looking again has to do there.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield _is_at(path, file.fileno())


def _is_at(path: UPath, descriptor: int) -> bool:
    try:
        # Opened, not only asked for: NFS answers that from its cache.
        with open(str(path), "rb") as file:
            return os.path.samestat(os.fstat(descriptor), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
