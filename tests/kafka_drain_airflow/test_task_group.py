"""The tasks of a pipeline as a group in a DAG of a user's own."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow import create_task_group

ORDERS = Pipeline(name="orders", topics=["orders"], archive="/archives/orders")


def dag_of(**arguments: Any) -> DAG:
    """Return a DAG with a task group that is made with some arguments."""
    with DAG("elt", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
        create_task_group(ORDERS, **arguments)
    return dag


def test_task_group() -> None:
    """A group checks, drains and validates; with an asset and without a form."""
    dag = dag_of()

    assert {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks} == {
        "kafka.preflight": ["kafka.drain"],
        "kafka.drain": ["kafka.validate"],
        "kafka.validate": [],
    }
    [outlet] = dag.get_task("kafka.validate").outlets
    assert outlet.uri == "file:///archives/orders"
    assert not dag.params


def test_task_group_with_maintenance() -> None:
    """Maintenance comes last, and applies its plan."""
    dag = dag_of(group_id="orders", maintain=True, tooltip="orders")

    assert dag.get_task("orders.validate").downstream_task_ids == {"orders.maintain"}
    maintain = dag.get_task("orders.maintain")
    assert maintain.apply is True
    assert [alias.name for alias in maintain.outlets] == ["orders_replaced"]


def test_task_group_task_kwargs() -> None:
    """Arguments reach the tasks that a pattern matches, by their ids in the group."""
    dag = dag_of(task_kwargs={"*": {"retries": 3}, "drain": {"pool": "spark"}, "maintain": {}})

    assert {task.retries for task in dag.tasks} == {3}
    pools = {task.task_id: task.pool for task in dag.tasks}
    assert pools.pop("kafka.drain") == "spark"
    assert {*pools.values()} == {"default_pool"}


@pytest.mark.parametrize(
    ("task_kwargs", "says"),
    [
        ({"drian": {}}, "'drian' .*did you mean 'drain'"),
        ({"drain": {"pipeline": ORDERS}}, "pipeline of task drain is set by kafka-drain"),
        ({"validate": {"on_alert_callback": print}}, "on_alert_callback of task validate"),
    ],
)
def test_task_group_argument_refused(task_kwargs: dict[str, Any], says: str) -> None:
    """What matches nothing or would be overwritten is refused."""
    with pytest.raises(ConfigError, match=says):
        dag_of(task_kwargs=task_kwargs)
