"""A second pipeline of a name or an archive in one DAG file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.declared import Declared, declare

CODE = compile("", "orders.py", "exec")


@pytest.mark.parametrize(
    ("dag_ids", "archive", "match"),
    [
        (["drain_b", "maintain_b"], "/b", ""),
        (["drain_b", "maintain_a"], "/b", "b: a in this file already creates the DAG 'maintain_a'"),
        (["drain_b"], "/a", "b: archive = '/a' is that of a; each pipeline needs"),
        (["drain_b"], "s3a://bucket/a", "b: archive = 's3a://bucket/a' is that of s3"),
        (["drain_b"], "", ""),
        (["drain_group"], "", "b: group in this file already creates the DAG 'drain_group'"),
    ],
)
def test_declared_add(dag_ids: list[str], archive: str, match: str) -> None:
    """Neither a DAG's id nor an archive may be another's."""
    declared = Declared(CODE)
    declared.add("a", ["drain_a", "maintain_a"], "/a")
    declared.add("s3", ["drain_s3"], "s3://bucket/a")
    declared.add("group", ["drain_group"])

    if match:
        with pytest.raises(ConfigError, match=match):
            declared.add("b", dag_ids, archive)
    else:
        declared.add("b", dag_ids, archive)


FILE = """
from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow.declared import declare
declare(Pipeline(name="{name}", topics=["t"], archive="/{name}"), ["drain_{name}"])
"""


def test_declare_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each execution of a file starts anew: Airflow parses it again and again, or reloads it."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "declaring.py").write_text(FILE.format(name="a"))

    module = importlib.import_module("declaring")
    importlib.reload(module)
    del sys.modules["declaring"]
    importlib.import_module("declaring")

    (tmp_path / "declaring_twice.py").write_text(FILE.format(name="a") + FILE.format(name="a"))
    with pytest.raises(ConfigError, match=r"^pipeline 'a' \(declaring_twice\.py, line 8\): "):
        importlib.import_module("declaring_twice")


def test_declare_elsewhere() -> None:
    """Outside of a DAG file, a program may make as many as it likes: nobody collects them."""
    pipeline = Pipeline(name="a", topics=["t"], archive="/a")

    for _ in range(2):
        declare(pipeline, ["drain_a"])
