"""What a filter keeps, decided for one record after the other: judges what is done in columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_drain.republish.changing.conditions import Condition, Filter
from kafka_drain.schemas.value_path import ValuePath

#: Returns the decoded key or value of the record.
Content = Callable[[str], Any]


def keeps(wanted: Filter, key: bytes | None, headers: Any, content: Content) -> bool:
    """Return whether a record is sent."""
    return all(
        any(_has(condition, key, headers, content) != condition.is_negated for condition in group)
        for group in wanted.groups
    )


def _has(condition: Condition, key: bytes | None, headers: Any, content: Content) -> bool:
    where, expected = condition.where, condition.expected
    if where.steps is not None:
        return ValuePath(where.steps, expected).matches(content(where.part))
    value = None if expected is None else _bytes(expected)
    if where.part == "key":
        return key is not None and value in (None, key)
    return any(
        name == where.header and (value is None or held == value) for name, held in headers or ()
    )


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()
