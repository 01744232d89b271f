"""What readers take of an archive: all generations and windows, each offset once.

As one pyarrow dataset, or as the list of files for what reads Parquet by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

from kafka_drain.archive import Archive
from kafka_drain.archive_files import ArchiveFile, archive_files, columns_of
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import ConfigError
from kafka_drain.locations import is_local

__all__ = ["archive_dataset", "archive_paths", "segments_filter"]

_FORMATS = {"parquet": ds.ParquetFileFormat, "orc": ds.OrcFileFormat}


def archive_dataset(archive: str | Archive, *, include_unsealed: bool = True) -> ds.Dataset:
    """Return the records of an archive; opens no data file until they are asked for.

    Reads what `kafka-drain files` lists at this moment, and nothing that a killed task or a
    repair has left behind. A file that is gone or damaged since is an error of the scan: the
    records are never silently fewer.

    Args:
        archive: The archive, or its folder: a path or a URL that fsspec knows.
        include_unsealed: Also read what is committed and not yet proven by a receipt.

    Returns:
        key, value, headers, partition, offset, timestamp (UTC), timestampType, topic, and the
        columns that folders name. `date` and `hour` are strings, as in the folders; null in
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
    schema = _schema(columns_of(files))
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
    wanted = ds.scalar(False)
    for segment in segments:
        for name, ranges in segment["offsets"].items():
            topic, _, partition = name.rpartition("-")
            offset = ds.field("offset")
            # Spark's Kafka source has partitions as integers of 32 bits.
            of_partition = ds.field("partition") == pa.scalar(int(partition), pa.int32())
            for start, end in ranges:
                within = (offset >= start) & (offset < end)
                wanted |= (ds.field("topic") == topic) & of_partition & within
    return wanted


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
    return archive, [f for f in archive_files(archive) if include_unsealed or f.sealed]


def _schema(columns: list[str]) -> pa.Schema:
    """Return the columns of a record as Kafka's source has them, then those of the folders."""
    record = [field for field in SCHEMA if field.name != "topic"]
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
