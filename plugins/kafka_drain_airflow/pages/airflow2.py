"""The plugin's pages for Airflow 2's webserver, below `/kafka-drain`, and their menu item."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar

from airflow.api_connexion.security import requires_access_view
from airflow.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.security.permissions import RESOURCE_BROWSE_MENU, RESOURCE_DAG
from airflow.utils.session import create_session
from airflow.www.auth import has_access_dag, has_access_view
from airflow.www.extensions.init_auth_manager import get_auth_manager
from flask import Blueprint, Response, request

from kafka_drain_airflow.addresses import URL_PREFIX
from kafka_drain_airflow.pages import answers as page_answers
from kafka_drain_airflow.pages.answers import Answer
from kafka_drain_airflow.pages.rights import ENTITIES, Rights

V = TypeVar("V", bound=Callable[..., Response])

blueprint = Blueprint("kafka_drain", __name__, url_prefix=URL_PREFIX)

MENU_ITEMS = [
    {
        "label": f"Kafka {name}",
        "category": RESOURCE_BROWSE_MENU,
        "href": f"kafka_drain.{name}",
        # The name of the resource that a role needs menu access to. With a resource of its own,
        # only Admin would see the item: whoever may see DAGs in the menu may also see their
        # archives.
        "name": RESOURCE_DAG,
    }
    for name in ("archives", "restores")
]

_ENTITIES = [DagAccessEntity[name] for name in ENTITIES]


def _may_read(view: V) -> V:
    """Let only users in who may see a DAG's runs, tasks and XComs.

    Airflow doesn't require a login for a plugin's pages, so each page checks access itself.
    Without a login, Airflow redirects to its login page; without a right, to its home page.
    """
    checks = [has_access_dag("GET", entity) for entity in _ENTITIES]
    return reduce(lambda checked, check: check(checked), checks, view)


@blueprint.get("/archives")
@has_access_view()
def archives() -> Response:
    """Return the page that lists all archives whose DAGs the user may read."""
    with create_session() as session:
        return _response(page_answers.archives(session, _rights(session)))


# Like Airflow's REST API: accepts the same logins, and returns 401 without one.
@blueprint.get("/api/archives")
@requires_access_view(AccessView.WEBSITE)
def archives_as_json() -> Response:
    """Return the list of archives as JSON."""
    with create_session() as session:
        return _response(page_answers.archives_as_json(session, _rights(session)))


# The button of a task, which doesn't know which DAG validates its archive.
@blueprint.get("/archive")
@has_access_view()
def archive_at() -> Response:
    """Redirect to the page of the archive at a path or URL."""
    with create_session() as session:
        at = request.args.get("at", "")
        return _response(page_answers.archive_at(session, at, _rights(session)))


@blueprint.get("/archives/<dag_id>")
@_may_read
def archive_of(dag_id: str) -> Response:
    """Return the page of a drain's archive."""
    with create_session() as session:
        return _response(page_answers.archive(session, dag_id, _rights(session)))


@blueprint.get("/restores")
@has_access_view()
def restores() -> Response:
    """Return the page that lists the restores of all archives."""
    with create_session() as session:
        return _response(page_answers.restores(session, _rights(session)))


@blueprint.get("/archives/<dag_id>/receipts/<int:generation>/<name>")
@_may_read
def receipt(dag_id: str, generation: int, name: str) -> Response:
    """Return a receipt exactly as it was sealed."""
    with create_session() as session:
        return _response(page_answers.receipt(session, dag_id, generation, name))


@blueprint.get("/archives/<dag_id>/receipts/<int:generation>/<name>/page")
@_may_read
def receipt_page(dag_id: str, generation: int, name: str) -> Response:
    """Return a receipt as a page."""
    with create_session() as session:
        return _response(page_answers.receipt_page(session, dag_id, generation, name))


@blueprint.get("/archives/<dag_id>/report")
@_may_read
def newest_report(dag_id: str) -> Response:
    """Return the newest report of a drain's archive; without links if another page embeds it."""
    colours, embedded = request.args.get("colours", ""), "embedded" in request.args
    with create_session() as session:
        answer = page_answers.newest_report(session, dag_id, colours, embedded=embedded)
        return _response(answer)


@blueprint.get("/archives/<dag_id>/report.json")
@_may_read
def newest_report_as_json(dag_id: str) -> Response:
    """Return the newest report's JSON document."""
    with create_session() as session:
        return _response(page_answers.newest_report(session, dag_id, as_json=True))


@blueprint.get("/reports/<dag_id>")
@_may_read
def report(dag_id: str) -> Response:
    """Return the report that a task instance wrote, as a page or as its JSON document."""
    args = request.args
    asked = page_answers.AskedReport(
        dag_id,
        args.get("run_id", ""),
        args.get("task_id", "validate"),
        args.get("map_index", -1, type=int),
    )
    with create_session() as session:
        as_json = args.get("form") == "json"
        return _response(page_answers.report(session, asked, as_json=as_json))


def _rights(session: Any) -> Rights:
    """Return the user's rights."""
    manager = get_auth_manager()
    dag_ids = set(manager.get_permitted_dag_ids(methods=["GET"], session=session))

    def may_see(dag_id: str) -> bool:
        details = DagDetails(id=dag_id)
        return all(
            manager.is_authorized_dag(method="GET", access_entity=entity, details=details)
            for entity in _ENTITIES
        )

    return Rights(dag_ids, lambda some: [dag_id for dag_id in some if may_see(dag_id)])


def _response(answer: Answer) -> Response:
    """Convert an answer to a Flask response."""
    return Response(
        answer.content, answer.status, dict(answer.headers), content_type=answer.media_type
    )
