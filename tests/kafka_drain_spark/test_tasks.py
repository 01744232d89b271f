"""The progress of running tasks, as Spark's own status store or a server tells it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.progress import Progress
from kafka_drain_spark import tasks
from kafka_drain_spark.tasks import finished_tasks, records_read, save_shown
from tests.kafka_drain_spark.test_session import remote


def classic(*stages: tuple[int, int]) -> Any:
    """A session whose active stages have read some records, and finished some tasks."""
    active = [
        SimpleNamespace(inputRecords=lambda n=read: n, numCompleteTasks=lambda n=done: n)
        for read, done in stages
    ]
    listed = SimpleNamespace(size=lambda: len(active), apply=active.__getitem__)
    store = SimpleNamespace(activeStages=lambda: listed)
    sc = SimpleNamespace(statusStore=lambda: store)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: sc)))


def test_tasks_of_classic() -> None:
    """All active stages are added up."""
    spark = classic((100, 2), (20, 5))

    assert (records_read(spark), finished_tasks(spark)) == (120, 7)
    assert (records_read(classic()), finished_tasks(classic())) == (0, 0)


def test_tasks_of_remote() -> None:
    """A server tells of finished tasks, by operation, until the operation has ended."""
    handlers: list[Any] = []
    spark = remote(registerProgressHandler=handlers.append)

    assert records_read(spark) is None
    assert finished_tasks(spark) == 0
    [hear] = handlers
    stages = [SimpleNamespace(num_completed_tasks=n) for n in (2, 3)]
    hear(stages, 1, "a", False)
    hear(None, 0, "b", False)
    assert finished_tasks(spark) == 5
    hear(stages[:1], 1, "b", False)
    assert finished_tasks(spark) == 7
    hear(stages, 0, "a", True)
    assert finished_tasks(spark) == 2
    # Asked once for each session.
    assert len(handlers) == 1


def test_tasks_of_remote_after_another() -> None:
    """A session that stands where an ended one stood has no tasks of that one."""
    for _ in range(100):
        handlers: list[Any] = []
        spark = remote(registerProgressHandler=handlers.append)
        assert finished_tasks(spark) == 0
        handlers[0]([SimpleNamespace(num_completed_tasks=1)], 1, "a", False)
        assert finished_tasks(spark) == 1
        del spark


@pytest.mark.parametrize("is_remote", [True, False])
def test_save_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_remote: bool
) -> None:
    """Until a write has ended, it is shown what is read of its records, or how many tasks are."""
    polls = iter([False, False, True])
    monkeypatch.setattr(
        tasks, "Background", lambda save: SimpleNamespace(ended=lambda _: save() or next(polls))
    )
    spark = remote(registerProgressHandler=id) if is_remote else classic((100, 2))
    saved: list[None] = []

    save_shown(spark, lambda: saved.append(None), Progress("records", 200), "window w")

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    shown = "window w: 0 tasks finished" if is_remote else "window w: 100 of 200 records (50 %)"
    assert all(line.startswith(shown) for line in lines)
    assert saved
