"""The drain: a streaming query from Kafka to files that stops when it has caught up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kafka_drain.offsets import (
    TopicPartition,
    count,
    from_spark_json,
    ranges_between,
    to_spark_json,
)
from kafka_drain.progress import Progress
from kafka_drain.spark.job_spec import DrainSpec
from kafka_drain_spark.data_files import with_exact_times, without_wrong_times
from kafka_drain_spark.decoding import (
    COUNTED,
    count_columns,
    counts_line,
    sources_of,
    total_counts,
    with_decoded,
)
from kafka_drain_spark.encryption import set_keys
from kafka_drain_spark.fingerprint import (
    NAME,
    counts_of,
    fingerprint_columns,
    fingerprint_of,
    partition_column,
)
from kafka_drain_spark.job import JobFailed, explain, secret_options
from kafka_drain_spark.kafka_source import find_internal_topics, merged, with_splits
from kafka_drain_spark.note_files import NoteFiles
from kafka_drain_spark.session import (
    SPARK_ERRORS,
    close_session,
    is_remote,
    own_session,
    progress_reports,
    require_source,
)
from kafka_drain_spark.source_records import as_sent
from kafka_drain_spark.tasks import records_read

PROGRESS_SECONDS = 2.0
#: A driver that is killed leaves no note of the batches that ended within this time.
NOTE_SECONDS = 0.5
FORMAT_OPTIONS = ("parquet.", "orc.")


class Batches:
    """The finished batches of a query, by batch id; Spark itself keeps only the last 100 reports.

    Args:
        start: Start offsets of the query's very first batch, which Spark's report doesn't include.
        first_unlisted: The first batch that the manifest didn't list before the query.
        skipped: Offsets that Kafka no longer had when the drain started, as a note has them.
        adopted: Whether the query ran before the manifest was looked at, so that it may have read
            listed batches itself.
    """

    def __init__(
        self,
        start: dict[TopicPartition, int],
        first_unlisted: int = 0,
        skipped: Sequence[Mapping[str, Any]] = (),
        *,
        adopted: bool = False,
    ) -> None:
        self._start = start
        self._adopted = adopted
        self._first_unlisted = first_unlisted
        self._skipped = list(skipped)
        self._reports: dict[int, dict[str, Any]] = {}
        self._notes: dict[int, dict[str, Any]] = {}

    def update(self, query: StreamingQuery) -> None:
        """Add the query's recent progress reports."""
        for report in progress_reports(query, self._reports):
            source = report["sources"][0]
            if source["endOffset"] is not None and source["startOffset"] != source["endOffset"]:
                self._reports[report["batchId"]] = report

    def __len__(self) -> int:
        return len(self._reports)

    @property
    def offsets(self) -> int:
        """Number of offsets that the batches drained."""
        total = 0
        for report in self._reports.values():
            start = self._source_offsets(report, "startOffset") or self._start
            end = self._source_offsets(report, "endOffset")
            total += count(r for _, r in ranges_between(start, end))
        return total

    @property
    def records(self) -> int:
        """Number of records that the batches read; less than `offsets` if Kafka has gaps."""
        return sum(report["sources"][0]["numInputRows"] for report in self._reports.values())

    @property
    def end(self) -> dict[TopicPartition, int] | None:
        """Where the last batch ended; None when there was none."""
        if not self._reports:
            return None
        return self._source_offsets(self._reports[max(self._reports)], "endOffset")

    @property
    def notes(self) -> list[dict[str, Any]]:
        """The note of each batch, in the order of batches, by Spark's observations.

        `start` and `end` contain only partitions that the batch read something from. A batch whose
        files were listed already, or that was committed, is skipped by Spark and has no note: a
        drain that is killed after it wrote the manifest but before it committed to the checkpoint
        leaves such a batch (FileStreamSink.addBatch).
        """
        skipped = {"skipped": self._skipped} if self._skipped else {}
        # It is asked for twice a second.
        for batch in self._reports.keys() - self._notes.keys():
            report = self._reports[batch]
            observed = report.get("observedMetrics", {}).get(NAME)
            self._notes[batch] = (
                {"batch": batch, **fingerprint_of(observed), **self._read(report), **skipped}
                if observed and self._has_read(batch, report)
                else {}
            )
        return [note for _, note in sorted(self._notes.items()) if note]

    def _has_read(self, batch: int, report: dict[str, Any]) -> bool:
        """Return whether the query has read a batch itself, and not skipped it."""
        if batch >= self._first_unlisted:
            return True
        return self._adopted and report["observedMetrics"][NAME]["records"] > 0

    def _read(self, report: dict[str, Any]) -> dict[str, str]:
        start = self._source_offsets(report, "startOffset") or self._start
        end = self._source_offsets(report, "endOffset")
        read = {tp: r for tp, r in ranges_between(start, end) if len(r)}
        return {
            **counts_of(report["observedMetrics"][NAME], read),
            "start": to_spark_json({tp: r.start for tp, r in read.items()}),
            "end": to_spark_json({tp: r.end for tp, r in read.items()}),
        }

    @property
    def value_counts(self) -> dict[str, int]:
        """The counts of decoded and undecoded values; empty when values aren't decoded."""
        observed = (report.get("observedMetrics", {}) for report in self._reports.values())
        return total_counts(metrics[COUNTED] for metrics in observed if metrics.get(COUNTED))

    @property
    def behind_latest(self) -> dict[str, float]:
        """The source's own lag metrics at the end: min, max and average offsets behind latest."""
        if not self._reports:
            return {}
        metrics = self._reports[max(self._reports)]["sources"][0].get("metrics", {})
        return {
            short: float(metrics[f"{short}OffsetsBehindLatest"])
            for short in ("min", "max", "avg")
            if f"{short}OffsetsBehindLatest" in metrics
        }

    @staticmethod
    def _source_offsets(report: dict[str, Any], key: str) -> dict[TopicPartition, int]:
        return from_spark_json(json.dumps(report["sources"][0][key] or {}))


def run_drain(spark: SparkSession, spec: DrainSpec) -> dict[str, Any]:
    """Drain to Kafka's current end.

    Returns:
        batches, offsets, records, seconds, offsets_per_second, offsets_behind_latest (min, max,
        avg), start and end (Spark's JSON form), notes (of each batch), if values are decoded,
        values (counts of decoded and undecoded ones), and on a Spark Connect server query_id and
        adopted (whether the query ran already).

    Raises:
        JobFailed: When Spark can't create the columns that `values` asks for, or the query failed;
            contains the notes of the batches committed before.
        MachineError: When a Spark Connect server can't read or write what is needed.
    """
    start = from_spark_json(spec.start)
    planned = count(r for _, r in ranges_between(start, from_spark_json(spec.planned_end)))
    print(f"drain {spec.pipeline}: {planned:,} offsets planned", flush=True)
    progress = Progress("offsets", planned)
    session = session_for(spark, spec)
    running = running_query(session, spec)
    # A query that ran already may have run the archive's very first batch.
    batches = Batches(
        first_offsets(spec) if running else start,
        spec.first_unlisted,
        spec.skipped,
        adopted=running is not None,
    )
    query = running or start_query(session, spec)
    adopted = {"query_id": query.id, "adopted": running is not None} if is_remote(session) else {}
    try:
        follow(spark, spec, query, batches, progress)
    except SPARK_ERRORS as error:
        # A Spark Connect server that doesn't answer isn't asked again.
        if not is_remote(session) or isinstance(error, StreamingQueryException):
            batches.update(query)
            close_session(session)
        # The last batch failed; earlier ones are committed.
        left = {"notes": batches.notes}
        raise JobFailed(explain(error), left | adopted) from error
    except BaseException:
        # Stopped by its user, as a driver would be.
        if is_remote(session):
            query.stop()
        raise
    close_session(session)
    seconds = progress.seconds
    if len(batches):
        behind = batches.behind_latest
        lag = ", ".join(f"{name} {value:,.0f}" for name, value in behind.items()) or "unknown"
        print(progress.line(f"drain {spec.pipeline}", batches.offsets), flush=True)
        print(
            f"drain {spec.pipeline}: {batches.records:,} records in {len(batches)} "
            f"batch{'es' if len(batches) > 1 else ''}, offsets behind latest: {lag}",
            flush=True,
        )
        if spec.values:
            print(f"drain {spec.pipeline}: {counts_line(batches.value_counts)}", flush=True)
    else:
        print(f"drain {spec.pipeline}: nothing new; every offset that Kafka holds is drained")
    return {
        "batches": len(batches),
        "offsets": batches.offsets,
        "records": batches.records,
        "seconds": round(seconds, 1),
        "offsets_per_second": round(batches.offsets / seconds) if seconds else 0,
        "offsets_behind_latest": batches.behind_latest,
        "start": spec.start,
        "end": to_spark_json(batches.end or start),
        "notes": batches.notes,
        **({"values": batches.value_counts} if spec.values else {}),
        **adopted,
    }


def running_query(session: SparkSession, spec: DrainSpec) -> StreamingQuery | None:
    """Return the query that a killed client left to a Spark Connect server; stop any other one.

    Another one is of an earlier generation of the archive, or of other options.
    """
    if not is_remote(session):
        return None
    found = None
    for query in session.streams.active:
        if query.name == query_name(session, spec):
            found = query
            print(f"drain {spec.pipeline}: query {query.id} is running; following it", flush=True)
        else:
            print(f"drain {spec.pipeline}: stopping query {query.id}: it isn't needed", flush=True)
            query.stop()
    return found


def first_offsets(spec: DrainSpec) -> dict[TopicPartition, int]:
    """Return the start of the very first batch of the spec's checkpoint."""
    return from_spark_json(spec.reader_options["startingOffsets"])


def query_name(session: SparkSession, spec: DrainSpec) -> str:
    """Return the query's name; on a Spark Connect server, it also describes the query."""
    name = f"drain_{spec.pipeline}"
    return f"{name}_{spec.query_key}" if is_remote(session) else name


def start_query(session: SparkSession, spec: DrainSpec) -> StreamingQuery:
    """Start the streaming query that the spec describes."""
    require_source(session, "kafka", *sources_of(spec.file_format, spec.values))
    planned = ranges_between(from_spark_json(spec.start), from_spark_json(spec.planned_end))
    sizes = [len(r) for _, r in planned]
    options = with_splits(session, spec.source_options, sizes)
    options |= secret_options(spec.secrets_path)
    records = session.readStream.format("kafka").options(**options).load()
    return start_writing(merged(records, options, sizes, spec.partitions_per_task), spec)


def session_for(spark: SparkSession, spec: DrainSpec) -> SparkSession:
    """Return a session configured for the file format and the source, the same for each attempt.

    The streaming sink doesn't pass its options on to Parquet or ORC, which read the session's
    configuration instead (FileStreamSink in Spark 4.0).
    """
    session = own_session(spark, f"{spec.archive}#{spec.pipeline}#drain")
    find_internal_topics(session, spec.reader_options)
    for name, value in spec.writer_options.items():
        if name.startswith(FORMAT_OPTIONS):
            session.conf.set(name, value)
    return session


def start_writing(records: DataFrame, spec: DrainSpec) -> StreamingQuery:
    """Start the query that writes records with the columns of Spark's Kafka source."""
    records = as_sent(records)
    counted = partition_column({tp.topic for tp in from_spark_json(spec.start)})
    records = records.observe(NAME, *fingerprint_columns(records), counted)
    records = with_exact_times(records, spec.file_format)
    if spec.values:
        records = with_decoded(records, spec.values).observe(COUNTED, *count_columns(spec.values))
    for column, expression in spec.columns.items():
        records = records.withColumn(column, F.expr(expression))
    records = without_wrong_times(records, spec.file_format)
    if spec.encryption:
        set_keys(records.sparkSession, spec.encryption, records.schema, spec.partition_by)
    writer = records.writeStream.format(spec.file_format).options(**spec.writer_options)
    if spec.partition_by:
        writer = writer.partitionBy(*spec.partition_by)
    name = query_name(records.sparkSession, spec)
    return writer.queryName(name).trigger(availableNow=True).start()


def follow(
    spark: SparkSession,
    spec: DrainSpec,
    query: StreamingQuery,
    batches: Batches,
    progress: Progress,
) -> None:
    """Print the query's progress until it terminates, and note the records of its batches."""
    last, shown = "", progress.seconds
    notes = NoteFiles(spark, spec.notes_path)
    while not query.awaitTermination(NOTE_SECONDS):  # type: ignore[arg-type]
        batches.update(query)
        notes.write(batches.notes)
        if progress.seconds - shown < PROGRESS_SECONDS:
            continue
        shown = progress.seconds
        # Running tasks may belong to a batch that has just finished: never show more than planned.
        read = records_read(spark) or 0
        done = min(batches.offsets + read, max(progress.total, batches.offsets))
        line = progress.line(f"drain {spec.pipeline}", max(done, progress.done))
        if line != last:
            print(line, flush=True)
            last = line
    batches.update(query)
    # Whoever reads the result writes them too; it may be killed before.
    notes.write(batches.notes)
