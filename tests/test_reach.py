"""How much of the product whoever reads one of its entrances is led to: it may only fall."""

from __future__ import annotations

import pytest

from scripts.code_lines import code_lines
from tests.test_import_direction import path_of, reached

_HOURLY = "kafka_drain_airflow.operators."
#: Modules and lines of code that an entrance leads to at most. Whoever lowers one writes it here.
REACH = {
    "hourly": (
        {f"{_HOURLY}preflight", f"{_HOURLY}drain", f"{_HOURLY}validate"},
        (249, 31_535),
    ),
    "reading": ({"kafka_drain.reading"}, (73, 10_222)),
}


def led_to(start: set[str]) -> set[str]:
    """Return the modules of ours that the imports of some lead to, those in functions as well.

    A package's `__init__` counts if it is named, and not for what it offers beside.
    """
    seen = reached(start, later=True, packages=False)
    return {module for module in seen if path_of(module)}


def size(modules: set[str]) -> tuple[int, int]:
    """Return the number of some modules, and their lines of code."""
    paths = [path_of(module) for module in modules]
    return len(paths), sum(code_lines(path.read_text()) for path in paths if path)


@pytest.mark.parametrize("name", REACH)
def test_reach(name: str) -> None:
    """No entrance leads to more than before, and a fall is written down."""
    start, (modules, lines) = REACH[name]

    now = size(led_to(start))

    assert now[0] <= modules, now
    assert now[1] <= lines, now
    assert now[0] >= 0.97 * modules, f"lower the number in REACH: {now}"
    assert now[1] >= 0.97 * lines, f"lower the number in REACH: {now}"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("# a comment\n\n", 0),
        ('"""A docstring\nof two lines."""\n', 0),
        ('"""Text"""\nx = """one\ntwo"""\n', 2),
        ("def f(\n    a,\n):\n    '''Doc.'''\n    return a  # why\n", 4),
        ("class A:\n    '''Doc.'''\n\n    x = 1\n", 2),
        ("async def f():\n    '''Doc.'''\n", 1),
        ("x = 1; '''no docstring'''\n", 1),
    ],
)
def test_code_lines(source: str, lines: int) -> None:
    """Neither docstrings, comments nor blank lines count; text that is a value does."""
    assert code_lines(source) == lines
