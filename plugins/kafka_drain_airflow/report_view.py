"""The report of a validation, as a page of Airflow's API server."""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from kafka_drain_airflow.metadata_database import report_of
from kafka_drain_airflow.server_reading import page_beside

__all__ = ["HEADERS", "not_found", "router"]

HEADERS = {
    # A report names topics and paths, which others chose: nothing in it may ever run or load.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A task that is cleared writes its report anew.
    "Cache-Control": "private, no-cache",
}
router = APIRouter()


# Airflow mounts a plugin's application without any authentication; the dependency does it: 401
# without a login, 403 without the right to read this DAG's XComs.
@router.get(
    "/reports/{dag_id}",
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.XCOM))],
    response_class=HTMLResponse,
)
def report(
    dag_id: str,
    run_id: Annotated[str, Query(min_length=1)],
    session: SessionDep,
    task_id: str = "validate",
    map_index: int = -1,
) -> Response:
    """Return the report that a task instance wrote."""
    try:
        path = report_of(session, dag_id, run_id, task_id, map_index)
    except LookupError as error:
        return not_found(str(error))
    page = page_beside(path)
    if page is None:
        return not_found(f"{path!r} isn't the report of an archive that this server can read.")
    return HTMLResponse(page.read_bytes(), headers=HEADERS)


def not_found(text: str) -> Response:
    """Answer that there is no such page; says why."""
    return PlainTextResponse(text + "\n", status_code=404, headers=HEADERS)
