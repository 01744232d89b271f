"""The DAG files import quickly, and contain the expected DAGs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment

from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain_airflow.forms import field_value

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = {
    "flights.py": {"drain_flights", "republish_flights", "reprocess_flights", "maintain_flights"},
    # An example of what users write.
    "flights_delays.py": {"flights_delays"},
}
EXAMPLES = {"flights_delays"}
REPUBLISH_FIELDS = {"apply", "plan_id", *RepublishRequest.model_fields}

# Runs in a separate process: this one has already imported what a DAG file must not import.
IMPORT_DAGS = """
import json, runpy, sys, time
from airflow.providers.common.compat.sdk import DAG, BaseOperator
# A plugin of Airflow's, which each of its processes has loaded: the Spark operator imports it.
import airflow.providers.openlineage.plugins.listener
already = set(sys.modules)
before = time.process_time()
runpy.run_path(sys.argv[1])
seconds = time.process_time() - before
print(json.dumps({"seconds": seconds, "modules": sorted(set(sys.modules) - already)}))
"""
LOAD_BAG = """
import json, logging, sys, warnings
warnings.simplefilter("ignore")
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 2
    from airflow.models.dagbag import DagBag
bag = DagBag(dag_folder=sys.argv[1])
print(json.dumps({
    "errors": bag.import_errors,
    "dags": {
        dag_id: {
            "file": dag.fileloc.rsplit("/", 1)[-1],
            "tags": sorted(dag.tags),
            "catchup": dag.catchup,
            "max_active_runs": dag.max_active_runs,
            "doc_md": dag.doc_md,
            "assets": [
                asset.uri
                # Airflow 2 calls assets datasets.
                for name in ("asset_condition", "dataset_condition")
                for asset in getattr(getattr(dag.timetable, name, None), "objects", ())
            ],
            "schedule": [
                type(dag.timetable).__name__,
                # What Airflow's own timetables are called by differs between 2 and 3.
                getattr(dag.timetable, "summary", None) or getattr(dag.timetable, "expression", ""),
            ],
            "params": {
                name: {"description": param.description, "default": param.value, **param.schema}
                for name, param in ((name, dag.params.get_param(name)) for name in dag.params)
            },
            "tasks": {
                task.task_id: {
                    "class": type(task).__name__,
                    "module": type(task).__module__,
                    "downstream": sorted(task.downstream_task_ids),
                    "retries": task.retries,
                    "trigger_rule": str(getattr(task.trigger_rule, "value", task.trigger_rule)),
                    "fields": {
                        name: getattr(task, name)
                        for name in getattr(task, "template_fields", ())
                        # A dict may hold templates, a Pipeline doesn't.
                        if name != "pipeline" and task.task_id in ("republish", "maintain")
                    },
                    "outlets": [
                        asset.uri if hasattr(asset, "uri") else asset.name for asset in task.outlets
                    ],
                }
                for task in dag.tasks
            },
        }
        for dag_id, dag in bag.dags.items()
    },
}))
"""


def run_python(code: str, argument: Path, home: Path) -> dict[str, Any]:
    """Run code in a fresh interpreter with an empty Airflow home; return the JSON it prints."""
    ended = subprocess.run(
        [sys.executable, "-c", code, str(argument)],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "PYTHONPATH": str(ROOT / "plugins"),
            "KAFKA_DRAIN_ARCHIVES": "/archives",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The DAGs of the dags folder as Airflow loads them."""
    return run_python(LOAD_BAG, ROOT / "dags", tmp_path_factory.mktemp("airflow"))


def test_dag_files_import_without_errors(bag: dict[str, Any]) -> None:
    """Airflow loads every DAG file without an import error."""
    assert bag["errors"] == {}


def test_dag_files_hold_their_dags(bag: dict[str, Any]) -> None:
    """Each DAG file is accounted for, with the DAGs that it creates."""
    found: dict[str, set[str]] = {}
    for dag_id, dag in bag["dags"].items():
        found.setdefault(dag["file"], set()).add(dag_id)

    assert found == EXPECTED
    assert set(EXPECTED) == {path.name for path in (ROOT / "dags").glob("*.py")}


def test_drain_dag_runs_preflight_drain_validate(bag: dict[str, Any]) -> None:
    """A drain DAG checks, drains and validates, hourly, one run at a time, and has an asset."""
    dag = bag["dags"]["drain_flights"]
    tasks = dag["tasks"]

    # Airflow 3 gives a plain "@hourly" no data intervals.
    assert dag["schedule"] == ["CronDataIntervalTimetable", "0 * * * *"]
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    assert [tasks[name]["class"] for name in ("preflight", "drain", "validate")] == [
        "PreflightOperator",
        "KafkaDrainOperator",
        "ValidateManifestOperator",
    ]
    assert tasks["preflight"]["downstream"] == ["drain"]
    assert tasks["drain"]["downstream"] == ["validate"]
    assert tasks["validate"]["outlets"] == ["file:///archives/flights"]


def test_republish_dag_is_by_hand(bag: dict[str, Any]) -> None:
    """A republish is triggered manually, and sends only with apply.

    It shows no schedule, because its intervals are only for backfills.
    """
    dag = bag["dags"]["republish_flights"]

    assert dag["schedule"] == ["BackfillTimetable", "Backfills only"]
    assert dag["params"]["apply"]["default"] is False


def test_reprocess_dag_is_by_hand(bag: dict[str, Any]) -> None:
    """A reprocess is triggered manually, and replaces files only with apply."""
    dag = bag["dags"]["reprocess_flights"]

    assert dag["schedule"][0] == "NullTimetable"
    assert dag["params"]["apply"]["default"] is False


def test_maintain_dag_is_daily(bag: dict[str, Any]) -> None:
    """Maintenance runs once a night, at a time that depends on the pipeline's name."""
    dag = bag["dags"]["maintain_flights"]

    assert dag["schedule"][1] == "18 4 * * *"
    # An asset would get an event from each run, even if there was nothing to do.
    assert dag["tasks"]["maintain"]["outlets"] == ["flights_replaced"]


@pytest.mark.parametrize(
    ("run_type", "apply", "acts"),
    [
        ("scheduled", False, True),
        ("manual", False, False),
        ("manual", True, True),
        ("asset_triggered", False, True),
        ("dataset_triggered", False, True),
        # Of TriggerDagRunOperator, whose runs are manual in Airflow 2; and of a person.
        ("operator_triggered", False, False),
        ("operator_triggered", True, True),
        ("asset_materialization", False, False),
    ],
)
def test_maintain_dag_acts(run_type: str, apply: bool, acts: bool, bag: dict[str, Any]) -> None:
    """A scheduled maintenance applies its plan; a manual one only with apply."""
    dag = bag["dags"]["maintain_flights"]
    template = NativeEnvironment().from_string(dag["tasks"]["maintain"]["fields"]["apply"])

    assert dag["params"]["apply"]["default"] is False
    run = SimpleNamespace(run_type=run_type)
    assert template.render(params={"apply": apply}, dag_run=run) is acts


@pytest.mark.parametrize(
    ("conf", "is_dry_run"), [({}, None), ({"dry_run": False}, False), ({"dry_run": True}, True)]
)
@pytest.mark.parametrize("kind", ["maintain", "republish"])
def test_dag_hears_old_spelling(
    kind: str, conf: dict[str, Any], is_dry_run: bool | None, bag: dict[str, Any]
) -> None:
    """A conf may still contain `dry_run`, which no form shows."""
    fields = bag["dags"][f"{kind}_flights"]["tasks"][kind]["fields"]
    template = NativeEnvironment().from_string(fields["is_dry_run"])

    assert template.render(params={"apply": False, **conf}) is is_dry_run


def test_republish_dag_is_tried_again(bag: dict[str, Any]) -> None:
    """Airflow may retry a republish, because a retry resumes where the previous try ended."""
    tasks = bag["dags"]["republish_flights"]["tasks"]

    assert {name: task["retries"] for name, task in tasks.items()} == {"republish": 2}


def test_republish_dag_fills_in_each_field(bag: dict[str, Any]) -> None:
    """The value of each form field reaches the operator's parameter of that name."""
    dag = bag["dags"]["republish_flights"]
    fields = dag["tasks"]["republish"]["fields"]

    fields.pop("is_dry_run")
    assert fields.pop("plan") == ""
    # Native rendering turns a topic named 2024 into a number, but not a quoted one.
    of_names = {"target_topic", "run_name", "schema_map", "hash_key_file", "change", "placement"}
    of_names |= {"plan_id", "from_time", "to_time", "topics", "partitions", "offsets", "keep_ids"}
    of_names |= {"filters", "mask", "hash_fields", "drop_headers"}
    for name in of_names:
        assert fields.pop(name) == field_value("republish", name, "pprint")
    assert fields.pop("plan_hours") == 24
    # A named run and a mirror have plans of their own.
    freeze = NativeEnvironment().from_string(fields.pop("freeze"))
    assert freeze.render(params={"run_name": None, "follow": False}) is True
    assert freeze.render(params={"run_name": "mine", "follow": False}) is False
    assert freeze.render(params={"run_name": None, "follow": True}) is False
    plain = REPUBLISH_FIELDS - of_names
    assert fields == {n: field_value("republish", n) for n in plain}


@pytest.mark.parametrize(
    ("dag_id", "fields"),
    [
        (
            "drain_flights",
            {
                *("log_level", "acknowledge_expired"),
                *("mode", "window_start", "window_end", "force", "new_archive"),
            },
        ),
        ("republish_flights", REPUBLISH_FIELDS),
        (
            "reprocess_flights",
            {"apply", "plan_id", "from_batch", "from_time", "from_offsets", "abandon"},
        ),
        ("maintain_flights", {"apply", "plan_id"}),
    ],
)
def test_dag_form_explains_itself(bag: dict[str, Any], dag_id: str, fields: set[str]) -> None:
    """Each field of a form has a title, a type and a description."""
    params = bag["dags"][dag_id]["params"]

    assert set(params) == fields
    for name, schema in params.items():
        assert schema.get("title"), name
        assert len(schema["description"]) > 20, name
        assert "type" in schema or "enum" in schema, name


def test_dag_form_picks(bag: dict[str, Any]) -> None:
    """Times have a calendar picker, and topics can be selected from the pipeline's."""
    drain, republish, reprocess = (
        bag["dags"][f"{kind}_flights"]["params"] for kind in ("drain", "republish", "reprocess")
    )

    for moment in (
        *(drain["window_start"], drain["window_end"]),
        *(republish["from_time"], republish["to_time"], reprocess["from_time"]),
    ):
        assert moment["format"] == "date-time"
        assert "2026-11-21T13:00:00.250Z" in moment["description"]
    assert republish["topics"]["examples"] == ["flights"]
    assert "{topic}_restored" in republish["target_topic"]["examples"]


def test_flights_delays_runs_on_archive(bag: dict[str, Any]) -> None:
    """The example runs whenever the drain's validation has sealed something."""
    dag, drain = bag["dags"]["flights_delays"], bag["dags"]["drain_flights"]

    [outlet] = drain["tasks"]["validate"]["outlets"]
    assert outlet == "file:///archives/flights"
    assert dag["assets"] == [outlet]


def test_dags_are_documented_and_tagged(bag: dict[str, Any]) -> None:
    """Every DAG is documented, and can be found by the package's tag."""
    for dag_id in bag["dags"].keys() - EXAMPLES:
        dag = bag["dags"][dag_id]
        assert "kafka-drain" in dag["tags"], dag_id
        assert len(dag["doc_md"]) > 200, dag_id


def test_plugins_folder_is_not_executed_twice(bag: dict[str, Any]) -> None:
    """Operators come from their package: Airflow didn't load the folder's files as plugins."""
    for dag_id in bag["dags"].keys() - EXAMPLES:
        for task in bag["dags"][dag_id]["tasks"].values():
            assert task["module"].startswith("kafka_drain_airflow.operators.")


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_dag_file_imports_fast(name: str, tmp_path: Path) -> None:
    """A DAG file adds less than half a second of CPU to Airflow's imports, and no heavy library."""
    imported = run_python(IMPORT_DAGS, ROOT / "dags" / name, tmp_path)
    heavy = {"pyspark", "pyarrow", "confluent_kafka", "pandas", "numpy", "fastavro", "rich"}

    assert not heavy & {module.split(".")[0] for module in imported["modules"]}
    assert imported["seconds"] < 0.5
