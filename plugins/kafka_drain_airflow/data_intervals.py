"""Whether a run drains from the cursor on or a window, and which: from what Airflow knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.intervals import Interval

__all__ = ["drains_window", "is_backfill", "window_interval"]

#: What both Airflow 2 and 3 call the type of a backfill's runs.
BACKFILL = "backfill"


def is_backfill(context: Context) -> bool:
    """Whether a run is one of a backfill's."""
    run: Any = context.get("dag_run")
    return bool(getattr(run, "run_type", None) == BACKFILL)


def drains_window(context: Context, mode: str | None) -> bool:
    """Whether a run drains a window: a backfill's, or one whose `mode` is `window`."""
    return mode == "window" or is_backfill(context)


def window_interval(
    context: Context,
    mode: str | None = None,
    window_start: str | None = None,
    window_end: str | None = None,
) -> Interval | None:
    """Return the interval of a run that drains a window; None for one that drains from the cursor.

    A backfill's runs drain windows, and others where `mode` is `window`.

    Args:
        context: The task's context.
        mode: `drain`, `window`, or None for what the run's type says.
        window_start: A window's start, ISO 8601; None for that of the run's data interval.
        window_end: A window's end, ISO 8601; None for that of the run's data interval.

    Raises:
        ConfigError: When the run drains a window, and nothing says which.
    """
    from kafka_drain.errors import ConfigError
    from kafka_drain.intervals import Interval, parse_time

    if mode not in (None, "drain", "window"):
        raise ConfigError(f"mode = {mode!r} is not acceptable; accepted: drain, window")
    if not drains_window(context, mode):
        if window_start or window_end:
            raise ConfigError("window_start and window_end need mode = window")
        return None
    start = parse_time("window_start", window_start) if window_start else None
    end = parse_time("window_end", window_end) if window_end else None
    start = start or context.get("data_interval_start")
    end = end or context.get("data_interval_end")
    if start is None or end is None or start == end:
        raise ConfigError(
            "this run has no data interval of its own; name the window: window_start and window_end"
        )
    return Interval(start, end)
