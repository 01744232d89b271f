"""How items come to tasks, and results back, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kafka_drain_spark import executors
from kafka_drain_spark.executors import in_tasks
from tests.kafka_drain_spark.test_session import remote


def doubled(items: Iterable[int]) -> Iterator[int]:
    """Yield each item twice."""
    for item in items:
        yield item
        yield item


def test_in_tasks_of_classic() -> None:
    """Items are shared out to the given number of tasks, and results come in order."""
    asked: list[int] = []

    def parallelize(items: list[int], tasks: int) -> Any:
        asked.append(tasks)
        return SimpleNamespace(
            mapPartitions=lambda function: SimpleNamespace(collect=lambda: list(function(items)))
        )

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(parallelize=parallelize))

    assert in_tasks(spark, [3, 1], 7, doubled)() == [3, 3, 1, 1]
    assert asked == [7]


@pytest.mark.parametrize("items", [[], [3, 1], [*range(700)]])
def test_in_tasks_of_remote(monkeypatch: pytest.MonkeyPatch, items: list[int]) -> None:
    """A server gets our code too, and all results come in order, a bounded number at a time."""
    conf: dict[str, str] = {}
    artifacts: list[Any] = []
    batches: list[int] = []

    def frame(rows: list[Any], schema: str) -> Any:
        assert schema == "item binary"

        def mapped(function: Any, schema: str) -> Any:
            assert schema == "result binary"
            pieces = [rows[:1], rows[1:]]
            given = [pa.record_batch([[row[0] for row in each]], ["item"]) for each in pieces]
            found = list(function(iter(given)))
            batches.extend(each.num_rows for each in found)
            values = [value for each in found for value in each.column(0).to_pylist()]
            return SimpleNamespace(collect=lambda: [(value,) for value in values])

        return SimpleNamespace(mapInArrow=mapped)

    spark = remote(
        addArtifacts=lambda files, pyfile: artifacts.append((files, pyfile)),
        conf=SimpleNamespace(set=conf.__setitem__),
        createDataFrame=frame,
    )
    monkeypatch.setattr(executors, "settings", lambda: {"py_files": "our.zip"})

    assert in_tasks(spark, items, 7, doubled)() == [item for item in items for _ in range(2)]
    assert artifacts == [("our.zip", True)]
    assert conf == {"spark.sql.leafNodeDefaultParallelism": "7"}
    assert max(batches, default=0) <= 500
