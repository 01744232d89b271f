"""The plugin's pages for Airflow 3's API server, below `/kafka-drain`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, Query
from fastapi.responses import HTMLResponse, Response

from kafka_drain_airflow.pages import answers as page_answers
from kafka_drain_airflow.pages.answers import Answer

# Airflow mounts a plugin's application without authentication, so each route checks access itself:
# 401 without a login, 403 without read access to the DAG's XComs.
app = FastAPI(title="kafka-drain", docs_url=None, redoc_url=None, openapi_url=None)

_MAY_READ = [Depends(requires_access_dag("GET", DagAccessEntity.XCOM))]


# Archives of DAGs that the user may not read are left out.
@app.get("/archives", response_class=HTMLResponse)
def archives(session: SessionDep, user: GetUserDep) -> Response:
    """Return the page that lists all archives."""
    return _response(page_answers.archives(session, _readable(session, user)))


@app.get("/api/archives")
def archives_as_json(session: SessionDep, user: GetUserDep) -> Response:
    """Return the list of archives as JSON."""
    return _response(page_answers.archives_as_json(session, _readable(session, user)))


# The button of a task, which doesn't know which DAG validates its archive.
@app.get("/archive")
def archive_at(
    at: Annotated[str, Query(min_length=1)], session: SessionDep, user: GetUserDep
) -> Response:
    """Redirect to the page of the archive at a path or URL."""
    return _response(page_answers.archive_at(session, at, _readable(session, user)))


@app.get("/archives/{dag_id}", dependencies=_MAY_READ, response_class=HTMLResponse)
def archive_of(dag_id: str, session: SessionDep, user: GetUserDep) -> Response:
    """Return the page of a drain's archive."""
    return _response(page_answers.archive(session, dag_id, _readable(session, user)))


@app.get("/archives/{dag_id}/receipts/{generation}/{name}", dependencies=_MAY_READ)
def receipt(dag_id: str, generation: int, name: str, session: SessionDep) -> Response:
    """Return a receipt exactly as it was sealed."""
    return _response(page_answers.receipt(session, dag_id, generation, name))


@app.get("/archives/{dag_id}/report", dependencies=_MAY_READ, response_class=HTMLResponse)
def newest_report(
    dag_id: str, session: SessionDep, colours: Literal["", "dark", "light"] = ""
) -> Response:
    """Return the newest report of a drain's archive, in the system's colors or the given ones."""
    return _response(page_answers.newest_report(session, dag_id, colours))


@app.get("/reports/{dag_id}", dependencies=_MAY_READ, response_class=HTMLResponse)
def report(
    dag_id: str,
    run_id: Annotated[str, Query(min_length=1)],
    session: SessionDep,
    task_id: str = "validate",
    map_index: int = -1,
) -> Response:
    """Return the report that a task instance wrote."""
    return _response(page_answers.report(session, dag_id, run_id, task_id, map_index))


def _readable(session: Any, user: Any) -> set[str]:
    """Return the ids of the DAGs that a user may read.

    Airflow's own dependency for this looks for the login in the application object, and a plugin's
    application is separate from Airflow's.
    """
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)


def _response(answer: Answer) -> Response:
    """Convert an answer to a FastAPI response."""
    return Response(answer.content, answer.status, dict(answer.headers), answer.media_type)
