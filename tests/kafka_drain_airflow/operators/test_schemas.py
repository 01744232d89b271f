"""Schemas restored and checked as tasks: what they do, refuse and skip."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import RegistryUnavailableError
from kafka_drain.republish.verifying import decoding_check
from kafka_drain.republish.verifying.decoding_check import DecodingCheck
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.schemas.schema_map import read_map
from kafka_drain_airflow.operators.schemas import CheckDecodingOperator, RestoreSchemasOperator
from tests.fake_registry import FakeRegistry, fake_registry
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.schemas.test_capture import capture, made, registry

__all__ = ["made", "registry"]

#: What a republish with a map returns, as far as a check needs it.
REPUBLISHED = {"key": "run-1", "schema_ids": {"counts": []}, "verification": {"lost": 0}}


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """A registry without schemas, and its connection `target`."""
    with fake_registry("me:s3cr3t", next_id=500) as running:
        connection = {"conn_type": "generic", "extra": running.settings}
        monkeypatch.setenv("AIRFLOW_CONN_TARGET", json.dumps(connection))
        yield running


@pytest.fixture
def pipeline(made: MadeArchive, registry: FakeRegistry) -> Pipeline:
    """A pipeline whose archive keeps schemas."""
    capture(made, registry)
    return Pipeline(
        name="p", topics=["t"], archive=str(made.root), target_registry_conn_id="target"
    )


def restore(pipeline: Pipeline, **arguments: Any) -> dict[str, Any]:
    operator = RestoreSchemasOperator(task_id="restore", pipeline=pipeline, **arguments)
    return operator.execute({"run_id": "run"})  # type: ignore[typeddict-item]


def test_restore_schemas_operator(
    pipeline: Pipeline, made: MadeArchive, target: FakeRegistry
) -> None:
    """A dry run registers nothing; with apply, everything is registered, once, and mapped."""
    found = restore(pipeline)

    assert (found["versions"], found["to_register"], target._subjects) == (4, 4, {})
    found = restore(pipeline, apply=True, schema_map="dr")
    assert (found["to_register"], found["mapped"], found["schema_map"]) == (4, 4, "dr")
    assert found["registry"] == target.url
    assert set(read_map(made.archive.root, "dr").ids) == {3, 4, 7, 9}
    assert restore(pipeline, apply=True, schema_map="dr")["to_register"] == 0


def test_restore_schemas_operator_connection(
    pipeline: Pipeline, target: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's own connection comes before the pipeline's, and its settings keep ids as told."""
    with fake_registry() as other:
        connection = {"conn_type": "generic", "extra": other.settings}
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps(connection))

        restore(pipeline, apply="true", registry_conn_id="other", ids="keep")

        assert {a["id"] for versions in other._subjects.values() for a in versions.values()} == {
            *(3, 4, 7, 9)
        }
    assert target._subjects == {}


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({"target_registry_conn_id": None}, {}, "set the pipeline's target_registry_conn_id"),
        ({"target_registry_conn_id": "nowhere"}, {}, "there is no Airflow connection 'nowhere'"),
        ({}, {"ids": "some"}, "ids = 'some': Input should be 'new' or 'keep'"),
        ({}, {"schema_map": "../map"}, "can't be named"),
        ({"archive": "/nowhere"}, {}, "/nowhere doesn.t exist"),
    ],
)
def test_restore_schemas_operator_wrong(
    changes: dict[str, Any],
    arguments: dict[str, Any],
    words: str,
    pipeline: Pipeline,
    target: FakeRegistry,
) -> None:
    """What a retry can't help fails at once, in words."""
    with pytest.raises(AirflowFailException, match=words):
        restore(pipeline.model_copy(update=changes), **arguments)


@pytest.mark.parametrize("apply", [False, True])
def test_restore_schemas_operator_refused(
    apply: bool, pipeline: Pipeline, target: FakeRegistry
) -> None:
    """A target with other schemas fails the plan too; a target that is down is tried again."""
    target.register("city", 1, {"type": "string"})

    with pytest.raises(AirflowFailException, match="nothing was registered: "):
        restore(pipeline, apply=apply)
    target.fails = 503
    with pytest.raises(RegistryUnavailableError):
        restore(pipeline, apply=apply)


def test_restore_schemas_operator_settings_refused(
    pipeline: Pipeline, made: MadeArchive, target: FakeRegistry
) -> None:
    """A setting that the target doesn't take fails the task once; the map is there."""
    target.statuses = {"PUT /mode": 403}

    with pytest.raises(AirflowFailException, match="city didn't get its mode READONLY"):
        restore(pipeline, apply=True, schema_map="dr")

    assert len(read_map(made.archive.root, "dr").ids) == 4
    assert restore(pipeline, apply=True, schema_map="dr")["to_register"] == 0


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked of a check, and the connections that it needs."""
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    asked: list[Any] = []
    return asked


def check(pipeline: Pipeline, republished: Any) -> dict[str, Any]:
    operator = CheckDecodingOperator(task_id="check", pipeline=pipeline, republished=republished)
    return operator.execute({"run_id": "run"})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("failed", "decoded", "is_exact"), [(0, 9, True), (1, 8, False), (0, 8, False)]
)
def test_check_decoding_operator(
    failed: int,
    decoded: int,
    is_exact: bool,
    pipeline: Pipeline,
    target: FakeRegistry,
    checked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A check fails unless each key and value with an id has its value in the target."""
    result = DecodingCheck(9, decoded, expected=9, failed=failed, problems=["the value is other"])
    monkeypatch.setattr(decoding_check, "check_run", lambda *asked: checked.append(asked) or result)
    if is_exact:
        assert check(pipeline, REPUBLISHED) == result.content()
    else:
        with pytest.raises(AirflowFailException, match="the value is other"):
            check(pipeline, REPUBLISHED)

    [(archive, key, cluster, registry)] = checked
    assert (str(archive.root), key) == (pipeline.archive, "run-1")
    assert cluster.config.bootstrap_servers == "127.0.0.1:1"
    assert registry == SchemaRegistry(target.settings)


@pytest.mark.parametrize("without", ["verification", "schema_ids"])
def test_check_decoding_operator_skipped(without: str, pipeline: Pipeline) -> None:
    """After a dry run, or without a map, there is nothing to decode."""
    with pytest.raises(AirflowSkipException, match="nothing to decode"):
        check(pipeline, {k: v for k, v in REPUBLISHED.items() if k != without})


@pytest.mark.parametrize("republished", [None, "None"])
def test_check_decoding_operator_no_result(republished: Any, pipeline: Pipeline) -> None:
    """After a republish that was marked as success, nothing was checked, and that is said."""
    with pytest.raises(AirflowFailException, match=r"may have been marked as success.*Nothing was"):
        check(pipeline, republished)


def test_check_decoding_operator_no_run(
    pipeline: Pipeline, target: FakeRegistry, checked: list[Any]
) -> None:
    """A run that isn't in the archive is refused."""
    with pytest.raises(AirflowFailException, match="has no finished run run-1"):
        check(pipeline, REPUBLISHED)
