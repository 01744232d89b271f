"""Fields in encoded Avro: found where they are, so that every other byte stays."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.republish.changing.avro_fields import AvroFields, long_bytes, read_long
from kafka_drain.schemas.value_path import ValuePath

ADDRESS = {
    "type": "record", "name": "Address", "namespace": "shop.geo",
    "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "int"]}],
}  # fmt: skip
SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": ["null", "string"]},
        {"name": "home", "type": ADDRESS},
        {"name": "work", "type": ["null", "shop.geo.Address"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "notes", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "rate", "type": "double"},
        {"name": "share", "type": "float"},
        {"name": "ok", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "next", "type": ["null", "Order"]},
    ],
}
ORDER: dict[str, Any] = {
    "id": -300, "email": "a@b", "home": {"city": "X", "zip": 12345},
    "work": {"city": "Y", "zip": None},
    "tags": ["t1", "t2"], "notes": {"n": "note", "m": None}, "kind": "B", "code": b"abc",
    "at": 1_700_000_000_000, "rate": 1.5, "share": 0.5, "ok": True, "raw": b"\0\1", "next": None,
}  # fmt: skip


def encoded(order: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(SCHEMA), order)
    return buffer.getvalue()


DATA = encoded({**ORDER, "next": ORDER})


def found(*paths: str) -> list[tuple[bytes, int, str, str]]:
    fields = AvroFields(SCHEMA, [ValuePath.of(path).steps for path in paths])
    spans = fields.find(b"12345" + DATA, 5)
    return [((b"12345" + DATA)[s.start : s.end], s.number, s.kind, s.logical) for s in spans]


CASES: dict[tuple[str, ...], list[tuple[bytes, int, str, str]]] = {
    ("$.email",): [(b"\6a@b", 0, "string", "")],
    ("$.id",): [(b"\xd7\4", 0, "long", "")],
    ("$.home.city", "$.work.zip"): [(b"\2X", 0, "string", ""), (b"", 1, "null", "")],
    ("$.home.zip",): [(b"\xf2\xc0\1", 0, "int", "")],
    ("$.tags[1]",): [(b"\4t2", 0, "string", "")],
    ("$.tags[*]",): [(b"\4t1", 0, "string", ""), (b"\4t2", 0, "string", "")],
    ("$.notes.n",): [(b"\10note", 0, "string", "")],
    ("$.notes.*",): [(b"\10note", 0, "string", ""), (b"", 0, "null", "")],
    ("$.kind",): [(b"\2", 0, "enum", "")],
    ("$.code",): [(b"abc", 0, "fixed", "")],
    ("$.at",): [(long_bytes(1_700_000_000_000), 0, "long", "timestamp-millis")],
    ("$.ok", "$.raw"): [(b"\1", 0, "boolean", ""), (b"\4\0\1", 1, "bytes", "")],
    ("$.next.email",): [(b"\6a@b", 0, "string", "")],
    ("$.tags",): [(b"\4\4t1\4t2\0", 0, "array", "")],
    ("$.home",): [(b"\2X\2\xf2\xc0\1", 0, "record", "")],
    ("$.none", "$.id.x", "$[0]"): [],
}


@pytest.mark.parametrize("paths", CASES)
def test_find(paths: tuple[str, ...]) -> None:
    """Fields are found in records, unions, arrays, maps and recursive types."""
    assert found(*paths) == CASES[paths]


def test_find_refused() -> None:
    """Bytes that aren't a value of the schema are refused, wherever they end."""
    fields = AvroFields(SCHEMA, [("email",)])
    for end in range(len(DATA)):
        with pytest.raises(ValueError, match="isn't a value of its schema"):
            fields.find(DATA[:end], 0)
    with pytest.raises(ValueError, match="isn't a value of its schema"):
        fields.find(DATA + b"\0", 0)


def test_find_sized_blocks() -> None:
    """A block with its size is skipped, but can't be changed: the size would be wrong."""
    schema = {
        "type": "record", "name": "R",
        "fields": [
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "last", "type": "string"},
        ],
    }  # fmt: skip
    data = b"\3\10\2a\2b\0\2z"
    [span] = AvroFields(schema, [("last",)]).find(data, 0)
    assert data[span.start : span.end] == b"\2z"
    with pytest.raises(ValueError, match="blocks with sizes"):
        AvroFields(schema, [("tags", 0)]).find(data, 0)


def test_find_nulls_without_end() -> None:
    """A huge array of nulls, which takes no bytes, doesn't take forever."""
    schema = {"type": "array", "items": "null"}
    with pytest.raises(ValueError, match="isn't a value of its schema"):
        AvroFields(schema, [("x",)]).find(long_bytes(1 << 60) + b"\0", 0)


@pytest.mark.parametrize(
    "schema", [{}, {"type": "record"}, "Unknown", {"type": "record", "name": "R", "fields": [1]}, 5]
)
def test_schema_refused(schema: Any) -> None:
    """What isn't a schema is refused."""
    with pytest.raises(ConfigError):
        AvroFields(schema, [])


@pytest.mark.parametrize("number", [0, 1, 63, 64, 300, 1 << 40])
def test_long_bytes(number: int) -> None:
    """A size that is written is read again."""
    assert read_long(b"x" + long_bytes(number), 1) == (number, 1 + len(long_bytes(number)))
