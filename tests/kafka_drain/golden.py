"""The golden archive to work on: copies of it, its Kafka, its seals, and batches after it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import GenerationState, read_state
from kafka_drain.archive.snapshot import SnapshotGeneration
from kafka_drain.archive.window import Window, range_rows
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.findings import errors
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition, to_spark_json
from kafka_drain.proof.committed_file import read_file
from kafka_drain.proof.committed_files import read_committed_files
from kafka_drain.proof.content_checks import content_of
from kafka_drain.proof.fingerprints import write_notes
from kafka_drain.proof.report import Report
from kafka_drain.proof.sealing import Identity, seal_window
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.window_jobs import freeze_window, seal_superseding
from tests.kafka_drain.fake_cluster import FakeCluster, Log

GOLDEN = Path(__file__).parents[1] / "data" / "sink_v1_spark4"
MANIFEST = "generations/0001/data/_spark_metadata"
CHECKPOINT = "generations/0001/checkpoint"
RECEIPTS = "generations/0001/receipts"

#: Offsets that the golden archive holds of each of its two partitions: all below.
END = 42
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
NOON = datetime(2013, 1, 1, 12, tzinfo=timezone.utc)


def golden_cluster(end: int = 1000) -> FakeCluster:
    """The Kafka that the golden archive was drained from, still holding all of it."""
    document = json.loads((GOLDEN / "archive.json").read_text())
    return FakeCluster(
        {P0: Log(end=end), P1: Log(end=end)},
        id=document["cluster_id"],
        topic_ids=document["topics"],
        contents=in_kafka,
    )


def in_kafka(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
    """Return what Kafka holds of some offsets: what Spark drained, and rows of ours after it."""
    rows = [each for each in golden_rows() if each["partition"] == tp.partition]
    rows += [row(tp, offset) for offset in range(END, min(span.end, 200))]
    return sorted(
        (each for each in rows if each["offset"] in span), key=lambda each: int(each["offset"])
    )


@cache
def golden_rows() -> list[dict[str, Any]]:
    """Return what the golden archive's files hold."""
    return [
        each | {"topic": "flights"}
        for path in sorted(GOLDEN.rglob("part-*.parquet"))
        for batch in read_records(path, "parquet", 1 << 20)
        for each in batch.to_pylist()
    ]


def golden_copy(folder: Path) -> Archive:
    """Copy the golden archive; nothing of it is sealed."""
    return Archive.at(str(shutil.copytree(GOLDEN, folder)))


def sealed_copy(folder: Path) -> Archive:
    """Copy the golden archive, sealed: batches 0 to 11, 12 and 13."""
    return Archive.at(str(shutil.copytree(sealed(), folder)))


def golden_pipeline(archive: Archive, **keys: Any) -> Pipeline:
    """Return the pipeline of a copy of the golden archive."""
    name = archive.snapshot().document.pipeline
    return Pipeline(name=name, topics=["flights"], archive=str(archive.root), **keys)


@cache
def sealed() -> Path:
    """Return the golden archive, sealed once for all tests of this process, which only copy it."""
    folder, process = Path(tempfile.mkdtemp(prefix="golden-")), os.getpid()

    def remove() -> None:
        # A fork's end isn't this process's.
        if os.getpid() == process:
            shutil.rmtree(folder)

    atexit.register(remove)
    seal(golden_copy(folder / "archive"))
    return folder / "archive"


def seal(archive: Archive) -> Report:
    """Validate an archive that is complete, so that it gets its receipts."""
    report = validate_archive(archive, golden_cluster())
    assert errors(report.findings) == []
    return report


def open_next(archive: Archive, file_format: str, partition_by: list[str]) -> Generation:
    """Open a generation where the golden one ends."""
    generation = archive.generation(2)
    generation.write(
        starting_offsets={P0: END, P1: END},
        file_format=file_format,
        partition_by=partition_by,
        topic_ids=archive.snapshot().document.topics,
        reason="rollover",
    )
    return generation


def state_of(generation: Generation) -> GenerationState:
    """Read a generation's own files, in a snapshot of the archive as it is now."""
    snapshot = Archive(generation.root).snapshot()
    if not isinstance(generation, SnapshotGeneration):
        generation = SnapshotGeneration(generation.root, generation.number)
    return read_state(snapshot, generation)


def row(tp: TopicPartition, offset: int) -> dict[str, Any]:
    """Return the record of an offset; no two are alike."""
    return {
        "key": None if offset % 7 == 0 else b"key %d" % offset,
        "value": None if offset % 5 == 0 else b"value %d" % offset,
        "headers": [{"key": "a", "value": b"%d" % offset}] if offset % 3 == 0 else None,
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": offset,
        "timestamp": NOON + timedelta(seconds=offset),
        "timestampType": 0,
    }


def add_batch(
    generation: Generation,
    batch: int,
    start: int,
    end: int,
    folder: str = "topic=flights",
    **changes: Any,
) -> list[Path]:
    """Commit a batch as Spark does: a file for each partition, manifest and checkpoint.

    Args:
        generation: The generation.
        batch: The batch's id.
        start: The first offset of each partition.
        end: Where its offsets end.
        folder: Where its files lie in the data folder.
        changes: Columns that aren't as `row` has them.
    """
    file_format = generation.read_document().format
    data = Path(str(generation.data))
    lines = ["v1"]
    paths = []
    for tp in (P0, P1):
        path = data / folder / f"part-{tp.partition:05d}-{batch}.{file_format}"
        write_rows(path, file_format, [row(tp, offset) | changes for offset in range(start, end)])
        entry = {"path": path.as_uri(), "size": path.stat().st_size, "isDir": False}
        lines.append(json.dumps(entry | {"modificationTime": 0, "action": "add"}))
        paths.append(path)
    ends = to_spark_json({P0: end, P1: end})
    for path, text in (
        (data / "_spark_metadata" / str(batch), "\n".join(lines)),
        (_checkpoint(generation) / "offsets" / str(batch), f"v1\n{{}}\n{ends}"),
        (_checkpoint(generation) / "commits" / str(batch), "v1\n{}"),
        (_checkpoint(generation) / "metadata", '{"id":"a query"}'),
    ):
        if path.name == "metadata" and path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths


def write_rows(path: Path, file_format: str, rows: list[dict[str, Any]]) -> None:
    """Write a data file without the topic, which its folder names."""
    table = pa.Table.from_pylist(rows, schema=SCHEMA).drop_columns(["topic"])
    path.parent.mkdir(parents=True, exist_ok=True)
    if file_format == "orc":
        position = table.schema.get_field_index("timestamp")
        # As the drain's JVM does: local times, in UTC.
        times = table["timestamp"].cast(pa.timestamp("us"))
        orc.write_table(table.set_column(position, "timestamp", times), str(path))
    else:
        pq.write_table(table, str(path))


def _checkpoint(generation: Generation) -> Path:
    return Path(str(generation.checkpoint))


def note_batch(
    generation: Generation,
    batch: int,
    paths: Sequence[Path],
    start: int,
    end: int,
    skipped: Mapping[TopicPartition, Sequence[OffsetRange]] | None = None,
) -> None:
    """Leave what Spark read of a batch, as the drain does when Spark has ended.

    Args:
        generation: The generation.
        batch: The batch's id.
        paths: Its files, which hold all that Spark read.
        start: The first offset of each partition.
        end: Where its offsets end.
        skipped: Offsets that Kafka no longer had when the drain started.
    """
    file_format, data = generation.read_document().format, Path(str(generation.data))
    taken = content_of(
        found
        for path in paths
        if isinstance(found := _read(generation, data, path, file_format), CommittedFile)
    )
    document = {
        "batch": batch,
        "records": taken.records,
        "fingerprint": taken.fingerprint,
        "by_partition": to_spark_json(taken.by_partition or {}),
        "start": to_spark_json({P0: start, P1: start}),
        "end": to_spark_json({P0: end, P1: end}),
        **({"skipped": range_rows(skipped)} if skipped else {}),
    }
    write_notes(generation, [document])


def _read(generation: Generation, data: Path, path: Path, file_format: str) -> object:
    name, size = str(path.relative_to(data)), path.stat().st_size
    return read_file(
        str(generation.root), generation.data_name, SinkFile(name, size, 0, 0, "0"), file_format
    )


def seal_repair(
    archive: Archive,
    key: str,
    rows: Sequence[dict[str, Any]],
    replaces: Sequence[str],
    kind: WindowKind = WindowKind.REPAIR,
    files: int = 1,
) -> Path:
    """Seal a window that stands for damaged files, as a repair does; return its first data file.

    Args:
        archive: The archive.
        key: The window's name.
        rows: What Kafka still held of one partition.
        replaces: The damaged files, relative to the archive.
        kind: Why it is written.
        files: How many data files it has, of as many rows each.
    """
    tp = TopicPartition(rows[0]["topic"], rows[0]["partition"])
    window = Window(archive.root, key)
    offsets = [each["offset"] for each in rows]
    ranges = {tp: [OffsetRange(min(offsets), max(offsets) + 1)]}
    freeze_window(
        window,
        ranges,
        kind=kind,
        replaces=replaces,
        file_format="parquet",
        partition_by=["topic"],
    )
    folder, size = Path(str(window.data)) / "1" / f"topic={tp.topic}", len(rows) // files
    paths = [folder / f"part-{number:05d}.parquet" for number in range(files)]
    for number, path in enumerate(paths):
        write_rows(path, "parquet", list(rows[number * size : (number + 1) * size]))
    listed = [
        SinkFile(str(path.relative_to(str(window.data))), path.stat().st_size, 0, 0, "_SUCCESS")
        for path in paths
    ]
    read, found = read_committed_files(window, listed, "parquet")
    assert found == []
    document = archive.snapshot().document
    receipt = seal_window(
        [(tp, r) for r in ranges[tp]],
        read,
        (),
        identity=Identity(document.pipeline, document.cluster_id, document.topics),
        window=key,
        replaces=replaces,
        fingerprint=content_of(read).fingerprint,
        sealed_at=NOON.isoformat(),
    )
    seal_superseding(archive, window, receipt, run="tests")
    return paths[0]


def crc_of(content: bytes, piece: int = 512) -> bytes:
    """Write a checksum file as `ChecksumFileSystem` documents it."""
    sums = [zlib.crc32(content[at : at + piece]) for at in range(0, len(content), piece)]
    return b"crc\0" + struct.pack(f">i{len(sums)}I", piece, *sums)
