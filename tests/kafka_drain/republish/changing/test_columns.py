"""Rows that have something, for whole columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafka_drain.republish.changing.change import header_column
from kafka_drain.republish.changing.columns import marked_rows, rows_with_header, strings

HEADERS: list[Any] = [None, [("a", b"1"), ("b", None)], [("b", b"")], [("b", b"1"), ("b", b"2")]]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("a", [False, True, False, False]),
        ("b", [False, True, True, True]),
        ("c", None),
        ("", None),
    ],
)
def test_rows_with_header(name: str, rows: list[bool] | None) -> None:
    """A record has a header once or several times, or not."""
    found = rows_with_header(header_column(HEADERS), name)
    assert (None if found is None else found.to_pylist()) == rows


def test_rows_with_header_none() -> None:
    """Nobody has headers."""
    assert rows_with_header(header_column([None, None]), "a") is None
    assert rows_with_header(header_column([]), "a") is None


def test_marked_rows() -> None:
    """Rows are marked by their numbers, however often these are there."""
    found = marked_rows(pa.array([0, 2, 2], pa.int64()), 4)
    assert found is not None
    assert found.to_pylist() == [True, False, True, False]
    assert marked_rows(pa.array([], pa.int64()), 4) is None


def test_strings() -> None:
    """Texts, also ones that aren't ASCII."""
    assert strings(["a", "é", ""]).to_pylist() == ["a", "é", ""]
    assert strings([]).type == pa.string()
