"""Decision whether an existing lease may be taken over. Opens nothing.

If a lease ends later than possible by this machine's clock, the times alone don't decide: one of
the two clocks is wrong, and it may be this one. What counts then is whether the lease is renewed,
which its holder does three times during its duration.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum


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
