"""Progress of a running task, stored as an XCom for the pages to show."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TypeGuard

from kafka_drain.output import SparkUiLine
from kafka_drain.progress import ProgressLine
from kafka_drain_airflow.connections import store_waiting

#: XCom of a running task: job, name, done, total, unit, percent, rate, left, spark_ui, at.
PROGRESS_KEY = "progress"
#: XCom of a running task: URL of its Spark application's UI.
SPARK_UI_KEY = "spark_ui"
#: Minimum time between two writes: each is a request to Airflow's API server.
SECONDS = 3.0

# Work whose progress is shown, if it has a name.
_JOBS = frozenset({"drain", "window", "compact", "republish", "validate"})

_NUMBERS = ("done", "total", "percent")
_WORDS = ("unit", "rate", "left", "spark_ui", "at")

log = logging.getLogger(__name__)


def is_progress(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether an XCom's value is a valid progress document: any task may write any XCom."""
    return (
        isinstance(value, dict)
        and all(type(value.get(name)) is int for name in _NUMBERS)
        and all(isinstance(value.get(name), str) for name in _WORDS)
        and 0 <= value["percent"] <= 100
    )


class TaskProgress:
    """Reads a task's output lines and stores its progress.

    Args:
        task_instance: The running task instance; None to store nothing.
        clock: Returns seconds; replaced in tests.
    """

    def __init__(self, task_instance: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._task_instance = task_instance
        self._clock = clock
        self._next = -1.0
        self._spark_ui = ""

    def hear(self, line: str) -> None:
        """Process an output line; most lines carry no progress."""
        if self._task_instance is None:
            return
        if isinstance(line, SparkUiLine):
            self._spark_ui = line.address
            self._push(SPARK_UI_KEY, self._spark_ui)
        store_waiting(self._task_instance, line)
        if not isinstance(line, ProgressLine) or line.job not in _JOBS or not line.name:
            return
        now = self._clock()
        if line.percent < 100 and now < self._next:
            return
        self._next = now + SECONDS
        names = ("job", "name", "done", "total", "unit", "percent", "rate", "left")
        document = {
            **{name: getattr(line, name) for name in names},
            "spark_ui": self._spark_ui,
            "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        self._push(PROGRESS_KEY, document)

    def _push(self, key: str, value: object) -> None:
        try:
            self._task_instance.xcom_push(key=key, value=value)
        except Exception as error:
            # Failing to show progress must not fail the task.
            log.warning("can't store progress: %s: %s", type(error).__name__, error)
            self._task_instance = None
