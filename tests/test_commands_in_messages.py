"""Commands in messages: with the archive, quoted, so that they can be pasted into a shell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_drain.cli.main import COMMANDS
from kafka_drain.findings import Reason

PLUGINS = Path(__file__).parents[1] / "plugins"
#: What quotes a path, and names of variables that hold one quoted.
QUOTING = {"quoted", "arguments_of"}
QUOTED = {"place"}
#: Modules whose texts are made whole when they are shown: on pages, and of a record that Spark's
#: executors have met, by the page that tells why a run failed.
LATER = {
    "kafka_drain/findings.py",
    "kafka_drain/pages/next_step.py",
    "kafka_drain/pages/remedies.py",
    "kafka_drain/pages/restores.py",
    "kafka_drain/spark/unkept_records.py",
}
#: Commands that take no archive, or whose text tells a form and not a command.
OTHERS = {"spark-server", "evidence-key", "cut-over", "jars", "class-archive", "size"}
COMMAND = re.compile(rf"`kafka-drain ({'|'.join(COMMANDS.keys() - OTHERS)})(?![a-z-])")


def commands_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the commands in a module's texts: line, and what follows the command's name."""
    nodes = [*ast.walk(ast.parse(text))]
    # Docstrings, and texts that are parts of others.
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    inner |= {id(v) for node in nodes if isinstance(node, ast.JoinedStr) for v in node.values}
    for node in nodes:
        if id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            whole = "".join(map(_part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            whole = node.value
        else:
            continue
        for found in COMMAND.finditer(whole):
            yield node.lineno, whole[found.end() :]


def _part(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    assert isinstance(value, ast.FormattedValue)
    inner = value.value
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
        return "<QUOTED>" if inner.func.id in QUOTING else "<OTHER>"
    return "<QUOTED>" if isinstance(inner, ast.Name) and inner.id in QUOTED else "<OTHER>"


@pytest.mark.parametrize("package", ["kafka_drain", "kafka_drain_airflow"])
def test_commands_in_messages(package: str) -> None:
    """Whoever copies a command out of a message has the archive in it, whatever its path is."""
    wrong, seen = [], 0
    for path in sorted((PLUGINS / package).rglob("*.py")):
        name, text = str(path.relative_to(PLUGINS)), path.read_text()
        if name in LATER:
            continue
        for line, rest in commands_in(text):
            seen += 1
            if not rest.startswith(" <QUOTED>"):
                wrong.append(f"{name}:{line}: {rest[:40]}")

    assert wrong == []
    assert seen or package != "kafka_drain"


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        ('x = f"run `kafka-drain roll {quoted(root)}`"', True),
        ('x = f"run `kafka-drain roll {root}`"', False),
        ('x = "run `kafka-drain validate --deep`"', False),
    ],
)
def test_commands_in(text: str, is_whole: bool) -> None:
    """What isn't quoted is seen."""
    [(_, rest)] = commands_in(text)
    assert rest.startswith(" <QUOTED>") is is_whole


def test_remedy_of() -> None:
    """A message's remedy names the archive in each of its commands."""
    remedy = Reason.RECEIPT_HOLE.remedy_of("/it's mine")

    place = "'/it'\"'\"'s mine'"
    assert f"`kafka-drain repair {place} --apply`" in remedy
    assert f"`kafka-drain repair {place} --new-journal --apply`" in remedy
