"""The models say which code they model, and what their check makes of a search."""

from __future__ import annotations

import re

import pytest

from tests.protocols.check import FOLDER, VARIATIONS, Found, found_in

SOURCES = FOLDER.parents[1] / "plugins" / "kafka_drain"
MODELLED = {"republish": "republish", "lease": "storage"}
#: Settings of a size, which no variation has to change.
SIZES = {"APART", "EARLIER"}


def text(model: str) -> str:
    return (FOLDER / f"{model}.pml").read_text(encoding="utf-8")


@pytest.mark.parametrize("model", MODELLED)
def test_model_names_code(model: str) -> None:
    """Each name that a model quotes is in the code that it models."""
    code = "\n".join(path.read_text() for path in (SOURCES / MODELLED[model]).rglob("*.py"))
    quoted = {name for each in re.findall(r"`([^`]+)`", text(model)) for name in each.split(".")}

    assert quoted
    assert [name for name in sorted(quoted) if not re.search(rf"\b{name}\b", code)] == []


@pytest.mark.parametrize("model", MODELLED)
def test_model_variations(model: str) -> None:
    """Each macro of a model is set by a variation, and each that one sets is the model's."""
    asked = set(re.findall(r"#ifn?def (\w+)", text(model)))
    flags = {flag for each in VARIATIONS if each.model == model for flag in each.flags}

    assert {flag.partition("=")[0] for flag in flags} | SIZES == asked | SIZES


@pytest.mark.parametrize("model", MODELLED)
def test_model_promises(model: str) -> None:
    """A model asserts each promise that a variation breaks, and is checked as it is."""
    asserted = set(re.findall(r"assert\((\w+)\)", text(model)))
    broken = {each.breaks for each in VARIATIONS if each.model == model}

    assert "" in broken
    assert broken - {""} <= asserted


def report(*lines: str, errors: int, states: int = 12) -> str:
    return "\n".join([*lines, f"depth reached 9, errors: {errors}", f"    {states} states, stored"])


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (report(errors=0), Found(12, "")),
        (
            report("pan:1: assertion violated once (at depth 7)", errors=1),
            Found(12, "once"),
        ),
        (
            report("pan:1: assertion violated (once) (at depth 7)", errors=1),
            Found(12, "once"),
        ),
        (
            report("pan:1: invalid end state (at depth 7)", errors=1),
            Found(12, "invalid end state"),
        ),
        (
            report("Warning: Search not completed", errors=0),
            Found(12, "the search wasn't completed"),
        ),
        (
            report("error: max search depth too small", errors=0),
            Found(12, "the search wasn't completed"),
        ),
        ("pan: reached -DMEMLIM bound", Found(0, "the search was ended")),
        ("", Found(0, "the search was ended")),
    ],
)
def test_found_in(printed: str, found: Found) -> None:
    """Only a search that ended without an error keeps the promises."""
    assert found_in(printed) == found
