"""Paths into decoded values."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.schemas.value_path import ValuePath
from tests.tables import each_of

VALUE: dict[str, Any] = {
    "order": {"id": 42, "items": [{"sku": "a"}, {"sku": "b"}], "paid": True, "note": None},
    "order id": "x=y",
    "n": 1,
    "text": "42",
    "tags": ["red"],
}


@each_of(
    "path, matches",
    [
        ("$", True),
        ("$.order", True),
        ("$.order.id", True),
        ("$.order.id=42", True),
        ("$.order.id=42.0", True),
        ("$.order.id=43", False),
        ("$.order.none", False),
        # A null is there.
        ("$.order.note", True),
        ("$.order.note=null", True),
        ("$.order.items[0].sku=a", True),
        ("$.order.items[-1].sku=b", True),
        ("$.order.items[2]", False),
        ("$.order.items[-3]", False),
        ("$.order.items[*].sku=b", True),
        ("$.order.items[*].sku=c", False),
        ("$.order.*=true", True),
        ("$['order id']=x=y", True),
        ('$["order id"]', True),
        # As text, or as JSON.
        ("$.text=42", True),
        ('$.text="42"', True),
        # True isn't 1.
        ("$.n=1", True),
        ("$.n=true", False),
        ("$.order.paid=true", True),
        ("$.order.paid=1", False),
        ('$.order.items[0]={"sku": "a"}', True),
        # A name isn't an index, and the other way round.
        ("$[0]", False),
        ("$.order.items.sku", False),
        ("$.order.items=", False),
        # Nor is it a part of a text, or a member of a list.
        ("$.text['4']", False),
        ("$.tags.red", False),
        (f"$.text={'[' * 100_000}", False),
    ],
)
def test_value_path(path: str, matches: bool) -> None:
    """A path finds what is there, and compares it as text or as JSON."""
    assert ValuePath.of(path).matches(VALUE) is matches


@pytest.mark.parametrize("path", ["", "order", "$order", "$..id", "$.a[?(@.b)]", "$.a[0:2]", "$."])
def test_value_path_refused(path: str) -> None:
    """What isn't in our part of JSONPath is refused rather than read as something else."""
    with pytest.raises(ConfigError, match="jsonpath isn't acceptable"):
        ValuePath.of(path)


def test_value_path_hides_value() -> None:
    """What is looked for may be personal data, so it isn't shown."""
    assert "secret" not in repr(ValuePath.of("$.name=secret"))
