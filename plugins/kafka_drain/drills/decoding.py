"""Decode restored values with the schemas that the archive keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from kafka_drain.archive.documents import RegistryDocument, SchemasDocument
from kafka_drain.errors import KafkaDrainError
from kafka_drain.schemas.decoders import (
    Decoders,
    Headers,
    SchemaText,
    UnknownSchemaError,
    archived_schemas,
    kept_schemas,
)
from kafka_drain.schemas.schema_ids import ID_BYTES, SchemaId


@dataclass
class Decoding:
    """Decodes values and counts.

    Attributes:
        decoders: Decodes Avro, Protobuf and JSON by schema ids; None for values that are all JSON.
        topics: The source topics whose values are decoded; None for all.
        values: Number of values that were looked at.
        decoded: Number of values that were decoded.
        without_schema: Number of values that name no schema.
        unknown: Ids of schemas that values name and that aren't known.
        undecodable: Number of values that their schema doesn't decode.
    """

    decoders: Decoders | None
    topics: Collection[str] | None = None
    values: int = 0
    decoded: int = 0
    without_schema: int = 0
    unknown: set[SchemaId] = field(default_factory=set)
    undecodable: int = 0

    def add(self, values: Iterable[tuple[bytes | None, Headers]]) -> None:
        """Decode some values, each with its record's headers.

        Raises:
            MachineError: When they are Protobuf, and the extra for it isn't installed.
        """
        for value, headers in values:
            self.values += 1
            try:
                is_decoded = self._decode(value, headers)
            except KafkaDrainError:
                raise
            except Exception as error:  # decoders raise whatever bytes that don't fit lead them to
                self.undecodable += 1
                if isinstance(error, UnknownSchemaError):
                    self.unknown.add(error.id)
            else:
                self.decoded += is_decoded
                self.without_schema += not is_decoded

    def _decode(self, value: bytes | None, headers: Headers) -> bool:
        """Decode a value; return False if it names no schema."""
        if value is None:
            return False
        if self.decoders is not None:
            return self.decoders.decode("value", value, headers) is not None
        # A registry's serializer puts an id before JSON, too.
        json.loads((value[ID_BYTES:] if value[:1] == b"\0" else value).decode())
        return True

    @property
    def problem(self) -> str:
        """Why not all values were decoded; empty if they were."""
        if self.unknown:
            ids = ", ".join(sorted(map(str, self.unknown), key=lambda id_: (len(id_), id_))[:10])
            return (
                f"the archive doesn't have schema {ids}, which restored values name: their "
                "consumers can't read them without the registry; restore registry.json and "
                "schemas.json from a copy, or drain and validate while the registry has the schema"
            )
        if self.undecodable:
            return (
                f"{self.undecodable:,} of {self.values:,} restored values don't decode with the "
                "schema that they name; compare registry.json and schemas.json with a copy"
            )
        return ""


def by_schema_id(registry: RegistryDocument, schemas: SchemasDocument) -> Decoding:
    """Return the decoding of values with schema ids, by the archive's schemas.

    Where only `registry.json` keeps schemas, topics whose values have none of its ids aren't
    decoded: their bytes may look like ids.
    """
    topics = None if schemas.schemas else _topics_with_schemas(registry, kept_schemas(registry))
    return Decoding(Decoders(archived_schemas(registry, schemas)), topics)


def _topics_with_schemas(
    registry: RegistryDocument, kept: Callable[[SchemaId], SchemaText | None]
) -> set[str]:
    found = set()
    for row in registry.seen:
        ids: list[SchemaId] = [*row.ids, *row.guids]
        if row.part == "value" and any(map(kept, ids)):
            found.add(row.topic)
    return found
