"""DAGs on real Airflow with an archive on S3, which one Airflow connection opens for everything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from demo.local_airflow import LocalAirflow
from kafka_drain.reading import archive_dataset
from tests.s3_server import CREDENTIALS
from tests.security.watching import command_lines_with, files_with

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00 UTC, in milliseconds
SECRET = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
DAG = """
from kafka_drain_airflow import Pipeline, create_dags

create_dags(
    Pipeline(
        name="stored",
        topics=["{topic}"],
        archive="{archive}",
        archive_conn_id="store",
        spark_conf={{"spark.eventLog.enabled": True, "spark.eventLog.dir": "{events}"}},
    )
)
"""


def test_dags_on_s3(
    bucket: str,
    bootstrap_servers: str,
    make_topic: Any,
    send: Any,
    read: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drained, proven and republished; the key is in no log, XCom, file and process list."""
    topic, target = make_topic(partitions=2), make_topic(partitions=2)
    for partition in (0, 1):
        records = [(b"k", b"%d" % n, [("h", b"1")], NOON + n) for n in range(30)]
        send(topic, records, partition=partition)
    (tmp_path / "dags").mkdir()
    (tmp_path / "events").mkdir()
    text = DAG.format(topic=topic, archive=f"{bucket}/stored", events=tmp_path / "events")
    (tmp_path / "dags" / "stored.py").write_text(text)
    connection = {
        "conn_type": "aws",
        "login": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "password": SECRET,
        "extra": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]},
    }
    send_back = json.dumps({"target_topic": target, "dry_run": False, "engine": "spark"})

    with monkeypatch.context() as worker:
        for name in (*CREDENTIALS, "AWS_ENDPOINT_URL"):
            worker.delenv(name)
        worker.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
        with (
            command_lines_with(SECRET) as command_lines,
            LocalAirflow(tmp_path, bootstrap_servers, dags=tmp_path / "dags") as airflow,
        ):
            airflow.run("db", "migrate", log="migrate")
            airflow.test_dag("drain_stored", "drain", print)
            airflow.test_dag("republish_stored", "republish", print, "--conf", send_back)

    assert archive_dataset(f"{bucket}/stored").count_rows() == 60
    assert read(target) == read(topic)
    assert command_lines == set()
    # Airflow's database and logs, Spark's event logs.
    assert (tmp_path / "airflow" / "airflow.db").is_file()
    assert any((tmp_path / "events").iterdir())
    assert files_with(SECRET, tmp_path) == {}
