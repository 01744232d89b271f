"""Which sealed files are read again next: each in time, and no more than their share."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.maintenance.scrub_quota import CATCH_UP, Quota, SealedGroup, choose_groups

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
DAY = timedelta(days=1)
MUCH = Quota(1000, 1000)


def group(name: str, days: float, size: int = 10, read: float | None = None) -> SealedGroup:
    """Return a group that was sealed so many days ago, and read again so many days ago."""
    read_at = None if read is None else NOW - read * DAY
    return SealedGroup(name, size, NOW - days * DAY, read_at)


@pytest.mark.parametrize(
    ("groups", "quota", "expected"),
    [
        pytest.param([], MUCH, "", id="nothing"),
        pytest.param([group("a", 1), group("b", 3), group("c", 2)], MUCH, "bca", id="oldest first"),
        pytest.param([group("a", 9, read=1), group("b", 3)], MUCH, "ba", id="read again since"),
        pytest.param([group("a", 3), group("b", 2)], Quota(10, 1000), "a", id="as much as is owed"),
        pytest.param([group("a", 3)], Quota(9, 1000), "", id="waits until it is owed"),
        pytest.param([group("a", 30)], Quota(-5, 5), "a", id="due, whatever is owed"),
        pytest.param([group("a", 29.9)], Quota(0, 1000), "", id="almost due"),
        pytest.param(
            [group("a", 50), group("b", 40), group("c", 31)], Quota(0, 20), "ab", id="budget"
        ),
        pytest.param([group("a", -1), group("b", 29)], Quota(0, 99), "a", id="sealed ahead of now"),
        pytest.param([group("a", 31, read=-1)], Quota(0, 99), "a", id="read ahead of now"),
        pytest.param([group("a", 0, 0)], Quota(0, 0), "a", id="no bytes"),
    ],
)
def test_choose_groups(groups: list[SealedGroup], quota: Quota, expected: str) -> None:
    """The oldest are read as far as they are owed; what is due in any case."""
    assert "".join(g.where for g in choose_groups(groups, NOW, 30, quota)) == expected


@pytest.mark.parametrize(
    ("elapsed", "before", "expected"),
    [
        (DAY, 0, Quota(100, CATCH_UP * 100)),
        (DAY / 24, 0, Quota(4, CATCH_UP * 4)),
        (DAY, 40, Quota(140, CATCH_UP * 100)),
        (DAY, -40, Quota(60, CATCH_UP * 100)),
        (None, 0, Quota(100, CATCH_UP * 100)),
        (-DAY, 0, Quota(100, CATCH_UP * 100)),
        (90 * DAY, 0, Quota(3000, CATCH_UP * 9000)),
        (DAY, -9999, Quota(-3000, CATCH_UP * 100)),
    ],
)
def test_quota(elapsed: timedelta | None, before: int, expected: Quota) -> None:
    """A run owes the share of the time since the last one, and what that has left."""
    assert Quota.of(3000, elapsed, 30, before) == expected


@settings(max_examples=20, deadline=None)
@given(
    scrub_days=st.integers(3, 40),
    every=st.sampled_from([DAY / 24, DAY]),
    first=st.integers(0, 50_000),
    growth=st.lists(st.integers(0, 1000), min_size=1, max_size=7),
    kept=st.sampled_from([None, 20, 90]),
    merged=st.integers(5, 7),
)
def test_choose_groups_property(
    scrub_days: int,
    every: timedelta,
    first: int,
    growth: list[int],
    kept: int | None,
    merged: int,
) -> None:
    """In a growing, compacted, expiring archive, all are read in time, at their share's cost."""
    runs = 365
    now, owed, read, fair = NOW, 0, 0, 0.0
    groups = {f"old-{n}": SealedGroup(f"old-{n}", first // 20, NOW) for n in range(20)}
    fresh: list[str] = []
    largest, most = first // 20, 0
    for number in range(runs):
        now += every
        new = SealedGroup(f"new-{number}", growth[number % len(growth)], now)
        groups[new.where] = new
        fresh.append(new.where)
        if len(fresh) == merged:
            # As compaction does: written anew, proven, and sealed now.
            whole = sum(groups.pop(where).bytes for where in fresh)
            groups[f"merged-{number}"] = SealedGroup(f"merged-{number}", whole, now)
            fresh = []
        if kept is not None:
            oldest = now - kept * DAY
            groups = {
                where: g for where, g in groups.items() if g.sealed_at > oldest or where in fresh
            }
        total = sum(g.bytes for g in groups.values())
        largest, most = max(largest, *(g.bytes for g in groups.values())), max(most, total)
        fair += total * (every / timedelta(days=scrub_days))
        quota = Quota.of(total, every, scrub_days, owed)
        chosen = choose_groups(groups.values(), now, scrub_days, quota)
        owed = quota.owed - sum(g.bytes for g in chosen)
        read += sum(g.bytes for g in chosen)
        groups |= {g.where: replace(g, read_at=now) for g in chosen}

        assert sum(g.bytes for g in chosen) <= max(quota.budget, largest)
        assert all(now - g.last_read(now) <= scrub_days * DAY + every for g in groups.values())

    assert read <= 1.05 * fair + largest + runs
    if kept is None:
        assert read >= 0.95 * fair - largest - runs
