"""The strip of an archive's newest hours: none is greener than what is known of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.drill_status import SKEW
from kafka_drain.pages.archive_status import ProofStatus
from kafka_drain.pages.hours import (
    SHOWN,
    HourState,
    Stint,
    Strip,
    drained_until,
    judge_hour,
    strip_of,
)
from tests.tables import each_of

HOUR = timedelta(hours=1)
START = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
PROVEN, UNPROVEN, DAMAGED = ProofStatus.PROVEN, ProofStatus.UNPROVEN, ProofStatus.DAMAGED
#: What was sealed at 10:05 of what came since 09:05.
STINT = Stint(START + HOUR / 12, START + 13 * HOUR / 12, False, PROVEN)
OVERVIEW: dict[str, Any] = {"unsealed_segments": 0}


@each_of(
    ("stint", "until", "is_proven", "state"),
    [
        (STINT, 1.0, True, HourState.SEALED),
        # A minute of it waits in Kafka.
        (STINT, 59 / 60, True, HourState.LATE),
        (STINT, 1.0, False, HourState.UNPROVEN),
        (replace(STINT, proof=UNPROVEN), 1.0, True, HourState.UNPROVEN),
        (replace(STINT, proof=ProofStatus.CONTENT_UNKNOWN), 1.0, True, HourState.UNPROVEN),
        # What is lost isn't only late.
        (replace(STINT, is_lost=True), 0.0, True, HourState.LOST),
        (replace(STINT, proof=DAMAGED), 1.0, True, HourState.LOST),
        # Another hour's.
        (Stint(START - HOUR, START - HOUR / 60, True, DAMAGED), 1.0, True, HourState.SEALED),
        (Stint(START + HOUR, START + 2 * HOUR, True, DAMAGED), 1.0, True, HourState.SEALED),
        # Sealed at once, by clocks that don't agree.
        (Stint(START, START, True, PROVEN), 1.0, True, HourState.LOST),
    ],
)
def test_judge_hour(stint: Stint, until: float, is_proven: bool, state: HourState) -> None:
    """An hour is as bad as the worst that is known of it."""
    assert judge_hour(START, [stint], START + until * HOUR, is_proven=is_proven) is state


@given(
    st.lists(
        st.tuples(
            st.integers(0, 300), st.integers(0, 300), st.booleans(), st.sampled_from(ProofStatus)
        ),
        max_size=4,
    ),
    st.integers(0, 300),
    st.booleans(),
)
def test_judge_hour_never_greener(
    drawn: list[tuple[int, int, bool, ProofStatus]], until: int, is_proven: bool
) -> None:
    """What has a minute in an hour, and isn't sound, keeps it from being green."""
    stints = [
        Stint(START + min(a, b) * HOUR / 60, START + max(a, b) * HOUR / 60, is_lost, own)
        for a, b, is_lost, own in drawn
    ]
    for number in range(5):
        start = START + number * HOUR
        found = judge_hour(start, stints, START + until * HOUR / 60, is_proven=is_proven)
        if found is not HourState.SEALED:
            continue
        assert is_proven
        assert until >= 60 * (number + 1)
        for minute in range(60):
            at = start + minute * HOUR / 60
            inside = [one for one in stints if one.began <= at <= one.ended]
            assert all(one.proof is PROVEN and not one.is_lost for one in inside)


def test_drained_until() -> None:
    """Without a validation's word, the archive has what was there before the newest drain."""
    said = {"drained_until": "2026-11-22T10:04:00+00:00"}

    assert drained_until([STINT], OVERVIEW | said) == START + 64 * HOUR / 60
    # Drained isn't sealed.
    assert drained_until([STINT], said | {"unsealed_segments": 1}) == STINT.began
    assert drained_until([STINT], OVERVIEW | {"drained_until": None}) == STINT.began
    assert drained_until([STINT], {}) == STINT.began


def shown(overview: dict[str, Any], hours: float, stint: Stint = STINT) -> Strip | None:
    """Return the strip so many hours after the start."""
    return strip_of([stint], overview, START + hours * HOUR, is_proven=True)


def test_strip_of() -> None:
    """The hours that are over are shown from the first known seal on, and only the newest."""
    said = OVERVIEW | {"drained_until": (START + 2.9 * HOUR).isoformat()}

    # At 12:30:07.2.
    strip = shown(said, 3.502)

    assert strip is not None
    assert [hour.start for hour in strip.hours] == [START + HOUR, START + 2 * HOUR]
    assert strip.until == START + 3 * HOUR
    assert strip.counts == {HourState.SEALED: 1, HourState.LATE: 1}
    assert strip.words == "The last 2 hours: 1 sealed, 1 missing or late"
    assert strip.hours[0].words == "2026-11-22 10:00 to 11:00: sealed"
    assert strip_of([], said, START + 3 * HOUR, is_proven=True) is None
    assert shown(said, 1.5) is None
    # Sealed at the full hour: that is the end of the one before.
    strip = shown(said, 3.5, replace(STINT, ended=START + HOUR))
    assert strip is not None
    assert len(strip.hours) == 2
    # Nobody said how far it was drained.
    strip = shown({}, 3.5)
    assert strip is not None
    assert strip.counts == {HourState.LATE: 2}
    strip = shown(said, 100)
    assert strip is not None
    assert len(strip.hours) == SHOWN
    assert strip.until == START + 100 * HOUR


@each_of(("ahead", "state"), [(SKEW, HourState.SEALED), (SKEW * 1.01, HourState.UNPROVEN)])
def test_strip_of_a_clock_ahead(ahead: timedelta, state: HourState) -> None:
    """By a clock ahead, no hour is proven."""
    strip = shown(OVERVIEW | {"drained_until": (START + 3 * HOUR + ahead).isoformat()}, 3)

    assert strip is not None
    assert {*strip.counts} == {state}
