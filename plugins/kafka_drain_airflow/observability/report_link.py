"""The link in Airflow's UI from a validation's task instance to its report."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

from kafka_drain_airflow.addresses import page_url

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, TaskInstanceKey

#: XCom of the validation: path of the report's JSON document.
REPORT_KEY = "report"


class ReportLink(BaseOperatorLink):
    """The Report button of a task instance that wrote a report, even if the task failed.

    In Airflow 3 the worker requests the link when the task has finished, and Airflow stores it as
    an XCom; in Airflow 2 the webserver requests it each time.
    """

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the report's URL in this Airflow; empty, which hides the button, without one."""
        if not XCom.get_value(ti_key=ti_key, key=REPORT_KEY):
            return ""
        query = {"run_id": ti_key.run_id, "task_id": ti_key.task_id}
        if ti_key.map_index is not None and ti_key.map_index >= 0:
            query["map_index"] = str(ti_key.map_index)
        return f"{page_url('/reports')}/{quote(ti_key.dag_id, safe='')}?{urlencode(query)}"
