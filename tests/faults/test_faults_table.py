"""The table in docs/faults.tsv is complete, and the tests that it names exist."""

from __future__ import annotations

import ast
import csv
import re
from functools import cache
from pathlib import Path

from tests.tables import each_of

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = [
    *range(1, 132),
    *range(135, 140),
    *range(160, 187),
    *range(210, 216),
    *range(220, 222),
    *range(225, 232),
    *range(240, 245),
    *range(250, 256),
    *range(270, 275),
    *range(295, 306),
    *range(310, 315),
    *range(320, 324),
    *range(355, 360),
    *range(375, 380),
    *range(385, 389),
    *range(390, 403),
    *range(404, 427),
    *range(430, 438),
    *range(440, 447),
    *range(450, 458),
    *range(470, 852),
]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[list[str]]:
    """Return numbers, fault, outcome and tests of each row."""
    with (ROOT / "docs" / "faults.tsv").open(encoding="utf-8", newline="") as file:
        _, *found = csv.reader(file, dialect="excel-tab")
    return found


@cache
def defined_in(path: str) -> frozenset[str]:
    """Return the tests that a file defines."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def test_faults_table_whole() -> None:
    """Each fault has one row, alone or with others like it; rows are in order, without a gap."""
    faults = [[int(number) for number in numbers.split(", ")] for numbers, *_ in rows()]

    assert sorted(number for numbers in faults for number in numbers) == NUMBERS
    assert faults == sorted(faults)
    assert all(len(row) == 4 and all(row) for row in rows())


@each_of(
    "number, cell",
    [(number, cell) for number, _, _, cell in rows()],
)
def test_faults_table_names_tests_that_exist(number: str, cell: str) -> None:
    """A row names existing tests, or says why there is none."""
    named = TEST.findall(cell)

    for path, name in named:
        assert name in defined_in(path), f"fault {number}: {path} has no test {name}"
    rest = TEST.sub("", cell).strip(" ,")
    if named:
        assert not rest or rest.startswith("Can't be made")
    else:
        assert rest == "open" or rest.startswith("Can't be made")
