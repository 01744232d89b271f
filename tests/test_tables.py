"""A table's test fails if a row does, and names each row that does."""

from __future__ import annotations

import inspect

import pytest

from tests.tables import each_of


def test_each_of_every_row() -> None:
    """Each row is tried, also after one that fails; each that fails is named with its reason."""
    seen = []

    @each_of("number, name", [(1, "a"), (2, "b"), (3, "c")])
    def check(number: int, name: str) -> None:
        seen.append(name)
        assert number == 2, f"not {number}"

    with pytest.raises(AssertionError) as raised:
        check()

    assert seen == ["a", "b", "c"]
    assert "2 of 3 rows" in str(raised.value)
    assert "(1, 'a'): AssertionError: not 1" in str(raised.value)
    assert "(3, 'c'): AssertionError: not 3" in str(raised.value)
    assert "'b'" not in str(raised.value)


def test_each_of_tables_combined() -> None:
    """Of two tables, each row meets each; what is in neither is left to pytest."""
    seen = []

    @each_of("a", [1, 2])
    @each_of("b", "xy")
    def check(a: int, b: str, fixture: str) -> None:
        seen.append((a, b, fixture))

    check(fixture="f")

    assert seen == [(1, "x", "f"), (1, "y", "f"), (2, "x", "f"), (2, "y", "f")]
    assert list(inspect.signature(check).parameters) == ["fixture"]


def test_each_of_nothing_raised() -> None:
    """A row for which nothing is raised that should be is one that fails."""

    @each_of("number", [0, 1])
    def check(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            _ = 1 / number

    with pytest.raises(AssertionError, match=r"1 of 2 rows\n\(1,\): Failed: DID NOT RAISE"):
        check()


def test_each_of_no_rows() -> None:
    """A table without rows is refused: it would hold for nothing."""
    with pytest.raises(AssertionError, match="no rows"):
        each_of("number", [])
