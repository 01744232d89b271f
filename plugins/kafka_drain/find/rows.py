"""Which rows of a file can match, and which of a batch do."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.records import Wanted
from kafka_drain.data_files.scalars import binaries, text
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.plan import Part


def bounds_of(parts: Sequence[Part], criteria: Criteria) -> Wanted:
    """Return bounds with which a format may skip rows when it reads some parts of one file.

    Args:
        parts: The parts; at least one.
        criteria: What is looked for.
    """
    partitions = {part.tp.partition for part in parts}
    firsts, ends = [], []
    for part in parts:
        ranges = part.rows.ranges
        firsts.append(max(part.from_offset, ranges[0].start if ranges else 0))
        ends.append(ranges[-1].end if ranges else None)
    known = [end for end in ends if end is not None]
    sealed = parts[0].file.sealed
    return Wanted(
        partition=partitions.pop() if len(partitions) == 1 else None,
        first=min(firsts),
        end=max(known) if len(known) == len(ends) else None,
        from_ms=criteria.selection.from_ms,
        to_ms=criteria.selection.to_ms,
        keys=criteria.keys or None,
        index_sha256=None if sealed is None else sealed.index_sha256,
        records=parts[0].file.records,
    )


def rows_inside(batch: pa.RecordBatch, criteria: Criteria) -> pa.RecordBatch:
    """Return the rows with the wanted keys, headers and bytes in values, in their order.

    Paths into decoded values are left to the caller.

    Args:
        batch: Has the columns of `data_files.records.SCHEMA`.
        criteria: What is looked for.
    """
    if criteria.keys:
        # A null is in no set.
        batch = batch.filter(pc.is_in(batch["key"], binaries(sorted(criteria.keys))))
    if criteria.value_contains is not None:
        # A null in the mask drops the row.
        batch = batch.filter(pc.match_substring(batch["value"], criteria.value_contains))
    for name, value in criteria.headers:
        batch = _with_header(batch, name, value)
    return batch


def _with_header(batch: pa.RecordBatch, name: str, value: bytes) -> pa.RecordBatch:
    headers = batch["headers"]
    pairs = headers.flatten()
    if not len(pairs):
        return batch.slice(0, 0)
    wanted = pc.and_(
        pc.equal(pairs.field("key"), text(name)),
        pc.equal(pairs.field("value"), binaries([value])[0]),
    )
    # A record may have the same header twice.
    return batch.take(pc.unique(pc.list_parent_indices(headers).filter(wanted)))
