"""Which line of a user's file is named in a message."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from kafka_drain.config.places import calling_line, named

OWN = ("kafka_drain.config.", "pydantic")


def module(name: str, source: str, **given: Any) -> Any:
    """Run a source as a module of a name, in a file of that name."""
    made = ModuleType(name)
    vars(made).update(given)
    exec(compile(source, f"/dags/{name}.py", "exec"), vars(made))
    return made


def test_calling_line() -> None:
    """The nearest caller outside of the given modules, by file and line."""
    check = module(
        "kafka_drain.config.check", "def check(): return line(OWN)", line=calling_line, OWN=OWN
    )
    helper = module("helper", "\n\ndef make():\n    return check()", check=check.check)
    user = module("orders", "found = make()", make=helper.make)

    assert user.found == "helper.py, line 4"


@pytest.mark.parametrize("name", ["kafka_drain.cli.main", "kafka_drain_airflow.operators.drain"])
def test_calling_line_own(name: str) -> None:
    """A pipeline that kafka-drain itself makes has no line of a user's."""
    made = module(name, "found = line(OWN)", line=calling_line, OWN=OWN)

    assert made.found == ""


@pytest.mark.parametrize(
    ("name", "line", "text"),
    [
        ("a", "x.py, line 1", "pipeline 'a' (x.py, line 1)"),
        ("a", "", "pipeline 'a'"),
        (None, "x.py, line 1", "pipeline without a name (x.py, line 1)"),
        ("", "", "pipeline without a name"),
        (7, "", "pipeline without a name"),
    ],
)
def test_named(name: Any, line: str, text: str) -> None:
    """A pipeline is named as far as it can be."""
    assert named(name, line) == text
