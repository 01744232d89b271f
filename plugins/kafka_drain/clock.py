"""The time now, in UTC, and the type of what tells it, so that tests can tell another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(timezone.utc)


def now_text() -> str:
    """Return the current time in UTC with milliseconds, in the documents' format."""
    return utc_now().isoformat(timespec="milliseconds")
