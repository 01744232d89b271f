"""Rows that can match, and those that meet criteria which look inside of records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafka_drain.data_files.records import SCHEMA, Wanted
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.plan import Position, parts_of
from kafka_drain.find.rows import bounds_of, rows_inside
from tests.kafka_drain.find.held_files import A0, A1, held
from tests.tables import each_of

ROWS: list[dict[str, Any]] = [
    {
        "key": None if n % 3 == 0 else b"k%d" % n,
        "value": None if n % 4 == 0 else b"v%d\xff" % n,
        "headers": None
        if n % 5 == 0
        else [{"key": "a", "value": b"%d" % (n % 2)}, {"key": "b", "value": None}] * (n % 3),
        "partition": 0,
        "offset": n,
    }
    for n in range(20)
]


def meets(row: dict[str, Any], criteria: Criteria) -> bool:
    """Say the same in Python's own words."""
    headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
    contains = criteria.value_contains
    return (
        (not criteria.keys or row["key"] in criteria.keys)
        and (contains is None or (row["value"] is not None and contains in row["value"]))
        and all(header in headers for header in criteria.headers)
    )


@each_of("cut", [slice(0, 20), slice(7, 16), slice(5, 6), slice(3, 3)])
@each_of(
    "given",
    [
        {},
        {"keys": ["k1", "k11", "none"]},
        {"keys": ["hex:6b31"]},
        {"value_contains": "v1"},
        {"value_contains": "hex:ff"},
        {"value_contains": "."},
        {"headers": ["a=1"]},
        {"headers": ["a="]},
        {"headers": ["b="]},
        {"headers": ["a=1", "a=0"]},
        {"headers": ["a=1"], "value_contains": "1", "keys": ["k1", "k7", "k11", "k13"]},
    ],
)
def test_rows_inside(given: dict[str, Any], cut: slice) -> None:
    """Exactly the rows are left that meet all criteria, in their order; nulls meet none."""
    criteria = Criteria.of(**given)
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    found = rows_inside(batch.slice(cut.start, cut.stop - cut.start), criteria)

    expected = [row["offset"] for row in ROWS[cut] if meets(row, criteria)]
    assert found["offset"].to_pylist() == expected


@pytest.mark.parametrize(
    ("given", "after", "wanted"),
    [
        ({}, None, Wanted()),
        ({"partitions": ["0"]}, None, Wanted(0)),
        ({"topics": ["a"], "partitions": ["0"], "offset": "3-5"}, None, Wanted(0, 3, 5)),
        ({"topics": ["a"], "partitions": ["0"], "offset": "3-9"}, 5, Wanted(0, 6, 9)),
        ({"partitions": ["0"]}, 5, Wanted(0, 6)),
        ({}, 5, Wanted()),
        ({"keys": ["k"]}, None, Wanted(keys=frozenset([b"k"]))),
        (
            {"from_time": "1970-01-01T00:00:00.010Z", "to_time": "1970-01-01T00:00:00.020Z"},
            None,
            Wanted(from_ms=10, to_ms=20),
        ),
    ],
)
def test_bounds(given: dict[str, Any], after: int | None, wanted: Wanted) -> None:
    """Bounds include every record that is looked for in a file, of whichever partition."""
    criteria = Criteria.of(**given)
    position = None if after is None else Position("a", 0, 0, after)
    file = held("file", (A0, 0, 9), (A1, 0, 9))

    assert bounds_of(parts_of([file], {}, criteria, position), criteria) == wanted


def test_bounds_ranges_of_one() -> None:
    """The bounds of two partitions are those of both; one without an end has none."""
    file = held("file", (A0, 0, 9), (A1, 5, 20))
    some = Criteria.of(topics=["a"], partitions=["0"], offset="3-5")
    [ranged] = parts_of([file], {}, some)
    whole = parts_of([file], {}, Criteria.of(partitions=["1"]))

    assert bounds_of([ranged, *whole], some) == Wanted(None, 0, None)
    assert bounds_of([ranged, ranged], some) == Wanted(0, 3, 5)
