"""Decode keys and values by the schema ids that they have: Avro, Protobuf and JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.schemas import exact_json
from kafka_drain.schemas.avro import AVRO, parse_schema, self_contained, undefined_types
from kafka_drain.schemas.protobuf import protobuf_reader
from kafka_drain.schemas.schema_ids import (
    GUID_BYTES,
    HEADERS,
    ID_BYTES,
    SchemaId,
    context_of,
    id_in,
    id_of_payload,
)

if TYPE_CHECKING:
    # Spark's executors have no pydantic.
    from kafka_drain.archive.documents import RegisteredRow, RegistryDocument, SchemasDocument
    from kafka_drain.schemas.subjects import Subjects

Headers: TypeAlias = "Sequence[tuple[str, str | bytes | None]] | None"


#: End of the name of a logical type of which not all values have to be.
_OR_STORED = "-or-as-stored"


class UnknownSchemaError(ValueError):
    """Raised when nobody knows the schema of an id."""

    def __init__(self, id_: SchemaId) -> None:
        super().__init__(f"schema id {id_} is unknown")
        self.id = id_


@dataclass(frozen=True)
class SchemaText:
    """A schema, and the texts of all schemas that it needs.

    Attributes:
        kind: `AVRO`, `PROTOBUF` or `JSON`.
        references: The others' texts, by the name that it knows them by.
    """

    kind: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Decoded:
    """A decoded key or value.

    Attributes:
        id: Its schema's id or GUID.
        value: Its value, in Python's own types.
    """

    id: SchemaId
    value: Any


Reader: TypeAlias = "Callable[[bytes, bytes | None], Any]"


@dataclass
class Decoders:
    """Decodes with the schemas that a function finds by their ids; each is looked up once.

    Attributes:
        find: Returns a schema by its id or GUID; None if it is unknown.
    """

    find: Callable[[SchemaId], SchemaText | None]
    _readers: dict[SchemaId, Reader | ValueError] = field(default_factory=dict)

    def decode(self, part: str, payload: bytes | None, headers: Headers) -> Decoded | None:
        """Decode a key or a value.

        Args:
            part: `key` or `value`.
            headers: The record's headers.

        Returns:
            None if it is null or has no schema id.

        Raises:
            ValueError: When its schema is unknown, or its bytes aren't of that schema.
        """
        if payload is None:
            return None
        for name, content in headers or ():
            if name == HEADERS[part] and isinstance(content, bytes):
                id_ = id_in(content)
                if id_ is not None:
                    rest = content[GUID_BYTES if isinstance(id_, str) else ID_BYTES :]
                    return Decoded(id_, self._reader(id_)(payload, rest))
        found = id_in(payload[:ID_BYTES])
        if found is None:
            return None
        return Decoded(found, self._reader(found)(payload[ID_BYTES:], None))

    def _reader(self, id_: SchemaId) -> Reader:
        if id_ not in self._readers:
            self._readers[id_] = self._open(id_)
        found = self._readers[id_]
        if isinstance(found, ValueError):
            # Without the frames of the records before.
            raise found.with_traceback(None)
        return found

    def _open(self, id_: SchemaId) -> Reader | ValueError:
        """Return the decoder of an id, or why there is none."""
        schema = self.find(id_)
        if schema is None:
            return UnknownSchemaError(id_)
        try:
            return reader_of(schema)
        except ConfigError as error:
            return ValueError(f"schema id {id_}: {error}")


def body_of(part: str, payload: bytes, headers: Headers) -> tuple[SchemaId | None, int]:
    """Return the id of a payload's schema, and where the payload itself begins.

    The id is None if it has none.
    """
    for name, held in headers or ():
        if name == HEADERS[part] and isinstance(held, bytes):
            id_ = id_in(held)
            if id_ is not None:
                return id_, 0
    id_ = id_of_payload(payload[:ID_BYTES])
    return (None, 0) if id_ is None else (id_, ID_BYTES)


def reader_of(schema: SchemaText) -> Reader:
    """Return a function that decodes the bytes after the id; see `protobuf_reader`.

    Raises:
        ConfigError: When the schema can't be read.
        MachineError: When a library is missing.
    """
    if schema.kind == AVRO:
        return _avro_reader(schema)
    if schema.kind == "PROTOBUF":
        return protobuf_reader(schema.text, schema.references)
    if schema.kind == "JSON":
        return lambda payload, _: exact_json.decoded(payload.decode())
    raise ConfigError(f"schemas of type {schema.kind} aren't supported")


def _avro_reader(schema: SchemaText) -> Reader:
    try:
        import fastavro
    except ImportError as error:
        # Spark's executors may lack it.
        raise MachineError("decoding Avro needs fastavro: install it where this runs") from error

    references = {name: parse_schema(text, name) for name, text in schema.references.items()}
    whole = self_contained(parse_schema(schema.text, "a schema"), references)
    try:
        parsed = fastavro.parse_schema(whole)
    except Exception as error:  # fastavro raises several unrelated types
        raise ConfigError(f"it isn't an Avro schema: {error}") from error

    def read_by(schema: Any, payload: bytes) -> Any:
        source = io.BytesIO(payload)
        value: Any = fastavro.schemaless_reader(source, schema)
        if source.read(1):
            raise ValueError("bytes are left over")
        return value

    @cache
    def tolerant() -> Any:
        return fastavro.parse_schema(_with_odd_values(whole))

    def read(payload: bytes, _: bytes | None) -> Any:
        try:
            try:
                return read_by(parsed, payload)
            except (ArithmeticError, ValueError):
                # Such as the highest number as a time, which Python has no date for.
                return read_by(tolerant(), payload)
        except (ArithmeticError, EOFError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    return read


def _with_odd_values(schema: Any) -> Any:
    """Return a schema by which a value that isn't one of its logical type stays as it is stored."""
    from fastavro.read import LOGICAL_READERS

    if isinstance(schema, list):
        return [_with_odd_values(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: _with_odd_values(value) for name, value in schema.items()}
    convert = LOGICAL_READERS.get(f"{schema.get('type')}-{schema.get('logicalType')}")
    if convert is not None:
        copy["logicalType"] = f"{schema['logicalType']}{_OR_STORED}"
        name = f"{schema['type']}-{copy['logicalType']}"
        LOGICAL_READERS.setdefault(name, partial(_or_stored, convert))
    return copy


def _or_stored(convert: Callable[..., Any], stored: Any, *schemas: Any) -> Any:
    try:
        return convert(stored, *schemas)
    except (ArithmeticError, ValueError):
        return stored


def kept_schemas(document: RegistryDocument) -> Callable[[SchemaId], SchemaText | None]:
    """Return a function that finds the schemas which an archive keeps."""
    by_place = {(s.name, row.version): row for s in document.subjects for row in s.versions}
    by_id: dict[SchemaId, RegisteredRow] = {}
    for (subject, _), row in by_place.items():
        # Records have ids of the default context, and another one may have the same ids.
        if not context_of(subject):
            by_id.setdefault(row.id, row)
        if row.guid:
            by_id.setdefault(row.guid, row)

    def find(id_: SchemaId) -> SchemaText | None:
        row = by_id.get(id_)
        if row is None:
            return None
        return SchemaText(row.kind, row.text, _texts(row, lambda s, v: by_place.get((s, v))))

    return find


def archived_schemas(
    registry: RegistryDocument, schemas: SchemasDocument
) -> Callable[[SchemaId], SchemaText | None]:
    """Return a function that finds the schemas of both documents, with which values are decoded."""
    # Earlier releases kept some without types that a reference defines.
    avro = {row.id: row.avro for row in schemas.schemas if not undefined_types(row.avro)}
    kept = kept_schemas(registry)

    def find(id_: SchemaId) -> SchemaText | None:
        if isinstance(id_, int) and id_ in avro:
            return SchemaText(AVRO, json.dumps(avro[id_]))
        return kept(id_)

    return find


def registered_schemas(subjects: Subjects) -> Callable[[SchemaId], SchemaText | None]:
    """Return a function that finds the schemas of a registry, by asking it."""

    def find(id_: SchemaId) -> SchemaText | None:
        ids: Iterable[int] = [id_] if isinstance(id_, int) else subjects.ids_of_guid(id_)
        for each in ids:
            for subject, version in subjects.of_id(each):
                row = subjects.version(subject, version)
                if row is not None:
                    return SchemaText(row.kind, row.text, _texts(row, subjects.version))
        return None

    return find


def _texts(
    row: RegisteredRow, version_of: Callable[[str, int], RegisteredRow | None]
) -> dict[str, str]:
    """Return the texts of a schema's references, direct or not."""
    texts: dict[str, str] = {}
    waiting = list(row.references)
    while waiting:
        reference = waiting.pop()
        found = version_of(reference.subject, reference.version)
        if found is not None and reference.name not in texts:
            texts[reference.name] = found.text
            waiting += found.references
    return texts
