"""The fingerprint of records, computed by Spark between Kafka and the files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from zlib import crc32

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_drain.offsets import TopicPartition, to_spark_json

#: Name of the observation.
NAME = "fingerprint"

#: Names of the observed number of records by partition: of one topic, and of several.
OF_TOPIC, COUNTS = "partitions_of_topic", "partitions"

#: A histogram of at most this number of different values is exact. A topic's share of a key is its
#: checksum, which is below 2^32; 16 bits for the partition keep the key exact as a double.
BINS = 1 << 20
SHIFT = 1 << 16

COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
)


def fingerprint_columns(records: DataFrame, where: str = "") -> list[Column]:
    """Return the observed metrics of the Kafka source's rows: `records` and `fingerprint`.

    XOR is independent of order and can't overflow, unlike a sum under ANSI rules.

    Args:
        records: The rows.
        where: A boolean column; only rows with true count, and the metrics' names end with its.
    """
    known = records.columns
    hashed = ", ".join(f"`{name}`" for name in COLUMNS if name in known)
    rows = f"CASE WHEN {where} THEN 1 END" if where else "1"
    hashes = f"xxhash64({hashed})"
    value = f"CASE WHEN {where} THEN {hashes} END" if where else hashes
    # As SQL, because `F.lit` imports pyspark.testing and thus pandas, which takes 1.5 seconds.
    return [
        F.expr(f"count({rows})").alias(f"records{where}"),
        F.expr(f"bit_xor({value})").alias(f"{NAME}{where}"),
    ]


def fingerprint_of(observed: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Return the observed metrics in a result's form: the fingerprint as 16 hexadecimal digits."""
    return {
        "records": observed[f"records{where}"],
        NAME: f"{(observed[f'{NAME}{where}'] or 0) % (1 << 64):016x}",
    }


def together(some: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of two sets of rows without a common one."""
    return {
        "records": some["records"] + others["records"],
        NAME: f"{int(some[NAME], 16) ^ int(others[NAME], 16):016x}",
    }


def partition_column(topics: Collection[str]) -> Column:
    """Return the observed metric that counts the records of each partition.

    Spark has no aggregate that counts by key, but a histogram with a bin for each different value.
    A topic's checksum takes 0.1 us per record, so it is left out if one topic is planned.
    """
    if len(topics) == 1:
        return F.expr(f"histogram_numeric(partition, {BINS})").alias(OF_TOPIC)
    key = f"crc32(CAST(topic AS BINARY)) * {SHIFT} + partition"
    return F.expr(f"histogram_numeric(CAST({key} AS DOUBLE), {BINS})").alias(COUNTS)


def counts_of(observed: Mapping[str, Any], partitions: Iterable[TopicPartition]) -> dict[str, str]:
    """Return the observed counts in a note's form; empty if they can't be told.

    Args:
        observed: The observed metrics.
        partitions: The partitions that were read.
    """
    tps = list(partitions)
    if OF_TOPIC in observed:
        bins, by_key = observed[OF_TOPIC], {tp.partition: tp for tp in tps}
    else:
        bins = observed[COUNTS]
        by_key = {crc32(tp.topic.encode()) * SHIFT + tp.partition: tp for tp in tps}
    counts = dict.fromkeys(tps, 0)
    try:
        for bin in bins or ():
            counts[by_key[round(bin["x"])]] += round(bin["y"])
    except KeyError:
        # A partition that wasn't planned.
        return {}
    if len(by_key) < len(tps) or sum(counts.values()) != observed["records"]:
        # Two partitions have one key: there is a topic that wasn't planned.
        return {}
    return {"by_partition": to_spark_json({tp: n for tp, n in counts.items() if n})}
