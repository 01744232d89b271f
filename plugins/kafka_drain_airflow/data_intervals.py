"""Decide from a DAG run whether it drains from the cursor or drains a window, and which window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_drain.clock import Clock, utc_now

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.drain.options import ValidateOptions
    from kafka_drain.intervals import Interval

#: The run type of backfill runs, in both Airflow 2 and 3.
BACKFILL = "backfill"


def is_backfill(context: Context) -> bool:
    """Return whether a run belongs to a backfill."""
    run: Any = context.get("dag_run")
    return bool(getattr(run, "run_type", None) == BACKFILL)


def started_because(context: Context) -> str:
    """Return why a run was started, as `create_watch_dag` says in its conf; empty if it isn't said.

    Whoever triggers a run may write anything there, so it is one line of limited length.
    """
    run: Any = context.get("dag_run")
    conf = getattr(run, "conf", None)
    reason = conf.get("reason") if isinstance(conf, dict) else None
    return " ".join(str(reason or "").split())[:1000]


def drains_window(context: Context, mode: str | None) -> bool:
    """Return whether a run drains a window: a backfill run, or one whose `mode` is `window`."""
    return mode == "window" or is_backfill(context)


def window_interval(
    context: Context,
    options: ValidateOptions | None = None,
    now: Clock = utc_now,
) -> Interval | None:
    """Return the interval of a run that drains a window; None if it drains from the cursor.

    Backfill runs drain windows, and so do other runs if `mode` is `window`.

    Args:
        context: The task's context.
        options: The run's options; None to decide by its type.
        now: Returns the current time; replaced in tests.

    Raises:
        ConfigError: If the run drains a window and neither the arguments nor the run define it, or
            the run's data interval is empty or ends ahead.
    """
    from kafka_drain.errors import ConfigError
    from kafka_drain.intervals import Interval

    mode = options.mode if options else None
    start, end = (options.window_start, options.window_end) if options else (None, None)
    if not drains_window(context, mode):
        if start or end:
            raise ConfigError("window_start and window_end require mode = window")
        return None
    own_end = end is None
    start = start or context.get("data_interval_start")
    end = end or context.get("data_interval_end")
    if start is None or end is None:
        raise ConfigError(
            "this run has no data interval of its own; set window_start and window_end"
        )
    if start == end:
        raise ConfigError(
            f"the data interval of this run is empty, at {start.isoformat()}: Airflow infers none "
            "for a manual run about a day after clocks are put forward, nor for a DAG without a "
            "schedule; set window_start and window_end"
        )
    if own_end and end > now():
        raise ConfigError(
            f"the data interval of this run ends ahead, at {end.isoformat()}: Airflow infers such "
            "a one for a manual run while an hour is repeated, after clocks are put back; set "
            "window_start and window_end, or run it later"
        )
    return Interval(start, end)
