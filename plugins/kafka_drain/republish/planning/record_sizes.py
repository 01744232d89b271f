"""Find records that a target topic wouldn't take because of their size, before the first is sent.

A broker compares the size of a batch with `max.message.bytes`: as it was sent, and as it keeps it
if the topic's `compression.type` is another one. A record that is larger than a batch may be is
sent in a batch of its own, so that this is a matter of each record alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.batch_sizes import row_sizes
from kafka_drain.data_files.reader import read_records, record_bound, topic_of
from kafka_drain.data_files.records import path_of
from kafka_drain.data_files.rows import rows_of
from kafka_drain.data_files.scalars import number
from kafka_drain.errors import DataFileError
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import Progress, Ticker
from kafka_drain.republish.planning.row_filter import wanted_rows
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ShardFile

#: Compression of a producer (`producer.SETTINGS`, and Spark's sink).
SENT_WITH = "lz4"
#: Header of a batch (magic 2), in bytes.
BATCH_HEADER = 61
#: Maximum overhead of a record in its batch besides key, value and headers, and of one header.
OVERHEAD, HEADER_OVERHEAD = 100, 10
#: The headers of provenance: names, the longest name of a topic, two numbers.
PROVENANCE = 420
#: Compressors of the same name differ a little in what they make of the same bytes.
LIKENESS = 1.02

#: Values of compression.type that compress.
_CODECS = frozenset({"gzip", "lz4", "snappy", "zstd"})

_OPENED = 8

Header: TypeAlias = "tuple[str, str | bytes | None]"
AsSent: TypeAlias = "Callable[[pa.RecordBatch, TopicPartition], pa.RecordBatch]"


@dataclass(frozen=True, slots=True)
class Large:
    """A record that is too large.

    Attributes:
        path: Its file, relative to the archive.
        content: Size of key and value in bytes.
        batch: Size of the batch that it needs.
    """

    path: str
    offset: int
    content: int
    batch: int


def batch_bytes(payload: bytes, codec: str) -> int:
    """Return the size that a topic must take for a batch of one record.

    Args:
        payload: The record in its batch, without the batch's header.
        codec: The topic's `compression.type`.
    """
    raw = len(payload)
    # librdkafka sends a batch as it is if compression doesn't make it smaller.
    sent = min(raw, _compressed(payload, SENT_WITH))
    kept = {"producer": sent, SENT_WITH: sent, "uncompressed": raw}.get(codec)
    return BATCH_HEADER + max(sent, _compressed(payload, codec) if kept is None else kept)


def _compressed(payload: bytes, codec: str) -> int:
    if codec not in _CODECS:
        return len(payload)
    return int(LIKENESS * len(pa.compress(payload, codec=codec, asbytes=True)))


def payload_of(key: bytes | None, value: bytes | None, headers: Iterable[Header] | None) -> bytes:
    """Return a record as the only one of its batch (Kafka's protocol, magic 2)."""
    # Attributes, and the deltas of timestamp and offset.
    parts = [b"\0\0\0", _sized(key), _sized(value)]
    listed = list(headers or ())
    parts.append(_varint(len(listed)))
    for name, content in listed:
        parts.append(_sized(name.encode()))
        parts.append(_sized(content.encode() if isinstance(content, str) else content))
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _varint(value: int) -> bytes:
    left, found = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def large_records(
    root: str,
    files: Iterable[tuple[ShardFile, Mapping[TopicPartition, Rows]]],
    limit: int,
    codec: str,
    *,
    headers_of: Callable[[TopicPartition, int], list[Header]] | None = None,
    as_sent: AsSent | None = None,
    largest_request: int | None = None,
) -> Iterator[Large]:
    """Yield the selected records that a topic wouldn't take.

    A file is read only if what was written to it leaves that possible; each is opened, so that one
    whose key isn't there is found, too.

    Args:
        root: The archive's folder, a path or a URL.
        files: Files, each with the rows that are selected, by partition.
        limit: The topic's `max.message.bytes`.
        codec: The topic's `compression.type`.
        headers_of: Returns the headers that are added to a record.
        as_sent: Returns what is sent of selected records; None to send them as they are.
        largest_request: The largest batch before compression that the client itself takes, as
            Java's does (`topics.request_bytes`); None for no limit of its own.

    Raises:
        DataFileError: When a file can't be read; names its path.
        KeyUnavailableError: When a file is encrypted, and its key can't be had.
    """
    listed = list(files)
    room = limit - OVERHEAD - (PROVENANCE if headers_of else 0)

    def may_hold(file: ShardFile) -> bool:
        try:
            bound = record_bound(path_of(root, file.path), file.file_format)
        except DataFileError as error:
            raise DataFileError(f"{file.path}: {error}") from error
        return bound is None or as_sent is not None or bound > room

    with ThreadPoolExecutor(_OPENED) as pool:
        possible = list(pool.map(may_hold, [file for file, _ in listed]))
    reading = [each for each, is_possible in zip(listed, possible, strict=True) if is_possible]
    ticker = Ticker("check sizes", Progress("files", len(reading)))
    for place, (file, selected) in enumerate(reading):
        in_topic_folder = topic_of(file.path) is not None
        try:
            for batch in read_records(path_of(root, file.path), file.file_format):
                for tp, rows in selected.items():
                    wanted = wanted_rows(batch, tp, rows, in_topic_folder=in_topic_folder)
                    if as_sent is not None and wanted.num_rows:
                        wanted = as_sent(wanted, tp)
                    for one in _large(tp, wanted, room, headers_of):
                        size = one.size(limit, codec, largest_request)
                        if size > limit:
                            yield Large(file.path, one.offset, one.content, size)
        except DataFileError as error:
            raise DataFileError(f"{file.path}: {error}") from error
        ticker.at(place)


@dataclass(frozen=True, slots=True)
class _Possible:
    """A record that may be too large; see `Large`."""

    offset: int
    content: int
    payload: bytes

    def size(self, limit: int, codec: str, largest_request: int | None) -> int:
        """Return the size of its batch; compresses it only if that decides."""
        raw = BATCH_HEADER + len(self.payload)
        if raw <= limit:
            return raw
        if largest_request is not None and raw > largest_request:
            return raw
        return batch_bytes(self.payload, codec)


def _large(
    tp: TopicPartition,
    batch: pa.RecordBatch,
    room: int,
    headers_of: Callable[[TopicPartition, int], list[Header]] | None,
) -> Iterator[_Possible]:
    if not batch.num_rows:
        return
    sizes = row_sizes(batch, HEADER_OVERHEAD)
    for row in pc.indices_nonzero(pc.greater(sizes, number(room))).to_pylist():
        for key, value, headers, _, offset in rows_of(batch.slice(row, 1)):
            more = headers_of(tp, offset) if headers_of else []
            payload = payload_of(key, value, [*(headers or ()), *more])
            yield _Possible(offset, len(key or b"") + len(value or b""), payload)
