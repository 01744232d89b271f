"""Conditions as they are asked for, and which records they keep together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.republish.changing.conditions import Condition, Filter
from kafka_drain.republish.changing.filter_columns import FilterColumns
from tests.kafka_drain.data_files.test_rows import batch_of
from tests.kafka_drain.republish.changing.one_by_one import keeps
from tests.tables import each_of

VALUE = {"country": "DE", "items": [{"id": 1}, {"id": 2}], "test": True}
HEADERS: Any = [("tenant", b"acme"), ("tenant", b"b"), ("empty", None), ("text", b"x")]

# Conditions, and whether a record with key k1, these headers and this value is kept.
CASES: dict[tuple[str, ...], bool] = {
    (): True,
    ("key=k1",): True,
    ("key=hex:6b31",): True,
    ("key=k2",): False,
    ("key=k2", "key=k1"): True,
    ("key=k2", "key=k3"): False,
    ("key",): True,
    ("not key",): False,
    ("not key=k1",): False,
    ("not key=k2", "not key=k1"): False,
    ("not key=k2", "not key=k3"): True,
    ("key=k1", "not key=k1"): False,
    ("header:tenant=b",): True,
    ("header:tenant=c",): False,
    ("header:tenant=c", "header:tenant=acme"): True,
    ("header:tenant",): True,
    ("header:none",): False,
    ("header:empty",): True,
    ("header:empty=",): False,
    ("header:text=x",): True,
    ("not header:none",): True,
    ("$.country=DE",): True,
    ("$.country=FR",): False,
    ("$.country=FR", "$.country=DE"): True,
    ("$.country=DE", "$.test=false"): False,
    ("$.country=DE", "$.test=true"): True,
    ("$.items[*].id=2",): True,
    ("$.items[0].id=2",): False,
    ("$.country",): True,
    ("$.none",): False,
    ("not $.none",): True,
    ("$.country=DE", "key=k2"): False,
    ("key:$.id=7",): True,
    ("key:$.id=8",): False,
}


def kept(conditions: Iterable[str], key: Any, headers: Any, contents: dict[str, Any]) -> bool:
    """Return whether a record is kept, given its decoded key and value."""
    wanted = Filter.of(map(Condition.of, conditions))
    batch = batch_of([(key, b"v", headers, 1, 0)])
    [found] = FilterColumns(wanted).keeps(batch, lambda part, rows: [contents[part]]).to_pylist()
    assert keeps(wanted, key, headers, contents.__getitem__) is found
    return bool(found)


@each_of("conditions", CASES)
def test_filter(conditions: tuple[str, ...]) -> None:
    """Texts that are expected of the same part are alternatives; all else must hold at once."""
    contents = {"value": VALUE, "key": {"id": 7}}

    assert kept(conditions, b"k1", HEADERS, contents) is CASES[conditions]


@pytest.mark.parametrize("condition", ["key", "key=", "header:a", "$.a", "$"])
def test_filter_nothing_there(condition: str) -> None:
    """A null key has no text, not even an empty one; a null value has no path but its root."""
    assert kept([condition], None, None, {"value": None}) is (condition == "$")


def test_condition_refused() -> None:
    """What isn't a condition is refused without its value; nor does a condition's repr show it."""
    for text in ("tenant=secret", "not  key=secret", "key=hex:secret", "header:=secret"):
        with pytest.raises(ConfigError) as refused:
            Condition.of(text)
        assert "secret" not in str(refused.value)
    assert "secret" not in repr(Condition.of("key=secret"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tenant", "^filter 'tenant' isn't acceptable; accepted: key, header:NAME, or a path"),
        ("key=hex:x", "^the value of filter key begins with hex:"),
        ("not header:a=hex:x", "^the value of filter header:a begins with hex:"),
    ],
)
def test_condition_refused_says(text: str, said: str) -> None:
    """The error names the option and the part."""
    with pytest.raises(ConfigError, match=said):
        Condition.of(text)
