"""Drain many topics with one DAG: the pipelines are found when it runs, and mapped."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.providers.common.compat.sdk import AssetAlias, dag, task, task_group

from kafka_drain_airflow import KafkaDrainOperator, PreflightOperator, ValidateManifestOperator

ARCHIVES = os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain")


@task
def pipelines() -> list[dict[str, Any]]:
    """Return the keys of a pipeline for each topic, from wherever they are kept."""
    topics = os.environ.get("RECIPE_TOPICS", "arrivals departures").split()
    return [
        {"name": topic, "topics": [topic], "archive": f"{ARCHIVES}/{topic}"} for topic in topics
    ]


# In the list of mapped tasks, the pipeline's name stands beside its number.
@task_group(default_args={"map_index_template": "{{ task.pipeline.name }}", "retries": 2})
def drain_topic(pipeline: Any) -> None:
    """Drain a topic; what happens to the others doesn't matter to it."""
    check = PreflightOperator(task_id="preflight", pipeline=pipeline)
    drain = KafkaDrainOperator(task_id="drain", pipeline=pipeline)
    validate = ValidateManifestOperator(
        task_id="validate",
        pipeline=pipeline,
        # Mapped tasks share their outlets: by an alias, each tells of its own archive's asset.
        outlets=[AssetAlias("many_topics")],
    )
    check >> drain >> validate


@dag(
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=4,
    tags=["recipe"],
)
def many_topics() -> None:
    """Drain each topic to an archive of its own, and prove it."""
    drain_topic.expand(pipeline=pipelines())


many_topics()
