"""Restored values, decoded with the archive's schemas."""

from __future__ import annotations

import io

import pytest
from fastavro import parse_schema, schemaless_writer

from kafka_drain.drills.decoding import Decoding

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NAME = {"type": "record", "name": "Name", "fields": [{"name": "name", "type": "string"}]}
EMPTY = {"type": "record", "name": "Empty", "fields": []}
SCHEMAS = {7: ORDER, 9: NAME, 11: EMPTY}


def value(id_: int, schema: dict[str, object], record: dict[str, object]) -> bytes:
    """A value in Confluent's wire format."""
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), record)
    return b"\0" + id_.to_bytes(4, "big") + stream.getvalue()


GOOD = [value(7, ORDER, {"id": 5}), value(9, NAME, {"name": "x"})]


@pytest.mark.parametrize(
    ("values", "decoded", "without", "unknown", "undecodable", "problem"),
    [
        ([], 0, 0, [], 0, ""),
        (GOOD, 2, 0, [], 0, ""),
        ([None, None, b"", b"text", b"\0\0\0\0"], 0, 5, [], 0, ""),
        ([*GOOD, value(8, ORDER, {"id": 5})], 2, 0, [8], 1, "doesn't have schema 8"),
        # Ids have four bytes, the highest first; nothing but the id is enough for an empty record.
        ([value(0x01_02_03_07, ORDER, {"id": 5})], 0, 0, [0x01_02_03_07], 1, "schema 16909063"),
        ([value(0x07_00_00_00, ORDER, {"id": 5})], 0, 0, [0x07_00_00_00], 1, "schema 117440512"),
        ([b"\0\0\0\0\x0b"], 1, 0, [], 0, ""),
        ([b"\0\0\0\0\x08", b"\0\0\0\0\x0a"], 0, 0, [8, 10], 2, "doesn't have schema 8, 10"),
        # Cut short, with something after it, and of another schema than it says.
        ([GOOD[1][:-1]] * 2, 0, 0, [], 2, "2 of 2 restored values don't decode"),
        ([GOOD[0] + b"x"], 0, 0, [], 1, "1 of 1 restored values don't decode"),
        ([value(9, ORDER, {"id": -40})], 0, 0, [], 1, "1 of 1 restored values don't decode"),
    ],
)
def test_decode_avro(
    values: list[bytes | None],
    decoded: int,
    without: int,
    unknown: list[int],
    undecodable: int,
    problem: str,
) -> None:
    """A value is decoded as a whole by the schema that it names, or counted by why not."""
    decoding = Decoding("avro", SCHEMAS)
    decoding.add(values)

    seen = (decoding.values, decoding.decoded, decoding.without_schema)
    assert seen == (len(values), decoded, without)
    assert (sorted(decoding.unknown), decoding.undecodable) == (unknown, undecodable)
    assert problem in decoding.problem
    assert bool(problem) == bool(decoding.problem)


def test_decode_json() -> None:
    """JSON is decoded with and without the header of a registry's serializer."""
    decoding = Decoding("json", {})
    decoding.add([b'{"a": 1}', b'\0\0\0\0\x07{"a": 1}', None])
    assert (decoding.decoded, decoding.without_schema, decoding.problem) == (2, 1, "")
    decoding.add([b"{", b"\xff", b"[" * 100_000])

    assert decoding.undecodable == 3
    assert "3 of 6 restored values" in decoding.problem
