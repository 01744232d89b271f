"""The strip of an archive's newest hours: none is greener than what is known of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.pages.archive_status import ProofStatus
from kafka_drain.pages.hours import SHOWN, HourState, Stint, drained_until, judge_hour, strip_of
from tests.tables import each_of

HOUR = timedelta(hours=1)
START = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
PROVEN, UNPROVEN, DAMAGED = ProofStatus.PROVEN, ProofStatus.UNPROVEN, ProofStatus.DAMAGED
#: What was sealed at 10:05 of what came since 09:05.
STINT = Stint(START + HOUR / 12, START + 13 * HOUR / 12, False, PROVEN)
OVERVIEW: dict[str, Any] = {"unsealed_segments": 0}


@each_of(
    ("stint", "until", "proof", "state"),
    [
        (STINT, 1.0, PROVEN, HourState.SEALED),
        # A minute of it waits in Kafka.
        (STINT, 59 / 60, PROVEN, HourState.LATE),
        (STINT, 1.0, UNPROVEN, HourState.UNPROVEN),
        (replace(STINT, proof=UNPROVEN), 1.0, PROVEN, HourState.UNPROVEN),
        (replace(STINT, proof=ProofStatus.CONTENT_UNKNOWN), 1.0, PROVEN, HourState.UNPROVEN),
        # What is lost isn't only late.
        (replace(STINT, is_lost=True), 0.0, PROVEN, HourState.LOST),
        (replace(STINT, proof=DAMAGED), 1.0, PROVEN, HourState.LOST),
        # Another hour's.
        (Stint(START - HOUR, START - HOUR / 60, True, DAMAGED), 1.0, PROVEN, HourState.SEALED),
        (Stint(START + HOUR, START + 2 * HOUR, True, DAMAGED), 1.0, PROVEN, HourState.SEALED),
        # Sealed at once, by clocks that don't agree.
        (Stint(START, START, True, PROVEN), 1.0, PROVEN, HourState.LOST),
    ],
)
def test_judge_hour(stint: Stint, until: float, proof: ProofStatus, state: HourState) -> None:
    """An hour is as bad as the worst that is known of it."""
    assert judge_hour(START, [stint], START + until * HOUR, proof) is state


@given(
    st.lists(
        st.tuples(
            st.integers(0, 300), st.integers(0, 300), st.booleans(), st.sampled_from(ProofStatus)
        ),
        max_size=4,
    ),
    st.integers(0, 300),
    st.sampled_from(ProofStatus),
)
def test_judge_hour_never_greener(
    drawn: list[tuple[int, int, bool, ProofStatus]], until: int, proof: ProofStatus
) -> None:
    """What has a minute in an hour, and isn't sound, keeps it from being green."""
    stints = [
        Stint(START + min(a, b) * HOUR / 60, START + max(a, b) * HOUR / 60, is_lost, own)
        for a, b, is_lost, own in drawn
    ]
    for number in range(5):
        start = START + number * HOUR
        if judge_hour(start, stints, START + until * HOUR / 60, proof) is not HourState.SEALED:
            continue
        assert proof is PROVEN
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


def test_strip_of() -> None:
    """The hours that are over are shown from the first known seal on, and only the newest."""
    now = START + 3.5 * HOUR
    said = OVERVIEW | {"drained_until": (START + 2.9 * HOUR).isoformat()}

    strip = strip_of([STINT], said, PROVEN, now)

    assert strip is not None
    assert [hour.start for hour in strip.hours] == [START + HOUR, START + 2 * HOUR]
    assert strip.until == START + 3 * HOUR
    assert strip.counts == {HourState.SEALED: 1, HourState.LATE: 1}
    assert strip.words == "The last 2 hours: 1 sealed, 1 missing or late"
    assert strip.hours[0].words == "2026-11-22 10:00 to 11:00: sealed"
    assert strip_of([], said, PROVEN, now) is None
    assert strip_of([STINT], said, PROVEN, START + 1.5 * HOUR) is None
    long = strip_of([STINT], said, PROVEN, START + 100 * HOUR)
    assert long is not None
    assert len(long.hours) == SHOWN
    assert long.until == START + 100 * HOUR


def test_strip_of_a_clock_ahead() -> None:
    """By a clock ahead, no hour is proven."""
    said = OVERVIEW | {"drained_until": (START + 9 * HOUR).isoformat()}

    strip = strip_of([STINT], said, PROVEN, START + 3 * HOUR)

    assert strip is not None
    assert {*strip.counts} == {HourState.UNPROVEN}
