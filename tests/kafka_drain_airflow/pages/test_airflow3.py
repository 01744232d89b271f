"""The pages in Airflow 3's API server."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

if not AIRFLOW_V_3_0_PLUS:
    pytest.skip("Airflow 2 has no FastAPI server", allow_module_level=True)

from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from fastapi import HTTPException
from fastapi.routing import APIRoute

from kafka_drain_airflow.pages import airflow3, answers
from kafka_drain_airflow.pages.airflow3 import app, make_right, refused
from kafka_drain_airflow.pages.answers import Answer, AskedReport
from kafka_drain_airflow.pages.records import RIGHT
from kafka_drain_airflow.pages.rights import ENTITIES
from kafka_drain_airflow.timetables import BackfillTimetable
from kafka_drain_plugin import KafkaDrainPlugin

ROUTES = [route for route in app.routes if isinstance(route, APIRoute)]
#: What is filtered by what the user may see, in place of being refused.
LISTS = {"/archive", "/archives", "/api/archives", "/restores"}


RECORDS = {"/archives/{dag_id}/records", "/archives/{dag_id}/records.jsonl"}


def test_routes_only_read() -> None:
    """No address changes anything: a forged request, which carries the login, can do nothing.

    What records are looked for is posted, so that it isn't in an address.
    """
    assert len(ROUTES) == len(app.routes) > len(LISTS)
    posting = {route.path for route in ROUTES if route.methods != {"GET"}}
    assert posting == RECORDS
    assert {method for route in ROUTES for method in route.methods} == {"GET", "POST"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_routes_check_access(route: APIRoute) -> None:
    """Each address of a DAG asks for the right to its runs, tasks and XComs; lists filter.

    Records take a right of their own besides. Before each, that right is made where it is missing.
    """
    checks = [each for each in route.dependencies if each.dependency is not make_right]
    assert len(checks) == len(route.dependencies) - 1
    assert len(checks) == (0 if route.path in LISTS else 4 if route.path in RECORDS else 3)


SESSION: Any = object()
USER: Any = SimpleNamespace(get_name=lambda: "me")
FORM = {"key": ["a"]}
#: By function: its arguments, and what it asks for, after the session and with the rights as ME.
ME = "my rights"
CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any], str, tuple[Any, ...], dict[str, Any]]] = [
    (airflow3.archives, (SESSION, USER), {}, "archives", (ME,), {}),
    (airflow3.archives_as_json, (SESSION, USER), {}, "archives_as_json", (ME,), {}),
    (airflow3.restores, (SESSION, USER), {}, "restores", (ME,), {}),
    (airflow3.archive_at, ("/a", SESSION, USER), {}, "archive_at", ("/a", ME), {}),
    (
        *(airflow3.archive_of, ("d", SESSION, USER), {}),
        *("archive", ("d", ME), {"may_see_records": "if I may"}),
    ),
    (airflow3.records_form, ("d", SESSION, USER), {}, "records", ("d", ME, ""), {}),
    (airflow3.records, ("d", FORM, SESSION, USER), {}, "records", ("d", ME, "me", FORM), {}),
    (
        *(airflow3.records_as_lines, ("d", FORM, SESSION, USER), {}),
        *("records_as_lines", ("d", "me", FORM), {}),
    ),
    (airflow3.receipt, ("d", 7, "r", SESSION), {}, "receipt", ("d", 7, "r"), {}),
    (airflow3.receipt_page, ("d", 7, "r", SESSION), {}, "receipt_page", ("d", 7, "r"), {}),
    (
        *(airflow3.newest_report, ("d", SESSION, "dark", True), {}),
        *("newest_report", ("d", "dark"), {"embedded": True}),
    ),
    (
        *(airflow3.newest_report_as_json, ("d", SESSION), {}),
        *("newest_report", ("d",), {"as_json": True}),
    ),
    *(
        (
            *(airflow3.report, ("d", "r", SESSION, "t", 3), {"form": form}),
            *("report", (AskedReport("d", "r", "t", 3),), {"as_json": form == "json"}),
        )
        for form in ("page", "json")
    ),
]


@pytest.mark.parametrize(
    ("route", "given", "named", "asked", "expected", "options"),
    CALLS,
    ids=[f"{number}-{call[3]}" for number, call in enumerate(CALLS)],
)
def test_routes_ask(
    monkeypatch: pytest.MonkeyPatch,
    route: Any,
    given: tuple[Any, ...],
    named: dict[str, Any],
    asked: str,
    expected: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    """Each address hands on what is in it, and the rights and name of who asks."""
    calls: list[Any] = []

    def answer(*args: Any, **more: Any) -> Answer:
        calls.append((args, more))
        return Answer("text", "text/x", 202, {"A": "b"})

    monkeypatch.setattr(answers, asked, answer)
    monkeypatch.setattr(airflow3, "_rights", lambda session, user: ME)
    monkeypatch.setattr(airflow3, "_may_see_records", lambda user: "if I may")

    response = route(*given, **named)

    assert calls == [((SESSION, *expected), options)]
    assert (response.body, response.status_code) == (b"text", 202)
    assert (response.media_type, response.headers["a"]) == ("text/x", "b")


def test_routes_of_all_functions() -> None:
    """The table above has each address."""
    assert {call[0] for call in CALLS} == {route.endpoint for route in ROUTES}


@pytest.mark.parametrize(
    ("accept", "status", "detail", "query", "expected"),
    [
        ("text/html,*/*", 401, "Not authenticated", "", (303, "/kafka-drain/archives")),
        # A login that has expired.
        ("text/html", 403, "Invalid JWT token", "a=1", (303, "/kafka-drain/archives%3Fa%3D1")),
        ("text/html", 403, "Forbidden", "", (403, "the rights to read this DAG")),
        ("text/html", 404, "no such page", "", (404, "such page")),
        ("application/json", 401, "Not authenticated", "", (401, "Not authenticated")),
        ("", 403, "Invalid JWT token", "", (403, "Invalid JWT token")),
    ],
)
def test_refused(
    accept: str, status: int, detail: str, query: str, expected: tuple[int, str]
) -> None:
    """A browser without a valid login is sent to Airflow's; programs get the status and why."""
    url = SimpleNamespace(path="/any/kafka-drain/archives", query=query)
    request: Any = SimpleNamespace(headers={"accept": accept}, url=url)

    response = refused(request, HTTPException(status, detail))

    assert response.status_code == expected[0]
    if expected[0] == 303:
        next_page = expected[1].replace("/", "%2F")
        assert response.headers["location"].endswith(f"/api/v2/auth/login?next={next_page}")
        assert response.headers["cache-control"] == "no-store"
    elif accept.startswith("text/html"):
        assert expected[1] in bytes(response.body).decode()
    else:
        assert json.loads(bytes(response.body)) == {"detail": detail}


class Manager:
    """An auth manager by which a user may see what is listed."""

    def __init__(self, *seen: tuple[str, str]) -> None:
        self.seen = seen
        self.asked: list[Any] = []

    def get_authorized_dag_ids(self, **given: Any) -> set[str]:
        """Return the DAGs that a user may read."""
        assert given == {"user": USER, "method": "GET", "session": SESSION}
        return {"a", "b"}

    def is_authorized_dag(
        self, *, method: str, access_entity: Any, details: Any, user: Any
    ) -> bool:
        """Return whether a user may see an entity of a DAG."""
        assert (method, user) == ("GET", USER)
        self.asked.append(details)
        return (details.id, access_entity.name) in self.seen


@pytest.mark.parametrize("missing", [None, *ENTITIES])
@pytest.mark.parametrize("has_teams", [True, False])
def test_rights(monkeypatch: pytest.MonkeyPatch, missing: str | None, has_teams: bool) -> None:
    """A user sees the DAGs of which each entity may be read; a team's DAG is asked for as such."""
    seen = [(dag_id, name) for dag_id in "ab" for name in ENTITIES]
    manager = Manager(*(one for one in seen if one != ("b", missing)))
    monkeypatch.setattr(airflow3, "get_auth_manager", lambda: manager)

    class Model:
        if has_teams:

            @staticmethod
            def get_dag_id_to_team_name_mapping(dag_ids: Any, session: Any) -> dict[str, str]:
                assert session is SESSION
                return {"b": "red"}

    monkeypatch.setattr(airflow3, "DagModel", Model)
    if has_teams and "team_name" not in DagDetails.__dataclass_fields__:
        pytest.skip("this Airflow has no teams")

    rights = airflow3._rights(SESSION, USER)

    assert set(rights.dag_ids) == {"a", "b"}
    assert set(rights.of({"a", "b", "c"})) == ({"a", "b"} if missing is None else {"a"})
    teams = {one.id: getattr(one, "team_name", None) for one in manager.asked}
    assert teams == {"a": None, "b": "red" if has_teams else None}


def test_plugin_of_airflow3() -> None:
    """The API server mounts the pages where links lead to; the FAB provider gets no views of 2."""
    plugin = KafkaDrainPlugin()

    mounted = {"app": app, "url_prefix": "/kafka-drain", "name": "kafka-drain"}
    assert plugin.fastapi_apps == [mounted]
    unused = (plugin.flask_blueprints, plugin.appbuilder_menu_items, plugin.operator_extra_links)
    assert unused == ([], [], [])
    assert plugin.timetables == [BackfillTimetable]


@pytest.mark.parametrize("may_see", [True, False])
@pytest.mark.parametrize("is_simple", [True, False])
@pytest.mark.parametrize("is_on", [True, False])
def test_require_records(
    monkeypatch: pytest.MonkeyPatch, may_see: bool, is_simple: bool, is_on: bool
) -> None:
    """Records take a right of their own, or with the simple auth manager its role `op`."""
    asked: list[dict[str, Any]] = []

    def answer(**given: Any) -> bool:
        asked.append(given)
        return may_see

    class Simple:
        is_authorized_configuration = staticmethod(answer)

    manager: Any = Simple() if is_simple else SimpleNamespace(is_authorized_custom_view=answer)
    monkeypatch.setattr(airflow3, "SimpleAuthManager", Simple)
    monkeypatch.setattr(airflow3, "get_auth_manager", lambda: manager)
    monkeypatch.setattr(airflow3, "is_on", lambda: is_on)

    if is_on and may_see:
        airflow3.require_records(USER)
    else:
        with pytest.raises(HTTPException) as refusal:
            airflow3.require_records(USER)
        assert refusal.value.status_code == 403
    right = {"method": "GET", "resource_name": RIGHT, "user": USER}
    expected = {"method": "PUT", "user": USER} if is_simple else right
    assert asked == [expected] * is_on
