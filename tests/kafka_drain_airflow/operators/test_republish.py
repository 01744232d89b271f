"""The republish operator accepts all options of a republish request."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain_airflow import RepublishToKafkaOperator

OPERATOR = Path(__file__).parents[3] / "plugins/kafka_drain_airflow/operators/republish.py"


def test_arguments_are_the_options() -> None:
    """The signature, which Airflow and editors read, lists all options in order."""
    [init] = (
        node
        for node in ast.walk(ast.parse(OPERATOR.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )

    names = [argument.arg for argument in init.args.kwonlyargs]
    assert names == [*RepublishRequest.model_fields]
    # Arguments that aren't given have the request's default.
    defaults = {ast.unparse(default) for default in init.args.kw_defaults if default}
    assert defaults == {"None"}


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
def test_run_name(follow: bool, map_index: int, name: str) -> None:
    """Each mapped task has a run of its own; a follower's is the same in every DAG run."""
    with DAG("elt", schedule=None):
        operator = RepublishToKafkaOperator(
            task_id="send", pipeline=Pipeline(name="p", topics=["t"], archive="/a"), follow=follow
        )
    context: Any = {"run_id": "run 1", "ti": SimpleNamespace(map_index=map_index)}

    assert operator._run_name(context, follow) == name
