"""What the operator of erasures makes of its fields: nothing is erased that wasn't named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain_airflow.operators import erase as operators
from kafka_drain_airflow.operators.erase import EraseOperator
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.maintenance.test_erase import (
    GONE,
    cluster,
    left,
    lying,
    made,
    pipeline_of,
    rewrite,
)

__all__ = ["made"]

PIPELINE = Pipeline(name="p", topics=["t"], archive="/a", erase_conn_id="erase_{request}")
ASKED = {"request": "r", "by": "b"}


def operator(**fields: Any) -> EraseOperator:
    """Return the operator with fields as they are rendered."""
    return EraseOperator(task_id="erase", **({"pipeline": PIPELINE} | fields))


@pytest.mark.parametrize(
    ("password", "fields", "expected"),
    [
        # Erasures in force go on; a template that finds nothing renders to None.
        (None, {}, None),
        (None, {"request": "None", "by": None, "topics": [""], "from_time": "None"}, None),
        ("k", ASKED, {"keys": frozenset({b"k"})}),
        ("k", {**ASKED, "topics": ["t"]}, {"keys": frozenset({b"k"}), "topics": frozenset({"t"})}),
        (
            "k",
            {**ASKED, "from_time": "1970-01-01T00:00:01Z", "to_time": "1970-01-01T00:00:02Z"},
            {"keys": frozenset({b"k"}), "from_ms": 1000, "to_ms": 2000},
        ),
        ("k", {**ASKED, "for_ever": "true"}, {"keys": frozenset({b"k"}), "for_ever": True}),
        (
            "",
            {**ASKED, "all_records": True, "topics": "t"},
            {"topics": frozenset({"t"})},
        ),
    ],
)
def test_request(
    password: str | None,
    fields: dict[str, Any],
    expected: dict[str, Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys come from the connection, all else from the form."""
    if password is not None:
        connection = {"conn_type": "generic", "password": password}
        monkeypatch.setenv("AIRFLOW_CONN_ERASE_R", json.dumps(connection))

    request = operator(**fields)._request()

    assert request == (None if expected is None else ErasureRequest("r", "b", **expected))


@pytest.mark.parametrize(
    ("password", "fields", "says"),
    [
        # Emptied by mistake, it would erase a whole topic.
        ("", {**ASKED, "topics": ["t"]}, "names no keys and no headers; set all_records"),
        ("k", {**ASKED, "topics": ["t"], "all_records": True}, "names keys or headers; empty it"),
        ("k", {"topics": ["t"]}, "give the request's id"),
        ("k", {"by": "b"}, "give the request's id"),
        ("k", {"all_records": True}, "give the request's id"),
        ("k", {"for_ever": True}, "give the request's id"),
        ("k", {"to_time": "2026-01-01T00:00:00Z"}, "give the request's id"),
        ("k", {**ASKED, "from_time": "soon"}, "from_time"),
        ("k", {**ASKED, "all_records": "perhaps"}, "accepted: true or false"),
        (
            "k",
            {**ASKED, "pipeline": PIPELINE.model_copy(update={"erase_conn_id": None})},
            "set the pipeline's erase_conn_id",
        ),
    ],
)
def test_request_refused(
    password: str, fields: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What might erase more than was meant is refused, with what to do."""
    connection = {"conn_type": "generic", "password": password}
    monkeypatch.setenv("AIRFLOW_CONN_ERASE_R", json.dumps(connection))

    with pytest.raises(ConfigError, match=says):
        operator(**fields)._request()


def test_no_key_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a templated field, which Airflow shows, nor the request's text has a key."""
    connection = {"conn_type": "generic", "password": "very-secret"}
    monkeypatch.setenv("AIRFLOW_CONN_ERASE_R", json.dumps(connection))
    task = operator(**ASKED)

    request = task._request()

    shown = [repr(getattr(task, name)) for name in task.template_fields]
    assert not any("very-secret" in text for text in [*shown, repr(request), repr(vars(task))])


CONTEXT: Any = {"run_id": "run"}


def of_archive(made: MadeArchive, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> EraseOperator:
    """Return the operator for a made archive, whose files Python rewrites."""
    monkeypatch.setattr(operators, "kafka_cluster", lambda conn_id: cluster())
    monkeypatch.setattr(EraseOperator, "run_application", staticmethod(rewrite))
    pipeline = pipeline_of(made.root).model_copy(update={"erase_conn_id": "erase_{request}"})
    return operator(pipeline=pipeline, **fields)


def connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name what is erased."""
    keys = "\n".join(sorted(key.decode() for key in GONE))
    connection = {"conn_type": "generic", "password": keys}
    monkeypatch.setenv("AIRFLOW_CONN_ERASE_R", json.dumps(connection))


def test_execute(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Untold, nothing is erased; a frozen plan is applied by its id, without the connection."""
    connect(monkeypatch)

    assert of_archive(made, monkeypatch, **ASKED).execute(CONTEXT)["records"] == 4
    planned = of_archive(made, monkeypatch, **ASKED, freeze=True).execute(CONTEXT)
    assert lying(made.root) == left(but=frozenset())

    monkeypatch.delenv("AIRFLOW_CONN_ERASE_R")
    task = of_archive(made, monkeypatch, plan_id=planned["plan_id"], apply="true")
    done = task.execute(CONTEXT)
    assert done == {
        "archive": str(made.root),
        "windows": ["erase_0001"],
        "erased": 4,
        "locked_files": 0,
        "locked_until": None,
    }
    assert lying(made.root) == left()
    assert task._lineage is not None
    assert list(task._lineage.outputs.values()) == [26]
    again = of_archive(made, monkeypatch, plan_id=planned["plan_id"], apply="true")
    assert "erased" not in again.execute(CONTEXT)
    assert again._lineage is None


def test_execute_applies(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """With apply and without a plan, what the form names is erased at once."""
    connect(monkeypatch)

    done = of_archive(made, monkeypatch, **ASKED, apply=True).execute(CONTEXT)

    assert done["erased"] == 4
    assert lying(made.root) == left()
    untold = of_archive(made, monkeypatch, apply=True).execute(CONTEXT)
    assert untold == {
        "archive": str(made.root),
        "windows": [],
        "erased": 0,
        "locked_files": 0,
        "locked_until": None,
    }


def test_execute_tells_erased(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are told that files were replaced when they were, and not of a plan."""
    connect(monkeypatch)
    told: list[Any] = []
    monkeypatch.setattr(operators, "tell_replaced", lambda *given: told.append(given[-1]))

    for fields in ({}, {"freeze": True}):
        task = of_archive(made, monkeypatch, **ASKED, **fields)
        assert task.execute(CONTEXT)["windows"] == 1
        assert task._lineage is None
    assert told == []

    done = of_archive(made, monkeypatch, **ASKED, apply=True).execute(CONTEXT)
    of_archive(made, monkeypatch, apply=True).execute(CONTEXT)

    assert told == [done]
