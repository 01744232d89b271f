"""What the operator that republishes asks the core for, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException

from kafka_drain.archive.archive import Archive
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, DeliveryError
from kafka_drain.output import heard_by
from kafka_drain.republish.engines.select import Engines
from kafka_drain_airflow import RepublishToKafkaOperator
from tests.core_calls import MANUAL, CoreCalls, Frozen, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

OPERATOR = "kafka_drain_airflow.operators.republish"
CORE = "kafka_drain.republish"
CLUSTER = FakeCluster({})
RECEIPT = {"verified": True, "records_sent": 5, "sent": [], "through": {}, "request": {}}
SHARDS = [SimpleNamespace(target=f"{t}.restored", records=n) for t, n in (("a", 2), ("a", 1))]


class Sending(SimpleNamespace):
    """A planned republish, which sends five records, or raises an error."""

    def __init__(
        self, *, error: Exception | None = None, delivery: str = "exactly_once", ended: bool = True
    ) -> None:
        plan = Planned(records=5, delivery=delivery, shards=SHARDS)
        plan.summary = lambda: {"records": 5}
        super().__init__(plan=plan, error=error, run=SimpleNamespace(has_ended=ended))
        self.request = SimpleNamespace(limits=(0.0, 0.0))
        self.said: list[object] = []

    def execute(self, engines: Engines, clock: Callable[[], datetime]) -> dict[str, Any]:
        """Note the engines."""
        self.said += [engines, clock]
        if self.error:
            raise self.error
        return dict(RECEIPT)

    def abort(self) -> None:
        """Note that nothing more is sent."""
        self.said.append("abort")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline."""
    archive = str(tmp_path / "archive")
    return Pipeline(name="p", topics=["t"], archive=archive, kafka_conn_id="of_p")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which has planned to send five records; nobody signs."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{OPERATOR}.kafka_cluster", CLUSTER)
    calls.replace(f"{OPERATOR}.hash_key", b"the key")
    calls.replace(f"{OPERATOR}.evidence_signer")
    calls.replace(f"{CORE}.run.plan_republish", Sending())
    calls.replace(f"{CORE}.run.sign_run", "evidence/republish")
    calls.replace(f"{CORE}.approved.freeze_republish", (Sending(), Frozen()))
    calls.replace(f"{CORE}.approved.plan_approved", (Sending(), Frozen()))
    calls.replace("kafka_drain_airflow.observability.metrics.tell_republish")
    return calls


def send(pipeline: Pipeline, **fields: Any) -> RepublishToKafkaOperator:
    """Return the operator, as task `send` of DAG `elt`."""
    with DAG("elt", schedule=None):
        return RepublishToKafkaOperator(task_id="send", pipeline=pipeline, **fields)


@pytest.mark.parametrize(
    ("follow", "map_index", "name"),
    [
        (False, -1, "elt run 1 send"),
        (False, 0, "elt run 1 send 0"),
        (True, -1, "elt send"),
        (True, 0, "elt send 0"),
        (True, 3, "elt send 3"),
    ],
)
def test_run_name(pipeline: Pipeline, follow: bool, map_index: int, name: str) -> None:
    """Each mapped task has a run of its own; a follower's is the same in every DAG run."""
    context: Any = {"run_id": "run 1", "ti": SimpleNamespace(map_index=map_index)}

    assert send(pipeline, follow=follow)._run_name(context, follow) == name


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"apply": True}, "plan_republish"),
        ({"apply": False}, "plan_republish"),
        ({"apply": True, "freeze": True}, "plan_republish"),
        ({"apply": False, "freeze": True, "plan_hours": "2"}, "freeze_republish"),
        ({"apply": True, "plan_id": "x1"}, "plan_approved"),
        ({"apply": False, "plan_id": "x1"}, "plan_approved"),
        ({"apply": False, "plan_id": "x1", "freeze": True}, "plan_approved"),
        ({"apply": True, "plan_id": "None"}, "plan_republish"),
    ],
)
def test_execute(core: CoreCalls, pipeline: Pipeline, fields: dict[str, Any], asked: str) -> None:
    """Only Apply sends; a plan's id counts before all else, and only a dry run is frozen."""
    applies = fields["apply"]
    task = send(pipeline, topics=["t"], **fields)

    context: Any = {**MANUAL, "ti": SimpleNamespace(map_index=-1)}
    said: list[str] = []
    with heard_by(said.append):
        figures = task.execute(context)

    assert any("dry run: nothing was changed" in line for line in said) is not applies
    planners = ("plan_republish", "freeze_republish", "plan_approved")
    assert [name for name in core.order if name in planners] == [asked]
    (archive, cluster, what), named = core.given[asked]
    assert (archive, cluster) == (Archive.at(pipeline.archive), CLUSTER)
    assert named["hash_key"] == b"the key"
    assert abs(utc_now() - named["now"]) < timedelta(minutes=1)
    if asked == "freeze_republish":
        assert named["lifetime"] == timedelta(hours=2)
        # A frozen plan has a run of its own.
        assert not what.run_name
    else:
        assert named["apply"] is applies
    if asked == "plan_approved":
        assert what == "x1"
    else:
        assert what.topics == ("t",)
    if asked == "plan_republish":
        assert what.run_name == "elt manual 1 send"
    sent = {"verified": True, "records_sent": 5} if applies else {}
    frozen = {"plan_id": "x1"} if not applies and asked != "plan_republish" else {}
    assert figures == {"records": 5} | CLUSTER.named() | sent | frozen
    assert core.given["kafka_cluster"] == (("of_p",), {})
    assert core.given["hash_key"] == ((pipeline,), {})
    assert ("tell_republish" in core.given) is applies
    assert (task._lineage is not None) is applies
    assert task.plan == "- what is planned"
    assert "sign_run" not in core.given


def test_execute_named_run(core: CoreCalls, pipeline: Pipeline) -> None:
    """A run with a name keeps it, in every task."""
    send(pipeline, apply=True, run_name="mine").execute(MANUAL)

    assert core.given["plan_republish"][0][2].run_name == "mine"


def test_execute_engines(
    core: CoreCalls, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines send to the target, have a private folder, and are closed whatever happens."""
    seen: list[tuple[Any, ...]] = []

    class Noting(Engines):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            seen.append((*given[:3], given[3].stat().st_mode & 0o777, given[4].run))

        def __exit__(self, *_: object) -> None:
            seen.append(("closed",))

    monkeypatch.setattr(f"{CORE}.engines.select.Engines", Noting)
    sending = Sending(error=DeliveryError("no answer"))
    core.replace(f"{CORE}.run.plan_republish", sending)
    task = send(pipeline, apply=True, run_name="mine")

    with pytest.raises(DeliveryError):
        task.execute(MANUAL)

    asked = (pipeline.archive, CLUSTER, pipeline, 0o700, task.run_application)
    assert seen == [asked, ("closed",)]
    assert [type(each) for each in sending.said[:1]] == [Noting]


def test_execute_tells(core: CoreCalls, pipeline: Pipeline) -> None:
    """What was sent where is told by the metrics and the lineage, in the whole receipt's words."""
    task = send(pipeline, apply=True, run_name="mine")

    task.execute(MANUAL)

    assert core.given["tell_republish"] == (("p", RECEIPT), {})
    lineage = task._lineage
    assert lineage is not None
    assert {name: n for (_, name), n in lineage.outputs.items()} == {"a.restored": 3}


@pytest.mark.parametrize("ended", [True, False])
def test_execute_signed(core: CoreCalls, pipeline: Pipeline, ended: bool) -> None:
    """The evidence of a run is signed once it has ended; a follower's goes on."""
    core.replace(f"{OPERATOR}.evidence_signer", "the signer")
    sending = Sending(ended=ended)
    core.replace(f"{CORE}.run.plan_republish", sending)

    send(pipeline, apply=True, run_name="mine").execute(MANUAL)

    assert ("sign_run" in core.given) is ended
    if ended:
        assert core.given["sign_run"][0][:3] == (
            Archive.at(pipeline.archive),
            sending.run,
            "the signer",
        )


@pytest.mark.parametrize(
    ("delivery", "error", "raised"),
    [
        ("exactly_once", DeliveryError("no answer"), DeliveryError),
        ("at_least_once", DeliveryError("no answer"), AirflowFailException),
        ("at_least_once", ConfigError("no topic"), AirflowFailException),
        ("exactly_once", ConfigError("no topic"), AirflowFailException),
    ],
)
def test_execute_fails(
    core: CoreCalls,
    pipeline: Pipeline,
    delivery: str,
    error: Exception,
    raised: type[Exception],
) -> None:
    """A retry would send again what at_least_once has sent: it is tried again only without."""
    core.replace(f"{CORE}.run.plan_republish", Sending(error=error, delivery=delivery))

    with pytest.raises(raised, match=str(error)) as failed:
        send(pipeline, apply=True, run_name="mine").execute(MANUAL)

    is_warned = "Some records may already be in the target" in str(failed.value)
    assert is_warned is (delivery == "at_least_once" and isinstance(error, DeliveryError))
    assert "tell_republish" not in core.given


START, END = (datetime(2026, 1, 1, hour, tzinfo=timezone.utc) for hour in (0, 1))


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ({}, (START, END)),
        ({"from_time": "2025-12-01T00:00Z"}, (datetime(2025, 12, 1, tzinfo=timezone.utc), None)),
        ({"to_time": "2025-12-01T00:00Z"}, (None, datetime(2025, 12, 1, tzinfo=timezone.utc))),
    ],
)
@pytest.mark.parametrize("run_type", ["backfill", "scheduled"])
def test_execute_interval(
    core: CoreCalls, pipeline: Pipeline, run_type: str, fields: dict[str, Any], times: Any
) -> None:
    """A backfill's run sends the records of its data interval, unless a time is set."""
    run = SimpleNamespace(run_type=run_type, conf={})
    interval = {"data_interval_start": START, "data_interval_end": END}
    context: Any = {**MANUAL, **interval, "dag_run": run}

    send(pipeline, apply=True, run_name="mine", **fields).execute(context)

    asked = core.given["plan_republish"][0][2]
    expected = times if fields or run_type == "backfill" else (None, None)
    assert (asked.from_time, asked.to_time) == expected


@pytest.mark.parametrize("is_sending", [True, False])
def test_on_kill(
    core: CoreCalls, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, is_sending: bool
) -> None:
    """A killed task stops its senders and Spark, and then aborts what is open in Kafka."""
    order: list[str] = []
    sending = Sending()
    task = send(pipeline, apply=is_sending, run_name="mine")
    core.replace(f"{CORE}.run.plan_republish", sending)
    task.execute(MANUAL)
    monkeypatch.setattr(Engines, "stop", lambda _: order.append("senders"))
    monkeypatch.setattr(sending, "abort", lambda: order.append("abort"))
    spark: Any = SimpleNamespace(stop=lambda: order.append("spark"))
    task._spark = spark

    task.on_kill()

    assert order == (["senders"] if is_sending else []) + ["spark", "abort"]


def test_on_kill_before_a_plan(pipeline: Pipeline) -> None:
    """A task that is killed while it plans has nothing to stop."""
    send(pipeline, apply=True).on_kill()
