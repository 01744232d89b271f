"""Data intervals, as Airflow thinks of time. Opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from kafka_drain.errors import ConfigError

__all__ = ["Interval", "parse_time"]


def parse_time(name: str, text: str) -> datetime:
    """Parse an ISO 8601 date or time; without an offset it is UTC.

    Args:
        name: What it is, for the error's message.
        text: The time, such as `2026-01-31T13:00:00Z`.

    Raises:
        ConfigError: When it is something else.
    """
    try:
        parsed = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError as error:
        raise ConfigError(
            f"{name} = {text!r} is not acceptable; accepted: a date or time such as "
            "2026-01-31T13:00:00Z"
        ) from error
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, order=True, slots=True)
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
        if self.start >= self.end:
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
        return _milliseconds(self.start)

    @property
    def end_ms(self) -> int:
        """Its end in milliseconds since 1970."""
        return _milliseconds(self.end)

    @property
    def key(self) -> str:
        """A name for a folder, the same in every time zone."""
        return f"{_name(self.start)}_{_name(self.end)}"

    def __str__(self) -> str:
        return f"[{self.start.isoformat()}, {self.end.isoformat()})"


def _milliseconds(time: datetime) -> int:
    # Without floating point: 2026-01-01T00:00:00.001 would become the millisecond before.
    passed = time - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000


def _name(time: datetime) -> str:
    utc = time.astimezone(timezone.utc)
    milliseconds = utc.microsecond // 1000
    return f"{utc:%Y%m%dT%H%M%S}" + (f".{milliseconds:03d}Z" if milliseconds else "Z")
