"""Registration of a Parquet archive as an Iceberg table, with its sealed files in place.

    look      read what the table holds, then which sealed files the archive's readers use
    describe  read the footer of each file that the table lacks: rows and column bounds
    commit    add new files and remove replaced ones, in one snapshot

A run that is killed before the commit leaves the table unchanged; the next run resumes. The archive
is never written, moved or rewritten. Needs pyiceberg: `kafka-drain[iceberg]`.

Beyond pyiceberg's documented API it uses the functions of `pyiceberg.io.pyarrow` that turn a footer
into a manifest entry, and `append_data_file` and `delete_data_file` of an update: the documented
`add_files` takes no partition values from folders, and can't remove files in the same snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, archive_files, columns_of
from kafka_drain.archive.keys import refuse_encrypted
from kafka_drain.config.sink_options import PARTITION_COLUMNS
from kafka_drain.config.table import TableOptions
from kafka_drain.data_files.parquet_footer import KeptReads, check_footer
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import (
    ConfigError,
    DataFileError,
    KafkaDrainError,
    MachineError,
    ManifestInvalidError,
    TransientError,
)
from kafka_drain.storage.paths import is_local, quoted

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import (
        AuthorizationExpiredError,
        BadRequestError,
        CommitFailedException,
        ForbiddenError,
        NoSuchNamespaceError,
        NotInstalledError,
        OAuthError,
        UnauthorizedError,
        ValidationError,
    )
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
    from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema
except ImportError as error:
    raise MachineError(
        f"kafka_drain.iceberg needs the Python package pyiceberg ({error}); install it alongside "
        "kafka-drain, as kafka-drain[iceberg]"
    ) from error

__all__ = ["Registration", "register_archive"]

#: A catalog's answers that stay the same until its configuration changes.
_REFUSALS = (
    *(AuthorizationExpiredError, BadRequestError, ForbiddenError, OAuthError, UnauthorizedError),
)

#: What requests raises of a URI, with the URI.
_BAD_URIS = (InvalidSchema, InvalidURL, MissingSchema)

#: Required for a table over another owner's files; set if missing.
_SAFE = {
    # Expiring snapshots or purging the table must not delete the archive's files.
    "gc.enabled": "false",
    # On a retry, pyiceberg would add the same files on top of another run's commit.
    TableProperties.COMMIT_NUM_RETRIES: "0",
}

#: Further properties of a table created here: metadata stays small however often files are added.
_DEFAULTS = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    # No contents of records: bounds of keys and values would stay in old metadata after an erasure,
    # and hardly rule out a file, since files aren't sorted by them.
    TableProperties.DEFAULT_WRITE_METRICS_MODE: "counts",
    **{
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{name}": "full"
        for name in ("partition", "offset", "timestamp")
    },
}

#: Number of footers read concurrently.
_LANES = 16


@dataclass(frozen=True, slots=True)
class Registration:
    """The result of a registration.

    Attributes:
        table: Name of the table.
        added: Number of files added by this run.
        removed: Number of files removed by this run, because they were replaced or deleted.
        files: Number of files in the table.
        records: Number of records in the table.
        snapshot_id: The current snapshot; None if the table has never held a file.
    """

    table: str
    added: int
    removed: int
    files: int
    records: int
    snapshot_id: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self)


def register_in_catalog(
    archive: Archive, options: TableOptions, properties: Mapping[str, Any] = MappingProxyType({})
) -> Registration:
    """Register an archive in a catalog that pyiceberg's configuration or `properties` describe.

    Args:
        archive: The archive.
        options: The catalog and the table.
        properties: The catalog's properties; they come before those of the configuration.

    Raises:
        ConfigError: As `register_archive`; or when the catalog isn't configured, refuses the
            credentials, or has no such namespace.
        MachineError: When the Python package of its kind of catalog is missing.
        TransientError: As `register_archive`; or when the catalog doesn't answer. If it didn't
            answer the commit, the next run finds out whether it was taken.
    """
    with _catalog_errors(options), closing(_load(options.catalog, properties)) as catalog:
        return register_archive(archive, catalog, options.table)


def _load(name: str, properties: Mapping[str, Any]) -> Catalog:
    # Everything is text in pyiceberg's properties, but the nested ones of a login.
    given: dict[str, Any] = {
        key: value if isinstance(value, (str, dict)) else json.dumps(value)
        for key, value in properties.items()
    }
    try:
        return load_catalog(name, **given)
    except ValueError as error:
        if type(error) is not ValueError and not isinstance(error, _BAD_URIS):
            raise
        # Not in its words, which may have the URI with a password.
        raise ConfigError(
            f"catalog {name!r} has no type and uri that pyiceberg knows; describe it in "
            ".pyiceberg.yaml, in the home or in $PYICEBERG_HOME, or by "
            f"$PYICEBERG_CATALOG__{name.upper()}__URI and the like; in Airflow, or in the extra of "
            "catalog_conn_id"
        ) from None


@contextmanager
def _catalog_errors(options: TableOptions) -> Iterator[None]:
    """Tell what the libraries of a catalog raise in our errors."""
    who = f"catalog {options.catalog!r}"
    try:
        yield
    except KafkaDrainError:
        raise
    except (NotInstalledError, ImportError) as error:
        raise MachineError(
            f"{who} needs another Python package: {_first_line(error)}; install pyiceberg's extra "
            "for it, such as pyiceberg[sql-postgres], pyiceberg[glue] or pyiceberg[hive]"
        ) from error
    except NoSuchNamespaceError as error:
        namespace = options.table.rpartition(".")[0]
        raise ConfigError(
            f"{who} has no namespace {namespace}; create it, for example by `pyiceberg --catalog "
            f"{options.catalog} create namespace {namespace}`"
        ) from error
    except _REFUSALS as error:
        raise ConfigError(
            f"{who} refuses: {_first_line(error)}; check its properties, and what the login may do"
        ) from error
    except Exception as error:
        if not _is_of_catalog(error):
            raise
        raise TransientError(
            f"{who} doesn't answer as it should: {type(error).__name__}: {_first_line(error)}; the "
            "table is as it was or registered completely; run again"
        ) from error


def _is_of_catalog(error: Exception) -> bool:
    """Return whether an error is of a catalog's library: not of Python, nor of a file system."""
    if isinstance(error, OSError) and error.errno is not None:
        return False
    return isinstance(error, OSError) or type(error).__module__ != "builtins"


def _first_line(error: Exception) -> str:
    # SQLAlchemy's next lines have the statement.
    return str(error).partition("\n")[0] or type(error).__name__


def register_archive(archive: str | Archive, catalog: Catalog, table: str) -> Registration:
    """Make an Iceberg table hold exactly the sealed files of an archive, in one commit.

    The table is created if it doesn't exist. A later run adds what was sealed since, and removes
    what compaction, retention or a reprocess has replaced; no file is ever in the table twice.

    Args:
        archive: The archive, or its folder: a path or a URL that fsspec knows.
        catalog: Catalog of the table, as `pyiceberg.catalog.load_catalog` returns it. Its file
            system must be able to reach the archive.
        table: Name of the table, with an existing namespace.

    Raises:
        ArchiveError: When the folder isn't an archive.
        ConfigError: When the archive holds other files than Parquet, the table holds anything from
            outside the archive, or their columns don't fit.
        ManifestInvalidError: When manifest or receipts are damaged, or a sealed file doesn't match
            its receipt.
        TransientError: When another run changed the table at the same time; nothing was committed.
    """
    if not isinstance(archive, Archive):
        archive = Archive.at(archive)
    archive.require()
    root = _location(archive, "")
    found = _open(catalog, table, root)
    # Table first: if another run has registered a later state of the archive, this commit fails.
    held = _held(found, root)
    refuse_encrypted(archive.root, "readers of a table couldn't decrypt")
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
                _fit_columns(archive, transaction, footers, columns_of(sealed))
                new = _describe(transaction.table_metadata, missing, footers)
                _replace(transaction, new, gone)
        except CommitFailedException as error:
            raise TransientError(
                f"table {table} was changed by another run in the meantime, and nothing was "
                f"registered; run again ({error})"
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
    """Return a file's location as all engines accept it: file:// for local files, s3:// for S3."""
    place = str(archive.root / path) if path else str(archive.root)
    if is_local(archive.root):
        # No `as_uri`: engines take it literally, and would look for the percent signs.
        return "file://" + place.removeprefix("file://")
    return "s3://" + place.removeprefix("s3a://") if place.startswith("s3a://") else place


def _open(catalog: Catalog, name: str, root: str) -> Table:
    """Load or create the table; its metadata must not lie among the archive's files."""
    if not catalog.table_exists(name):
        schema = pa.schema([*SCHEMA.remove(SCHEMA.get_field_index("topic")), SCHEMA.field("topic")])
        catalog.create_table_if_not_exists(name, schema, properties={**_SAFE, **_DEFAULTS})
    table = catalog.load_table(name)
    place = table.location() if "://" in table.location() else f"file://{table.location()}"
    if f"{place}/".startswith(f"{root}/") or f"{root}/".startswith(f"{place}/"):
        raise ConfigError(
            f"table {name} lies in {place}, the archive in {root}: cleaning up one would delete "
            "the other; drop the table, and create it in a separate warehouse"
        )
    if any(table.properties.get(key) != value for key, value in _SAFE.items()):
        with table.transaction() as transaction:
            transaction.set_properties(_SAFE)
    return table


def _held(table: Table, root: str) -> dict[str, DataFile]:
    """Return the files in the table's current snapshot, by location."""
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
        f"table {name} holds {what}, which isn't part of the archive {root}: records could appear "
        "twice or come back; register the archive as a table with no other writers (if the "
        "archive was moved, drop the table, without purge, and register it again)"
    )


def _require_parquet(archive: Archive, files: Iterable[ArchiveFile]) -> None:
    others = sorted({file.file_format for file in files} - {"parquet"})
    if others:
        raise ConfigError(
            f"{archive.root} holds {' and '.join(others)} files, but an Iceberg table takes only "
            "Parquet files; drain again as Parquet what Kafka still has (`kafka-drain reprocess "
            f"{quoted(archive.root)} --format parquet --from-batch 1:0 --bootstrap-servers "
            "HOST:PORT --apply`), or read it with kafka_drain_spark.reader.read_archive"
        )


def _fit_columns(
    archive: Archive,
    transaction: Transaction,
    footers: Iterable[pq.FileMetaData],
    folders: Collection[str],
) -> None:
    """Add the columns of new files to the table, and those of their folders as partitions."""
    schemas = [footer.schema.to_arrow_schema().remove_metadata() for footer in footers]
    schemas.append(pa.schema([pa.field(name, pa.string()) for name in folders]))
    for schema in dict.fromkeys(schemas):
        try:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
        except (ValidationError, ValueError) as error:
            raise ConfigError(
                f"a column's type has changed in a way that Iceberg doesn't support: {error}; "
                "drain the files before it again while Kafka has their records (`kafka-drain "
                f"reprocess {quoted(archive.root)} --from-batch 1:0 --bootstrap-servers HOST:PORT "
                "--apply`), and register the archive as a new table"
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
            "folders don't name; register the archive as a new table"
        )
    with transaction.update_spec() as update:
        for name in folders:
            if name not in names:
                update.add_identity(name)
    # The files carry no column ids; readers map columns by name.
    mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
    transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def _describe(
    metadata: TableMetadata, files: Mapping[str, ArchiveFile], footers: Iterable[pq.FileMetaData]
) -> list[DataFile]:
    """Build the manifest entries of files from their footers."""
    # Drains write no statistics of values; pyiceberg would warn of each file that lacks them.
    without_values = {f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.value": "none"}
    columns = compute_statistics_plan(metadata.schema(), metadata.properties | without_values)
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
    """Return a file's partition values from its folders, in the order of the table's partitions."""
    values = file.folder_values
    names = [metadata.schema().find_column_name(field.source_id) for field in _spec(metadata)]
    if "topic" in names and "topic" not in values and file.sealed:
        topics = sorted({content.tp.topic for content in file.sealed.contents})
        if len(topics) != 1:
            raise ConfigError(
                f"{file.path} holds records of {', '.join(topics)}, but the table is partitioned "
                "by topic, because other files have a folder per topic; reprocess the archive with "
                "a single `partition_by`"
            )
        values["topic"] = topics[0]
    return [values.get(str(name)) for name in names]


def _replace(transaction: Transaction, new: Iterable[DataFile], gone: Collection[DataFile]) -> None:
    """Add files and remove others, in one snapshot."""
    update = transaction.update_snapshot()
    with update.overwrite() if gone else update.merge_append() as snapshot:
        for file in new:
            snapshot.append_data_file(file)
        for file in gone:
            snapshot.delete_data_file(file)


def _footer(io: FileIO, item: tuple[str, ArchiveFile]) -> pq.FileMetaData:
    """Read a sealed file's footer through the table's own file system, as its readers will."""
    place, file = item
    try:
        with io.new_input(place).open() as stream:
            source = KeptReads(stream)
            footer = pq.read_metadata(source)
            check_footer(source, footer.schema)
    except FileNotFoundError as error:
        raise ManifestInvalidError(
            f"{place} is sealed but missing; run again if maintenance was running, otherwise run "
            f"`kafka-drain validate {quoted(file.owner.root)}`"
        ) from error
    except (DataFileError, pa.ArrowInvalid, OSError) as error:
        # Arrow's errors of a footer have no number, as those of a store that doesn't answer.
        if isinstance(error, OSError) and (error.errno is not None or "thrift" not in str(error)):
            raise
        raise ManifestInvalidError(
            f"{place}: {error}; run `kafka-drain validate {quoted(file.owner.root)} --deep`"
        ) from error
    if footer.num_rows != file.records:
        raise ManifestInvalidError(
            f"{place} holds {footer.num_rows:,} records, but its receipt says {file.records:,}; "
            f"run `kafka-drain validate {quoted(file.owner.root)} --deep`"
        )
    return footer


def _spec(metadata: TableMetadata) -> tuple[PartitionField, ...]:
    return metadata.spec().fields
