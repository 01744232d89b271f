"""The table of versions says what the tests came to."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.matrix import MATRIX, PAGE, kind_of, note, shown, table

COUNTS = {"passed": 9, "failed": 0, "skipped": 0}
DAY = "2026-11-24"


def test_page_shows_matrix() -> None:
    """The table is made of docs/matrix.json, which only runs write."""
    assert shown(PAGE.read_text()) == table(json.loads(MATRIX.read_text()))


def test_matrix_has_no_failure() -> None:
    """Nothing is shown as tested that failed."""
    for row in json.loads(MATRIX.read_text()):
        for counts in row["tests"].values():
            assert counts["passed"] > 0
            assert counts["failed"] == 0


HERE = (
    "integration and not (store or cluster or connect or kubernetes or yarn or registry or browser "
    "or recipes or soak)"
)


@pytest.mark.parametrize(
    ("markers", "cells"),
    [
        ("not integration", "9 passed (2026-11-24) | not run"),
        ("integration", "not run | 9 passed (2026-11-24)"),
        (f"{HERE} and spark", "not run | with Spark: 9 passed (2026-11-24)"),
        (f"{HERE} and airflow and not spark", "not run | with Airflow: 9 passed (2026-11-24)"),
        (f"{HERE} and not (airflow or spark)", "not run | with neither: 9 passed (2026-11-24)"),
        ("store", "not run | on a store: 9 passed (2026-11-24)"),
        ("cluster", "not run | on clusters: 9 passed (2026-11-24)"),
        ("connect", "not run | by Connect: 9 passed (2026-11-24)"),
        ("kubernetes", "not run | on Kubernetes: 9 passed (2026-11-24)"),
        ("yarn", "not run | on YARN: 9 passed (2026-11-24)"),
        ("registry", "not run | on a Schema Registry: 9 passed (2026-11-24)"),
        ("browser", "not run | in a browser: 9 passed (2026-11-24)"),
        ("recipes", "not run | recipes: 9 passed (2026-11-24)"),
    ],
)
def test_table_kinds(markers: str, cells: str) -> None:
    """A run of some of the tests isn't shown as one of all."""
    row = {"versions": {"spark": "4.2.0"}, "tests": {kind_of(markers): COUNTS | {"day": DAY}}}

    assert table([row]).splitlines()[-1] == f"| 4.2.0 | {cells} |"


@pytest.mark.parametrize("markers", ["", "spark and not soak"])
def test_kind_of_unknown_markers(markers: str) -> None:
    """What isn't selected by a row's markers has no place in the table."""
    assert kind_of(markers) == ""


def test_kinds_are_of_the_makefile() -> None:
    """Each run of tests with real parts in the Makefile has a kind of its own."""
    makefile = (PAGE.parents[1] / "Makefile").read_text()
    here = re.search(r"^HERE := (.+)$", makefile, flags=re.M)
    assert here is not None
    assert here[1] == HERE
    found = re.findall(r"-m pytest -m (?:'([^']+)'|(\w+)) ", makefile)

    markers = {(quoted or plain).replace("$(HERE)", HERE) for quoted, plain in found}

    assert len({kind_of(each) for each in markers}) == len(markers)


@pytest.mark.parametrize(
    ("noted", "then", "kept"),
    [
        (["integration"], "yarn", {"on YARN"}),
        (["yarn", "store"], "integration", {"with real parts"}),
        (["yarn"], "store", {"on YARN", "on a store"}),
        (["not integration", "yarn"], "integration", {"without Java", "with real parts"}),
        (["integration"], "not integration", {"without Java", "with real parts"}),
    ],
)
def test_note_all_or_parts(noted: list[str], then: str, kept: set[str], tmp_path: Path) -> None:
    """The newer counts: a part replaces a run of all tests, and such a run its parts."""
    path = tmp_path / "matrix.json"

    for markers in [*noted, then]:
        note(kind_of(markers), COUNTS, DAY, path)

    [row] = json.loads(path.read_text())
    assert set(row["tests"]) == kept


def test_note(tmp_path: Path) -> None:
    """A run takes the place of the one before in the same environment, and leaves all others."""
    path = tmp_path / "matrix.json"
    other = {
        "versions": {"airflow": "9.9.9", "spark": "9.9.9", "python": "9.9"},
        "tests": {"without Java": {"passed": 1, "failed": 0, "skipped": 0}},
    }
    path.write_text(json.dumps([other]))

    note("without Java", {"passed": 1, "failed": 1, "skipped": 0}, DAY, path)
    note("without Java", {"passed": 1_234, "failed": 0, "skipped": 2}, DAY, path)

    first, second = json.loads(path.read_text())
    assert first == other
    assert second["versions"] == {
        "airflow": version("apache-airflow"),
        "spark": version("pyspark"),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    assert (
        table([second])
        .splitlines()[-1]
        .endswith("| 1,234 passed, 2 skipped (2026-11-24) | not run |")
    )
