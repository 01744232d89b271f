"""Keys, values and headers as people and programs read them: decoded where that is possible."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kafka_drain.errors import KafkaDrainError
from kafka_drain.output import say
from kafka_drain.schemas import exact_json
from kafka_drain.schemas.decoders import Decoders, Headers, SchemaText
from kafka_drain.schemas.schema_ids import SchemaId
from kafka_drain.schemas.value_path import HEX

#: Control characters that a text may have.
_LAYOUT = "\t\n\r"
#: Whitespace that may be around JSON.
_JSON_SPACE = " \t\n\r"


@dataclass(frozen=True)
class Payload:
    """A key, a value or a header's value, decoded.

    Attributes:
        format: `avro`, `protobuf` or `json` by its schema; `json` for an object or array; `text`;
            or `hex` for all other bytes. None for null.
        content: Its content, as JSON types; for `hex`, its digits.
        schema: The id or GUID of its schema; None without one.
    """

    format: str | None
    content: Any = None
    schema: SchemaId | None = None

    def line(self) -> str:
        """Return it as one line of text."""
        if self.format is None:
            return ""
        if self.format == "hex":
            return f"{HEX}{self.content}"
        if self.format == "text":
            return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(self.content))
        return json.dumps(self.content, ensure_ascii=True)


class Payloads:
    """Decodes with the schemas that an archive keeps.

    Args:
        find: Returns a schema by its id or GUID; None if it is unknown.
        needs_libraries: Whether a missing library ends the decoding, because something is decided
            by the content; if not, what it would decode is shown as bytes.
    """

    def __init__(
        self, find: Callable[[SchemaId], SchemaText | None], *, needs_libraries: bool = False
    ) -> None:
        self._needs_libraries = needs_libraries
        self._kinds: dict[SchemaId, str] = {}
        self._said: set[str] = set()

        def noting(id_: SchemaId) -> SchemaText | None:
            schema = find(id_)
            if schema is not None:
                self._kinds[id_] = schema.kind.lower()
            return schema

        self._decoders = Decoders(noting)

    def of(self, part: str, payload: bytes | None, headers: Headers) -> Payload:
        """Decode a key or a value.

        Args:
            part: `key` or `value`.
            headers: The record's headers.

        Raises:
            MachineError: When a library is missing that is needed.
        """
        if payload is None:
            return Payload(None)
        try:
            decoded = self._decoders.decode(part, payload, headers)
        except KafkaDrainError as error:
            # The library for Protobuf or Avro is missing.
            if self._needs_libraries:
                raise
            if str(error) not in self._said:
                self._said.add(str(error))
                say(f"WARNING {part}s are shown as bytes: {error}")
            decoded = None
        except Exception:  # decoders raise whatever bytes that don't fit lead them to
            # Bytes that only look as if they had an id, or whose schema isn't kept.
            decoded = None
        if decoded is None:
            return plain(payload)
        kind, value = self._kinds[decoded.id], decoded.value
        if kind == "protobuf":
            # The name of the message, and the message.
            [value] = value.values()
        try:
            return Payload(kind, _json_types(value), decoded.id)
        except RecursionError:
            # Nested too deeply.
            return plain(payload)


def plain(payload: bytes | None) -> Payload:
    """Return the content of bytes without a schema."""
    if payload is None:
        return Payload(None)
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return Payload("hex", payload.hex())
    if text.lstrip(_JSON_SPACE)[:1] in ("{", "["):
        try:
            return Payload("json", exact_json.decoded(text))
        except (ValueError, RecursionError):
            pass
    if any(c < " " and c not in _LAYOUT for c in text) or "\x7f" in text:
        return Payload("hex", payload.hex())
    return Payload("text", text)


def _json_types(value: Any) -> Any:
    """Return a decoded value as JSON types."""
    if isinstance(value, dict):
        return {str(name): _json_types(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_types(member) for member in value]
    if isinstance(value, bytes):
        return f"{HEX}{value.hex()}"
    if isinstance(value, float):
        return exact_json.named_float(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Decimal):
        # Not as 0E-8: with all its digits.
        return format(value, "f")
    # Times of Avro's logical types, UUIDs.
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
