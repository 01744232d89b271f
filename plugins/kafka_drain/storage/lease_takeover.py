"""Whether a lease that is found may be taken over. Opens nothing.

Times alone don't decide about a lease that ends later than any could by this machine's clock: one
of two clocks is wrong, and it may be this one. What counts then is whether the lease is renewed,
which its holder does three times in its length.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum

__all__ = ["Takeover", "clock_ahead", "may_take_over"]


class Takeover(Enum):
    """What may be done about a lease that is found."""

    #: It is the taker's own.
    OWN = "own"
    #: It ran out, by the clock.
    RAN_OUT = "ran out"
    #: It is from the future and wasn't renewed while it was watched for its whole length.
    NOT_RENEWED = "not renewed"
    #: Somebody holds it.
    HELD = "held"
    #: It is from the future: to be watched for its whole length.
    WATCH = "watch"


def may_take_over(
    *,
    is_own: bool,
    expires_at: datetime,
    now: datetime,
    lasts: timedelta,
    is_renewed: bool | None,
) -> Takeover:
    """Decide about a lease. Whose run it is doesn't matter: an attempt before may still write.

    Args:
        is_own: Whether it has the taker's own token.
        expires_at: Until when it lasts by its holder's clock; of a file that holds no lease, until
            when one would that was written as it was.
        now: The time by this machine's clock.
        lasts: How long a lease lasts without renewal.
        is_renewed: Whether it was changed while it was watched for so long; None for not watched.
    """
    if is_own:
        return Takeover.OWN
    if now >= expires_at:
        return Takeover.RAN_OUT
    if is_renewed or not clock_ahead(expires_at, now, lasts):
        return Takeover.HELD
    return Takeover.WATCH if is_renewed is None else Takeover.NOT_RENEWED


def clock_ahead(expires_at: datetime, now: datetime, lasts: timedelta) -> timedelta:
    """Return by how much its holder's clock is ahead at least; nothing where it may agree.

    Clocks that differ by less than a lease's length are taken for right: it runs out by itself
    within twice its length then.
    """
    ahead = expires_at - now - lasts
    return ahead if ahead > lasts else timedelta(0)
