"""Check one committed file of the manifest: that it exists and is intact, and its contents.

Spark's executors use this module too; they don't need fsspec for local files.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import reduce
from operator import xor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.data_files.reader import (
    read_contents,
    read_offsets,
    rows_with_nul,
    topic_of,
)
from kafka_drain.data_files.records import DataPath, TimestampError, path_of
from kafka_drain.data_files.xxhash64 import record_hashes
from kafka_drain.errors import KEY_ERRORS, DataFileError
from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import TopicPartition
from kafka_drain.storage.outages import naming_outages

_CHUNK = 1 << 20
#: Files in an object store are read in 16 threads, each of which also holds a batch as Python
#: objects.
_BATCH_BYTES = 4 << 20


def read_file(
    root: str, data_name: str, sink_file: SinkFile, file_format: str
) -> CommittedFile | Finding:
    """Read one committed file, or return the finding about it.

    Args:
        data_name: The data folder, relative to the archive.
        sink_file: The file's entry in the manifest.
        file_format: The file's format.

    Raises:
        StoreUnavailableError: When the archive's store doesn't respond.
    """
    where = f"{data_name}/{sink_file.path}"
    path = path_of(root, where)
    try:
        with naming_outages(path):
            size = path.stat().st_size
        if size != sink_file.size:
            detail = f"{size:,} bytes; the manifest says {sink_file.size:,}"
            return Finding(Reason.FILE_SIZE, where, detail)
        sha256 = file_sha256(path)
        read = read_all(path, file_format, topic_of(sink_file.path))
        return CommittedFile(
            path=where,
            bytes=size,
            sha256=sha256,
            batch=sink_file.batch,
            **read._asdict(),
        )
    except FileNotFoundError:
        return Finding(Reason.FILE_MISSING, where, f"listed in manifest file {sink_file.log}")
    except DataFileError as error:
        return Finding(Reason.FILE_CORRUPT, where, str(error))
    except OSError as error:
        # A disk error, or a missing permission.
        return Finding(Reason.FILE_CORRUPT, where, f"can't be read: {error}")


class Contents(NamedTuple):
    """A file's contents; only its offsets are known if its key, or a timestamp, can't be had.

    The names are those of `CommittedFile`.
    """

    contents: tuple[FileOffsets, ...]
    fingerprint: str | None = None
    nul_header_names: bool | None = None
    locked: str = ""
    index_sha256: str | None = None


def read_all(path: DataPath, file_format: str, topic: str | None) -> Contents:
    """Read all records of a file, and return what it holds.

    Args:
        topic: Its topic; None to read the topic from the file.

    Raises:
        DataFileError: When it isn't a file of the format.
        OSError: When it is missing or can't be read.
        StoreUnavailableError: When its store doesn't respond.
    """
    value, nul_header_names = 0, False
    last: dict[TopicPartition, tuple[int, int]] = {}
    # Kafka's client cuts off such a name: what it reads of the record has another hash.
    unlike: set[tuple[int, int]] = set()

    def look(batch: pa.RecordBatch) -> None:
        nonlocal value, nul_header_names
        for name, rows, hashes in record_hashes(batch, topic):
            value = reduce(xor, hashes, value)
            for number, newest in last_records(rows, hashes).items():
                tp = TopicPartition(name or "", number)
                last[tp] = max(newest, last.get(tp, newest))
        for row in rows_with_nul(batch):
            nul_header_names = True
            unlike.add((batch["partition"][row].as_py(), batch["offset"][row].as_py()))

    index: list[str] = []
    try:
        offsets = read_contents(path, file_format, topic, _BATCH_BYTES, look, index.append)
    except TimestampError:
        return Contents(tuple(read_offsets(path, file_format, topic)))
    except KEY_ERRORS as error:
        return Contents(tuple(read_offsets(path, file_format, topic)), locked=str(error))
    return Contents(
        tuple(
            held
            if (held.tp.partition, held.last) in unlike
            else replace(held, last_hash=f"{last[held.tp][1]:016x}")
            for held in offsets
        ),
        f"{value:016x}",
        nul_header_names,
        index_sha256=index[0] if index else None,
    )


def last_records(rows: pa.RecordBatch, hashes: list[int]) -> dict[int, tuple[int, int]]:
    """Return offset and hash of the record with the highest offset, by partition.

    Args:
        rows: Records of one topic.
    """
    if not rows.num_rows:
        return {}
    offsets, partitions = rows["offset"], rows["partition"]
    bounds = pc.min_max(partitions)
    if bounds["min"].equals(bounds["max"]):
        highest = pc.max(offsets)
        return {
            bounds["min"].as_py(): (highest.as_py(), hashes[pc.index(offsets, highest).as_py()])
        }
    found: dict[int, tuple[int, int]] = {}
    places = zip(partitions.to_pylist(), offsets.to_pylist(), hashes, strict=True)
    for number, offset, value in places:
        if offset >= found.get(number, (0, 0))[0]:
            found[number] = (offset, value)
    return found


def file_sha256(path: DataPath) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        OSError: When the file can't be read.
        StoreUnavailableError: When its store doesn't respond.
    """
    hashed = hashlib.sha256()
    with naming_outages(path), path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()
