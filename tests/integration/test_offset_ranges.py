"""Selecting records by very many ranges of offsets, in real Spark."""

from __future__ import annotations

import gc
import time
import warnings
from functools import reduce
from random import Random
from typing import Any

import pytest

from kafka_drain_spark.offset_ranges import (
    BLOCK,
    IS_ERASED,
    at_offsets,
    with_erased,
    without_offsets,
)

OFFSETS = 60 * BLOCK


@pytest.fixture(scope="module")
def ranges() -> list[dict[str, Any]]:
    """Tens of thousands of short ranges, one of many blocks, and ranges that end with a block."""
    random, rows = Random(1), []
    for partition in (0, 1):
        at = 0
        while at < OFFSETS // 8:
            start = at + random.randint(1, 2)
            at = start + random.randint(1, 2)
            rows.append({"topic": "t", "partition": partition, "start": start, "end": at})
    bounds = [(40, 50), (51, 52)]
    for first, last in bounds:
        row = {"topic": "t", "partition": 0, "start": first * BLOCK, "end": last * BLOCK}
        rows.append(row)
    return rows


def collected(frame: Any) -> list[Any]:
    """Return all rows."""
    with warnings.catch_warnings():
        # pyspark leaves the socket of a collect() to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        rows: list[Any] = frame.collect()
        gc.collect()
    return rows


def digest_of(frame: Any) -> tuple[int, int]:
    """Return the number of records, and a digest of which they are."""
    (row,) = collected(frame.selectExpr("count(*)", "bit_xor(xxhash64(topic, partition, offset))"))
    return row[0], row[1]


@pytest.mark.integration
def test_offset_ranges_many(spark: Any, ranges: list[dict[str, Any]]) -> None:
    """Exactly the offsets of the ranges are selected, left out or marked, in seconds."""
    held = {(row["partition"], n) for row in ranges for n in range(row["start"], row["end"])}
    columns = ["id offset", "'v' value"]
    partitions = [
        spark.range(OFFSETS).selectExpr(f"'{topic}' topic", f"{partition} partition", *columns)
        for topic, partition in (("t", 0), ("t", 1), ("t", 2), ("u", 0))
    ]
    records = reduce(type(partitions[0]).union, partitions)
    began = time.monotonic()

    at, without, marked = (
        select(spark, records, ranges) for select in (at_offsets, without_offsets, with_erased)
    )

    assert at.columns == without.columns == records.columns
    rows = collected(at)
    assert {(row.partition, row.offset) for row in rows} == held
    assert {row.topic for row in rows} == {"t"}
    assert len(rows) == len(held)
    count, digest = digest_of(at)
    whole = digest_of(records)
    assert count == len(held)
    assert digest_of(without) == (whole[0] - count, whole[1] ^ digest)
    assert digest_of(marked) == whole
    assert digest_of(marked.where(IS_ERASED)) == (count, digest)
    # A condition with a term for each range never ends.
    assert time.monotonic() - began < 60


@pytest.mark.integration
def test_offset_ranges_none(spark: Any) -> None:
    """Without ranges, all records stay."""
    records = spark.range(3).selectExpr("'t' topic", "0 partition", "id offset")

    assert at_offsets(spark, records, []).count() == 3
    assert without_offsets(spark, records, []).count() == 3
