"""`make mutate`: how mutants that no test detects are handled."""

from __future__ import annotations

import ast
import json
from fnmatch import fnmatchcase

import pytest

from scripts.mutation import (
    DECIDING,
    ROOT,
    SURVIVORS,
    Deciding,
    Mutant,
    Result,
    document_of,
    failures,
    held_by,
    mutants_of,
    read_document,
)
from tests.tables import each_of

DIFF = """\
--- kafka_drain/gaps.py
+++ kafka_drain/gaps.py
@@ -1,3 +1,3 @@
 def end(self):
-    return (
-        a)
+    return None
"""
A, B = Mutant("kafka_drain.m.f", "a => b"), Mutant("kafka_drain.m.g", "c => d")


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("kafka_drain.proof.gap_probe.x_end__mutmut_3", "kafka_drain.proof.gap_probe.end"),
        ("kafka_drain.proof.gap_probe.x__end__mutmut_3", "kafka_drain.proof.gap_probe._end"),
        ("kafka_drain.proof.gap_probe.xǁGapǁend__mutmut_12", "kafka_drain.proof.gap_probe.Gap.end"),
    ],
)
def test_mutant_of(name: str, function: str) -> None:
    """A mutant is identified by its function and lines: mutmut's numbers change with the code."""
    assert Mutant.of(name, DIFF) == Mutant(function, "return ( a) => return None")


def results(alive: int, *named: Mutant, mutants: int = 100) -> dict[str, Result]:
    """Return the outcome of a module's mutants, with the given number of survivors."""
    return {"m": Result(mutants, mutants - alive, frozenset(named))}


def test_failures_with_reasons() -> None:
    """The run succeeds if every survivor has a reason, and there are few."""
    assert failures(results(5, A), {A: "the same"}) == []


@pytest.mark.parametrize("reasons", [{}, {B: ""}, {A: "the same"}])
def test_failures_without_reason(reasons: dict[Mutant, str]) -> None:
    """A survivor without a reason is a failure, however few there are."""
    found = failures(results(1, B), reasons)

    assert found[0] == "no test detects kafka_drain.m.g: c => d"
    assert len(found) == 2


def test_failures_too_many() -> None:
    """Reasons don't help if tests detect too few mutants."""
    too_few = ["tests detect less than 95% of the changes"]
    assert failures(results(6, A), {A: "the same"}) == too_few
    assert failures({}, {}) == too_few


def test_document_read_again() -> None:
    """The document round-trips: reasons are kept, and mutants that are now detected are removed."""
    gone = Mutant("kafka_drain.m.h", "e => f")
    found = results(2, A, B, mutants=40) | {"n": Result(160, 160)}

    document = document_of(found, {A: "the same", gone: "gone"})

    assert read_document(document) == (found, {A: "the same", B: ""})
    assert document["percent"] == 99.0


def test_survivors() -> None:
    """The survivors file is valid: enough mutants are detected, and each survivor has a reason."""
    found, reasons = read_document(json.loads(SURVIVORS.read_text()))

    assert failures(found, reasons) == []
    assert set(found) == set(DECIDING)


def test_mutants_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a module with I/O, only the functions and classes that decide are mutated."""
    monkeypatch.setitem(DECIDING, "a.b", Deciding("end Gap"))
    monkeypatch.setitem(DECIDING, "c", Deciding())
    made = ["a.b.x_end__mutmut_1", "a.b.xǁGapǁend__mutmut_2", "c.x__f__mutmut_1"]
    left_out = ["a.b.x_end_of__mutmut_1", "a.b.x__end__mutmut_1", "a.b.xǁGapsǁend__mutmut_2"]

    patterns = [*mutants_of(["a.b", "c"])]

    def is_mutated(name: str) -> bool:
        return any(fnmatchcase(f"kafka_drain.{name}", pattern) for pattern in patterns)

    assert all(map(is_mutated, made))
    assert not any(map(is_mutated, left_out))


@pytest.mark.parametrize(
    ("names", "function", "is_included"),
    [
        ("", "end", True),
        ("end", "end", True),
        ("Gap", "Gap.end", True),
        ("Gap", "end", False),
        ("Gap", "Gaps.end", False),
        ("end", "Gap.end", False),
    ],
)
def test_deciding_includes(names: str, function: str, is_included: bool) -> None:
    """A named class decides with all of its methods."""
    assert Deciding(names).includes(function) is is_included


@each_of("module", DECIDING)
def test_deciding_modules(module: str) -> None:
    """The modules, functions and classes that decide exist, and so do the tests named for them."""
    path = ROOT / "plugins" / "kafka_drain" / f"{module.replace('.', '/')}.py"
    defined = {getattr(node, "name", "") for node in ast.parse(path.read_text()).body}
    assert set(DECIDING[module].names.split()) <= defined
    assert held_by(module)
    for name in DECIDING[module].tests.split():
        assert f"tests/kafka_drain/{name}" in held_by(module)
