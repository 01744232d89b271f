"""What Airflow's connections may say, and how one opens an archive's store."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.connections import (
    archive_access,
    check_spark_connection,
    listed,
    schema_registry,
)

ON_S3 = Pipeline(name="p", topics=["t"], archive="s3://bucket/a", archive_conn_id="store")


def aws_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def test_archive_access(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's key takes the place of the worker's, and only meanwhile."""
    connection = {
        "conn_type": "aws",
        "login": "id",
        "password": "secret",
        "extra": {"endpoint_url": "http://s3:9000"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the worker's")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    before = aws_variables()

    with archive_access(ON_S3):
        assert aws_variables() == {
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": "http://s3:9000",
            "AWS_REGION": "eu-west-1",
        }

    assert aws_variables() == before


def test_archive_access_without_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, the worker's own environment counts."""
    monkeypatch.setenv("AWS_PROFILE", "archives")

    with archive_access(Pipeline(name="p", topics=["t"], archive="s3://bucket/a")):
        assert aws_variables() == {"AWS_PROFILE": "archives"}


def test_archive_access_unknown_connection() -> None:
    """A connection that doesn't exist is named, with how to make it."""
    with (
        pytest.raises(ConfigError, match="no Airflow connection 'store'; make one of type Amazon"),
        archive_access(ON_S3),
    ):
        pass


def test_schema_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry is that of the connection; a pipeline without one asks for none."""
    settings = {"url": "https://registry:8081", "basic.auth.user.info": "me:s3cr3t"}
    monkeypatch.setenv(
        "AIRFLOW_CONN_REGISTRY", json.dumps({"conn_type": "generic", "extra": settings})
    )
    values = {"encoding": "avro", "registry_conn_id": "registry"}

    found = schema_registry(Pipeline(name="p", topics=["t"], archive="/a", values=values))

    assert found is not None
    assert dict(found.settings) == settings
    assert schema_registry(Pipeline(name="p", topics=["t"], archive="/a")) is None


def test_schema_registry_unknown_connection() -> None:
    """A connection that doesn't exist is named, with how to make it."""
    values = {"encoding": "avro", "registry_conn_id": "nowhere"}

    with pytest.raises(ConfigError, match="no Airflow connection 'nowhere'; make one of type Gen"):
        schema_registry(Pipeline(name="p", topics=["t"], archive="/a", values=values))


@pytest.mark.parametrize("extra", [{}, {"deploy-mode": "client"}, {"deploy-mode": ""}])
def test_check_spark_connection(extra: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver runs beside the task, whatever the master."""
    connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))

    check_spark_connection("cluster")


def test_check_spark_connection_cluster_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver on another machine would find no job spec there; it is refused before it starts."""
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))

    with pytest.raises(ConfigError, match="'cluster' has deploy-mode 'cluster', accepted: client"):
        check_spark_connection("cluster")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, []),
        ("", []),
        ("orders", ["orders"]),
        # Native rendering makes a number of it.
        (0, ["0"]),
        ([0, 2024], ["0", "2024"]),
        # Airflow 3's form, after Enter at the end of the last line.
        (["flights:0:1-2 ", ""], ["flights:0:1-2"]),
    ],
)
def test_listed(given: Any, found: list[str]) -> None:
    """A list is what was written into it, however it was rendered."""
    assert listed(given) == found
