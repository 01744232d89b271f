"""Progress of a task, parsed from its output."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.output import OutageLine
from kafka_drain.progress import Progress, ProgressLine
from kafka_drain.spark.client_mode import read_spark_line
from kafka_drain_airflow.connections import waiting_said
from kafka_drain_airflow.observability.task_progress import SECONDS, TaskProgress, is_progress

WORDS = {"spark_ui": "", "at": ""}


class Task:
    """A task instance that keeps its XComs."""

    def __init__(self, fails: bool = False) -> None:
        self.pushed: list[dict[str, Any]] = []
        self.spark_ui = ""
        self.waiting: list[str] = []
        self.fails = fails

    def xcom_push(self, key: str, value: Any) -> None:
        if key == "spark_ui":
            self.spark_ui = value
        elif key == "waiting":
            self.waiting.append(waiting_said(value))
        else:
            assert key == "progress"
            self.pushed.append(value)
        if self.fails:
            raise ConnectionError("no API server")


def heard(*lines: str, seconds: float = SECONDS, task: Task | None = None) -> list[dict[str, Any]]:
    """Return what is stored when lines arrive at a given interval in seconds."""
    task = task or Task()
    times = iter(range(1000))
    progress = TaskProgress(task, lambda: next(times) * seconds)
    for line in lines:
        progress.hear(line if isinstance(line, ProgressLine) else read_spark_line(line))
    return task.pushed


@given(
    done=st.integers(0, 10**9),
    total=st.integers(1, 10**9),
    seconds=st.floats(0.001, 10**6),
    unit=st.sampled_from(["offsets", "records", "source partitions"]),
)
def test_hear_property(done: int, total: int, seconds: float, unit: str) -> None:
    """Every progress line that a job can print is understood."""
    clock = iter([0.0, seconds, seconds, seconds])
    progress = Progress(unit, total, lambda: next(clock))

    [kept] = heard(progress.line("drain a.b-c", done))

    assert (kept["job"], kept["name"], kept["unit"]) == ("drain", "a.b-c", unit)
    assert (kept["done"], kept["total"]) == (done, max(done, total))
    assert kept["percent"] == 100 * done // max(done, total)
    assert bool(kept["rate"]) == bool(done)
    assert bool(kept["left"]) == (0 < done < total)
    assert is_progress(kept)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {},
        {"done": "1", "total": 2, "percent": 50, "unit": "", "rate": "", "left": "", **WORDS},
        {"done": 1, "total": 2, "percent": 500, "unit": "", "rate": "", "left": "", **WORDS},
        {"done": 1, "total": 2, "percent": 50, "unit": [], "rate": "", "left": "", **WORDS},
    ],
)
def test_is_progress_of_others(value: Any) -> None:
    """A value that another task wrote under that key isn't shown."""
    assert not is_progress(value)


def test_hear_not_too_often() -> None:
    """Because a write is a request, not every line is written, but the last one always is."""
    lines = [f"drain a: {n} of 100 offsets ({n} %)" for n in range(1, 101)]

    kept = heard(*lines, seconds=SECONDS / 10)

    assert [document["done"] for document in kept] == [*range(1, 100, 10), 100]


@pytest.mark.parametrize(
    "line",
    [
        "drain a: 100 offsets planned",
        "26/11/22 WARN 5 of 6 tasks (80 %) failed",
        "drain a: nothing new; every offset that Kafka holds is drained",
        "",
        # Work whose progress isn't shown, or that has no name.
        "maintain a: 5 of 6 bytes (83 %)",
        "validate: 5 of 6 files (83 %)",
    ],
)
def test_hear_other_lines(line: str) -> None:
    """Lines without progress are not stored."""
    assert heard(line) == []


def test_hear_api_server_gone(caplog: pytest.LogCaptureFixture) -> None:
    """If progress can't be stored, the task continues and logs it once."""
    task = Task(fails=True)
    lines = [f"drain a: {n} of 9 offsets (0 %)" for n in range(9)]

    with caplog.at_level(logging.WARNING):
        heard(*lines, task=task)

    assert len(task.pushed) == 1
    assert caplog.messages == ["can't store progress: ConnectionError: no API server"]


def test_hear_without_task() -> None:
    """Outside of a task, nothing is stored."""
    TaskProgress(None).hear("drain a: 1 of 2 offsets (50 %)")


def test_hear_outages() -> None:
    """What a task waits for is stored at once, until it is over; no other line is."""
    task = Task()
    progress = TaskProgress(task)

    for line in (
        OutageLine("waiting: no response", is_over=False),
        "waiting: for a friend",
        OutageLine("Kafka answers again, after 9 s", is_over=True),
    ):
        progress.hear(line)

    assert task.waiting == ["waiting: no response", ""]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, ""),
        ("text", ""),
        ({"said": 1}, ""),
        ({}, ""),
        ({"said": "x" * 5000}, "x" * 1000),
    ],
)
def test_waiting_said_by_others(value: object, said: str) -> None:
    """Any task may write a value under that key."""
    assert waiting_said(value) == said


def test_hear_spark_ui() -> None:
    """The Spark UI's URL is stored immediately, and with all later progress."""
    task = Task()
    [before, after] = heard(
        "drain a: 0 of 10 offsets (0 %)",
        "spark ui: http://driver:4040",
        "drain a: 5 of 10 offsets (50 %)",
        task=task,
    )

    assert task.spark_ui == "http://driver:4040"
    assert (before["spark_ui"], after["spark_ui"]) == ("", "http://driver:4040")
    assert is_progress(after)
