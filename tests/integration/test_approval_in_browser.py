"""A person approves a republish in Airflow's UI: in a real Chromium, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from demo.broker.ports import free_ports
from demo.chromium import CHROMIUM, Chromium, Page
from demo.local_airflow import LocalAirflow
from demo.local_postgres import LocalPostgres
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plans import list_plans
from kafka_drain.offsets import TopicPartition
from kafka_drain_airflow.operators.approval import can_approve
from tests.airflow_api import AirflowApi, rows_of
from tests.faults.injection import wait_for
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.security.watching import files_with

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.browser,
    pytest.mark.skipif(
        not AIRFLOW_V_3_0_PLUS or not can_approve(), reason="asking a person needs Airflow 3.1"
    ),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]

RECORDS, VALUE = 500, b"seen"
#: Width in pixels at which each row of a table is a list.
NARROW = 480
NAME = "clicked"
#: A value that Airflow takes for secret by its name; the broker doesn't ask for it.
SECRET = "correct-horse-battery-staple"
DAGS = """
from kafka_drain_airflow import Approval, Pipeline, create_dags

pipeline = Pipeline(name="{name}", topics=["{name}"], archive="{archive}")
create_dags(
    pipeline, {approval} dag_id="{pattern}", schedules={{"drain": None, "maintain": None}},
    default_args={{"retries": 0}},
)
"""


@dataclass
class Clicks:
    """A running Airflow on PostgreSQL, a browser that is logged in, and an archive of records."""

    airflow: LocalAirflow
    archive: Archive
    api: AirflowApi
    browser: Chromium

    def open(self, path: str, width: int = 1500, *, dark: bool = False) -> Page:
        """Return a page of Airflow's UI."""
        page = self.browser.open(width, 1000, dark=dark)
        page.go(self.airflow.url + path, ("_token", self.api.token))
        return page


def values(records: Any) -> list[bytes]:
    """Return the values of what was read from a topic."""
    return [value for rows in records.values() for _, value, *_ in rows]


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str) -> Iterator[Clicks]:
    """Airflow with its scheduler, and an archive; one republish asks a person, one takes an id."""
    folder = tmp_path_factory.mktemp("clicks")
    made = MadeArchive(folder / "archive", {NAME: "id-1"})
    made.seal({TopicPartition(NAME, 0): dense(0, RECORDS)}, value=VALUE, key=b"k")
    made.open_generation()
    dags = folder / "dags"
    dags.mkdir()
    for pattern, approval in (
        ("{kind}_{name}", 'approval=Approval(kinds=["republish"]),'),
        ("form_{kind}_{name}", ""),
    ):
        text = DAGS.format(name=NAME, archive=made.root, pattern=pattern, approval=approval)
        (dags / f"{pattern[:4].strip('{')}.py").write_text(text)
    [port] = free_ports(1, avoid=())
    kafka = {"ssl.key.password": SECRET}
    with LocalPostgres(folder / "postgres") as server:
        with (
            LocalAirflow(folder, bootstrap_servers, port, dags, server.url, kafka) as airflow,
            Chromium(folder / "chromium") as browser,
        ):
            airflow.run("db", "migrate", log="migrate")
            with airflow.running():
                api = AirflowApi.login(airflow)
                for dag_id in (f"republish_{NAME}", f"form_republish_{NAME}"):
                    api.unpause(dag_id)
                yield Clicks(airflow, made.archive, api, browser)
        server.stop()
        server.remove()


@pytest.mark.parametrize(("width", "dark"), [(1500, False), (NARROW, True)])
def test_approve_clicked(
    clicks: Clicks, width: int, dark: bool, make_topic: Any, read: Any
) -> None:
    """Airflow shows the plan; nothing is sent before the click, then exactly that; it is listed."""
    target, dag_id, run_id = make_topic(), f"republish_{NAME}", f"w{width}"
    clicks.api.trigger(dag_id, run_id, target_topic=target)
    clicks.api.question(dag_id, run_id)
    [plan_id] = list_plans(clicks.archive.root)[-1:]
    page = clicks.open(
        f"/dags/{dag_id}/runs/{run_id}/tasks/approve/required_actions", width, dark=dark
    )

    page.wait_for(f"Republish {NAME}?")
    shown = page.text()
    for said in (f"Send {RECORDS} records of made to Kafka", f"{target} (2 partitions, empty)"):
        assert said in shown
    assert values(read(target)) == []
    page.click("button", "Approve")

    assert clicks.api.ended(dag_id, run_id) == dict.fromkeys(
        ("plan", "approve", "republish"), "success"
    )
    assert values(read(target)) == [VALUE] * RECORDS
    assert list_plans(clicks.archive.root)[-1:] == [plan_id]
    # Airflow's menu leads to the restores, in its frame.
    page.go(f"{clicks.airflow.url}/plugin/kafka-restores")
    between = "\t" if width > NARROW else "\n"
    page.wait_for(between.join(("verified, exact", target, str(RECORDS))))
    page.close()


def test_plan_id_typed(clicks: Clicks, make_topic: Any, read: Any) -> None:
    """Without a task that asks, the form takes the id that the dry run said, and sends that."""
    target, dag_id = make_topic(), f"form_republish_{NAME}"
    clicks.api.trigger(dag_id, "dry", target_topic=target)
    assert clicks.api.ended(dag_id, "dry") == {"republish": "success"}
    [plan_id] = list_plans(clicks.archive.root)[-1:]
    page = clicks.open(f"/dags/{dag_id}/runs/dry/tasks/republish")
    page.wait_for(f"set plan_id {plan_id} and apply to apply it")
    assert values(read(target)) == []

    page.go(f"{clicks.airflow.url}/dags/{dag_id}")
    page.click("button", "Trigger")
    page.click("input[name=element_plan_id]")
    page.type(plan_id)
    page.click("label:has(input[name=element_apply])")
    page.click("[role=dialog] button", "Trigger")

    runs = f"/dags/{dag_id}/dagRuns"
    wait_for(lambda: clicks.api.ask("GET", runs)["total_entries"] == 2, "the form's run")
    [run_id] = {run["dag_run_id"] for run in clicks.api.ask("GET", runs)["dag_runs"]} - {"dry"}
    assert clicks.api.ended(dag_id, quote(run_id)) == {"republish": "success"}
    assert values(read(target)) == [VALUE] * RECORDS
    assert list_plans(clicks.archive.root)[-1:] == [plan_id]
    page.close()


def test_secret_nowhere(clicks: Clicks) -> None:
    """In no table is the connection's secret, be it rendered templates, XComs or the audit log."""
    tables = rows_of(
        clicks.airflow, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    )
    rows = {
        name: [row for (row,) in rows_of(clicks.airflow, f'SELECT t::text FROM "{name}" t')]
        for (name,) in tables
    }

    for filled in ("log", "xcom", "rendered_task_instance_fields", "serialized_dag", "hitl_detail"):
        assert rows[filled], filled
    assert {name for name, found in rows.items() if any(SECRET in row for row in found)} == set()
    assert files_with(SECRET, clicks.airflow.home) == {}
