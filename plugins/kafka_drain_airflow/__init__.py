"""The Airflow integration of kafka-drain: operators, the DAG factory and connections.

from kafka_drain_airflow import Pipeline, create_dags
"""

from __future__ import annotations

from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow.dag_factory import create_dags, create_group_dags
from kafka_drain_airflow.observability.archive_events import archive_asset, archive_uri
from kafka_drain_airflow.operators.approval import Approval
from kafka_drain_airflow.operators.drain import KafkaDrainOperator
from kafka_drain_airflow.operators.drain_group import KafkaDrainGroupOperator
from kafka_drain_airflow.operators.drill import DrillOperator
from kafka_drain_airflow.operators.erase import EraseOperator
from kafka_drain_airflow.operators.maintain import MaintainOperator
from kafka_drain_airflow.operators.preflight import PreflightOperator
from kafka_drain_airflow.operators.register_table import RegisterTableOperator
from kafka_drain_airflow.operators.reprocess import ReprocessOperator
from kafka_drain_airflow.operators.republish import RepublishToKafkaOperator
from kafka_drain_airflow.operators.schemas import CheckDecodingOperator, RestoreSchemasOperator
from kafka_drain_airflow.operators.validate import ValidateManifestOperator
from kafka_drain_airflow.operators.watch import WatchOperator
from kafka_drain_airflow.task_group import create_task_group
from kafka_drain_airflow.watch_dag import create_watch_dag

__all__ = [
    "Approval",
    "CheckDecodingOperator",
    "DrillOperator",
    "EraseOperator",
    "KafkaDrainGroupOperator",
    "KafkaDrainOperator",
    "MaintainOperator",
    "Pipeline",
    "PreflightOperator",
    "RegisterTableOperator",
    "ReprocessOperator",
    "RepublishToKafkaOperator",
    "RestoreSchemasOperator",
    "ValidateManifestOperator",
    "WatchOperator",
    "archive_asset",
    "archive_uri",
    "create_dags",
    "create_group_dags",
    "create_task_group",
    "create_watch_dag",
]
