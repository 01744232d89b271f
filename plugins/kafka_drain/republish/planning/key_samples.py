"""Look at where some keys of an archive are, to tell which partitioner has put them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from upath import UPath

from kafka_drain.archive.topic_settings import read_topic_settings
from kafka_drain.data_files.reader import read_columns, topic_of
from kafka_drain.data_files.records import path_of
from kafka_drain.errors import DataFileError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.placement import CLIENTS, Fit, fitting
from kafka_drain.republish.planning.shards import ShardFile

#: Number of keys of a topic, and number of its partitions that they are taken from.
KEYS, PARTITIONS = 100, 10


def partitioner_notes(
    root: UPath, files: Mapping[TopicPartition, Sequence[ShardFile]], placement: str | int
) -> list[str]:
    """Return notes for users about the partitioner of the source's producers.

    Args:
        files: The files of each source partition.
        placement: Placement of keys in the target.

    Raises:
        DataFileError: When a file can't be read; names its path.
    """
    settings = read_topic_settings(root)
    notes = []
    for topic in sorted({tp.topic for tp in files}):
        numbers = sorted(tp.partition for tp in files if tp.topic == topic)
        # Evenly spread over all partitions.
        chosen = numbers[:: -(-len(numbers) // PARTITIONS) or 1]
        samples: dict[bytes, int] = {}
        for number in chosen:
            tp = TopicPartition(topic, number)
            newest = max(files[tp], key=lambda file: file.last)
            for key in _keys(root, newest, tp, -(-KEYS // len(chosen))):
                samples.setdefault(key, number)
        partitions = settings[topic].partitions if topic in settings else 0
        fit = fitting([*samples.items()], max(partitions, 1 + numbers[-1]))
        notes += note_of(topic, fit, placement)
    return notes


def note_of(topic: str, fit: Fit, placement: str | int) -> list[str]:
    """Return notes about a topic's keys; none if their producers place them alike."""
    if not fit.is_known or fit.placement == placement:
        return []
    here = CLIENTS[placement]
    seen = f"{fit.keys} keys of {topic} were looked at"
    if fit.placement is None:
        return [
            f"WARNING {seen}: no known partitioner explains their partitions. They are placed by "
            f"{here}; if producers place keys otherwise, new records of a key get into another "
            "partition than its old ones, so that they have no order"
        ]
    return [
        f"WARNING {seen}: they were placed by {CLIENTS[fit.placement]}, and now are by {here}. New "
        "records of a key will get into another partition than its old ones if the same producers "
        f"go on; --placement {fit.placement} places keys as they do"
    ]


def _keys(root: UPath, file: ShardFile, tp: TopicPartition, most: int) -> list[bytes]:
    """Return different keys of a partition, from the start of a file."""
    named = topic_of(file.path) is not None
    needed = ["partition", "offset"] + ["topic"] * (not named)
    try:
        path = path_of(str(root), file.path)
        for batch in read_columns(path, file.file_format, needed, ["key"]):
            return _keys_in(batch, tp, most, is_named=named)
    except DataFileError as error:
        raise DataFileError(f"{file.path}: {error}") from error
    return []


def _keys_in(
    batch: pa.RecordBatch, tp: TopicPartition, most: int, *, is_named: bool
) -> list[bytes]:
    if "key" not in batch.schema.names:
        return []
    rows = zip(
        batch["key"].to_pylist(),
        batch["partition"].to_pylist(),
        [tp.topic] * len(batch) if is_named else batch["topic"].to_pylist(),
        strict=True,
    )
    found: dict[bytes, None] = {}
    for key, partition, topic in rows:
        # Clients spread empty keys, too.
        if key and (topic, partition) == (tp.topic, tp.partition):
            found[key] = None
            if len(found) >= most:
                break
    return [*found]
