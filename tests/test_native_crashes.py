"""Calls of native libraries that can end the process: read from the sources with `ast`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: Each with what to call in its place.
CRASHES = {
    # librdkafka 2.16 has no group of its own there, and looks into it where a coordinator is still
    # loading (issue 5040 of confluentinc/librdkafka).
    "list_consumer_group_offsets": "Consumer.committed",
}


def sources() -> Iterator[Path]:
    for folder in ("benchmarks", "dags", "demo", "plugins", "scripts", "spark_jobs", "tests"):
        yield from (ROOT / folder).rglob("*.py")


def named(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the attributes and names of a source, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Name):
            yield node.id, node.lineno


@pytest.mark.parametrize("call", CRASHES)
def test_no_call_that_crashes(call: str) -> None:
    """No source names a call that can end the process with a segmentation fault."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sources()
        for name, line in named(ast.parse(path.read_text()))
        if name == call
    ]

    assert not found, f"{call} can crash, use {CRASHES[call]}"


def test_named() -> None:
    """A call is found however it is written."""
    tree = ast.parse("admin.call(x)\nf = a.b.call\ncall()")

    assert sorted(line for name, line in named(tree) if name == "call") == [1, 2, 3]
