"""Archives as pages and as JSON of Airflow 3's API server: all at a glance, and each."""

from __future__ import annotations

from typing import Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, Response

from kafka_drain_airflow.pages import answers as page_answers
from kafka_drain_airflow.pages.report_view import response

__all__ = ["router"]

router = APIRouter()


# 401 without a login; without the right to read a DAG, its archive isn't among them.
@router.get("/archives", response_class=HTMLResponse)
def archives(session: SessionDep, user: GetUserDep) -> Response:
    """Return the page of all archives."""
    return response(page_answers.archives(session, _readable(session, user)))


@router.get("/api/archives")
def archives_as_json(session: SessionDep, user: GetUserDep) -> Response:
    """Return the same as JSON."""
    return response(page_answers.archives_as_json(session, _readable(session, user)))


_MAY_READ = [Depends(requires_access_dag("GET", DagAccessEntity.XCOM))]


@router.get("/archives/{dag_id}", dependencies=_MAY_READ, response_class=HTMLResponse)
def archive_of(dag_id: str, session: SessionDep, user: GetUserDep) -> Response:
    """Return the page of a drain's archive."""
    return response(page_answers.archive(session, dag_id, _readable(session, user)))


@router.get("/archives/{dag_id}/receipts/{generation}/{name}", dependencies=_MAY_READ)
def receipt(dag_id: str, generation: int, name: str, session: SessionDep) -> Response:
    """Return a receipt as it was sealed."""
    return response(page_answers.receipt(session, dag_id, generation, name))


@router.get("/archives/{dag_id}/report", dependencies=_MAY_READ, response_class=HTMLResponse)
def newest_report(
    dag_id: str, session: SessionDep, colours: Literal["", "dark", "light"] = ""
) -> Response:
    """Return the newest report of a drain's archive, in the system's colours or given ones."""
    return response(page_answers.newest_report(session, dag_id, colours))


def _readable(session: Any, user: Any) -> set[str]:
    """Return the DAGs that a user may read.

    Airflow's own dependency for it looks for the login in the application, and a plugin's is
    another one than Airflow's.
    """
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
