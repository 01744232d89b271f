"""Find and replace the schema ids of whole batches of records.

Needs only pyarrow; Spark's executors run this code too.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.scalars import FALSE, binaries, booleans, text
from kafka_drain.schemas.schema_ids import (
    GUID_BYTES,
    HEADERS,
    ID_BYTES,
    IdLocation,
    SchemaId,
    SchemaIds,
    id_in,
    id_of_payload,
    with_id,
)

#: Beyond the end of any value. Without an end, pyarrow computes a wrong size.
_END = 1 << 40


def translated(batch: pa.RecordBatch, schema_ids: SchemaIds, topic: str) -> pa.RecordBatch:
    """Return records with the schema ids of another registry. Sizes stay the same.

    Args:
        batch: Has the columns `key`, `value` and `headers` of `data_files.records.SCHEMA`.
        schema_ids: The translation.
        topic: The topic that the records came from.

    Raises:
        SourceRecordError: When an id has no translation.
    """
    columns = {name: batch[name] for name in batch.schema.names}
    for part in schema_ids.parts_of(topic):
        carried = _Carried.of(batch["headers"], part)
        change = _changer(schema_ids, schema_ids.kept_ids(topic, part))
        # Readers that find the header take no prefix off the payload.
        columns[part] = _with_heads(batch[part], ID_BYTES, _of_payload(change), carried.rows)
        if carried.rows is not None:
            columns["headers"] = carried.replaced(columns["headers"], change)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def _changer(schema_ids: SchemaIds, kept: Collection[SchemaId]) -> Callable[[bytes], bytes]:
    return lambda head: head if id_in(head) in kept else with_id(head, schema_ids)


def _of_payload(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    # Not a GUID: no serializer writes one before a payload.
    return lambda head: head if id_of_payload(head) is None else change(head)


def count_ids(
    batch: pa.RecordBatch, topic: str, parts: Collection[str] = tuple(HEADERS)
) -> Counter[IdLocation]:
    """Count the ids in records.

    Args:
        batch: Has the columns `key`, `value` and `headers` of `data_files.records.SCHEMA`.
        topic: The topic that the records came from.
        parts: The parts to look at.

    Returns:
        Number of occurrences of each. Nulls, such as tombstones, don't count.
    """
    counts: Counter[IdLocation] = Counter()
    for part in parts:
        carried = _Carried.of(batch["headers"], part)
        column = batch[part]
        if carried.rows is not None:
            for head in carried.heads():
                counts[IdLocation(topic, part, id_in(head))] += 1
            column = column.filter(pc.invert(carried.rows))
        heads = pc.binary_slice(column, 0, ID_BYTES).drop_null().value_counts()
        for head, count in zip(*(heads.field(n).to_pylist() for n in (0, 1)), strict=True):
            counts[IdLocation(topic, part, id_of_payload(head))] += count
    return counts


def _with_heads(
    column: pa.LargeBinaryArray,
    size: int,
    replace: Callable[[bytes], bytes],
    but: pa.BooleanArray | None = None,
) -> pa.LargeBinaryArray:
    """Return values with their first `size` bytes replaced, except those of some rows."""
    chosen = column.is_valid() if but is None else pc.and_not(column.is_valid(), but)
    values = column.filter(chosen)
    heads = pc.binary_slice(values, 0, size).dictionary_encode()
    before = heads.dictionary.to_pylist()
    after = [replace(head) for head in before]
    if after == before:
        return column
    whole = pc.binary_join_element_wise(
        binaries(after).take(heads.indices), pc.binary_slice(values, size, _END), _NOTHING
    )
    return pc.replace_with_mask(column, chosen, whole)


_NOTHING = binaries([b""])[0]


@dataclass(frozen=True)
class _Carried:
    """The ids of one part that a batch has in its headers.

    Attributes:
        rows: Mask of the records that have one; None for none of them.
        pairs: Mask of these among all headers.
        values: The values of all headers.
    """

    rows: pa.BooleanArray | None = None
    pairs: pa.BooleanArray | None = None
    values: pa.LargeBinaryArray | None = None

    @classmethod
    def of(cls, headers: pa.ListArray, part: str) -> _Carried:
        """Find them: headers of the right name that have an id."""
        flat = headers.flatten()
        if not len(flat):
            return cls()
        named = pc.equal(flat.field("key"), text(HEADERS[part]))
        if not pc.any(named).as_py():
            return cls()
        values = flat.field("value")
        heads = pc.binary_slice(values, 0, GUID_BYTES).dictionary_encode()
        is_id = booleans([id_in(head) is not None for head in heads.dictionary.to_pylist()])
        carrying = pc.and_(named, is_id.take(heads.indices)).fill_null(FALSE)
        having = set(pc.list_parent_indices(headers).filter(carrying).to_pylist())
        if not having:
            return cls()
        rows = booleans([row in having for row in range(len(headers))])
        return cls(rows, carrying, values)

    def heads(self) -> list[bytes]:
        """Return the starts of these headers' values."""
        assert self.values is not None
        starts: list[bytes] = pc.binary_slice(
            self.values.filter(self.pairs), 0, GUID_BYTES
        ).to_pylist()
        return starts

    def replaced(self, headers: pa.ListArray, replace: Callable[[bytes], bytes]) -> pa.ListArray:
        """Return all headers, with the ids of these replaced."""
        flat = headers.flatten()
        values = flat.field("value")
        new = _with_heads(values.filter(self.pairs), GUID_BYTES, replace)
        pairs = pa.StructArray.from_arrays(
            [flat.field("key"), pc.replace_with_mask(values, self.pairs, new)],
            fields=[headers.type.value_type.field(name) for name in ("key", "value")],
        )
        lengths = headers.value_lengths().to_pylist()
        bounds = [0, *accumulate(length or 0 for length in lengths)]
        buffers = [
            booleans([length is not None for length in lengths]).buffers()[1],
            pa.py_buffer(struct.pack(f"={len(bounds)}i", *bounds)),
        ]
        return pa.Array.from_buffers(headers.type, len(lengths), buffers, children=[pairs])
