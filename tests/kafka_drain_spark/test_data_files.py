"""How Spark is told which files to read."""

from __future__ import annotations

import pytest

from kafka_drain_spark.data_files import as_pattern, matches_nothing


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/data/orders/part-0.parquet", "/data/orders/part-0.parquet"),
        ("/data/größe #1 100%/co:lon/a+b", "/data/größe #1 100%/co:lon/a+b"),
        ("/[prod] {eu}/st*ar?/back\\slash", "/\\[prod\\] \\{eu\\}/st\\*ar\\?/back\\\\slash"),
    ],
)
def test_as_pattern(path: str, pattern: str) -> None:
    """What a pattern would take for more than itself is escaped, nothing else."""
    assert as_pattern(path) == pattern


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/co:lon/part-0.parquet", False),
        ("/data/[prod]/part-0.parquet", False),
        ("/data/[prod]/co:lon/part-0.parquet", True),
        ("/data/co:lon\\back/part-0.parquet", True),
        # The colon of a store's URL is none of a name.
        ("s3a://bucket/[prod]/part-0.parquet", False),
        ("s3a://bucket/[prod]/co:lon/part-0.parquet", True),
    ],
)
def test_matches_nothing(path: str, expected: bool) -> None:
    """A colon is in the way only of a path that Hadoop compares names for."""
    assert matches_nothing(path) is expected
