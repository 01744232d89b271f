"""Restore records to Kafka once somebody has approved the plan (Airflow 3.1 or later)."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.providers.common.compat.sdk import dag
from airflow.providers.standard.operators.hitl import ApprovalOperator

from kafka_drain_airflow import Pipeline, RepublishToKafkaOperator

flights = Pipeline(
    name="flights",
    topics=["flights"],
    archive=os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain") + "/flights",
    partition_by=["topic"],
)

#: Both tasks plan the same: what is sent up to a fixed time doesn't change with later drains.
RESTORE: dict[str, Any] = {
    "pipeline": flights,
    "target_topic": "flights_restored",
    "create_target": True,
    "sealed_only": True,
    "to_time": "{{ dag_run.run_after.isoformat() }}",
}


@dag(
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    tags=["recipe"],
)
def approved_restore() -> None:
    """Log the plan, ask for approval, send."""
    plan = RepublishToKafkaOperator(task_id="plan", apply=False, **RESTORE)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Send {{ '{:,}'.format(ti.xcom_pull('plan')['records']) }} records to Kafka?",
        body="{{ ti.xcom_pull('plan')['notes'] | join('\\n\\n') }}",
        defaults="Reject",
        response_timeout=timedelta(days=1),
    )
    send = RepublishToKafkaOperator(task_id="send", apply=True, retries=2, **RESTORE)
    plan >> approve >> send


approved_restore()
