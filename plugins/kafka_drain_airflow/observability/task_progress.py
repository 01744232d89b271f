"""How far a running task has got, kept as its XCom for pages to show."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TypeGuard

from kafka_drain.progress import ProgressLine

__all__ = ["PROGRESS_KEY", "SPARK_UI_KEY", "TaskProgress", "is_progress"]

#: XCom of a running task: job, name, done, total, unit, percent, rate, left, spark_ui, at.
PROGRESS_KEY = "progress"
#: XCom of a running task: address of its Spark application's UI.
SPARK_UI_KEY = "spark_ui"
#: It is written at most so often: a write is a request to Airflow's API server.
SECONDS = 3.0

# What a job writes before a line of progress.
_JOB = re.compile(r"(?P<job>drain|window|compact|republish|validate) (?P<name>[^:]+)$")

# What kafka_drain_spark.job says.
_SPARK_UI = re.compile(r"spark ui: (https?://\S+)$")

_NUMBERS = ("done", "total", "percent")
_WORDS = ("unit", "rate", "left", "spark_ui", "at")

log = logging.getLogger(__name__)


def is_progress(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether an XCom's value is what a task keeps: anybody's task may write any."""
    return (
        isinstance(value, dict)
        and all(type(value.get(name)) is int for name in _NUMBERS)
        and all(isinstance(value.get(name), str) for name in _WORDS)
        and 0 <= value["percent"] <= 100
    )


class TaskProgress:
    """Listens to what a task says, and keeps how far it has got.

    Args:
        task_instance: The task's; None to keep nothing.
        clock: Seconds; replaced in tests.
    """

    def __init__(self, task_instance: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._task_instance = task_instance
        self._clock = clock
        self._next = -1.0
        self._spark_ui = ""

    def hear(self, line: str) -> None:
        """Take in a line; most say nothing of progress."""
        if self._task_instance is None:
            return
        if told := _SPARK_UI.search(line.strip()):
            self._spark_ui = told[1]
            self._push(SPARK_UI_KEY, self._spark_ui)
        named = _JOB.search(line.what) if isinstance(line, ProgressLine) else None
        if not isinstance(line, ProgressLine) or named is None:
            return
        now = self._clock()
        if line.percent < 100 and now < self._next:
            return
        self._next = now + SECONDS
        document = {
            **named.groupdict(),
            **{name: getattr(line, name) for name in ("done", "total", "unit", "percent")},
            "rate": line.rate,
            "left": line.left,
            "spark_ui": self._spark_ui,
            "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        self._push(PROGRESS_KEY, document)

    def _push(self, key: str, value: object) -> None:
        try:
            self._task_instance.xcom_push(key=key, value=value)
        except Exception as error:
            # A picture isn't worth a task.
            log.warning("progress isn't kept: %s: %s", type(error).__name__, error)
            self._task_instance = None
