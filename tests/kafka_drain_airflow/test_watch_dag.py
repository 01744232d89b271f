"""The DAG that starts drains: its shape, and what its file may declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.watch_dag import create_watch_dag

PIPELINES = [
    Pipeline(name="a", topics=["a"], archive="/archives/a", watch={"lag": 5_000}),
    Pipeline(name="b", topics=["b"], archive="/archives/b", watch={"hours_to_expiry": 1.5}),
]


def test_watch_dag() -> None:
    """One task watches all pipelines, and one is mapped over the drains that are due."""
    dag = create_watch_dag(PIPELINES, dag_id="watch", tags=["mine"], default_args={"retries": 5})

    assert (dag.dag_id, dag.max_active_runs, dag.catchup) == ("watch", 1, False)
    assert {*dag.tags} == {"kafka-drain", "mine"}
    watch, drain = dag.get_task("watch"), dag.get_task("drain")
    assert watch.downstream_task_ids == {"drain"}
    assert watch.retries == 5
    assert type(drain).__name__ == "MappedOperator"
    assert "| `a` | 5,000 |  |" in str(dag.doc_md)
    assert "| `b` |  | 1.5 |" in str(dag.doc_md)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (15, 60, True, "drain_{name}")),
        (
            {"again_minutes": 5, "poll_seconds": 7, "deferrable": False, "drain_dag_id": "{name}"},
            (5, 7, False, "{name}"),
        ),
    ],
)
def test_watch_dag_arguments(given: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """The DAG's arguments are its task's; a drain that was started already is no failure."""
    dag = create_watch_dag(PIPELINES, dag_id="watch", **given)

    watch: Any = dag.get_task("watch")
    found = (watch.again_minutes, watch.poll_seconds, watch.deferrable, watch.drain_dag_id)
    assert found == expected
    assert watch.pipelines == PIPELINES
    assert watch.form.kind == "watch"
    drain: Any = dag.get_task("drain")
    assert drain.partial_kwargs["skip_when_already_exists"] is True
    assert watch.retries == 2


def test_watch_dag_without_limits() -> None:
    """A pipeline that says no limit is refused when the file is parsed."""
    unwatched = Pipeline(name="c", topics=["c"], archive="/archives/c")
    with pytest.raises(ConfigError, match="pipeline 'c' has no watch"):
        create_watch_dag([*PIPELINES, unwatched])


PARSED = """
import sys
from kafka_drain_airflow import Pipeline, create_dags, create_watch_dag
p = Pipeline(name="a", topics=["a"], archive="/archives/a", watch={"lag": 5})
create_dags(p)
create_watch_dag([p])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_watch_dag_parses_light() -> None:
    """A file with a watch loads no heavy library when it is parsed."""
    told = subprocess.run(
        [sys.executable, "-c", PARSED], capture_output=True, text=True, check=True
    )

    loaded = {*told.stdout.splitlines()[-1].split()}
    assert "kafka_drain_airflow" in loaded
    heavy = {"pyspark", "pyarrow", "confluent_kafka", "pandas", "numpy", "fastavro"}
    assert not heavy & loaded


TWICE = """
from kafka_drain_airflow import Pipeline, create_watch_dag
p = Pipeline(name="a", topics=["a"], archive="/archives/a", watch={"lag": 5})
create_watch_dag([p])
create_watch_dag([p])
"""


def test_watch_dag_twice(tmp_path: Path) -> None:
    """A second one of the same id in a file is refused, naming the line of the first."""
    file = tmp_path / "twice.py"
    file.write_text(TWICE)
    run = f"import runpy; runpy.run_path({str(file)!r}, run_name='twice')"
    told = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)

    assert told.returncode == 1
    assert "twice.py, line 4) in this file already creates the DAG 'watch_pipelines'" in told.stderr
