"""Records by ranges of offsets: which join is asked for, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain_spark import offset_ranges
from kafka_drain_spark.offset_ranges import (
    BLOCK,
    IS_ERASED,
    at_offsets,
    with_erased,
    without_offsets,
)
from tests.kafka_drain_spark.noted_steps import Spark

ROWS = [{"topic": "t", "partition": 0, "start": 3, "end": 5}]
SPARK: Any = object()
RECORDS: Any = object()


def test_offsets_of_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """No range means all records: of those that are wanted as of those that are left out."""
    monkeypatch.setattr(offset_ranges, "_joined", lambda *_: pytest.fail("a join"))

    assert at_offsets(SPARK, RECORDS, iter(())) is RECORDS
    assert without_offsets(SPARK, RECORDS, iter(())) is RECORDS


@pytest.mark.parametrize(
    ("select", "how"), [(at_offsets, "left_semi"), (without_offsets, "left_anti")]
)
def test_offsets_joined(monkeypatch: pytest.MonkeyPatch, select: Any, how: str) -> None:
    """Wanted offsets are kept, erased ones dropped, by topic and partition; the end is excluded."""
    steps: list[Any] = []
    monkeypatch.setattr(offset_ranges, "F", SimpleNamespace(expr=Text, broadcast=lambda one: one))
    spark: Any = Spark(steps)

    select(spark, spark, iter(ROWS))

    columns = "_range_topic string, _range_partition int, _range_start bigint, _range_end bigint"
    blocks = f"explode(sequence(_range_start div {BLOCK}, (_range_end - 1) div {BLOCK}))"
    condition = (
        f"topic = _range_topic AND partition = _range_partition AND offset div {BLOCK} = "
        "_range_block AND offset >= _range_start AND offset < _range_end"
    )
    assert steps == [
        ("createDataFrame", [("t", 0, 3, 5)], columns),
        ("select", "*", f"{blocks} as _range_block"),
        ("join", spark, condition, how),
    ]


def test_with_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    """All records stay, with one more column, which says whether they are erased."""
    steps: list[Any] = []
    monkeypatch.setattr(offset_ranges, "F", SimpleNamespace(expr=Text, broadcast=lambda one: one))
    spark: Any = Spark(steps)
    spark.columns = ["topic", "offset"]

    with_erased(spark, spark, ROWS)

    *_, joined, chosen = steps
    assert (joined[0], joined[-1]) == ("join", "left")
    assert chosen == ("select", "topic", "offset", f"_range_block IS NOT NULL as {IS_ERASED}")


class Text(str):
    """An expression of columns."""

    __slots__ = ()

    def alias(self, name: str) -> str:
        """Return it with a name."""
        return f"{self} as {name}"
