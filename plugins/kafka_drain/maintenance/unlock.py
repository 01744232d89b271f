"""Remove leases that a crash, or a wrong clock, has left in an archive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from upath import UPath

from kafka_drain.clock import Clock, utc_now
from kafka_drain.errors import LockedError
from kafka_drain.output import say
from kafka_drain.progress import duration_text
from kafka_drain.storage.lease import (
    SECONDS,
    FoundLease,
    Lease,
    Takeover,
    clock_ahead,
    find_lease,
    is_renewed_since,
)
from kafka_drain.storage.lease_store import lease_store
from kafka_drain.storage.paths import require_reachable

#: Folders with leases: of runs that write generations, of maintenance, of runs that note a
#: reprocess, of runs that seal windows, and of drills.
_FOLDERS = ("", "maintenance", "maintenance/reprocess", "windows", "drills")

_LASTS = timedelta(seconds=SECONDS)

#: Advice about a lease that was found but not yet watched.
_ADVICE = {
    Takeover.RAN_OUT: "expired; the next run takes it over, or --remove removes it",
    Takeover.HELD: "held; wait until it is released or has expired",
    Takeover.WATCH: "from the future; --remove removes it if it isn't renewed for a minute",
}


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that exists.

    Attributes:
        folder: The folder that it locks.
        found: Its content.
        seen_at: When it was read, by this machine's clock.
    """

    folder: UPath
    found: FoundLease
    seen_at: datetime

    @property
    def state(self) -> Takeover:
        """The state of the lease, judged without watching it."""
        return self.found.takeover(self.seen_at, _LASTS)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        found, ends_at = self.found, self.found.ends_at(_LASTS)
        return {
            "lease": str(lease_store(self.folder).path),
            "holder": found.holder,
            "run": found.run,
            "acquired_at": _text(found.acquired_at),
            "written_at": _text(found.written_at),
            "expires_at": _text(ends_at),
            "now": _text(self.seen_at),
            "seconds_left": round((ends_at - self.seen_at).total_seconds(), 3),
            "clock_ahead_seconds": round(
                clock_ahead(ends_at, self.seen_at, _LASTS).total_seconds(), 3
            ),
            "state": _ADVICE[self.state],
        }


def list_leases(root: UPath, clock: Clock = utc_now) -> Iterator[HeldLease]:
    """Yield the leases in an archive.

    Raises:
        ArchiveError: When one can't be read.
        StoreUnavailableError: When the archive's object store doesn't answer.
    """
    require_reachable(root)
    for name in _FOLDERS:
        folder = root / name if name else root
        found = find_lease(folder)
        if found is not None:
            yield HeldLease(folder, found, clock())


def remove_lease(
    held: HeldLease, *, clock: Clock = utc_now, wait: Callable[[float], object] = time.sleep
) -> None:
    """Remove a lease that isn't renewed: take it over as a drain would, and release it.

    An expired lease is watched too, like one from the future: this machine's clock may be wrong.

    Args:
        clock: Returns the current time; replaced in tests.
        wait: Waits for a number of seconds between looks at the lease.

    Raises:
        LockedError: When its holder may still be running.
        ArchiveError: When the file is not a lease and is still too new to be removed, or the
            folder isn't writable.
    """
    if held.state is Takeover.RAN_OUT:
        say(
            f"{held.folder}: the lease of {held.found} expired. Watching it for "
            f"{duration_text(SECONDS)}: a running holder would renew it"
        )
        if is_renewed_since(held.folder, held.found, _LASTS, wait):
            raise LockedError(
                f"{held.folder} is held: the lease of {held.found} changed while it was being "
                "watched, though it expired by this machine's clock; correct the wrong clock"
            )
    lease = Lease(held.folder, run="unlock", clock=clock, wait=wait)
    lease.acquire()
    lease.release()
    if lease.lost.is_set():
        raise LockedError(
            f"{lease.path} was taken by another run while it was removed; run unlock again"
        )


def _text(time: datetime | None) -> str | None:
    return time.isoformat(timespec="milliseconds") if time else None
