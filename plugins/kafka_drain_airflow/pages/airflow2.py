"""The plugin's pages for Airflow 2's webserver, below `/kafka-drain`, and their menu item."""

from __future__ import annotations

from typing import Any

from airflow.api_connexion.security import requires_access_view
from airflow.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.security.permissions import RESOURCE_BROWSE_MENU, RESOURCE_DAG
from airflow.utils.session import create_session
from airflow.www.auth import has_access_dag, has_access_view
from airflow.www.extensions.init_auth_manager import get_auth_manager
from flask import Blueprint, Response, request

from kafka_drain_airflow.addresses import URL_PREFIX
from kafka_drain_airflow.pages import answers as page_answers
from kafka_drain_airflow.pages.answers import Answer

blueprint = Blueprint("kafka_drain", __name__, url_prefix=URL_PREFIX)

MENU_ITEM = {
    "label": "Kafka archives",
    "category": RESOURCE_BROWSE_MENU,
    "href": "kafka_drain.archives",
    # The name of the resource that a role needs menu access to. With a resource of its own, only
    # Admin would see the item: whoever may see DAGs in the menu may also see their archives.
    "name": RESOURCE_DAG,
}

# Airflow doesn't require a login for a plugin's pages, so each page checks access itself. Without
# a login, Airflow redirects to its login page; without read access to the DAG's XComs, to its home
# page.
_may_read = has_access_dag("GET", DagAccessEntity.XCOM)


@blueprint.get("/archives")
@has_access_view()
def archives() -> Response:
    """Return the page that lists all archives whose DAGs the user may read."""
    with create_session() as session:
        return _response(page_answers.archives(session, _readable(session)))


# Like Airflow's REST API: accepts the same logins, and returns 401 without one.
@blueprint.get("/api/archives")
@requires_access_view(AccessView.WEBSITE)
def archives_as_json() -> Response:
    """Return the list of archives as JSON."""
    with create_session() as session:
        return _response(page_answers.archives_as_json(session, _readable(session)))


# The button of a task, which doesn't know which DAG validates its archive.
@blueprint.get("/archive")
@has_access_view()
def archive_at() -> Response:
    """Redirect to the page of the archive at a path or URL."""
    with create_session() as session:
        at = request.args.get("at", "")
        return _response(page_answers.archive_at(session, at, _readable(session)))


@blueprint.get("/archives/<dag_id>")
@_may_read
def archive_of(dag_id: str) -> Response:
    """Return the page of a drain's archive."""
    with create_session() as session:
        return _response(page_answers.archive(session, dag_id, _readable(session)))


@blueprint.get("/archives/<dag_id>/receipts/<int:generation>/<name>")
@_may_read
def receipt(dag_id: str, generation: int, name: str) -> Response:
    """Return a receipt exactly as it was sealed."""
    with create_session() as session:
        return _response(page_answers.receipt(session, dag_id, generation, name))


@blueprint.get("/archives/<dag_id>/report")
@_may_read
def newest_report(dag_id: str) -> Response:
    """Return the newest report of a drain's archive, in the system's colors or the given ones."""
    with create_session() as session:
        colours = request.args.get("colours", "")
        return _response(page_answers.newest_report(session, dag_id, colours))


@blueprint.get("/reports/<dag_id>")
@_may_read
def report(dag_id: str) -> Response:
    """Return the report that a task instance wrote."""
    asked = request.args
    run_id, task_id = asked.get("run_id", ""), asked.get("task_id", "validate")
    map_index = asked.get("map_index", -1, type=int)
    with create_session() as session:
        return _response(page_answers.report(session, dag_id, run_id, task_id, map_index))


def _readable(session: Any) -> set[str]:
    """Return the ids of the DAGs that the user may read."""
    return set(get_auth_manager().get_permitted_dag_ids(methods=["GET"], session=session))


def _response(answer: Answer) -> Response:
    """Convert an answer to a Flask response."""
    return Response(
        answer.content, answer.status, dict(answer.headers), content_type=answer.media_type
    )
