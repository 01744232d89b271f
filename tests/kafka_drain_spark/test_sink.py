"""What a republish with Spark's own sink sends, and in which order, without a JVM."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

from kafka_drain.spark.job_spec import SinkSpec
from kafka_drain_spark import sink
from kafka_drain_spark.job import JobFailed
from kafka_drain_spark.sink import run_sink
from tests.kafka_drain_spark.noted_steps import Spark, in_order, noted_functions, unlike

SOURCES = [
    {"data_folder": "/a/1", "file_format": "orc", "files": ["/a/1/x.orc"]},
    {"data_folder": "/a/2", "file_format": "parquet", "files": ["/a/2/y.parquet"]},
]
SPEC = SinkSpec(
    run="r",
    sources=SOURCES,
    targets={"a": "A", "b": "B"},
    partitions=["a-0", "b-1"],
    records=5,
    writer_options={"kafka.acks": "all"},
    secrets_path="/secrets",
    log_levels={},
    result_path="",
)


class Expression:
    """An expression of columns, as text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return str(other) == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __getitem__(self, key: object) -> Expression:
        return Expression(f"{self}[{key}]")

    def isin(self, values: list[str]) -> Expression:
        """Return a condition."""
        return Expression(f"{self} in {values}")

    def alias(self, name: str) -> Expression:
        """Return the same with a name."""
        return Expression(f"{self} as {name}")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps of a job whose files hold five rows."""
    taken = noted_functions(monkeypatch, sink, "require_source", "read_files")
    for name in ("coalesce", "col", "concat_ws", "create_map", "lit"):

        def function(*given: object, name: str = name) -> Expression:
            return Expression(f"{name}({', '.join(map(str, given))})")

        monkeypatch.setattr(sink, name, function)
    monkeypatch.setattr(sink, "secret_options", lambda path: {"kafka.secret": "s"} if path else {})
    monkeypatch.setattr(sink, "finished_tasks", lambda _: 1)
    return taken


class Rows(Spark):
    """The rows of the files."""

    rows = 5
    error: Exception | None = None

    def count(self) -> int:
        """Return their number."""
        self.steps.append(("count",))
        return self.rows

    def save(self) -> None:
        """Send them."""
        self.steps.append(("save",))
        if self.error:
            raise self.error


def test_run_sink(steps: list[Any]) -> None:
    """Each source partition is sent by one task, in the order of its offsets, once all is read."""
    spark: Any = Rows(steps)

    found = run_sink(spark, SPEC)

    assert found["records"] == 5
    required, *others = steps
    assert (required[0], {*required[1:]}) == ("require_source", {"kafka", "orc", "parquet"})
    expected = [
        ("read_files", SOURCES),
        ("withColumn", "topic", "coalesce(topic, lit())"),
        ("where", "concat_ws(-, topic, partition) in ['a-0', 'b-1']"),
        ("count",),
        ("repartition", 2, "topic", "partition"),
        ("sortWithinPartitions", "topic", "partition", "offset"),
        (
            "select",
            "key",
            "value",
            "headers",
            "create_map(lit(a), lit(A), lit(b), lit(B))[col(topic)] as topic",
            "partition",
        ),
        ("format", "kafka"),
        ("options", {"kafka.acks": "all", "kafka.secret": "s"}),
        ("save",),
    ]
    assert unlike(others, expected) == ([], [])
    assert in_order(steps, "withColumn", "where", "count", "save")
    assert in_order(steps, "where", "repartition", "sortWithinPartitions", "save")


@pytest.mark.parametrize("rows", [4, 6])
def test_run_sink_other_rows(steps: list[Any], rows: int) -> None:
    """Files that Spark reads otherwise than they were sealed aren't sent at all."""
    spark: Any = Rows(steps)
    spark.rows = rows

    with pytest.raises(JobFailed, match=f"{rows} rows, .* hold 5; nothing was sent"):
        run_sink(spark, SPEC)

    assert "save" not in {step[0] for step in steps}


def test_run_sink_fails(steps: list[Any]) -> None:
    """A sink that fails may have sent some records."""
    spark: Any = Rows(steps)
    spark.error = PySparkException("no broker")

    with pytest.raises(JobFailed, match="no broker; some records may have been sent"):
        run_sink(spark, SPEC)
