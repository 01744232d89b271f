"""How Spark is told which files to read."""

from __future__ import annotations

import pytest

from kafka_drain_spark.data_files import as_pattern


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
