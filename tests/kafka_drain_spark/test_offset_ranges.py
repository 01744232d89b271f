"""Records by ranges of offsets: which join is asked for, without a JVM."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain_spark import offset_ranges
from kafka_drain_spark.offset_ranges import at_offsets, without_offsets

ROWS = [{"topic": "t", "partition": 0, "start": 3, "end": 5}]
SPARK: Any = object()
RECORDS: Any = object()


def test_offsets_of_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """No range means all records: of those that are wanted as of those that are left out."""
    monkeypatch.setattr(offset_ranges, "_joined", lambda *_: pytest.fail("a join"))

    assert at_offsets(SPARK, RECORDS, iter(())) is RECORDS
    assert without_offsets(SPARK, RECORDS, iter(())) is RECORDS


def test_offsets_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wanted offsets are kept, erased ones are dropped, and no column is added."""
    monkeypatch.setattr(offset_ranges, "_joined", lambda *given: given)

    kept: Any = at_offsets(SPARK, RECORDS, iter(ROWS))
    left: Any = without_offsets(SPARK, RECORDS, iter(ROWS))

    assert kept == (SPARK, RECORDS, ROWS, "left_semi")
    assert left == (SPARK, RECORDS, ROWS, "left_anti")
