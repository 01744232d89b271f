"""`make unnoticed`: what is changed in a module, and what its tests don't notice."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.unnoticed import ROOT, changes_of, files_of


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("return a and b", ["return b", "return a"]),
        ("return not a", ["return a"]),
        ("return a < b", ["return a <= b"]),
        ("return a if b else c", ["return a", "return c"]),
        ("return a | b", ["return a", "return b"]),
        ("return a - b", ["return a"]),
        ("return a.start", ["return a.end"]),
        ("return f(True, 5)", ["return f(False, 5)", "return f(True, 6)"]),
        ("return f(a, b, c=d)", ["return f(a, b)", "return f(b, a, c=d)"]),
        ("return any(a)", ["return all(a)"]),
        ("return [a for a in b if c]", ["return [a for a in b]"]),
        ("return {a: b, c: d}", ["return {c: d}", "return {a: b}"]),
        ("a.b = c", ["pass"]),
        ("a = b", []),
        ("say(a, True)", []),
        ("raise E(a and b)", []),
        ("return f'{a and b}'", []),
    ],
)
def test_changes_of(code: str, changed: list[str]) -> None:
    """Each mistake is made alone; messages stay as they are."""
    tree = ast.parse(f"def x():\n    {code}")

    found = [ast.unparse(each.tree).split("\n    ")[1] for each in changes_of(tree)]

    assert found == changed


def test_changes_of_steps() -> None:
    """Steps are left out, and taken in another order; so are branches and handlers."""
    tree = ast.parse(
        "class A:\n def x(self):\n  if a:\n   f()\n   g()\n"
        "  try:\n   h(1)\n  except (B, C):\n   pass"
    )

    found = [(each.line, each.text) for each in changes_of(tree)]

    assert found == [
        (3, "if `a`: never"),
        (3, "if `a`: always"),
        (3, "`g()` before `f()`"),
        (4, "drop `f()`"),
        (5, "drop `g()`"),
        (7, "drop `h(1)`"),
        (7, "1 as 2"),
        (8, "drop except `B`"),
        (8, "drop except `C`"),
    ]


def test_unnoticed_of_module(tmp_path: Path) -> None:
    """What no test notices is told, with its place; what a test notices isn't."""
    (tmp_path / "ours.py").write_text(
        "def twice(a):\n    return a - 1 if a else 0\n\n\ndef unused(a):\n    return not a\n"
    )
    (tmp_path / "test_ours.py").write_text(
        "from ours import twice\n\n\ndef test_twice():\n    assert (twice(0), twice(5)) == (0, 4)\n"
    )

    ran = subprocess.run(
        [sys.executable, "-m", "scripts.unnoticed", "ours", tmp_path, f"--rootdir={tmp_path}"],
        cwd=ROOT,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"{tmp_path}/ours.py:6: drop not of `not a`" in ran.stdout.splitlines()
    assert "1 of 6 changes" in ran.stdout


def test_files_of_module() -> None:
    """A module's tests begin with its name, and may be more than one file."""
    first, *others = files_of("kafka_drain.windows.roll")

    assert first == "tests/kafka_drain/windows/test_roll.py"
    assert "tests/kafka_drain/windows/test_roll_decisions.py" in others
