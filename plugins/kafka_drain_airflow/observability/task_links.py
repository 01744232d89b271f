"""The buttons of a task instance that moves records: its archive with live progress, Spark's UI."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from kafka_drain.pages.humanize import is_web_address
from kafka_drain_airflow.observability.task_progress import SPARK_UI_KEY
from kafka_drain_airflow.pages.addresses import page_url

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context, TaskInstanceKey

__all__ = [
    "GROUP",
    "KINDS",
    "VALIDATION",
    "ArchiveLink",
    "SparkUiLink",
    "archive_address",
    "show_archive",
]

#: How the ids of a pipeline's DAGs begin; an archive's page shows the progress of each.
KINDS = ("drain", "republish", "reprocess", "maintain")
#: How the ids of groups' DAGs begin, and those of their tasks that validate a pipeline's archive.
GROUP, VALIDATION = "drain_group_", "validate_"


class ArchiveLink(BaseOperatorLink):
    """The button Archive: the archive's page, which shows how far a running task has got."""

    name = "Archive"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address; empty, and so no button, in another DAG than a pipeline's."""
        return archive_address(ti_key.dag_id, ti_key.task_id, operator.task_type)


def archive_address(dag_id: str, task_id: str, task_type: str) -> str:
    """Return the address of the archive's page that a task belongs to; empty where none does.

    The drain of a group has several archives: its is the page of all.
    """
    kind, _, pipeline = dag_id.partition("_")
    if kind not in KINDS or not pipeline:
        return ""
    if task_type == "KafkaDrainGroupOperator":
        return page_url("/archives")
    if dag_id.startswith(GROUP) and task_id.startswith(VALIDATION):
        pipeline = task_id.removeprefix(VALIDATION)
    return page_url(f"/archives/{quote(f'drain_{pipeline}', safe='')}")


class SparkUiLink(BaseOperatorLink):
    """The button Spark UI, where the pipeline's `spark_conf` has `spark.ui.enabled`."""

    name = "Spark UI"

    @property
    def xcom_key(self) -> str:
        """Return where the running task keeps it, so that the button is there meanwhile."""
        return SPARK_UI_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return what the Spark application said; empty, and so no button, when it said nothing."""
        told = XCom.get_value(ti_key=ti_key, key=SPARK_UI_KEY)
        # Anybody's task may write any XCom.
        return told if isinstance(told, str) and is_web_address(told) else ""


def show_archive(context: Context, operator: BaseOperator) -> None:
    """Let the button Archive be there while the task runs: Airflow 3 asks for it at the end."""
    task_instance = context["ti"]
    if AIRFLOW_V_3_0_PLUS and task_instance is not None:
        address = archive_address(task_instance.dag_id, task_instance.task_id, operator.task_type)
        task_instance.xcom_push(key=ArchiveLink().xcom_key, value=address)
