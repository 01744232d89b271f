"""All tests with real components are in folders that the Makefile's targets run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"pytest\.mark\.(integration|store|cluster)\b")


def test_integration_tests_are_looked_for() -> None:
    """Modules with the marker are in one of the folders that the targets name."""
    named = re.search(r"^WITH_PARTS := (.+)$", (ROOT / "Makefile").read_text(), flags=re.M)
    assert named is not None
    folders = [ROOT / folder for folder in named[1].split()]

    modules = {
        path
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__) and MARKED.search(path.read_text())
    }

    assert modules
    assert {path for path in modules if not any(f in path.parents for f in folders)} == set()


def test_each_marker_has_a_verb() -> None:
    """Every marker that `make test` leaves out has its own target."""
    makefile = (ROOT / "Makefile").read_text()
    left_out = re.search(r"^HERE := integration and not \((.+)\)$", makefile, flags=re.M)
    assert left_out is not None

    for marker in left_out[1].split(" or "):
        assert re.search(rf"^\t@(\w+=\S+ )?\S+ -m pytest -m {marker} ", makefile, flags=re.M), (
            marker
        )
