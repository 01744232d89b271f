"""Lineage reported to OpenLineage, in the provider's own types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_drain_airflow.observability.lineage import (
    archive_name,
    drain_lineage,
    group_lineage,
    topic_names,
)

ROOT = Path(__file__).resolve().parents[3]

# In a separate process: importing Airflow changes logging and warnings permanently.
EXTRACT = """
import json, warnings
warnings.simplefilter("ignore")
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from kafka_drain_airflow import EraseOperator, KafkaDrainOperator
from kafka_drain_airflow import Pipeline, RepublishToKafkaOperator
from kafka_drain_airflow.observability.lineage import (
    drain_lineage,
    erase_lineage,
    republish_lineage,
)

pipeline = Pipeline(name="p", topics=["t"], archive="/archives/p")
drain = KafkaDrainOperator(task_id="drain", pipeline=pipeline)
idle = KafkaDrainOperator(task_id="idle", pipeline=pipeline)
republish = RepublishToKafkaOperator(task_id="republish", pipeline=pipeline)
drain._lineage = drain_lineage("b:9092", ["t2", "t1"], "/archives/p", 7)
republish._lineage = republish_lineage("b:9092", "s3a://bucket/p", {"copy": 5})
erase = EraseOperator(task_id="erase", pipeline=pipeline)
erase._lineage = erase_lineage("/archives/p", 3)
told = {}
for operator in (drain, idle, republish, erase):
    found = DefaultExtractor(operator).extract_on_complete(None)
    told[operator.task_id] = found and {
        "inputs": [[one.namespace, one.name] for one in found.inputs],
        "outputs": [
            [one.namespace, one.name, one.outputFacets["outputStatistics"].rowCount]
            for one in found.outputs
        ],
    }
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The lineage that Airflow's provider gets from the operators, by task."""
    ended = subprocess.run(
        [sys.executable, "-c", EXTRACT],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(tmp_path_factory.mktemp("lineage")),
            "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT / 'spark_jobs'}",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_lineage_of_drain(told: Any) -> None:
    """A drain reads topics and writes the archive, with the number of records."""
    assert told["drain"] == {
        "inputs": [["kafka://b:9092", "t1"], ["kafka://b:9092", "t2"]],
        "outputs": [["file", "/archives/p", 7]],
    }


def test_lineage_of_republish(told: Any) -> None:
    """A republish reads the archive and writes topics, each with its number of records."""
    assert told["republish"] == {
        "inputs": [["s3://bucket", "p"]],
        "outputs": [["kafka://b:9092", "copy", 5]],
    }


def test_lineage_of_erasure(told: Any) -> None:
    """An erasure reads and writes the archive: the records that are left in what it rewrote."""
    assert told["erase"] == {
        "inputs": [["file", "/archives/p"]],
        "outputs": [["file", "/archives/p", 3]],
    }


def test_lineage_of_nothing(told: Any) -> None:
    """A task that moved nothing reports no lineage."""
    assert told["idle"] is None


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("b:9092,a:9092", "kafka://a:9092"),
        ("SASL_SSL://host:9093", "kafka://host:9093"),
        ("host", "kafka://host:9092"),
    ],
)
def test_topic_names(servers: str, namespace: str) -> None:
    """A cluster has one name, regardless of the order of its addresses."""
    assert topic_names(servers) == namespace


@pytest.mark.parametrize(
    ("archive", "name"),
    [
        ("/var/lib/a/", ("file", "/var/lib/a")),
        ("file:///var/lib/a", ("file", "/var/lib/a")),
        ("s3://bucket/a/b", ("s3://bucket", "a/b")),
        ("abfss://c@account/a", ("abfss://c@account", "a")),
    ],
)
def test_archive_name(archive: str, name: tuple[str, str]) -> None:
    """An archive's name follows OpenLineage's naming convention for its store."""
    assert archive_name(archive) == name


def test_group_lineage() -> None:
    """The drains in one task list each topic once, and each archive with its own record count."""
    found = group_lineage(
        [
            drain_lineage("b:9092", ["t1", "t2"], "/archives/p", 7),
            drain_lineage("b:9092", ["t2"], "/archives/q", 5),
        ]
    )

    assert found.inputs == [("kafka://b:9092", "t1"), ("kafka://b:9092", "t2")]
    assert found.outputs == {("file", "/archives/p"): 7, ("file", "/archives/q"): 5}
