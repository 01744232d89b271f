"""How a query is started, and what its reports say of its batches, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import Progress
from kafka_drain.spark.job_spec import DrainSpec
from kafka_drain_spark import drain
from kafka_drain_spark.drain import (
    Batches,
    follow,
    query_name,
    run_drain,
    running_query,
    session_for,
    start_query,
    start_writing,
)
from kafka_drain_spark.fingerprint import SHIFT
from kafka_drain_spark.job import JobFailed
from tests.kafka_drain_spark.noted_steps import Spark, in_order, noted_functions, unlike
from tests.kafka_drain_spark.test_session import remote

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


def spec_of(**more: Any) -> DrainSpec:
    """The spec of a drain of P0 from 3 to 12."""
    given = {
        "file_format": "parquet",
        "writer_options": {},
        "partition_by": [],
        "columns": {},
        "reader_options": {"startingOffsets": '{"t":{"0":0}}'},
        "pipeline": "p",
        "start": '{"t":{"0":3}}',
        "planned_end": '{"t":{"0":12}}',
    }
    return DrainSpec(log_levels={}, result_path="", **(given | more))


def test_run_drain_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that fails leaves the notes of all committed batches, also of the very last ones."""
    monkeypatch.setattr(drain, "session_for", lambda spark, _: spark)
    monkeypatch.setattr(drain, "start_query", lambda *_: Query(REPORTS))

    with pytest.raises(JobFailed, match="failed within") as failed:
        run_drain(object(), spec_of())  # type: ignore[arg-type]

    assert failed.value.left["notes"] == [note(0, 3, 5), note(1, 5, 7), note(2, 7, 9)]


class Running:
    """A query that ends after some looks at it, each of which shows one more report."""

    def __init__(self, *reports: Report, error: BaseException | None = None) -> None:
        self.reports, self.error = reports, error
        self.seen, self.stopped = 0, 0
        self.id = self.name = "query"

    @property
    def _jsq(self) -> Running:
        return self

    def recentProgress(self) -> Sequence[Report]:
        return self.reports[: self.seen]

    def awaitTermination(self, _: float) -> bool:
        self.seen += 1
        if self.error:
            raise self.error
        return self.seen >= len(self.reports)

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The batches of the notes that are written, each time."""
    times: list[list[int]] = []

    class Notes:
        def __init__(self, spark: object, folder: str) -> None:
            assert folder == "/notes"

        def write(self, notes: Sequence[dict[str, Any]]) -> None:
            times.append([note["batch"] for note in notes])

    monkeypatch.setattr(drain, "NoteFiles", Notes)
    monkeypatch.setattr(drain, "records_read", lambda _: 5)
    return times


def test_follow(written: list[list[int]], capsys: pytest.CaptureFixture[str]) -> None:
    """Notes are written while the query runs and at its end; no more than all is shown."""
    clock = iter(range(0, 1000, 3))
    progress = Progress("offsets", 6, clock=lambda: float(next(clock)))
    batches = Batches({P0: 3})
    query: Any = Running(REPORTS[0], REPORTS[1], REPORTS[3])
    spark: Any = object()

    follow(spark, spec_of(notes_path="/notes"), query, batches, progress)

    assert written == [[0], [0, 1], [0, 1, 2]]
    shown = [line.partition(" offsets")[0] for line in capsys.readouterr().out.splitlines()]
    # Of five records that are being read, two may be those of the batch that has just ended.
    assert shown == ["drain p: 6 of 6"] * 2


@pytest.mark.parametrize("is_remote", [False, True])
def test_run_drain(
    monkeypatch: pytest.MonkeyPatch, written: list[list[int]], is_remote: bool
) -> None:
    """A drain's result has what its batches have come to, and on a server which query it was."""
    closed: list[Any] = []
    session: Any = remote(streams=SimpleNamespace(active=[])) if is_remote else object()
    query = Running(*REPORTS[:3])
    monkeypatch.setattr(drain, "session_for", lambda *_: session)
    monkeypatch.setattr(drain, "start_query", lambda *_: query)
    monkeypatch.setattr(drain, "close_session", closed.append)

    found = run_drain(session, spec_of(notes_path="/notes"))

    assert (found["batches"], found["offsets"], found["records"]) == (2, 4, 4)
    assert (found["start"], found["end"]) == ('{"t":{"0":3}}', '{"t":{"0":7}}')
    assert found["notes"] == [note(0, 3, 5), note(1, 5, 7)]
    told = {"query_id": "query", "adopted": False} if is_remote else {}
    assert {name: found.get(name) for name in ("query_id", "adopted") if name in found} == told
    assert closed == [session]
    assert query.stopped == 0


def test_run_drain_of_running_query(
    monkeypatch: pytest.MonkeyPatch, written: list[list[int]]
) -> None:
    """A query that a killed client left may have run the very first batch of its checkpoint."""
    spec = spec_of(notes_path="/notes", first_unlisted=1)
    query = Running(*REPORTS[:3])
    query.name = f"drain_p_{spec.query_key}"
    session = remote(streams=SimpleNamespace(active=[query]))
    monkeypatch.setattr(drain, "session_for", lambda *_: session)
    monkeypatch.setattr(drain, "close_session", lambda _: None)
    monkeypatch.setattr(drain, "start_query", lambda *_: pytest.fail("a second query"))

    found = run_drain(session, spec)

    assert found["adopted"] is True
    assert found["notes"][0]["start"] == '{"t":{"0":0}}'


@pytest.mark.parametrize(
    ("error", "is_remote", "closes", "stops"),
    [
        (StreamingQueryException("failed"), False, 1, 0),
        (StreamingQueryException("failed"), True, 1, 0),
        # The server is away: the query may go on, and is found again.
        (PySparkException("no answer"), True, 0, 0),
        (PySparkException("no answer"), False, 1, 0),
        # Ended by the user.
        (KeyboardInterrupt(), True, 0, 1),
        (KeyboardInterrupt(), False, 0, 0),
    ],
)
def test_run_drain_ends(
    monkeypatch: pytest.MonkeyPatch,
    written: list[list[int]],
    error: BaseException,
    is_remote: bool,
    closes: int,
    stops: int,
) -> None:
    """A failed query's session is closed, unless its server is away; who stops a job stops it."""
    closed: list[Any] = []
    session: Any = remote(streams=SimpleNamespace(active=[])) if is_remote else object()
    query = Running(*REPORTS[:2], error=error)
    monkeypatch.setattr(drain, "session_for", lambda *_: session)
    monkeypatch.setattr(drain, "start_query", lambda *_: query)
    monkeypatch.setattr(drain, "close_session", closed.append)
    expected = JobFailed if isinstance(error, PySparkException) else type(error)

    with pytest.raises(expected) as failed:
        run_drain(session, spec_of(notes_path="/notes"))

    assert (len(closed), query.stopped) == (closes, stops)
    if isinstance(failed.value, JobFailed):
        assert [note["batch"] for note in failed.value.left["notes"]] == ([0] if closes else [])
        assert ("query_id" in failed.value.left) is is_remote


def test_running_query() -> None:
    """Of a server's queries, that of the same options is followed, and any other is stopped."""
    own, other = Running(), Running()
    spec = spec_of()
    own.name, other.name = f"drain_p_{spec.query_key}", "drain_p_older"
    session = remote(streams=SimpleNamespace(active=[other, own]))

    found: Any = running_query(session, spec)

    assert found is own
    assert (own.stopped, other.stopped) == (0, 1)
    classic: Any = object()
    assert running_query(classic, spec) is None
    assert query_name(classic, spec) == "drain_p"


def test_session_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain's session is its archive's own, and has the options that Parquet reads from it."""
    conf: dict[str, str] = {}
    keys: list[str] = []

    def own(_: object, key: str) -> Any:
        keys.append(key)
        return SimpleNamespace(conf=SimpleNamespace(set=conf.__setitem__))

    monkeypatch.setattr(drain, "own_session", own)
    options = {"parquet.a": "1", "orc.b": "2", "compression": "zstd"}
    internal = {"subscribe": "__consumer_offsets"}
    spark: Any = object()

    session_for(spark, spec_of(archive="/a", writer_options=options, reader_options=internal))

    assert keys == ["/a#p#drain"]
    assert conf.pop("spark.sql.streaming.kafka.useDeprecatedOffsetFetching") == "true"
    assert conf == {"parquet.a": "1", "orc.b": "2"}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps of a query that is started."""
    taken = noted_functions(
        monkeypatch,
        drain,
        "require_source",
        "as_sent",
        "with_exact_times",
        "with_decoded",
        "without_wrong_times",
        "set_keys",
        "merged",
    )

    def with_splits(_: object, options: dict[str, str], sizes: list[int]) -> dict[str, str]:
        taken.append(("with_splits", sizes))
        return options | {"minPartitions": "9"}

    monkeypatch.setattr(drain, "with_splits", with_splits)
    monkeypatch.setattr(drain, "secret_options", lambda path: {"secret": "s"} if path else {})
    monkeypatch.setattr(drain, "fingerprint_columns", lambda _: ["a fingerprint"])
    monkeypatch.setattr(drain, "partition_column", lambda topics: ("partitions of", topics))
    monkeypatch.setattr(drain, "count_columns", lambda values: ["counts of", values])
    monkeypatch.setattr(drain, "F", SimpleNamespace(expr=lambda text: text))
    return taken


VALUES = {"format": "avro"}


def test_start_query(steps: list[Any]) -> None:
    """What is read is observed as it was sent; the query ends when it has caught up."""
    spec = spec_of(
        start='{"t":{"0":3,"1":4}}',
        planned_end='{"t":{"0":12,"1":5}}',
        columns={"date": "to_date(timestamp)"},
        partition_by=["date"],
        writer_options={"path": "/to", "checkpointLocation": "/checkpoint"},
        reader_options={"subscribe": "t"},
        poll_options={"kafka.max.poll.records": "7"},
        secrets_path="/secrets",
        partitions_per_task=2,
    )
    session: Any = Spark(steps)

    start_query(session, spec)

    options = {"subscribe": "t", "kafka.max.poll.records": "7", "minPartitions": "9", "secret": "s"}
    expected = [
        ("require_source", "kafka", "parquet"),
        ("with_splits", [9, 1]),
        ("format", "kafka"),
        ("options", options),
        ("load", "given"),
        ("merged", options, [9, 1], 2),
        ("as_sent",),
        ("observe", "fingerprint", "a fingerprint", ("partitions of", {"t"})),
        ("with_exact_times", "parquet"),
        ("withColumn", "date", "to_date(timestamp)"),
        ("without_wrong_times", "parquet"),
        ("format", "parquet"),
        ("options", {"path": "/to", "checkpointLocation": "/checkpoint"}),
        ("partitionBy", "date"),
        ("queryName", "drain_p"),
        ("trigger", {"availableNow": True}),
        ("start",),
    ]
    assert unlike(steps, expected) == ([], [])
    assert in_order(steps, "require_source", "load", "merged", "as_sent", "observe")
    assert in_order(steps, "observe", "with_exact_times", "without_wrong_times", "start")
    # The date is of times that ORC would change.
    assert in_order(steps, "withColumn", "without_wrong_times")


def test_start_writing_values(steps: list[Any]) -> None:
    """Records are observed before they are decoded, and values after; all columns are encrypted."""
    rows: Any = Spark(steps)
    keys = {"key": "wrapped"}

    start_writing(rows, spec_of(values=VALUES, encryption=keys))

    observed = [step for step in steps if step[0] in ("observe", "with_decoded", "set_keys")]
    assert observed == [
        ("observe", "fingerprint", "a fingerprint", ("partitions of", {"t"})),
        ("with_decoded", VALUES),
        ("observe", "values", "counts of", VALUES),
        ("set_keys", keys, "the columns", []),
    ]
    assert "partitionBy" not in {step[0] for step in steps}


def test_batches_notes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was noted of a batch isn't computed again with each look."""
    batches = Batches({P0: 3})
    batches.update(Query(REPORTS))  # type: ignore[arg-type]
    first = batches.notes
    monkeypatch.setattr(Batches, "_read", lambda *_: pytest.fail("again"))

    assert batches.notes == first
