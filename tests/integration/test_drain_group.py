"""Several pipelines drained by one Spark application, each independent of the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.group import GroupJob, finish_group, open_group, raise_failures
from kafka_drain.errors import LockedError, SparkJobError, TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.job_spec import DrainSpec
from kafka_drain.storage.lease import hold_lease

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
NOON = 1_357_041_600_000  # 2013-01-01 12:00:00 UTC, in milliseconds
RECORDS = 10

# In a separate process, like a task: the real operators start the real spark-submit.
EXECUTE = """
import json, sys, warnings
warnings.simplefilter("ignore")
from kafka_drain_airflow import KafkaDrainGroupOperator, Pipeline, ValidateManifestOperator
pipelines = [Pipeline(**keys) for keys in json.loads(sys.argv[1])]
group = KafkaDrainGroupOperator(task_id="drain", pipelines=pipelines)
try:
    answer = group.execute({"run_id": "manual"})
except Exception as error:
    answer = [type(error).__name__, str(error)]
validate = ValidateManifestOperator(task_id="validate", pipeline=pipelines[0])
summary = validate.execute({"run_id": "manual"})
told = list(group._lineage.outputs.values())
print(json.dumps([answer, summary, group.plan, told]))
"""

Group = Callable[[list[Pipeline]], GroupJob]


@pytest.fixture
def drain_group(
    spark: Any, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Group:
    """Drain a group as the operator does, but in the shared Spark session."""
    from kafka_drain_spark.drain import run_drain
    from kafka_drain_spark.job import run_jobs

    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    folders = (tmp_path / f"run-{number}" for number in range(9))

    def run(pipelines: list[Pipeline]) -> GroupJob:
        folder = next(folders)
        folder.mkdir()
        clusters = {"kafka_default": cluster}
        with open_group(pipelines, clusters, folder, run="tests") as group:
            if group.application is not None:
                specs = [DrainSpec.read(path) for path in group.application.specs]
                run_jobs(specs, run_drain)
            finish_group(group)
        return group

    return run


@pytest.fixture
def pipeline(make_topic: Any, send: Any, tmp_path: Path) -> Callable[[str], Pipeline]:
    """Make a pipeline whose topic holds ten records."""

    def make(name: str, **keys: Any) -> Pipeline:
        topic = make_topic(partitions=1)
        send(topic, [(b"k", b"%d" % n, None, NOON + n) for n in range(RECORDS)])
        return Pipeline(**{"name": name, "topics": [topic], "archive": str(tmp_path / name)} | keys)

    return make


def test_group_drains_each_pipeline(
    drain_group: Group, pipeline: Any, cluster: KafkaCluster
) -> None:
    """Each pipeline is drained to its own archive, with its own format and columns."""
    pipelines = [pipeline("one"), pipeline("two", format="orc", partition_by=["topic"])]

    group = drain_group(pipelines)

    assert {name: result["records"] for name, result in group.results.items()} == {
        "one": RECORDS,
        "two": RECORDS,
    }
    for one in pipelines:
        report = validate_archive(Archive.at(one.archive), cluster)
        assert (report.complete, report.records, report.receipts_written) == (True, RECORDS, 1)
    raise_failures(group)


def test_group_with_nothing_new(drain_group: Group, pipeline: Any) -> None:
    """A second run starts no Spark, and logs for each pipeline that nothing was new."""
    pipelines = [pipeline("one"), pipeline("two")]
    drain_group(pipelines)

    group = drain_group(pipelines)

    assert group.application is None
    assert {name: result["offsets"] for name, result in group.results.items()} == {
        "one": 0,
        "two": 0,
    }


def test_group_with_one_that_is_refused(drain_group: Group, pipeline: Any, tmp_path: Path) -> None:
    """A missing topic stops only its pipeline; the error says that a retry can't help."""
    gone = Pipeline(name="gone", topics=["no-such-topic"], archive=str(tmp_path / "gone"))

    group = drain_group([gone, pipeline("one")])

    assert group.results["one"]["records"] == RECORDS
    assert not (tmp_path / "gone").exists()
    with pytest.raises(TopicError, match=r"1 of the group's pipelines.* gone: .*no-such-topic"):
        raise_failures(group)


def test_group_with_one_that_fails_in_spark(
    drain_group: Group, pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed query stops only its pipeline; a retry can help."""
    read = DrainSpec.read

    def read_damaged(path: Path) -> DrainSpec:
        spec = read(path)
        return replace(spec, file_format="no-such-format") if spec.pipeline == "broken" else spec

    monkeypatch.setattr(DrainSpec, "read", read_damaged)

    group = drain_group([pipeline("broken"), pipeline("one")])

    assert group.results["one"]["records"] == RECORDS
    with pytest.raises(SparkJobError, match=r"broken: the drain failed in Spark: .*no-such-format"):
        raise_failures(group)


def test_group_with_a_locked_archive(
    drain_group: Group, pipeline: Any, cluster: KafkaCluster
) -> None:
    """An archive that another drain is writing is skipped; the retry finds it free."""
    locked, free = pipeline("locked"), pipeline("free")

    with hold_lease(Archive.at(locked.archive).root, run="another"):
        group = drain_group([locked, free])

    assert set(group.results) == {"free"}
    assert isinstance(group.failures["locked"], LockedError)
    with pytest.raises(SparkJobError, match="another"):
        raise_failures(group)
    assert drain_group([locked, free]).results["locked"]["records"] == RECORDS


def test_group_operator(bootstrap_servers: str, pipeline: Any, tmp_path: Path) -> None:
    """The operator drains what it can with one spark-submit, fails, and names the rest."""
    one, gone = pipeline("one"), {"name": "gone", "topics": ["no-such-topic"]}
    keys = [one.model_dump(exclude_none=True), gone | {"archive": str(tmp_path / "gone")}]

    ended = subprocess.run(
        [sys.executable, "-c", EXECUTE, json.dumps(keys)],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps(
                {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap_servers}}
            ),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "PYTHONPATH": str(ROOT / "plugins"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ended.returncode == 0, ended.stderr[-2000:]
    (kind, message), summary, plan, told = json.loads(ended.stdout.splitlines()[-1])
    assert kind == "AirflowFailException"
    assert "1 of the group's pipelines weren't drained: gone: " in message
    assert (summary["verdict"], summary["records"]) == ("complete", RECORDS)
    assert f"{RECORDS} offsets to drain" in plan
    assert told == [RECORDS]
