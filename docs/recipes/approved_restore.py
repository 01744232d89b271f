"""Restore records to Kafka once somebody has approved the plan.

Needs Airflow 3.1 or later, and apache-airflow-providers-standard 1.12.2 or later.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

from airflow.providers.common.compat.sdk import dag

from kafka_drain_airflow import Pipeline, RepublishToKafkaOperator
from kafka_drain_airflow.operators.approval import approval_task

flights = Pipeline(
    name="flights",
    topics=["flights"],
    archive=os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain") + "/flights",
    partition_by=["topic"],
)


@dag(
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    tags=["recipe"],
)
def approved_restore() -> None:
    """Freeze a plan, show it, and send exactly this one once it is approved."""
    plan = RepublishToKafkaOperator(
        task_id="plan",
        pipeline=flights,
        target_topic="flights_restored",
        create_target=True,
        sealed_only=True,
        apply=False,
        freeze=True,
    )
    approve = approval_task(
        task_id="approve",
        plan_id="{{ ti.xcom_pull('plan')['plan_id'] }}",
        subject="Send {{ '{:,}'.format(ti.xcom_pull('plan')['records']) }} records to Kafka?",
        body="{{ ti.xcom_pull('plan')['approval'] }}",
        defaults="Reject",
        response_timeout=timedelta(days=1),
    )
    # The plan that was shown, also if the first task was cleared meanwhile. What was drained since
    # isn't sent; if anything else has changed, the task fails and says what.
    send = RepublishToKafkaOperator(
        task_id="send",
        pipeline=flights,
        apply=True,
        # A task that is marked as success has no answer: then there is no such plan.
        plan_id="{{ ti.xcom_pull('approve', key='plan_id')"
        " if (ti.xcom_pull('approve') or {}).get('chosen_options') == ['Approve']"
        " else 'that nobody has approved' }}",
        retries=2,
    )
    plan >> approve >> send


approved_restore()
