"""The data files of an archive, read by Spark, whatever their format and folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_files"]

#: Kafka's columns. JSON has bytes as base64 and needs to be told that they are bytes.
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

_NONE: Mapping[str, str] = MappingProxyType({})


def read_files(
    spark: SparkSession, sources: Iterable[Mapping[str, Any]], columns: Mapping[str, str] = _NONE
) -> DataFrame:
    """Read exactly some files, with the topic from the column or the folder.

    Args:
        spark: The session.
        sources: For each data folder: `data_folder`, `file_format`, and `files`, absolute paths.
        columns: Types, as Spark's DDL has them, of more columns, which the files have or their
            folders name; null where neither does.
    """
    types = {**COLUMNS, **columns}
    # Without it, a topic named 2024 would be a number.
    schema = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
    parts = [
        spark.read.format(source["file_format"])
        .schema(schema)
        .option("basePath", source["data_folder"])
        .load(source["files"])
        # Folders may name columns that nobody asked for, and in another order.
        .select(*types)
        for source in sources
    ]
    nothing: list[tuple[Any, ...]] = []
    return reduce(DataFrame.unionByName, parts) if parts else spark.createDataFrame(nothing, schema)
