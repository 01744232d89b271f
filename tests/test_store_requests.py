"""How Amazon S3 charges for the requests that the benchmark counts."""

from __future__ import annotations

import pytest

from benchmarks.store_requests import cost_of, kind_of


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("GET", "/archives/orders/archive.json", "reads"),
        ("HEAD", "/archives/orders", "reads"),
        ("GET", "/archives?list-type=2&prefix=orders/&delimiter=/", "writes"),
        ("GET", "/archives/?list-type=2&prefix=", "writes"),
        ("PUT", "/archives/orders/lock.json", "writes"),
        ("POST", "/archives/orders/data?uploads", "writes"),
        ("POST", "/archives?delete", "deletes"),
        ("POST", "/archives/?delete=", "deletes"),
        ("DELETE", "/archives/orders/lock.json", "deletes"),
    ],
)
def test_kind_of(method: str, target: str, kind: str) -> None:
    """Lists cost as much as writes; deletes are free, many at once too."""
    assert kind_of(method, target) == kind


def test_cost_of() -> None:
    """The prices are those of thousands of requests."""
    assert cost_of({"writes": 1_000, "reads": 10_000, "deletes": 7}) == pytest.approx(0.009)
