"""Criteria as users write them."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.find.criteria import Criteria
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.schemas.value_path import bytes_of


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("abc", b"abc"),
        ("é", "é".encode()),
        ("", b""),
        ("hex:00ff", b"\x00\xff"),
        ("hex:00 FF", b"\x00\xff"),
        ("hex:", b""),
        ("\udcff", b"\xff"),
    ],
)
def test_bytes_of(text: str, content: bytes) -> None:
    """Bytes are given as text, or as digits."""
    assert bytes_of("key", text) == content


GIVEN: dict[str, Any] = {
    "topics": ["orders"],
    "partitions": ["3"],
    "offset": "7",
    "from_time": "2026-01-01",
    "to_time": "2026-01-02",
    "keys": ["key"],
    "headers": ["name=value"],
    "value_contains": "x",
    "jsonpath": "$.id=1",
}
KINDS = {
    "topics": "topic",
    "partitions": "partition",
    "keys": "key",
    "headers": "header",
}
INSIDE = {"keys", "headers", "value_contains", "jsonpath"}


@pytest.mark.parametrize("name", sorted(GIVEN.keys() - {"offset"}))
def test_criteria_kinds(name: str) -> None:
    """Each criterion has a name that says nothing of its value, and looks inside or not."""
    criteria = Criteria.of(**{name: GIVEN[name]})

    assert criteria.kinds() == [KINDS.get(name, name)]
    assert criteria.look_inside() is (name in INSIDE)


def test_criteria_all() -> None:
    """All can be given together; the offset is one record's."""
    criteria = Criteria.of(**GIVEN)

    assert len(criteria.kinds()) == len(GIVEN)
    assert criteria.selection.offsets == {TopicPartition("orders", 3): (OffsetRange(7, 8),)}
    assert criteria.headers == (("name", b"value"),)
    assert not Criteria.of().kinds()
    assert not Criteria.of().look_inside()


def test_criteria_offset_range() -> None:
    """A range of offsets has an exclusive end."""
    criteria = Criteria.of(topics=["a"], partitions=["0"], offset="5-9")

    assert criteria.selection.offsets == {TopicPartition("a", 0): (OffsetRange(5, 9),)}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"offset": "7"}, "one topic and one partition"),
        ({"offset": "7", "topics": ["a", "b"], "partitions": ["0"]}, "one topic and one partition"),
        ({"offset": "7", "topics": ["a"], "partitions": ["0", "1"]}, "one topic and one partition"),
        ({"offset": "x", "topics": ["a"], "partitions": ["0"]}, "offset = 'x' is not acceptable"),
        ({"offset": "7-", "topics": ["a"], "partitions": ["0"]}, "is not acceptable"),
        ({"offset": "9-7", "topics": ["a"], "partitions": ["0"]}, "is not acceptable"),
        ({"partitions": ["x"]}, "partition = 'x' is not acceptable"),
        ({"value_contains": ""}, "every value contains"),
        ({"headers": ["secret"]}, "accepted: NAME=VALUE"),
        ({"headers": ["\udcffsecret=a"]}, "a header's name isn't UTF-8"),
        ({"headers": ["a=hex:secret"]}, "the value of a header begins with hex:"),
        ({"keys": ["hex:secret"]}, "key begins with hex:"),
        ({"jsonpath": "secret"}, "jsonpath isn't acceptable"),
    ],
)
def test_criteria_refused(given: dict[str, Any], match: str) -> None:
    """What isn't acceptable is refused, without showing what may be personal data."""
    with pytest.raises(ConfigError, match=match) as error:
        Criteria.of(**given)
    assert "secret" not in str(error.value)


def test_criteria_hide_values() -> None:
    """Keys, headers and values are shown nowhere."""
    criteria = Criteria.of(
        keys=["secret"], headers=["a=secret"], value_contains="secret", jsonpath="$.a=secret"
    )

    assert "secret" not in repr(criteria)
