"""The tree of errors: complete, documented, and able to cross processes."""

from __future__ import annotations

import pickle
import re

from kafka_drain import errors
from kafka_drain.errors import KafkaDrainError, TerminalError, TransientError
from tests.tables import each_of

CLASSES: list[type[KafkaDrainError]] = [getattr(errors, name) for name in errors.__all__]
CAUSES = [c for c in CLASSES if c not in (KafkaDrainError, TerminalError, TransientError)]


def test_errors_all() -> None:
    """Every error class of the module is public."""
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}

    assert defined == set(errors.__all__)


@each_of("error", CLASSES)
def test_error_pickles(error: type[KafkaDrainError]) -> None:
    """An error comes out of a pickle with its type and message."""
    raised = error("a-0 [1, 2): é")

    loaded = pickle.loads(pickle.dumps(raised))

    assert error is type(loaded)
    assert str(loaded) == "a-0 [1, 2): é"
    assert raised.args == loaded.args


@each_of("error", CAUSES)
def test_error_terminal_or_transient(error: type[KafkaDrainError]) -> None:
    """Each cause says whether a retry can help, and not both."""
    assert issubclass(error, TerminalError) != issubclass(error, TransientError)


@each_of("error", CLASSES)
def test_error_docstring(error: type[KafkaDrainError]) -> None:
    """Each class says when it is raised."""
    assert re.fullmatch(r"Raised (when|in) .*\.", str(error.__doc__))


def test_errors_tree() -> None:
    """The tree in the module's docstring is the tree of the classes."""
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in str(errors.__doc__).splitlines():
        if match := re.match(r"    ([│├└─ ]*)(\w+(?:Error))\b", line):
            depth = len(match[1]) // 4
            above[depth:] = [match[2]]
            drawn[match[2]] = above[depth - 1] if depth else ""

    assert {
        error.__name__: error.__base__.__name__ if error is not KafkaDrainError else ""
        for error in CLASSES
        if error.__base__ is not None
    } == drawn
