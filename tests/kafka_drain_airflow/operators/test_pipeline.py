"""What operators take as their pipeline, and which arguments they refuse."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment

import kafka_drain_airflow
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow import (
    KafkaDrainOperator,
    PreflightOperator,
    RepublishToKafkaOperator,
)
from kafka_drain_airflow.operators.pipeline import BELONGS, pipeline_of, refuse_arguments
from tests.tables import each_of

KEYS: dict[str, Any] = {"name": "orders", "topics": ["orders"], "archive": "/archives/orders"}
ORDERS = Pipeline(**KEYS, drill={"sample": "whole"})


@pytest.mark.parametrize("given", [ORDERS, ORDERS.model_dump(exclude_unset=True)])
def test_pipeline_of(given: Any) -> None:
    """A pipeline is taken as one, or as its keys, which an XCom can hold."""
    assert pipeline_of(given) == ORDERS


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{'name': 'orders'}", "neither a Pipeline nor a dict of its keys"),
        (None, "neither a Pipeline nor a dict of its keys"),
        (KEYS | {"topcis": []}, "pipeline 'orders': 'topcis' .*did you mean 'topics'"),
        (KEYS | {"archive": "{{ var.value.archive }}"}, "template"),
        ({"name": "orders"}, "archive is missing"),
    ],
)
def test_pipeline_of_refused(given: Any, says: str) -> None:
    """What is no pipeline is refused by name, when the task runs."""
    with pytest.raises(ConfigError, match=says):
        pipeline_of(given)


def test_pipeline_rendered() -> None:
    """A pipeline's keys may hold templates: they are rendered before the pipeline is read."""
    archive = "/archives/{{ params.env }}/orders"
    operator = PreflightOperator(task_id="task", pipeline=KEYS | {"archive": archive})
    context: Any = {"params": {"env": "test"}, "ti": None}

    operator.render_template_fields(context, NativeEnvironment())
    operator.pre_execute(context)

    assert operator.pipeline == Pipeline(**KEYS | {"archive": "/archives/test/orders"})


def test_pipeline_of_template_fields() -> None:
    """Every operator of one pipeline has it among its templated fields."""
    operators = [
        getattr(kafka_drain_airflow, name)
        for name in kafka_drain_airflow.__all__
        if name.endswith("Operator") and name != "WatchOperator"
    ]

    assert len(operators) == 12
    for operator in operators:
        assert "pipeline" in operator.template_fields, operator
        documented = inspect.getdoc(operator)
        assert documented is not None


def test_pipeline_as_text() -> None:
    """In Airflow's UI and in a DAG's document a pipeline takes a line, not all of its keys."""
    assert str(ORDERS) == "orders: ['orders'] to /archives/orders"


@each_of("name", BELONGS)
def test_argument_refused(name: str) -> None:
    """An argument of Airflow's Spark operator is refused, and says where its value belongs."""
    says = f"KafkaDrainOperator takes no argument '{name}': (set |kafka-drain sets it itself)"
    with pytest.raises(ConfigError, match=says):
        KafkaDrainOperator(task_id="task", pipeline=ORDERS, **{name: "x"})


def test_argument_removed() -> None:
    """An argument that only older releases know is refused with what there is instead."""
    says = r"pipeline 'orders'.* 'transactions' \(value 'fast'\) was removed: .* Leave it out"
    with pytest.raises(ConfigError, match=says):
        RepublishToKafkaOperator(
            task_id="task",
            pipeline=ORDERS,
            transactions="fast",  # type: ignore[call-arg]
        )


def test_argument_of_airflow_passes() -> None:
    """Airflow's own arguments are taken."""
    given = {"retries": 1, "pool": "spark", "trigger_rule": "all_done"}
    refuse_arguments(KafkaDrainOperator, given, ORDERS)
