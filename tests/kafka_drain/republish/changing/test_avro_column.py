"""Fields replaced in whole columns of Avro: the same as one by one, or left."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.data_files.scalars import binaries
from kafka_drain.republish.changing.avro_column import AvroColumn
from kafka_drain.republish.changing.avro_fields import AvroFields
from kafka_drain.republish.changing.masks import Mask, Pseudonym, Replace
from kafka_drain.schemas.value_path import ALL, ValuePath
from tests.kafka_drain.republish.changing.test_avro_fields import ORDER, encoded
from tests.kafka_drain.republish.changing.test_avro_fields import SCHEMA as WITH_ARRAYS

KEY = b"a secret key of pseudonyms"
SKIPPED = b"\0\0\0\0\1"

PLACE = {
    "type": "record", "name": "Place", "namespace": "geo",
    "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "int"]}],
}  # fmt: skip
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": ["null", "string", "int"]},
        {"name": "home", "type": PLACE},
        {"name": "work", "type": ["null", "geo.Place"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "rate", "type": "double"},
        {"name": "share", "type": "float"},
        {"name": "ok", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "nothing", "type": "null"},
    ],
}
PARSED = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
UID = "123e4567-e89b-12d3-a456-426614174000"
PLACES = st.fixed_dictionaries(
    {
        "city": st.text(max_size=3) | st.just("x" * 9000),
        "zip": st.none() | st.integers(-(2**31), 2**31 - 1),
    }
)
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "email": st.none() | st.text(max_size=3) | st.integers(0, 300),
        "home": PLACES,
        "work": st.none() | PLACES,
        "kind": st.sampled_from("AB"),
        "code": st.binary(min_size=3, max_size=3),
        "rate": st.floats(allow_nan=False),
        "share": st.just(0.5),
        "ok": st.booleans(),
        "raw": st.binary(max_size=70),
        "uid": st.just(UID),
        "nothing": st.none(),
    }
)


def avro_of(order: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, PARSED, order)
    return SKIPPED + buffer.getvalue()


def one_by_one(
    paths: Sequence[Any], how: Sequence[Replace], payload: bytes
) -> tuple[bytes, list[int]]:
    """Return a value with the fields replaced the slow way, and how often each was there.

    Raises:
        ValueError: When it isn't such a value, or a field can't be replaced.
    """
    parts, at, hits = [], 0, [0] * len(paths)
    for span in AvroFields(SCHEMA, paths).find(payload, len(SKIPPED)):
        hits[span.number] += 1
        new = how[span.number].in_avro(span.kind, span.logical, payload[span.start : span.end])
        if new is not None:
            parts += [payload[at : span.start], new]
            at = span.end
    return b"".join([*parts, payload[at:]]), hits


def check(paths: list[str], how: Sequence[Replace], payloads: list[bytes]) -> list[bool]:
    """Compare what is certain with the slow way; return in which rows it is."""
    steps = [ValuePath.of(path).steps for path in paths]
    found = AvroColumn(SCHEMA, steps, how).replaced(binaries(payloads), len(SKIPPED))
    found.column.validate(full=True)
    certain = found.certain.to_pylist()
    assert None not in certain
    hits = [0] * len(paths)
    for payload, new, is_certain in zip(payloads, found.column.to_pylist(), certain, strict=True):
        expected = payload
        if is_certain:
            expected, there = one_by_one(steps, how, payload)
            hits = [a + b for a, b in zip(hits, there, strict=True)]
        assert new == expected
    assert found.hits == hits
    return certain


MASKED = ["$.id", "$.email", "$.home.city", "$.work.*", "$.kind", "$.code", "$.rate", "$.share",
          "$.ok", "$.raw", "$.uid", "$.nothing"]  # fmt: skip
HASHED = ["$.home.city", "$.work.city", "$.raw", "$.uid", "$.nothing"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(ORDERS, min_size=1, max_size=5),
    st.sets(st.sampled_from(MASKED), min_size=1),
    st.sets(st.sampled_from(HASHED)),
)
def test_replaced_property(orders: list[Any], masked: set[str], hashed: set[str]) -> None:
    """In values of the schema, all is replaced, and every other byte stays, as one by one."""
    if any(path.startswith("$.work") for path in masked):
        hashed = hashed - {"$.work.city"}
    masked = masked - hashed
    paths = [*sorted(masked), *sorted(hashed)]
    how = [*[Mask("-")] * len(masked), *[Pseudonym(KEY)] * len(hashed)]
    assert check(paths, how, [avro_of(order) for order in orders]) == [True] * len(orders)


@settings(max_examples=80, deadline=None)
@given(st.lists(ORDERS, min_size=1, max_size=3), st.data())
def test_replaced_damaged_property(orders: list[Any], data: st.DataObject) -> None:
    """Whatever bytes there are, what is certain is what the slow way gives."""
    payloads = []
    for order in orders:
        held = bytearray(avro_of(order))
        for _ in range(data.draw(st.integers(0, 2))):
            held[data.draw(st.integers(5, len(held) - 1))] = data.draw(st.integers(0, 255))
        payloads.append(bytes(held[: data.draw(st.sampled_from([len(held), len(held) - 1, 9]))]))
    check(["$.email", "$.home.city"], [Mask(), Mask()], payloads)
    check(["$.work.city"], [Pseudonym(KEY)], payloads)


def order(**more: Any) -> dict[str, Any]:
    return {
        "id": 1, "email": "a", "home": {"city": "X", "zip": None}, "work": None, "kind": "A",
        "code": b"abc", "rate": 1.5, "share": 0.5, "ok": True, "raw": b"", "uid": UID,
        "nothing": None,
    } | more  # fmt: skip


def test_replaced_truncated() -> None:
    """A value that is cut off anywhere, or goes on behind its end, is left; others aren't."""
    whole = avro_of(order())
    payloads = [whole[:end] for end in range(len(SKIPPED), len(whole))]
    assert check(["$.email"], [Mask()], [whole, *payloads, whole + b"\0", whole]) == [
        True, *[False] * len(payloads), False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("branch", [b"\6", b"\1", b"\x80\0", b"\xff"])
def test_replaced_branch(branch: bytes) -> None:
    """A branch that isn't there is left, as is one that is written in another way."""
    whole = avro_of(order())
    at = whole.index(b"\2\2a")
    assert check(["$.id"], [Mask()], [whole, whole[:at] + branch + whole[at + 1 :]]) == [
        True, False,
    ]  # fmt: skip


def test_replaced_size() -> None:
    """A size below zero is left; one of several bytes isn't."""
    long = avro_of(order(raw=b"x" * 70_000))
    whole = avro_of(order())
    at = whole.index(b"\2\2a") + 1
    assert check(["$.raw"], [Mask()], [long, whole[:at] + b"\1" + whole[at + 1 :], long]) == [
        True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "how"), [("$.home", Mask()), ("$.id", Pseudonym(KEY)), ("$.email", Pseudonym(KEY))]
)
def test_replaced_refused(path: str, how: Replace) -> None:
    """A type that can't be replaced is left to the slow way, which names the record."""
    payload = avro_of(order(email=5))
    assert check([path], [how], [payload]) == [False]
    with pytest.raises(ValueError, match=r"mask it|name its fields"):
        one_by_one([ValuePath.of(path).steps], [how], payload)


def test_replaced_nothing_there() -> None:
    """A field that no value has leaves all as it is, and isn't counted."""
    assert check(["$.work.city", "$.none"], [Mask(), Mask()], [avro_of(order())]) == [True]


def test_replaced_slice() -> None:
    """A slice of a column is a column."""
    payloads = [avro_of(order(email=text)) for text in "abc"]
    column = binaries([b"", *payloads, b""]).slice(1, 3)
    found = AvroColumn(SCHEMA, [("email",)], [Mask()]).replaced(column, len(SKIPPED))
    assert found.column.to_pylist() == [avro_of(order(email="***"))] * 3


@pytest.mark.parametrize(
    "schema",
    [
        WITH_ARRAYS,
        {"type": "array", "items": "string"},
        {"type": "map", "values": "string"},
        ["null", {"type": "array", "items": "string"}],
        {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
    ],
)
def test_replaced_not_flat(schema: Any) -> None:
    """Arrays, maps and types within themselves are left to the slow way."""
    column = binaries([SKIPPED + encoded(ORDER)])
    found = AvroColumn(schema, [("email",), (ALL,)], [Mask(), Mask()]).replaced(column, 5)
    assert (found.column, found.certain.to_pylist(), found.hits) == (column, [False], [0, 0])


def test_replaced_same_type_twice() -> None:
    """A type that is used twice isn't within itself."""
    assert check(["$.home.zip", "$.work.zip"], [Mask(), Mask()], [
        avro_of(order(home={"city": "X", "zip": 5}, work={"city": "Y", "zip": 500})),
    ]) == [True]  # fmt: skip
