"""Operators refuse bad settings without a retry, if none can help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_program import answer_of

EXECUTE = """
import json, sys
from kafka_drain_airflow import *
errors = {}
for case, (operator, changes, arguments) in json.loads(sys.argv[1]).items():
    pipeline = Pipeline(name="p", topics=["t"], archive=sys.argv[2], **changes)
    made = globals()[operator](task_id="task", pipeline=pipeline, **arguments)
    try:
        made.execute({"run_id": "manual", "ti": None})
    except Exception as error:
        errors[case] = [type(error).__name__, str(error)]
print(json.dumps(errors))
"""
CASES = {
    "preflight nowhere": ("PreflightOperator", {"kafka_conn_id": "nowhere"}, {}),
    "validate nowhere": ("ValidateManifestOperator", {"kafka_conn_id": "nowhere"}, {}),
    "misspelt": ("PreflightOperator", {"kafka_conn_id": "kafka_misspelt"}, {}),
    "no broker": ("PreflightOperator", {}, {}),
    "no server": ("PreflightOperator", {"spark_conn_id": "spark_refused"}, {}),
    "log level": ("KafkaDrainOperator", {}, {"log_level": "LOUD"}),
    "no archive": ("RepublishToKafkaOperator", {}, {}),
    "placement": ("RepublishToKafkaOperator", {}, {"placement": "{{ params.placement }}"}),
    "apply": ("RepublishToKafkaOperator", {}, {"apply": "maybe"}),
    "old dry run": ("MaintainOperator", {}, {"is_dry_run": "perhaps"}),
    "limit": ("RepublishToKafkaOperator", {}, {"records_per_second": "fast"}),
    "limit below 0": ("RepublishToKafkaOperator", {}, {"bytes_per_second": "-1"}),
    "partition": ("RepublishToKafkaOperator", {}, {"partitions": ["0", "x"]}),
}
CONNECTIONS = {
    "KAFKA_DEFAULT": {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000},
    "KAFKA_MISSPELT": {"bootstrap.server": "host:9092"},
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of an archive that doesn't exist."""
    return tmp_path_factory.mktemp("operators") / "archive"


@pytest.fixture(scope="module")
def errors(archive: Path) -> Any:
    """Type and message of the error in each case, without a running Airflow."""
    connections = {
        f"AIRFLOW_CONN_{name}": json.dumps({"conn_type": "kafka", "extra": extra})
        for name, extra in CONNECTIONS.items()
    }
    server = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": 1}
    connections["AIRFLOW_CONN_SPARK_REFUSED"] = json.dumps(server)
    home = archive.parent / "airflow"
    return answer_of(EXECUTE, json.dumps(CASES), str(archive), home=home, **connections)


@pytest.mark.parametrize("case", ["preflight nowhere", "validate nowhere"])
def test_operator_without_connection(case: str, errors: Any) -> None:
    """A missing connection fails the task without retries; the message says how to create one."""
    kind, message = errors[case]

    assert kind == "AirflowFailException"
    assert "there is no Airflow connection 'nowhere'" in message
    assert "AIRFLOW_CONN_NOWHERE" in message


def test_operator_with_misspelt_connection(errors: Any) -> None:
    """A misspelled connection setting is refused, and the message suggests the right one."""
    kind, message = errors["misspelt"]

    assert kind == "AirflowFailException"
    assert "did you mean 'bootstrap.servers'?" in message


def test_operator_without_kafka(errors: Any) -> None:
    """A broker that doesn't answer may recover, so Airflow retries."""
    kind, message = errors["no broker"]

    assert kind == "KafkaUnavailableError"
    assert "no response from Kafka at 127.0.0.1:1" in message


def test_preflight_operator_without_spark_connect(errors: Any) -> None:
    """A Spark Connect server that doesn't answer is found before anything starts."""
    kind, message = errors["no server"]

    assert kind == "NoServerError"
    assert "no Spark Connect server answers at sc://127.0.0.1:1: it refuses connections" in message


def test_drain_operator_with_unknown_log_level(errors: Any) -> None:
    """A log level that doesn't exist is refused before anything starts."""
    kind, message = errors["log level"]

    assert kind == "AirflowFailException"
    assert "accepted: TRACE, DEBUG, INFO, WARN, ERROR, OFF" in message


def test_republish_operator_without_archive(errors: Any, archive: Path) -> None:
    """A folder that isn't an archive is refused, and no operator turns it into one."""
    kind, message = errors["no archive"]

    assert kind == "AirflowFailException"
    assert "expected an archive created by a drain" in message
    assert not archive.exists()


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("placement", "placement = '{{ params.placement }}' is not acceptable"),
        ("apply", "apply = 'maybe' is not acceptable; accepted: true, false"),
        ("old dry run", "dry_run = 'perhaps' is not acceptable; accepted: true, false"),
        ("limit", "records_per_second = 'fast': Input should be a valid number"),
        (
            "limit below 0",
            "bytes_per_second = '-1': Input should be greater than or equal to 0",
        ),
        ("partition", "partitions.1 = 'x': Input should be a valid integer"),
    ],
)
def test_operator_field_not_acceptable(case: str, says: str, errors: Any) -> None:
    """A field with an invalid value fails the task without retries, by name."""
    kind, message = errors[case]

    assert kind == "AirflowFailException"
    assert says in message
