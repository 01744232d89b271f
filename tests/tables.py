"""One result for all rows of a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

__all__ = ["each_of"]

Test = Callable[..., None]


def each_of(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test with each row of a table, as one result that lists the rows that fail.

    For decisions and formats that have many rows, are quick and open nothing. Several tables, one
    above the other, are combined.

    Args:
        names: Names of the test's arguments, as for `parametrize`.
        rows: Their values; of a single name, not in tuples.
    """
    arguments = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    table = [row if len(arguments) > 1 else (row,) for row in rows]
    assert table, "no rows"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(**others: Any) -> None:
            failed: list[tuple[Any, BaseException]] = []
            for row in table:
                try:
                    test(**dict(zip(arguments, row, strict=True)), **others)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append((row, error))
            if failed:
                lines = [f"{row!s:.300}: {type(error).__name__}: {error}" for row, error in failed]
                raise AssertionError(
                    "\n".join([f"{len(failed)} of {len(table)} rows", *lines])
                ) from failed[0][1]

        # What isn't in the table, pytest gives: fixtures, and what `parametrize` names.
        signature = inspect.signature(test)
        rest = [p for name, p in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorate
