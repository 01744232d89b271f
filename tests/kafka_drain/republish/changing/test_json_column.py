"""Fields replaced in whole columns of JSON: the same as one by one, or left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.data_files.scalars import binaries
from kafka_drain.republish.changing.json_column import LEVELS, JsonColumn
from kafka_drain.republish.changing.json_fields import JsonFields
from kafka_drain.republish.changing.masks import Mask, Pseudonym, Replace
from kafka_drain.schemas.value_path import ValuePath
from tests.tables import each_of

KEY = b"a secret key of pseudonyms"
HOW: list[Replace] = [Mask(), Mask('a "b"'), Pseudonym(KEY)]


def one_by_one(path: Sequence[Any], how: Replace, payload: bytes) -> tuple[bytes, int]:
    """Return a document with the field replaced the slow way, and how often it was there.

    Raises:
        ValueError: When it isn't JSON, or the field can't be replaced.
    """
    text = payload.decode()
    parts, at = [], 0
    spans = JsonFields([path]).find(text)
    for span in spans:
        new = how.in_json(span.value, text[span.start : span.end])
        if new is not None:
            parts += [text[at : span.start], new]
            at = span.end
    return "".join([*parts, text[at:]]).encode(), len(spans)


def check(path: Sequence[Any], how: Replace, payloads: list[bytes]) -> list[bool]:
    """Compare what is certain with the slow way; return in which rows it is."""
    column = binaries(payloads)
    found = JsonColumn(path, how).replaced(column, 1)
    found.column.validate(full=True)
    certain = found.certain.to_pylist()
    assert None not in certain
    rows = zip(payloads, found.column.to_pylist(), certain, found.there.to_pylist(), strict=True)
    for payload, new, is_certain, is_there in rows:
        if is_certain:
            assert one_by_one(path, how, payload) == (new, int(is_there))
    return certain


#: What is done at once, and what is left.
CERTAIN: list[tuple[str, str]] = [
    ('{"a":"x", "b": 1.50}', "$.a"),
    (' {"b" : [1, {"c": null}], "a"\t:\n"x y"} ', "$.a"),
    ('{"a":"é","b":"\\u00e9\\n\\"a\\""}', "$.a"),
    ('{"a":""}', "$.a"),
    ('{"b":{"c":{"a":"x"}}}', "$.b.c.a"),
    ('{"a":null}', "$.a"),
    ('{"b":"a"}', "$.c"),
    ("{}", "$.a"),
    ('{"b":[1,-0.5e+3,true,false,null,[],{}],"a":"x"}', "$.a"),
    ('{"a b.*":"x"}', "$['a b.*']"),
    ('{"é":"x"}', "$['é']"),
    ('{"b":"a:","a":"x"}', "$.a"),
    ('{"b":' + "9" * 5000 + ',"a":"x"}', "$.a"),
]
LEFT: list[tuple[str, str]] = [
    ('{"a":"x","a":"y"}', "$.a"),
    ('{"b":"a","a":"x"}', "$.a"),
    ('{"b":{"a":"x"}}', "$.a"),
    ('{"a":"x\\n"}', "$.a"),
    ('{"\\u0061":"x"}', "$.a"),
    ('{"b":[[[[1]]]],"a":"x"}', "$.a"),
    ('{"a":{"b":"x"}}', "$.a"),
    ('{"a":"x"}', "$.*"),
    ('{"a":["x"]}', "$.a[0]"),
    ('{"a":"x"}', "$"),
    ('["a"]', "$.a"),
    ('{"b":"\\"a","a":"x"}', "$.a"),
    # Between two texts is the name in quotes, too.
    ('{"a":"b",",":"x"}', "$[',']"),
    ('{"a": "b", ", ":"x"}', "$[', ']"),
    ('{"a":{"b":"c"},"b":[],"},":"x"}', "$['},']"),
]
#: What is done at once by a mask, and left if it is to get a pseudonym.
MASKED: list[tuple[str, str]] = [
    ('{"a" : 1.50, "b":2}', "$.a"), ('{"a":-0}', "$.a"), ('{"a":[true],"b":true}', "$.b"),
    ('{"b":{"a":false}}', "$.b.a"), ('{"a":1e5}', "$.a"),
]  # fmt: skip


@each_of("how", HOW)
@each_of("text, path", CERTAIN)
def test_replaced_certain(text: str, path: str, how: Replace) -> None:
    """The field is replaced, and every other byte stays, as one by one."""
    assert check(ValuePath.of(path).steps, how, [text.encode()]) == [True]


@pytest.mark.parametrize(("text", "path"), MASKED)
def test_replaced_number(text: str, path: str) -> None:
    """Numbers and booleans are masked; a number's pseudonym needs its text."""
    steps = ValuePath.of(path).steps
    assert check(steps, Mask(), [text.encode()]) == [True]
    assert check(steps, Pseudonym(KEY), [text.encode()]) == [False]


@pytest.mark.parametrize("rows", [1, 4, 5, 9])
def test_replaced_few(rows: int) -> None:
    """Few rows, or the few that the first expression leaves, aren't worth another one."""
    texts = [b'{"a":"x"}'] * rows + [b'{"a":null}'] * 4
    found = JsonColumn(("a",), Mask()).replaced(binaries(texts), 5)
    assert found.certain.to_pylist() == [len(texts) >= 5] * rows + [False] * 4


@pytest.mark.parametrize(("text", "path"), LEFT)
def test_replaced_left(text: str, path: str) -> None:
    """What isn't certain stays as it is, for the slow way."""
    steps = ValuePath.of(path).steps
    assert check(steps, Mask(), [text.encode()]) == [False]
    assert JsonColumn(steps, Mask()).replaced(binaries([text.encode()]), 1).column[0].as_py() == (
        text.encode()
    )


@each_of(
    "text",
    [
        "{", '{"a":"x"', '{"a":"x"}x', '{"a" "x"}', '{a:"x"}', '{"a":"x",}', '{"a":"x" "b":1}',
        '{"a":"x"}{"a":"x"}', '{"a":"x","b":01}', '{"a":"x","b":1.}', '{"a":"x","b":[1,]}',
        '{"a":"x","b":tru}', '{"a":"x","b":"\\x"}', '{"a":"x","b":"\\u12"}', '{,"a":"x"}', "",
        '{"a":"x"]', '\ufeff{"a":"x"}', '{"a":"x","b":+1}', '{"a":"x","b":.5}', '{"a":"x"}\0',
    ],
)  # fmt: skip
def test_replaced_not_json(text: str) -> None:
    """What isn't JSON is never certain, whether it seems to have the field or not."""
    for path in (("a",), ("z",)):
        assert check(path, Mask(), [text.encode()]) == [False]
        with pytest.raises(ValueError, match="it isn't JSON"):
            one_by_one(path, Mask(), text.encode())


def test_replaced_not_text() -> None:
    """One row that isn't UTF-8 leaves all to the slow way, which names it."""
    assert check(("a",), Mask(), [b'{"a":"x"}', b'{"a":"\xff"}']) == [False, False]


def test_replaced_mixed() -> None:
    """In one column, some rows are replaced, some have nothing to replace, some are left."""
    rows = [text.encode() for text, path in [*CERTAIN, *LEFT] if path == "$.a"] * 3
    rows.append(b'{"a":5}')
    expected = [True] * sum(path == "$.a" for _, path in CERTAIN)
    expected += [False] * sum(path == "$.a" for _, path in LEFT)
    for how in HOW:
        assert check(("a",), how, rows) == [*expected * 3, isinstance(how, Mask)]


def test_replaced_slice() -> None:
    """A slice of a column is a column."""
    column = binaries([b"{", b'{"a":"x"}', b'{"a":"y"}', b"}"])
    found = JsonColumn(("a",), Mask()).replaced(column.slice(1, 2), 1)
    assert found.column.to_pylist() == [b'{"a":"***"}'] * 2
    assert isinstance(found.column, pa.LargeBinaryArray)


def test_replaced_deep() -> None:
    """A document may be as deep as the limit, on the path and beside it."""
    deepest = "[" * (LEVELS - 1) + "]" * (LEVELS - 1)
    text = '{"b":%s,"a":"x"}' % deepest  # noqa: UP031
    assert check(("a",), Mask(), [text.encode(), text.replace("[]", "[[]]").encode()]) == [
        True, False,
    ]  # fmt: skip


NAMES = st.sampled_from(["a", "b", "c", 'd"', "e\\", "é", "a b", ":", ",", "null"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | NAMES
DOCUMENTS = st.recursive(
    SCALARS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)
STEPS = st.lists(NAMES, min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.dictionaries(NAMES, DOCUMENTS, max_size=5), min_size=1, max_size=5),
    STEPS,
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from(HOW),
)
def test_replaced_property(
    documents: list[Any], steps: list[str], ascii_only: bool, indent: Any, how: Replace
) -> None:
    """Whatever is certain is what the slow way gives."""
    texts = [json.dumps(one, ensure_ascii=ascii_only, indent=indent) for one in documents]
    check(steps, how, [text.encode("utf-8", "surrogatepass") for text in texts])


JUNK = st.text(alphabet='{}[]":,ab\\u01.-e \n', max_size=24)


@settings(max_examples=100, deadline=None)
@given(st.lists(JUNK.map(lambda rest: "{" + rest), min_size=1, max_size=5))
def test_replaced_junk_property(texts: list[str]) -> None:
    """Nothing is certain of what the slow way refuses."""
    check(("a",), Mask(), [text.encode() for text in texts])
