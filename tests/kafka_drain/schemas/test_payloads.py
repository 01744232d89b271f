"""Keys and values as people and programs read them."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from kafka_drain.errors import MachineError
from kafka_drain.schemas import decoders
from kafka_drain.schemas.decoders import SchemaText
from kafka_drain.schemas.payloads import Payload, Payloads, plain
from kafka_drain.schemas.value_path import ValuePath
from tests.kafka_drain.schemas.records import prefix

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        },
        {"name": "rate", "type": "double"},
    ],
}
ORDER = {
    "id": 7,
    "raw": b"\xff",
    "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
    "sum": Decimal("1.50"),
    "rate": float("nan"),
}


def find(id_: int | str) -> SchemaText | None:
    """Know an Avro schema 1, a JSON schema 2, and one of Protobuf, 3."""
    kinds = {1: ("AVRO", json.dumps(AVRO)), 2: ("JSON", "{}"), 3: ("PROTOBUF", "proto")}
    known = kinds.get(id_) if isinstance(id_, int) else None
    return None if known is None else SchemaText(*known)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (None, Payload(None)),
        (b"", Payload("text", "")),
        (b"text", Payload("text", "text")),
        ("é\n".encode(), Payload("text", "é\n")),
        (b"42", Payload("text", "42")),
        (b'{"a": [1, null]}', Payload("json", {"a": [1, None]})),
        (b"[1]", Payload("json", [1])),
        # Not JSON after all.
        (b"{a}", Payload("text", "{a}")),
        (b"01", Payload("text", "01")),
        # Not in JSON, but written by Python; as texts, so that what is shown is JSON.
        (b'{"a": NaN}', Payload("json", {"a": "NaN"})),
        (b' {"a": -Infinity}', Payload("json", {"a": "-Infinity"})),
        (b"[" * 100_000, Payload("text", "[" * 100_000)),
        (b"\xff\x00", Payload("hex", "ff00")),
        (b"a\x1b[31m", Payload("hex", b"a\x1b[31m".hex())),
        (b"a\x7f", Payload("hex", "617f")),
    ],
)
def test_plain(payload: bytes | None, expected: Payload) -> None:
    """Bytes without a schema are shown as what they look like; all that isn't text as digits."""
    assert plain(payload) == expected


def test_payloads_avro() -> None:
    """Values of Avro are decoded to JSON's types."""
    buffer = io.BytesIO(prefix(1))
    buffer.seek(5)
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(AVRO), ORDER)
    found = Payloads(find).of("value", buffer.getvalue(), None)

    assert (found.format, found.schema) == ("avro", 1)
    assert found.content == {
        "id": 7,
        "raw": "hex:ff",
        "at": "2026-01-01T00:00:00+00:00",
        "sum": "1.50",
        "rate": "NaN",
    }
    json.dumps(found.content, allow_nan=False)


@pytest.mark.parametrize("digits", ["0.00000000", "0.00000012", "-0.00000001", "12.50000000"])
def test_payloads_avro_decimal(digits: str) -> None:
    """A decimal is a text with all its digits, however small: a condition names it like that."""
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 8}
    buffer = io.BytesIO(prefix(1))
    buffer.seek(5)
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), Decimal(digits))
    payloads = Payloads(lambda _: SchemaText("AVRO", json.dumps(schema)))
    found = payloads.of("value", buffer.getvalue(), None)

    assert found.content == digits
    assert ValuePath.of(f"$={digits}").matches(found.content)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (prefix(2) + b'{"a": 1}', Payload("json", {"a": 1}, 2)),
        # A schema that isn't kept, and bytes that aren't of it.
        (prefix(9) + b"x", Payload("hex", (prefix(9) + b"x").hex())),
        (prefix(1) + b"x", Payload("hex", (prefix(1) + b"x").hex())),
        (b"text", Payload("text", "text")),
        (None, Payload(None)),
    ],
)
def test_payloads(payload: bytes | None, expected: Payload) -> None:
    """Whatever can't be decoded is shown as bytes without a schema are."""
    assert Payloads(find).of("value", payload, None) == expected


@pytest.mark.parametrize("depth", [400, 600, 900, 5_000])
def test_payloads_nested(depth: int) -> None:
    """However deep a value is nested, it is shown, decoded or not: one record ends no search."""
    found = Payloads(find).of("value", prefix(2) + b"[" * depth + b"]" * depth, None)

    assert found.line()


def test_payloads_protobuf(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    """A message of Protobuf is shown without its name; a missing library is named once."""
    monkeypatch.setattr(decoders, "protobuf_reader", lambda text, refs: lambda *_: {"M": {"n": 1}})
    assert Payloads(find).of("value", prefix(3), None) == Payload("protobuf", {"n": 1}, 3)

    def missing(*_: Any) -> Any:
        raise MachineError("install the extra protobuf")

    monkeypatch.setattr(decoders, "protobuf_reader", missing)
    payloads = Payloads(find)

    assert payloads.of("value", prefix(3), None).format == "hex"
    assert payloads.of("value", prefix(3), None).format == "hex"
    assert said == ["WARNING values are shown as bytes: install the extra protobuf"]
    # What is decided by the content isn't decided without it.
    with pytest.raises(MachineError, match="install the extra protobuf"):
        Payloads(find, needs_libraries=True).of("value", prefix(3), None)


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        (Payload(None), ""),
        (Payload("hex", "ff"), "hex:ff"),
        (Payload("text", "a\nb\u202e\x9b"), "a\\nb\\u202e\\x9b"),
        (Payload("text", "é"), "é"),
        (Payload("json", {"a": "é\n"}), '{"a": "\\u00e9\\n"}'),
    ],
)
def test_payload_line(payload: Payload, line: str) -> None:
    """On a terminal, no character of a record moves the cursor or turns the line around."""
    assert payload.line() == line
