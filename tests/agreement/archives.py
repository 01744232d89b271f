"""Archives to damage: of each format, with closed and open generations and windows of each kind.

The product's own code seals them; Python writes the data files in Spark's place. Which records each
of them holds is known without reading any (`Made.records`).
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyarrow import orc
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.keys import keys_for_writing
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.window import Window
from kafka_drain.config.encryption import Encryption
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.xxhash64 import batch_fingerprint
from kafka_drain.encryption.data_keys import data_key
from kafka_drain.encryption.kms import FILE_VARIABLE, encrypt_locally
from kafka_drain.findings import errors
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.maintenance import compact
from kafka_drain.maintenance.erase import run_erasure
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.maintenance.maintain import run_maintenance
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition, to_spark_json
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.committed_files import read_committed_files
from kafka_drain.proof.content_checks import content_of
from kafka_drain.proof.fingerprints import write_notes
from kafka_drain.proof.sealing import Identity, seal_window
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.job_spec import CompactSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.windows.window_jobs import freeze_window, seal_superseding
from tests.agreement.records import Record, Records, read_files
from tests.kafka_drain.fake_cluster import FakeCluster, Log

#: Topic `a` has two partitions; `b` is compacted, and has only even offsets.
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
FIRST = 100
BATCH = 8
DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)
#: After everything that is written, and before anything is due by age.
LATER = datetime(2026, 6, 1, tzinfo=timezone.utc)
HIDDEN = ["key", "value", "headers.list.element.key", "headers.list.element.value"]
AVRO = {
    "type": "record",
    "name": "topLevelRecord",
    "fields": [
        {"name": "key", "type": ["bytes", "null"]},
        {"name": "value", "type": ["bytes", "null"]},
        {
            "name": "headers",
            "type": [
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "headers",
                        "fields": [
                            {"name": "key", "type": ["string", "null"]},
                            {"name": "value", "type": ["bytes", "null"]},
                        ],
                    },
                },
                "null",
            ],
        },
        {"name": "topic", "type": ["string", "null"]},
        {"name": "partition", "type": ["int", "null"]},
        {"name": "offset", "type": ["long", "null"]},
        {"name": "timestamp", "type": [{"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "timestampType", "type": ["int", "null"]},
    ],
}


def row(tp: TopicPartition, topic_id: str, offset: int) -> dict[str, Any]:
    """Return the record at an offset; no two are alike."""
    text = f"{topic_id}:{tp}:{offset}".encode()
    return {
        "key": None if offset % 7 == 0 else b"key " + text,
        "value": None if offset % 5 == 0 else b"value " + text * (offset % 3 + 1),
        "headers": [{"key": "h", "value": text}] if offset % 3 == 0 else None,
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": offset,
        "timestamp": DAY + timedelta(minutes=30 * (offset - FIRST)),
        "timestampType": 0,
    }


def exists(tp: TopicPartition, offset: int) -> bool:
    """Return whether Kafka has a record at an offset that it has had."""
    return tp.topic != "b" or offset % 2 == 0


@dataclass
class Made:
    """An archive, and what is in it.

    Attributes:
        root: Its folder.
        records: The records that it holds, sealed or not.
        key: The data key of encrypted files; None for none.
    """

    root: Path
    records: Records = field(default_factory=Counter)
    key: bytes | None = None

    def take(self, tp: TopicPartition, topic_id: str, offsets: Iterable[int]) -> None:
        """Note that records have come in."""
        rows = (row(tp, topic_id, at) for at in offsets if exists(tp, at))
        self.records.update(map(Record.of, rows))

    def leave(self, tp: TopicPartition, topic_id: str, offsets: Iterable[int]) -> None:
        """Note that records have gone."""
        rows = (row(tp, topic_id, at) for at in offsets if exists(tp, at))
        self.records -= Counter(map(Record.of, rows))


class Builder:
    """Makes an archive step by step, as drains and maintenance would.

    Args:
        root: Its folder.
        file_format: Format of its files.
        by_date: Whether folders name the date, too.
        encrypted: Whether its files are encrypted.
    """

    def __init__(
        self, root: Path, file_format: str, *, by_date: bool = False, encrypted: bool = False
    ) -> None:
        self.made = Made(root)
        self.archive = Archive.at(str(root))
        self.partition_by = ["topic", "date"] if by_date else ["topic"]
        self.format = file_format
        self.ids = {"a": "A" * 21 + "Q", "b": "B" * 21 + "Q"}
        self.ends = dict.fromkeys(PARTITIONS, FIRST)
        self._attempts = 0
        self.now = LATER
        self._batch = 0
        self._generation = 0
        self.archive.create(
            pipeline="agreement",
            cluster_id="cluster-1",
            topic_ids=self.ids,
            source={"topics": sorted(self.ids)},
        )
        self._crypto: pe.FileEncryptionProperties | None = None
        self._key_id = ""
        if encrypted:
            made = keys_for_writing(self.archive.root, Encryption(kms="file", key="m"))
            assert made is not None
            self._key_id = made["current"]
            self.made.key = data_key(UPath(root), self._key_id)
        self.open_generation("first")

    def pipeline(self, **keys: Any) -> Pipeline:
        """Return the pipeline of the archive."""
        return Pipeline(
            name="agreement",
            topics=sorted(self.ids),
            archive=str(self.made.root),
            format=self.format,
            **keys,
            **({"encryption": {"kms": "file", "key": "m"}} if self.made.key else {}),
        )

    @property
    def cluster(self) -> Any:
        """The Kafka that it was drained from."""

        def contents(tp: TopicPartition, span: OffsetRange) -> list[dict[str, Any]]:
            offsets = range(max(span.start, 0), min(span.end, self.ends[tp]))
            return [row(tp, self.ids[tp.topic], at) for at in offsets if exists(tp, at)]

        return FakeCluster(
            {tp: Log(end=end) for tp, end in self.ends.items()},
            topic_ids=self.ids,
            configs={"b": {"cleanup.policy": "compact"}},
            contents=contents,
        )

    def open_generation(self, reason: str, file_format: str | None = None) -> None:
        """Open the next generation where the last one has ended."""
        self._generation += 1
        self._batch = 0
        self.format = file_format or self.format
        self.archive.generation(self._generation).write(
            starting_offsets=self.ends,
            file_format=self.format,
            partition_by=self.partition_by,
            topic_ids=self.ids,
            reason=reason,
        )

    def recreate(self, topic: str) -> None:
        """Make a topic again, and open a generation in which its offsets begin anew."""
        self.ids[topic] = topic.upper() * 21 + "g"
        for tp in PARTITIONS:
            if tp.topic == topic:
                self.ends[tp] = 0
        self.archive.update_topics(self.archive.snapshot().document, self.ids)
        self.open_generation("rollover")

    def drain(self, batches: int = 1, *, sealed: bool = True) -> None:
        """Commit batches as Spark does, and seal them."""
        generation = self.archive.generation(self._generation)
        data = self.made.root / generation.data_name
        for _ in range(batches):
            start = dict(self.ends)
            # Kafka isn't asked why unsealed offsets are missing.
            self.ends = {
                tp: end + BATCH if sealed or tp.topic != "b" else end for tp, end in start.items()
            }
            offsets = {tp: range(start[tp], self.ends[tp]) for tp in PARTITIONS}
            paths = self._write(data, str(self._batch), self._rows(offsets), by_date=True)
            lines = ["v1"] + [
                json.dumps(
                    {"path": path.as_uri(), "size": path.stat().st_size, "isDir": False}
                    | {"modificationTime": 0, "action": "add"}
                )
                for path in paths
            ]
            checkpoint = data.parent / "checkpoint"
            for path, text in (
                (data / "_spark_metadata" / str(self._batch), "\n".join(lines)),
                (
                    checkpoint / "offsets" / str(self._batch),
                    f"v1\n{{}}\n{to_spark_json(self.ends)}",
                ),
                (checkpoint / "commits" / str(self._batch), "v1\n{}"),
                (checkpoint / "metadata", '{"id":"a query"}'),
            ):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            self._note(generation, start)
            for tp, each in offsets.items():
                self.made.take(tp, self.ids[tp.topic], each)
            self._batch += 1
            if sealed:
                self.validate()

    def validate(self) -> None:
        """Seal what is proven; everything is."""
        with patch.object(gap_explanation, "classify_gaps", _compacted):
            report = validate_archive(self.archive, self.cluster, clock=lambda: LATER)
        assert errors(report.findings) == [], report.findings

    def window(
        self,
        key: str,
        kind: WindowKind,
        offsets: Mapping[TopicPartition, Iterable[int]],
        replaces: Collection[str] = (),
        **plan: Any,
    ) -> None:
        """Seal a window with the records of some offsets."""
        window = Window(self.archive.root, key)
        held = {tp: list(each) for tp, each in offsets.items()}
        ranges = {tp: [OffsetRange(each[0], each[-1] + 1)] for tp, each in held.items()}
        freeze_window(
            window,
            ranges,
            kind=kind,
            replaces=sorted(replaces),
            file_format=self.format,
            partition_by=["topic"],
            **plan,
        )
        data = self.made.root / window.data_name
        paths = self._write(data / "1", "w", self._rows(held), by_date=False)
        (data / "1" / "_SUCCESS").touch()
        listed = [
            SinkFile(str(path.relative_to(data)), path.stat().st_size, 0, 0, "_SUCCESS")
            for path in paths
        ]
        files, found = read_committed_files(window, listed, self.format)
        assert found == []
        receipt = seal_window(
            [(tp, r) for tp in sorted(ranges) for r in ranges[tp]],
            files,
            [
                Gap(tp, OffsetRange(at, at + 1), GapReason.COMPACTED)
                for tp, each in held.items()
                for at in each
                if not exists(tp, at)
            ],
            identity=Identity("agreement", "cluster-1", self.ids),
            window=key,
            replaces=sorted(replaces),
            fingerprint=content_of(files).fingerprint,
            sealed_at=DAY.isoformat(timespec="milliseconds"),
        )
        seal_superseding(self.archive, window, receipt, run="tests")

    def backfill(self, start: int, end: int) -> None:
        """Seal records of partition 0 of `a` from before the first generation."""
        self.made.take(PARTITIONS[0], self.ids["a"], range(start, end))
        self.window(
            "20251231T230000Z_20260101T000000Z",
            WindowKind.BACKFILL,
            {PARTITIONS[0]: range(start, end)},
            interval=["2025-12-31T23:00:00+00:00", "2026-01-01T00:00:00+00:00"],
            topics=self.ids,
        )

    def file_of(self, number: int, tp: TopicPartition) -> tuple[Receipt, Any, range]:
        """Return a receipt of the newest generation, and its file of a partition."""
        receipt = list(self.archive.snapshot().generations[-1].receipts())[number]
        [file] = [f for f in receipt.files if f.contents[0].tp == tp]
        return receipt, file, range(file.contents[0].first, file.contents[0].last + 1)

    def repair(self, number: int) -> None:
        """Damage a sealed file, and drain its records again."""
        _, file, offsets = self.file_of(number, PARTITIONS[1])
        path = self.made.root / file.path
        path.write_bytes(path.read_bytes()[:-9])
        key = f"repair_2026010{number + 1}T000000Z"
        self.window(key, WindowKind.REPAIR, {PARTITIONS[1]: offsets}, [file.path])

    def reprocess(self, number: int) -> None:
        """Drain the records of an intact segment again."""
        receipt = list(self.archive.snapshot().generations[-1].receipts())[number]
        held = [
            {"topic": part.tp.topic, "partition": part.tp.partition, "records": part.records}
            for part in receipt.partitions
        ]
        size = sum(file.bytes for file in receipt.files)
        self.window(
            f"reprocess_{self._number():04d}_0001",
            WindowKind.REPROCESS,
            {part.tp: range(part.range.start, part.range.end) for part in receipt.partitions},
            [file.path for file in receipt.files],
            replaced={"files": len(receipt.files), "bytes": size, "records": held},
        )

    def _number(self) -> int:
        return self.archive.snapshot().next_number

    def maintain(self, **keys: Any) -> dict[str, Any]:
        """Delete what is too old, and compact closed generations."""
        with self._quiet():
            return run_maintenance(
                self.pipeline(**keys), self.cluster, self._rewrite, run="t", clock=lambda: self.now
            )

    def delete_before(self, days: int) -> None:
        """Delete the files of closed generations whose records are older than some days."""
        bound = DAY + timedelta(days=days)
        live = {tp: range(FIRST, self.ends[tp]) for tp in PARTITIONS}
        self.now = bound + timedelta(days=1)
        self.maintain(retention_days=1)
        self.now = LATER
        for window in self.archive.snapshot().fold.of_kind(WindowKind.RETENTION):
            for part in window.receipt.partitions:
                for each in part.gaps.get(GapReason.DELETED, ()):
                    some = [at for at in live[part.tp] if at in each]
                    self.made.leave(part.tp, self.ids[part.tp.topic], some)

    def erase(self, *offsets: int) -> None:
        """Erase records of partition 0 of `a`, by their keys."""
        self.made.leave(PARTITIONS[0], self.ids["a"], offsets)
        names = [row(PARTITIONS[0], self.ids["a"], at)["key"] for at in offsets]
        request = ErasureRequest("r-1", "a person", keys=frozenset(names))
        with self._quiet():
            run_erasure(
                self.pipeline(), self.cluster, self._rewrite, request, run="t", wait_seconds=0
            )

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Need no Java, and name attempts by number: a seed makes the same archive each time."""

        def application(name: str, *, spec_path: Path, **_: object) -> SparkApplication:
            nowhere = Path("/nowhere")
            arguments = ["compact", str(spec_path)]
            return SparkApplication(name, nowhere, arguments, {}, [], nowhere, "1g", {})

        class Attempt:
            hex = f"{self._attempts:032x}"[::-1]

        self._attempts += 1
        with (
            patch.object(compact, "prepare_application", application),
            patch.object(compact, "uuid4", Attempt),
        ):
            yield

    def _rewrite(self, application: SparkApplication) -> None:
        """Write what Spark writes of the source files."""
        spec = CompactSpec.read(application.specs[0])
        gone = {
            (r["topic"], r["partition"], offset)
            for r in spec.erased
            for offset in range(r["start"], r["end"])
        }
        sources = [Path(_plain(path)) for each in spec.sources for path in each["files"]]
        names = [str(path.relative_to(self.made.root)) for path in sources]
        figures = {True: [0, 0], False: [0, 0]}
        kept: list[dict[str, Any]] = []
        for record in sorted(read_files(self.made.root, names, self.made.key)):
            one = _row(record)
            batch = pa.RecordBatch.from_pylist([one], schema=SCHEMA)
            figure = figures[(record.topic, record.partition, record.offset) in gone]
            figure[0] += 1
            figure[1] ^= batch_fingerprint(batch, record.topic)
            if figure is figures[False]:
                kept.append(one)
        self._write(Path(_plain(spec.path)), "c", kept, by_date=True)
        left, erased = (
            {"records": records, "fingerprint": f"{value:016x}"}
            for records, value in (figures[False], figures[True])
        )
        write_private(Path(spec.result_path), {**left, "erased": erased})

    def _note(self, generation: Generation, start: Mapping[TopicPartition, int]) -> None:
        """Note what Spark read, as its job does."""
        rows = self._rows({tp: range(start[tp], self.ends[tp]) for tp in PARTITIONS})
        value = 0
        for one in rows:
            batch = pa.RecordBatch.from_pylist([one], schema=SCHEMA)
            value ^= batch_fingerprint(batch, one["topic"])
        counts = Counter(TopicPartition(one["topic"], one["partition"]) for one in rows)
        document = {
            "batch": self._batch,
            "records": len(rows),
            "fingerprint": f"{value:016x}",
            "by_partition": to_spark_json(counts),
            "start": to_spark_json(start),
            "end": to_spark_json(self.ends),
        }
        write_notes(generation, [document])

    def _rows(self, offsets: Mapping[TopicPartition, Iterable[int]]) -> list[dict[str, Any]]:
        """Return the records at some offsets."""
        return [
            row(tp, self.ids[tp.topic], offset)
            for tp, each in offsets.items()
            for offset in each
            if exists(tp, offset)
        ]

    def _write(
        self, folder: Path, name: str, rows: Iterable[dict[str, Any]], *, by_date: bool
    ) -> list[Path]:
        """Write the files of some records, as Spark does: one for each folder and partition."""
        files: dict[Path, list[dict[str, Any]]] = {}
        suffix = "json.gz" if self.format == "json" else self.format
        for one in rows:
            date = f"date={one['timestamp'].date()}/"
            date = date if by_date and "date" in self.partition_by else ""
            path = f"topic={one['topic']}/{date}part-{one['partition']:05d}-{name}.{suffix}"
            files.setdefault(folder / path, []).append(one)
        for path, own in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write_file(path, own)
        return list(files)

    def _write_file(self, path: Path, rows: list[dict[str, Any]]) -> None:
        table = pa.Table.from_pylist(rows, schema=SCHEMA).drop_columns(["topic"])
        if self.format == "parquet":
            pq.write_table(table, path, encryption_properties=self._encryption())
        elif self.format == "orc":
            times = table["timestamp"]
            at = table.schema.get_field_index("timestamp")
            millis = pa.compute.divide(times.cast(pa.int64()), 1000)
            table = table.set_column(at, "timestamp", times.cast(pa.timestamp("us")))
            orc.write_table(table.append_column("timestampMillis", millis), path)
        elif self.format == "avro":
            schema = AVRO | {"fields": [f for f in AVRO["fields"] if f["name"] != "topic"]}
            with path.open("wb") as target:
                fastavro.writer(target, schema, rows, codec="deflate", sync_marker=b"0" * 16)
        else:
            text = "".join(json.dumps(_json(one)) + "\n" for one in rows)
            path.write_bytes(gzip.compress(text.encode(), mtime=0))

    def _encryption(self) -> Any:
        if self.made.key is None:
            return None
        key = self.made.key

        class Client(pe.KmsClient):  # type: ignore[misc]
            """Wraps keys as parquet-java does, with the archive's data key."""

            def __init__(self, _: object) -> None:
                super().__init__()

            def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
                """Wrap a key."""
                return encrypt_locally(key, key_bytes, master_key_identifier).encode()

            def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
                """Never called."""
                raise NotImplementedError

        return pe.CryptoFactory(Client).file_encryption_properties(
            pe.KmsConnectionConfig(),
            pe.EncryptionConfiguration(
                footer_key=self._key_id,
                column_keys={self._key_id: HIDDEN},
                plaintext_footer=True,
                double_wrapping=False,
            ),
        )


def _row(record: Record) -> dict[str, Any]:
    """Return a record as a row."""
    time = DAY.fromtimestamp((record.timestamp or 0) / 1000, timezone.utc)
    headers = record.headers
    return {
        "key": record.key,
        "value": record.value,
        "headers": None if headers is None else [{"key": k, "value": v} for k, v in headers],
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": time,
        "timestampType": record.timestamp_type,
    }


def _compacted(
    cluster: object, missing: Mapping[TopicPartition, Iterable[OffsetRange]]
) -> list[Gap]:
    """Say why Kafka doesn't have offsets, without a consumer."""
    return [Gap(tp, r, GapReason.COMPACTED) for tp, ranges in missing.items() for r in ranges]


def _plain(path: str) -> str:
    """Return a path as Hadoop writes it as a plain one."""
    return path.removeprefix("file://")


def _json(one: dict[str, Any]) -> dict[str, Any]:
    """Return a row as Spark writes it: bytes in base64, without nulls and the topic."""

    def text(value: bytes) -> str:
        return base64.b64encode(value).decode()

    found = {name: one[name] for name in ("partition", "offset", "timestampType")}
    for name in ("key", "value"):
        if one[name] is not None:
            found[name] = text(one[name])
    if one["headers"] is not None:
        found["headers"] = [{"key": h["key"], "value": text(h["value"])} for h in one["headers"]]
    return found | {"timestamp": one["timestamp"].strftime("%Y-%m-%dT%H:%M:%S.000Z")}


@contextmanager
def master_key(folder: Path) -> Iterator[None]:
    """Have the master key of encrypted archives."""
    path = folder / "master-keys.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({"m": base64.b64encode(bytes(32)).decode()}))
    with patch.dict(os.environ, {FILE_VARIABLE: str(path)}):
        yield


def make_archives(folder: Path) -> list[Made]:
    """Make all archives; encrypted ones need the master key."""
    found = [
        _everything(Builder(folder / "parquet", "parquet", by_date=True)),
        _everything(Builder(folder / "encrypted", "parquet", encrypted=True)),
        _everything(Builder(folder / "orc", "orc")),
        _everything(Builder(folder / "avro", "avro")),
        _everything(Builder(folder / "json", "json")),
        _recreated(Builder(folder / "recreated", "parquet")),
        _replaced(Builder(folder / "replaced", "parquet")),
        _plain_one(Builder(folder / "plain", "parquet")),
    ]
    return [each.made for each in found]


def _everything(it: Builder) -> Builder:
    """A compacted, an erased and an open generation, and windows of each kind but deletions."""
    it.drain(4)
    it.repair(0)
    it.reprocess(1)
    it.backfill(90, 100)
    it.open_generation("rollover")
    it.drain(2)
    it.maintain()
    it.erase(101, 118)
    it.open_generation("rollover")
    it.drain(2)
    return it


def _recreated(it: Builder) -> Builder:
    """A topic that was made again, another format since, and a batch that isn't sealed."""
    it.drain(2)
    it.recreate("a")
    it.drain(2)
    it.open_generation("format", "orc")
    it.drain(1)
    it.drain(1, sealed=False)
    return it


def _replaced(it: Builder) -> Builder:
    """Replaced files that are still there, in the open generation; and old ones were deleted."""
    it.drain(6)
    it.open_generation("rollover")
    it.delete_before(2)
    it.drain(4)
    it.repair(0)
    it.reprocess(1)
    it.repair(3)
    return it


def _plain_one(it: Builder) -> Builder:
    """One generation, and nothing else."""
    it.drain(3)
    return it
