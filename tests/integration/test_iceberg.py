"""The table of a real archive, after everything that takes files out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

# For pyiceberg's SQL catalog. Airflow 2 pins SQLAlchemy 1.4.
pytest.importorskip("sqlalchemy", minversion="2")

import duckdb
from pyiceberg.catalog.sql import SqlCatalog

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.iceberg import Registration, register_archive
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.maintain import run_maintenance
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.engine import SparkRunner
from tests.integration.test_erase import (
    BATCHES,
    GONE,
    Erase,
    Records,
    erase,
    pipeline,
    reprocess,
    send_hour,
    sent,
)

__all__ = ["erase", "pipeline", "reprocess"]

pytestmark = pytest.mark.integration

NAME = "kafka.flights"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog in SQLite with a namespace."""
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/tables"
    with closing(SqlCatalog("archives", uri=uri, warehouse=warehouse)) as found:
        found.create_namespace("kafka")
        yield found


def refuse_other(archive: Archive, catalog: SqlCatalog, expected: Records) -> None:
    """Read the table's newest snapshot by pyiceberg and its files by DuckDB: the archive's."""
    table = catalog.load_table(NAME)
    rows = table.scan(selected_fields=("key", "partition", "offset")).to_arrow().to_pydict()
    assert Counter(zip(*rows.values(), strict=True)) == expected

    files = {task.file.file_path for task in table.scan().plan_files()}
    assert files == {
        f"file://{archive.root}/{file.path}" for file in archive_files(archive.snapshot())
    }
    query = 'SELECT key, "partition", "offset" FROM read_parquet($files)'
    paths = sorted(each[len("file://") :] for each in files)
    # DuckDB refuses an empty list.
    found = duckdb.execute(query, {"files": paths}).fetchall() if paths else []
    assert Counter(found) == expected


def test_register_archive_through_its_life(
    pipeline: Pipeline,
    catalog: SqlCatalog,
    cluster: KafkaCluster,
    runner: SparkRunner,
    erase: Erase,
    reprocess: Callable[[Pipeline], None],
    send: Callable[..., None],
    drain: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Compaction, reprocess, erasure and retention: one snapshot each, with the archive's files.

    pyiceberg warns of nothing that Spark has written.
    """
    archive = Archive.at(pipeline.archive)

    def registered(expected: Records) -> Registration:
        found = register_archive(archive, catalog, NAME)
        refuse_other(archive, catalog, expected)
        return found

    def maintain(**changes: Any) -> None:
        kept = Pipeline(**(pipeline.model_dump() | changes))
        later = utc_now() + timedelta(days=10)
        run_maintenance(kept, cluster, runner, run="tests", clock=lambda: later)

    first = registered(sent())
    maintain(target_file_bytes=1 << 40)
    compacted = registered(sent())
    reprocess(pipeline)
    again = registered(sent())
    assert erase(pipeline)["erased"] == 2 * BATCHES * len(GONE)
    erased = registered(sent(but=GONE))

    assert (first.removed, compacted.removed, again.removed, erased.removed) == (
        *(0, first.files, compacted.files, again.files),
    )
    assert catalog.load_table(NAME).scan(snapshot_id=erased.snapshot_id).count()
    with pytest.raises(FileNotFoundError):
        catalog.load_table(NAME).scan(snapshot_id=again.snapshot_id).to_arrow()

    send_hour(send, pipeline, BATCHES)
    drain(pipeline)
    assert validate_archive(archive, cluster).complete
    new = sent(BATCHES + 1) - sent()
    registered(sent(but=GONE) + new)
    # Older than 30 days is everything: ten days from now, the newest segment as well.
    maintain(retention_days=30)
    rest = registered(Counter())

    table = catalog.load_table(NAME)
    assert (rest.files, rest.records) == (0, 0)
    assert len(table.snapshots()) == 6
    table.maintenance.expire_snapshots().older_than(utc_now()).commit()
    assert len(catalog.load_table(NAME).snapshots()) == 1
    assert [record.getMessage() for record in caplog.records if "pyiceberg" in record.name] == []
