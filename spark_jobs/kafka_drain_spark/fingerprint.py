"""The fingerprint of records, taken by Spark between Kafka and the files."""

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
    """Return what is observed of the Kafka source's rows: `records` and `fingerprint`.

    XOR needs no order and can't overflow, as a sum would under ANSI rules.
    """
    known = records.columns
    hashed = ", ".join(f"`{name}`" for name in COLUMNS if name in known)
    # As SQL: `F.lit` imports pyspark.testing, and with it pandas, which takes a second and a half.
    return [F.expr("count(1)").alias("records"), F.expr(f"bit_xor(xxhash64({hashed}))").alias(NAME)]


def fingerprint_of(observed: dict[str, Any]) -> dict[str, Any]:
    """Return what was observed as it stands in a result: 16 hexadecimal digits."""
    return {
        "records": observed["records"],
        NAME: f"{(observed[NAME] or 0) % (1 << 64):016x}",
    }
