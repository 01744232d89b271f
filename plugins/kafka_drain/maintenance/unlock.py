"""Removing the leases that a crash, or a clock that was wrong, has left in an archive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from upath import UPath

from kafka_drain.errors import LockedError
from kafka_drain.progress import duration_text
from kafka_drain.storage.lease import (
    SECONDS,
    Clock,
    FoundLease,
    Lease,
    find_lease,
    is_renewed_since,
    utc_now,
)
from kafka_drain.storage.lease_takeover import Takeover, clock_ahead
from kafka_drain.storage.paths import require_reachable

__all__ = ["HeldLease", "list_leases", "remove_lease"]

#: Who takes a lease: whoever writes generations, maintenance, those who note what is to be
#: drained again, and those who plan windows.
_FOLDERS = ("", "maintenance", "maintenance/reprocess", "windows")

_LASTS = timedelta(seconds=SECONDS)

#: What is to be done about a lease that is found, and not watched yet.
_ADVICE = {
    Takeover.RAN_OUT: "ran out; the next run takes it over, or --remove removes it",
    Takeover.HELD: "held; wait until it is released or has run out",
    Takeover.WATCH: "from the future; --remove removes it if nobody renews it for a minute",
}


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that is there.

    Attributes:
        folder: The folder that it is for.
        found: What stands in it.
        seen_at: The time by this machine's clock when it was read.
    """

    folder: UPath
    found: FoundLease
    seen_at: datetime

    @property
    def state(self) -> Takeover:
        """What may be done about it, as far as it was not watched."""
        return self.found.takeover(self.seen_at, _LASTS)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        found, ends_at = self.found, self.found.ends_at(_LASTS)
        return {
            "lease": str(self.folder / "lock.json"),
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
    """Yield the leases that are in an archive.

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
    held: HeldLease,
    *,
    say: Callable[[str], None],
    clock: Clock = utc_now,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Remove a lease that nobody renews: take it over as a drain would, and release it.

    One that ran out is watched as well as one from the future: it may be this machine's clock that
    is wrong.

    Args:
        held: The lease.
        say: Takes lines about what is done.
        clock: The time; replaced in tests.
        wait: Waits for so many seconds, between looks at the lease.

    Raises:
        LockedError: When its holder may be alive.
        ArchiveError: When it is no lease, and not yet as old as one can get; or can't be written.
    """
    if held.state is Takeover.RAN_OUT:
        say(
            f"{held.folder}: the lease of {held.found} ran out. It is watched for "
            f"{duration_text(SECONDS)}: a holder that lives renews it"
        )
        if is_renewed_since(held.folder, held.found, _LASTS, wait):
            raise LockedError(
                f"{held.folder} is held: the lease of {held.found} was changed while it was "
                "watched, though it ran out by this machine's clock; set the clock that is wrong"
            )
    lease = Lease(held.folder, run="unlock", say=say, clock=clock, wait=wait)
    lease.acquire()
    lease.release()
    if lease.lost.is_set():
        raise LockedError(
            f"{lease.path} was taken by another while it was removed; look again with unlock"
        )


def _text(time: datetime | None) -> str | None:
    return time.isoformat(timespec="milliseconds") if time else None
