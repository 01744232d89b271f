"""The pages in Airflow 3's API server."""

from __future__ import annotations

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

if not AIRFLOW_V_3_0_PLUS:
    pytest.skip("Airflow 2 has no FastAPI server", allow_module_level=True)

from fastapi.routing import APIRoute

from kafka_drain_airflow.pages.airflow3 import app, make_right

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
