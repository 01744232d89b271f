"""Protobuf decoded by the text of its schema: nested messages and imports included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.errors import ConfigError
from kafka_drain.schemas.protobuf import message_indexes, protobuf_reader

MONEY = 'syntax = "proto3"; package acme; message Money { int64 cents = 1; }'
EVENT = """syntax = "proto3"; package acme;
import "acme/money.proto"; import "google/protobuf/timestamp.proto";
message First { int32 n = 1; }
message Event { message Paid { message Note { string text = 1; } Money money = 1; } }
message Last { google.protobuf.Timestamp at = 1; }"""
READ = {"acme/money.proto": MONEY}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"\0\x08\x05", {"acme.First": {"n": 5}}),
        (b"\2\0\x08\x05", {"acme.First": {"n": 5}}),
        (b"\4\2\0\x0a\x02\x08\x07", {"acme.Event.Paid": {"money": {"cents": "7"}}}),
        (b"\6\2\0\0\x0a\x01x", {"acme.Event.Paid.Note": {"text": "x"}}),
        (b"\2\4\x0a\x02\x08\x01", {"acme.Last": {"at": "1970-01-01T00:00:01Z"}}),
        (b"\0", {"acme.First": {"n": 0}}),
    ],
)
def test_protobuf_reader(payload: bytes, expected: object) -> None:
    """The indexes lead to the message, before the payload or in the header."""
    read = protobuf_reader(EVENT, READ)
    _, after = message_indexes(payload)

    assert read(payload, None) == expected
    assert read(payload[after:], payload[:after]) == expected


@pytest.mark.parametrize("payload", [b"", b"\2", b"\2\x10\x08\5", b"\1", b"\4\0\2", b"\0\x08"])
def test_protobuf_reader_other_bytes(payload: bytes) -> None:
    """Bytes that are no message of the schema raise one type of error."""
    with pytest.raises(ValueError):
        protobuf_reader(EVENT, READ)(payload, None)


@pytest.mark.parametrize(
    ("text", "references", "says"),
    [
        ("message", {}, "isn't Protobuf, or imports a file that is missing: message"),
        (EVENT, {}, "isn't Protobuf, or imports a file that is missing"),
        (EVENT, {**READ, "../money.proto": MONEY}, "which is no file's name"),
        (EVENT, {**READ, "acme/../../m": MONEY}, "which is no file's name"),
        (EVENT, {**READ, "/proc/m": MONEY}, "which is no file's name"),
    ],
)
def test_protobuf_reader_no_schema(text: str, references: dict[str, str], says: str) -> None:
    """A text that isn't a schema, and a name that leads out of a folder, are refused."""
    with pytest.raises(ConfigError, match=says):
        protobuf_reader(text, references)


@given(st.lists(st.integers(0, 1 << 40), max_size=4), st.binary(max_size=4))
def test_message_indexes_property(indexes: list[int], rest: bytes) -> None:
    """What serializers write is read, and what follows is left."""

    def varint(value: int) -> bytes:
        value <<= 1
        parts = []
        while value > 0x7F:
            parts.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*parts, value])

    written = b"".join(map(varint, (len(indexes), *indexes)))

    assert message_indexes(written + rest) == (tuple(indexes) or (0,), len(written))


def test_protobuf_reader_any() -> None:
    """What an Any holds is decoded by the schema that it came with."""
    text = (
        'syntax = "proto3"; import "google/protobuf/any.proto"; '
        "message Box { google.protobuf.Any what = 1; } message Money { int64 cents = 1; }"
    )
    read = protobuf_reader(text, {})

    decoded = read(b"\0\x0a\x0d\x0a\x07x/Money\x12\x02\x08\x07", None)

    assert decoded == {"Box": {"what": {"@type": "x/Money", "cents": "7"}}}
