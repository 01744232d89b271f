"""Create the tasks that drain a pipeline, as a task group in any DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from airflow.providers.common.compat.sdk import TaskGroup

from kafka_drain.config.checks import unknown
from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow.declared import of_pipeline
from kafka_drain_airflow.factory_arguments import Added, task_with
from kafka_drain_airflow.observability.archive_events import archive_asset, replaced_alias
from kafka_drain_airflow.operators.drain import KafkaDrainOperator
from kafka_drain_airflow.operators.maintain import MaintainOperator
from kafka_drain_airflow.operators.preflight import PreflightOperator
from kafka_drain_airflow.operators.validate import AlertCallback, ValidateManifestOperator

TASKS = ("preflight", "drain", "validate", "maintain")


def create_task_group(
    pipeline: Pipeline,
    group_id: str = "kafka",
    *,
    maintain: bool = False,
    on_alert_callback: AlertCallback | Sequence[AlertCallback] = (),
    task_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    **kwargs: Any,
) -> TaskGroup:
    """Create the tasks that drain a pipeline, in the DAG or task group that is being defined.

    The tasks are `preflight`, `drain` and `validate`, one after another. What comes after the group
    runs if the archive is complete, and finds what was just sealed in the XCom `sealed` of
    `validate`. Every run of the DAG drains what Kafka holds at that moment; a backfill's run drains
    its data interval.

    Args:
        pipeline: The pipeline; its `schedule` isn't used, the DAG has its own.
        group_id: Id of the task group, and prefix of the ids of its tasks.
        maintain: Whether a last task, `maintain`, closes generations, compacts files and deletes by
            age whenever that is due.
        on_alert_callback: See `create_dags`.
        task_kwargs: Arguments for tasks, by patterns of their ids, such as
            `{"drain": {"pool": "spark"}, "*": {"retries": 3}}`.
        kwargs: Further arguments of Airflow's TaskGroup, such as `default_args` and `tooltip`.

    Raises:
        ConfigError: If `task_kwargs` matches no task, or sets what is kafka-drain's; names the
            pipeline and the line of the DAG file.
    """
    with of_pipeline(pipeline):
        added: Added = task_kwargs or {}
        for pattern, given in added.items():
            if not any(fnmatchcase(task_id, pattern) for task_id in TASKS):
                raise unknown(pattern, given, TASKS, "task in task_kwargs")

        def task(operator: Any, task_id: str, **own: Any) -> Any:
            return task_with(added, group_id, operator, task_id, {"pipeline": pipeline} | own)

        with TaskGroup(group_id, **kwargs) as group:
            last = task(PreflightOperator, "preflight") >> task(KafkaDrainOperator, "drain")
            last = last >> task(
                ValidateManifestOperator,
                "validate",
                outlets=[archive_asset(pipeline)],
                on_alert_callback=on_alert_callback,
            )
            if maintain:
                last >> task(
                    MaintainOperator, "maintain", apply=True, outlets=[replaced_alias(pipeline)]
                )
    return group
