"""The buttons of a task instance that moves records: its archive with live progress, Spark's UI."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from kafka_drain.html_parts import is_web_address
from kafka_drain_airflow.addresses import page_url
from kafka_drain_airflow.task_progress import SPARK_UI_KEY

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context, TaskInstanceKey

__all__ = ["KINDS", "ArchiveLink", "SparkUiLink", "archive_address", "show_archive"]

#: How the ids of a pipeline's DAGs begin; an archive's page shows the progress of each.
KINDS = ("drain", "republish", "reprocess", "maintain")


class ArchiveLink(BaseOperatorLink):
    """The button Archive: the archive's page, which shows how far a running task has got."""

    name = "Archive"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address; empty, and so no button, in another DAG than a pipeline's."""
        return archive_address(ti_key.dag_id)


def archive_address(dag_id: str) -> str:
    """Return the address of the archive's page that a DAG belongs to; empty where none does."""
    kind, _, pipeline = dag_id.partition("_")
    if kind not in KINDS or not pipeline:
        return ""
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


def show_archive(context: Context) -> None:
    """Let the button Archive be there while the task runs: Airflow 3 asks for it at the end."""
    task_instance = context["ti"]
    if AIRFLOW_V_3_0_PLUS and task_instance is not None:
        address = archive_address(task_instance.dag_id)
        task_instance.xcom_push(key=ArchiveLink().xcom_key, value=address)
