"""Fields in JSON: found where they are, so that every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.republish.changing.json_fields import JsonFields
from kafka_drain.schemas.value_path import ALL, ValuePath
from tests.tables import each_of


def found(text: str, *paths: str) -> list[tuple[str, int, Any]]:
    """Return the text, number and value of each field."""
    fields = JsonFields([ValuePath.of(path).steps for path in paths])
    return [(text[s.start : s.end], s.number, s.value) for s in fields.find(text)]


CASES: dict[tuple[str, ...], list[tuple[str, int, Any]]] = {
    ('{"a": 1.50, "b" :"x"}', "$.b"): [('"x"', 0, "x")],
    ('{"a": 1.50}', "$.a"): [("1.50", 0, 1.5)],
    ('{"a": {"a": 1}}', "$.a.a"): [("1", 0, 1)],
    ('{"b": "a", "a": 1}', "$.a"): [("1", 0, 1)],
    ('{"b": "\\"a\\":2", "a": 1}', "$.a"): [("1", 0, 1)],
    ('{"a": 1, "a": "two"}', "$.a"): [("1", 0, 1), ('"two"', 0, "two")],
    ('{"x": {"a": 1}, "x": {}}', "$.x.a"): [("1", 0, 1)],
    ('{"\\u0061": 1}', "$.a"): [("1", 0, 1)],
    ('{"b": {"a": 1}}', "$.a"): [],
    ('{"b": 1}', "$.a"): [],
    ("[1, [2, 3], 4]", "$[1][*]", "$[2]"): [("2", 0, 2), ("3", 0, 3), ("4", 1, 4)],
    ('{"a": [{"n": "x"}, {}, {"n": null}]}', "$.a[*].n"): [('"x"', 0, "x"), ("null", 0, None)],
    ('{"p": {"x": 1, "y": 2}, "q": {"x": 3}}', "$.*.x", "$.p.y"): [
        ("1", 0, 1), ("2", 1, 2), ("3", 0, 3),
    ],
    (' {"b": 2, "a": 1} ', "$.a", "$.b"): [("2", 1, 2), ("1", 0, 1)],
    ('{"a": {"b": [1, 2]}}', "$.a"): [('{"b": [1, 2]}', 0, {"b": [1, 2]})],
    ("[]", "$[0]"): [],
    ("{}", "$.*"): [],
    ('"text"', "$.a"): [],
    ('"text"', "$"): [('"text"', 0, "text")],
    ('{"a b": 1}', "$['a b']"): [("1", 0, 1)],
}  # fmt: skip


@each_of("case", CASES)
def test_find(case: tuple[str, ...]) -> None:
    """Each occurrence of a field is found, also of one that is there twice or written otherwise."""
    text, *paths = case
    assert found(text, *paths) == CASES[case]


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", '{"a": 1', '{"a": 1}x', '{"a" 1}', "{a: 1}", '{"a": 1,}', "[1 2]", '{"a"',
        "text", '{"b": {"a": 1]}', "[" * 5000, '{"\\u0062": 1} {', '{"a": \\u0031}',
    ],
)  # fmt: skip
def test_find_not_json(text: str) -> None:
    """What isn't JSON is refused, also where a field would be found in it, and on the slow way."""
    for path in ("$.a", "$.*", "$[*].a"):
        with pytest.raises(ValueError, match="it isn't JSON"):
            found(text, path)


def test_find_many_digits() -> None:
    """A whole number with more digits than Python reads is a number."""
    assert found('{"a":%s}' % ("9" * 5000), "$.a") == [("9" * 5000, 0, float("inf"))]


NAMES = st.sampled_from(["a", "b", "c", 'd"', "e\\", "é", "a b"])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
STEPS = st.lists(NAMES | st.integers(0, 2) | st.just(ALL), max_size=3)


def replaced(value: Any, steps: list[Any]) -> Any:
    """Return a document with the field at a path replaced by 7: the plain way."""
    if not steps:
        return 7
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        return {
            name: replaced(held, rest) if step is ALL or step == name else held
            for name, held in value.items()
        }
    if isinstance(value, list):
        return [
            replaced(held, rest) if step is ALL or (isinstance(step, int) and step == at) else held
            for at, held in enumerate(value)
        ]
    return value


@settings(max_examples=200)
@given(DOCUMENTS, STEPS, st.booleans(), st.sampled_from([None, 1]))
def test_find_property(document: Any, steps: list[Any], ascii_only: bool, indent: Any) -> None:
    """Replacing what is found gives what replacing in the decoded document gives."""
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    parts, at = [], 0
    for span in JsonFields([steps]).find(text):
        assert json.loads(text[span.start : span.end], parse_int=float) == span.value
        parts += [text[at : span.start], "7"]
        at = span.end
    assert json.loads("".join([*parts, text[at:]])) == replaced(document, steps)
