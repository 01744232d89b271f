"""Format numbers, sizes and times for display. Opens nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def number_text(number: int | None) -> str:
    """Format a whole number with separators; None becomes empty."""
    return "" if number is None else f"{number:,}"


def many(number: int, unit: str) -> str:
    """Format a number with its unit: `1 file`, `2,000 files`."""
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


def size_text(number: int) -> str:
    """Format a number of bytes in a suitable unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:,.1f} {unit}"
    return f"{number:,} bytes"


def time_text(moment: str | int | None) -> str:
    """Format an ISO time or Unix milliseconds as a UTC time."""
    if moment is None or moment == -1:
        return "unknown"
    try:
        if isinstance(moment, int):
            time = _EPOCH + timedelta(milliseconds=moment)
        else:
            time = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        # Timestamps in Kafka may be any number.
        return str(moment)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def is_web_address(text: str) -> bool:
    """Return whether untrusted text may be used as a link target: rules out `javascript:` etc."""
    return text.startswith(("http://", "https://"))
