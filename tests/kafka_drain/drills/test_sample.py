"""The choice of a drill's sample."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from kafka_drain.config.drill import SAMPLES
from kafka_drain.drills.sample import check_kind, choose_sample, iso_of, newest_of, text_of
from kafka_drain.errors import ConfigError

DAY = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Three days, of which the second has no record; and times that no calendar has.
FOREVER = (1 << 63) - 1
SPANS = [(0, DAY - 1), (2 * DAY + 5, 2 * DAY + 7_200_000), (-5, -1), (FOREVER, FOREVER)]


def time(milliseconds: int) -> datetime:
    """A time by its milliseconds since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def test_choose_newest_hour() -> None:
    """The newest hour ends with the newest record, which is in it."""
    sample = choose_sample("newest_hour", 1, SPANS)
    end = 2 * DAY + 7_200_000 + 1

    assert (sample.from_time, sample.to_time) == (time(end - 3_600_000), time(end))
    assert (sample.kind, sample.seed) == ("newest_hour", 1)
    first, last = "1970-01-03T01:00:00.001+00:00", "1970-01-03T02:00:00.001+00:00"
    assert str(sample) == f"newest hour, {first} to {last}"


def test_choose_newest_hour_at_epoch() -> None:
    """The newest hour doesn't begin before timestamps do."""
    assert choose_sample("newest_hour", 1, [(0, 0)]).from_time == time(0)


def test_choose_random_day() -> None:
    """Each day with a record is chosen by some seed, no other day by any; a seed's day is one."""
    chosen = {seed: choose_sample("random_day", seed, SPANS) for seed in range(50)}

    assert {sample.from_time for sample in chosen.values()} == {time(0), time(2 * DAY)}
    for seed, sample in chosen.items():
        assert (sample.kind, sample.seed) == ("random_day", seed)
        assert sample.from_time
        assert sample.to_time
        assert (sample.to_time - sample.from_time).days == 1
    again = {seed: choose_sample("random_day", seed, reversed(SPANS)) for seed in chosen}
    assert chosen == again


def test_choose_whole() -> None:
    """The whole has no bounds, and so has anything that has no timestamps."""
    assert str(choose_sample("whole", 1, SPANS)) == "the whole archive"
    for kind in SAMPLES:
        sample = choose_sample(kind, 1, SPANS[2:])
        assert (sample.kind, sample.from_time, sample.to_time) == ("whole", None, None)
        assert sample.seed == 1


def test_newest_of() -> None:
    """The newest record is the newest of the calendar."""
    assert newest_of(SPANS) == 2 * DAY + 7_200_000
    assert iso_of(newest_of(SPANS)) == "1970-01-03T02:00:00.000+00:00"
    assert newest_of(SPANS[2:]) is None
    assert newest_of([(-1, 0)]) == 0
    assert iso_of(None) is text_of(None) is None


def test_calendar_ends() -> None:
    """The last millisecond of the calendar counts, and the one after it doesn't."""
    end = 221_845_392_000_000

    assert newest_of([(end - 1, end)]) == end - 1
    assert choose_sample("newest_hour", 1, [(end - 1, end)]).to_time == EPOCH + timedelta(
        milliseconds=end
    )


@pytest.mark.parametrize("kind", ["newest-hour", "random_day", "whole"])
def test_check_kind(kind: str) -> None:
    """A kind is written with hyphens or underscores."""
    assert check_kind(kind) in SAMPLES


def test_check_kind_unknown() -> None:
    """Another kind is refused, naming those that exist."""
    with pytest.raises(ConfigError, match="accepted: newest_hour, random_day, whole"):
        check_kind("everything")


def test_choose_sample_after_another_day() -> None:
    """A seed chooses the same day once another day has records, or that one."""
    days = [(day * DAY, day * DAY) for day in range(20)]

    for seed in range(50):
        before = choose_sample("random_day", seed, days[:-1]).from_time
        assert choose_sample("random_day", seed, days).from_time in (before, time(19 * DAY))
