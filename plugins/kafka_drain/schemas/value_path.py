"""A path into a decoded value, and the value expected there: a part of JSONPath. Opens nothing.

Of RFC 9535, it has names and indexes, and `*` for all of a structure's members; no filters, slices
or descendants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.errors import ConfigError
from kafka_drain.schemas import exact_json

_STEP = re.compile(
    r"\.(?P<name>[^\W\d][\w-]*)|(?P<all>\.\*|\[\*\])|\[(?P<index>-?\d+)\]"
    r"|\['(?P<single>[^']*)'\]|\[\"(?P<double>[^\"]*)\"\]"
)

#: Marks bytes that are written as hexadecimal digits.
HEX = "hex:"

#: In place of a name or an index: all members.
ALL = object()


@dataclass(frozen=True)
class ValuePath:
    """A path, and the value that has to be there.

    Attributes:
        steps: Names, indexes, or `ALL`.
        expected: The text that was given for the value; None if the path only has to exist.
    """

    steps: tuple[Any, ...]
    expected: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, text: str) -> ValuePath:
        """Parse `$.order.items[0].id`, or `$.order.id=42`.

        Raises:
            ConfigError: When it isn't such a path; doesn't show the value.
        """
        at, steps = 1, []
        while found := _STEP.match(text, at):
            at = found.end()
            if found["all"]:
                steps.append(ALL)
            elif found["index"]:
                steps.append(int(found["index"]))
            else:
                names = (found["name"], found["single"], found["double"])
                steps.append(next(name for name in names if name is not None))
        if not text.startswith("$") or text[at : at + 1] not in ("", "="):
            raise ConfigError(
                "jsonpath isn't acceptable; accepted: a path such as $.order.items[0].id or "
                "$['order id'], with * for all members, alone or followed by =VALUE"
            )
        return cls(tuple(steps), text[at + 1 :] if at < len(text) else None)

    def matches(self, value: Any) -> bool:
        """Return whether a decoded value has the path, and the expected value there."""
        found = _at(value, self.steps)
        if self.expected is None:
            return any(True for _ in found)
        return any(_equals(one, self.expected) for one in found)


def _at(value: Any, steps: tuple[Any, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is ALL and isinstance(value, (dict, list)):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _at(member, rest)
    elif isinstance(value, dict) and isinstance(step, str):
        if step in value:
            yield from _at(value[step], rest)
    elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
        yield from _at(value[step], rest)


def _equals(value: Any, text: str) -> bool:
    """Return whether a value is a text, or the JSON that it is written as."""
    if isinstance(value, str) and value == text:
        return True
    try:
        expected = exact_json.decoded(text)
    except (ValueError, RecursionError):
        return False
    return exact_json.same(value, expected)


def bytes_of(name: str, text: str) -> bytes:
    """Return the bytes that a text stands for: its UTF-8, or hexadecimal digits after `hex:`.

    Args:
        name: Its name in the error message, which doesn't show the text.
        text: The text. One that is itself meant to begin with `hex:` has to be written in digits.

    Raises:
        ConfigError: When the digits aren't hexadecimal.
    """
    if not text.startswith(HEX):
        # As Python reads bytes of the command line that aren't valid text.
        return text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text.removeprefix(HEX))
    except ValueError:
        # Not the cause: it may show the digits.
        raise ConfigError(
            f"{name} begins with {HEX}, but what follows aren't pairs of hexadecimal digits"
        ) from None
