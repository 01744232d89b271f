"""Spark's applications over logs in memory: what a drain, a window and a compaction read and write.

Each does what its spec says, in the order in which Spark writes; deciding is left to the product.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.xxhash64 import records_fingerprint
from kafka_drain.errors import SparkJobError
from kafka_drain.spark.job_spec import SPECS, CompactSpec, DrainSpec, WindowSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from tests.histories.log import KafkaLog, PartitionLog
from tests.histories.sink import Change, ConcurrentUpdateError, Query, Row, write_files

__all__ = ["FakeSpark"]

Offsets = dict[str, dict[str, int]]


class _Failed(Exception):
    """Raised when an application fails; its message is the job's error."""


class FakeSpark:
    """Runs applications, as a runner does.

    Args:
        log: What Kafka holds.
        change: Is called before each change of a file.
        chance: Decides what Spark is free to do one way or the other.
    """

    def __init__(self, log: KafkaLog, change: Change, chance: random.Random) -> None:
        self._log = log
        self._change = change
        self._chance = chance

    def __call__(self, application: SparkApplication) -> None:
        spec: Any = SPECS[application.kind].read(Path(application.specs[0]))
        run = {"drain": self._drain, "window": self._window, "compact": self._compact}
        try:
            result = run[application.kind](spec)
        except (_Failed, ConcurrentUpdateError, FileNotFoundError, pa.ArrowInvalid) as failure:
            result = {"error": str(failure)}
        write_private(Path(spec.result_path), result)
        if "error" in result:
            raise SparkJobError("the application failed")

    def _drain(self, spec: DrainSpec) -> dict[str, Any]:
        options = spec.source_options
        query = Query(
            Path(spec.writer_options["path"]),
            Path(spec.writer_options["checkpointLocation"]),
        )
        first: Offsets = json.loads(query.start(lambda: _text(options["startingOffsets"])))
        notes: list[dict[str, Any]] = []
        before = self._drained(spec.start, query)
        planned = {batch: json.loads(end) for batch, end in query.planned().items()}
        newest = max(planned, default=-1)
        if newest > query.committed():
            start = planned.get(newest - 1, first)
            self._batch(query, spec, newest, start, planned[newest], notes)
        while True:
            newest = max(query.planned(), default=-1)
            start = json.loads(query.planned()[newest]) if newest >= 0 else first
            end = self._end(spec, start)
            if end == start:
                break
            query.plan(newest + 1, _text(end))
            self._batch(query, spec, newest + 1, start, end, notes)
        end = self._drained(spec.start, query)
        offsets = _count(before, end)
        return {
            "batches": len(notes),
            "offsets": offsets,
            "records": sum(note["records"] for note in notes),
            "seconds": 1.0,
            "offsets_per_second": offsets,
            "offsets_behind_latest": {},
            "start": spec.start,
            "end": _text(end),
            "notes": notes,
        }

    def _drained(self, start: str, query: Query) -> Offsets:
        planned = query.planned()
        found: Offsets = json.loads(planned[max(planned)] if planned else start)
        return found

    def _end(self, spec: DrainSpec, start: Offsets) -> Offsets:
        """Return where the next batch ends."""
        isolation: Any = spec.source_options["kafka.isolation.level"]
        end: Offsets = {}
        for name in spec.source_options["subscribe"].split(","):
            topic = self._log.topics.get(name)
            if topic is None:
                raise _Failed(f"topic {name} is gone: UnknownTopicOrPartitionException")
            for number, log in enumerate(topic.partitions):
                at = start.get(name, {}).get(str(number), 0)
                last = log.ends(isolation)
                if last < at:
                    raise _Failed(
                        f"Partition {name}-{number}'s offset was changed from {at} to "
                        f"{last}, some data may have been lost"
                    )
                end.setdefault(name, {})[str(number)] = last
        most = int(spec.source_options.get("maxOffsetsPerTrigger", 0))
        if most:
            for name, partitions in end.items():
                for number, last in partitions.items():
                    at = start.get(name, {}).get(number, 0)
                    partitions[number] = min(last, at + most)
        return end

    def _batch(
        self,
        query: Query,
        spec: DrainSpec,
        batch: int,
        start: Offsets,
        end: Offsets,
        notes: list[dict[str, Any]],
    ) -> None:
        if batch > query.listed():
            rows = self._read(start, end, spec.source_options)
            tasks = [rows] if self._chance.random() < 0.3 else _by_partition(rows)
            paths = [
                path
                for task in tasks
                for path in write_files(query.data, task, spec.partition_by, self._change)
            ]
            query.list_files(batch, paths)
            notes.append(_note(batch, rows, start, end, spec))
        query.commit(batch)
        if batch >= spec.first_unlisted and notes and self._chance.random() < 0.5:
            # Spark's side writes them every half a second.
            self._write_note(spec, notes[-1])

    def _write_note(self, spec: DrainSpec, note: Mapping[str, Any]) -> None:
        path = Path(spec.notes_path) / f"{note['batch']:012d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(note, indent=2) + "\n")

    def _read(self, start: Offsets, end: Offsets, options: Mapping[str, str]) -> list[Row]:
        """Return the records between two offsets of each partition, as Spark's source does."""
        rows: list[Row] = []
        for name, partitions in end.items():
            topic = self._log.topics.get(name)
            if topic is None:
                raise _Failed(f"topic {name} is gone: UnknownTopicOrPartitionException")
            for number, last in partitions.items():
                at = start.get(name, {}).get(number, 0)
                log = topic.partitions[int(number)]
                if at < last:
                    rows += _rows(name, int(number), log, at, last, options)
        return rows

    def _window(self, spec: WindowSpec) -> dict[str, Any]:
        options = spec.source_options
        start, end = (json.loads(options[f"{which}Offsets"]) for which in ("starting", "ending"))
        rows = self._read(start, end, options)
        if spec.ranges:
            rows = [row for row in rows if _is_in(row, spec.ranges)]
        rows = [row for row in rows if not _is_in(row, spec.erased)]
        self._write(spec.path, _by_partition(rows), spec.partition_by)
        return {**_tally(rows), "seconds": 0.1}

    def _write(
        self, path: str, tasks: Sequence[Sequence[Row]], partition_by: Sequence[str]
    ) -> None:
        """Write a folder of files, in the place of a former one."""
        folder = Path(path)
        if folder.exists():
            shutil.rmtree(folder)
        for task in tasks:
            write_files(folder, task, partition_by, self._change)
        done = folder / "_SUCCESS"
        folder.mkdir(parents=True, exist_ok=True)
        done.write_text("")

    def _compact(self, spec: CompactSpec) -> dict[str, Any]:
        rows = [
            row
            for source in spec.sources
            for file in source["files"]
            for row in _rows_of_file(Path(file))
        ]
        rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
        kept = [row for row in rows if not _is_in(row, spec.erased)]
        gone = [row for row in rows if _is_in(row, spec.erased)]
        size = -(-len(kept) // max(1, spec.files)) or 1
        tasks = [kept[at : at + size] for at in range(0, len(kept), size)]
        self._write(spec.path, tasks, spec.partition_by)
        return {**_tally(kept), "erased": _tally(gone), "seconds": 0.1}


def _rows(
    topic: str, number: int, log: PartitionLog, start: int, end: int, options: Mapping[str, str]
) -> list[Row]:
    isolation: Any = options["kafka.isolation.level"]
    if options.get("failOnDataLoss", "true") == "true" and not log.first <= start <= log.end:
        raise _Failed(
            f"Cannot fetch offset {start} of {topic}-{number}: some data may have been "
            "lost because they are not available in Kafka any more"
        )
    if end > log.ends(isolation) and options.get("failOnDataLoss", "true") == "true":
        raise _Failed(f"offset {end} of {topic}-{number}: some data may have been lost")
    return [
        {
            "key": entry.key,
            "value": entry.value,
            "headers": [{"key": k, "value": v} for k, v in entry.headers] or None,
            "topic": topic,
            "partition": number,
            "offset": entry.offset,
            "timestamp": entry.timestamp * 1000,
            "timestampType": 0,
        }
        for _, entry in log.records(start, isolation)
        if entry.offset < end
    ]


def _rows_of_file(path: Path) -> list[Row]:
    table = pq.ParquetFile(path).read(use_threads=False)
    topics = [part[len("topic=") :] for part in path.parts if part.startswith("topic=")]
    times = table["timestamp"].cast("int64").to_pylist()
    rows = table.drop_columns(["timestamp"]).to_pylist()
    return [
        {"topic": topics[-1] if topics else None, **row, "timestamp": micros}
        for row, micros in zip(rows, times, strict=True)
    ]


def _by_partition(rows: Sequence[Row]) -> list[list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["partition"]), []).append(row)
    return list(found.values())


def _is_in(row: Row, ranges: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        (row["topic"], row["partition"]) == (each["topic"], each["partition"])
        and each["start"] <= row["offset"] < each["end"]
        for each in ranges
    )


def _tally(rows: Sequence[Row]) -> dict[str, Any]:
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    fingerprint = records_fingerprint(table.to_batches(), None)
    return {"records": len(rows), "fingerprint": f"{fingerprint:016x}"}


def _note(
    batch: int, rows: Sequence[Row], start: Offsets, end: Offsets, spec: DrainSpec
) -> dict[str, Any]:
    counts: Offsets = {}
    for row in rows:
        own = counts.setdefault(row["topic"], {})
        own[str(row["partition"])] = own.get(str(row["partition"]), 0) + 1
    read = {
        (name, number): (start.get(name, {}).get(number, 0), last)
        for name, partitions in end.items()
        for number, last in partitions.items()
        if start.get(name, {}).get(number, 0) < last
    }
    bounds: list[Offsets] = [{}, {}]
    for (name, number), both in read.items():
        for found, offset in zip(bounds, both, strict=True):
            found.setdefault(name, {})[number] = offset
    return {
        "batch": batch,
        **_tally(rows),
        "by_partition": _text(counts),
        "start": _text(bounds[0]),
        "end": _text(bounds[1]),
        **({"skipped": spec.skipped} if spec.skipped else {}),
    }


def _count(start: Offsets, end: Offsets) -> int:
    return sum(
        last - start.get(name, {}).get(number, 0)
        for name, partitions in end.items()
        for number, last in partitions.items()
    )


def _text(offsets: Offsets | str) -> str:
    return offsets if isinstance(offsets, str) else json.dumps(offsets, separators=(",", ":"))
