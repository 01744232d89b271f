"""A session of Spark that does nothing, and notes in which order it was asked for what."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


class Spark:
    """A session, and the rows that it reads: notes each step, and what it was given."""

    def __init__(self, steps: list[Any], name: str = "given") -> None:
        self.steps, self.name = steps, name
        self.read = self.write = self.readStream = self.writeStream = self.sparkSession = self
        self.schema = "the columns"

    def newSession(self) -> Spark:
        """Return another session."""
        return Spark(self.steps, "own")

    def load(self) -> Spark:
        """Return the rows."""
        self.steps.append(("load", self.name))
        return self

    def __getattr__(self, step: str) -> Any:
        """Note a step."""

        def note(*given: Any, **named: Any) -> Spark:
            self.steps.append((step, *given, *([named] if named else [])))
            return self

        return note


def noted_functions(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *names: str) -> list[Any]:
    """Let functions of a module only note that they were called, and return the same rows."""
    steps: list[Any] = []

    def step(name: str) -> Any:
        def note(*given: Any) -> Any:
            said = [one for one in given if not isinstance(one, Spark)]
            steps.append((name, *said))
            return next(one for one in given if isinstance(one, Spark))

        return note

    for name in names:
        monkeypatch.setattr(module, name, step(name))
    return steps


def unlike(steps: list[Any], expected: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the expected steps that weren't taken, and those that were taken beside them."""
    missing, more = list(expected), list[Any]()
    for step in steps:
        if step in missing:
            missing.remove(step)
        else:
            more.append(step)
    return missing, more


def in_order(steps: list[Any], *names: str) -> bool:
    """Return whether steps of these names were taken, for the first time, in this order."""
    taken = [step[0] for step in steps]
    places = [taken.index(name) for name in names]
    return places == sorted(places)
