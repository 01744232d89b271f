"""Decode restored values with the schemas that the archive keeps. Opens nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Confluent's wire format: a zero byte, the schema id in four bytes, the record.
_HEADER = 5


@dataclass
class Decoding:
    """Decodes values and counts.

    Attributes:
        encoding: `avro` or `json`.
        schemas: Avro schemas by id.
        values: Number of values that were looked at.
        decoded: Number of values that were decoded.
        without_schema: Number of values that name no schema.
        unknown: Ids of schemas that values name and that aren't known.
        undecodable: Number of values that their schema doesn't decode.
    """

    encoding: str
    schemas: Mapping[int, Any]
    values: int = 0
    decoded: int = 0
    without_schema: int = 0
    unknown: set[int] = field(default_factory=set)
    undecodable: int = 0

    def add(self, values: Iterable[bytes | None]) -> None:
        """Decode some values."""
        for value in values:
            self.values += 1
            if value is None:
                self.without_schema += 1
            elif self.encoding == "json":
                self._json(value)
            else:
                self._avro(value)

    def _json(self, value: bytes) -> None:
        # A registry's serializer puts the same header before JSON.
        text = value[_HEADER:] if value[:1] == b"\0" else value
        try:
            json.loads(text.decode())
            self.decoded += 1
        except (ValueError, RecursionError):
            self.undecodable += 1

    def _avro(self, value: bytes) -> None:
        if len(value) < _HEADER or value[:1] != b"\0":
            self.without_schema += 1
            return
        id_ = int.from_bytes(value[1:_HEADER], "big")
        if id_ not in self.schemas:
            self.unknown.add(id_)
            self.undecodable += 1
            return
        try:
            self._read(id_, value[_HEADER:])
            self.decoded += 1
        except Exception:
            # fastavro raises whatever the bytes lead it to: any of it means that they don't fit.
            self.undecodable += 1

    def _read(self, id_: int, content: bytes) -> None:
        # Not at the top: most archives have no schemas.
        from fastavro import parse_schema, schemaless_reader

        stream = io.BytesIO(content)
        schemaless_reader(stream, parse_schema(self.schemas[id_]), None)
        if stream.read(1):
            raise ValueError("bytes are left over")

    @property
    def problem(self) -> str:
        """Why not all values were decoded; empty if they were."""
        if self.unknown:
            ids = ", ".join(map(str, sorted(self.unknown)[:10]))
            return (
                f"the archive's schemas.json doesn't have schema {ids}, which restored values "
                "name: their consumers can't read them without the registry; restore schemas.json "
                "from a copy, or drain once while the registry has the schema"
            )
        if self.undecodable:
            return (
                f"{self.undecodable:,} of {self.values:,} restored values don't decode with the "
                "schema that they name; compare schemas.json with a copy"
            )
        return ""
