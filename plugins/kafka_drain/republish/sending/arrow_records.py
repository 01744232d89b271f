"""Convert batches of a data file to records in the form that Kafka's client takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import pyarrow as pa

from kafka_drain.republish.planning.shards import Shard
from kafka_drain.schemas.schema_ids import SchemaIds
from kafka_drain.schemas.wire_format import translated

Headers: TypeAlias = "list[tuple[str, str | bytes | None]] | None"

#: Key, value, headers (None for none), timestamp in milliseconds since 1970, offset.
Row: TypeAlias = "tuple[bytes | None, bytes | None, Headers, int, int]"


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield a batch's records.

    Args:
        batch: Has the columns of `data_files.records.SCHEMA`.
    """
    milliseconds = batch["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    return zip(
        batch["key"].to_pylist(),
        batch["value"].to_pylist(),
        _headers(batch["headers"]),
        milliseconds.to_pylist(),
        batch["offset"].to_pylist(),
        strict=True,
    )


def _headers(column: pa.ListArray) -> list[Headers]:
    """Return each record's headers as pairs; a dict per header would cost three times as much."""
    pairs = column.flatten()
    if not len(pairs):
        return [None] * len(column)
    flat = list(zip(pairs.field("key").to_pylist(), pairs.field("value").to_pylist(), strict=True))
    found: list[Headers] = []
    at = 0
    for length in column.value_lengths().to_pylist():
        # The length is null if there are no headers. (Filling such nulls would import pandas.)
        found.append(flat[at : at + length] if length else None)
        at += length or 0
    return found


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
    return [
        ("kafka-drain.topic", shard.source.topic.encode()),
        ("kafka-drain.partition", b"%d" % shard.source.partition),
        ("kafka-drain.offset", b"%d" % offset),
    ]
