"""Buttons of a task instance that moves records: its archive with live progress, and Spark's UI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import quote, urlencode

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.verbs import APPROVABLE
from kafka_drain.pages.humanize import is_web_address
from kafka_drain_airflow.addresses import page_url
from kafka_drain_airflow.observability.task_progress import SPARK_UI_KEY

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context, TaskInstanceKey

#: Prefixes of a pipeline's DAG ids, as the factories name them by default.
KINDS = ("drain", *APPROVABLE, "drill")
#: XCom of a task: name of its pipeline, path or URL of the archive, and whether it restores. By it,
#: pages find the tasks that work on an archive, whatever their DAGs are called.
ARCHIVE_KEY = "archive"


class ArchiveLink(BaseOperatorLink):
    """The Archive button, which opens the archive's page with the progress of running tasks.

    In Airflow 3 the worker requests it; in Airflow 2 the webserver, which has only what the task
    has pushed.
    """

    name = "Archive"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's URL; empty, which hides the button, if the archive isn't known."""
        if AIRFLOW_V_3_0_PLUS:
            return _address_of(operator, ti_key.dag_id)
        told = XCom.get_value(ti_key=ti_key, key=ARCHIVE_KEY)
        if not is_told(told):
            return ""
        return archive_address(ti_key.dag_id, operator.task_type, told["pipeline"], told["archive"])


def is_told(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether an XCom's value says which archive its task works on: any may write any."""
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), str) for name in ("pipeline", "archive"))
        and isinstance(value.get("is_restore", False), bool)
    )


def archive_address(dag_id: str, task_type: str, pipeline: str, archive: str) -> str:
    """Return the URL of the page of the archive that a task works on.

    In a DAG with a factory's usual id, that is the page of the pipeline's drains; otherwise the
    server looks up which DAG validates the archive. A group's drain task works on several
    archives, so it links to the page that lists all archives.
    """
    if task_type == "KafkaDrainGroupOperator":
        return page_url("/archives")
    if dag_id in {f"{kind}_{pipeline}" for kind in KINDS}:
        return page_url(f"/archives/{quote(f'drain_{pipeline}', safe='')}")
    return page_url(f"/archive?{urlencode({'at': archive})}")


def _address_of(operator: Any, dag_id: str) -> str:
    pipeline = operator.pipeline
    if not isinstance(pipeline, Pipeline):  # the task failed before it could be read
        return ""
    return archive_address(dag_id, operator.task_type, pipeline.name, pipeline.archive)


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


def show_archive(context: Context, operator: Any) -> None:
    """Show the archive of a running task, and its Archive button.

    Airflow 3 requests links only at the end.
    """
    task_instance = context["ti"]
    if task_instance is None:
        return
    if AIRFLOW_V_3_0_PLUS:
        address = _address_of(operator, task_instance.dag_id)
        task_instance.xcom_push(key=ArchiveLink().xcom_key, value=address)
    pipeline = operator.pipeline
    told = {"pipeline": pipeline.name, "archive": pipeline.archive}
    told["is_restore"] = operator.is_restore
    task_instance.xcom_push(key=ARCHIVE_KEY, value=told)
