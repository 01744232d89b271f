"""The tags by which pages find DAGs."""

from __future__ import annotations

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow import create_group_dags, create_watch_dag
from kafka_drain_airflow.dag_tags import kind_tag
from kafka_drain_airflow.factory_arguments import TASKS


@pytest.mark.parametrize("pattern", ["{kind}_{name}", "{name}-{kind}.v2", "x{kind}x{name}"])
def test_tags_of_factory(pattern: str) -> None:
    """Each DAG of a factory has its kind, its pipeline and the user's tags, whatever its id is."""
    pipeline = Pipeline(name="republish", topics=["orders"], archive="/archives/orders")

    dags = create_group_dags("g", [pipeline], dag_id=pattern, tags=["mine"])

    kinds = ("drain", "republish", "reprocess", "maintain")
    expected = {
        pattern.format(kind=kind, name="republish"): {
            *("kafka-drain", f"kafka-drain:{kind}", "republish", "g", "mine")
        }
        for kind in kinds
    }
    expected[pattern.format(kind="drain_group", name="g")] = {
        *("kafka-drain", "kafka-drain:drain_group", "g", "mine")
    }
    assert {dag_id: {*dag.tags} for dag_id, dag in dags.items()} == expected


def test_own_tags() -> None:
    """A text isn't taken for the list of its characters."""
    pipeline = Pipeline(name="a", topics=["a"], archive="/archives/a", watch={"lag": 5})

    for make in (
        lambda: create_group_dags("g", [pipeline], tags="prod"),
        lambda: create_watch_dag([pipeline], tags="prod"),
    ):
        with pytest.raises(ConfigError, match=r"tags is 'prod', expected a list: \['prod'\]"):
            make()


def test_kind_tag_length() -> None:
    """Airflow's database holds 100 characters of a tag."""
    assert max(len(kind_tag(kind)) for kind in TASKS) < 100
