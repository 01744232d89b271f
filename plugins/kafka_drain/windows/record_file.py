"""Archive the records of a file of lines, for a republish to send them like those of any archive.

The archive has one sealed window, with the records of each partition at the offsets 0, 1, 2, …, in
the file's order. It is named after the file's content, and is there only when it is whole.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.window import Window
from kafka_drain.data_files.record_lines import LATEST, RecordLine, read_lines, refuse_wrong
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.xxhash64 import records_fingerprint
from kafka_drain.errors import ConfigError, DataFileError
from kafka_drain.intervals import milliseconds
from kafka_drain.kafka.identity import NO_TOPIC_ID
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.committed_files import read_committed_files
from kafka_drain.proof.content_checks import content_of
from kafka_drain.proof.sealing import Identity, seal_window
from kafka_drain.storage.paths import is_local, locate, sync_files, sync_folder
from kafka_drain.windows.window_jobs import freeze_window, refuse_findings, seal_superseding

#: What a file may have at most; a whole topic is drained, not written by hand.
MOST_RECORDS, MOST_BYTES = 100_000, 256 << 20

_KEY, _NAME = "records", "records-{}"

_INSTEAD = "send more from an archive, with the options that find prints with --republish"


@dataclass(frozen=True)
class RecordFile:
    """The records of a file.

    Attributes:
        name: The file, for messages.
        sha256: Hash of its content, in hexadecimal.
        lines: The records, each with the number of its line.
    """

    name: str
    sha256: str
    lines: Sequence[tuple[int, RecordLine]]

    @classmethod
    def read(cls, path: str) -> RecordFile:
        """Read a file, and check each line.

        Raises:
            ConfigError: When it can't be read, has too much or nothing, or lines are wrong.
        """
        try:
            # A run that goes on after a kill has to read the same again; a pipe would block here.
            if not stat.S_ISREG(Path(path).stat().st_mode):
                raise ConfigError(f"{path} isn't a file; save the records in one")
            with Path(path).open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{path} can't be read: {error.strerror}") from error
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{path} has more than {MOST_BYTES >> 20} MiB; {_INSTEAD}")
        if (count := content.count(b"\n")) > 2 * MOST_RECORDS:
            raise ConfigError(f"{path} has {count:,} lines, at most {MOST_RECORDS:,}; {_INSTEAD}")
        lines = read_lines(content, path)
        if len(lines) > MOST_RECORDS:
            raise ConfigError(
                f"{path} has {len(lines):,} records, at most {MOST_RECORDS:,}; {_INSTEAD}"
            )
        if not lines:
            raise ConfigError(f"{path} has no record; nothing was sent")
        return cls(path, hashlib.sha256(content).hexdigest(), lines)

    @property
    def pipeline(self) -> str:
        """Name of the pipeline that the archive seems to be of: one for each content."""
        return _NAME.format(self.sha256[:32])

    def refuse_unsendable(self, *, keeps_partitions: bool) -> None:
        """Refuse records that Kafka's client can't send as they are.

        Args:
            keeps_partitions: Whether each is sent to the partition that it names.

        Raises:
            ConfigError: Names the lines.
        """
        wrong = (
            (number, what)
            for number, record in self.lines
            if (what := _unsendable(record, keeps_partitions=keeps_partitions))
        )
        refuse_wrong([f"line {number:,}: {what}" for number, what in wrong], self.name)


def _unsendable(record: RecordLine, *, keeps_partitions: bool) -> str:
    """Return what prevents that a record is sent as it is; empty for nothing."""
    if keeps_partitions and record.partition is None:
        return "partition is missing; give one, or say --placement key"
    if record.timestamp is not None and record.timestamp < 1:
        # The client takes 0 for none.
        return (
            f"timestamp is {record.timestamp}; Kafka's client sends whole numbers from 1 to "
            f"{LATEST}; leave it out for the time when the file is first read"
        )
    if any("\0" in name for name, _ in record.headers):
        return "headers has a name with a NUL, at which Kafka's client cuts it off"
    return ""


def archive_file(file: RecordFile, root: UPath, *, now: datetime) -> Archive:
    """Archive a file's records in a new folder, or return the archive that was made of them.

    Args:
        root: The folder; local, new or empty, or an archive of this content.
        now: Timestamp of the records that have none.

    Raises:
        ConfigError: When the folder has something else in it, or can't be written.
    """
    archive = Archive(root)
    if not archive.exists:
        if not is_local(root):
            raise ConfigError(f"{root} isn't a local folder; {_OWN_FOLDER}")
        with _new_folder(Path(str(root))) as made:
            _fill(Archive(locate(str(made))), file, now)
    held = archive.snapshot().document.pipeline
    if held != file.pipeline:
        raise ConfigError(
            f"{root} has other records than {file.name} (of pipeline {held}), perhaps those of the "
            f"file before it was edited; {_OWN_FOLDER}"
        )
    return archive


_OWN_FOLDER = "name a new folder for the records of this file, and for what the run keeps"


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """Make a folder (mode 0700) in the body, which has its name only once it is whole."""
    beside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(".tmp", f".{path.name}.", path.parent))
        yield beside
        # Replaces an empty folder, no other.
        beside.rename(path)
        sync_folder(locate(str(path.parent)))
    except OSError as error:
        # Another run may have been faster, with the same file.
        if not Archive.at(str(path)).exists:
            raise ConfigError(f"{path}: {error.strerror or error}; {_OWN_FOLDER}") from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)


def _fill(archive: Archive, file: RecordFile, now: datetime) -> None:
    """Write and seal the archive of a file."""
    parts: dict[TopicPartition, list[dict[str, Any]]] = {}
    for _, record in file.lines:
        part = parts.setdefault(TopicPartition(record.topic, record.partition or 0), [])
        part.append(_row(record, len(part), milliseconds(now)))
    ids = {tp.topic: NO_TOPIC_ID for tp in sorted(parts)}
    archive.create(
        pipeline=file.pipeline, cluster_id="", topic_ids=ids, source={"topics": sorted(ids)}
    )
    window = Window(archive.root, _KEY)
    ranges = {tp: [OffsetRange(0, len(rows))] for tp, rows in sorted(parts.items())}
    freeze_window(
        window,
        ranges,
        kind=WindowKind.REPAIR,
        replaces=[],
        file_format="parquet",
        partition_by=["topic"],
    )
    written, read = [], 0
    for topic in ids:
        table = _table(rows for tp, rows in sorted(parts.items()) if tp.topic == topic)
        read ^= records_fingerprint(table.to_batches(), None)
        path = Path(f"topic={topic}", "part-00000.parquet")
        place = Path(str(window.data)) / path
        place.parent.mkdir(parents=True)
        pq.write_table(table.drop_columns(["topic"]), place)
        written.append(SinkFile(str(path), place.stat().st_size, 0, 0, "_SUCCESS"))
    files, findings = read_committed_files(window, written, "parquet")
    refuse_findings(window, findings)
    held = content_of(files)
    if held.fingerprint != f"{read:016x}":
        raise DataFileError(f"{window.name} doesn't have the records of {file.name}; run it again")
    receipt = seal_window(
        [(tp, rs[0]) for tp, rs in ranges.items()],
        files,
        [],
        identity=Identity(file.pipeline, "", ids),
        window=window.key,
        replaces=[],
        fingerprint=held.fingerprint,
        sealed_at=now.isoformat(timespec="milliseconds"),
    )
    seal_superseding(archive, window, receipt, run=file.pipeline)
    whole = [path for path in Path(str(archive.root)).rglob("*") if path.is_file()]
    sync_files(archive.root, [str(path.relative_to(str(archive.root))) for path in whole])


def _row(record: RecordLine, offset: int, now_ms: int) -> dict[str, Any]:
    timestamp = now_ms if record.timestamp is None else record.timestamp
    return {
        "key": record.key,
        "value": record.value,
        # As Spark writes none.
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        "topic": record.topic,
        "partition": record.partition or 0,
        "offset": offset,
        "timestamp": timestamp * 1000,
        "timestampType": record.timestamp_type or 0,
    }


def _table(parts: Iterable[list[dict[str, Any]]]) -> pa.Table:
    return pa.Table.from_pylist([row for rows in parts for row in rows], schema=SCHEMA)
