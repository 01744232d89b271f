"""What fields are replaced by."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from kafka_drain.republish.changing.avro_fields import long_bytes
from kafka_drain.republish.changing.masks import NO_UUID, Mask, Pseudonym, key_id

KEY = b"k" * 16


def digits(content: bytes) -> str:
    return hmac.new(KEY, content, hashlib.sha256).hexdigest()


MASKED: list[tuple[Any, str | None]] = [
    ("a@b.example", '"***"'), ("", '"***"'), (5, "0"), (1.5, "0"), (True, "false"),
    (False, "false"), (None, None), ({"a": 1}, "{}"), ([1], "[]"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "replaced"), MASKED)
def test_mask_in_json(value: Any, replaced: str | None) -> None:
    """Each type has an empty value; a null stays."""
    assert Mask().in_json(value, json.dumps(value)) == replaced


def test_mask_text() -> None:
    """Another text replaces texts, and is written as JSON."""
    assert Mask('"é\n').in_json("x", '"x"') == '"\\"é\\n"'
    assert Mask("é").of_bytes(b"x") == "é".encode()
    assert Mask("é").of_bytes(None) is None
    assert Mask("é").in_avro("string", "", b"\2x") == b"\4" + "é".encode()


@pytest.mark.parametrize(
    ("kind", "logical", "held", "replaced"),
    [
        ("string", "", b"\2x", b"\6***"), ("bytes", "", b"\2x", b"\6***"),
        ("bytes", "decimal", b"\4\1\2", b"\2\0"), ("null", "", b"", None),
        ("int", "", b"\x90\1", b"\0"), ("long", "timestamp-millis", b"\x90\1", b"\0"),
        ("enum", "", b"\x90\1", b"\0"), ("array", "", b"\2\2\0", b"\0"),
        ("map", "", b"\2\2a\0\0", b"\0"),
        ("boolean", "", b"\1", b"\0"), ("double", "", b"12345678", bytes(8)),
        ("fixed", "", b"123", bytes(3)), ("string", "uuid", b"\2x", b"H" + NO_UUID.encode()),
    ],
)  # fmt: skip
def test_mask_in_avro(kind: str, logical: str, held: bytes, replaced: bytes | None) -> None:
    """Each type has an empty value; a null stays."""
    assert Mask().in_avro(kind, logical, held) == replaced


def test_mask_in_avro_record() -> None:
    """A record has none."""
    with pytest.raises(ValueError, match=r"^is a record, which has no empty value"):
        Mask().in_avro("record", "", b"x")


def test_pseudonym_same_everywhere() -> None:
    """The same content has the same pseudonym in a key, a header, JSON and Avro."""
    expected, how = digits(b"42"), Pseudonym(KEY)
    assert how.of_bytes(b"42") == expected.encode()
    assert how.in_json("42", '"42"') == how.in_json(42, "42") == f'"{expected}"'
    assert how.in_avro("string", "", b"\x0442") == b"\x80\1" + expected.encode()
    assert how.in_avro("bytes", "", b"\x0442") == b"\x80\1" + expected.encode()
    assert how.in_json("é", '"\\u00e9"') == f'"{digits("é".encode())}"'


def test_pseudonym_nothing() -> None:
    """A null stays one."""
    how = Pseudonym(KEY)
    assert how.of_bytes(None) is how.in_json(None, "null") is how.in_avro("null", "", b"") is None


def test_pseudonym_uuid() -> None:
    """A text that has to be a UUID gets one, whatever its size before."""
    held = b"H" + b"123e4567-e89b-12d3-a456-426614174000"
    found = Pseudonym(KEY).in_avro("string", "uuid", held)
    assert found is not None
    assert found[1:].decode().replace("-", "") == digits(held[1:])[:32]
    assert (found[0], len(found)) == (72, 37)


@pytest.mark.parametrize(("kind", "logical"), [("int", ""), ("bytes", "decimal"), ("record", "")])
def test_pseudonym_refused(kind: str, logical: str) -> None:
    """Other types can't hold one; neither can an object or an array."""
    how = Pseudonym(KEY)
    said = f"^is of type {logical or kind}, which can't hold a pseudonym; mask it$"
    with pytest.raises(ValueError, match=said):
        how.in_avro(kind, logical, b"\0")
    for value in ({}, []):
        with pytest.raises(ValueError, match=r"^is an object or an array"):
            how.in_json(value, str(value))


def test_pseudonym_long_text() -> None:
    """A size of several bytes before a text isn't part of its content."""
    held = b"\xd0\x0f" + b"x" * 1000
    assert Pseudonym(KEY).in_avro("string", "", held) == b"\x80\1" + digits(b"x" * 1000).encode()


def test_key_id() -> None:
    """Keys are told apart without being shown; nor does a pseudonym's repr show its key."""
    assert key_id(KEY) == key_id(KEY) != key_id(b"l" * 16)
    assert len(key_id(KEY)) == 16
    assert "kkk" not in repr(Pseudonym(KEY))


def test_pseudonym_lone_surrogate() -> None:
    """A text that JSON can write, but UTF-8 can't, has a pseudonym too."""
    expected = digits(b"\xed\xa0\x80")
    assert Pseudonym(KEY).in_json("\ud800", '"\\ud800"') == f'"{expected}"'


@pytest.mark.parametrize("size", [63, 64, 127, 128, 8191, 8192])
def test_pseudonym_sizes(size: int) -> None:
    """The bytes of a size end with the first one below 0x80, whatever follows."""
    for first in (b"x", b"\x80", b"\0"):
        content = first * size
        held = long_bytes(size) + content
        assert Pseudonym(KEY).in_avro("bytes", "", held) == b"\x80\1" + digits(content).encode()


def test_key_id_stays() -> None:
    """Plans have a key's id: it is the same in each release."""
    assert key_id(b"a secret key of pseudonyms") == "415f887b1d0dfd2b"
