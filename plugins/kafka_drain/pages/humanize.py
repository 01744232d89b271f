"""Numbers, sizes and times as people write them. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

__all__ = ["counts_text", "is_web_address", "many", "number_text", "size_text", "time_text"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def number_text(number: int | None) -> str:
    """Write a whole number with separators; None is nothing."""
    return "" if number is None else f"{number:,}"


def many(number: int, unit: str) -> str:
    """Write a number with its unit: `1 file`, `2,000 files`."""
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


def counts_text(counts: Mapping[str, int]) -> str:
    """Write how many there are of each: `2 control, 1 lost`; `none` without any."""
    return ", ".join(f"{number:,} {name}" for name, number in counts.items()) or "none"


def size_text(number: int) -> str:
    """Write a number of bytes as people say it."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:,.1f} {unit}"
    return f"{number:,} bytes"


def time_text(moment: str | int | None) -> str:
    """Write an ISO time or milliseconds since 1970 as a UTC time."""
    if moment is None or moment == -1:
        return "unknown"
    try:
        if isinstance(moment, int):
            time = _EPOCH + timedelta(milliseconds=moment)
        else:
            time = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        # Kafka's timestamps may be any number.
        return str(moment)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def is_web_address(text: str) -> bool:
    """Whether a text that others wrote may be where a link leads: no `javascript:` and its like."""
    return text.startswith(("http://", "https://"))
