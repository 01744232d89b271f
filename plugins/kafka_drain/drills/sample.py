"""Choose the sample that a drill restores. Opens nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from kafka_drain.config.drill import SAMPLES, SampleKind
from kafka_drain.errors import ConfigError

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Kafka's timestamps may be any number; days are chosen among those of the calendar.
_HIGHEST_MS = int(datetime(9000, 1, 1, tzinfo=timezone.utc).timestamp() * 1000)

#: The lowest and the highest timestamp in milliseconds of some records; both have a record.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """The sample that a drill restores.

    Attributes:
        from_time: First timestamp; None for no bound.
        to_time: End of the timestamps, exclusive; None for no bound.
        seed: Seed that a random day was chosen by.
    """

    kind: SampleKind
    from_time: datetime | None = None
    to_time: datetime | None = None
    seed: int = 0

    def __str__(self) -> str:
        if self.from_time is None:
            return "the whole archive"
        kind = self.kind.replace("_", " ")
        return f"{kind}, {text_of(self.from_time)} to {text_of(self.to_time)}"


def newest_of(spans: Iterable[Span], until: int = _HIGHEST_MS) -> int | None:
    """Return the highest timestamp before a time, in milliseconds; None without one."""
    return max((ms for span in spans for ms in span if 0 <= ms < until), default=None)


def iso_of(milliseconds: int | None) -> str | None:
    """Return a timestamp of the calendar in ISO 8601."""
    return None if milliseconds is None else text_of(_time(milliseconds))


def choose_sample(
    kind: SampleKind, seed: int, spans: Iterable[Span], until: int = _HIGHEST_MS
) -> Sample:
    """Choose the sample.

    A day is chosen among those that certainly have a record: the first and the last of each span,
    which are all days if files are partitioned by date. Without timestamps, it is the whole.

    Args:
        seed: The same seed chooses the same day of an archive, as long as few days are added.
        spans: Timestamps of the sealed files, for each file and partition.
        until: A time in milliseconds, before which the sample ends.
    """
    usable = [ms for span in spans for ms in span if 0 <= ms < until]
    if kind == "whole" or not usable:
        return Sample("whole", seed=seed)
    if kind == "newest_hour":
        end = max(usable) + 1
        return Sample(kind, _time(max(end - _HOUR_MS, 0)), _time(end), seed)
    days = sorted({ms // _DAY_MS for ms in usable})
    # Not for secrets: a drill must be repeatable, also after another day was drained.
    day = min(days, key=lambda day: random.Random(f"{seed} {day}").random())
    return Sample(kind, _time(day * _DAY_MS), _time((day + 1) * _DAY_MS), seed)


def check_kind(kind: str) -> SampleKind:
    """Return a kind of sample, with hyphens or underscores.

    Raises:
        ConfigError: When there is no such kind.
    """
    for known in SAMPLES:
        if kind.replace("-", "_") == known:
            return known
    raise ConfigError(f"sample = {kind!r} is not acceptable; accepted: {', '.join(SAMPLES)}")


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def text_of(time: datetime | None) -> str | None:
    """Return a time in ISO 8601."""
    return None if time is None else time.isoformat(timespec="milliseconds")
