"""Count the selected rows of a file, reading only the few columns that are needed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow.compute as pc

from kafka_drain.data_files.reader import read_columns
from kafka_drain.data_files.records import DataPath, milliseconds
from kafka_drain.data_files.scalars import number
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.row_filter import wanted_rows
from kafka_drain.republish.planning.selection import Rows


@dataclass(frozen=True, slots=True)
class RowCount:
    """The selected rows of one partition in a file.

    Attributes:
        records: Number of rows.
        zero_timestamps: Number of rows with timestamp 0, the start of 1970.
        first: Lowest offset; None when there are no rows.
        last: Highest offset; None when there are no rows.
        oldest_ms: Lowest timestamp; None when no row has one.
        newest_ms: Highest timestamp; None when no row has one.
    """

    records: int = 0
    zero_timestamps: int = 0
    first: int | None = None
    last: int | None = None
    oldest_ms: int | None = field(default=None, compare=False, repr=False)
    newest_ms: int | None = field(default=None, compare=False, repr=False)


def count_rows(
    path: DataPath, file_format: str, topic: str | None, tp: TopicPartition, rows: Rows
) -> RowCount:
    """Count a file's selected rows of one partition, in bounded memory.

    Args:
        topic: The topic according to the file's folder; None to read the topic from the file. A row
            without a topic counts as one of topic "".
        rows: The selected rows.

    Raises:
        DataFileError: When the file can't be read.
        FileNotFoundError: When the file doesn't exist.
    """
    if topic not in (None, tp.topic):
        return RowCount()
    needed = ["partition", "offset", "timestamp"] + ["topic"] * (topic is None)
    records, zero_timestamps = 0, 0
    bounds: list[int] = []
    times: list[int] = []
    for batch in read_columns(path, file_format, needed):
        wanted = wanted_rows(batch, tp, rows, in_topic_folder=topic is not None)
        if not wanted.num_rows:
            continue
        records += wanted.num_rows
        zero_timestamps += (
            pc.sum(pc.equal(wanted["timestamp"].cast("int64"), number(0))).as_py() or 0
        )
        bounds += (bound.as_py() for bound in pc.min_max(wanted["offset"]).values())
        known = pc.min_max(wanted["timestamp"]).values()
        times += (milliseconds(bound) for bound in known if bound.is_valid)
    return RowCount(
        records,
        zero_timestamps,
        *(most(bounds, default=None) for most in (min, max)),
        *(most(times, default=None) for most in (min, max)),
    )
