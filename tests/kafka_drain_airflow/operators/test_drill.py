"""Drills as tasks: what fails them, and whether a retry can help."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.documents import DrillDocument
from kafka_drain.archive.drills import drill_status, write_result
from kafka_drain.clock import utc_now
from kafka_drain.config.drill import Drill
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drills import drill as drills
from kafka_drain.drills.drill import DrillRequest
from kafka_drain_airflow.operators.drill import DrillCheckOperator, DrillOperator
from tests.core_calls import noted_engines
from tests.kafka_drain.archive.test_drill_status import drill
from tests.kafka_drain.golden import sealed_copy

HERE = "kafka_drain_airflow.operators.drill"


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline with a sealed archive."""
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    archive = sealed_copy(tmp_path / "archive")
    return Pipeline(name="p", topics=["t"], archive=str(archive.root), drill={"max_age_days": 9})


def result(verdict: str, *transient: bool) -> DrillDocument:
    """A drill that has just ended."""
    problems = [
        {"step": "plan", "error": "E", "detail": "it broke", "transient": each}
        for each in transient
    ]
    now = utc_now()
    name = f"{now:%Y%m%dT%H%M%SZ}-00000001"
    return drill(0, verdict, drill=name, started_at=now.isoformat(), problems=problems)


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (result("passed"), None),
        (result("failed", False), "AirflowFailException"),
        (result("failed", True), "DeliveryError"),
        (result("failed", True, False), "AirflowFailException"),
    ],
)
def test_drill_operator(
    ended: DrillDocument, error: str | None, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed drill fails its task; only what may pass by itself is tried again."""
    asked: list[Any] = []
    monkeypatch.setattr(f"{HERE}.evidence_signer", lambda of: f"the signer of {of.name}")
    monkeypatch.setattr(drills, "run_drill", lambda *a, **k: asked.append((a, k)) or ended)
    operator = DrillOperator(task_id="drill", pipeline=pipeline, seed=5)
    context: Any = {"run_id": "run"}
    if error is None:
        assert operator.execute(context) == ended.content()
    else:
        with pytest.raises(Exception, match="failed: it broke") as caught:
            operator.execute(context)
        assert type(caught.value).__name__ == error

    [((archive, cluster, engine, request), more)] = asked
    assert (request.sample, request.seed, request.max_age_days) == ("random_day", 5, 9)
    assert (str(archive.root), engine) == (pipeline.archive, operator._engines)
    # By default, the pipeline's own cluster.
    assert cluster.config.bootstrap_servers == "127.0.0.1:1"
    assert more == {"run": "run", "clock": utc_now, "signer": "the signer of p"}


@pytest.mark.parametrize(("sample", "expected"), [(None, "newest_hour"), ("whole", "whole")])
def test_drill_operator_settings(
    sample: str | None, expected: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drill has the pipeline's drill settings; a sample of the task's own comes first."""
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:2"}}
    monkeypatch.setenv("AIRFLOW_CONN_SCRATCH", json.dumps(connection))
    asked: list[Any] = []
    monkeypatch.setattr(drills, "run_drill", lambda *a, **k: asked.append(a) or result("passed"))
    made = noted_engines(monkeypatch, "kafka_drain.republish.engines.select.Engines")
    drill = {"kafka_conn_id": "scratch", "sample": "newest_hour", "prefix": "try"}
    drill |= {"topic_config": {"retention.ms": "7"}, "max_age_days": 3}
    settings = pipeline.model_copy(update={"drill": Drill.model_validate(drill)})
    operator = DrillOperator(task_id="drill", pipeline=settings, sample=sample, seed=0)

    operator.execute({})  # type: ignore[typeddict-item]

    [(_, cluster, _, request)] = asked
    assert cluster.config.bootstrap_servers == "127.0.0.1:2"
    config = {"retention.ms": "7"}
    assert request == DrillRequest(expected, 0, "try", config, max_age_days=3)
    [engines] = made
    root, target, of, _, runner = engines.given
    assert (root, target, of) == (pipeline.archive, cluster, settings)
    assert runner.run == operator.run_application


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (None, "no drill has passed yet"),
        (result("passed"), None),
        (result("failed", False), "failed: it broke"),
    ],
)
def test_drill_check_operator(
    ended: DrillDocument | None, words: str | None, pipeline: Pipeline, tmp_path: Path
) -> None:
    """The check fails unless a drill has passed recently, and none has failed since."""
    if ended is not None:
        write_result(UPath(tmp_path / "archive"), ended)
    operator = DrillCheckOperator(task_id="check", pipeline=pipeline)
    if words is None:
        assert operator.execute({})["state"] == "ok"  # type: ignore[typeddict-item]
        return
    with pytest.raises(Exception, match=words) as caught:
        operator.execute({})  # type: ignore[typeddict-item]
    assert type(caught.value).__name__ == "AirflowFailException"


def test_drill_status_of_pipeline(pipeline: Pipeline) -> None:
    """A pipeline that declares no drills has no status; otherwise its own limit counts."""
    status = drill_status(pipeline, utc_now())
    assert status is not None

    assert status.max_age == timedelta(days=9)
    assert drill_status(pipeline.model_copy(update={"drill": None}), utc_now()) is None
