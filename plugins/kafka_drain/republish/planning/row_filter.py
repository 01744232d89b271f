"""Which rows of a batch are wanted: the same when they are counted and when they are sent."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.records import units_per_second
from kafka_drain.data_files.scalars import number, text
from kafka_drain.offsets import OffsetRange, TopicPartition, overlapping
from kafka_drain.republish.planning.selection import Rows

__all__ = ["wanted_rows"]


def wanted_rows(
    batch: pa.RecordBatch,
    source: TopicPartition,
    rows: Rows,
    from_offset: int = 0,
    *,
    in_topic_folder: bool,
) -> pa.RecordBatch:
    """Return those rows of a batch that are wanted, in the order that they have.

    A row without a timestamp isn't wanted where timestamps decide.

    Args:
        batch: Has `partition`, `offset`, `timestamp` where timestamps decide, and `topic` where
            no folder names it.
        source: The rows' partition. Its topic is "" for rows without one.
        rows: Which of its rows.
        from_offset: Only rows with this offset or a higher one.
        in_topic_folder: Whether a folder names the topic, and all rows are of it.
    """
    mask = pc.equal(batch["partition"], number(source.partition))
    if not in_topic_folder:
        topics = batch["topic"].fill_null(text(""))
        mask = pc.and_(mask, pc.equal(topics, text(source.topic)))
    offsets = batch["offset"]
    if from_offset > 0:
        mask = pc.and_(mask, pc.greater_equal(offsets, number(from_offset)))
    if rows.ranges is not None:
        mask = pc.and_(mask, _in_ranges(offsets, rows.ranges))
    if rows.has_times:
        mask = pc.and_(mask, _in_time(batch["timestamp"], rows))
    # A mask with a null isn't true of all rows, and the filter drops those rows.
    if pc.all(mask, skip_nulls=False).as_py():
        return batch
    return batch.filter(mask)


def _in_ranges(offsets: pa.Int64Array, ranges: Sequence[OffsetRange]) -> pa.BooleanArray:
    # As many rows, none of them inside.
    mask = pa.nulls(len(offsets)).is_valid()
    lowest, highest = (bound.as_py() for bound in pc.min_max(offsets).values())
    if lowest is None or highest < 0:
        return mask
    for r in overlapping(ranges, OffsetRange(max(lowest, 0), highest + 1)):
        inside = pc.and_(
            pc.greater_equal(offsets, number(r.start)), pc.less(offsets, number(r.end))
        )
        mask = pc.or_(mask, inside)
    return mask


def _in_time(times: pa.TimestampArray, rows: Rows) -> pa.BooleanArray:
    since = times.cast(pa.int64())
    per_second = units_per_second(times.type)

    def bound(ms: int) -> pa.Int64Scalar:
        # Rounded up: the first of the column's times that isn't before.
        return number(-(-ms * per_second // 1000))

    mask = times.is_valid()
    if rows.from_ms is not None:
        mask = pc.and_(mask, pc.greater_equal(since, bound(rows.from_ms)))
    if rows.to_ms is not None:
        mask = pc.and_(mask, pc.less(since, bound(rows.to_ms)))
    return mask
