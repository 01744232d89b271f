"""What a compaction's job does with the old files' rows, and in which order, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Observation

from kafka_drain.spark.job_spec import CompactSpec
from kafka_drain_spark import compact
from kafka_drain_spark.compact import run_compact
from kafka_drain_spark.job import JobFailed
from kafka_drain_spark.offset_ranges import IS_ERASED
from tests.kafka_drain_spark.noted_steps import Spark, in_order, noted_functions, unlike

SOURCES = [
    {"data_folder": "/a/data", "file_format": "orc", "files": ["/a/data/1.orc"]},
    {"data_folder": "/b/data", "file_format": "orc", "files": ["/b/data/2.orc"]},
]
WRITTEN = [{"data_folder": "/to", "file_format": "parquet", "files": ["/to"]}]
ERASED = [{"topic": "t", "partition": 0, "start": 6, "end": 7}]
KEYS = {"key": "wrapped"}


def content(records: int, fingerprint: int) -> dict[str, Any]:
    """Return what Spark observes of rows."""
    return {"records": records, "fingerprint": f"{fingerprint:016x}"}


class Observed:
    """What Spark observes: of the old rows, of those that are erased, and of the new ones."""

    def __init__(self) -> None:
        self.before, self.gone, self.after = content(5, 7), content(2, 3), content(3, 4)
        self.looks = 0

    def of(self, seen: object, where: str = "") -> dict[str, Any]:
        """Return the next observation."""
        assert seen == "observed"
        if where:
            assert where == IS_ERASED
            return self.gone
        self.looks += 1
        return self.before if self.looks == 1 else self.after


@pytest.fixture
def observed() -> Observed:
    """Of five rows, two are erased."""
    return Observed()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, observed: Observed) -> list[Any]:
    """The steps of a job."""
    taken = noted_functions(
        monkeypatch,
        compact,
        "require_source",
        "with_erased",
        "with_exact_times",
        "with_decoded",
        "without_wrong_times",
        "set_keys",
    )

    def read(session: Spark, sources: list[Any]) -> Spark:
        taken.append(("read_files", session.name, sources))
        return session

    def save(session: Spark, write: Any, progress: Any, what: str) -> None:
        taken.append(("save_shown", session.name, progress.total, what))
        write()

    monkeypatch.setattr(compact, "read_files", read)
    monkeypatch.setattr(compact, "save_shown", save)
    monkeypatch.setattr(
        compact, "fingerprint_columns", lambda _, where="": [f"a fingerprint {where}"]
    )
    monkeypatch.setattr(compact, "fingerprint_of", observed.of)
    monkeypatch.setattr(compact, "F", SimpleNamespace(expr=lambda text: text))
    monkeypatch.setattr(Observation, "get", "observed")
    return taken


def run(steps: list[Any], **more: Any) -> dict[str, Any]:
    """Run a job; return its result."""
    given: dict[str, Any] = {
        "window": "w",
        "sources": SOURCES,
        "records": 5,
        "files": 2,
        "file_format": "parquet",
        "writer_options": {"compression": "zstd"},
        "path": "/to",
        "erased": ERASED,
        "partition_by": ["date", "topic"],
        "columns": {"date": "to_date(timestamp)"},
        "values": None,
    }
    spark: Any = Spark(steps)
    return run_compact(spark, CompactSpec(log_levels={}, result_path="", **(given | more)))


def test_run_compact(steps: list[Any]) -> None:
    """What is erased is counted, then left out; what was written is read back and compared."""
    found = run(steps)

    assert found.pop("seconds") >= 0
    assert found == {**content(3, 4), "erased": content(2, 3)}
    order = ("date", "topic", "partition", "offset")
    expected = [
        ("require_source", "parquet", "orc"),
        ("read_files", "given", SOURCES),
        ("with_erased", ERASED),
        ("withColumn", "date", "to_date(timestamp)"),
        ("repartitionByRange", 2, *order),
        ("sortWithinPartitions", *order),
        ("where", f"NOT {IS_ERASED}"),
        ("drop", IS_ERASED),
        ("with_exact_times", "parquet"),
        ("with_decoded", None),
        ("without_wrong_times", "parquet"),
        ("format", "parquet"),
        ("options", {"compression": "zstd"}),
        ("partitionBy", "date", "topic"),
        ("save_shown", "given", 5, "compact w"),
        ("mode", "overwrite"),
        ("save", "/to"),
        ("read_files", "given", WRITTEN),
        ("format", "noop"),
        ("mode", "overwrite"),
        ("save",),
    ]
    assert unlike([step for step in steps if step[0] != "observe"], expected) == ([], [])
    assert in_order(steps, "with_erased", "where", "drop", "save_shown")
    assert in_order(steps, "withColumn", "repartitionByRange", "sortWithinPartitions", "save_shown")
    # The date is of times that ORC would change.
    assert in_order(steps, "withColumn", "with_exact_times", "without_wrong_times", "save_shown")
    # After the exchange, which reads twice; before the erased ones are left out.
    assert in_order(steps, "repartitionByRange", "observe", "where")
    old, new = (number for number, step in enumerate(steps) if step[0] == "observe")
    assert steps[old][2:] == ("a fingerprint ", f"a fingerprint {IS_ERASED}")
    assert steps[new][2:] == ("a fingerprint ",)
    assert steps.index(("save", "/to")) < steps.index(("read_files", "given", WRITTEN)) < new


def test_run_compact_of_all(steps: list[Any], observed: Observed) -> None:
    """Where nothing is erased, nothing is left out."""
    observed.after = observed.before

    found = run(steps, erased=[], partition_by=[], columns={})

    assert {step[0] for step in steps}.isdisjoint(
        ("with_erased", "where", "drop", "partitionBy", "withColumn", "set_keys")
    )
    assert [step[2:] for step in steps if step[0] == "observe"] == [("a fingerprint ",)] * 2
    assert (found["records"], found["erased"]) == (5, content(0, 0))


@pytest.mark.parametrize(
    "after",
    [content(3, 5), content(4, 4), content(5, 7)],
    ids=["another record", "one too many", "nothing erased"],
)
def test_run_compact_differs(steps: list[Any], observed: Observed, after: dict[str, Any]) -> None:
    """The job fails if the new files don't hold the old records without the erased ones."""
    observed.after = after

    with pytest.raises(JobFailed, match=f"/to holds .*{after['fingerprint']}.*erased"):
        run(steps)


def test_run_compact_encrypted(steps: list[Any]) -> None:
    """Keys are set in a session of the job's own alone, before the old files are read."""
    run(steps, encryption=KEYS)

    assert [step for step in steps if step[0] in ("set_keys", "read_files", "save_shown")] == [
        ("set_keys", KEYS),
        ("read_files", "own", SOURCES),
        ("set_keys", KEYS, "the columns", ["date", "topic"]),
        ("save_shown", "own", 5, "compact w"),
        ("read_files", "own", WRITTEN),
    ]
