"""The republish operator accepts all options of a republish request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG

from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow import RepublishToKafkaOperator


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
