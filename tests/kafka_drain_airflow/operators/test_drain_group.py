"""What the operator that drains a group tells: each pipeline's result, and who wasn't drained."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain import group as core_group
from kafka_drain.errors import ConfigError, KafkaDrainError, LockedError, SparkJobError, TopicError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.offsets import TopicPartition
from kafka_drain_airflow.observability import archive_events
from kafka_drain_airflow.operators import drain_group
from kafka_drain_airflow.operators.drain_group import KafkaDrainGroupOperator
from tests.core_calls import MANUAL, CoreCalls
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application


@pytest.fixture
def pipelines(tmp_path: Path) -> list[Pipeline]:
    """Two pipelines; their topics are empty."""
    return [
        Pipeline(name=name, topics=[name], archive=str(tmp_path / f"archive-{name}"))
        for name in ("a", "b")
    ]


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core with a Kafka that holds nothing."""
    calls = CoreCalls(monkeypatch)
    cluster = FakeCluster({TopicPartition(topic, 0): Log() for topic in ("a", "b")})
    calls.replace("kafka_drain_airflow.operators.drain_group.kafka_cluster", cluster)
    calls.replace("kafka_drain_airflow.observability.metrics.tell_drain")
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    spark = {"conn_type": "spark", "host": "local[2]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    return calls


def test_execute(core: CoreCalls, pipelines: list[Pipeline]) -> None:
    """Each pipeline has its own result, which is told of each."""
    task = KafkaDrainGroupOperator(task_id="drain", pipelines=pipelines)

    done = task.execute(MANUAL)

    assert {name: result["records"] for name, result in done.items()} == {"a": 0, "b": 0}
    assert core.order.count("tell_drain") == 2
    assert task._lineage is not None
    assert len(task._lineage.outputs) == 2
    assert "drain a: " in task.plan
    assert "drain b: " in task.plan


def test_execute_asks(
    core: CoreCalls, pipelines: list[Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group drains each pipeline from its own cluster, in the name of the run."""
    asked: list[Any] = []
    real_open, real_run = core_group.open_group, core_group.run_group

    def open_group(*given: Any, **named: Any) -> Any:
        asked.append((given, named))
        return real_open(*given, **named)

    def run_group(group: Any, runner: Any) -> None:
        asked.append((group, runner))
        real_run(group, runner)

    monkeypatch.setattr(core_group, "open_group", open_group)
    monkeypatch.setattr(core_group, "run_group", run_group)
    first, second = pipelines
    second = second.model_copy(update={"kafka_conn_id": "another"})
    clusters = {
        name: FakeCluster({TopicPartition(topic, 0): Log()})
        for name, topic in (("kafka_default", "a"), ("another", "b"))
    }
    for name, cluster in clusters.items():
        cluster.config = KafkaConfig({"bootstrap.servers": f"{name}:1"})
    monkeypatch.setattr(drain_group, "kafka_cluster", clusters.__getitem__)
    task = KafkaDrainGroupOperator(task_id="drain", pipelines=[first, second])

    task.execute(MANUAL)

    (given, opened, folder), named = asked[0]
    assert given == [first, second]
    assert (named["run"], named["registry_of"]) == ("manual 1", drain_group.schema_registry)
    assert named["find"] == task.find_application
    assert opened == clusters
    assert not folder.exists()
    assert asked[1][1].run == task.run_application
    assert task._lineage is not None
    assert list(task._lineage.inputs) == [
        ("kafka://kafka_default:1", "a"),
        ("kafka://another:1", "b"),
    ]


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ({"a": TopicError("gone")}, AirflowFailException),
        ({"a": TopicError("gone"), "b": TopicError("gone")}, AirflowFailException),
        ({"a": TopicError("gone"), "b": LockedError("held")}, SparkJobError),
    ],
)
def test_execute_failed(
    core: CoreCalls,
    pipelines: list[Pipeline],
    monkeypatch: pytest.MonkeyPatch,
    errors: dict[str, KafkaDrainError],
    kind: type[Exception],
) -> None:
    """The task fails if one pipeline wasn't drained; the others' results are told before."""
    real = core_group.open_drain

    def open_drain(pipeline: Pipeline, *given: Any, **named: Any) -> Any:
        if pipeline.name in errors:
            raise errors[pipeline.name]
        return real(pipeline, *given, **named)

    monkeypatch.setattr(core_group, "open_drain", open_drain)
    task = KafkaDrainGroupOperator(task_id="drain", pipelines=pipelines)

    pushed: dict[str, Any] = {}

    with pytest.raises(kind, match="of the group's pipelines weren't drained: a: gone"):
        task.execute(
            {
                **MANUAL,
                "ti": SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value})),
            }
        )

    assert core.order.count("tell_drain") == 2 - len(errors)
    # The pages take no other pipeline's validation for this one's.
    assert pushed["not_drained"] == sorted(errors)


def test_execute_archive_gone(
    core: CoreCalls, pipelines: list[Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Airflow knows of an archive that isn't there, none is begun."""
    monkeypatch.setattr(archive_events, "last_event", lambda *_: datetime.now(timezone.utc))
    task = KafkaDrainGroupOperator(task_id="drain", pipelines=pipelines)

    with pytest.raises(AirflowFailException, match="2 of the group's pipelines weren't drained"):
        task.execute(MANUAL)

    assert not any(Path(pipeline.archive).exists() for pipeline in pipelines)


@pytest.mark.parametrize("gone", [0, 1])
def test_execute_one_archive_gone(
    gone: int, core: CoreCalls, pipelines: list[Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one archive of the group isn't there, none is begun for it; the others are drained."""
    there = pipelines[1 - gone]
    KafkaDrainGroupOperator(task_id="drain", pipelines=[there]).execute(MANUAL)
    monkeypatch.setattr(archive_events, "last_event", lambda *_: datetime.now(timezone.utc))
    task = KafkaDrainGroupOperator(task_id="drain", pipelines=pipelines)

    with pytest.raises(AirflowFailException, match=f"1 of the .*: {pipelines[gone].name}: "):
        task.execute(MANUAL)

    assert not Path(pipelines[gone].archive).exists()
    assert f"drain {there.name}: " in task.plan


def test_execute_backfill(core: CoreCalls, pipelines: list[Pipeline]) -> None:
    """A backfill's interval is no group's: it would drain from the cursors, and seal nothing."""
    task = KafkaDrainGroupOperator(task_id="drain", pipelines=pipelines)
    run: Any = {"run_id": "backfill 1", "dag_run": SimpleNamespace(run_type="backfill", conf={})}

    with pytest.raises(AirflowFailException, match=r"backfill run.*drain_<pipeline>\): a, b"):
        task.execute(run)

    assert core.order == []
    assert not any(Path(pipeline.archive).exists() for pipeline in pipelines)


def test_execute_connection_gone(
    core: CoreCalls, pipelines: list[Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline whose Kafka connection isn't there doesn't keep the others from being drained."""
    found = drain_group.kafka_cluster

    def kafka_cluster(conn_id: str) -> Any:
        if conn_id == "gone":
            raise ConfigError("there is no Airflow connection 'gone'")
        return found(conn_id)

    monkeypatch.setattr(drain_group, "kafka_cluster", kafka_cluster)
    first = pipelines[0].model_copy(update={"kafka_conn_id": "gone"})
    task = KafkaDrainGroupOperator(task_id="drain", pipelines=[first, pipelines[1]])

    with pytest.raises(AirflowFailException, match=r"1 of the group's .*: a: there is no Airflow"):
        task.execute(MANUAL)

    assert core.order.count("tell_drain") == 1
    assert "drain b: " in task.plan
