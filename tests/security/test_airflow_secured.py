"""The example DAGs over SASL_SSL: drained, proven, republished exactly once, and no secret left."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from demo.flights import create_topic, flight_records, produce
from demo.local_airflow import LocalAirflow
from tests.faults.republishing import make_target, read_topic
from tests.security.acls import Acls, documented
from tests.security.conftest import PASSWORD
from tests.security.secured_kafka import SecuredKafka
from tests.security.watching import command_lines_with, files_with

pytestmark = pytest.mark.integration

RECORDS = 300
TARGET = "flights-restored"


def test_dags_secured(secured: SecuredKafka, acls: Acls, tmp_path: Path) -> None:
    """Logs, XComs, rendered templates, reports, process lists: the password is in none of them."""
    servers = secured.kafka.bootstrap_servers
    create_topic(servers, "flights")
    assert produce(servers, "flights", islice(flight_records(), RECORDS)) == RECORDS
    content = read_topic(servers, "flights")
    make_target(servers, TARGET, len(content))
    kafka: dict[str, Any] = secured.scram("airflow", PASSWORD)
    acls.only("airflow", *documented("validate", "flights"), *documented("republish", TARGET))
    send = {"target_topic": TARGET, "dry_run": False}

    with (
        command_lines_with(PASSWORD) as command_lines,
        LocalAirflow(tmp_path, kafka["bootstrap.servers"], kafka=kafka) as airflow,
    ):
        airflow.run("db", "migrate", log="migrate")
        airflow.test_dag("drain_flights", "drain", print)
        for engine in ("worker", "spark"):
            conf = json.dumps(send | {"engine": engine, "repeat": engine == "spark"})
            airflow.test_dag("republish_flights", engine, print, "--conf", conf)

    assert read_topic(servers, TARGET) == {p: [*rows, *rows] for p, rows in content.items()}
    assert command_lines == set()
    # Airflow's home with its database and logs, the archive with its reports.
    assert (tmp_path / "airflow" / "airflow.db").is_file()
    assert files_with(PASSWORD, tmp_path) == {}
