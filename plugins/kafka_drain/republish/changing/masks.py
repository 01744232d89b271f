"""Replacements of a field: an empty value of its type, or a pseudonym. Opens nothing."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any
from uuid import UUID

from kafka_drain.republish.changing.avro_fields import long_bytes

#: Default replacement for texts.
MASKED = "***"
#: Replacement for a text that is a UUID.
NO_UUID = "00000000-0000-0000-0000-000000000000"

#: Number of contents whose pseudonyms a process remembers: about 15 MB.
REMEMBERED = 1 << 16


@dataclass(frozen=True)
class Mask:
    """Replaces values by a fixed one of the same type; a null stays.

    Attributes:
        text: Replacement for texts and bytes.
    """

    text: str = MASKED

    @cached_property
    def _in_quotes(self) -> str:
        return json.dumps(self.text, ensure_ascii=False)

    def in_json(self, value: Any, _: str) -> str | None:
        """Return the JSON that replaces a value; None to leave it."""
        if value is None:
            return None
        if isinstance(value, str):
            return self._in_quotes
        if isinstance(value, bool):
            return "false"
        if isinstance(value, (int, float)):
            return "0"
        return "{}" if isinstance(value, dict) else "[]"

    def in_avro(self, kind: str, logical: str, held: bytes) -> bytes | None:
        """Return the bytes that replace an encoded value; None to leave it.

        Raises:
            ValueError: When its type has no empty value; says so without the value.
        """
        if kind == "null":
            return None
        if kind in ("string", "bytes"):
            if logical == "decimal":
                return b"\2\0"
            return _sized((NO_UUID if logical == "uuid" else self.text).encode())
        if kind == "record":
            raise ValueError("is a record, which has no empty value; name its fields, or .*")
        # A number, an enum's first symbol, no items.
        return b"\0" if kind in ("int", "long", "enum", "array", "map") else bytes(len(held))

    def of_bytes(self, held: bytes | None) -> bytes | None:
        """Return the replacement of a header's value."""
        return None if held is None else self.text.encode()


@dataclass(frozen=True)
class Pseudonym:
    """Replaces values by the HMAC-SHA-256 of their content, in hexadecimal digits; a null stays.

    The same content gets the same pseudonym wherever it is: in a key, a header, JSON or Avro.

    Attributes:
        key: The secret key.
    """

    key: bytes = field(repr=False)

    def in_json(self, value: Any, text: str) -> str | None:
        """Return the JSON that replaces a value: a text, also for a number; None to leave it.

        Raises:
            ValueError: When it is an object or an array; says so without the value.
        """
        if value is None:
            return None
        if isinstance(value, (dict, list)):
            raise ValueError("is an object or an array, which has no pseudonym; name its members")
        # A lone surrogate, which JSON allows, has no UTF-8.
        content = (
            value.encode("utf-8", "surrogatepass") if isinstance(value, str) else text.encode()
        )
        return f'"{self._digits(content)}"'

    def in_avro(self, kind: str, logical: str, held: bytes) -> bytes | None:
        """Return the bytes that replace an encoded value; None to leave it.

        Raises:
            ValueError: When its type can't hold a pseudonym; says so without the value.
        """
        if kind == "null":
            return None
        if kind not in ("string", "bytes") or logical == "decimal":
            raise ValueError(f"is of type {logical or kind}, which can't hold a pseudonym; mask it")
        content = _content(held)
        if logical == "uuid":
            return _sized(str(UUID(bytes=self._digest(content)[:16])).encode())
        return _sized(self._digits(content).encode())

    def of_bytes(self, held: bytes | None) -> bytes | None:
        """Return the replacement of a key or a header's value."""
        return None if held is None else self._digits(held).encode()

    def _digits(self, content: bytes) -> str:
        return self._digest(content).hex()

    def _digest(self, content: bytes) -> bytes:
        return hmac.digest(self.key, content, "sha256")


#: Replacement for the fields of a change.
Replace = Mask | Pseudonym


@lru_cache(16)
def remembering(how: Replace) -> Callable[[bytes | None], bytes | None]:
    """Return `how.of_bytes`, which computes the same content once in a process.

    A process sends many partitions, each with its own `Changer`; their keys are the same.
    """
    return lru_cache(REMEMBERED)(how.of_bytes)


@lru_cache(16)
def remembering_json(how: Replace) -> Callable[[bytes], bytes]:
    """Return the replacement of a text in JSON, encoded; computes each once in a process."""

    @lru_cache(REMEMBERED)
    def in_json(text: bytes) -> bytes:
        new = how.in_json(text.decode(), "")
        assert new is not None
        return new.encode()

    return in_json


def key_id(key: bytes) -> str:
    """Return an id that tells keys apart without revealing anything about them."""
    return hmac.digest(key, b"kafka-drain: id of a key", "sha256").hex()[:16]


def _sized(content: bytes) -> bytes:
    return long_bytes(len(content)) + content


def _content(held: bytes) -> bytes:
    """Return a text or bytes without the size before them."""
    at = next(at for at, byte in enumerate(held) if byte < 0x80)
    return held[at + 1 :]
