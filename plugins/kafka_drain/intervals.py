"""Parsing of user-supplied times, and Airflow-style data intervals. Opens nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from kafka_drain.errors import ConfigError

_FRACTION = re.compile(r"\.(\d+)")


def parse_time(name: str, text: str) -> datetime:
    """Parse an ISO 8601 date or time; without an offset it is taken as UTC.

    Args:
        name: Name of the value, for the error message.
        text: The time, such as `2026-01-31T13:00:00Z`.

    Raises:
        ConfigError: When the text isn't a time.
    """
    try:
        return in_utc(from_iso(text.strip()))
    except ValueError as error:
        raise ConfigError(
            f"{name} = {text!r} is not acceptable; accepted: a date or time such as "
            "2026-11-21T13:45:00.250Z (UTC if it names no zone)"
        ) from error


def from_iso(text: str) -> datetime:
    """Parse an ISO 8601 time as Python 3.11 does, with any number of digits after the point.

    Python 3.10 parses no `Z`, and only three or six digits.

    Raises:
        ValueError: When the text isn't a time.
    """
    digits = _FRACTION.sub(lambda found: f".{found[1]:0<6.6}", text)
    return datetime.fromisoformat(digits.replace("Z", "+00:00"))


def in_utc(time: datetime) -> datetime:
    """Return a time with its zone; UTC if it has none."""
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def milliseconds(time: datetime) -> int:
    """Return milliseconds since 1970, rounded up.

    Rounding up puts each record into exactly one of two adjacent intervals. Integer arithmetic,
    because floating point would turn some times into the previous millisecond.
    """
    since = time - datetime(1970, 1, 1, tzinfo=timezone.utc)
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return -(-microseconds // 1000)


def time_text(ms: int) -> str:
    """Format milliseconds since 1970 as a UTC time; a record's timestamp may be any number."""
    try:
        at = datetime.fromtimestamp(ms // 1000, timezone.utc).replace(microsecond=ms % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms since 1970"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of record timestamps.

    Attributes:
        from_ms: Lowest timestamp in milliseconds since 1970; None for no bound.
        to_ms: Exclusive upper bound; None for no bound.
    """

    from_ms: int | None = None
    to_ms: int | None = None

    def may_hold(self, first: int | None, last: int | None) -> bool:
        """Return whether records between two timestamps may be in it; None means unknown."""
        too_old = self.from_ms is not None and last is not None and last < self.from_ms
        too_new = self.to_ms is not None and first is not None and first >= self.to_ms
        return not (too_old or too_new)


@dataclass(frozen=True, slots=True)
class Interval:
    """Times from `start` (inclusive) to `end` (exclusive), in Kafka's millisecond precision.

    Attributes:
        start: Start, with a time zone.
        end: End, with a time zone.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ConfigError(f"an interval needs times with a time zone, got {self}")
        for time in (self.start, self.end):
            _check_in_utc(time)
        # Python compares times in one zone by wall clock, which DST changes set back.
        if self.start_ms >= self.end_ms:
            raise ConfigError(
                f"the interval {self} is empty; its end (exclusive) must be later than its start"
            )

    @classmethod
    def parse(cls, bounds: Sequence[str]) -> Interval:
        """Parse an interval from the texts of its start and end.

        Raises:
            ConfigError: When one isn't a time, or the interval is empty.
        """
        start, end = bounds
        return cls(parse_time("start", start), parse_time("end", end))

    @property
    def start_ms(self) -> int:
        """The start in milliseconds since 1970."""
        return milliseconds(self.start)

    @property
    def end_ms(self) -> int:
        """The end in milliseconds since 1970."""
        return milliseconds(self.end)

    @property
    def key(self) -> str:
        """A folder name, identical in every time zone."""
        return f"{_name(self.start_ms)}_{_name(self.end_ms)}"

    def __str__(self) -> str:
        return f"[{self.start.isoformat()}, {self.end.isoformat()})"


def _name(ms: int) -> str:
    utc = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    # On Linux, `%Y` has no leading zeros.
    return f"{utc.year:04d}{utc:%m%dT%H%M%S}" + (f".{ms % 1000:03d}Z" if ms % 1000 else "Z")


def _check_in_utc(time: datetime) -> None:
    """Refuse a time that, rounded up to a millisecond, has no representation in UTC.

    Raises:
        ConfigError: When it falls before year 1 or after year 9999 in UTC.
    """
    try:
        datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds(time))
    except OverflowError as error:
        raise ConfigError(
            f"{time.isoformat()} is not acceptable as an interval bound; accepted: times "
            "from year 1 to year 9999 in UTC"
        ) from error
