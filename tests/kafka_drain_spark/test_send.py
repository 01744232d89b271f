"""How groups of shards become Spark's tasks, and what share of a limit each of them gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.errors import KafkaUnavailableError, SupersededError
from kafka_drain.republish.changing.change import Change
from kafka_drain.republish.changing.spec import ChangeRequest, ChangeSpec
from kafka_drain.republish.sending.progress_store import ProgressStore, ShardProgress
from kafka_drain.republish.sending.shard_sender import SendJob
from kafka_drain.spark.job_spec import HASH_KEY, SendSpec
from kafka_drain_spark import send
from kafka_drain_spark.send import (
    LANES,
    configured_cores,
    most_at_once,
    run_send,
    send_groups,
    shared_out,
)
from tests.kafka_drain.republish.planning.test_plan import PLAN


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
        ({"spark.cores.max": "", "spark.executor.instances": ""}, 0),
        ({"spark.executor.instances": "3", "spark.executor.cores": ""}, 3),
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


def job(at: int = 0, **changes: Any) -> SendJob:
    """A job that sends one of the plan's shards."""
    values: dict[str, Any] = {
        "root": "",
        "key": f"job {at}",
        "plan": "p",
        "attempt": 1,
        "attempts": PLAN.attempts,
        "shards": PLAN.shards[1:],
        "partitions": 2,
        "provenance": False,
        "settings": {},
    }
    return SendJob(**(values | changes))


@pytest.mark.parametrize("changed", [False, True])
def test_run_send_jobs(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changed: bool,
) -> None:
    """Each job gets its secrets, and the key only where it is due; progress is of all shards."""
    change = Change(ChangeSpec(ChangeRequest(drop_headers=("h",)), None, "id")) if changed else None
    made = job(change=change)
    opened: list[Any] = []
    closed: list[object] = []

    class Store:
        def __init__(self, settings: dict[str, str], *, waits: bool = True) -> None:
            opened.append((dict(settings), waits))

        def read(self, slots: list[Any], timeout: float) -> dict[Any, Any]:
            assert slots == [made.shard.progress]
            return {slots[0]: ShardProgress(4, 3, "p"), "not begun": None}

        def close(self) -> None:
            closed.append(self)

    def send_all(_: object, groups: list[list[SendJob]], tick: Callable[[], None]) -> None:
        settings = {"sasl.password": "secret"}
        keyed = replace(change, key=b"\x0a") if change else None
        assert groups == [[replace(made, settings=settings, change=keyed)]]
        tick()
        raise KafkaUnavailableError("no answer")

    monkeypatch.setattr(send, "ProgressStore", Store)
    monkeypatch.setattr(send, "send_groups", send_all)
    secrets = tmp_path / "secrets.json"
    secrets.write_text(f'{{"sasl.password": "secret", "{HASH_KEY}": "0a"}}')
    spec = SendSpec(
        run="orders",
        groups=[[made.to_dict()]],
        records=9,
        result_path="",
        secrets_path=str(secrets),
        log_levels={},
    )

    with pytest.raises(KafkaUnavailableError):
        run_send(None, spec)  # type: ignore[arg-type]

    # An open transaction mustn't hold up what is shown.
    assert opened == [({"sasl.password": "secret"}, False)]
    assert len(closed) == 1
    assert "republish orders: 3 of 9 records (33 %)" in capsys.readouterr().out


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks that Spark got, on a cluster with two slots; they run here."""
    given: list[Any] = []

    def in_tasks(_: object, items: list[Any], count: int, function: Any) -> Callable[[], Any]:
        assert len(items) == count
        given.extend(items)
        return lambda: list(function(items))

    monkeypatch.setattr(send, "in_tasks", in_tasks)
    monkeypatch.setattr(send, "cores_of", lambda _: 2)
    return given


def spark_with(**settings: str) -> Any:
    """A session with settings."""
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, other: settings.get(name, other)))


def test_send_groups_shares(tasks: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A limited group makes one task for each slot; each writer has its share; all are summed."""
    sent: list[str] = []

    def send_shard(one: SendJob) -> int:
        sent.append(one.key)
        return 5

    monkeypatch.setattr(send, "send_shard", send_shard)
    groups = [[job(0, records_per_second=60.0), job(1)], [job(2)], [job(3)]]

    assert send_groups(spark_with(), groups, lambda: None) == {"records": 20}

    assert [[[one.key for one in jobs] for jobs in task] for task in tasks] == [
        [["job 0", "job 1"], ["job 3"]],
        [["job 2"]],
    ]
    assert tasks[0][0][0].records_per_second == 20
    assert sorted(sent) == ["job 0", "job 1", "job 2", "job 3"]
    assert sent.index("job 0") < sent.index("job 1")


@pytest.mark.parametrize(("most", "sizes"), [("1", [2, 1]), ("4", [1, 1, 1])])
def test_send_groups_cluster_grows(
    tasks: list[Any], monkeypatch: pytest.MonkeyPatch, most: str, sizes: list[int]
) -> None:
    """What the cluster was asked for counts where it is more than what is there already."""
    monkeypatch.setattr(send, "send_shard", lambda _: 1)
    spark = spark_with(**{"spark.cores.max": most})

    assert send_groups(spark, [[job(at)] for at in range(3)], lambda: None) == {"records": 3}

    assert [len(task) for task in tasks] == sizes


def test_send_groups_one_refused(tasks: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first shard that can't be sent is told; the other groups are sent to their end."""
    sent: list[str] = []

    def send_shard(one: SendJob) -> int:
        if one.key == "job 1":
            raise SupersededError("another attempt began")
        sent.append(one.key)
        return 1

    monkeypatch.setattr(send, "send_shard", send_shard)

    answer = send_groups(spark_with(), [[job(0)], [job(1), job(2)], [job(3)]], lambda: None)

    assert answer == {"shard_error": "SupersededError", "message": "another attempt began"}
    assert sorted(sent) == ["job 0", "job 3"]


def test_send_groups_retried(tasks: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage fails the task, which Spark tries again, by a message that names the error."""

    def send_shard(_: SendJob) -> int:
        raise KafkaUnavailableError("no answer")

    monkeypatch.setattr(send, "send_shard", send_shard)

    with pytest.raises(RuntimeError, match=r"^KafkaUnavailableError: no answer$"):
        send_groups(spark_with(), [[job()]], lambda: None)


def test_send_groups_progress(tasks: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """While records are sent, the progress is shown again and again."""
    shown: list[int] = []
    ended = Event()

    def tick() -> None:
        shown.append(len(shown))
        if len(shown) == 2:
            ended.set()

    def send_shard(_: SendJob) -> int:
        assert ended.wait(10)
        return 1

    monkeypatch.setattr(send, "send_shard", send_shard)
    monkeypatch.setattr(send, "PROGRESS_SECONDS", 0.001)

    assert send_groups(spark_with(), [[job()]], tick) == {"records": 1}
    assert len(shown) >= 2
