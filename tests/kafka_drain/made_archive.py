"""Archives made of rows and receipts, as a drain and a validation would leave them behind."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, files_of_receipt
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.window import Window, range_rows
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import index_sha256, read_offsets, read_records, topic_of
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.xxhash64 import records_fingerprint
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, subtract
from kafka_drain.proof.content_checks import content_of
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.sealing import Identity, seal_segment, seal_window
from kafka_drain.storage.json_files import write_document
from kafka_drain.storage.sealed_json import check_seal

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)

#: A batch: of each partition, the rows as timestamps in milliseconds by offset.
Batch = Mapping[TopicPartition, Mapping[int, int | None]]


def dense(start: int, end: int, first_ms: int = 1_767_000_000_000) -> dict[int, int | None]:
    """Rows of all offsets from start to end, a millisecond after each other."""
    return {offset: first_ms + offset for offset in range(start, end)}


class MadeArchive:
    """An archive of pipeline `made`, whose generations grow by sealed batches.

    Args:
        folder: Where it is made.
        topic_ids: Ids of its topics.
        cluster_id: Id of their cluster.
        partition_by: Columns that the folders of generations name: topic, then date or nothing; if
            none, a file holds all partitions of all topics.

    Attributes:
        nul_header_names: What the receipts of its next files say of header names.
        notes_index: Whether they have the hash of their index; those of earlier releases don't.
        bloom_filters: pyarrow's options for Bloom filters of the next files.
    """

    nul_header_names: bool | None = None
    notes_index: bool = True
    bloom_filters: dict[str, Any] | None = None

    def __init__(
        self,
        folder: Path,
        topic_ids: Mapping[str, str],
        cluster_id: str = "cluster-1",
        partition_by: Sequence[str] = ("topic",),
    ) -> None:
        self.archive = Archive.at(str(folder))
        self.topic_ids = dict(topic_ids)
        self.cluster_id = cluster_id
        self.partition_by = list(partition_by)
        self.archive.create(
            pipeline="made",
            cluster_id=cluster_id,
            topic_ids=self.topic_ids,
            source={"topics": sorted(topic_ids)},
        )
        self._generation = 0
        self._previous: str | None = None
        self.open_generation()

    @property
    def root(self) -> UPath:
        """The archive's folder."""
        return self.archive.root

    def open_generation(self, **topic_ids: str) -> None:
        """Go on in another generation; topics that were made again count in it from 0."""
        self._generation += 1
        self._batch = 0
        self._starts: dict[TopicPartition, int] = {}
        self.topic_ids |= topic_ids
        self.archive.update_topics(self.archive.snapshot().document, self.topic_ids)
        self.archive.generation(self._generation).write(
            starting_offsets={},
            file_format="parquet",
            partition_by=self.partition_by,
            topic_ids=self.topic_ids,
            reason="test",
        )

    def start_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Let the newest generation start at some offsets."""
        self._starts = dict(offsets)
        self.archive.generation(self._generation).write(
            starting_offsets=dict(offsets),
            file_format="parquet",
            partition_by=self.partition_by,
            topic_ids=self.topic_ids,
            reason="test",
        )

    def seal(
        self,
        batch: Batch,
        *,
        together: bool = False,
        fingerprint: str | None = None,
        sealed_at: str = NOW.isoformat(),
        gaps: Sequence[Gap] = (),
        **columns: Any,
    ) -> list[ArchiveFile]:
        """Write a batch and its receipt; return the files.

        Args:
            batch: The rows.
            together: One file holds all partitions of a topic, as where Spark has few tasks.
            fingerprint: What the receipt says of the records.
            sealed_at: When it was sealed.
            gaps: Offsets next to the rows that the receipt has too.
            columns: Columns that aren't as usual: a value for all rows, or a function that is given
                a row's partition and offset.
        """
        starts = {tp: min(rows) for tp, rows in batch.items() if tp not in self._starts}
        if any(starts.values()):
            self.start_at(self._starts | starts)
        self._starts |= starts
        generation = self.archive.generation(self._generation)
        write = self._write_together if together else self._write
        files = write(generation.data_name, str(self._batch), batch, columns)
        receipt = seal_segment(
            Segment(self._batch, self._batch, self._ranges(batch, gaps)),
            files,
            [*self._gaps(batch), *gaps],
            identity=self._identity(),
            generation=self._generation,
            before=generation.last_receipt(),
            previous=self._previous,
            bounds={},
            fingerprint=fingerprint,
            acknowledged=(),
            sealed_at=sealed_at,
        )
        generation.write_receipt(receipt.sealed())
        self._previous = check_seal(receipt.to_bytes())
        self._batch += 1
        return list(files_of_receipt(generation, receipt, "parquet"))

    def seal_window(
        self,
        key: str,
        batch: Batch,
        replaces: Sequence[str] = (),
        columns: Mapping[str, Any] | None = None,
        sealed_at: str = "",
        is_known: bool = True,
        changed: tuple[str, ...] | None = None,
        deleted: Mapping[TopicPartition, OffsetRange] | None = None,
        gaps: Sequence[Gap] = (),
        acknowledged: tuple[str, ...] = (),
        **plan: Any,
    ) -> list[ArchiveFile]:
        """Write a window and its receipt, with more in its plan if wanted; return the files.

        The receipt has the records' fingerprint if `is_known`, what `changed` in them, the offsets
        that are `deleted`, of which the batch has no rows, `gaps` next to its rows, and what is
        `acknowledged` as lost.
        """
        window, deleted = Window(self.root, key), deleted or {}
        whole = {**self._ranges(batch, gaps), **deleted}
        ranges = range_rows({tp: [each] for tp, each in whole.items()})
        plan = {"ranges": ranges, "format": "parquet", "replaces": list(replaces), **plan}
        write_document(window.folder / "plan.json", plan)
        files = self._write(window.data_name, key, batch, columns or {})
        receipt = seal_window(
            list(whole.items()),
            files,
            [
                *self._gaps(batch),
                *gaps,
                *(Gap(tp, offsets, GapReason.DELETED) for tp, offsets in deleted.items()),
            ],
            identity=self._identity(),
            window=key,
            replaces=replaces,
            fingerprint=content_of(files).fingerprint if is_known else None,
            acknowledged=acknowledged,
            # Later than the windows before it.
            sealed_at=sealed_at
            or (NOW + timedelta(seconds=len(self.archive.snapshot().windows))).isoformat(),
        )
        window.write_receipt(replace(receipt, changed=changed).sealed())
        return list(files_of_receipt(window, receipt, "parquet"))

    def write(self, folder: str, batch: Batch, **columns: Any) -> list[CommittedFile]:
        """Write the files of a batch, of which no receipt says anything, as Spark does."""
        return self._write(folder, "0", batch, columns)

    def files(self) -> list[ArchiveFile]:
        """List all sealed files: generations, then windows."""
        return [*self._generation_files(), *self._window_files()]

    def _generation_files(self) -> Iterable[ArchiveFile]:
        for generation in self.archive.snapshot().generations:
            for receipt in generation.receipts():
                yield from files_of_receipt(generation, receipt, "parquet")

    def _window_files(self) -> Iterable[ArchiveFile]:
        for window in self.archive.snapshot().windows:
            receipt: Receipt = window.receipt
            yield from files_of_receipt(window, receipt, "parquet")

    def _identity(self) -> Identity:
        return Identity("made", self.cluster_id, self.topic_ids)

    def _ranges(self, batch: Batch, gaps: Sequence[Gap] = ()) -> dict[TopicPartition, OffsetRange]:
        ranges = {tp: OffsetRange(min(rows), max(rows) + 1) for tp, rows in batch.items()}
        for gap in gaps:
            own = ranges.get(gap.tp, gap.range)
            ranges[gap.tp] = OffsetRange(
                min(own.start, gap.range.start), max(own.end, gap.range.end)
            )
        return ranges

    def _gaps(self, batch: Batch) -> list[Gap]:
        """Return what the rows leave out, as if Kafka had compacted it."""
        return [
            Gap(tp, hole, GapReason.COMPACTED)
            for tp, whole in self._ranges(batch).items()
            for hole in subtract(whole, [OffsetRange(at, at + 1) for at in sorted(batch[tp])])
        ]

    def _write(
        self, folder: str, name: str, batch: Batch, columns: Mapping[str, Any]
    ) -> list[CommittedFile]:
        if not self.partition_by:
            return [self._write_file(f"{folder}/part-all-{name}.parquet", batch, columns)]
        return [
            self._write_file(
                f"{folder}/topic={tp.topic}/{day}part-{tp.partition:05d}-{name}.parquet",
                {tp: own},
                columns,
            )
            for tp, rows in sorted(batch.items())
            for day, own in self._by_day(rows).items()
        ]

    def _by_day(self, rows: Mapping[int, int | None]) -> dict[str, dict[int, int | None]]:
        """Return the rows by the folder of their day; all of them by none without such folders."""
        if self.partition_by == ["topic"]:
            return {"": dict(rows)}
        days: dict[str, dict[int, int | None]] = {}
        for offset, ms in rows.items():
            day = (EPOCH + timedelta(milliseconds=ms or 0)).date()
            days.setdefault(f"date={day}/", {})[offset] = ms
        return days

    def _write_together(
        self, folder: str, name: str, batch: Batch, columns: Mapping[str, Any]
    ) -> list[CommittedFile]:
        return [
            self._write_file(
                f"{folder}/topic={topic}/part-all-{name}.parquet",
                {tp: rows for tp, rows in sorted(batch.items()) if tp.topic == topic},
                columns,
            )
            for topic in sorted({tp.topic for tp in batch})
        ]

    def _write_file(self, path: str, batch: Batch, columns: Mapping[str, Any]) -> CommittedFile:
        table = pa.Table.from_pylist(
            [
                {
                    "key": b"%d" % offset,
                    "value": b"value",
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "offset": offset,
                    "timestamp": None if ms is None else EPOCH + timedelta(milliseconds=ms),
                    "timestampType": 0,
                    **{
                        name: value(tp, offset) if callable(value) else value
                        for name, value in columns.items()
                    },
                }
                for tp, rows in batch.items()
                for offset, ms in rows.items()
            ],
            schema=SCHEMA,
        )
        if topic_of(path) is not None:
            table = table.drop_columns(["topic"])
        buffer = io.BytesIO()
        pq.write_table(table, buffer, bloom_filter_options=self.bloom_filters)
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(buffer.getvalue())
        value = records_fingerprint(read_records(target, "parquet"), topic_of(path))
        return CommittedFile(
            path=path,
            bytes=len(buffer.getvalue()),
            sha256=hashlib.sha256(buffer.getvalue()).hexdigest(),
            contents=tuple(read_offsets(target, "parquet", topic_of(path))),
            fingerprint=f"{value:016x}",
            nul_header_names=self.nul_header_names,
            index_sha256=index_sha256(target, "parquet") if self.notes_index else None,
        )
