"""Which sealed files are read again next: an even share each run, the oldest first. Opens nothing.

The groups are a queue: what was read goes to its end. At most all bytes wait in front of a group,
and all bytes are the share of `scrub_days`, so it is reached in time; what isn't, because the
archive shrank or a run was missed, is read when it is due.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from kafka_drain.archive.drill_status import SKEW

#: Factor by which a run may exceed its even share, to catch up.
CATCH_UP = 3

_LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class SealedGroup:
    """The files of one receipt that readers get.

    Attributes:
        where: The receipt, relative to the archive.
        bytes: Size of the files.
        sealed_at: When they were sealed, and read whole for it.
        read_at: When they were last read again; None for never.
    """

    where: str
    bytes: int
    sealed_at: datetime
    read_at: datetime | None = None

    def last_read(self, now: datetime) -> datetime:
        """Return when they were last read; long ago if only a time ahead of now says so."""
        times = (time for time in (self.sealed_at, self.read_at) if time is not None)
        return max((time for time in times if time - now <= SKEW), default=_LONG_AGO)


@dataclass(frozen=True, slots=True)
class Quota:
    """What a run reads.

    Attributes:
        owed: Bytes to be read by now, to read all once in `scrub_days`; negative if more were.
        budget: Bytes that it may read.
    """

    owed: int
    budget: int

    @classmethod
    def of(
        cls, total_bytes: int, elapsed: timedelta | None, scrub_days: int, owed_before: int = 0
    ) -> Quota:
        """Return the quota of a run.

        Args:
            total_bytes: Size of all files.
            elapsed: Time since the last run; None or negative, as after a clock went back, for a
                day.
            scrub_days: Days within which each file is to be read again.
            owed_before: What the last run has left.
        """
        if elapsed is None or elapsed < timedelta():
            elapsed = timedelta(days=1)
        share = round(total_bytes * (elapsed / timedelta(days=scrub_days)))
        owed = max(-total_bytes, min(owed_before + share, total_bytes))
        return cls(owed, CATCH_UP * share)


def choose_groups(
    groups: Iterable[SealedGroup], now: datetime, scrub_days: int, quota: Quota
) -> list[SealedGroup]:
    """Return the groups to read now, the oldest first.

    Args:
        groups: All groups.
        now: The present time.
        scrub_days: Days within which each is to be read again.
        quota: The bytes; what wasn't read for `scrub_days` is due in any case, within the budget,
            and a single group may be larger than that.
    """
    chosen, spent = list[SealedGroup](), 0
    for group in sorted(groups, key=lambda group: (group.last_read(now), group.where)):
        after = spent + group.bytes
        is_due = now - group.last_read(now) >= timedelta(days=scrub_days)
        if (after > quota.owed and not is_due) or (chosen and after > quota.budget):
            break
        chosen.append(group)
        spent = after
    return chosen
