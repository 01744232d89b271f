"""An archive as an Iceberg table, by pyiceberg with a catalog in SQLite, against its records."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# For pyiceberg's SQL catalog. Airflow 2 pins SQLAlchemy 1.4.
pytest.importorskip("sqlalchemy", minversion="2")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.keys import keys_for_writing
from kafka_drain.archive.receipts import SealedContent, SealedFile
from kafka_drain.clock import utc_now
from kafka_drain.config.encryption import Encryption
from kafka_drain.encryption.kms import FILE_VARIABLE
from kafka_drain.errors import ConfigError, MachineError, ManifestInvalidError, TransientError
from kafka_drain.iceberg import Registration, _footer, _partition, register_archive
from kafka_drain.maintenance.retention import plan_deletions, seal_deletions
from kafka_drain.offsets import TopicPartition
from kafka_drain.reading import archive_dataset
from kafka_drain.storage.paths import locate
from tests.kafka_drain.data_files.footers import (
    FILES,
    field,
    footer_of,
    put,
    set_field,
    taken,
    with_footer,
)
from tests.kafka_drain.golden import END, add_batch, golden_copy, open_next, seal, sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.s3_server import CREDENTIALS

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NAME = "kafka.flights"


class Killed(BaseException):
    """Raised in place of a kill."""


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """An empty catalog with a namespace; its tables lie beside the archive."""
    found = open_catalog(tmp_path)
    found.create_namespace("kafka")
    yield found
    found.close()


def open_catalog(folder: Path, kind: type[SqlCatalog] = SqlCatalog) -> SqlCatalog:
    return kind("tests", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/tables")


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of topic t, of which nothing is sealed yet; its last generation is empty."""
    found = MadeArchive(tmp_path / "archive", {"t": "1"})
    Archive.generation(found.archive, 2).write(
        starting_offsets={},
        file_format="parquet",
        partition_by=["topic"],
        topic_ids={"t": "1"},
        reason="test",
    )
    return found


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows by offset; pyiceberg's own reader knows no difference of null and no headers."""
    rows = [row | {"headers": row["headers"] or []} for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def rows_of(table: Table, **options: Any) -> list[dict[str, Any]]:
    return in_order(table.scan(**options).to_arrow())


def sealed_rows(archive: Archive) -> list[dict[str, Any]]:
    return in_order(archive_dataset(archive, include_unsealed=False).to_table())


def offsets_of(table: Table) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows_of(table)]


def test_register_archive_golden(archive: Archive, catalog: SqlCatalog) -> None:
    """The table has every record as the archive has it, and its files lie where they lay."""
    [path, *_] = sorted(Path(str(archive.root)).rglob("part-*"))
    path.with_name("part-00009-left.parquet").write_bytes(path.read_bytes())

    found = register_archive(str(archive.root), catalog, NAME)

    table = catalog.load_table(NAME)
    assert table.scan().to_arrow().schema.names == archive_dataset(archive).schema.names
    assert rows_of(table) == sealed_rows(archive)
    [snapshot] = table.snapshots()
    assert found == Registration(
        NAME, added=28, removed=0, files=28, records=84, snapshot_id=snapshot.snapshot_id
    )
    paths = {task.file.file_path for task in table.scan().plan_files()}
    assert all(path.startswith(f"file://{archive.root}/generations/0001/data/") for path in paths)


def test_register_archive_again(archive: Archive, catalog: SqlCatalog) -> None:
    """A second run finds nothing to do, and a later one adds what was sealed meanwhile."""
    first = register_archive(archive, catalog, NAME)
    again = register_archive(archive, catalog, NAME)

    assert (again.added, again.removed, again.snapshot_id) == (0, 0, first.snapshot_id)

    add_batch(archive.generation(1), 14, END, 50)
    unsealed = register_archive(archive, catalog, NAME)
    seal(archive)
    sealed = register_archive(archive, catalog, NAME)

    table = catalog.load_table(NAME)
    assert unsealed == again
    assert (sealed.added, sealed.removed, sealed.files, sealed.records) == (2, 0, 30, 100)
    assert rows_of(table) == sealed_rows(archive)
    assert [len(ids) for ids in (table.snapshots(), table.schemas(), table.specs())] == [2, 1, 2]


def test_register_archive_superseded(made: MadeArchive, catalog: SqlCatalog) -> None:
    """Files that a window stands for leave in the commit in which the window's come."""
    old = made.seal({T0: dense(0, 5), T1: dense(0, 5)})
    made.seal({T0: dense(5, 9)})
    register_archive(made.archive, catalog, NAME)
    made.seal_window("compact_0001", {T0: dense(0, 5), T1: dense(0, 5)}, [f.path for f in old])

    found = register_archive(made.archive, catalog, NAME)

    table = catalog.load_table(NAME)
    assert (found.added, found.removed, found.files, found.records) == (2, 2, 3, 14)
    assert offsets_of(table) == [*((0, o) for o in range(9)), *((1, o) for o in range(5))]
    assert len(table.snapshots()) == 2
    before, after = (snapshot.snapshot_id for snapshot in table.snapshots())
    assert table.scan(snapshot_id=before).count() == table.scan(snapshot_id=after).count() == 14


def test_register_archive_nothing_left(made: MadeArchive, catalog: SqlCatalog) -> None:
    """An archive without a file is an empty table, before its first drain and after retention."""
    empty = register_archive(made.archive, catalog, NAME)
    made.seal({T0: dict.fromkeys(range(5), 1_357_041_600_000)})
    made.open_generation()
    register_archive(made.archive, catalog, NAME)
    snapshot = made.archive.snapshot()
    old = plan_deletions(snapshot, snapshot.generations[:1], 30, utc_now())
    assert len(seal_deletions(made.archive, old, run="tests")) == 1
    found = register_archive(made.archive, catalog, NAME)

    assert (empty.files, empty.snapshot_id) == (0, None)
    assert (found.removed, found.files, found.records) == (1, 0, 0)
    assert catalog.load_table(NAME).scan().count() == 0


def test_register_archive_other_folders(archive: Archive, catalog: SqlCatalog) -> None:
    """Columns that only the folders name are there, and null where folders don't name them."""
    register_archive(archive, catalog, NAME)
    generation = open_next(archive, "parquet", ["topic", "date"])
    add_batch(generation, 0, END, 50, "topic=flights/date=2013-01-01")
    add_batch(generation, 1, 50, 60, "topic=flights/date=__HIVE_DEFAULT_PARTITION__")
    seal(archive)

    register_archive(archive, catalog, NAME)

    table = catalog.load_table(NAME)
    assert rows_of(table) == sealed_rows(archive)
    assert table.scan("date == '2013-01-01'").count() == 16
    assert table.scan("date is null").count() == 2 * END + 20
    assert table.scan("topic == 'flights' and offset >= 58").count() == 4
    assert table.scan("topic == 'other'").count() == 0
    names = [table.schema().find_column_name(field.source_id) for field in table.spec().fields]
    assert names == ["topic", "date"]


def with_topic_inside(archive: Archive, folder: str) -> None:
    """Seal a generation whose files have the topic inside."""
    generation = open_next(archive, "parquet", ["date"])
    for path in add_batch(generation, 0, END, 50, folder):
        append_column(generation, 0, path, "topic", pa.array(["flights"] * 8))
    seal(archive)


def append_column(
    generation: Generation, batch: int, path: Path, name: str, column: pa.Array
) -> None:
    """Give a committed file another column, and the manifest its new size."""
    size = path.stat().st_size
    rows = pq.read_table(str(path), partitioning=None)
    pq.write_table(rows.append_column(name, column), str(path))
    log = Path(str(generation.data)) / "_spark_metadata" / str(batch)
    log.write_text(log.read_text().replace(f": {size}", f": {path.stat().st_size}"))


def test_register_archive_topic_in_files(archive: Archive, catalog: SqlCatalog) -> None:
    """A file of one topic is in that topic's partition, whoever names it."""
    with_topic_inside(archive, "date=2013-01-01")

    register_archive(archive, catalog, NAME)

    table = catalog.load_table(NAME)
    assert rows_of(table) == sealed_rows(archive)
    assert table.scan("topic == 'flights'").count() == 100


def test_partition_topics_mixed(archive: Archive, catalog: SqlCatalog) -> None:
    """A file of two topics is in no topic's partition: a query for one would miss it."""
    register_archive(archive, catalog, NAME)
    contents = tuple(SealedContent.of(TopicPartition(name, 0), 0, 1, 2) for name in ("b", "a"))
    sealed = SealedFile("generations/0002/data/part-0", 1, "", contents)
    file = ArchiveFile(sealed.path, 1, "parquet", archive.generation(2), {}, sealed)

    with pytest.raises(ConfigError, match="holds records of a, b, but the table is partitioned"):
        _partition(catalog.load_table(NAME).metadata, file)


def test_register_archive_other_partitions(archive: Archive, catalog: SqlCatalog) -> None:
    """A table by something that the archive's folders don't tell is refused."""
    table = catalog.create_table(NAME, pa.schema([("timestamp", pa.timestamp("us", tz="UTC"))]))
    with table.update_spec() as update:
        update.add_field("timestamp", "day")

    with pytest.raises(ConfigError, match="partitioned by timestamp, which"):
        register_archive(archive, catalog, NAME)


def test_register_archive_values(archive: Archive, catalog: SqlCatalog) -> None:
    """Decoded values are columns too, null in the files that have none."""
    register_archive(archive, catalog, NAME)
    decoded = pa.array([{"id": n} for n in range(8)], pa.struct([("id", pa.int32())]))
    with_column(archive, 14, END, decoded)
    register_archive(archive, catalog, NAME)
    more = [{"id": n, "city": "Oslo"} for n in range(8)]
    wider = pa.struct([("id", pa.int64()), ("city", pa.string())])
    with_column(archive, 15, 50, pa.array(more, wider))
    found = register_archive(archive, catalog, NAME)

    rows = rows_of(catalog.load_table(NAME))
    assert found.records == len(rows) == 116
    assert [row["value_decoded"] for row in rows[END:58]] == [
        *({"id": n, "city": None} for n in range(8)),
        *({"id": n, "city": "Oslo"} for n in range(8)),
    ]
    assert {row["value_decoded"] and True for row in rows[:END]} == {None}


def with_column(archive: Archive, batch: int, start: int, column: pa.Array) -> None:
    """Seal a batch whose files have decoded values."""
    generation = archive.generation(1)
    for path in add_batch(generation, batch, start, start + len(column)):
        append_column(generation, batch, path, "value_decoded", column)
    seal(archive)


def test_register_archive_type_changed(archive: Archive, catalog: SqlCatalog) -> None:
    """A column that has become another one is refused, and the table stays as it was."""
    with_column(archive, 14, END, pa.array(range(8), pa.int32()))
    before = register_archive(archive, catalog, NAME)
    with_column(archive, 15, 50, pa.array(["text"] * 8))

    with pytest.raises(ConfigError, match=r"type has changed.*reprocess .* --apply"):
        register_archive(archive, catalog, NAME)
    assert catalog.load_table(NAME).current_snapshot().snapshot_id == before.snapshot_id


def test_register_archive_other_format(archive: Archive, catalog: SqlCatalog) -> None:
    """Files that aren't Parquet are refused with what can be done."""
    add_batch(open_next(archive, "orc", ["topic"]), 0, END, 50)
    seal(archive)

    with pytest.raises(ConfigError, match=r"holds orc files.*kafka-drain reprocess"):
        register_archive(archive, catalog, NAME)


@pytest.mark.parametrize("is_done", [False, True])
def test_register_archive_killed(
    archive: Archive, catalog: SqlCatalog, tmp_path: Path, is_done: bool
) -> None:
    """Killed before or after the catalog has taken the commit, the next run makes it whole."""

    class KilledCatalog(SqlCatalog):
        def commit_table(self, *arguments: Any, **options: Any) -> Any:
            if is_done:
                super().commit_table(*arguments, **options)
            raise Killed

    with closing(open_catalog(tmp_path, KilledCatalog)) as killed, pytest.raises(Killed):
        register_archive(archive, killed, NAME)
    assert catalog.load_table(NAME).scan().count() == (84 if is_done else 0)

    found = register_archive(archive, catalog, NAME)

    assert (found.added, found.records) == (0 if is_done else 28, 84)
    assert rows_of(catalog.load_table(NAME)) == sealed_rows(archive)


def test_register_archive_two_at_once(
    archive: Archive, catalog: SqlCatalog, tmp_path: Path
) -> None:
    """Of two runs at once, the one that comes late fails; no file is in the table twice."""

    class LateCatalog(SqlCatalog):
        def commit_table(self, *arguments: Any, **options: Any) -> Any:
            register_archive(archive, catalog, NAME)
            return super().commit_table(*arguments, **options)

    register_archive(archive, catalog, NAME)
    add_batch(archive.generation(1), 14, END, 50)
    seal(archive)
    late = open_catalog(tmp_path, LateCatalog)
    with pytest.raises(TransientError, match="changed by another run in the meantime"):
        register_archive(archive, late, NAME)
    late.close()

    assert rows_of(catalog.load_table(NAME)) == sealed_rows(archive)


@pytest.mark.parametrize("given", [{}, {"gc.enabled": "false"}])
def test_register_archive_made_by_hand(
    archive: Archive, catalog: SqlCatalog, given: dict[str, str]
) -> None:
    """A table that somebody has made gets the settings that keep the archive's files safe."""
    catalog.create_table(NAME, pa.schema([("offset", pa.int64())]), properties=given)

    register_archive(archive, catalog, NAME)

    table = catalog.load_table(NAME)
    assert table.properties["gc.enabled"] == "false"
    assert table.properties["commit.retry.num-retries"] == "0"
    assert rows_of(table)[0].keys() == sealed_rows(archive)[0].keys()
    assert rows_of(table) == sealed_rows(archive)


def test_register_archive_foreign(archive: Archive, catalog: SqlCatalog) -> None:
    """A table with files that aren't the archive's is left alone: records might be twice."""
    register_archive(archive, catalog, NAME)
    table = catalog.load_table(NAME)
    table.append(table.scan("offset == 1").to_arrow())

    with pytest.raises(ConfigError, match=r"isn't part of the archive.*with no other writers"):
        register_archive(archive, catalog, NAME)


def test_register_archive_moved(archive: Archive, catalog: SqlCatalog, tmp_path: Path) -> None:
    """A moved archive isn't added to what its old place was."""
    register_archive(archive, catalog, NAME)
    moved = shutil.move(str(archive.root), str(tmp_path / "moved"))

    with pytest.raises(ConfigError, match="was moved, drop the table"):
        register_archive(moved, catalog, NAME)
    catalog.drop_table(NAME)
    assert register_archive(moved, catalog, NAME).records == 84


@pytest.mark.parametrize(
    ("place", "is_refused"),
    [
        ("archive/table", True),
        ("archive", True),
        # The archive would lie among the table's files.
        ("", True),
        ("archive-table", False),
    ],
)
def test_register_archive_inside(
    archive: Archive, catalog: SqlCatalog, tmp_path: Path, place: str, is_refused: bool
) -> None:
    """A table whose metadata would lie among the archive's files, or around them, is refused."""
    assert str(archive.root) == str(tmp_path / "archive")
    where = f"file://{tmp_path}/{place}".removesuffix("/")
    catalog.create_table(NAME, pa.schema([("offset", pa.int64())]), location=where)

    if is_refused:
        with pytest.raises(ConfigError, match="cleaning up one would delete the other"):
            register_archive(archive, catalog, NAME)
    else:
        assert register_archive(archive, catalog, NAME).records == 84


def test_register_archive_encrypted(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encrypted archive is refused: whoever reads the table has no keys."""
    masters = tmp_path / "masters.json"
    masters.touch(mode=0o600)
    masters.write_text(json.dumps({"a": base64.b64encode(bytes(32)).decode()}))
    monkeypatch.setenv(FILE_VARIABLE, str(masters))
    made = MadeArchive(tmp_path / "archive", {"t": "1"})
    keys_for_writing(made.root, Encryption(kms="file", key="a"))

    with pytest.raises(ConfigError, match="readers of a table couldn't decrypt"):
        register_archive(made.archive, catalog, NAME)


def test_register_archive_values_hidden(made: MadeArchive, catalog: SqlCatalog) -> None:
    """The table's metadata has bounds of offsets and times, none of keys and values."""
    made.seal({T0: dense(0, 5)}, value=b"secret")
    register_archive(made.archive, catalog, NAME)

    table = catalog.load_table(NAME)
    [task] = table.scan().plan_files()
    names = {table.schema().find_column_name(id_) for id_ in task.file.lower_bounds}
    assert names == {"partition", "offset", "timestamp"}
    metadata = [path for path in Path(table.location()[7:]).rglob("*") if path.is_file()]
    assert metadata
    assert not [path for path in metadata if b"secret" in path.read_bytes()]


def test_register_archive_file_gone(archive: Archive, catalog: SqlCatalog) -> None:
    """A sealed file that isn't there is an error; nothing is registered."""
    sorted(Path(str(archive.root)).rglob("part-*"))[0].unlink()

    with pytest.raises(ManifestInvalidError, match="file_missing: "):
        register_archive(archive, catalog, NAME)
    assert catalog.load_table(NAME).current_snapshot() is None


def test_register_archive_file_changed(archive: Archive, catalog: SqlCatalog) -> None:
    """A file with other rows than its receipt says is an error."""
    path = sorted(Path(str(archive.root)).rglob("part-*"))[0]
    pq.write_table(pq.read_table(str(path), partitioning=None).slice(1), str(path))

    with pytest.raises(ManifestInvalidError, match=r"file_size: "):
        register_archive(archive, catalog, NAME)


def test_footer_damaged(tmp_path: Path) -> None:
    """A footer that pyarrow would end the process for is an error that says what to run."""
    content = FILES[0].read_bytes()
    tree = taken(footer_of(content))
    set_field(field(tree, 4, 0, 1, 0, 3), 1, [5, 2])
    path = tmp_path / "part-0.parquet"
    path.write_bytes(with_footer(content, put(tree)))
    [file, *_] = archive_files(sealed_copy(tmp_path / "archive").snapshot())

    with pytest.raises(
        ManifestInvalidError, match=r"footer is damaged: .*`kafka-drain validate /.* --deep`"
    ):
        _footer(PyArrowFileIO(), (f"file://{path}", file))


def test_register_archive_unsealed(tmp_path: Path, catalog: SqlCatalog) -> None:
    """Of an archive that nobody has validated yet, nothing is in the table."""
    found = register_archive(golden_copy(tmp_path / "archive"), catalog, NAME)

    assert (found.files, found.records) == (0, 0)


def test_register_archive_duckdb(archive: Archive, catalog: SqlCatalog) -> None:
    """DuckDB finds in the table exactly the archive's offsets."""
    register_archive(archive, catalog, NAME)

    connection = catalog.load_table(NAME).scan().to_duckdb("flights")
    query = 'SELECT topic, "partition", "offset" FROM flights ORDER BY ALL'
    found = connection.sql(query).fetchall()

    assert found == [(r["topic"], r["partition"], r["offset"]) for r in sealed_rows(archive)]


def test_iceberg_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyiceberg, the import says what to install."""
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    monkeypatch.delitem(sys.modules, "kafka_drain.iceberg")

    with pytest.raises(MachineError, match=r"kafka-drain\[iceberg\]"):
        import kafka_drain.iceberg  # noqa: F401


def test_register_archive_s3(archive: Archive, bucket: str, s3_url: str, tmp_path: Path) -> None:
    """An archive on S3 is registered by its URL, and read by the catalog's own file system."""
    stored = locate(f"{bucket}/archive")
    for path in Path(str(archive.root)).rglob("*"):
        # Hadoop's checksums of local files are of no use there.
        if path.is_file() and path.suffix != ".crc":
            target = stored.joinpath(*path.relative_to(str(archive.root)).parts)
            target.write_bytes(path.read_bytes())
    login = {"access-key-id": "AWS_ACCESS_KEY_ID", "secret-access-key": "AWS_SECRET_ACCESS_KEY"}
    catalog = SqlCatalog(
        "tests",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"{bucket}/tables",
        **{"s3.endpoint": s3_url, "s3.region": "us-east-1"},
        **{f"s3.{name}": CREDENTIALS[variable] for name, variable in login.items()},
    )
    catalog.create_namespace("kafka")

    register_archive(f"{bucket}/archive".replace("s3://", "s3a://"), catalog, NAME)
    again = register_archive(f"{bucket}/archive", catalog, NAME)

    assert (again.added, again.removed, again.records) == (0, 0, 84)
    assert rows_of(catalog.load_table(NAME)) == sealed_rows(archive)
    catalog.close()


def test_footer_torn(tmp_path: Path) -> None:
    """A file that isn't Parquet any more is named, with what to run."""
    path = tmp_path / "part-0.parquet"
    path.write_bytes(b"PAR1" + bytes(100))
    [file, *_] = archive_files(sealed_copy(tmp_path / "archive").snapshot())

    with pytest.raises(ManifestInvalidError, match=r"part-0\.parquet: .*--deep"):
        _footer(PyArrowFileIO(), (f"file://{path}", file))


def test_footer_store_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that doesn't answer says nothing about a file."""
    [file, *_] = archive_files(sealed_copy(tmp_path / "archive").snapshot())

    def silent(*_: Any) -> Any:
        raise OSError("When reading information: AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr(PyArrowFileIO, "new_input", silent)

    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        _footer(PyArrowFileIO(), ("s3://b/part-0.parquet", file))
