"""How groups of shards become Spark's tasks, and what share of a limit each of them gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.republish.sending.progress_store import ProgressStore
from kafka_drain.spark.job_spec import SendSpec
from kafka_drain_spark.send import LANES, configured_cores, most_at_once, run_send, shared_out


@given(st.integers(1, 60), st.integers(1, 40), st.booleans())
def test_shared_out_each_once(groups: int, slots: int, is_limited: bool) -> None:
    """Each group is in one task, and no task is empty, whatever the number of slots."""
    tasks = shared_out(list(range(groups)), slots, is_limited=is_limited)

    assert sorted(group for task in tasks for group in task) == list(range(groups))
    assert all(tasks)


@pytest.mark.parametrize(
    ("groups", "slots", "is_limited", "sizes"),
    [
        (1, 4, False, [1]),
        (4, 4, False, [1, 1, 1, 1]),
        (5, 4, False, [2, 2, 1]),
        (8, 4, False, [2, 2, 2, 2]),
        (8, 2, False, [2, 2, 2, 2]),
        (1, 4, True, [1]),
        (4, 4, True, [1, 1, 1, 1]),
        (5, 4, True, [2, 1, 1, 1]),
        (8, 3, True, [3, 3, 2]),
        (8, 2, True, [4, 4]),
        (8, 1, True, [8]),
    ],
)
def test_shared_out_slots(groups: int, slots: int, is_limited: bool, sizes: list[int]) -> None:
    """Without a limit a task has two groups at most; with one there is a task for each slot."""
    tasks = shared_out(list(range(groups)), slots, is_limited=is_limited)

    assert [len(task) for task in tasks] == sizes


@given(st.integers(1, 60), st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_most_at_once_any_slots(groups: int, known: int, there: int, is_limited: bool) -> None:
    """However many slots there turn out to be, no more is sent at once than shares the limit.

    A standalone cluster's executors register after the tasks were made.
    """
    tasks = shared_out(list(range(groups)), known, is_limited=is_limited)
    running = tasks[:there]

    assert sum(min(len(task), LANES) for task in running) <= most_at_once(tasks)
    if is_limited and there >= known:
        # Nothing of the limit is left over while all tasks run.
        assert len(running) == len(tasks)


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({}, 0),
        ({"spark.cores.max": "4"}, 4),
        ({"spark.executor.instances": "3"}, 3),
        ({"spark.executor.instances": "3", "spark.executor.cores": "2"}, 6),
        ({"spark.executor.cores": "2"}, 0),
        ({"spark.cores.max": "4", "spark.executor.cores": "2"}, 4),
    ],
)
def test_configured_cores_settings(settings: dict[str, str], cores: int) -> None:
    """What the application asks the cluster for: standalone by cores, others by executors."""
    assert configured_cores(lambda name, default: settings.get(name, default)) == cores


@pytest.mark.parametrize("error", [KafkaUnavailableError("no answer"), None])
def test_run_send_progress_unknown(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: Exception | None,
) -> None:
    """An outage that the senders survive doesn't end them; it is said once."""
    reads: list[float] = []

    def read(_: object, slots: object, timeout: float = 60.0) -> dict[Any, Any]:
        reads.append(timeout)
        if error is not None:
            raise error
        return {}

    def send(_: object, groups: object, tick: Callable[[], None]) -> dict[str, int]:
        tick()
        tick()
        return {"records": 7}

    monkeypatch.setattr(ProgressStore, "read", read)
    monkeypatch.setattr("kafka_drain_spark.send.send_groups", send)
    secrets = tmp_path / "secrets.json"
    secrets.write_text("{}")
    spec = SendSpec(
        run="orders",
        groups=[],
        records=9,
        result_path="",
        secrets_path=str(secrets),
        log_levels={},
    )

    assert run_send(None, spec) == {"records": 7}  # type: ignore[arg-type]

    said = capsys.readouterr().out
    assert said.count("republish orders: 0 of 9 records (0 %)") == (0 if error else 2)
    assert said.count("republish orders: the progress is unknown: no answer") == bool(error)
    # Two seconds pass between two of them.
    assert max(reads) <= 5
