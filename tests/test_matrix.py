"""The README's table of versions says what the tests came to."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.matrix import MATRIX, README, kind_of, note, shown, table


def test_readme_shows_matrix() -> None:
    """The table is made of docs/matrix.json, which only runs write."""
    assert shown(README.read_text()) == table(json.loads(MATRIX.read_text()))


def test_matrix_has_no_failure() -> None:
    """Nothing is shown as tested that failed."""
    for row in json.loads(MATRIX.read_text()):
        for counts in row["tests"].values():
            assert counts["passed"] > 0
            assert counts["failed"] == 0


@pytest.mark.parametrize(
    ("markers", "cells"),
    [
        ("not integration", "9 passed | not run"),
        ("integration", "not run | 9 passed"),
        (
            "integration and not (store or cluster) and spark",
            "not run | those with Spark: 9 passed",
        ),
    ],
)
def test_table_kinds(markers: str, cells: str) -> None:
    """A run of some of the tests isn't shown as one of all."""
    counts = {"passed": 9, "failed": 0, "skipped": 0}

    row = {"versions": {"spark": "4.2.0"}, "tests": {kind_of(markers): counts}}

    assert table([row]).splitlines()[-1] == f"| 4.2.0 | {cells} |"


def test_table_all_before_some() -> None:
    """Where all of the tests were run, that is shown, not a run of some."""
    counts = {"passed": 9, "failed": 0, "skipped": 0}
    row = {
        "versions": {"spark": "4.2.0"},
        "tests": {"with Spark": counts, "with real parts": counts | {"passed": 10}},
    }

    assert table([row]).splitlines()[-1] == "| 4.2.0 | not run | 10 passed |"


def test_note(tmp_path: Path) -> None:
    """A run takes the place of the one before in the same environment, and leaves all others."""
    path = tmp_path / "matrix.json"
    other = {
        "versions": {"airflow": "9.9.9", "spark": "9.9.9", "python": "9.9"},
        "tests": {"without Java": {"passed": 1, "failed": 0, "skipped": 0}},
    }
    path.write_text(json.dumps([other]))

    note("without Java", {"passed": 1, "failed": 1, "skipped": 0}, path)
    note("without Java", {"passed": 1_234, "failed": 0, "skipped": 2}, path)

    first, second = json.loads(path.read_text())
    assert first == other
    assert second["versions"] == {
        "airflow": version("apache-airflow"),
        "spark": version("pyspark"),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    assert table([second]).splitlines()[-1].endswith("| 1,234 passed, 2 skipped | not run |")
