"""The environments that kafka-drain has to fit, and which pins they leave out."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.install_check import CASES, EXTRAS, without

ROOT = Path(__file__).parents[2]


def test_without() -> None:
    """Only the named packages are left out, not those whose names begin like theirs."""
    pins = "a==1\na-b==2\n# a\nc[x]==3\n"

    assert without(pins, ("a", "c")) == "a-b==2\n# a\n"
    assert without(pins, ()) == pins


def test_cases_are_supported() -> None:
    """Each Airflow from the oldest supported one on is there, and each extra exists."""
    project = (ROOT / "pyproject.toml").read_text()
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    named = {*re.findall(r"^([\w-]+) = \[", extras, flags=re.M)}

    assert {case.airflow.rpartition(".")[0] for case in CASES} >= {"2.11", "3.0", "3.1", "3.3"}
    assert {case.spark for case in CASES} | {*EXTRAS} <= named
