"""Misspelt settings of Spark, told from those that Spark doesn't know."""

from __future__ import annotations

import re
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from kafka_drain.config.spark_settings import known, meant


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("spark.executor.memroy", "spark.executor.memory"),
        ("spark.executor.memory", ""),
        ("spark.sql.shuffle.partition", "spark.sql.shuffle.partitions"),
        ("spark.sql.shufle.partitons", "spark.sql.shuffle.partitions"),
        ("spark.Executor.memory", "spark.executor.memory"),
        ("spark.task.cpu", "spark.task.cpus"),
        # Three letters are another name.
        ("spark.executor.mem", ""),
        ("spark.executor.memory.x", ""),
        ("spark.company.cost.centre", ""),
        ("spark.hadoop.fs.s3a.endpont", ""),
        ("spark.executorEnv.PATH", ""),
        ("spark.kubernetes.driver.label.team", ""),
        ("spark.sql.catalog.mine", ""),
    ],
)
def test_meant(name: str, right: str) -> None:
    """Two letters at most are a slip; what users name themselves is never one."""
    assert meant(name) == right


def test_known_none_misspelt() -> None:
    """No setting of Spark is taken for another one."""
    assert len(known()) > 1700
    assert not [name for name in known() if meant(name)]


def test_known_installed() -> None:
    """The list has the settings of the installed Spark's core."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    [jar] = (Path(spec.origin).parent / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(jar) as opened:
        config = b"".join(
            opened.read(entry)
            for entry in opened.namelist()
            if entry.startswith("org/apache/spark/internal/config/package")
        )
    # Constants of a class: a byte 1, the length in two bytes, the text.
    found = re.findall(rb"\x01\x00(.)(spark(?:\.[A-Za-z][A-Za-z0-9_-]*)+)", config, re.DOTALL)
    names = {text.decode() for length, text in found if length[0] == len(text)}

    assert len(names) > 300
    assert {name for name in names if not name.startswith("spark.test")} <= known()
