"""The tutorial, clicked through in a real Chromium, with the figures and words that it says.

`make pictures` says with TESTS_PICTURES where to put pictures, in the folders `light` and `dark`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_1_PLUS

from demo.broker import KafkaCluster
from demo.broker.ports import free_ports
from demo.chromium import CHROMIUM, Chromium, Page
from demo.flights import FLIGHTS, create_topic, flight_records, produce
from demo.local_airflow import LocalAirflow
from demo.local_postgres import LocalPostgres
from tests.airflow_api import AirflowApi
from tests.faults.injection import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.browser,
    pytest.mark.skipif(not AIRFLOW_V_3_1_PLUS, reason="the tutorial's UI is Airflow 3's"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]

PICTURES = os.environ.get("TESTS_PICTURES", "")
WIDTH, HEIGHT = 1280, 800


@dataclass
class Tutorial:
    """What `make ui` starts, with a browser that is logged in."""

    airflow: LocalAirflow
    api: AirflowApi
    browser: Chromium

    def open(self, path: str, *, dark: bool = False) -> Page:
        """Return a page of Airflow's UI."""
        page = self.browser.open(WIDTH, HEIGHT, dark=dark)
        page.go(self.airflow.url + path, ("_token", self.api.token))
        return page

    def look(self, name: str, path: str, *shown: str, click: str = "") -> None:
        """Open a page, light and dark; it has to show texts, after a click on a button."""
        for scheme in ("light", "dark"):
            page = self.open(path, dark=scheme == "dark")
            if click:
                page.click("button", click)
            for text in shown:
                page.wait_for(text)
            if PICTURES:
                folder = Path(PICTURES) / scheme
                folder.mkdir(parents=True, exist_ok=True)
                page.picture(folder / f"tutorial-{name}.png")
            page.close()

    def run_of(self, dag_id: str) -> str:
        """Wait for the only run of a DAG; return its id, as it is in addresses."""
        runs = f"/dags/{dag_id}/dagRuns"
        wait_for(lambda: self.api.ask("GET", runs)["total_entries"] == 1, "a run", patience=60)
        [run] = self.api.ask("GET", runs)["dag_runs"]
        run_id = quote(run["dag_run_id"], safe="")
        assert set(self.api.ended(dag_id, run_id).values()) == {"success"}
        return run_id


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tutorial]:
    """A broker with the flights, and Airflow with its scheduler."""
    folder = tmp_path_factory.mktemp("tutorial")
    [port] = free_ports(1, avoid=())
    with KafkaCluster(folder / "broker") as broker, LocalPostgres(folder / "postgres") as server:
        servers = broker.bootstrap_servers
        create_topic(servers, "flights")
        assert produce(servers, "flights", flight_records()) == FLIGHTS
        with (
            LocalAirflow(folder, servers, port, database=server.url) as airflow,
            Chromium(folder / "chromium") as browser,
        ):
            airflow.run("db", "migrate", log="migrate")
            with airflow.running():
                yield Tutorial(airflow, AirflowApi.login(airflow), browser)
        server.stop()
        server.remove()


def test_tutorial(tutorial: Tutorial) -> None:
    """Each step shows what the tutorial says of it."""
    # The form unpauses the DAG, which starts the run of the hour that has ended.
    tutorial.api.unpause("drain_flights")
    run = f"/dags/drain_flights/runs/{tutorial.run_of('drain_flights')}"
    tutorial.look("drain", run, "ValidateManifestOperator", "KafkaDrainOperator")
    tutorial.look("log", f"{run}/tasks/drain", f"{FLIGHTS:,} of {FLIGHTS:,} offsets (100 %)")
    tutorial.look(
        *("archives", "/plugin/kafka-archives"),
        *("1 archive: 1 ready", f"{FLIGHTS:,} records"),
    )
    report = "/kafka-drain/archives/drain_flights/report"
    tutorial.look("report", report, "Complete: every drained offset", f"{FLIGHTS:,}")
    tutorial.look(
        *("form", "/dags/republish_flights", "Plan id", "Where to"),
        click="Trigger",
    )
    sends = {"apply": True, "create_target": True}
    tutorial.api.unpause("republish_flights")
    tutorial.api.trigger("republish_flights", "sent", **sends)
    sent = f"/dags/republish_flights/runs/{tutorial.run_of('republish_flights')}"
    verified = f"verify: {FLIGHTS:,} records are in Kafka once, in order, as in the files"
    tutorial.look("republish", f"{sent}/tasks/republish", verified)
    tutorial.look(*("archive", "/kafka-drain/archives/drain_flights"), "Receipts", f"{FLIGHTS:,}")
