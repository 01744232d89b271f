"""The right to see records in Airflow's FAB auth manager; `make test-fab` installs that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.airflow_program import ROOT, answer_of

pytest.importorskip("airflow.providers.fab", reason="only `make test-fab` has it")
pytest.importorskip("airflow.api_fastapi", reason="Airflow 2 has no such auth manager")

DAGS = """
from kafka_drain_airflow import Pipeline, create_dags

create_dags(
    Pipeline(name="a", topics=["t"], archive="{archive}", erase_conn_id="keys"),
    dag_kwargs={{
        "republish": {{
            "access_control": {{
                "Restorer": {{
                    "DAGs": {{"can_read", "can_edit"}},
                    "DAG Runs": {{"can_read", "can_create"}},
                }}
            }}
        }}
    }},
)
"""

#: Asks for the page with its form as users of three roles, then gives one of them the right.
ASKS = """
import json, sys

from airflow.utils import db

db.initdb()

from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.cli.cli_parser import get_parser
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
from fastapi import FastAPI
from fastapi.testclient import TestClient

from kafka_drain_plugin import KafkaDrainPlugin

with get_application_builder() as builder:
    security = builder.sm
    security.sync_roles()
    security.add_role("Auditor")
    security.add_role("Restorer")
    for right in json.loads(sys.argv[1]):
        security.add_permission_to_role(
            security.find_role("Auditor"), security.create_permission(*right)
        )
    for role in ("Admin", "User", "Op", "Auditor", "Restorer"):
        found = security.find_role(role)
        security.add_user(role, role, role, f"{role}@example.org", found, password="x")

args = get_parser().parse_args(["dags", "reserialize"])
args.func(args)
server = FastAPI()
manager = init_auth_manager(server)
for mounted in KafkaDrainPlugin().fastapi_apps:
    server.mount(mounted["url_prefix"], mounted["app"])

with manager.flask_app.app_context():
    users = {role: security.find_user(username=role) for role in ("Admin", "Op", "Auditor")}
    tokens = {role: manager.generate_jwt(user) for role, user in users.items()}

def ask():
    found = {}
    for role, token in tokens.items():
        client = TestClient(server, cookies={"_token": token})
        page = client.get("/kafka-drain/archives/drain_a")
        form = client.get("/kafka-drain/archives/drain_a/records")
        found[role] = page.status_code, "/records" in page.text, form.status_code
    return found

before = ask()
with get_application_builder() as builder:
    right = builder.sm.get_permission("can_read", "Kafka records")
    if right is not None:
        builder.sm.add_permission_to_role(builder.sm.find_role("Auditor"), right)
    starts = {
        role: [
            dag_id
            for dag_id in ("drain_a", "republish_a", "erase_a")
            if manager.is_authorized_dag(
                method="POST",
                access_entity=DagAccessEntity.RUN,
                details=DagDetails(id=dag_id),
                user=builder.sm.find_user(username=role),
            )
        ]
        for role in ("Restorer", "User")
    }
after = ask()
print(json.dumps([before, after, right is not None, starts]))
"""

#: What of a DAG the pages show, as FAB calls it.
READS = [
    ("can_read", "DAGs"),
    ("can_read", "DAG Runs"),
    ("can_read", "Task Instances"),
    ("can_read", "XComs"),
]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What users see before and after one is given the right, and what they may start."""
    folder = tmp_path_factory.mktemp("fab")
    (folder / "dags").mkdir()
    (folder / "a").mkdir()
    (folder / "dags" / "a.py").write_text(DAGS.format(archive=folder / "a"))
    auth = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
    return answer_of(
        ASKS,
        json.dumps(READS),
        home=folder / "airflow",
        AIRFLOW__CORE__AUTH_MANAGER=auth,
        AIRFLOW__CORE__DAGS_FOLDER=str(folder / "dags"),
        AIRFLOW__CORE__LOAD_EXAMPLES="false",
        AIRFLOW__CORE__PLUGINS_FOLDER=str(ROOT / "plugins"),
        # The auth manager keeps users for half a minute.
        AIRFLOW__FAB__CACHE_TTL="0",
        AIRFLOW__KAFKA_DRAIN__RECORDS_PAGE="true",
    )


def test_records_right_in_fab(asked: Any) -> None:
    """Admin may see records, and may give the right to others; nobody else has it before."""
    before, after, is_there, _ = asked

    assert is_there
    assert before["Admin"] == [200, True, 200]
    assert before["Op"] == before["Auditor"] == [200, False, 403]
    assert after["Auditor"] == [200, True, 200]
    assert after["Op"] == before["Op"]


def test_starts_by_access_control(asked: Any) -> None:
    """A role without rights to all DAGs starts those whose `access_control` names it, no others."""
    *_, starts = asked

    assert starts["Restorer"] == ["republish_a"]
    # FAB's own roles may start all DAGs, whatever a DAG says.
    assert starts["User"] == ["drain_a", "republish_a", "erase_a"]
