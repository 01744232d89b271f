"""Filters decided for whole columns: as for one record after the other."""

from __future__ import annotations

from collections.abc import Iterator
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
from tests.kafka_drain.republish.changing.one_by_one import keeps
from tests.tables import each_of


@pytest.fixture(autouse=True)
def least_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide for columns of any size."""
    monkeypatch.setattr(json_column, "LEAST_ROWS", 1)


KEYS = [b"k", b"", None, b'{"a":"x"}']
VALUES = [
    None, b'{"a":"x"}', b'{"a":"y", "b":{"c":"x"}}', b'{"a":null}', b'{"a":1}', b'{"b":1}', b"{}",
    b'{"a":"x\\n"}', b'{"\\u0061":"x"}', b'{"a":"x","a":"y"}', b'{"b":{"c":"x"},"b":{}}', b"{",
    b"x", b'{"a":"x\n"}', b'{"a":"x"}x', b'{"c":"x"}', b'{"b":"c"}', b' {"a":"x"}', b'{"a":""}',
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
    """Compare what is kept with what is decided one by one; return which rows were decoded."""
    wanted = Filter.of(map(Condition.of, conditions))
    batch = batch_of([(*row[:4], offset) for offset, row in enumerate(rows)])
    payloads = Payloads(lambda id_: None)
    contents = [
        {part: payloads.of(part, held, headers).content for part, held in parts.items()}
        for key, value, headers, _, _ in rows_of(batch)
        for parts in [{"key": key, "value": value}]
    ]
    seen: set[int] = set()

    def decoded(part: str, rows: Any) -> Iterator[Any]:
        for row, is_asked in enumerate(rows.to_pylist()):
            if is_asked:
                seen.add(row)
                yield contents[row][part]

    kept = FilterColumns(wanted).keeps(batch, decoded).to_pylist()
    for place, (key, _, headers, _, _) in enumerate(rows_of(batch)):
        expected = keeps(wanted, key, headers, contents[place].__getitem__)
        assert kept[place] is expected, rows[place]
    return [row in seen for row in range(len(rows))]


@each_of("condition", CONDITIONS)
def test_keeps(condition: str) -> None:
    """Each condition, for each kind of record; alone, the same ones are decoded."""
    decoded = check([condition], ROWS)
    for row, is_decoded in [*zip(ROWS, decoded, strict=True)][::36]:
        assert check([condition], [row]) == [is_decoded]


@pytest.mark.parametrize("condition", ["key", "key=k", "not header:h", "header:h=x"])
def test_keeps_without_payloads(condition: str) -> None:
    """Keys and headers need no decoding."""
    assert not any(check([condition], ROWS))


@pytest.mark.parametrize(
    ("conditions", "decoded"),
    [
        (["key=k", "$.a=1"], [True, False]),
        (["key=other", "$.a=1"], [False, False]),
        (["$.a=1", "$.a=2"], [True, True]),
    ],
)
def test_keeps_decodes_open_rows(conditions: list[str], decoded: list[bool]) -> None:
    """A record that a condition before has decided isn't decoded: it may have no schema."""
    rows = [(key, b'{"a":1}', None, 1, 0) for key in (b"k", b"l")]

    assert check(conditions, rows) == decoded


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("$.a=x", b'{"a":"x"}'), ("$.a=x", b'{"a":"y"}'), ("$.a=x", b'{"b":1}'), ("$.a", None),
        ("$.b.c=x", b'{"b":{"c":"x"}}'), ("not $.b.c=x", b'{"a":1}'),
    ],
)  # fmt: skip
def test_keeps_texts(condition: str, value: bytes | None) -> None:
    """Nor do texts in usual JSON, fields that aren't there, and tombstones."""
    assert check([condition], [(b"k", value, None, 1, 0)]) == [False]


def test_keeps_schema_in_header() -> None:
    """A text with a schema's id in a header is decoded, even if it looks like JSON."""
    rows = [(b"k", b'{"a":"x"}', headers, 1, 0) for headers in HEADERS]
    assert check(["$.a=x"], rows) == [False] * 5 + [True]


def test_keeps_name_between_texts() -> None:
    """A name that in quotes is also what lies between two texts is looked for by decoding."""
    assert check(["$[',']=x"], [(b"k", b'{"a":"b",",":"x"}', None, 1, 0)]) == [True]


def test_keeps_not_utf8() -> None:
    """A column with surrogates that are encoded as they are is decoded."""
    values = [b'{"a":"\xed\xa0\x80"}', b'{"a":"x"}']
    assert check(["$.a=x"], [(b"k", value, None, 1, 0) for value in values]) == [True, True]


def test_keeps_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records are decoded: an expression would have to be compiled for them."""
    monkeypatch.setattr(json_column, "LEAST_ROWS", 3)
    rows = [(b"k", b"{}", None, 1, 0)] * 3
    assert [check(["$.a"], rows[:n]) for n in (2, 3)] == [[True] * 2, [False] * 3]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=4),
    st.lists(st.sampled_from(ROWS), min_size=1, max_size=6),
)
def test_keeps_property(conditions: list[str], rows: list[Any]) -> None:
    """Several conditions together: alternatives, and what has to hold at once."""
    check(conditions, rows)
