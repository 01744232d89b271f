"""Check offsets of Parquet files from their footers only, as far as the statistics allow.

Dense statistics (as many rows as offsets between minimum and maximum) prove a row group complete
only if no offset occurs twice: a duplicate in place of a lost record looks the same. The data isn't
read at all, so nothing can be sealed. This measures the minimum cost of opening every file.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import read_state
from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.data_files.reader import topic_of
from kafka_drain.errors import DataFileError
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge
from kafka_drain.proof.offset_checks import check_offsets, missing_offsets, segments

__all__ = ["check_footers"]


def check_footers(folder: str) -> dict[str, Any]:
    """Check the unsealed batches of an archive's open generation.

    Returns:
        The number of records, and whether everything is complete.
    """
    snapshot = Archive.at(folder).snapshot()
    generation = snapshot.open_generation
    assert generation is not None
    state = read_state(snapshot, generation)
    listing = generation.list_data_files()
    fits = all(listing.get(new.path) == new.size for new in state.new)
    files = [_read(generation, new) for new in state.new]
    parts = segments(
        state.sealed_ends, state.checkpoint, state.last_committed, state.last_sealed + 1
    )
    wrong = [*state.findings, *missing_offsets(parts, files), *check_offsets(parts, files)]
    return {
        "complete": fits and not wrong and listing.keys() == state.manifest.files.keys(),
        "records": sum(content.records for file in files for content in file.contents),
    }


def _read(generation: Generation, new: SinkFile) -> CommittedFile:
    contents = tuple(footer_offsets(generation.data / new.path, topic_of(new.path) or ""))
    return CommittedFile(f"{generation.data_name}/{new.path}", new.size, "", contents, new.batch)


def footer_offsets(path: UPath, topic: str) -> list[FileOffsets]:
    """Return the offsets of each partition in a file.

    Raises:
        DataFileError: If the statistics don't suffice, so that the columns have to be read.
    """
    with path.open("rb") as source:
        footer = pq.ParquetFile(source).metadata
    held: dict[TopicPartition, list[OffsetRange]] = {}
    times: dict[TopicPartition, list[int]] = {}
    rows: dict[TopicPartition, int] = {}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        bounds = _bounds(group)
        low, high = bounds["partition"]
        first, last = bounds["offset"]
        if low != high or group.num_rows != last - first + 1:
            raise DataFileError(f"{path}: row group {number} isn't one dense range of a partition")
        tp = TopicPartition(topic, low)
        held.setdefault(tp, []).append(OffsetRange(first, last + 1))
        times.setdefault(tp, []).extend(bounds["timestamp"])
        rows[tp] = rows.get(tp, 0) + group.num_rows
    if any(rows[tp] != count(merge(held[tp])) for tp in held):
        raise DataFileError(f"{path}: two row groups hold the same offsets")
    return [
        FileOffsets(
            tp=tp,
            ranges=tuple(merge(held[tp])),
            records=rows[tp],
            first_timestamp=min(times[tp]),
            last_timestamp=max(times[tp]),
        )
        for tp in sorted(held)
    ]


def _bounds(group: pq.RowGroupMetaData) -> dict[str, tuple[int, int]]:
    """Return minimum and maximum of the three columns; timestamps in milliseconds."""
    bounds = {}
    for number in range(group.num_columns):
        column = group.column(number)
        name = column.path_in_schema
        if name not in ("partition", "offset", "timestamp"):
            continue
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max or statistics.null_count:
            raise DataFileError(f"column {name} has no statistics that bound it")
        low, high = statistics.min_raw, statistics.max_raw
        if name == "timestamp":
            low, high = low // 1000, high // 1000
        bounds[name] = (low, high)
    if len(bounds) != 3:
        raise DataFileError(f"has statistics of {sorted(bounds)} only")
    return bounds
