"""The line of a user's file that declared something, for messages. Opens nothing."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

#: Modules between a user's line and a check of a pipeline.
OWN = ("kafka_drain.config.", "pydantic")


def calling_line(own: tuple[str, ...]) -> str:
    """Return file and line of the nearest caller outside of some modules.

    Args:
        own: Beginnings of the modules' names.

    Returns:
        Such as `orders.py, line 12`; empty if that caller is kafka-drain itself.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith(own):
        frame = frame.f_back
    if frame is None or _module(frame).partition(".")[0] in ("kafka_drain", "kafka_drain_airflow"):
        return ""
    return f"{frame.f_code.co_filename.rpartition('/')[2]}, line {frame.f_lineno}"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def named(name: Any, line: str) -> str:
    """Return a pipeline as messages name it: by its name, if it has one, and its line, if known."""
    what = f"pipeline {name!r}" if isinstance(name, str) and name else "pipeline without a name"
    return f"{what} ({line})" if line else what
