"""Filter the selected rows of a batch, in the same way for counting and for sending."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.records import units_per_second
from kafka_drain.data_files.scalars import number, text
from kafka_drain.offsets import OffsetRange, TopicPartition, overlapping
from kafka_drain.republish.planning.selection import Rows


def wanted_rows(
    batch: pa.RecordBatch,
    source: TopicPartition,
    rows: Rows,
    from_offset: int = 0,
    *,
    in_topic_folder: bool,
) -> pa.RecordBatch:
    """Return the selected rows of a batch, in their order.

    If the selection has times, rows without a timestamp are left out.

    Args:
        batch: Has the columns `partition` and `offset`; `timestamp` if the selection has times; and
            `topic` if the file isn't in a topic's folder.
        source: The rows' partition. Its topic is "" for rows without one.
        rows: The selected rows.
        from_offset: Only rows with this offset or a higher one.
        in_topic_folder: Whether the file is in a topic's folder, so that all rows are of that
            topic.
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
    # If the mask has a null, `all` isn't true, and the filter drops the rows with nulls.
    if pc.all(mask, skip_nulls=False).as_py():
        return batch
    return batch.filter(mask)


def _in_ranges(offsets: pa.Int64Array, ranges: Sequence[OffsetRange]) -> pa.BooleanArray:
    # A mask of the same length, all false.
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
        # Rounded up: the first time in the column's unit that isn't before the bound.
        return number(-(-ms * per_second // 1000))

    mask = times.is_valid()
    if rows.from_ms is not None:
        mask = pc.and_(mask, pc.greater_equal(since, bound(rows.from_ms)))
    if rows.to_ms is not None:
        mask = pc.and_(mask, pc.less(since, bound(rows.to_ms)))
    return mask
