"""A Parquet archive as an Iceberg table: its sealed files, registered where they lie.

    look      what the table holds, and then which sealed files readers of the archive take
    describe  the footer of each file that the table lacks: rows, and the bounds of its columns
    commit    one snapshot: new files in, files that others stand for out

Killed before the commit, the table is as it was; run again, it goes on. Nothing of the archive is
written, moved or rewritten. Needs pyiceberg: `kafka-drain[iceberg]`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, archive_files, columns_of
from kafka_drain.config.sink_options import PARTITION_COLUMNS
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import ConfigError, MachineError, ManifestInvalidError, TransientError
from kafka_drain.storage.paths import is_local

try:
    from pyiceberg.catalog import Catalog
    from pyiceberg.exceptions import CommitFailedException, ValidationError
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.table import Table, TableProperties, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.typedef import Record
except ImportError as error:
    raise MachineError(
        f"kafka_drain.iceberg needs the Python package pyiceberg ({error}); install it beside "
        "kafka-drain, as kafka-drain[iceberg]"
    ) from error

__all__ = ["Registration", "register_archive"]

#: Without these, a table of another's files isn't safe; they are set where they are missing.
_SAFE = {
    # Expiring snapshots or purging the table must not delete the archive's files.
    "gc.enabled": "false",
    # pyiceberg would add the same files to what another run has committed meanwhile.
    TableProperties.COMMIT_NUM_RETRIES: "0",
}

#: What a table that is made here has besides: small metadata, however often files are added.
_DEFAULTS = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    # Nobody looks for a range of raw values, and they may be secret.
    "write.metadata.metrics.column.value": "counts",
}

#: So many footers are read at once.
_LANES = 16


@dataclass(frozen=True, slots=True)
class Registration:
    """What a table holds after a registration.

    Attributes:
        table: The table's name.
        added: Files that this run has added.
        removed: Files that this run has taken out, as others stand for them or they are deleted.
        files: All its files.
        records: All its records.
        snapshot_id: The current snapshot; None while the table never held a file.
    """

    table: str
    added: int
    removed: int
    files: int
    records: int
    snapshot_id: int | None


def register_archive(archive: str | Archive, catalog: Catalog, table: str) -> Registration:
    """Make an Iceberg table hold exactly the sealed files of an archive, in one commit.

    A table that doesn't exist is made. Run again, it adds what was sealed since, and takes out
    what compaction, retention or a reprocess has replaced; no file is ever in it twice.

    Args:
        archive: The archive, or its folder: a path or a URL that fsspec knows.
        catalog: Where the table is, as `pyiceberg.catalog.load_catalog` returns it. Its file
            system has to reach the archive.
        table: The table's name with its namespace, which exists.

    Raises:
        ArchiveError: When the folder is no archive.
        ConfigError: When the archive holds other files than Parquet, the table holds what isn't
            the archive's, or their columns don't fit.
        ManifestInvalidError: When manifest or receipts are damaged, or a sealed file isn't what
            its receipt says.
        TransientError: When another run has changed the table meanwhile: nothing was committed.
    """
    if not isinstance(archive, Archive):
        archive = Archive.at(archive)
    archive.require()
    root = _location(archive, "")
    found = _open(catalog, table, root)
    # The table first: what another run knows of a later archive makes this commit fail.
    held = _held(found, root)
    sealed = [file for file in archive_files(archive.snapshot()) if file.sealed]
    _require_parquet(archive, sealed)
    wanted = {_location(archive, file.path): file for file in sealed}
    missing = {place: file for place, file in wanted.items() if place not in held}
    gone = [file for place, file in held.items() if place not in wanted]
    if missing or gone:
        with ThreadPoolExecutor(_LANES) as pool:
            footers = list(pool.map(partial(_footer, found.io), missing.items()))
        try:
            with found.transaction() as transaction:
                _fit_columns(transaction, footers, columns_of(sealed))
                new = _describe(transaction.table_metadata, missing, footers)
                _replace(transaction, new, gone)
        except CommitFailedException as error:
            raise TransientError(
                f"table {table} was changed by another run meanwhile, and nothing was registered; "
                f"run again ({error})"
            ) from error
    snapshot = found.current_snapshot()
    return Registration(
        table=table,
        added=len(missing),
        removed=len(gone),
        files=len(wanted),
        records=sum(file.records or 0 for file in sealed),
        snapshot_id=snapshot.snapshot_id if snapshot else None,
    )


def _location(archive: Archive, path: str) -> str:
    """Return a file's place as all engines take it: a local one with its scheme, S3's as s3."""
    place = str(archive.root / path) if path else str(archive.root)
    if is_local(archive.root):
        # No `as_uri`: engines take it as it stands, and would look for the percent signs.
        return "file://" + place.removeprefix("file://")
    return "s3://" + place.removeprefix("s3a://") if place.startswith("s3a://") else place


def _open(catalog: Catalog, name: str, root: str) -> Table:
    """Load the table, or make it; its metadata must not lie among the archive's files."""
    if not catalog.table_exists(name):
        schema = pa.schema([*SCHEMA.remove(SCHEMA.get_field_index("topic")), SCHEMA.field("topic")])
        catalog.create_table_if_not_exists(name, schema, properties={**_SAFE, **_DEFAULTS})
    table = catalog.load_table(name)
    place = table.location() if "://" in table.location() else f"file://{table.location()}"
    if f"{place}/".startswith(f"{root}/") or f"{root}/".startswith(f"{place}/"):
        raise ConfigError(
            f"table {name} lies in {place}, the archive in {root}: cleaning up the one would "
            "delete the other; drop the table, and make it in a warehouse of its own"
        )
    if any(table.properties.get(key) != value for key, value in _SAFE.items()):
        with table.transaction() as transaction:
            transaction.set_properties(_SAFE)
    return table


def _held(table: Table, root: str) -> dict[str, DataFile]:
    """Return the files that the table's current snapshot holds, by place."""
    held: dict[str, DataFile] = {}
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content != ManifestContent.DATA:
            raise _foreign(table, "deleted rows", root)
        for entry in manifest.fetch_manifest_entry(table.io):
            place = entry.data_file.file_path
            if not place.startswith(f"{root}/"):
                raise _foreign(table, place, root)
            held[place] = entry.data_file
    return held


def _foreign(table: Table, what: str, root: str) -> ConfigError:
    name = ".".join(table.name())
    return ConfigError(
        f"table {name} holds {what}, which isn't of the archive {root}: records would be in it "
        "twice, or come back; register the archive as a table that nobody else writes to (for an "
        "archive that was moved, drop the table, without purge, and register it again)"
    )


def _require_parquet(archive: Archive, files: Iterable[ArchiveFile]) -> None:
    others = sorted({file.file_format for file in files} - {"parquet"})
    if others:
        raise ConfigError(
            f"{archive.root} holds {' and '.join(others)} files, an Iceberg table takes Parquet "
            "files as they are; drain it again as Parquet with `kafka-drain reprocess`, or read it "
            "with kafka_drain_spark.reader.read_archive"
        )


def _fit_columns(
    transaction: Transaction, footers: Iterable[pq.FileMetaData], folders: Collection[str]
) -> None:
    """Give the table the columns of new files, and those of their folders as partitions."""
    schemas = [footer.schema.to_arrow_schema().remove_metadata() for footer in footers]
    schemas.append(pa.schema([pa.field(name, pa.string()) for name in folders]))
    for schema in dict.fromkeys(schemas):
        try:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
        except (ValidationError, ValueError) as error:
            raise ConfigError(
                f"a column's type has changed in a way that Iceberg doesn't know: {error}; compact "
                "the closed generations (`kafka-drain maintain --apply`), which writes them anew, "
                "and register the archive as a new table"
            ) from error
    metadata = transaction.table_metadata
    schema = metadata.schema()
    names = {schema.find_column_name(field.source_id): field for field in _spec(metadata)}
    strange = [
        str(name)
        for name, field in names.items()
        if name not in PARTITION_COLUMNS or not isinstance(field.transform, IdentityTransform)
    ]
    if strange:
        raise ConfigError(
            f"the table is partitioned by {', '.join(strange)}, which the archive's "
            "folders don't tell; register the archive as a new table"
        )
    with transaction.update_spec() as update:
        for name in folders:
            if name not in names:
                update.add_identity(name)
    # The files have no ids of columns: by their names, these are told.
    mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
    transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def _describe(
    metadata: TableMetadata, files: Mapping[str, ArchiveFile], footers: Iterable[pq.FileMetaData]
) -> list[DataFile]:
    """Make of files and their footers what a manifest says of them."""
    columns = compute_statistics_plan(metadata.schema(), metadata.properties)
    ids = parquet_path_to_id_mapping(metadata.schema())
    return [
        DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=place,
            file_format=FileFormat.PARQUET,
            partition=Record(*_partition(metadata, file)),
            file_size_in_bytes=file.bytes,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **data_file_statistics_from_parquet_metadata(footer, columns, ids).to_serialized_dict(),
        )
        for (place, file), footer in zip(files.items(), footers, strict=True)
    ]


def _partition(metadata: TableMetadata, file: ArchiveFile) -> list[str | None]:
    """Return what a file's folders say of its rows, in the order of the table's partitions."""
    values = file.folder_values
    names = [metadata.schema().find_column_name(field.source_id) for field in _spec(metadata)]
    if "topic" in names and "topic" not in values and file.sealed:
        topics = sorted({content.tp.topic for content in file.sealed.contents})
        if len(topics) != 1:
            raise ConfigError(
                f"{file.path} holds records of {', '.join(topics)}, where other files have a "
                "folder for each topic, by which the table is partitioned; reprocess the archive "
                "with one `partition_by`"
            )
        values["topic"] = topics[0]
    return [values.get(str(name)) for name in names]


def _replace(transaction: Transaction, new: Iterable[DataFile], gone: Collection[DataFile]) -> None:
    """Add files and take others out, in one snapshot."""
    update = transaction.update_snapshot()
    with update.overwrite() if gone else update.merge_append() as snapshot:
        for file in new:
            snapshot.append_data_file(file)
        for file in gone:
            snapshot.delete_data_file(file)


def _footer(io: FileIO, item: tuple[str, ArchiveFile]) -> pq.FileMetaData:
    """Read what a sealed file says of itself, as those will who query the table."""
    place, file = item
    try:
        with io.new_input(place).open() as stream:
            footer = pq.read_metadata(stream)
    except FileNotFoundError as error:
        raise ManifestInvalidError(
            f"{place} is sealed, and gone; run again if maintenance was running, else `kafka-drain "
            "validate`"
        ) from error
    if footer.num_rows != file.records:
        raise ManifestInvalidError(
            f"{place} holds {footer.num_rows:,} records, its receipt says {file.records:,}; run "
            "`kafka-drain validate --deep`"
        )
    return footer


def _spec(metadata: TableMetadata) -> tuple[PartitionField, ...]:
    return metadata.spec().fields
