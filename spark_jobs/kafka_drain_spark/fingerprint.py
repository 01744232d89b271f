"""The fingerprint of records, computed by Spark between Kafka and the files."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["NAME", "fingerprint_columns", "fingerprint_of"]

#: Name of the observation.
NAME = "fingerprint"

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


def fingerprint_columns(records: DataFrame) -> list[Column]:
    """Return the observed metrics of the Kafka source's rows: `records` and `fingerprint`.

    XOR is independent of order and can't overflow, unlike a sum under ANSI rules.
    """
    known = records.columns
    hashed = ", ".join(f"`{name}`" for name in COLUMNS if name in known)
    # As SQL, because `F.lit` imports pyspark.testing and thus pandas, which takes 1.5 seconds.
    return [F.expr("count(1)").alias("records"), F.expr(f"bit_xor(xxhash64({hashed}))").alias(NAME)]


def fingerprint_of(observed: dict[str, Any]) -> dict[str, Any]:
    """Return the observed metrics in a result's form: the fingerprint as 16 hexadecimal digits."""
    return {
        "records": observed["records"],
        NAME: f"{(observed[NAME] or 0) % (1 << 64):016x}",
    }
