"""Create archives that look as if thousands of batches had been drained and sealed, without Spark.

Names, sizes, manifest, checkpoint and receipts are consistent. The receipts come from the product's
own `sealing`; manifest and checkpoint are in Spark's format.
"""

from __future__ import annotations

import json
import os
import struct
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.closed_segments import ClosedSegments
from kafka_drain.archive.files import files_of_receipt
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import KafkaBounds, Receipt
from kafka_drain.archive.window import Window
from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.xxhash64 import records_fingerprint
from kafka_drain.intervals import Interval
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster, Topic
from kafka_drain.kafka.identity import SeenRecord
from kafka_drain.kafka.single_records import RecordSample
from kafka_drain.maintenance.compaction_plan import plan_groups
from kafka_drain.metadata_log.crc import crc_name
from kafka_drain.offsets import OffsetRange, TopicPartition, to_spark_json
from kafka_drain.proof.fingerprints import write_notes
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.sealing import Identity, seal_segment, seal_window
from kafka_drain.storage.json_files import write_document
from kafka_drain.storage.paths import locate
from kafka_drain.windows.window_jobs import freeze_window

__all__ = ["Linker", "SyntheticArchive", "SyntheticCluster", "unseal_newest", "write_hadoop"]

TOPIC, TOPIC_ID, CLUSTER_ID = "events", "synthetic-topic-000001", "synthetic-cluster-0001"
PARTITIONS = tuple(TopicPartition(TOPIC, number) for number in range(8))
RECORDS = 10  # per file
FIRST_TIME = 1_735_689_600_000  # 2025-01-01 00:00 UTC, in milliseconds
SEALED_AT = "2025-01-01T00:00:00.000+00:00"
COMPACT_INTERVAL, KEPT_BATCHES = 10, 100
# ext4 allows at most 65,000 hard links per file.
_LINKS = 30_000
_PIECE = 512
_SPREAD = 0xD1342543DE82EF95F1EA5EED12345677  # makes names of consecutive numbers dissimilar
_CHUNK = 2048 * _PIECE
_BATCH = 200  # records that a simulated Kafka yields at once

# In the format of Spark 4.
_METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1735689600000,"conf":{}}'
_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
_QUERY = b'{"id":"00000000-0000-4000-8000-000000000001"}'

_Make = Callable[[str, TopicPartition, OffsetRange], int]


@dataclass(frozen=True, slots=True)
class _NewFile:
    """A data file with Spark's naming, and the offsets in it."""

    path: str
    size: int
    tp: TopicPartition
    range: OffsetRange


@dataclass
class SyntheticArchive:
    """An archive that grows by whole batches.

    Attributes:
        root: Folder of the archive.
        file_size: Size recorded for each data file.
        link: Creates a sealed data file; None if sealed files needn't exist.
        partitions: Its partitions.
        first_time: Timestamp of the record with offset 0, in milliseconds since 1970.
        step: Milliseconds from a record to the next one of its partition.
        ends: End offsets of what was added so far.
    """

    root: Path
    file_size: int
    link: Callable[[str], None] | None = None
    partitions: Sequence[TopicPartition] = PARTITIONS
    first_time: int = FIRST_TIME
    step: int = 1
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    _previous: str | None = None
    _files: int = 0
    _random: int = 0

    def __post_init__(self) -> None:
        """Write `archive.json`."""
        self.ends = self.ends or dict.fromkeys(self.partitions, 0)
        self.archive = Archive.at(str(self.root))
        self.archive.create(
            pipeline="synthetic",
            cluster_id=CLUSTER_ID,
            topic_ids={TOPIC: TOPIC_ID},
            source={"topics": [TOPIC]},
        )

    def continue_after(self, receipt: Receipt) -> None:
        """Continue after a receipt that the product wrote."""
        self.ends = dict(receipt.ends)
        self._previous = receipt.sha256

    @property
    def identity(self) -> Identity:
        """The identity whose offsets the receipts seal."""
        return Identity("synthetic", CLUSTER_ID, {TOPIC: TOPIC_ID})

    def add_generation(
        self,
        number: int,
        *,
        sealed: int,
        files: int,
        unsealed: int = 0,
        new_files: int = 8,
        real: Collection[int] = (),
    ) -> None:
        """Add a generation.

        Args:
            number: Number of the generation.
            sealed: Number of batches with a receipt.
            files: Number of files in each of these batches, a multiple of the partitions.
            unsealed: Number of batches after them without a receipt; their files are real.
            new_files: Number of files in each unsealed batch.
            real: Sealed batches whose files have the records that their receipts say.
        """
        generation = self.archive.generation(number)
        folder = Path(str(generation.data)) / f"topic={TOPIC}"
        folder.mkdir(parents=True)
        generation.write(
            starting_offsets=self.ends,
            file_format="parquet",
            partition_by=["topic"],
            topic_ids={TOPIC: TOPIC_ID},
            reason="first" if number == 1 else "rollover",
        )
        manifest = _ManifestWriter(generation, sealed + unsealed)
        before: Receipt | None = None
        ends: dict[int, Mapping[TopicPartition, int]] = {}
        for batch in range(sealed + unsealed):
            started = dict(self.ends)
            if batch < sealed:
                make = self._make_real if batch in real else self._make_sealed
                written = list(self._files_of(files, folder, make))
                before = self._seal(generation, batch, started, written, before)
            else:
                written = list(self._files_of(new_files, folder, self._make_real))
                paths = [f"{generation.data_name}/{file.path}" for file in written]
                _leave_note(generation, batch, paths, started, dict(self.ends))
            manifest.add(batch, written)
            ends[batch] = dict(self.ends)
        manifest.finish()
        _write_checkpoint(generation, ends)

    def add_backfill(self, interval: Interval) -> None:
        """Add the window of a data interval: ten records of each partition, after the newest."""
        started = dict(self.ends)
        self.ends = {tp: end + RECORDS for tp, end in self.ends.items()}
        ranges = {tp: [OffsetRange(started[tp], self.ends[tp])] for tp in self.partitions}
        self._add_window(
            Window(self.archive.root, interval.key),
            ranges,
            kind=WindowKind.BACKFILL,
            interval=[interval.start.isoformat(), interval.end.isoformat()],
            topics={TOPIC: TOPIC_ID},
        )

    def compact(self, number: int, *, is_real: bool = False) -> None:
        """Add the window that a compaction of a whole generation leaves: a file for each partition.

        Args:
            number: Number of the generation, and of the window.
            is_real: Whether its files have the records that its receipt says.
        """
        generation = self.archive.generation(number)
        document, receipts = generation.read_document(), list(generation.receipts())
        segments = ClosedSegments(
            name=f"generation {number}",
            receipts=receipts,
            files=[f for r in receipts for f in files_of_receipt(generation, r, document.format)],
            file_format=document.format,
            partition_by=document.partition_by,
        )
        # One group, of any size.
        (compaction,) = plan_groups(segments, 1 << 50)
        group = compaction.group
        self._add_window(
            Window(self.archive.root, f"{compaction.kind.value}_{number:04d}"),
            {tp: list(ranges) for tp, ranges in group.ranges.items()},
            kind=compaction.kind,
            replaces=group.replaces,
            provenance={receipt.where: receipt.sha256 for receipt in group.receipts},
            is_real=is_real,
            replaced=group.replaced(),
            **compaction.plan,
        )

    def _add_window(
        self,
        window: Window,
        ranges: Mapping[TopicPartition, list[OffsetRange]],
        *,
        kind: WindowKind,
        replaces: Sequence[str] = (),
        provenance: Mapping[str, str] | None = None,
        is_real: bool = False,
        **plan: Any,
    ) -> None:
        freeze_window(
            window,
            ranges,
            kind=kind,
            replaces=replaces,
            file_format="parquet",
            partition_by=["topic"],
            **plan,
        )
        folder = Path(str(window.data)) / "attempt" / f"topic={TOPIC}"
        folder.mkdir(parents=True)
        files = []
        for tp, held in ranges.items():
            path, offsets = f"{folder}/part-{tp.partition:05d}.parquet", held[0]
            size = (self._make_real if is_real else self._make_sealed)(path, tp, offsets)
            name = f"{window.data_name}/attempt/topic={TOPIC}/part-{tp.partition:05d}.parquet"
            files.append(self._file(name, size, tp, offsets, 0))
        receipt = seal_window(
            [(tp, held[0]) for tp, held in ranges.items()],
            files,
            [],
            identity=self.identity,
            window=window.key,
            replaces=replaces,
            fingerprint="0" * 16,
            sealed_at=self._time(max(held[0].end for held in ranges.values())),
            provenance=provenance,
        )
        window.write_receipt(receipt.sealed())

    def _files_of(self, number: int, folder: Path, make: _Make) -> Iterator[_NewFile]:
        for position in range(number):
            tp = self.partitions[position % len(self.partitions)]
            offsets = OffsetRange(self.ends[tp], self.ends[tp] + RECORDS)
            self.ends[tp] = offsets.end
            self._random += 1
            identifier = uuid.UUID(int=self._random * _SPREAD % (1 << 128))
            name = f"part-{position:05d}-{identifier}.c000.zstd.parquet"
            size = make(f"{folder}/{name}", tp, offsets)
            yield _NewFile(f"{folder.name}/{name}", size, tp, offsets)

    def _make_real(self, path: str, tp: TopicPartition, offsets: OffsetRange) -> int:
        return write_records(path, tp, offsets, self.first_time, self.step)

    def _make_sealed(self, path: str, _: TopicPartition, __: OffsetRange) -> int:
        if self.link is not None:
            self.link(path)
        return self.file_size

    def _seal(
        self,
        generation: Generation,
        batch: int,
        started: Mapping[TopicPartition, int],
        written: list[_NewFile],
        before: Receipt | None,
    ) -> Receipt:
        ranges = {tp: OffsetRange(started[tp], self.ends[tp]) for tp in self.partitions}
        receipt = seal_segment(
            Segment(batch, batch, ranges),
            [self._committed(generation, file, batch) for file in written],
            [],
            identity=self.identity,
            generation=generation.number,
            before=before,
            previous=self._previous,
            bounds={tp: KafkaBounds(0, self.ends[tp], self.ends[tp]) for tp in self.partitions},
            fingerprint=f"{batch:016x}",
            acknowledged=(),
            sealed_at=self._time(max(self.ends.values())),
        )
        generation.write_receipt(receipt.sealed())
        # The receipt's own hash, at its end.
        path = generation.folder / "receipts" / receipt.name
        self._previous = path.read_bytes()[-67:-3].decode()
        return receipt

    def _time(self, offset: int) -> str:
        """Return the time of the record with an offset, in ISO 8601."""
        seconds = (self.first_time + offset * self.step) / 1000
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")

    def _committed(self, generation: Generation, file: _NewFile, batch: int) -> CommittedFile:
        path = f"{generation.data_name}/{file.path}"
        return self._file(path, file.size, file.tp, file.range, batch)

    def _file(
        self, path: str, size: int, tp: TopicPartition, offsets: OffsetRange, batch: int
    ) -> CommittedFile:
        self._files += 1
        content = FileOffsets(
            tp=tp,
            ranges=(offsets,),
            records=len(offsets),
            first_timestamp=self.first_time + offsets.start * self.step,
            last_timestamp=self.first_time + (offsets.end - 1) * self.step,
        )
        return CommittedFile(path, size, f"{self._files:064x}", (content,), batch)


@dataclass
class _ManifestWriter:
    """Writes `_spark_metadata`: the newest compacted file, and the plain files after it."""

    generation: Generation
    batches: int

    def __post_init__(self) -> None:
        self._folder = Path(str(self.generation.data)) / "_spark_metadata"
        self._folder.mkdir(parents=True)
        self._data = self._folder.parent.as_uri().replace("%3D", "=")
        # Every tenth batch is compacted; -1 if there are fewer than ten.
        self._compacted = self.batches // COMPACT_INTERVAL * COMPACT_INTERVAL - 1
        self._compact = self._folder / f"{self._compacted}.compact"
        if self._compacted >= 0:
            self._compact.write_bytes(b"v1")

    def add(self, batch: int, files: list[_NewFile]) -> None:
        """Add a batch."""
        lines = "".join(f"\n{self._line(file)}" for file in files).encode()
        if batch <= self._compacted:
            with self._compact.open("ab") as compact:
                compact.write(lines)
        else:
            write_hadoop(self._folder / str(batch), b"v1" + lines)

    def finish(self) -> None:
        """Write the compacted file's checksums."""
        if self._compacted >= 0:
            write_crc(self._compact)

    def _line(self, file: _NewFile) -> str:
        return (
            f'{{"path":"{self._data}/{file.path}","size":{file.size},"isDir":false,'
            f'"modificationTime":{FIRST_TIME + file.range.start},"blockReplication":1,'
            '"blockSize":33554432,"action":"add"}'
        )


def _write_checkpoint(
    generation: Generation, ends: Mapping[int, Mapping[TopicPartition, int]]
) -> None:
    """Write the last hundred batches, which is the number that Spark keeps."""
    folder = Path(str(generation.checkpoint))
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    write_hadoop(folder / "metadata", _QUERY)
    for batch in sorted(ends)[-KEPT_BATCHES:]:
        offsets = f"v1\n{_METADATA}\n{to_spark_json(dict(ends[batch]))}".encode()
        write_hadoop(folder / "offsets" / str(batch), offsets)
        write_hadoop(folder / "commits" / str(batch), _COMMIT)


def unseal_newest(root: Path, generation: int) -> None:
    """Undo the sealing of a generation's newest segment: it is drained but not validated."""
    receipt = max((root / "generations" / f"{generation:04d}" / "receipts").iterdir())
    receipt.unlink()
    entries = sorted((root / "journal").glob("[0-9]*.json"))
    while entries and receipt.name in entries[-1].read_text():
        entries.pop().unlink()
    head = root / "journal.json"
    if entries:
        newest = json.loads(entries[-1].read_text())
        write_document(locate(head), {"entries": newest["entry"], "sha256": newest["sha256"]})
    else:
        head.unlink()


def _leave_note(
    generation: Generation,
    batch: int,
    paths: Iterable[str],
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
) -> None:
    """Leave what Spark read of a batch, as its drain does."""
    value = 0
    for path in paths:
        file = locate(Path(str(generation.root)) / path)
        value ^= records_fingerprint(read_records(file, "parquet"), TOPIC)
    note = {
        "batch": batch,
        "records": sum(end.values()) - sum(start.values()),
        "fingerprint": f"{value:016x}",
        "start": to_spark_json(start),
        "end": to_spark_json(end),
    }
    write_notes(generation, [note])


def write_hadoop(path: Path, content: bytes) -> None:
    """Write a file and its checksums in the format of Hadoop's local file system."""
    path.write_bytes(content)
    write_crc(path)


def write_crc(path: Path) -> None:
    """Write the checksums of an existing file, in bounded memory."""
    with path.open("rb") as source, path.with_name(crc_name(path.name)).open("wb") as crc:
        crc.write(b"crc\0" + struct.pack(">i", _PIECE))
        while chunk := source.read(_CHUNK):
            pieces = range(0, len(chunk), _PIECE)
            sums = [zlib.crc32(chunk[at : at + _PIECE]) for at in pieces]
            crc.write(struct.pack(f">{len(sums)}I", *sums))


def write_records(
    path: str, tp: TopicPartition, offsets: OffsetRange, first_time: int = FIRST_TIME, step: int = 1
) -> int:
    """Write a Parquet file with a few records, and its checksums; return its size."""
    number = len(offsets)
    millis = [first_time + step * offset for offset in range(offsets.start, offsets.end)]
    table = pa.table(
        {
            "key": pa.array([b"key"] * number, pa.binary()),
            "value": pa.array([b'{"amount":1}'] * number, pa.binary()),
            "partition": pa.array([tp.partition] * number, pa.int32()),
            "offset": pa.array(range(offsets.start, offsets.end), pa.int64()),
            "timestamp": pa.array([ms * 1000 for ms in millis], pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * number, pa.int32()),
        }
    )
    pq.write_table(table, path, compression="zstd")
    write_crc(Path(path))
    return Path(path).stat().st_size


@dataclass
class Linker:
    """Hard-links one data file under many names.

    Attributes:
        template: The file.
        with_crc: Whether each gets a `.crc` file, as Spark writes it.
    """

    template: Path
    with_crc: bool = True
    _made: int = 0

    def __post_init__(self) -> None:
        self.size = write_records(str(self.template), PARTITIONS[0], OffsetRange(0, RECORDS))

    def __call__(self, path: str) -> None:
        """Create a link."""
        crc = self.template.with_name(crc_name(self.template.name))
        if self._made % _LINKS == 0:
            self._renew(self.template)
            self._renew(crc)
        self._made += 1
        os.link(self.template, path)
        if self.with_crc:
            folder, name = os.path.split(path)
            os.link(crc, f"{folder}/{crc_name(name)}")

    @staticmethod
    def _renew(path: Path) -> None:
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)


class AnyHash(frozenset[str]):
    """The hashes of a record that is what it is compared with."""

    def __contains__(self, value: object) -> bool:
        """Return True."""
        return True


class _NoBroker(KafkaConfig):
    """Settings with which no client is ever made: it would wait for a broker that isn't there."""

    def for_librdkafka(self) -> dict[str, Any]:
        """Raise.

        Raises:
            AssertionError: Always.
        """
        raise AssertionError("a synthetic cluster has no broker; simulate what was asked")

    def for_java(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the settings for an application that is never started."""
        return KafkaConfig(self.settings).for_java()


class SyntheticCluster(KafkaCluster):
    """Simulates a Kafka that still holds all of a synthetic archive's topic."""

    def __init__(
        self,
        partitions: Sequence[TopicPartition] = PARTITIONS,
        first_time: int = FIRST_TIME,
        step: int = 1,
    ) -> None:
        """Use an invalid address, which is never contacted; times as the archive has them."""
        super().__init__(_NoBroker({"bootstrap.servers": "nowhere.invalid:9092"}))
        self._numbers = tuple(tp.partition for tp in partitions)
        self._first_time, self._step = first_time, step

    def cluster_id(self) -> str:
        """Return the id that the archive holds."""
        return CLUSTER_ID

    def topic_names(self) -> list[str]:
        """Return the one topic."""
        return [TOPIC]

    def topics(
        self, names: Collection[str], needed: Sequence[str] = ("DESCRIBE",)
    ) -> dict[str, Topic]:
        """Describe the one topic."""
        return {name: Topic(name, TOPIC_ID, self._numbers) for name in names}

    def topic_config(self, name: str) -> dict[str, str]:
        """Return a topic's settings: it keeps its records for ever."""
        return {"retention.ms": "-1", "cleanup.policy": "delete"}

    def first_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset at or after a time, and its record's time."""
        first = {tp: max(0, -((self._first_time - at) // self._step)) for tp, at in times.items()}
        return {tp: (at, self._first_time + at * self._step) for tp, at in first.items()}

    def records(
        self, tp: TopicPartition, span: OffsetRange, isolation_level: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield offsets and times of the records that the simulated Kafka has."""
        first = max(span.start, self.earliest([tp])[tp])
        end = min(span.end, self.latest([tp], isolation_level)[tp])
        for start in range(first, end, _BATCH):
            offsets = range(start, min(start + _BATCH, end))
            times = [1000 * (self._first_time + at * self._step) for at in offsets]
            yield pa.record_batch(
                {"offset": list(offsets), "timestamp": pa.array(times, pa.timestamp("us"))}
            )

    def times_from(
        self,
        offsets: Mapping[TopicPartition, int],
        count: int,
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Return offset and time of the next records that the simulated Kafka has."""
        ends = self.latest(offsets, "read_uncommitted")
        return {
            tp: [
                (offset, self._first_time + offset * self._step)
                for offset in range(at, min(at + count, ends[tp]))
            ]
            for tp, at in offsets.items()
        }

    def sample_records(self, places: Iterable[Mapping[TopicPartition, int]]) -> list[RecordSample]:
        """Return nothing: its records aren't compressed."""
        return []

    def single_records(
        self,
        offsets: Mapping[TopicPartition, int],
        isolation_level: str = "read_uncommitted",
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, SeenRecord]:
        """Return records with whatever hashes the archive has, and none where it has none."""
        if isolation_level == "read_committed":
            return {}
        return {tp: SeenRecord(at, AnyHash(), None) for tp, at in offsets.items()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return offset 0."""
        return dict.fromkeys(partitions, 0)

    def latest(
        self, partitions: Iterable[TopicPartition], isolation_level: str
    ) -> dict[TopicPartition, int]:
        """Return an offset above everything that was drained."""
        return dict.fromkeys(partitions, 1 << 40)
