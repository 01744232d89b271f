"""What readers take of an archive: all generations and windows, each offset once.

As one pyarrow dataset, or as the list of files for what reads Parquet by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, archive_files, columns_of
from kafka_drain.config.sink_options import MILLISECONDS
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import ConfigError
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.storage.paths import is_local

__all__ = ["archive_dataset", "archive_paths", "segments_filter"]

_FORMATS = {"parquet": ds.ParquetFileFormat, "orc": ds.OrcFileFormat}

#: A filter compares a topic's partitions in so many parts, each with bounds of its own.
TERMS = 32

_Held = tuple[OffsetRange, int]


def archive_dataset(archive: str | Archive, *, include_unsealed: bool = True) -> ds.Dataset:
    """Return the records of an archive; opens no data file until they are asked for.

    Reads what `kafka-drain files` lists at this moment, and nothing that a killed task or a
    repair has left behind. A file that is gone or damaged since is an error of the scan: the
    records are never silently fewer.

    Args:
        archive: The archive, or its folder: a path or a URL that fsspec knows.
        include_unsealed: Also read what is committed and not yet proven by a receipt.

    Returns:
        key, value, headers, partition, offset, timestamp (UTC), timestampType, topic, of ORC files
        timestampMillis, the exact time (null in files of older releases), and the columns that
        folders name. `date` and `hour` are strings, as in the folders; null in
        generations whose folders don't name them.

    Raises:
        ArchiveError: When the folder is no archive.
        ConfigError: When the files are Avro or JSON.
        ManifestInvalidError: When manifest or receipts are damaged: the list would not be whole.
    """
    archive, files = _files(archive, include_unsealed)
    formats = dict.fromkeys(file.file_format for file in files)
    unknown = [name for name in formats if name not in _FORMATS]
    if unknown:
        raise ConfigError(
            f"{archive.root} holds {' and '.join(unknown)} files, pyarrow's datasets read "
            f"{' and '.join(_FORMATS)}; read it with kafka_drain_spark.reader.read_archive"
        )
    schema = _schema(columns_of(files), with_milliseconds="orc" in formats)
    filesystem = _filesystem(archive)
    parts = [
        _dataset([f for f in files if f.file_format == name], archive, name, schema, filesystem)
        for name in formats
    ]
    return parts[0] if len(parts) == 1 else ds.UnionDataset(schema, parts)


def segments_filter(segments: Iterable[Mapping[str, Any]]) -> ds.Expression:
    """Return the filter of an archive's dataset that leaves what segments hold.

    Args:
        segments: As the event of the archive's asset tells them: `offsets`, by `topic-partition`
            ranges of first and end (not part of it).
    """
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for segment in segments:
        for name, held in segment["offsets"].items():
            topic, _, partition = name.rpartition("-")
            tp = TopicPartition(topic, int(partition))
            ranges.setdefault(tp, []).extend(OffsetRange(start, end) for start, end in held)
    # Each layer has one range of a partition: segments that follow one another are one.
    topics: dict[str, list[list[_Held]]] = {}
    for tp, held in ranges.items():
        layers = topics.setdefault(tp.topic, [])
        for number, one in enumerate(merge(held)):
            if number == len(layers):
                layers.append([])
            layers[number].append((one, tp.partition))
    return _any(
        [
            _within(topic, part)
            for topic, layers in topics.items()
            for layer in layers
            for part in _parts(sorted(layer), max(TERMS // len(layers), 1))
        ]
    )


def _parts(layer: list[_Held], number: int) -> Iterator[list[_Held]]:
    size = -(-len(layer) // number)
    for start in range(0, len(layer), size):
        yield layer[start : start + size]


def _within(topic: str, held: list[_Held]) -> ds.Expression:
    """Return whether a record is within the range of its partition, of several such.

    The cost of a row doesn't depend on how many there are: its range is looked up. What comes
    before that lets pyarrow skip files and row groups by their statistics.
    """
    offset, partition = ds.field("offset"), ds.field("partition")
    # Spark's Kafka source has partitions as integers of 32 bits.
    partitions = pa.array([number for _, number in held], pa.int32())
    at = pc.index_in(partition, value_set=partitions)
    starts, ends = [r.start for r, _ in held], [r.end for r, _ in held]
    near = (offset >= min(starts)) & (offset < max(ends))
    here = (ds.field("topic") == topic) & partition.isin(partitions) & near
    if len(set(starts)) == len(set(ends)) == 1:
        return here
    return here & (offset >= _choose(at, starts)) & (offset < _choose(at, ends))


def _choose(at: ds.Expression, values: list[int]) -> ds.Expression:
    return pc.choose(at, *(pc.scalar(value) for value in values))


def _any(terms: list[ds.Expression]) -> ds.Expression:
    """Return whether one of the terms holds: a flat tree, as pyarrow walks it recursively."""
    if len(terms) < 2:
        return terms[0] if terms else ds.scalar(False)
    half = len(terms) // 2
    return _any(terms[:half]) | _any(terms[half:])


def archive_paths(archive: str | Archive, *, include_unsealed: bool = True) -> list[str]:
    """Return the files that hold an archive's records, as absolute paths or URLs.

    For readers that take a list of files. A pattern such as `data/**/*.parquet` would also find
    what killed tasks have left behind, and files whose records others hold by now.

    Args:
        archive: The archive, or its folder: a path or a URL that fsspec knows.
        include_unsealed: Also files that are committed and not yet proven by a receipt.

    Raises:
        ArchiveError: When the folder is no archive.
        ManifestInvalidError: When manifest or receipts are damaged: the list would not be whole.
    """
    archive, files = _files(archive, include_unsealed)
    return [str(archive.root / file.path) for file in files]


def _files(archive: str | Archive, include_unsealed: bool) -> tuple[Archive, list[ArchiveFile]]:
    if not isinstance(archive, Archive):
        archive = Archive.at(archive)
    return archive, [f for f in archive_files(archive.snapshot()) if include_unsealed or f.sealed]


def _schema(columns: list[str], *, with_milliseconds: bool) -> pa.Schema:
    """Return the columns of a record as Kafka's source has them, then those of the folders."""
    record = [field for field in SCHEMA if field.name != "topic"]
    if with_milliseconds:
        record.append(pa.field(MILLISECONDS, pa.int64()))
    named = [pa.field(name, pa.string()) for name in columns if name != "topic"]
    return pa.schema([*record, SCHEMA.field("topic"), *named])


def _filesystem(archive: Archive) -> FileSystem:
    if is_local(archive.root):
        return LocalFileSystem()
    return PyFileSystem(FSSpecHandler(archive.root.fs))


def _dataset(
    files: list[ArchiveFile],
    archive: Archive,
    file_format: str,
    schema: pa.Schema,
    filesystem: FileSystem,
) -> ds.Dataset:
    reader = _FORMATS[file_format]()
    fragments = [
        reader.make_fragment(
            (archive.root / file.path).path,
            filesystem=filesystem,
            partition_expression=_guarantee(file),
            # Spares an object store a request for each file.
            file_size=file.bytes,
        )
        for file in files
    ]
    return ds.FileSystemDataset(fragments, schema, reader, filesystem)


def _guarantee(file: ArchiveFile) -> ds.Expression:
    """Return what the file's folders say of its rows."""
    guarantee = ds.scalar(True)
    for name, value in file.folder_values.items():
        column = ds.field(name)
        guarantee &= column.is_null() if value is None else column == value
    return guarantee
