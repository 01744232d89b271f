"""The readers' view of an archive: all generations and windows, each offset once.

Available as a pyarrow dataset, or as a list of files for tools that read Parquet themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, archive_files, columns_of
from kafka_drain.archive.keys import refuse_encrypted
from kafka_drain.archive.receipts import Receipt, ReceiptError, receipt_at
from kafka_drain.config.sink_options import MILLISECONDS
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping
from kafka_drain.storage.paths import is_local, list_folder, quoted, read_bytes

__all__ = ["archive_dataset", "archive_paths", "sealed_paths", "segments_filter"]

_FORMATS = {"parquet": ds.ParquetFileFormat, "orc": ds.OrcFileFormat}

#: Maximum number of parts, each with its own bounds, that a topic's partitions are compared in.
TERMS = 32

_Held = tuple[OffsetRange, int]
_Wanted = dict[tuple[TopicPartition, str | None], list[OffsetRange]]


def archive_dataset(
    archive: str | Archive,
    *,
    include_unsealed: bool = True,
    segments: Iterable[Mapping[str, Any]] | None = None,
) -> ds.Dataset:
    """Return the records of an archive; data files are opened only when they are scanned.

    Covers exactly the files that `kafka-drain files` lists at this moment, without leftovers of
    killed tasks or repairs. If a file has since been removed or damaged, the scan fails; records
    are never dropped silently.

    Args:
        archive: The archive, or its folder: a path or a URL that fsspec knows.
        include_unsealed: Also read committed data that no receipt proves yet.
        segments: Only the files that hold records of these segments, as in the event of the
            archive's asset; `segments_filter` selects the records. Offsets alone don't tell them
            from those of a topic of the same name that was deleted before.

    Returns:
        A dataset with key, value, headers, partition, offset, timestamp (UTC), timestampType,
        topic, for ORC files timestampMillis, the exact time (null in files of older releases), and
        the columns named by folders. `date` and `hour` are strings, as in the folder names; null
        in generations whose folders don't name them.

    Raises:
        ArchiveError: When the folder isn't an archive.
        ConfigError: When the files are Avro or JSON, or encrypted.
        ManifestInvalidError: When manifest or receipts are damaged: the list would be incomplete.
    """
    wanted = None if segments is None else _wanted(segments)
    archive, files = _files(archive, include_unsealed, wanted)
    refuse_encrypted(
        archive.root,
        f"a dataset doesn't decrypt; use `kafka-drain find {quoted(archive.root)}`, or republish "
        "them",
    )
    formats = dict.fromkeys(file.file_format for file in files)
    unknown = [name for name in formats if name not in _FORMATS]
    if unknown:
        raise ConfigError(
            f"{archive.root} holds {' and '.join(unknown)} files, but pyarrow datasets read only "
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
    """Return a dataset filter that selects the records of some segments.

    Args:
        segments: Segments as in the event of the archive's asset: `offsets` holds, by
            `topic-partition`, ranges of start and end (exclusive).
    """
    ranges = _of_any_id(_wanted(segments))
    # Each layer has one range per partition: adjacent segments merge into one range.
    topics: dict[str, list[list[_Held]]] = {}
    for tp, held in ranges.items():
        layers = topics.setdefault(tp.topic, [])
        for number, one in enumerate(held):
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


def _wanted(segments: Iterable[Mapping[str, Any]]) -> _Wanted:
    """Return the offsets of segments by partition and topic id, which older events lack.

    Those of a partition are sorted and disjoint.
    """
    ranges: _Wanted = {}
    for segment in segments:
        for name, held in segment["offsets"].items():
            topic, _, partition = name.rpartition("-")
            key = TopicPartition(topic, int(partition)), segment.get("topics", {}).get(topic)
            ranges.setdefault(key, []).extend(OffsetRange(start, end) for start, end in held)
    return {key: merge(held) for key, held in ranges.items()}


def _of_any_id(wanted: _Wanted) -> dict[TopicPartition, list[OffsetRange]]:
    """Return offsets by partition alone; sorted and disjoint."""
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for (tp, _), held in wanted.items():
        ranges.setdefault(tp, []).extend(held)
    return {tp: merge(held) for tp, held in ranges.items()}


def _has_any(file: ArchiveFile, wanted: _Wanted) -> bool:
    """Return whether a file is sealed and spans any of some offsets, given sorted and disjoint."""
    return any(
        overlapping(wanted.get((each.tp, topic_id), ()), OffsetRange(each.first, each.last + 1))
        for each in (file.sealed.contents if file.sealed is not None else ())
        for topic_id in (file.topic_ids.get(each.tp.topic, ""), None)
    )


def _parts(layer: list[_Held], number: int) -> Iterator[list[_Held]]:
    size = -(-len(layer) // number)
    for start in range(0, len(layer), size):
        yield layer[start : start + size]


def _within(topic: str, held: list[_Held]) -> ds.Expression:
    """Return whether a record lies in its partition's range, given one range per partition.

    The cost per row doesn't depend on the number of ranges: the row's range is looked up. The
    conditions before that let pyarrow skip files and row groups by their statistics.
    """
    offset, partition = ds.field("offset"), ds.field("partition")
    # Partitions in Spark's Kafka source are 32-bit integers.
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
    """Return whether any term holds, as a balanced tree: pyarrow walks it recursively."""
    if len(terms) < 2:
        return terms[0] if terms else ds.scalar(False)
    half = len(terms) // 2
    return _any(terms[:half]) | _any(terms[half:])


def archive_paths(archive: str | Archive, *, include_unsealed: bool = True) -> list[str]:
    """Return the files that hold an archive's records, as absolute paths or URLs.

    For readers that take a list of files. A pattern such as `data/**/*.parquet` would also match
    leftovers of killed tasks, and files that have been replaced by others.

    Args:
        archive: The archive, or its folder: a path or a URL that fsspec knows.
        include_unsealed: Include committed files that no receipt proves yet.

    Raises:
        ArchiveError: When the folder isn't an archive.
        ManifestInvalidError: When manifest or receipts are damaged: the list would be incomplete.
    """
    archive, files = _files(archive, include_unsealed)
    return [str(archive.root / file.path) for file in files]


def sealed_paths(sealed: Mapping[str, Any], archive: Archive | None = None) -> list[str]:
    """Return the files that a run has sealed, as absolute paths or URLs.

    Maintenance may replace them by others at any later time: use them in the run that sealed them.

    Args:
        sealed: `sealed` in the result of the run's validation.
        archive: The archive, opened with other credentials than this process's own.

    Raises:
        ArchiveError: When a receipt is missing or damaged.
    """
    if len(sealed["paths"]) == sealed["files"]:
        return list(sealed["paths"])
    root = (archive or Archive.at(sealed["archive"])).root
    return [
        f"{sealed['archive'].rstrip('/')}/{file.path}"
        for entry in sealed["receipts"]
        for receipt in _receipts(root, entry)
        for file in receipt.files
    ]


def _receipts(root: UPath, entry: Mapping[str, Any]) -> list[Receipt]:
    """Return the receipts that an entry of a summary names."""
    folder, _, first = entry["first"].rpartition("/")
    last = entry["last"].rpartition("/")[2]
    # Not what a repair has moved aside, nor a copy beside it: all names are equally long.
    names = [
        name
        for name in sorted(list_folder(root / folder))
        if first <= name <= last and len(name) == len(first)
    ]
    try:
        found = [receipt_at(read_bytes(root / folder / n), f"{folder}/{n}") for n in names]
    except ReceiptError as error:
        raise ArchiveError(f"{root}: {error}") from error
    if len(found) != entry["receipts"]:
        raise ArchiveError(
            f"{root}/{folder} has {len(found)} receipts from {first} to {last}, but the run sealed "
            f"{entry['receipts']}; validate the archive"
        )
    return found


def _files(
    archive: str | Archive, include_unsealed: bool, wanted: _Wanted | None = None
) -> tuple[Archive, list[ArchiveFile]]:
    if not isinstance(archive, Archive):
        archive = Archive.at(archive)
    offsets = None if wanted is None else _of_any_id(wanted)
    files = archive_files(archive.snapshot(), offsets=offsets)
    if wanted is not None:
        files = [file for file in files if _has_any(file, wanted)]
    return archive, [file for file in files if include_unsealed or file.sealed]


def _schema(columns: list[str], *, with_milliseconds: bool) -> pa.Schema:
    """Return a record's columns as in Kafka's source, followed by those of the folders."""
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
            # Saves a request per file in an object store.
            file_size=file.bytes,
        )
        for file in files
    ]
    return ds.FileSystemDataset(fragments, schema, reader, filesystem)


def _guarantee(file: ArchiveFile) -> ds.Expression:
    """Return the guarantee of a file's folder names about its rows."""
    guarantee = ds.scalar(True)
    for name, value in file.folder_values.items():
        column = ds.field(name)
        guarantee &= column.is_null() if value is None else column == value
    return guarantee
