"""The readers on real archives: two generations, a repaired file, an unsealed batch."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.findings import errors
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from kafka_drain.reading import archive_dataset
from kafka_drain.windows.roll import plan_roll, roll
from kafka_drain_spark.reader import read_archive
from tests.reading_page import COUNTS, blocks_of, make_archive

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_123  # 2013-01-01 12:00:00.123 UTC, in milliseconds
BATCH = 6
NAMES = [
    *("key", "value", "headers", "partition", "offset", "timestamp", "timestampType", "topic"),
    "date",
]

#: partition, offset, key, value, headers, timestamp in milliseconds, its type, topic
Row = tuple[int, int, Any, Any, Any, int, int, str]


def record(offset: int) -> tuple[Any, ...]:
    """Return the record for an offset, as it is sent; every record is different."""
    return (
        None if offset % 7 == 0 else b"key \xff %d" % offset,
        None if offset % 5 == 0 else b"value \x00 %d" % offset,
        [("a", b"%d" % offset), ("a", None), ("", b"\xfe")] if offset % 3 == 0 else None,
        NOON + offset * 86_400_000,
    )


class Sent:
    """A topic of two partitions and its archive."""

    def __init__(
        self, topic: str, folder: str, file_format: str, drain: Any, send: Any, cluster: Any
    ) -> None:
        self.topic, self.folder, self.archive = topic, folder, Archive.at(folder)
        self.pipeline = Pipeline(
            name="read",
            topics=[topic],
            archive=folder,
            partition_by=["topic"],
            format=file_format,
        )
        self.end = 0
        self._drain, self._send, self._cluster = drain, send, cluster

    def more(self, *, seal: bool = True) -> None:
        """Send records to both partitions, drain them, and seal the batch."""
        offsets = range(self.end, self.end + BATCH)
        for partition in (0, 1):
            self._send(self.topic, [record(offset) for offset in offsets], partition=partition)
        self.end += BATCH
        assert self._drain(self.pipeline)["records"] == 2 * BATCH
        if seal:
            assert errors(validate_archive(self.archive, self._cluster).findings) == []

    def rows(self, end: int) -> list[Row]:
        """Return the records sent up to an offset of both partitions."""
        return [
            (partition, offset, key, value, headers, timestamp, 0, self.topic)
            for partition in (0, 1)
            for offset in range(end)
            for key, value, headers, timestamp in [record(offset)]
        ]


@pytest.fixture
def sent(
    file_format: str,
    make_topic: Any,
    archive_folder: str,
    drain: Any,
    send: Any,
    cluster: KafkaCluster,
) -> Sent:
    """A topic and its archive, before the first drain."""
    return Sent(make_topic(partitions=2), archive_folder, file_format, drain, send, cluster)


def rows_of(table: pa.Table) -> list[Row]:
    return sorted(
        (
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            row["headers"] and [(header["key"], header["value"]) for header in row["headers"]],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["topic"],
        )
        for row in table.to_pylist()
    )


def exact_times_apart(table: pa.Table, file_format: str) -> pa.Table:
    """Remove the duplicate of ORC's timestamps that pyarrow returns as an extra column."""
    if file_format != "orc" or "timestampMillis" not in table.schema.names:
        return table
    for row in table.to_pylist():
        assert row["timestampMillis"] == round(row["timestamp"].timestamp() * 1000)
    return table.drop_columns(["timestampMillis"])


def by_spark(spark: Any, folder: str, **options: Any) -> pa.Table:
    """Read with Spark, through a file, as pyspark doesn't close the sockets of a collect."""
    with tempfile.TemporaryDirectory() as copy:
        read_archive(spark, folder, **options).write.mode("overwrite").parquet(copy)
        return pq.read_table(copy)


def by_pyarrow(spark: Any, folder: str, **options: Any) -> pa.Table:
    return archive_dataset(folder, **options).to_table()


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "json"])
def test_readers(
    file_format: str, sent: Sent, spark: Any, cluster: KafkaCluster, repair: Any
) -> None:
    """Both readers return exactly the records sent, each once, even after repairs."""
    sent.more()
    sent.more()
    roll(plan_roll(sent.archive, cluster))
    sent.more()
    Path(committed_files(sent.archive)[1]["path"]).unlink()
    # To folders other than the generations'.
    repair(sent.archive, sent.pipeline.model_copy(update={"partition_by": ["topic", "date"]}))
    sent.more(seal=False)

    for reader in (by_spark, by_pyarrow) if file_format in ("parquet", "orc") else (by_spark,):
        table = reader(spark, sent.folder)
        assert exact_times_apart(table, file_format).schema.names == NAMES
        assert rows_of(table) == sent.rows(4 * BATCH)
        proven = reader(spark, sent.folder, include_unsealed=False)
        assert rows_of(proven) == sent.rows(3 * BATCH)
        dated = [row for row in table.to_pylist() if row["date"] is not None]
        assert len(dated) == BATCH
        assert all(row["date"] == row["timestamp"].date().isoformat() for row in dated)


@pytest.mark.parametrize("file_format", ["parquet"])
def test_read_archive_empty(sent: Sent, spark: Any) -> None:
    """An empty archive has the columns and no rows."""
    assert sent._drain(sent.pipeline)["offsets"] == 0

    for reader in (by_spark, by_pyarrow):
        table = reader(spark, sent.folder)
        assert (table.schema.names, table.num_rows) == (NAMES[:-1], 0)


@pytest.mark.parametrize("file_format", ["orc"])
def test_read_archive_orc_elsewhere(sent: Sent, spark: Any) -> None:
    """Spark reads ORC times in its JVM's zone; reads that would be wrong are refused."""
    sent.more()
    zones = spark.sparkContext._jvm.java.util.TimeZone
    zones.setDefault(zones.getTimeZone("America/New_York"))
    try:
        with pytest.raises(
            ConfigError, match=r"in time zone America/New_York.*-Duser\.timezone=UTC"
        ):
            read_archive(spark, sent.folder)
    finally:
        zones.setDefault(zones.getTimeZone("UTC"))


def test_read_archive_example(spark: Any, tmp_path: Path) -> None:
    """The example in docs/reading.md counts each sealed offset once."""
    make_archive(tmp_path)
    [example] = blocks_of("Spark")

    counts = example.run(tmp_path)["counts"]

    counts.write.parquet(str(tmp_path / "counts"))
    rows = pq.read_table(str(tmp_path / "counts")).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == COUNTS
