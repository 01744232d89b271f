"""The single-writer lease of an archive, `<archive>/lock.json`; on HDFS, in `<archive>/.lock/`.

A drain holds the lease from its first write to its last, and renews it while it runs. After a kill
the lease expires by itself, and the next drain takes it over.

Where it is stored, and why only one of many processes gets it: lease_store.py. The machines' clocks
must agree to within a fraction of the lease. If a lease ends later than possible by this machine's
clock, the times alone don't decide: one of the two clocks is wrong, and it may be this one. What
counts then is whether the lease is renewed, which its holder does three times during its duration.
So it is watched, and taken over if it isn't renewed.

A lease is lost when it has expired, whether its store refuses a renewal or hangs.

A process that was suspended for longer than its lease can't be kept from writing when it resumes.
In that case, Spark's checkpoint and manifest let only one of the two commit a batch.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from upath import UPath

from kafka_drain.clock import Clock, utc_now
from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.login_name import login_name
from kafka_drain.outages import REPEAT_SECONDS
from kafka_drain.output import say
from kafka_drain.progress import duration_text
from kafka_drain.storage.lease_store import lease_store
from kafka_drain.storage.paths import is_local, require_reachable
from kafka_drain.storage.typed_json import Row, parse

SECONDS = 60.0
# How long to wait for a lease that is held only briefly; the lease of a killed holder expires.
WAIT_SECONDS = 180.0
# Of a wait that is over sooner, nothing is said.
SHORT_SECONDS = 4.0
# Maximum number of attempts, in case the lease is released and taken again in between.
TRIES = 100
# Number of times a lease is checked while it is watched.
LOOKS = 30


def is_renewed_since(
    root: UPath, found: FoundLease, lasts: timedelta, wait: Callable[[float], object]
) -> bool:
    """Watch a lease for its whole duration; return whether it changed, as soon as it does."""
    for _ in range(LOOKS):
        wait(lasts.total_seconds() / LOOKS)
        if find_lease(root) != found:
            return True
    return False


def refuse_while_held(root: UPath, *, clock: Clock = utc_now) -> None:
    """Raise an error while a drain holds the lease.

    An unreadable lease doesn't count as held, nor does one from the future: it would have to be
    watched to find out whether its holder is alive.

    Raises:
        LockedError: When a drain holds it; the message names the drain.
    """
    found, now = _find_held(root, clock), clock()
    if found is not None:
        raise _locked(root, found, now, timedelta(seconds=SECONDS))


def is_held(root: UPath, *, clock: Clock = utc_now) -> bool:
    """Return whether a drain holds the lease, by the rules of `refuse_while_held`."""
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
    seconds: float = SECONDS,
    clock: Clock = utc_now,
    wait: Callable[[float], object] = time.sleep,
    token: str | None = None,
) -> Iterator[Lease]:
    """Take the lease, renew it from a thread while the body runs, and release it.

    The body isn't stopped when the lease is lost: `say` receives a line, and `lost` is set.

    Args:
        root: The archive's folder; created if missing, and removed again if it stays empty.
        run: Name of the holder for display: Airflow's run id, or `terminal`.
        seconds: Duration of the lease without renewal; it is renewed every third of that.
        clock: Returns the time; replaced in tests.
        wait: Waits for a number of seconds, between checks of a lease from the future.
        token: That of a lease to share with its holder: a driver that this process follows.

    Raises:
        LockedError: When another drain holds it.
        ArchiveError: When the folder can't be written, or its lock.json can't be read.
        StoreUnavailableError: When the archive's object store doesn't respond.
    """
    require_reachable(root)
    made = [folder for folder in (root, *root.parents) if is_local(root) and not folder.exists()]
    lease = Lease(root, run=run, seconds=seconds, clock=clock, wait=wait, token=token)
    try:
        lease.acquire()
        # Its store may have answered too late.
        lease.confirm()
        ended = threading.Event()
        thread = threading.Thread(target=lease.keep, args=(ended,), name="lease", daemon=True)
        thread.start()
        try:
            yield lease
        finally:
            ended.set()
            thread.join()
            if not lease.left.is_set():
                lease.release()
    finally:
        # Innermost first; stops at the first folder that isn't empty.
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


@contextmanager
def wait_for_lease(root: UPath, *, run: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[Lease]:
    """Take a lease as `hold_lease` does, but wait while another process briefly holds it.

    Says whom it waits for, and how long at most, if that isn't over soon.

    Raises:
        LockedError: When another process still holds it after `wait_seconds`.
    """
    began, said = time.monotonic(), -math.inf
    deadline = began + wait_seconds
    with ExitStack() as stack:
        while True:
            try:
                lease = stack.enter_context(hold_lease(root, run=run))
                break
            except LockedError as error:
                now = time.monotonic()
                if now >= deadline:
                    raise
                if now - began >= SHORT_SECONDS and now - said >= REPEAT_SECONDS:
                    said = now
                    say(f"waiting, for {duration_text(deadline - now)} at most: {error}")
            time.sleep(0.2)
        yield lease


class Lease:
    """One holder's view of the lease.

    Attributes:
        path: Path of the lock.json, or of the folder that holds the lease.
        token: Distinguishes this holder's lease from all others.
        lost: Set when this holder no longer has the lease.
        left: To be set to leave the lease, at the end, to a driver that shares it.
    """

    def __init__(
        self,
        root: UPath,
        *,
        run: str,
        seconds: float = SECONDS,
        clock: Clock = utc_now,
        wait: Callable[[float], object] = time.sleep,
        token: str | None = None,
    ) -> None:
        self._store = lease_store(root)
        self.path = self._store.path
        self.token = token or uuid.uuid4().hex
        self._is_shared = token is not None
        self.left = threading.Event()
        self.lost = threading.Event()
        self._root = root
        self._run = run
        self._lasts = timedelta(seconds=seconds)
        self._clock = clock
        self._wait = wait
        self._acquired_at = self._expires_at = clock()

    def acquire(self) -> None:
        """Take the lease, or take over one that has expired.

        A lease from the future is watched for its whole duration, and taken over if it isn't
        renewed.

        Raises:
            LockedError: When another drain holds it.
            ArchiveError: When the folder can't be written, or its lock.json can't be read.
        """
        watched: FoundLease | None = None
        for _ in range(TRIES):
            self._acquired_at = now = self._clock()
            self._expires_at = now + self._lasts
            if self._store.create(self._document(self._expires_at)):
                return
            found = find_lease(self._root)
            if found is None:
                # Released just now.
                continue
            is_renewed = None if watched is None else found != watched
            takeover = found.takeover(now, self._lasts, token=self.token, is_renewed=is_renewed)
            if takeover is Takeover.OWN and self._is_shared:
                # Its other holder may have died, or never have lived.
                if self._replace(found):
                    return
                continue
            if takeover is Takeover.OWN:
                # The store had written it, but its response was lost.
                self._expires_at = found.expires_at or now
                return
            if takeover is Takeover.WATCH:
                say(
                    f"{self._root}: {found.in_future(now, self._lasts)}. Watching the lease for "
                    f"{duration_text(self._lasts.total_seconds())}: a live holder would renew it"
                )
                is_renewed_since(self._root, found, self._lasts, self._wait)
                watched = found
                continue
            if takeover is Takeover.HELD:
                raise self._refusal(found, now)
            if self._replace(found):
                say(f"{self._root}: took over the lease of {found}, which {_why(takeover)}")
                return
        raise ArchiveError(f"{self.path} can neither be created nor read; remove it")

    def _replace(self, found: FoundLease) -> bool:
        """Replace a lease with this one if it is unchanged since it was read."""
        with self._store.alone() as alone:
            return (
                alone
                and find_lease(self._root) == found
                and self._store.replace(self._document(self._expires_at), found.version)
            )

    def _refusal(self, found: FoundLease, now: datetime) -> LockedError | ArchiveError:
        if found.expires_at is not None:
            return _locked(self._root, found, now, self._lasts)
        return ArchiveError(
            f"{self.path} holds {found.content[:40]!r}, expected the lease of a drain; remove "
            f"it if no drain is running, or try again after {_iso(found.written_at + self._lasts)}"
        )

    def keep(self, ended: threading.Event) -> None:
        """Renew the lease until `ended` is set or the lease is lost.

        It is lost when it has expired, even if a request to its store hangs.
        """
        while not self.lost.is_set() and not ended.wait(self._pause()):
            renewal = threading.Thread(target=self.renew, name="renewal", daemon=True)
            renewal.start()
            # In short steps: while a machine is suspended, its timeouts stand still. The first is
            # for a lease that has expired meanwhile: the renewal says whose it is.
            renewal.join(self._lasts.total_seconds() / LOOKS)
            while renewal.is_alive() and self._clock() < self._expires_at:
                renewal.join(self._lasts.total_seconds() / LOOKS)
            if renewal.is_alive():
                self._lose(None)

    def _pause(self) -> float:
        """Return the seconds until the next renewal: at its end, the lease is looked at anyway."""
        left = self._expires_at - self._clock()
        return min(self._lasts / 3, left).total_seconds()

    def renew(self) -> None:
        """Extend the lease to its full duration from now; report it if the lease is lost."""
        try:
            with self._store.alone():
                now, found = self._clock(), find_lease(self._root)
                if self.lost.is_set():
                    # It took too long, and whoever is told of a loss isn't told otherwise.
                    return
                # An expired lease isn't renewed: another process may already be taking it over.
                if found is None or found.token != self.token or now >= self._expires_at:
                    self._lose(found)
                    return
                document = self._document(now + self._lasts)
                if self._store.replace(document, found.version):
                    self._expires_at = now + self._lasts
                    return
                found = find_lease(self._root)
                if found is None or found.token != self.token:
                    self._lose(found)
                elif found.expires_at is not None:
                    # Renewed by who shares it.
                    self._expires_at = found.expires_at
        except Exception as error:
            # Each store has its own exceptions, and none may kill the renewing thread.
            say(f"{self._root}: the lease couldn't be renewed: {error}")
            if self._clock() >= self._expires_at:
                self._lose(None)

    def confirm(self) -> None:
        """Check, right before a step that is no fence of its own, that the lease still lasts.

        Raises:
            LockedError: When it may be another process's by now: this one was suspended.
        """
        if self.lost.is_set() or self._clock() >= self._expires_at:
            raise LockedError(f"{self.path} expired while this process was suspended: try again")

    def release(self) -> None:
        """Remove the lease if this holder still has it."""
        try:
            with self._store.alone():
                released = self._document(self._expires_at)
                released["released_at"] = _iso(self._clock())
                for _ in range(TRIES):
                    found = find_lease(self._root)
                    if found is None or found.token != self.token:
                        break
                    if self._store.remove(released, found.version):
                        return
                    # Renewed by who shares it, or taken over, just now.
                if not self.lost.is_set():
                    self._lose(found)
        except Exception as error:
            say(f"{self.path} couldn't be removed ({error}); the lease expires by itself")

    def _document(self, expires_at: datetime) -> dict[str, Any]:
        document = LeaseDocument(
            holder=_holder(),
            run=self._run,
            acquired_at=_iso(self._acquired_at),
            expires_at=_iso(expires_at),
            token=self.token,
        )
        return document.content()

    def _lose(self, found: FoundLease | None) -> None:
        if self.lost.is_set():
            return
        self.lost.set()
        if found is None:
            seen = f"{self.path.name} is missing or unreachable"
        elif found.token == self.token:
            seen = f"it expired at {_iso(self._expires_at)} before it was renewed"
        else:
            seen = f"it now belongs to {found}"
        say(
            f"{self._root}: THE LEASE IS LOST: {seen}. Another drain may write at the same time; "
            "Spark lets only one of them commit a batch and fails the other, so don't start a "
            "third one, and validate when both have finished"
        )


class LeaseDocument(Row):
    """A `lock.json`: a lease, with its times in ISO 8601 by the holder's clock.

    On HDFS, `released_at` says that nobody holds it.
    """

    holder: str
    run: str
    acquired_at: str
    expires_at: str
    token: str
    released_at: str | None = None


@dataclass(frozen=True, slots=True)
class FoundLease:
    """A `lock.json` as read; the optional fields are None if it doesn't hold a lease."""

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
        """Return the lease's end; for an unreadable one, the latest possible time."""
        return self.expires_at or self.written_at + lasts

    def takeover(
        self,
        now: datetime,
        lasts: timedelta,
        *,
        token: str = "",
        is_renewed: bool | None = None,
    ) -> Takeover:
        """Decide whether the lease may be taken over; see `may_take_over`."""
        return may_take_over(
            is_own=bool(token) and self.token == token,
            expires_at=self.ends_at(lasts),
            now=now,
            lasts=lasts,
            is_renewed=is_renewed,
        )

    def in_future(self, now: datetime, lasts: timedelta) -> str:
        """Describe a lease that lies in the future; empty if the clocks may agree."""
        ends_at = self.ends_at(lasts)
        ahead = clock_ahead(ends_at, now, lasts)
        if not ahead:
            return ""
        return (
            f"the lease of {self} lasts until {_iso(ends_at)}, but this machine's clock says "
            f"{_iso(now)}: one of the two clocks is wrong by "
            f"{duration_text(ahead.total_seconds())} or more"
        )


def find_lease(root: UPath) -> FoundLease | None:
    """Read the lease of a folder; None if there is none.

    Raises:
        ArchiveError: When it can't be read.
    """
    store = lease_store(root)
    try:
        stored = store.read()
    except OSError as error:
        raise ArchiveError(f"{store.path} can't be read: {error.strerror or error}") from error
    if stored is None:
        return None
    content, written_at, version = stored.content, stored.written_at, stored.version
    try:
        document = parse(LeaseDocument, content)
        return FoundLease(
            content,
            written_at,
            holder=document.holder,
            run=document.run,
            acquired_at=_time(document.acquired_at),
            expires_at=_time(document.expires_at),
            token=document.token,
            version=version,
        )
    except ValueError:
        return FoundLease(content, written_at, version=version)


def _time(text: str) -> datetime:
    # Without an offset, it would mean a different time on each machine.
    if (time := datetime.fromisoformat(text)).tzinfo is None:
        raise ValueError(text)
    return time


def _iso(time: datetime | None) -> str:
    return time.isoformat(timespec="milliseconds") if time else "?"


def _why(takeover: Takeover) -> str:
    if takeover is Takeover.RAN_OUT:
        return "expired"
    return "is from the future and wasn't renewed for the full duration of a lease"


def _locked(root: UPath, found: FoundLease, now: datetime, lasts: timedelta) -> LockedError:
    in_future = found.in_future(now, lasts)
    return LockedError(
        f"{root} is being drained by {found} since {_iso(found.acquired_at)}, expected no other "
        f"drain; its lease lasts until {_iso(found.expires_at)} and is renewed while it runs. Try "
        "again when it has finished or, if it was killed, when its lease has expired"
        + (f". It was renewed while it was watched, and {in_future}; set it" if in_future else "")
    )


def _holder() -> str:
    return f"{login_name()} on {socket.gethostname()}, process {os.getpid()}"


class Takeover(Enum):
    """The action to take on an existing lease."""

    #: The lease already belongs to the caller.
    OWN = "own"
    #: The lease has expired by the clock.
    RAN_OUT = "ran out"
    #: The lease is from the future and wasn't renewed while it was watched for its full duration.
    NOT_RENEWED = "not renewed"
    #: Another process holds the lease.
    HELD = "held"
    #: The lease is from the future and must be watched for its full duration.
    WATCH = "watch"


def may_take_over(
    *,
    is_own: bool,
    expires_at: datetime,
    now: datetime,
    lasts: timedelta,
    is_renewed: bool | None,
) -> Takeover:
    """Decide about a lease. Whose run it is doesn't matter: a previous attempt may still write.

    Args:
        is_own: Whether it has the caller's own token.
        expires_at: When it expires by its holder's clock; for a file that holds no lease, when a
            lease written at the same time would expire.
        now: The time by this machine's clock.
        lasts: Duration of a lease without renewal.
        is_renewed: Whether it changed while it was watched for that long; None if not watched.
    """
    if is_own:
        return Takeover.OWN
    if now >= expires_at:
        return Takeover.RAN_OUT
    if is_renewed or not clock_ahead(expires_at, now, lasts):
        return Takeover.HELD
    return Takeover.WATCH if is_renewed is None else Takeover.NOT_RENEWED


def clock_ahead(expires_at: datetime, now: datetime, lasts: timedelta) -> timedelta:
    """Return the minimum by which the holder's clock is ahead; zero if the clocks may agree.

    Clocks that differ by less than the duration of a lease are assumed to be right: in that case
    the lease expires by itself within twice its duration.
    """
    ahead = expires_at - now - lasts
    return ahead if ahead > lasts else timedelta(0)
