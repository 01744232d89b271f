"""Read an archive as one DataFrame: all generations and windows, each offset once.

For your own notebooks and jobs. Unlike this package's jobs, which need only pyspark, this module
needs kafka-drain's own requirements in the driver, which lists the files.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kafka_drain.errors import ConfigError
from kafka_drain_spark.data_files import read_files
from kafka_drain_spark.decoding import decoded_columns

__all__ = ["read_archive"]


def read_archive(
    spark: SparkSession, archive_path: str, *, include_unsealed: bool = True
) -> DataFrame:
    """Read the records of an archive of any format.

    Reads what `kafka-drain files` currently lists, and nothing that a killed task or a repair has
    left behind.

    Args:
        spark: The session; for Avro files it needs spark-avro among its jars.
        archive_path: The archive's folder.
        include_unsealed: Whether to read records that are committed but not yet sealed by a
            receipt.

    Returns:
        key, value, headers, partition, offset, timestamp, timestampType, topic, and the partition
        columns. `date` and `hour` are strings, as in the folder names, and null in generations
        without these columns. If values are decoded, also value_schema_id and value_decoded, with
        the columns of the open generation.

    Raises:
        ArchiveError: When the folder isn't an archive.
        ConfigError: When files are encrypted, or Spark would read the timestamps of ORC files in
            another time zone.
        ManifestInvalidError: When the manifest or receipts are damaged, so that the list of files
            would be incomplete.
    """
    # Imported here, because importing this package must not need more than pyspark.
    from kafka_drain.archive.archive import Archive
    from kafka_drain.archive.files import archive_files, columns_of
    from kafka_drain.archive.keys import refuse_encrypted
    from kafka_drain.schemas.decoding import decoded_values
    from kafka_drain.storage.paths import hadoop_path

    archive = Archive.at(archive_path)
    snapshot = archive.snapshot()
    refuse_encrypted(
        archive.root, "this session doesn't decrypt; use `kafka-drain find`, or republish them"
    )
    files = [file for file in archive_files(snapshot) if include_unsealed or file.sealed]
    sources: dict[str, dict[str, Any]] = {}
    for file in files:
        folder = hadoop_path(file.owner.data)
        source = sources.setdefault(
            folder, {"data_folder": folder, "file_format": file.file_format, "files": []}
        )
        source["files"].append(hadoop_path(archive.root / file.path))
    if any(file.file_format == "orc" for file in files):
        _check_time_zone(spark)
    columns = {name: "string" for name in columns_of(files) if name != "topic"}
    values = decoded_values(snapshot)
    if values:
        columns |= decoded_columns(spark, values)
    return read_files(spark, sources.values(), columns)


def _check_time_zone(spark: SparkSession) -> None:
    """Refuse to read ORC files' local times, which the drain wrote in UTC, in another time zone."""
    zone = spark.sparkContext._jvm.java.util.TimeZone.getDefault()  # type: ignore[union-attr]
    if zone.getRawOffset() or zone.useDaylightTime():
        raise ConfigError(
            f"Spark's JVM is in time zone {zone.getID()} and would misread the timestamps of ORC "
            "files, which are in UTC; start it with -Duser.timezone=UTC in "
            "spark.driver.extraJavaOptions and spark.executor.extraJavaOptions"
        )
