"""May a lease be taken over: each combination of what is known of it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import product

import pytest

from kafka_drain.storage.lease import Takeover, clock_ahead, may_take_over
from tests.tables import each_of

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
LASTS = timedelta(seconds=60)
YEARS = timedelta(days=1_200)
MOMENT = timedelta(milliseconds=1)

#: When a lease ends, against this machine's clock.
STALE = {"long ago": -YEARS, "a moment ago": -MOMENT, "now": timedelta(0)}
NEAR = {
    "in a moment": MOMENT,
    "just renewed": LASTS,
    "by a clock that is a bit ahead": LASTS + timedelta(seconds=5),
    "by a clock that is as far ahead as may be": 2 * LASTS,
}
FAR = {"by a clock that is too far ahead": 2 * LASTS + MOMENT, "in years": YEARS}

#: What is decided of a lease that is somebody else's, by its end and what watching it has shown.
DECISIONS = {
    **dict.fromkeys(product(STALE, (None, False, True)), Takeover.RAN_OUT),
    **dict.fromkeys(product(NEAR, (None, False, True)), Takeover.HELD),
    **dict.fromkeys(product(FAR, (None,)), Takeover.WATCH),
    **dict.fromkeys(product(FAR, (False,)), Takeover.NOT_RENEWED),
    **dict.fromkeys(product(FAR, (True,)), Takeover.HELD),
}


def decided(*, ends: str, is_renewed: bool | None, is_own: bool) -> Takeover:
    return may_take_over(
        is_own=is_own,
        expires_at=NOW + {**STALE, **NEAR, **FAR}[ends],
        now=NOW,
        lasts=LASTS,
        is_renewed=is_renewed,
    )


@each_of("ends, is_renewed", list(product({**STALE, **NEAR, **FAR}, (None, False, True))))
def test_may_take_over_all(ends: str, is_renewed: bool | None) -> None:
    """A lease that ran out may be taken over; one from the future when nobody renews it."""
    found = decided(ends=ends, is_renewed=is_renewed, is_own=False)

    assert found is DECISIONS[ends, is_renewed]
    assert decided(ends=ends, is_renewed=is_renewed, is_own=True) is Takeover.OWN


@pytest.mark.parametrize("ends", [*STALE, *NEAR])
def test_clock_ahead_not_said(ends: str) -> None:
    """Of clocks that may agree nothing is said."""
    assert not clock_ahead(NOW + {**STALE, **NEAR}[ends], NOW, LASTS)


def test_clock_ahead_said() -> None:
    """The difference is what lies beyond the length of a lease that was renewed just now."""
    assert clock_ahead(NOW + YEARS, NOW, LASTS) == YEARS - LASTS
