"""The progress of one of Airflow's tasks, as shown on a page. Opens nothing."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_drain.pages.archive_status import ACTIVE, ended_of
from kafka_drain.pages.humanize import is_web_address, time_text
from kafka_drain.pages.overview import Doing

#: Seconds between refreshes of a page while a task is running.
BUSY = 3


@dataclass(frozen=True, slots=True)
class ShownTask:
    """The progress of a task, as shown on the page.

    Attributes:
        name: The DAG and the task.
        link: The run's page in Airflow.
        state: Airflow's state, which is also the CSS class of its colour.
        words: State and progress.
        percent: Whole percent; None if it has reported nothing.
        spark_ui: Address of a running Spark application's UI; the UI ends with the application.
        waiting: Message of a running task about a server that doesn't answer; else empty.
    """

    name: str
    link: str
    state: str
    words: str
    percent: int | None = None
    spark_ui: str = ""
    waiting: str = ""

    @classmethod
    def of(cls, one: Doing) -> ShownTask:
        """Return a task as shown on the page."""
        name, seen = f"{one.dag_id}, {one.task_id}", one.progress
        # A task that has ended says itself why.
        waiting = one.waiting if one.state == "running" else ""
        if not seen:
            words = f"{one.state}, no progress yet" if one.state in ACTIVE else one.state
            return cls(name, one.link, one.state, words, waiting=waiting)
        end = ended_of(one.state, seen["done"], seen["total"], seen["percent"])
        words = f"{end.done:,} of {seen['total']:,} {seen['unit']} ({end.percent} %)"
        if end.has_rate:
            left = f"{seen['left']} left" if seen.get("left") else ""
            words += "".join(f", {more}" for more in (seen.get("rate"), left) if more)
        words = f"{one.state}, {words}, as of {time_text(seen.get('at'))}"
        address = str(seen.get("spark_ui", ""))
        is_there = one.state == "running" and is_web_address(address)
        address = address if is_there else ""
        return cls(name, one.link, one.state, words, end.percent, address, waiting)
