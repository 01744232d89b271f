"""Find records whose header names Kafka's client can't send, before the first record is sent.

librdkafka cuts a header name off at a NUL, and would send the header under another name.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_drain.data_files.reader import may_have_nul_names, offset_of_nul, read_columns, topic_of
from kafka_drain.data_files.records import path_of
from kafka_drain.errors import DataFileError, SourceRecordError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.row_filter import wanted_rows
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ShardFile


def nul_error(
    source: TopicPartition, offset: int, said: str, *, follows: bool = False, changes: bool = False
) -> SourceRecordError:
    """Return the error for a record with a NUL in a header name.

    Args:
        source: The record's partition.
        said: The error's statement about records, such as "nothing was sent".
        follows: Whether the run is a mirror's, whose request can't change.
        changes: Whether the run filters or changes records, for which Spark's sink isn't used.
    """
    way_out = (
        "Leave the record out (offsets), or send it with delivery at_least_once: Spark's Kafka "
        "sink keeps such names"
    )
    if changes:
        way_out = "Leave the record out (filter, offsets), or its header (--change and a function)"
    if follows:
        way_out = (
            "Start another mirror (--run-name; run_name in Airflow) into an empty topic, with "
            "--change and a function that leaves the record or the header out"
        )
    return SourceRecordError(
        f"the record at offset {offset:,} of {source} has a header with a NUL in its name, which "
        f"librdkafka would cut off there; {said}. {way_out}"
    )


def refuse_nul(
    root: str,
    file: ShardFile,
    selected: Mapping[TopicPartition, Rows],
    *,
    follows: bool = False,
) -> None:
    """Refuse a file with a selected record that has a NUL in a header name.

    Needed for a file whose receipt doesn't say that none has.

    Only what this needs is read, in bounded memory: the columns of Parquet and ORC at 0.1 µs per
    record, the text of JSON at 2 µs. Avro is decoded as a whole, at 4 to 9 µs per record.

    Args:
        root: The archive's folder, a path or a URL.
        selected: Its rows to be sent, by partition.
        follows: Whether the run is a mirror's.

    Raises:
        SourceRecordError: Names the record.
        DataFileError: When the file can't be read; names its path.
        FileNotFoundError: When the file doesn't exist.
    """
    in_topic_folder = topic_of(file.path) is not None
    needed = ["partition", "offset"] + ["topic"] * (not in_topic_folder)
    needed += ["timestamp"] * any(rows.has_times for rows in selected.values())
    path = path_of(root, file.path)
    try:
        if not may_have_nul_names(path, file.file_format):
            return
        for batch in read_columns(path, file.file_format, needed, ["headers"]):
            if "headers" not in batch.schema.names:
                return
            if offset_of_nul(batch) is None:
                continue
            for source, rows in sorted(selected.items(), key=lambda item: item[0]):
                wanted = wanted_rows(batch, source, rows, in_topic_folder=in_topic_folder)
                offset = offset_of_nul(wanted)
                if offset is not None:
                    raise nul_error(source, offset, "nothing was sent", follows=follows)
    except DataFileError as error:
        raise DataFileError(f"{file.path}: {error}") from error
