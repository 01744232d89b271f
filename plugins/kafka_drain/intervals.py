"""Times as people write them, and data intervals, as Airflow thinks of time. Opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from kafka_drain.errors import ConfigError

__all__ = ["Interval", "in_utc", "milliseconds", "parse_time", "time_text"]


def parse_time(name: str, text: str) -> datetime:
    """Parse an ISO 8601 date or time; without an offset it is UTC.

    Args:
        name: What it is, for the error's message.
        text: The time, such as `2026-01-31T13:00:00Z`.

    Raises:
        ConfigError: When it is something else.
    """
    try:
        # Python 3.10 doesn't read the Z.
        return in_utc(datetime.fromisoformat(text.strip().replace("Z", "+00:00")))
    except ValueError as error:
        raise ConfigError(
            f"{name} = {text!r} is not acceptable; accepted: a date or time such as "
            "2026-11-21T13:45:00.250Z (UTC where it names no zone)"
        ) from error


def in_utc(time: datetime) -> datetime:
    """Return a time with its zone; UTC where it names none."""
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def milliseconds(time: datetime) -> int:
    """Return milliseconds since 1970, rounded up to a whole one.

    Rounded up, so that intervals that meet hold each record once; without floating point, which
    would make the millisecond before of some.
    """
    since = time - datetime(1970, 1, 1, tzinfo=timezone.utc)
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return -(-microseconds // 1000)


def time_text(ms: int) -> str:
    """Write milliseconds since 1970 as a time in UTC; a record's may be any number."""
    try:
        at = datetime.fromtimestamp(ms // 1000, timezone.utc).replace(microsecond=ms % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms since 1970"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Interval:
    """Times from `start` to just before `end`, to the millisecond as Kafka's timestamps.

    Attributes:
        start: With its time zone.
        end: With its time zone.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ConfigError(f"an interval needs times with a time zone, got {self}")
        for time in (self.start, self.end):
            _check_in_utc(time)
        # Python compares times of the same zone by their clocks, which summer time sets back.
        if self.start_ms >= self.end_ms:
            raise ConfigError(
                f"the interval {self} is empty; its end, which isn't part of it, has to be later "
                "than its start"
            )

    @classmethod
    def parse(cls, bounds: Sequence[str]) -> Interval:
        """Read an interval from its start and end as text.

        Raises:
            ConfigError: When one is no time, or the interval is empty.
        """
        start, end = bounds
        return cls(parse_time("start", start), parse_time("end", end))

    @property
    def start_ms(self) -> int:
        """Its start in milliseconds since 1970."""
        return milliseconds(self.start)

    @property
    def end_ms(self) -> int:
        """Its end in milliseconds since 1970."""
        return milliseconds(self.end)

    @property
    def key(self) -> str:
        """A name for a folder, the same in every time zone."""
        return f"{_name(self.start_ms)}_{_name(self.end_ms)}"

    def __str__(self) -> str:
        return f"[{self.start.isoformat()}, {self.end.isoformat()})"


def _name(ms: int) -> str:
    utc = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    # `%Y` has no leading zeros on Linux.
    return f"{utc.year:04d}{utc:%m%dT%H%M%S}" + (f".{ms % 1000:03d}Z" if ms % 1000 else "Z")


def _check_in_utc(time: datetime) -> None:
    """Refuse a time that has no date in UTC, rounded up to a millisecond.

    Raises:
        ConfigError: When it lies before year 1 or after year 9999 there.
    """
    try:
        datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds(time))
    except OverflowError as error:
        raise ConfigError(
            f"{time.isoformat()} is not acceptable as a bound of an interval; accepted: times "
            "from year 1 to year 9999 in UTC"
        ) from error
