"""What a query's reports say of its batches, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pytest
from pyspark.errors import StreamingQueryException

from kafka_drain.offsets import TopicPartition
from kafka_drain.spark.job_spec import DrainSpec
from kafka_drain_spark import drain
from kafka_drain_spark.drain import Batches, run_drain
from kafka_drain_spark.fingerprint import SHIFT
from kafka_drain_spark.job import JobFailed

P0 = TopicPartition("t", 0)
SKIPPED = [{"topic": "t", "partition": 0, "start": 0, "end": 4}]


@dataclass
class Report:
    """A report of Spark's on a batch, as Py4J hands it over."""

    content: dict[str, Any]

    def batchId(self) -> int:
        return int(self.content["batchId"])

    def json(self) -> str:
        return json.dumps(self.content)


@dataclass
class Query:
    """A query with its newest reports."""

    reports: Sequence[Report]
    id = "query"

    @property
    def _jsq(self) -> Query:
        return self

    def recentProgress(self) -> Sequence[Report]:
        return self.reports

    def awaitTermination(self, seconds: float) -> bool:
        raise StreamingQueryException(f"failed within {seconds} s")


def report(
    batch: int, start: int | None, end: int, *, observed: bool = True, records: int = 2
) -> Report:
    bins = [{"x": crc32(b"t") * SHIFT, "y": 2.0}]
    metrics = {"records": records, "fingerprint": -1, "partitions": bins}
    return Report(
        {
            "batchId": batch,
            "sources": [
                {
                    "startOffset": None if start is None else {"t": {"0": start}},
                    "endOffset": {"t": {"0": end}},
                    "numInputRows": 2,
                }
            ],
            "observedMetrics": {"fingerprint": metrics} if observed else {},
        }
    )


def note(batch: int, start: int, end: int) -> dict[str, Any]:
    return {
        "batch": batch,
        "records": 2,
        "fingerprint": "f" * 16,
        "by_partition": '{"t":{"0":2}}',
        "start": f'{{"t":{{"0":{start}}}}}',
        "end": f'{{"t":{{"0":{end}}}}}',
    }


REPORTS = [report(0, None, 5), report(1, 5, 7), report(1, 7, 7), report(2, 7, 9)]


@pytest.mark.parametrize(
    ("first_unlisted", "left"), [(0, [0, 1, 2]), (1, [1, 2]), (2, [2]), (3, []), (7, [])]
)
def test_batches_notes(first_unlisted: int, left: list[int]) -> None:
    """Of batches that were listed before the query, what Spark says isn't what it has read."""
    batches = Batches({P0: 3}, first_unlisted)
    batches.update(Query(REPORTS))  # type: ignore[arg-type]

    assert batches.notes == [
        each for each in (note(0, 3, 5), note(1, 5, 7), note(2, 7, 9)) if each["batch"] in left
    ]


def test_batches_notes_skipped() -> None:
    """What Kafka had no longer is in each note."""
    batches = Batches({P0: 3}, 0, SKIPPED)
    batches.update(Query(REPORTS[:2]))  # type: ignore[arg-type]

    assert batches.notes == [each | {"skipped": SKIPPED} for each in (note(0, 3, 5), note(1, 5, 7))]


def test_batches_update() -> None:
    """Reports come again with the next ones; a batch that Spark skipped has no note."""
    batches = Batches({P0: 3})
    for number in range(1, len(REPORTS) + 1):
        batches.update(Query(REPORTS[:number]))  # type: ignore[arg-type]
    batches.update(Query([report(3, 9, 11, observed=False)]))  # type: ignore[arg-type]

    assert (len(batches), batches.records, batches.offsets) == (4, 8, 8)
    assert [each["batch"] for each in batches.notes] == [0, 1, 2]


@pytest.mark.parametrize(
    ("first_unlisted", "noted"), [(0, [0, 1, 2]), (1, [0, 1, 2]), (2, [0, 2]), (3, [0])]
)
def test_batches_of_adopted_query(first_unlisted: int, noted: list[int]) -> None:
    """A query from before preflight has read listed batches itself, unless it skipped them."""
    batches = Batches({P0: 0}, first_unlisted, adopted=True)
    reports = [report(n, 2 * n, 2 * n + 2, records=0 if n else 2) for n in range(3)]
    batches.update(Query(reports))  # type: ignore[arg-type]

    assert [note["batch"] for note in batches.notes] == noted


def test_run_drain_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that fails leaves the notes of all committed batches, also of the very last ones."""
    monkeypatch.setattr(drain, "session_for", lambda spark, _: spark)
    monkeypatch.setattr(drain, "start_query", lambda *_: Query(REPORTS))
    spec = DrainSpec(
        log_levels={},
        result_path="",
        file_format="parquet",
        writer_options={},
        partition_by=[],
        columns={},
        reader_options={},
        pipeline="p",
        start='{"t":{"0":3}}',
        planned_end='{"t":{"0":12}}',
    )

    with pytest.raises(JobFailed, match="failed within") as failed:
        run_drain(object(), spec)  # type: ignore[arg-type]

    assert failed.value.left["notes"] == [note(0, 3, 5), note(1, 5, 7), note(2, 7, 9)]
