"""Changes of records when they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_drain.republish.planning.shards import Shard, provenance_of
from kafka_drain.schemas.schema_ids import SchemaIds
from kafka_drain.schemas.wire_format import translated

if TYPE_CHECKING:
    from kafka_drain.republish.changing.change import Changer


def as_sent(
    batches: Iterator[pa.RecordBatch],
    shard: Shard,
    changer: Changer | None,
    schema_ids: SchemaIds | None,
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's selected records as they are sent.

    Raises:
        SourceRecordError: When a record can't be changed as planned, or the plan has no translation
            of a schema id.
        ConfigError: When the user's function breaks its contract.
    """
    if changer is not None:
        apply = changer.apply
        batches = (apply(batch, shard.source).batch for batch in batches)
    return with_schema_ids(batches, shard, schema_ids)


def with_schema_ids(
    batches: Iterator[pa.RecordBatch], shard: Shard, schema_ids: SchemaIds | None
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's records as they are sent: with the schema ids of the target's registry.

    Raises:
        SourceRecordError: When the plan has no translation of an id.
    """
    if schema_ids is None:
        return batches
    return (translated(batch, schema_ids, shard.source.topic) for batch in batches)


def provenance(shard: Shard, offset: int) -> list[tuple[str, str | bytes | None]]:
    """Return headers that say where a record came from."""
    return provenance_of(shard.source, offset)
