"""Replace or read a field in a whole column of JSON at once, wherever that is certain.

Two things make it certain without decoding. A regular expression of the whole document, which RE2
runs as an automaton, proves that the document is JSON and has the field where the path says. And
the field's name is in quotes only once, so that this is the place. The other rows are left to
`json_fields`, which gives the same result for each of them, but takes five times as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kafka_drain.data_files.scalars import binaries, number
from kafka_drain.republish.changing.columns import compute as pc
from kafka_drain.republish.changing.masks import Mask, Replace, remembering_json

#: Maximum depth of objects and arrays in one another: each level doubles the expression twice.
LEVELS = 3

_SPACE = r"[ \t\n\r]*"
#: A text as it is, and one in which characters may be escaped.
_PLAIN = r'"[^"\\\x00-\x1f]*"'
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_TRUTH = "(?:true|false)"
_SCALAR = f"{_TEXT}|{_NUMBER}|{_TRUTH}|null"

#: Number of rows from which a column pays: expressions are compiled for each one.
LEAST_ROWS = 500

_ONE, _TWO = number(1), number(2)
_NOTHING = binaries([b""])[0]


class _Kind(NamedTuple):
    """Documents that are treated alike.

    Attributes:
        document: Expression of a whole document.
        times: In how many pieces the field's name cuts it.
        value: Expression of the field's value, if it is replaced by a fixed one that isn't a text.
    """

    document: str
    times: pa.Int64Scalar = _TWO
    value: str = ""
    new: str = ""


class ReplacedColumn(NamedTuple):
    """A column after its change.

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
        how: Its replacement.
    """

    def __init__(self, path: Sequence[Any], how: Replace) -> None:
        self._how = how
        self._in_json = remembering_json(how)
        self._knows_order = False
        self._name = None
        self._kinds: dict[str, _Kind] = {}
        if _is_plain(path):
            self._name = _quoted(path[-1])
            self._kinds = {
                "text": _Kind(_whole(_with_field(path, _PLAIN))),
                "null": _Kind(_whole(_with_field(path, "null"))),
                "absent": _Kind(_ANY, _ONE),
            }
            if isinstance(how, Mask):
                for kind, value, empty in (("number", _NUMBER, 0), ("truth", _TRUTH, False)):
                    new = how.in_json(empty, "")
                    assert new is not None
                    self._kinds[kind] = _Kind(_whole(_with_field(path, value)), _TWO, value, new)

    def replaced(self, column: pa.LargeBinaryArray, least: int = LEAST_ROWS) -> ReplacedColumn:
        """Return the column with the field replaced where that is certain.

        Args:
            column: Without nulls.
            least: Number of rows from which it is tried.
        """
        if not self._knows_order:
            self._knows_order = True
            # A few rows tell which kinds to try first with all of them.
            self.replaced(column.slice(0, least), least)
        new, left = column, column.is_valid()
        certain = there = column.is_null()
        others, seen = column, dict.fromkeys(self._kinds, 0)
        # Not before, as bytes that aren't UTF-8 may be no JSON.
        kinds = self._kinds if len(column) >= least and _is_text(column) else {}
        for name, kind in kinds.items():
            assert self._name is not None
            pieces = pc.split_pattern(others, pattern=self._name.as_py())
            found = pc.and_(
                pc.equal(pieces.value_lengths(), kind.times),
                pc.match_substring_regex(others, pattern=kind.document),
            )
            seen[name] = pc.sum(found).as_py() or 0
            if seen[name]:
                rows = pc.replace_with_mask(left, left, found)
                if name not in ("null", "absent"):
                    joined = self._joined(pc.filter(pieces, found), kind)
                    whole = len(joined) == len(new)
                    new = joined if whole else pc.replace_with_mask(new, rows, joined)
                certain = pc.or_(certain, rows)
                there = there if name == "absent" else pc.or_(there, rows)
                left = pc.and_(left, pc.invert(rows))
                others = pc.filter(others, pc.invert(found))
            if len(others) < max(1, least):
                break
        # Next time, try the most frequent one first.
        self._kinds = dict(sorted(self._kinds.items(), key=lambda item: -seen[item[0]]))
        return ReplacedColumn(new, certain, there)

    def _joined(self, pieces: pa.LargeListArray, kind: _Kind) -> pa.LargeBinaryArray:
        """Return documents with the field replaced, given the text around its name."""
        before, after = (pc.list_element(pieces, place) for place in (0, 1))
        if kind.value:
            after = pc.replace_substring_regex(
                after,
                pattern=rf"\A({_SPACE}:{_SPACE})(?:{kind.value})",
                replacement=rf"\1{kind.new}",
                max_replacements=1,
            )
            return pc.binary_join_element_wise(before, self._name, after, _NOTHING)
        # The characters between name and text, the text, the characters after it.
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


class JsonTexts:
    """Reads texts at a path.

    Args:
        path: The steps: names, indexes, or `ALL`.
    """

    def __init__(self, path: Sequence[Any]) -> None:
        self._names = [_quoted(name) for name in path] if _is_plain(path) else []
        self._document = _whole(_with_field(path, _PLAIN)) if self._names else ""

    def of(self, column: pa.LargeBinaryArray) -> tuple[pa.LargeBinaryArray, pa.BooleanArray]:
        """Return the text in each row, null without any; and in which rows that is certain.

        Args:
            column: Without nulls.
        """
        nothing = pa.nulls(len(column), pa.large_binary())
        if not self._names or not _is_text(column):
            return nothing, column.is_null()
        pieces = pc.split_pattern(column, pattern=self._names[-1].as_py())
        times = pieces.value_lengths()
        is_there = pc.and_(
            pc.equal(times, _TWO), pc.match_substring_regex(column, pattern=self._document)
        )
        for name in self._names[:-1]:
            # Of an object that is there twice, the last one counts.
            once = pc.equal(pc.count_substring(column, pattern=name.as_py()), _ONE)
            is_there = pc.and_(is_there, once)
        certain, texts = is_there, nothing
        if pc.any(is_there).as_py():
            after = pc.list_element(pc.filter(pieces, is_there), 1)
            cut = pc.split_pattern(after, pattern=b'"', max_splits=2)
            texts = pc.replace_with_mask(nothing, is_there, pc.list_element(cut, 1))
        if not pc.all(is_there).as_py():
            is_absent = pc.and_(
                pc.equal(times, _ONE), pc.match_substring_regex(column, pattern=_ANY)
            )
            certain = pc.or_(is_there, is_absent)
        return texts, certain


def _is_text(column: pa.LargeBinaryArray) -> bool:
    """Return whether all of it is UTF-8."""
    try:
        column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _is_plain(path: Sequence[Any]) -> bool:
    """Return whether a path has names that are in JSON as they are, unless needlessly escaped.

    Nor may a name in quotes be what lies between two texts, from the end of one to the start of the
    other, such as `","`.
    """
    return bool(path) and all(
        isinstance(step, str)
        and step.isprintable()
        and not {'"', "\\"} & set(step)
        and step.lstrip(" ")[:1] not in {",", ":", "]", "}"}
        for step in path
    )


def _quoted(name: str) -> pa.LargeBinaryScalar:
    return binaries([f'"{name}"'.encode()])[0]


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


_ANY = _whole(_object(_value(LEVELS - 1)))
