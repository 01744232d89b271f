"""The sink's file formats, compressions, writer options and partition columns.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_drain.config.checks import Check, boolean, duration, fraction, integer, unknown

#: File formats, each with the compressions that Spark can write and that can be read without
#: Spark; the first one is the default.
COMPRESSIONS: dict[str, tuple[str, ...]] = {
    "parquet": ("zstd", "snappy", "gzip", "lz4_raw", "uncompressed"),
    "avro": ("zstandard", "snappy", "deflate", "bzip2", "xz", "uncompressed"),
    "json": ("gzip", "bzip2", "deflate", "none"),
    "orc": ("zstd", "snappy", "zlib", "lz4", "none"),
}

#: Column of ORC files: the record's timestamp in milliseconds since 1970, because ORC's own
#: timestamps can't represent every value.
MILLISECONDS = "timestampMillis"

#: Columns that are never encrypted: they prove offsets and times.
PLAIN = ("topic", "partition", "offset", "timestamp", "timestampType")

#: Columns that files can be partitioned by, each with its Spark SQL expression, in UTC.
PARTITION_COLUMNS: dict[str, str] = {
    "topic": "topic",
    # Numeric, which compares faster for each record; Spark writes a date as yyyy-MM-dd.
    "date": "to_date(timestamp)",
    "hour": "lpad(hour(timestamp), 2, '0')",
}


def partition_columns(partition_by: Iterable[str]) -> dict[str, str]:
    """Return the Spark SQL expressions of the columns that files are partitioned by."""
    return {column: PARTITION_COLUMNS[column] for column in partition_by}


#: Number of rows after which Parquet first checks whether a page or row group is full, and the most
#: it writes between two checks. With its own 100 and 10,000, each open file buffers 500 MB of 5 MB
#: records where a row group has 128 MB (ParquetProperties, InternalParquetRecordWriter).
_ROW_CHECKS = {
    f"parquet.{what}.size.row.check.{limit}": str(rows)
    for what in ("block", "page")
    for limit, rows in (("min", 1), ("max", 1000))
}

_COMMON: dict[str, Check] = {"maxRecordsPerFile": integer(1), "retention": duration}
_PER_FORMAT: dict[str, dict[str, Check]] = {
    "parquet": {
        "parquet.block.size": integer(1 << 16),
        "parquet.page.size": integer(1 << 10),
        "parquet.dictionary.page.size": integer(1 << 10),
        "parquet.enable.dictionary": boolean,
        **dict.fromkeys(_ROW_CHECKS, integer(1)),
        "parquet.compression.codec.zstd.level": integer(1),
        "parquet.bloom.filter.enabled#key": boolean,
        "parquet.bloom.filter.expected.ndv#key": integer(1),
        "parquet.bloom.filter.fpp#key": fraction,
        "parquet.bloom.filter.max.bytes": integer(1 << 10),
    },
    "orc": {
        "orc.stripe.size": integer(1 << 16),
        "orc.compress.size": integer(1 << 10),
        "orc.row.index.stride": integer(1000),
    },
}


def check_sink_options(file_format: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Check the writer options of a format and return them in Spark's form.

    Raises:
        ConfigError: When a name is unknown for the format, or a value isn't accepted.
    """
    known = _COMMON | _PER_FORMAT.get(file_format, {})
    checked: dict[str, str] = {}
    for name, value in options.items():
        if name not in known:
            raise unknown(name, value, known, f"option of the {file_format} sink")
        checked[name] = known[name](name, value)
    return checked


#: Statistics that no reader of records uses, which cost a comparison or two for each value: the
#: least and the greatest of a column of arbitrary bytes, and the sizes of values by page. The
#: columns of the proof, and the key, keep theirs (parquet-java 1.16; earlier ones write all).
_NO_STATISTICS = {
    "parquet.column.statistics.enabled#value": "false",
    "parquet.size.statistics.enabled": "false",
}


def writer_defaults(file_format: str, compression: str) -> dict[str, str]:
    """Return the file sink's default options, which a pipeline can override.

    Parquet dictionaries cost a third of a drain's time, and Kafka's keys, offsets and timestamps
    rarely repeat. zstd and gzip compress what does repeat just as small without them.
    """
    if file_format != "parquet":
        return {"compression": compression}
    plain = {"parquet.enable.dictionary": "false"} if compression in ("zstd", "gzip") else {}
    return {"compression": compression, **_ROW_CHECKS, **_NO_STATISTICS, **plain}
