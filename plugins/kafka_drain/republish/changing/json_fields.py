"""Find fields in JSON, to replace their text and nothing else. Opens nothing.

Decoding and encoding a whole document would round its numbers and drop its spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from json import JSONDecoder
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple, cast

from kafka_drain.schemas.value_path import ALL

_SPACE = re.compile(r"[ \t\n\r]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
#: A whole number is read like any other: Python refuses ones of more than 4,300 digits.
_DECODER = JSONDecoder(strict=False, parse_int=float)
#: Decodes one value from a place in a text, in C.
_scan = _DECODER.scan_once  # type: ignore[attr-defined]


class JsonSpan(NamedTuple):
    """A field that was found.

    Attributes:
        start: Start of its text.
        end: Its end.
        number: The field's number.
        value: Its value, as Python's own types; a whole number as a float.
    """

    start: int
    end: int
    number: int
    value: Any


@dataclass
class _Node:
    """A step of the paths: where it leads, and the field that ends here."""

    number: int | None = None
    steps: dict[Any, _Node] = field(default_factory=dict)

    def next(self, step: Any) -> Iterator[_Node]:
        for each in (step, ALL):
            if each in self.steps:
                yield self.steps[each]


class JsonFields:
    """Finds fields in JSON texts.

    Args:
        paths: The steps of each field: names, indexes from 0, or `ALL`. No field lies in another.
    """

    def __init__(self, paths: Iterable[Sequence[Any]]) -> None:
        self._root = _Node()
        self._paths = [tuple(path) for path in paths]
        for number, path in enumerate(self._paths):
            node = self._root
            for step in path:
                node = node.steps.setdefault(step, _Node())
            node.number = number
        self._names = [_plain_name(path) for path in self._paths]
        self._is_plain = None not in self._names and len({*self._names}) == len(self._names)

    def find(self, text: str) -> list[JsonSpan]:
        """Return the fields that a text has, in its order; one that occurs twice is there twice.

        Raises:
            ValueError: When the text isn't JSON.
        """
        try:
            if self._is_plain and "\\" not in text:
                found = self._find_plain(text)
                if found is not None:
                    return found
            spans: list[JsonSpan] = []
            end = self._walk(text, _skip(text, 0), [self._root], spans)
        except (ValueError, StopIteration, IndexError, RecursionError) as error:
            raise ValueError("it isn't JSON") from error
        if _skip(text, end) != len(text):
            raise ValueError("it isn't JSON")
        return spans

    def _find_plain(self, text: str) -> list[JsonSpan] | None:
        """Find fields by their names; None when that can't tell.

        Twice as fast as walking, also through documents that are too deep for `json_column`. If no
        character is escaped, a name is in quotes only once, and the document has the field, then
        this is its name.
        """
        value, end = _scan(text, _skip(text, 0))
        if end != len(text) and _skip(text, end) != len(text):
            raise ValueError("it isn't JSON")
        spans: list[JsonSpan] = []
        for number, (path, name) in enumerate(zip(self._paths, self._names, strict=True)):
            at = text.find(cast(str, name))
            if at < 0:
                continue
            if text.find(cast(str, name), at + 1) >= 0:
                return None
            here = value
            for step in path:
                if not isinstance(here, dict) or step not in here:
                    # The name of something else, or of a member that a later one replaces.
                    return None
                here = here[step]
            found = _COLON.match(text, at + len(cast(str, name)))
            assert found is not None
            start = found.end()
            # Nothing is escaped: a text is as long as it is written.
            end = start + len(here) + 2 if isinstance(here, str) else _scan(text, start)[1]
            spans.append(JsonSpan(start, end, number, here))
        if len(spans) > 1:
            spans.sort()
        return spans

    def _walk(self, text: str, at: int, nodes: list[_Node], spans: list[JsonSpan]) -> int:
        """Add the fields of the value at a place; return its end."""
        for node in nodes:
            if node.number is not None:
                value, end = _scan(text, at)
                spans.append(JsonSpan(at, end, node.number, value))
                return cast(int, end)
        first = text[at]
        if not nodes or first not in "{[":
            return cast(int, _scan(text, at)[1])
        closing = "}" if first == "{" else "]"
        at, index = _skip(text, at + 1), 0
        if text[at] == closing:
            return at + 1
        while True:
            step: Any = index
            if first == "{":
                if text[at] != '"':
                    raise ValueError("it isn't JSON")
                step, at = scanstring(text, at + 1, False)
                at = _skip(text, at)
                if text[at] != ":":
                    raise ValueError("it isn't JSON")
                at = _skip(text, at + 1)
            inner = [following for node in nodes for following in node.next(step)]
            at = _skip(text, self._walk(text, at, inner, spans))
            if text[at] == closing:
                return at + 1
            if text[at] != ",":
                raise ValueError("it isn't JSON")
            at, index = _skip(text, at + 1), index + 1


def _plain_name(path: Sequence[Any]) -> str | None:
    """Return the last name of a path of names, in quotes; None for any other path."""
    if not path or not all(isinstance(step, str) for step in path):
        return None
    return None if '"' in path[-1] or "\\" in path[-1] else f'"{path[-1]}"'


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
