"""What operators and commands ask the core for: its functions, in place of which others note it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.republish.engines.select import Engines

#: The context of a task in a manual run.
MANUAL: Any = {"run_id": "manual 1", "dag_run": SimpleNamespace(run_type="manual", conf={})}


class CoreCalls:
    """Replaces functions, and keeps what they were given.

    Attributes:
        given: Positional and named arguments of the last call, by the function's name.
        order: Names of the functions that were called, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.given: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.order: list[str] = []

    def replace(self, path: str, answer: Any = None) -> None:
        """Let a function only answer: with a value, or with an error that it raises."""
        name = path.rpartition(".")[2]

        def note(*given: Any, **named: Any) -> Any:
            self.given[name] = given, named
            self.order.append(name)
            if isinstance(answer, Exception):
                raise answer
            return answer

        self._monkeypatch.setattr(path, note)

    def named(self, name: str) -> dict[str, Any]:
        """Return the named arguments of the last call."""
        return self.given[name][1]


class Planned(SimpleNamespace):
    """A plan as the core returns it, whose figures are its attributes."""

    def lines(self, *_: object) -> list[str]:
        """Return the plan as text."""
        return ["what is planned"]

    def to_dict(self) -> dict[str, Any]:
        """Return its figures."""
        return dict(vars(self))


class Frozen(SimpleNamespace):
    """A plan that was frozen."""

    id = "x1"

    def lines(self) -> list[str]:
        """Return how to carry it out, as text."""
        return ["how long it may be started"]

    def summary(self) -> dict[str, Any]:
        """Return what a task answers of it."""
        return {"plan_id": self.id}


def noted_engines(monkeypatch: pytest.MonkeyPatch, path: str) -> list[Any]:
    """Let engines keep what they are made with, as `given`; return those that will be made."""
    made: list[Any] = []

    class Noted(Engines):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.given = given
            made.append(self)

    monkeypatch.setattr(path, Noted)
    return made
