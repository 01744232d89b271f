"""Mistakes in DAG files: the sentence that Airflow shows, which names the pipeline and the line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain_airflow import Pipeline
from tests.airflow_program import answer_of
from tests.tables import each_of

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "mistakes.md"
#: More rows like those of the document, which doesn't need them all.
MORE = Path(__file__).parent / "mistakes.txt"

LOAD = """
import json, sys
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 2
    from airflow.models.dagbag import DagBag
bag = DagBag(dag_folder=sys.argv[1])
print(json.dumps({"errors": bag.import_errors, "dags": sorted(bag.dags)}))
"""

# What a task says whose pipeline names a connection that isn't there.
RUN = """
import json, sys
from kafka_drain_airflow import *
found = []
for given in json.loads(sys.argv[1]):
    task = PreflightOperator(task_id="preflight", pipeline=eval(f"Pipeline(**{given})"))
    try:
        task.execute({"run_id": "manual", "ti": None})
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
print(json.dumps(found))
"""


#: The beginning that the table leaves out.
SHARED = "ConfigError: pipeline 'orders' (orders.py, line 3): "


def mistakes(of: str = "file") -> list[tuple[str, str]]:
    """Return the rows of the documentation and more: the third line of a file, and Airflow's text.

    Args:
        of: `file` for what is shown when the file is parsed, `task` for what a task says.
    """
    in_file, in_task = DOCUMENT.read_text().split("## In a task's log")
    part = {"file": in_file + MORE.read_text(), "task": in_task}[of]
    rows = re.findall(r"^\| `(.*)` \| `(.*)` \|$", part, re.MULTILINE)
    prefix = "" if of == "task" else SHARED
    return [(line, text if "ConfigError: " in text else prefix + text) for line, text in rows]


GIVEN = 'name="orders", topics=["orders"], archive="/data/orders"'


def source(third: str) -> str:
    """Return a file with a third line, or with changed arguments of the pipeline in it."""
    whole = re.match(r"for |\w+\(", third)
    line = third if whole else f"create_dags(Pipeline(**dict({GIVEN}) | dict({third})))"
    # A whole line may use the pipeline of the line before.
    before = f"orders = Pipeline({GIVEN})" if whole else ""
    return f"from kafka_drain_airflow import *  # a file of DAGs\n{before}\n{line}\n"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Airflow's import errors, by the folder of the file: each mistake is in an orders.py."""
    folder = tmp_path_factory.mktemp("dags")
    for number, (third, _) in enumerate(mistakes()):
        (folder / str(number)).mkdir()
        (folder / str(number) / "orders.py").write_text(source(third))
    (folder / "right").mkdir()
    (folder / "right" / "orders.py").write_text(
        "from kafka_drain_airflow import Pipeline, create_dags\n"
        "for name in ('right', 'fine'):\n"
        "    create_dags(Pipeline(name=name, topics=[name], archive=f'file:///data/{name}/'))\n"
    )
    found = answer_of(LOAD, str(folder), home=folder.parent / "airflow")
    # A mistake in one file takes no other file's DAGs away.
    assert {"drain_right", "drain_fine"} <= set(found["dags"])
    return {Path(path).parent.name: text for path, text in found["errors"].items()}


def test_mistakes_documented() -> None:
    """There is something to check, in the document and beside it."""
    documented = len(mistakes()) - len(MORE.read_text().splitlines())

    assert documented >= 11
    assert len(mistakes()) >= 40


@each_of("number", range(len(mistakes())))
def test_mistake(number: int, shown: dict[str, str]) -> None:
    """Airflow's import error ends with the documented sentence."""
    _, expected = mistakes()[number]

    last = shown.get(str(number), "no error").strip().rpartition("kafka_drain.errors.")[2]

    assert last == expected


def test_mistakes_in_task(tmp_path: Path) -> None:
    """A task whose pipeline names a connection that isn't there ends with the documented text."""
    documented = mistakes("task")
    given = [f"dict({GIVEN}) | dict({line})" for line, _ in documented]

    said = answer_of(RUN, json.dumps(given), home=tmp_path)

    assert said == [text for _, text in documented]
    assert len(said) >= 2


def test_right_file(shown: dict[str, str]) -> None:
    """A file without a mistake has no error: a file's URL is a path, and names differ."""
    assert "right" not in shown


def test_file_url() -> None:
    """The URL of a file is its path, everywhere."""
    pipeline = Pipeline(name="orders", topics=["orders"], archive="file:///data/orders/")

    assert pipeline.archive == "/data/orders"


def test_place_in_helper() -> None:
    """The line is that of the call, also in a helper that many files use."""

    def helper(name: str) -> Pipeline:
        return Pipeline(name=name, topics=["orders"], archive="orders")

    with pytest.raises(
        ConfigError, match=r"^pipeline 'a' \(test_mistakes\.py, line \d+\): archive"
    ):
        helper("a")
