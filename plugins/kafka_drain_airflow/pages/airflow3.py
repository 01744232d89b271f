"""The plugin's pages for Airflow 3's API server, below `/kafka-drain`."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dag import DagModel
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_1_PLUS
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from kafka_drain_airflow.addresses import URL_PREFIX, airflow_url, page_url
from kafka_drain_airflow.pages import answers as page_answers
from kafka_drain_airflow.pages.answers import Answer
from kafka_drain_airflow.pages.records import RIGHT, is_on
from kafka_drain_airflow.pages.rights import ENTITIES, Rights


@cache
def make_right() -> None:
    """Make the right to see records in Airflow's FAB auth manager, once; its Admin gets it.

    It makes rights only for Flask's views, which the pages aren't, and what isn't made can't be
    given to a role. Called before the user is loaded, with all rights.
    """
    if is_on() and type(get_auth_manager()).__module__.startswith("airflow.providers.fab."):
        from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

        with get_application_builder() as builder:
            builder.sm.add_permissions_view(["can_read"], RIGHT)


# Airflow mounts a plugin's application without authentication, so each route checks access itself:
# 401 without a login, 403 without read access to the DAG's runs, tasks and XComs.
app = FastAPI(
    title="kafka-drain",
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
    dependencies=[Depends(make_right)],
)

if not AIRFLOW_V_3_1_PLUS:

    @app.middleware("http")
    async def login_by_cookie(request: Request, call_next: Any) -> Any:
        """Take the login from Airflow's cookie too, as Airflow itself does from 3.1 on.

        A browser that opens a page sends nothing else.
        """
        token = request.cookies.get(COOKIE_NAME_JWT_TOKEN)
        if token and "authorization" not in request.headers:
            login = (b"authorization", f"Bearer {token}".encode())
            request.scope["headers"] = [*request.scope["headers"], login]
        return await call_next(request)


_ENTITIES = [DagAccessEntity[name] for name in ENTITIES]
_MAY_READ = [Depends(requires_access_dag("GET", entity)) for entity in _ENTITIES]
#: Airflow's answer to a login that it can't read, with 403: its own UI asks to log in again.
_BAD_LOGIN = "Invalid JWT token"


@app.exception_handler(HTTPException)
def refused(request: Request, error: HTTPException) -> Response:
    """Send a browser without a login to Airflow's, and tell it in words what it may not see."""
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
    if error.status_code == 401 or error.detail == _BAD_LOGIN:
        path = page_url(request.url.path.partition(URL_PREFIX)[2])
        back = f"{path}?{request.url.query}" if request.url.query else path
        login = f"{airflow_url('/api/v2/auth/login')}?{urlencode({'next': back})}"
        return RedirectResponse(login, 303, {"Cache-Control": "no-store"})
    return _response(page_answers.refused(error.status_code, str(error.detail)))


# Archives of DAGs that the user may not read are left out.
@app.get("/archives", response_class=HTMLResponse)
def archives(session: SessionDep, user: GetUserDep) -> Response:
    """Return the page that lists all archives."""
    return _response(page_answers.archives(session, _rights(session, user)))


@app.get("/api/archives")
def archives_as_json(session: SessionDep, user: GetUserDep) -> Response:
    """Return the list of archives as JSON."""
    return _response(page_answers.archives_as_json(session, _rights(session, user)))


@app.get("/restores", response_class=HTMLResponse)
def restores(session: SessionDep, user: GetUserDep) -> Response:
    """Return the page that lists the restores of all archives."""
    return _response(page_answers.restores(session, _rights(session, user)))


# The button of a task, which doesn't know which DAG validates its archive.
@app.get("/archive")
def archive_at(
    at: Annotated[str, Query(min_length=1)], session: SessionDep, user: GetUserDep
) -> Response:
    """Redirect to the page of the archive at a path or URL."""
    return _response(page_answers.archive_at(session, at, _rights(session, user)))


@app.get("/archives/{dag_id}", dependencies=_MAY_READ, response_class=HTMLResponse)
def archive_of(dag_id: str, session: SessionDep, user: GetUserDep) -> Response:
    """Return the page of a drain's archive."""
    rights, may_see = _rights(session, user), _may_see_records(user)
    return _response(page_answers.archive(session, dag_id, rights, may_see_records=may_see))


def _may_see_records(user: Any) -> bool:
    """Return whether a user has the right to see records, besides those to the archive's DAG."""
    if not is_on():
        return False
    manager: Any = get_auth_manager()
    if isinstance(manager, SimpleAuthManager):
        # It lets every viewer see any view of a plugin: here it takes its role `op`.
        return bool(manager.is_authorized_configuration(method="PUT", user=user))
    allowed = manager.is_authorized_custom_view(method="GET", resource_name=RIGHT, user=user)
    return bool(allowed)


def require_records(user: GetUserDep) -> None:
    """Let only users in who may see records.

    Raises:
        HTTPException: For anybody else.
    """
    if not _may_see_records(user):
        raise HTTPException(403, f"Forbidden: it takes the right {RIGHT!r}")


async def posted_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form that was sent."""
    return parse_qs((await request.body()).decode())


_MAY_SEE_RECORDS = [*_MAY_READ, Depends(require_records)]
_Posted = Annotated[dict[str, list[str]], Depends(posted_form)]


# What is looked for is posted, although nothing is changed: addresses are in logs and histories.
@app.get("/archives/{dag_id}/records", dependencies=_MAY_SEE_RECORDS, response_class=HTMLResponse)
def records_form(dag_id: str, session: SessionDep, user: GetUserDep) -> Response:
    """Return the form with which an archive's records are looked for."""
    return _response(page_answers.records(session, dag_id, _rights(session, user), ""))


@app.post("/archives/{dag_id}/records", dependencies=_MAY_SEE_RECORDS, response_class=HTMLResponse)
def records(dag_id: str, posted: _Posted, session: SessionDep, user: GetUserDep) -> Response:
    """Return a page of records that were found."""
    rights, name = _rights(session, user), user.get_name()
    return _response(page_answers.records(session, dag_id, rights, name, posted))


@app.post("/archives/{dag_id}/records.jsonl", dependencies=_MAY_SEE_RECORDS)
def records_as_lines(
    dag_id: str, posted: _Posted, session: SessionDep, user: GetUserDep
) -> Response:
    """Return the records that were found as JSON lines."""
    return _response(page_answers.records_as_lines(session, dag_id, user.get_name(), posted))


@app.get("/archives/{dag_id}/receipts/{generation}/{name}", dependencies=_MAY_READ)
def receipt(dag_id: str, generation: int, name: str, session: SessionDep) -> Response:
    """Return a receipt exactly as it was sealed."""
    return _response(page_answers.receipt(session, dag_id, generation, name))


@app.get("/archives/{dag_id}/receipts/{generation}/{name}/page", dependencies=_MAY_READ)
def receipt_page(dag_id: str, generation: int, name: str, session: SessionDep) -> Response:
    """Return a receipt as a page."""
    return _response(page_answers.receipt_page(session, dag_id, generation, name))


@app.get("/archives/{dag_id}/report", dependencies=_MAY_READ, response_class=HTMLResponse)
def newest_report(
    dag_id: str,
    session: SessionDep,
    colours: Literal["", "dark", "light"] = "",
    embedded: bool = False,
) -> Response:
    """Return the newest report of a drain's archive; without links if another page embeds it."""
    return _response(page_answers.newest_report(session, dag_id, colours, embedded=embedded))


@app.get("/archives/{dag_id}/report.json", dependencies=_MAY_READ)
def newest_report_as_json(dag_id: str, session: SessionDep) -> Response:
    """Return the newest report's JSON document."""
    return _response(page_answers.newest_report(session, dag_id, as_json=True))


@app.get("/reports/{dag_id}", dependencies=_MAY_READ, response_class=HTMLResponse)
def report(
    dag_id: str,
    run_id: Annotated[str, Query(min_length=1)],
    session: SessionDep,
    task_id: str = "validate",
    map_index: int = -1,
    form: Literal["page", "json"] = "page",
) -> Response:
    """Return the report that a task instance wrote, as a page or as its JSON document."""
    asked = page_answers.AskedReport(dag_id, run_id, task_id, map_index)
    return _response(page_answers.report(session, asked, as_json=form == "json"))


def _rights(session: Any, user: Any) -> Rights:
    """Return a user's rights.

    Airflow's own dependency for this looks for the login in the application object, and a plugin's
    application is separate from Airflow's.
    """
    manager = get_auth_manager()
    dag_ids = manager.get_authorized_dag_ids(user=user, method="GET", session=session)

    def may_see(details: DagDetails) -> bool:
        return all(
            manager.is_authorized_dag(
                method="GET", access_entity=entity, details=details, user=user
            )
            for entity in _ENTITIES
        )

    def visible(some: Collection[str]) -> list[str]:
        return [str(one.id) for one in _details(session, some) if may_see(one)]

    return Rights(dag_ids, visible)


def _details(session: Any, dag_ids: Collection[str]) -> list[DagDetails]:
    """Return DAGs with their teams, as Airflow's own checks pass them: one query for all."""
    # Older releases have no teams.
    teams_of = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)
    if teams_of is None:
        return [DagDetails(id=dag_id) for dag_id in dag_ids]
    teams = teams_of([*dag_ids], session=session)
    return [DagDetails(id=dag_id, team_name=teams.get(dag_id)) for dag_id in dag_ids]


def _response(answer: Answer) -> Response:
    """Convert an answer to a FastAPI response."""
    return Response(answer.content, answer.status, dict(answer.headers), answer.media_type)
