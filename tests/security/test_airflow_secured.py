"""DAGs over SASL_SSL with an archive on S3: drained, proven, sent back once, and no secret left.

Airflow connections open both, a Schema Registry and the key of the evidence; nothing else does.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from demo.flights import create_topic, flight_records, produce
from demo.local_airflow import LocalAirflow
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.storage.paths import locate
from tests.fake_registry import LOGIN, fake_registry
from tests.faults.republishing import make_target, read_topic
from tests.s3_server import CREDENTIALS
from tests.security.acls import Acls, documented
from tests.security.conftest import PASSWORD
from tests.security.secured_kafka import SecuredKafka
from tests.security.watching import command_lines_with, files_with

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

RECORDS = 300
TARGET = "flights-restored"
KEY = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
REGISTERED = LOGIN.partition(":")[2]
SECRETS = (PASSWORD, KEY, REGISTERED)
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "",
    "fields": [{"name": "origin", "type": "string"}],
}

DAGS = """
from kafka_drain_airflow import Pipeline, create_dags

create_dags(
    Pipeline(
        name="flights",
        topics=["flights"],
        archive="{bucket}/flights",
        archive_conn_id="store",
        values={{"encoding": "avro", "registry_conn_id": "registry"}},
        evidence_conn_id="evidence",
        spark_conf={{
            "spark.eventLog.enabled": True,
            "spark.eventLog.dir": "{folder}/events",
            "spark.pyspark.python": "{folder}/python",
        }},
    )
)
"""


@pytest.fixture
def evidence_key(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A private key in PEM, outside of the folder that is searched for it."""
    file = tmp_path_factory.mktemp("evidence") / "key"
    SigningKey.create(file)
    return file.read_text()


def within(pem: str) -> str:
    """Return what is secret in a key in PEM: its one line in base64."""
    _, line, _ = pem.splitlines()
    return line


@pytest.fixture
def airflow_folder(bucket: str, tmp_path: Path) -> Path:
    """A folder with the DAG file, and a Python for executors that notes its arguments."""
    (tmp_path / "dags").mkdir()
    (tmp_path / "events").mkdir()
    (tmp_path / "dags" / "flights.py").write_text(DAGS.format(bucket=bucket, folder=tmp_path))
    python, used = tmp_path / "python", tmp_path / "used"
    python.write_text(f'#!/bin/sh\necho "$@" >> {used}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def stored_in(bucket: str) -> dict[str, bytes]:
    """Return all objects of a bucket by path."""
    files = locate(bucket).fs
    return {path: files.cat_file(path) for path in files.find(bucket)}


def test_dags_secured(
    secured: SecuredKafka,
    acls: Acls,
    bucket: str,
    airflow_folder: Path,
    evidence_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Logs, XComs, rendered templates, reports, process lists: no secret is in any of them."""
    servers = secured.kafka.bootstrap_servers
    create_topic(servers, "flights")
    assert produce(servers, "flights", islice(flight_records(), RECORDS)) == RECORDS
    content = read_topic(servers, "flights")
    make_target(servers, TARGET, len(content))
    kafka: dict[str, Any] = secured.scram("airflow", PASSWORD)
    acls.only("airflow", *documented("drain", "flights"), *documented("republish", TARGET))
    send = {"target_topic": TARGET, "apply": True}
    store = {
        "conn_type": "aws",
        "login": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "password": KEY,
        "extra": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]},
    }

    with (
        monkeypatch.context() as worker,
        command_lines_with(PASSWORD) as with_password,
        command_lines_with(KEY) as with_key,
        command_lines_with(REGISTERED) as with_registered,
        command_lines_with(within(evidence_key)) as with_evidence,
        fake_registry(LOGIN) as registry,
        LocalAirflow(
            airflow_folder,
            kafka["bootstrap.servers"],
            dags=airflow_folder / "dags",
            kafka=kafka,
        ) as airflow,
    ):
        worker.setenv("AIRFLOW_CONN_STORE", json.dumps(store))
        registry.register("flights-value", 1, FLIGHT)
        generic = {"conn_type": "generic", "extra": registry.settings}
        worker.setenv("AIRFLOW_CONN_REGISTRY", json.dumps(generic))
        evidence = {"conn_type": "generic", "password": evidence_key}
        worker.setenv("AIRFLOW_CONN_EVIDENCE", json.dumps(evidence))
        for name in (*CREDENTIALS, "AWS_ENDPOINT_URL"):
            worker.delenv(name)
        airflow.run("db", "migrate", log="migrate")
        airflow.test_dag("drain_flights", "drain", print)
        for engine in ("worker", "spark"):
            conf = json.dumps(send | {"engine": engine, "repeat": engine == "spark"})
            airflow.test_dag("republish_flights", engine, print, "--conf", conf)

    assert read_topic(servers, TARGET) == {p: [*rows, *rows] for p, rows in content.items()}
    assert with_password == with_key == with_registered == with_evidence == set()
    # Airflow's home with its database and logs, Spark's event logs.
    assert (airflow_folder / "airflow" / "airflow.db").is_file()
    assert any((airflow_folder / "events").iterdir())
    secrets = (*SECRETS, within(evidence_key))
    assert [files_with(secret, airflow_folder) for secret in secrets] == [{}, {}, {}, {}]
    stored = stored_in(bucket)
    assert any(path.endswith("archive.json") for path in stored)
    [schemas] = [content for path, content in stored.items() if path.endswith("/schemas.json")]
    assert json.loads(schemas)["schemas"][0]["schema"] == FLIGHT
    assert not any(secret.encode() in b"".join(stored.values()) for secret in secrets)
    # The drain's validation and both republishes were signed.
    assert sum("/evidence/" in path for path in stored) == 3
    # Executors took the Python that was named for them, the driver its own.
    used = (airflow_folder / "used").read_text()
    assert "pyspark.daemon" in used
    assert "main.py" not in used
