"""JSON as filters, searches, masks and pseudonyms read it: all digits count, and all agree."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_drain.republish.changing.json_fields import JsonFields
from kafka_drain.schemas.exact_json import decoded, same
from kafka_drain.schemas.payloads import plain
from kafka_drain.schemas.value_path import ValuePath
from tests.tables import each_of

HUGE = "9" * 5000

#: What a document has, what a condition expects, and whether that is the same.
NUMBERS = [
    ("9007199254740993.0", "9007199254740992", False),
    ("9007199254740993.0", "9007199254740993", True),
    ("9007199254740993", "9007199254740992.0", False),
    ("9007199254740992", "9007199254740992.0", True),
    ("0.1", "0.1", True),
    ("0.1", "0.10", True),
    ("0.1", "1e-1", True),
    ("0.1", "0.1000000000000000055511151231257827", False),
    ("0.30000000000000001", "0.3", False),
    ("1e2", "100", True),
    ("-0", "0", True),
    ("-0.0", "0", True),
    ("1e400", "1e400", True),
    ("1e400", "2e400", False),
    ("1e400", "Infinity", False),
    ("1e-400", "0", False),
    (HUGE, HUGE, True),
    (HUGE, HUGE[1:], False),
    ("1e999999999999999999999", "1", False),
    ("1e-999999999999999999999", "0", False),
    ("NaN", "NaN", True),
    ("NaN", "0", False),
    ("Infinity", "Infinity", True),
    ("-Infinity", "Infinity", False),
    ("1", "true", False),
    ("1.0", "true", False),
    ('[1.0, {"b": true}]', '[1, {"b": true}]', True),
    ("[1]", "[true]", False),
    ('{"n": 9007199254740993.0}', '{"n": 9007199254740992}', False),
    ("null", "0", False),
    ('"\\ud800"', '"\\ud800"', True),
    ('"\\ud800"', '"\\ud801"', False),
]


@each_of("held, wanted, matches", NUMBERS)
def test_value_path_numbers(held: str, wanted: str, matches: bool) -> None:
    """A condition compares all digits of a number in a document."""
    document = plain(f'{{"n": {held}, "x": NaN}}'.encode())

    assert document.format == "json"
    assert ValuePath.of(f"$.n={wanted}").matches(document.content) is matches


@pytest.mark.parametrize(
    ("held", "wanted", "matches"),
    [
        (9007199254740992.0, "9007199254740992", True),
        (9007199254740992.0, "9007199254740993", False),
        (0.1, "0.1", True),
        (1 << 63, "9223372036854775808", True),
        (1 << 63, "9.223372036854775808e18", True),
    ],
)
def test_value_path_doubles(held: Any, wanted: str, matches: bool) -> None:
    """A double of Avro or Protobuf is the shortest number that it is written as."""
    assert ValuePath.of(f"$.n={wanted}").matches({"n": held}) is matches


DIGITS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][-+]?[0-9]{1,2})?", fullmatch=True
)


@given(DIGITS, DIGITS)
@example("9007199254740993.0", "9007199254740992")
def test_same_numbers(one: str, other: str) -> None:
    """Two numbers are the same if they are the same fraction."""
    expected = Fraction(Decimal(one)) == Fraction(Decimal(other))

    assert same(decoded(one), decoded(other)) is expected
    assert same(decoded(one), decoded(one))


ODD = st.sampled_from([
    "NaN", "Infinity", "-Infinity", "1e400", "-0", "01", "1.", ".5", "+1", HUGE, '"\\ud800"',
    '"\\udc00\\ud800"', '"a\tb"', '"\\x"', "nul", "[1,]", "\u00a01", "1e5", '"\ufeff"', "{}",
])  # fmt: skip
DOCUMENTS = st.recursive(
    ODD | DIGITS | st.text(max_size=3).map(json.dumps),
    lambda inner: st.lists(inner, max_size=3).map(lambda held: f"[{', '.join(held)}]"),
    max_leaves=4,
)


@given(DOCUMENTS, st.sampled_from(["", " ", "\n", "\ufeff", "\u00a0"]))
def test_decoded_as_fields(held: str, before: str) -> None:
    """What a filter reads as JSON is what a mask changes, and nothing else."""
    text = f'{before}{{"a": {held}, "b": 1}}'
    payload = text.encode("utf-8", "surrogatepass")
    try:
        fields = JsonFields([("b",), ("a", 0)]).find(text)
    except ValueError:
        assert plain(payload).format != "json"
        assert not ValuePath.of("$.b=1").matches(plain(payload).content)
    else:
        assert [span.number for span in fields].count(0) == 1
        assert ValuePath.of("$.b=1").matches(plain(payload).content)


@pytest.mark.parametrize(
    "payload", [b'{"a": "\xed\xa0\x80"}', b'{"a": "\xff"}', '{"a": 1}'.encode("utf-16")]
)
def test_decoded_not_utf8(payload: bytes) -> None:
    """Surrogates that are encoded as they are aren't UTF-8, and so not JSON, to any reader."""
    assert plain(payload).format == "hex"
    with pytest.raises(UnicodeDecodeError):
        payload.decode()
