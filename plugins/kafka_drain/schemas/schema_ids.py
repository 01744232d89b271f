"""Schema ids in records: where they are, and how they are replaced. Opens nothing.

Confluent's serializers write an id in one of two places. Before the payload: a zero byte and the id
in four bytes, big-endian. Or in a header of the record, which newer serializers use: a byte of
value 1 and the schema's GUID in 16 bytes, while the payload has no prefix. In both places, Protobuf
continues with the indexes of the message, which aren't part of the id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kafka_drain.errors import SourceRecordError

#: The parts of a record that may have a schema, and the header that each one's GUID is in.
HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}

#: A schema's id in its registry, or its GUID as text.
SchemaId: TypeAlias = "int | str"

ID_BYTES, GUID_BYTES = 5, 17


class IdLocation(NamedTuple):
    """Where an id was seen.

    Attributes:
        topic: The record's topic.
        part: `key` or `value`.
        id: The id or GUID; None if the part has none.
    """

    topic: str
    part: str
    id: SchemaId | None


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema in a registry.

    Attributes:
        guid: Its GUID; None if the registry has none.
    """

    subject: str
    version: int
    id: int
    guid: str | None = None


@dataclass(frozen=True)
class SchemaIds:
    """A translation of schema ids.

    Attributes:
        ids: The new id of each id.
        guids: The new GUID of each GUID.
        kept: Parts of topics that stay as they are, such as `orders:key`: their bytes only look
            like ids. With an id, such as `orders:key:0`, only that one stays.
    """

    ids: Mapping[int, int] = field(default_factory=dict)
    guids: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()

    def __contains__(self, id_: object) -> bool:
        return id_ in self.ids or id_ in self.guids

    def parts_of(self, topic: str) -> list[str]:
        """Return the parts whose ids are translated."""
        return [part for part in HEADERS if f"{topic}:{part}" not in self.kept]

    def kept_ids(self, topic: str, part: str) -> frozenset[SchemaId]:
        """Return the ids that stay as they are, though others of the part are translated."""
        return ids_kept(self.kept, topic, part)

    def to_dict(self) -> dict[str, Any]:
        """Return the translation as JSON types."""
        return {
            "ids": {str(old): new for old, new in sorted(self.ids.items())},
            "guids": dict(sorted(self.guids.items())),
            "kept": sorted(self.kept),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> SchemaIds:
        """Parse a document from `to_dict`."""
        ids = {int(old): new for old, new in document["ids"].items()}
        return cls(ids, document["guids"], frozenset(document["kept"]))


def ids_kept(kept: Iterable[str], topic: str, part: str) -> frozenset[SchemaId]:
    """Return the ids of `topic:part:id`."""
    before = f"{topic}:{part}:"
    ids = (one.removeprefix(before) for one in kept if one.startswith(before))
    return frozenset(int(one) if one.isdecimal() else one for one in ids)


def context_of(subject: str) -> str:
    """Return the context that a subject's ids are of; empty for the default one."""
    context, found, _ = subject[1:].partition(":")
    return context.lstrip(".") if subject.startswith(":.") and found else ""


def id_in(head: bytes | None) -> SchemaId | None:
    """Return the id or GUID at the start of a header's value; None if there is none."""
    if head and head[0] == 1 and len(head) >= GUID_BYTES:
        return str(UUID(bytes=head[1:GUID_BYTES]))
    return id_of_payload(head)


def id_of_payload(payload: bytes | None) -> int | None:
    """Return the id before a payload; None if there is none."""
    if not payload or payload[0] != 0 or len(payload) < ID_BYTES:
        return None
    return int.from_bytes(payload[1:ID_BYTES], "big")


def with_id(head: bytes, schema_ids: SchemaIds) -> bytes:
    """Return bytes with the id at their start replaced; the rest stays.

    Raises:
        SourceRecordError: When the id has no translation.
    """
    found = id_in(head)
    if found is None:
        return head
    if isinstance(found, int):
        if found in schema_ids.ids:
            return b"\0" + schema_ids.ids[found].to_bytes(4, "big") + head[ID_BYTES:]
    elif found in schema_ids.guids:
        return b"\1" + UUID(schema_ids.guids[found]).bytes + head[GUID_BYTES:]
    raise SourceRecordError(
        f"a record has schema id {found}, which the plan doesn't translate; its transaction was "
        "aborted. Was its file changed since the plan was made?"
    )
