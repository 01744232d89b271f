"""Filters decided for whole columns: as for one record after the other, or left."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.data_files.rows import rows_of
from kafka_drain.republish.changing import json_column
from kafka_drain.republish.changing.conditions import Condition, Filter
from kafka_drain.republish.changing.filter_columns import FilterColumns
from kafka_drain.schemas.payloads import Payloads
from tests.kafka_drain.data_files.test_rows import batch_of
from tests.tables import each_of


@pytest.fixture(autouse=True)
def least_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide for columns of any size."""
    monkeypatch.setattr(json_column, "LEAST_ROWS", 1)


KEYS = [b"k", b"", None, b'{"a":"x"}']
VALUES = [
    None, b'{"a":"x"}', b'{"a":"y", "b":{"c":"x"}}', b'{"a":null}', b'{"a":1}', b'{"b":1}', b"{}",
    b'{"a":"x\\n"}', b'{"\\u0061":"x"}', b'{"a":"x","a":"y"}', b'{"b":{"c":"x"},"b":{}}', b"{",
    b"x", b'{"a":"x\n"}', b'{"a":"x"}x', b'{"c":"x"}', b'{"b":"c"}', b' {"a":"x"}',
    b'{"b":[{"c":"x"}]}', b'{"a":9007199254740993.0}', b'{"a":9007199254740993}', b'{"a":1e400}',
    b'{"a":NaN,"n":-0}', b'{"a":"NaN"}', b'{"a":"x","n":Infinity}', b'{"a":"\\ud800"}',
    b'{"a":"x","n":1E5}', b'{"a":"x","n":01}', b'{"a":"x\t"}',
    b'{"a":"x","n":' + b"9" * 5000 + b"}", b'{"a":"\xc3\xa9"}', b'{"a":"\\"x\\""}',
]  # fmt: skip
HEADERS: list[Any] = [
    None, [("h", b"x")], [("h", None)], [("h", b"y"), ("h", b"x")], [("i", b"x")],
    [("__value_schema_id", b"\0\0\0\0\1")],
]  # fmt: skip
CONDITIONS = [
    "key", "key=k", "key=", "not key=k", "header:h", "header:h=x", "not header:h", "$.a", "$.a=x",
    "not $.a=x", '$.a="x"', "$.a=1", "$.b.c=x", "$.b.c", "$", "$.*", "$.b[0].c=x", "key:$.a=x",
    "$.a=é", "$.n", "not $.n", '$.a="x', "$.c=x", "$.a=9007199254740992", "$.a=9007199254740993",
    "$.a=NaN", "$.a=1e400", '$.a="\\ud800"', "$.n=0", "not $.a=NaN", "$.n=100000", '$.a="x\\t"',
]  # fmt: skip
ROWS = [
    (key, value, headers, 1, 0) for key, value, headers in product(KEYS[:3], VALUES, HEADERS)
] + [(KEYS[3], b"{}", None, 1, 0)]


def check(conditions: list[str], rows: list[Any]) -> list[bool]:
    """Compare what is decided with what is decided one by one; return which rows are left."""
    wanted = Filter.of(map(Condition.of, conditions))
    batch = batch_of([(*row[:4], offset) for offset, row in enumerate(rows)])
    kept, left = (each.to_pylist() for each in FilterColumns(wanted).keeps(batch))
    payloads = Payloads(lambda id_: None)
    for place, (key, value, headers, _, _) in enumerate(rows_of(batch)):

        def content(part: str, key: Any = key, value: Any = value, headers: Any = headers) -> Any:
            return payloads.of(part, {"key": key, "value": value}[part], headers).content

        if not left[place]:
            assert kept[place] == wanted.keeps(key, headers, content), rows[place]
    assert None not in kept
    return left


@each_of("condition", CONDITIONS)
def test_keeps(condition: str) -> None:
    """Each condition, for each kind of record; also if the records that would be left aren't."""
    left = check([condition], ROWS)
    for row, is_left in [*zip(ROWS, left, strict=True)][::12]:
        assert check([condition], [row]) == [is_left]


@pytest.mark.parametrize("condition", ["key", "key=k", "not header:h", "header:h=x"])
def test_keeps_without_payloads(condition: str) -> None:
    """Keys and headers are always certain."""
    assert not any(check([condition], ROWS))


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("$.a=x", b'{"a":"x"}'), ("$.a=x", b'{"a":"y"}'), ("$.a=x", b'{"b":1}'), ("$.a", None),
        ("$.b.c=x", b'{"b":{"c":"x"}}'), ("not $.b.c=x", b'{"a":1}'),
    ],
)  # fmt: skip
def test_keeps_texts(condition: str, value: bytes | None) -> None:
    """Nor are texts in usual JSON left, nor fields that aren't there, nor tombstones."""
    assert check([condition], [(b"k", value, None, 1, 0)]) == [False]


def test_keeps_not_utf8() -> None:
    """A column with surrogates that are encoded as they are is decided one by one."""
    values = [b'{"a":"\xed\xa0\x80"}', b'{"a":"x"}']
    assert check(["$.a=x"], [(b"k", value, None, 1, 0) for value in values]) == [True, True]


def test_keeps_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records are decided one by one."""
    monkeypatch.setattr(json_column, "LEAST_ROWS", 3)
    rows = [(b"k", b"{}", None, 1, 0)] * 3
    assert [check(["key"], rows[:n]) for n in (2, 3)] == [[True] * 2, [False] * 3]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=4),
    st.lists(st.sampled_from(ROWS), min_size=1, max_size=6),
)
def test_keeps_property(conditions: list[str], rows: list[Any]) -> None:
    """Several conditions together: alternatives, and what has to hold at once."""
    check(conditions, rows)
