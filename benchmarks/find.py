"""Finding one key among 100,000,000 records in 1,000 files, and what Bloom filters cost a drain.

The records are synthetic: pyarrow writes them, with random keys of 16 bytes, each once. Both the
archive with Bloom filters on keys and the one without are searched by `kafka_drain.find`, and their
files by DuckDB. The page cache is asked to forget the files before each search. Bytes are those
that a process has read, in the page cache or not, without its imports.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.arms import compared, figures_of, take_turns
from benchmarks.drain import Arms
from benchmarks.kafka_records import produce
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost
from benchmarks.processes import load_average, measured
from benchmarks.synthetic import CLUSTER_ID, FIRST_TIME, SEALED_AT, TOPIC, TOPIC_ID
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.data_files.reader import index_sha256
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.sealing import Identity, seal_segment

__all__ = ["measure_find"]

FILES, RECORDS = 1_000, 100_000
PARTITIONS = tuple(TopicPartition(TOPIC, number) for number in range(8))
#: Records of the drain that is measured with and without Bloom filters.
DRAINED = 2_000_000
#: What turns them on, with room for the records of a partition, which are a file.
OPTIONS = (
    "parquet.bloom.filter.enabled#key=true",
    f"parquet.bloom.filter.expected.ndv#key={DRAINED // len(PARTITIONS)}",
)
#: The share of a drain's speed that they must leave.
OWED = 0.97

_SPREAD = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)
_BYTES = (1 << 64) - 1


def measure_find(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Search both archives in turns, then drain with and without Bloom filters in turns.

    Raises:
        RuntimeError: If a search doesn't find exactly the record, or a drain fails.
    """
    found, marks = _searched(folder, rounds, say)
    drained, costs = _drained(folder, rounds, say)
    return {"searches": found, "drains": drained}, [*marks, *costs]


def _searched(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    archives = {name: folder / name for name in ("filters", "plain")}
    sizes = {}
    for name, archive in archives.items():
        say(f"find: writing {FILES * RECORDS:,} records to {FILES:,} files: {name}")
        sizes[name] = measured(make_archive, str(archive), name == "filters").answer
    wanted = FILES * RECORDS * 2 // 3
    searches: dict[str, tuple[Callable[..., Any], str]] = {
        "find, Bloom filters": (search, "filters"),
        "find, none": (search, "plain"),
        "DuckDB, Bloom filters": (search_by_duckdb, "filters"),
        "DuckDB, none": (search_by_duckdb, "plain"),
    }
    runs: dict[str, list[tuple[float, int]]] = {name: [] for name in searches}
    for number in range(rounds):
        for name, (function, which) in searches.items():
            forget(archives[which])
            matches, seconds, size = measured(function, str(archives[which]), key_of(wanted)).answer
            if matches != [wanted]:
                raise RuntimeError(f"{name} found {matches}, expected record {wanted}")
            runs[name].append((seconds, size))
            what = f"{seconds:.2f} s, {size / 1e6:,.1f} MB"
            say(f"find: round {number + 1} of {rounds}: {name} {what}")
    load = load_average()
    figures: dict[str, dict[str, Any]] = {
        name: {
            "seconds": round(statistics.median(seconds for seconds, _ in taken), 3),
            "bytes": round(statistics.median(size for _, size in taken)),
            "runs": taken,
        }
        for name, taken in runs.items()
    }
    marks = [
        Mark(
            f"one key among {FILES * RECORDS:,} records in {FILES:,} files: {name}",
            f"{found['seconds']:.2f} s, {found['bytes'] / 1e6:,.1f} MB read",
            wanted="",
            met=None,
            load=load,
        )
        for name, found in figures.items()
    ]
    return {"bytes": sizes, "runs": figures}, marks


def _drained(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    figures: dict[str, Any] = {"records": DRAINED}
    marks = []
    for kind in ("keyed", "orders"):
        with LocalKafka(folder / kind / "broker") as broker:
            servers = broker.bootstrap_servers
            say(f"find: sending {DRAINED:,} records: {kind}")
            measured(produce, servers, kind, DRAINED, kind)
            arms, sizes = Arms(servers, kind, folder / kind / "out"), dict[str, int]()

            def drain(arm: str, arms: Arms = arms, sizes: dict[str, int] = sizes) -> Cost:
                options = OPTIONS if arm == "filters" else ()
                cost = arms.ours(*(word for one in options for word in ("--sink-option", one)))
                sizes[arm] = arms.written
                return cost

            turns = {arm: partial(drain, arm) for arm in ("none", "filters")}
            costs = take_turns(turns, rounds, say, f"find drain {kind}")
        figures[kind] = {"arms": figures_of(costs, DRAINED), "bytes": sizes}
        what = f"drain {kind} with Bloom filters on keys vs. without"
        larger = f"{sizes['filters'] / sizes['none'] - 1:+.1%}, {sizes['none'] / 1e6:,.1f} MB"
        marks += [
            compared(f"{what}, query", costs, "filters", "none", OWED),
            compared(f"{what}, CPU seconds", costs, "filters", "none", OWED, figure="cpu_seconds"),
            Mark(f"{what}, bytes of the files", larger, wanted="", met=None, load=load_average()),
        ]
    return figures, marks


def key_of(record: int) -> bytes:
    """Return the key of a record by its number; no two are alike."""
    words = ((record + 1) * factor & _BYTES for factor in _SPREAD)
    return b"".join(word.to_bytes(8, "big") for word in words)


def keys_of(first: int) -> pa.Array:
    """Return the keys of a file's records, given the number of the first one."""
    numbers = np.arange(first + 1, first + 1 + RECORDS, dtype=np.uint64)
    words = np.stack([numbers * np.uint64(factor) for factor in _SPREAD], axis=1)
    bounds = np.arange(0, 16 * (RECORDS + 1), 16, dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(words.astype(">u8").tobytes())]
    return pa.Array.from_buffers(pa.binary(), RECORDS, buffers)


def make_archive(folder: str, has_filters: bool) -> int:
    """Write an archive of one closed generation; return the bytes of its files."""
    archive = Archive.at(folder)
    topics = {TOPIC: TOPIC_ID}
    identity = Identity("synthetic", CLUSTER_ID, topics)
    archive.create(
        pipeline="synthetic", cluster_id=CLUSTER_ID, topic_ids=topics, source={"topics": [TOPIC]}
    )
    for number in (1, 2):
        archive.generation(number).write(
            starting_offsets={},
            file_format="parquet",
            partition_by=["topic"],
            topic_ids=topics,
            reason="benchmark",
        )
    generation, before, total = archive.generation(1), None, 0
    values = pa.array([os.urandom(40) for _ in range(RECORDS)], pa.binary())
    for batch in range(FILES // len(PARTITIONS)):
        span = OffsetRange(batch * RECORDS, (batch + 1) * RECORDS)
        files = []
        for tp in PARTITIONS:
            first = (batch * len(PARTITIONS) + tp.partition) * RECORDS
            path = f"{generation.data_name}/topic={TOPIC}/part-{tp.partition:05d}-{batch}.parquet"
            target = Path(folder, path)
            size, sha256 = _write(target, first, span, tp, values, has_filters)
            times = FIRST_TIME + span.start, FIRST_TIME + span.end - 1
            content = FileOffsets(tp, (span,), RECORDS, (), True, *times)
            index = index_sha256(target, "parquet")
            files.append(CommittedFile(path, size, sha256, (content,), index_sha256=index))
            total += size
        before = seal_segment(
            Segment(batch, batch, dict.fromkeys(PARTITIONS, span)),
            files,
            (),
            identity=identity,
            generation=1,
            before=before,
            previous=before.sha256 if before else None,
            bounds={tp: KafkaBounds(0, span.end, span.end) for tp in PARTITIONS},
            fingerprint=None,
            acknowledged=(),
            sealed_at=SEALED_AT,
        )
        generation.write_receipt(before)
    return total


def _write(
    path: Path,
    first: int,
    span: OffsetRange,
    tp: TopicPartition,
    values: pa.Array,
    has_filters: bool,
) -> tuple[int, str]:
    """Write the records of one file; return its size and hash."""
    offsets = np.arange(span.start, span.end, dtype=np.int64)
    columns: Mapping[str, pa.Array] = {
        "key": keys_of(first),
        "value": values,
        "partition": pa.array(np.full(RECORDS, tp.partition, np.int32)),
        "offset": pa.array(offsets),
        "timestamp": pa.array(FIRST_TIME + offsets).cast(pa.timestamp("ms", tz="UTC")),
        "timestampType": pa.array(np.zeros(RECORDS, np.int32)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    options: Any = {"key": {"ndv": RECORDS, "fpp": 0.01}} if has_filters else None
    pq.write_table(
        pa.table(dict(columns)),
        path,
        compression="zstd",
        use_dictionary=False,
        bloom_filter_options=options,
    )
    content = path.read_bytes()
    return len(content), hashlib.sha256(content).hexdigest()


def forget(folder: Path) -> None:
    """Ask the kernel to drop an archive's data files from the page cache."""
    for path in folder.rglob("part-*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def search(folder: str, key: bytes) -> tuple[list[int], float, int]:
    """Find a key as `kafka-drain find --scan` does; return records, seconds and bytes read."""
    before, began = _bytes_read(), time.perf_counter()
    criteria = Criteria(keys=frozenset([key]))
    found = [
        _record(match.position.partition, match.position.offset)
        for match in Search(Archive.at(folder), criteria, scan=True).matches()
    ]
    return found, time.perf_counter() - began, _bytes_read() - before


def search_by_duckdb(folder: str, key: bytes) -> tuple[list[int], float, int]:
    """Find a key with DuckDB in the same files; returns the same."""
    import duckdb

    connection = duckdb.connect()
    paths = sorted(str(path) for path in Path(folder).rglob("part-*.parquet"))
    before, began = _bytes_read(), time.perf_counter()
    # As a number: DuckDB converts times with zones only with another package.
    rows = connection.execute(
        """
        SELECT "partition", "offset", epoch_us("timestamp"), * EXCLUDE ("timestamp")
        FROM read_parquet(?) WHERE key = ?
        """,
        [paths, key],
    )
    found = [_record(row[0], row[1]) for row in rows.fetchall()]
    return found, time.perf_counter() - began, _bytes_read() - before


def _record(partition: int, offset: int) -> int:
    """Return a record's number."""
    batch, within = divmod(offset, RECORDS)
    return (batch * len(PARTITIONS) + partition) * RECORDS + within


def _bytes_read() -> int:
    """Return how many bytes this process has read with system calls."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])
