"""Replace a field in a whole column of JSON at once, wherever that is certain.

Two things make it certain without decoding. A regular expression of the whole document, which RE2
runs as an automaton, proves that the document is JSON and has the field where the path says. And
the field's name is in quotes only once, so that this is the place. The other rows are left to
`json_fields`, which gives the same result for each of them, but takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.scalars import binaries, number
from kafka_drain.republish.changing.masks import Mask, Replace

#: How deep objects and arrays may lie in one another: each level doubles the expression twice.
LEVELS = 3

_SPACE = r"[ \t\n\r]*"
#: A text as it is, and one in which characters may be escaped.
_PLAIN = r'"[^"\\]*"'
_TEXT = r'"(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_SCALAR = f"{_TEXT}|{_NUMBER}|true|false|null"

_ONE, _TWO = number(1), number(2)
_QUOTE, _NOTHING = (binaries([held])[0] for held in (b'"', b""))


class Replaced(NamedTuple):
    """What became of a column.

    Attributes:
        column: The column, with the field replaced where that was certain.
        certain: The rows in which it was, or in which there was nothing to replace.
        there: The ones of these that have the field.
    """

    column: pa.LargeBinaryArray
    certain: pa.BooleanArray
    there: pa.BooleanArray


class JsonColumn:
    """Replaces one field.

    Args:
        path: The field's steps: names, indexes, or `ALL`.
        how: What replaces it.
    """

    def __init__(self, path: Sequence[Any], how: Replace) -> None:
        self._how = how
        self._name = None
        if path and all(isinstance(step, str) and _is_plain(step) for step in path):
            self._name = binaries([f'"{path[-1]}"'.encode()])[0]
            self._with_text, self._with_null = (
                _whole(_with_field(path, held)) for held in (_PLAIN, "null")
            )
            self._any = _whole(_object(_value(LEVELS - 1)))

    def replaced(self, column: pa.LargeBinaryArray) -> Replaced:
        """Return the column with the field replaced where it is a text.

        Args:
            column: Without nulls.
        """
        if self._name is None or not _is_text(column):
            return Replaced(column, column.is_null(), column.is_null())
        pieces = pc.split_pattern(column, pattern=self._name.as_py())
        times = pieces.value_lengths()
        is_text = pc.and_(
            pc.equal(times, _TWO), pc.match_substring_regex(column, pattern=self._with_text)
        )
        if pc.all(is_text).as_py():
            return Replaced(self._joined(pieces), is_text, is_text)
        rest = pc.invert(is_text)
        if pc.any(is_text).as_py():
            new = self._joined(pieces.filter(is_text))
            column = pc.replace_with_mask(column, is_text, new)
        others, times = column.filter(rest), times.filter(rest)
        is_null = pc.and_(
            pc.equal(times, _TWO), pc.match_substring_regex(others, pattern=self._with_null)
        )
        is_absent = pc.and_(
            pc.equal(times, _ONE), pc.match_substring_regex(others, pattern=self._any)
        )
        certain = pc.replace_with_mask(is_text, rest, pc.or_(is_null, is_absent))
        return Replaced(column, certain, pc.replace_with_mask(is_text, rest, is_null))

    def _joined(self, pieces: pa.LargeListArray) -> pa.LargeBinaryArray:
        """Return documents with their text replaced, given what is around the field's name."""
        before, after = (pc.list_element(pieces, place) for place in (0, 1))
        # What is between name and text, the text, what follows it.
        cut = pc.split_pattern(after, pattern=b'"', max_splits=2)
        colon, text, rest = (pc.list_element(cut, place) for place in (0, 1, 2))
        return pc.binary_join_element_wise(
            before, self._name, colon, self._new(text), rest, _NOTHING
        )

    def _new(self, texts: pa.LargeBinaryArray) -> pa.Scalar | pa.LargeBinaryArray:
        if isinstance(self._how, Mask):
            return binaries([self._in_json(b"")])[0]
        encoded = texts.dictionary_encode()
        return binaries(map(self._in_json, encoded.dictionary.to_pylist())).take(encoded.indices)

    def _in_json(self, text: bytes) -> bytes:
        new = self._how.in_json(text.decode(), "")
        assert new is not None
        return new.encode()


def _is_text(column: pa.LargeBinaryArray) -> bool:
    """Return whether all of it is UTF-8."""
    try:
        column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _is_plain(name: str) -> bool:
    """Return whether a name is in JSON as it is, unless its characters are escaped needlessly."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return '"' not in name and "\\" not in name


def _whole(document: str) -> str:
    return rf"\A{_SPACE}{document}{_SPACE}\z"


def _with_field(path: Sequence[str], held: str, levels: int = LEVELS) -> str:
    """Return an expression of an object that has a field, in which a text has no escapes."""
    inner = held if len(path) == 1 else _with_field(path[1:], held, levels - 1)
    other = _member(_value(max(levels - 1, 0)))
    name = f'"{re.escape(path[0])}"'
    return (
        rf"\{{{_SPACE}(?:{other},{_SPACE})*{name}{_SPACE}:{_SPACE}{inner}{_SPACE}"
        rf"(?:,{_SPACE}{other})*\}}"
    )


def _value(levels: int) -> str:
    """Return an expression of any value with so many levels of objects and arrays."""
    if not levels:
        return f"(?:{_SCALAR})"
    inner = _value(levels - 1)
    items = rf"\[{_SPACE}(?:(?:{inner}{_SPACE},{_SPACE})*{inner}{_SPACE})?\]"
    return f"(?:{_SCALAR}|{_object(inner)}|{items})"


def _object(inner: str) -> str:
    member = _member(inner)
    return rf"\{{{_SPACE}(?:(?:{member},{_SPACE})*{member})?\}}"


def _member(value: str) -> str:
    # A name with escapes may be the one that is looked for.
    return f"{_PLAIN}{_SPACE}:{_SPACE}{value}{_SPACE}"
