"""The report of a validation, as a page of Airflow 3's API server."""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse, Response

from kafka_drain_airflow.pages import answers as page_answers
from kafka_drain_airflow.pages.answers import Answer

__all__ = ["response", "router"]

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
    return response(page_answers.report(session, dag_id, run_id, task_id, map_index))


def response(answer: Answer) -> Response:
    """Return an answer in FastAPI's words."""
    return Response(answer.content, answer.status, dict(answer.headers), answer.media_type)
