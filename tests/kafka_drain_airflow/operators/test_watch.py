"""Which drains a watch starts, which it doesn't, and what it waits for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.watch import Watch
from kafka_drain.errors import ConfigError, KafkaUnavailableError, StoreUnavailableError
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.lease import hold_lease
from kafka_drain_airflow.observability import metrics
from kafka_drain_airflow.operators import watch
from kafka_drain_airflow.operators.watch import Period, WatchOperator, check_watched
from kafka_drain_airflow.watch_dag import create_watch_dag
from tests.kafka_drain.drain.test_preflight import A0, A1, drained_archive
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import golden_cluster, sealed_copy

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
LAG = "a lag of 10 offsets reached the limit of 10"


class Runs:
    """A task instance that knows the runs of other DAGs, by DAG and run id."""

    def __init__(self, **runs: str) -> None:
        self.runs = runs

    def get_dr_count(
        self, dag_id: str, states: Sequence[str] = (), run_ids: Sequence[str] = ()
    ) -> int:
        assert dag_id in ("drain_p", "team_a.drain.p")
        return sum(
            (not states or state in states) and (not run_ids or run_id in run_ids)
            for run_id, state in self.runs.items()
        )


Opened = Callable[[str], Any]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline that is drained to 20 of a-0 and to 5 of a-1."""
    drained_archive(tmp_path / "archive")
    return Pipeline(name="p", topics=["a"], archive=str(tmp_path / "archive"), watch={"lag": 10})


def kafka(monkeypatch: pytest.MonkeyPatch, first: int = 0, end: int = 30) -> list[str]:
    """Let connections lead to a Kafka, but `down`; returns which were opened."""
    opened: list[str] = []

    def cluster(conn_id: str) -> Any:
        opened.append(conn_id)
        if conn_id == "down":
            raise KafkaUnavailableError("no response")
        return FakeCluster({A0: Log(first=first, end=end), A1: Log(end=5)})

    monkeypatch.setattr(watch, "kafka_cluster", cluster)
    return opened


def operator_of(*pipelines: Pipeline, **changes: Any) -> WatchOperator:
    return WatchOperator(task_id="watch", pipelines=pipelines, **changes)


def context_of(**runs: str) -> Any:
    return {"ti": Runs(**runs)}


def deferred(operator: WatchOperator, context: Any) -> dict[str, Any]:
    """Run an operator that has to wait; return what its trigger is made of."""
    with pytest.raises(TaskDeferred) as raised:
        operator.execute(context)
    assert raised.value.method_name == "resume"
    arguments = dict(raised.value.trigger.serialize()[1])
    # Without a triggerer, the scheduler ends the wait: the next try looks itself.
    until = hours_until(arguments)
    # Not over yet, or a run would follow the other at once.
    assert until > -0.001
    assert raised.value.timeout is not None
    assert until < raised.value.timeout.total_seconds() / 3600 < until + 0.25
    return arguments


def hours_until(arguments: dict[str, Any]) -> float:
    until = datetime.fromisoformat(arguments["until"])
    return (until - datetime.now(timezone.utc)).total_seconds() / 3600


@pytest.mark.parametrize(
    ("at", "minutes", "start", "end"),
    [
        ("12:00:00", 15, "12:00", "12:15"),
        ("12:14:59", 15, "12:00", "12:15"),
        ("12:15:00", 15, "12:15", "12:30"),
        ("23:59:59", 24 * 60, "00:00", "00:00"),
    ],
)
def test_period(at: str, minutes: int, start: str, end: str) -> None:
    """All moments of a period give it the same start, and so its run the same id."""
    now = datetime.fromisoformat(f"2026-01-01T{at}+00:00")

    found = Period.of(now, timedelta(minutes=minutes))

    assert (f"{found.start:%H:%M}", f"{found.end:%H:%M}") == (start, end)
    assert found.run_id == f"watch__2026-01-01T{start}:00+00:00"


def test_watch_due(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain that is due is started with the reason; a retry starts the same run."""
    kafka(monkeypatch)
    operator = operator_of(pipeline)
    period = Period.of(datetime.now(timezone.utc), timedelta(days=1), "watch")
    operator.again_minutes = 24 * 60

    (run,) = operator.execute(context_of(old="success", older="failed"))

    assert run == {
        "trigger_dag_id": "drain_p",
        "trigger_run_id": period.run_id,
        "conf": {"reason": LAG},
    }
    assert operator.execute(context_of()) == [run]
    operator.drain_dag_id = "team_a.drain.{name}"
    assert operator.execute(context_of())[0]["trigger_dag_id"] == "team_a.drain.p"


def test_watch_due_pattern_of_the_factory(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pattern that `create_dags` takes for its DAGs' ids names the drains here, too."""
    kafka(monkeypatch)
    operator = operator_of(pipeline, drain_dag_id="team_a.{kind}.{name}")

    (run,) = operator.execute(context_of())

    assert run["trigger_dag_id"] == "team_a.drain.p"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"again_minutes": 0}, "again_minutes = 0 is not acceptable; accepted: a number above 0"),
        ({"again_minutes": -15}, "again_minutes = -15 is not acceptable"),
        ({"again_minutes": "15"}, "again_minutes = '15' is not acceptable"),
        ({"again_minutes": float("nan")}, "again_minutes = nan is not acceptable"),
        ({"again_minutes": float("inf")}, "again_minutes = inf is not acceptable"),
        ({"poll_seconds": 0}, "poll_seconds = 0 is not acceptable"),
        ({"drain_dag_id": "drain_{pipeline}"}, "drain_dag_id = 'drain_{pipeline}' is not accept"),
        ({"drain_dag_id": "drain_{name"}, "accepted: a text with {name}, such as 'team_a"),
        ({"drain_dag_id": "drain"}, "accepted: a text with {name}"),
        ({"drain_dag_id": "drain_{}"}, "accepted: a text with {name}"),
    ],
)
def test_watch_arguments_refused(arguments: dict[str, Any], said: str) -> None:
    """What no period or DAG can be made of is refused when the file is parsed, not in each run."""
    both = [
        Pipeline(name=name, topics=[name], archive=f"/archives/{name}", watch={"lag": 10})
        for name in ("a", "b")
    ]
    with pytest.raises(ConfigError, match=re.escape(said)):
        operator_of(*both, **arguments)
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        create_watch_dag(both, dag_id="watch", **arguments)
    assert str(refused.value).startswith("the watch of pipelines (test_watch.py, line ")


@pytest.mark.parametrize("state", ["queued", "running"])
def test_watch_due_drain_active(
    state: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No second run is started; the triggerer isn't asked, which would end the wait at once."""
    kafka(monkeypatch)
    length = timedelta(minutes=15)
    earlier = Period.of(datetime.now(timezone.utc) - 3 * length, length).run_id

    arguments = deferred(operator_of(pipeline), context_of(**{earlier: state}))

    assert arguments["watched"] == []
    assert hours_until(arguments) <= 0.25


@pytest.mark.parametrize("state", ["success", "failed"])
def test_watch_due_started_before(
    state: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain that failed is started again in the next period, not at once."""
    kafka(monkeypatch)
    day = 24 * 60
    run_id = Period.of(datetime.now(timezone.utc), timedelta(minutes=day)).run_id

    arguments = deferred(operator_of(pipeline, again_minutes=day), context_of(**{run_id: state}))

    assert arguments["watched"] == []
    assert hours_until(arguments) <= 1


def test_watch_due_lease_held(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """No drain is started beside one of a group, of a terminal, or of another Airflow."""
    kafka(monkeypatch)
    with hold_lease(Archive.at(pipeline.archive).root, run="elsewhere"):
        arguments = deferred(operator_of(pipeline), context_of())

    assert arguments["watched"] == []


def test_watch_quiet(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing is due, the triggerer asks on, with the cursor, for at most an hour."""
    kafka(monkeypatch, end=29)

    arguments = deferred(operator_of(pipeline, poll_seconds=7), context_of())

    (asked,) = arguments["watched"]
    assert (asked["pipeline"], asked["cursor"]) == ("p", '{"a":{"0":20,"1":5}}')
    assert arguments["poll_seconds"] == 7
    assert 0.99 < hours_until(arguments) <= 1


def test_watch_resume(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the triggerer saw is looked at again: a drain may have run since."""
    operator = operator_of(pipeline)
    kafka(monkeypatch, end=30)
    assert operator.resume(context_of(), {}) == []
    (run,) = operator.resume(context_of(), {"p": "a lag"})
    assert run["conf"] == {"reason": LAG}

    kafka(monkeypatch, end=20)
    assert operator.resume(context_of(), {"p": "a lag"}) == []


def test_watch_tells_ready(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look says whether an archive could be restored; what can't be told isn't ready."""
    told: dict[str, bool] = {}
    monkeypatch.setattr(
        metrics, "tell_ready", lambda name, *, is_ready: told.update({name: is_ready})
    )
    sealed = sealed_copy(tmp_path / "sealed")
    note_overview(sealed, validate_archive(sealed, golden_cluster()), "reports/r.json")
    ready = pipeline.model_copy(update={"name": "golden", "archive": str(sealed.root)})
    lost = pipeline.model_copy(update={"name": "lost", "archive": str(tmp_path / "lost")})
    other = pipeline.model_copy(update={"name": "other", "archive": str(sealed.root)})

    @contextmanager
    def access(of: Pipeline) -> Iterator[None]:
        if of.name == "down":
            raise StoreUnavailableError("no response")
        yield

    monkeypatch.setattr(watch, "archive_access", access)
    down = pipeline.model_copy(update={"name": "down"})

    monkeypatch.setattr(WatchOperator, "_look", lambda *_: (["a run"], None))

    looked_at = (down, lost, pipeline, ready, other)
    assert operator_of(*looked_at).execute(context_of()) == ["a run"]

    assert told == {"down": False, "lost": False, "p": False, "golden": True, "other": False}


def test_watch_on_worker(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a triggerer, the same wait is on the worker."""
    kafka(monkeypatch, end=20)
    monkeypatch.setattr(watch, "_LOOK", timedelta(seconds=0.05))

    assert operator_of(pipeline, deferrable=False, poll_seconds=0.01).execute(context_of()) == []


def test_watch_refused(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain that would be refused is started once a day, so that it fails where it is seen."""
    kafka(monkeypatch, first=25)
    operator = operator_of(pipeline)

    (run,) = operator.execute(context_of())

    assert run["trigger_run_id"].startswith("watch_refused__")
    assert run["conf"]["reason"].startswith("it would be refused: Kafka no longer holds offsets")
    again = deferred(operator, context_of(**{run["trigger_run_id"]: "failed"}))
    assert again["watched"] == []
    assert hours_until(again) <= 0.25


def test_watch_broker_down(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is down is asked once for all pipelines, starts no drain, and fails nothing."""
    opened = kafka(monkeypatch)
    lost = [
        Pipeline(
            name=name,
            topics=["a"],
            archive=str(tmp_path / name),
            kafka_conn_id="down",
            watch={"lag": 1},
        )
        for name in ("x", "y")
    ]

    arguments = deferred(operator_of(*lost), context_of())
    assert opened == ["down"]
    assert arguments["watched"] == []
    assert hours_until(arguments) <= 0.25

    (run,) = operator_of(*lost, pipeline).execute(context_of())
    assert run["trigger_dag_id"] == "drain_p"


def test_watch_store_down(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that doesn't answer for one pipeline hides no other of the same Kafka."""
    kafka(monkeypatch)
    lost = pipeline.model_copy(update={"name": "lost"})

    @contextmanager
    def access(of: Pipeline) -> Iterator[None]:
        if of is lost:
            raise StoreUnavailableError("no response")
        yield

    monkeypatch.setattr(watch, "archive_access", access)

    (run,) = operator_of(lost, pipeline).execute(context_of())

    assert (run["trigger_dag_id"], run["conf"]) == ("drain_p", {"reason": LAG})


def test_watch_one_pipeline_wrong(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody expected of one pipeline hides no other."""
    kafka(monkeypatch)
    wrong = pipeline.model_copy(update={"name": "wrong", "archive": None})

    (run,) = operator_of(wrong, pipeline).execute(context_of())

    assert run["trigger_dag_id"] == "drain_p"
    assert operator_of(pipeline, wrong).execute(context_of()) == [run]


def test_watch_several(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that are due are started; a quiet one is waited for, also beside a broker that's down."""
    kafka(monkeypatch)
    quiet = pipeline.model_copy(update={"watch": Watch(lag=1000)})
    lost = quiet.model_copy(update={"kafka_conn_id": "down"})

    runs = operator_of(pipeline, quiet, pipeline).execute(context_of())

    assert [run["conf"] for run in runs] == [{"reason": LAG}] * 2
    for both in ((quiet, lost), (lost, quiet)):
        arguments = deferred(operator_of(*both), context_of())
        assert len(arguments["watched"]) == 1
        # What isn't known is looked at again soon.
        assert hours_until(arguments) <= 0.25


def test_check_watched(pipeline: Pipeline) -> None:
    """There is something to watch, and each pipeline says what."""
    check_watched([pipeline])
    with pytest.raises(ConfigError, match="there are no pipelines to watch"):
        check_watched([])
    with pytest.raises(ConfigError, match="pipeline 'p' has no watch"):
        check_watched([pipeline, pipeline.model_copy(update={"watch": None})])


def test_watch_due_beside_a_backfill(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a backfill, queued for hours, drain windows alone: they hold up no drain."""
    kafka(monkeypatch)

    (run,) = operator_of(pipeline).execute(context_of(backfill__1="queued"))

    assert run["conf"] == {"reason": LAG}


def test_watch_due_drain_paused(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has been queued since Friday is the only one."""
    kafka(monkeypatch)
    length = timedelta(minutes=15)
    earlier = Period.of(datetime.now(timezone.utc) - 250 * length, length).run_id

    deferred(operator_of(pipeline), context_of(**{earlier: "queued"}))
