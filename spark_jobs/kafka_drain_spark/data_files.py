"""Read an archive's data files with Spark, whatever their format and folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from kafka_drain.config.sink_options import MILLISECONDS

#: Kafka's columns. JSON stores bytes as base64, so Spark needs the type to decode them.
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "topic": "string",
}

#: Number of rows that Spark's readers of columns hold at a time, each with its whole value. By
#: default it is 4,096: of records of 100 kB, more than a drain's heap.
BATCH_ROWS = 64

_NONE: Mapping[str, str] = MappingProxyType({})


def read_files(
    spark: SparkSession, sources: Iterable[Mapping[str, Any]], columns: Mapping[str, str] = _NONE
) -> DataFrame:
    """Read exactly the given files, with the topic from the column or the folder.

    Args:
        sources: For each data folder: `data_folder`, `file_format`, and `files`, absolute paths.
        columns: Types in Spark's DDL of further columns, which come from the files or their folder
            names; null if from neither.
    """
    for file_format in ("parquet", "orc"):
        spark.conf.set(f"spark.sql.{file_format}.columnarReaderBatchSize", str(BATCH_ROWS))
    types = {**COLUMNS, **columns}
    parts = [_read(spark, source, types) for source in sources]
    schema = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
    nothing: list[tuple[Any, ...]] = []
    while len(parts) > 1:
        # In pairs: a chain of thousands is too deep for Spark.
        parts = [reduce(DataFrame.unionByName, parts[n : n + 2]) for n in range(0, len(parts), 2)]
    return parts[0] if parts else spark.createDataFrame(nothing, schema)


def _read(spark: SparkSession, source: Mapping[str, Any], types: Mapping[str, str]) -> DataFrame:
    in_files = dict(types)
    if source["file_format"] == "orc":
        in_files[MILLISECONDS] = "bigint"
    reader = (
        spark.read.format(source["file_format"])
        # Without a schema, a topic named 2024 would become a number.
        .schema(", ".join(f"`{name}` {kind}" for name, kind in in_files.items()))
        .option("basePath", source["data_folder"])
    )
    records = _load(reader, source["files"])
    if source["file_format"] == "orc":
        exact = F.expr(f"coalesce(timestamp_millis({MILLISECONDS}), timestamp)")
        records = records.withColumn("timestamp", exact)
    # Folders may name columns that weren't requested, and in a different order.
    return records.select(*types)


def _load(reader: DataFrameReader, files: Sequence[str]) -> DataFrame:
    """Load exactly the given files, each once.

    Without patterns (`__globPaths__`), Spark 4.1 reads N paths that look like one N times, unless
    each is loaded alone.
    """
    if not any(matches_nothing(file) for file in files):
        return reader.load([as_pattern(file) for file in files])
    reader = reader.option("__globPaths__", "false")
    parts = [reader.load(file) for file in files]
    while len(parts) > 1:
        # In pairs: a chain of thousands is too deep for Spark.
        parts = [reduce(DataFrame.union, parts[n : n + 2]) for n in range(0, len(parts), 2)]
    return parts[0]


def matches_nothing(path: str) -> bool:
    """Return whether no pattern matches a path: Hadoop takes a name with a colon for a URI.

    Only where it compares names: a path without a pattern's characters is opened as it is.
    """
    names = path.partition("://")[2] or path
    return ":" in names and as_pattern(names) != names


def as_pattern(path: str) -> str:
    """Return the pattern that matches one path alone: Spark takes each path for a pattern."""
    return re.sub(r"([][{}*?\\])", r"\\\1", path)


def with_exact_times(records: DataFrame, file_format: str) -> DataFrame:
    """Return records with the extra column that a format needs to preserve their timestamps.

    ORC stores seconds and nanoseconds in the hybrid Julian-Gregorian calendar: it maps the second
    before 1970 to the first one after, and libraries read the values as nanoseconds, whose range
    ends in 2262.
    """
    if file_format != "orc":
        return records
    return records.withColumn(MILLISECONDS, F.expr("unix_millis(timestamp)"))


def without_wrong_times(records: DataFrame, file_format: str) -> DataFrame:
    """Leave out the timestamps that a format would store as another time; call it last.

    Of ORC, those are times in the second before 1970, such as -1, which Kafka uses for none: every
    reader but ours would get one up to a second after 1970. The exact column has them all.
    """
    if file_format != "orc":
        return records
    right = F.expr(f"CASE WHEN {MILLISECONDS} BETWEEN -999 AND -1 THEN NULL ELSE timestamp END")
    return records.withColumn("timestamp", right)
