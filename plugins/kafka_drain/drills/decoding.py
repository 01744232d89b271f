"""Decode restored values with the schemas that the archive keeps."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_drain.archive.documents import RegistryDocument, SchemasDocument
from kafka_drain.errors import KafkaDrainError
from kafka_drain.schemas.capture import OF_CONTEXT, OF_SETTINGS
from kafka_drain.schemas.decoders import (
    Decoders,
    Headers,
    UnknownSchemaError,
    archived_schemas,
    kept_schemas,
)
from kafka_drain.schemas.schema_ids import ID_BYTES, SchemaId


class _NotJsonError(Exception):
    """Raised for a value that isn't JSON and names no schema."""


@dataclass
class Decoding:
    """Decodes values and counts.

    Attributes:
        decoders: Decodes Avro, Protobuf and JSON by schema ids; None for values that are all JSON.
        topics: The source topics whose values are decoded; None for all.
        not_judged: Ids that the values of other topics begin with, or whose bytes only look like
            it: the archive keeps the schemas of none of them.
        values: Number of values that were looked at.
        decoded: Number of values that were decoded.
        without_schema: Number of values that name no schema.
        unknown: Ids of schemas that values name and that aren't known.
        undecodable: Number of values that their schema doesn't decode, or that aren't JSON.
        named: Decodes values that aren't JSON, by the schemas that they name nevertheless; None if
            there has never been a schema.
        not_json: Number of those that name none: all bytes were restored, and nothing is missing.
    """

    decoders: Decoders | None
    topics: Collection[str] | None = None
    not_judged: Mapping[str, Sequence[SchemaId]] = field(default_factory=dict)
    values: int = 0
    decoded: int = 0
    without_schema: int = 0
    unknown: set[SchemaId] = field(default_factory=set)
    undecodable: int = 0
    named: Decoders | None = None
    not_json: int = 0

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
                self.not_json += isinstance(error, _NotJsonError)
            else:
                self.decoded += is_decoded
                self.without_schema += not is_decoded

    def _decode(self, value: bytes | None, headers: Headers) -> bool:
        """Decode a value; return False if it names no schema."""
        if value is None:
            return False
        if self.decoders is not None:
            return self.decoders.decode("value", value, headers) is not None
        try:
            # A registry's serializer puts an id before JSON, too.
            json.loads((value[ID_BYTES:] if value[:1] == b"\0" else value).decode())
        except (ValueError, RecursionError) as error:
            if self.named is None or self.named.decode("value", value, headers) is None:
                raise _NotJsonError from error
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
        if undecodable := self.undecodable - self.not_json:
            return (
                f"{undecodable:,} of {self.values:,} restored values don't decode with the "
                "schema that they name; compare registry.json and schemas.json with a copy"
            )
        return ""


def by_schema_id(registry: RegistryDocument, schemas: SchemasDocument) -> Decoding:
    """Return the decoding of values with schema ids, by the archive's schemas.

    Where only `registry.json` keeps schemas, the values of a topic of which it has none may have
    bytes that look like ids. They are decoded all the same if there must be schemas of them: if
    their subject is kept, or not all could be read from the registry.
    """
    decoders = Decoders(archived_schemas(registry, schemas))
    if schemas.schemas:
        return Decoding(decoders)
    kept, named = kept_schemas(registry), _ids_of_values(registry)
    subjects = {subject.name for subject in registry.subjects}
    was_read = _was_read(registry)
    judged = {
        topic
        for topic, ids in named.items()
        if not was_read or f"{topic}-value" in subjects or any(map(kept, ids))
    }
    others = {topic: ids for topic, ids in named.items() if topic not in judged}
    return Decoding(decoders, judged, others)


def _ids_of_values(registry: RegistryDocument) -> dict[str, list[SchemaId]]:
    """Return the ids that each topic's values have, without 0, which no registry gives."""
    named: dict[str, list[SchemaId]] = {
        row.topic: [*filter(None, row.ids), *row.guids]
        for row in registry.seen
        if row.part == "value"
    }
    return {topic: ids for topic, ids in named.items() if ids}


def _was_read(registry: RegistryDocument) -> bool:
    """Return whether the registry answered everything, be it that it doesn't have a schema."""
    of_no_schema = (f"{registry.url} doesn't have the schemas of ", OF_SETTINGS)
    return all(n.startswith(of_no_schema) and not n.endswith(OF_CONTEXT) for n in registry.notes)
