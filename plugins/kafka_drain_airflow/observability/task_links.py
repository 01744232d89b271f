"""Buttons of a task instance that moves records: its archive with live progress, and Spark's UI."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from kafka_drain.pages.humanize import is_web_address
from kafka_drain_airflow.addresses import page_url
from kafka_drain_airflow.observability.task_progress import SPARK_UI_KEY

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context, TaskInstanceKey

#: Prefixes of a pipeline's DAG ids; the archive's page shows the progress of each DAG.
KINDS = ("drain", "republish", "reprocess", "maintain", "drill")
#: Prefixes of a group's DAG id, and of its task ids that validate a pipeline's archive.
GROUP, VALIDATION = "drain_group_", "validate_"


class ArchiveLink(BaseOperatorLink):
    """The Archive button, which opens the archive's page with the progress of running tasks."""

    name = "Archive"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's URL; empty, which hides the button, if it isn't a pipeline's DAG."""
        return archive_address(ti_key.dag_id, ti_key.task_id, operator.task_type)


def archive_address(dag_id: str, task_id: str, task_type: str) -> str:
    """Return the URL of the page of the archive that a task works on; empty if there is none.

    A group's drain task works on several archives, so it links to the page that lists all archives.
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
    """The Spark UI button, shown if the pipeline's `spark_conf` has `spark.ui.enabled`."""

    name = "Spark UI"

    @property
    def xcom_key(self) -> str:
        """Return the XCom key that the running task sets, so that the button appears meanwhile."""
        return SPARK_UI_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the URL that the Spark application reported; empty, which hides the button."""
        told = XCom.get_value(ti_key=ti_key, key=SPARK_UI_KEY)
        # Any task may write any XCom, so the value isn't trusted.
        return told if isinstance(told, str) and is_web_address(told) else ""


def show_archive(context: Context, operator: BaseOperator) -> None:
    """Show the Archive button while the task runs: Airflow 3 requests links only at the end."""
    task_instance = context["ti"]
    if AIRFLOW_V_3_0_PLUS and task_instance is not None:
        address = archive_address(task_instance.dag_id, task_instance.task_id, operator.task_type)
        task_instance.xcom_push(key=ArchiveLink().xcom_key, value=address)
