"""Compaction of 10,000 small files in a closed generation.

Uses a real broker, a real drain whose files hold 200 records each, and `kafka-drain maintain`.
Reports files, bytes, time and the memory of the largest process, whether every receipt still
holds, and how much of the new files a reader of one tenth of the time range has to read.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal

from benchmarks.arms import KAFKA_DRAIN
from benchmarks.kafka_records import produce
from benchmarks.marks import Mark, Say
from benchmarks.processes import load_average, measured
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.records import Wanted

__all__ = ["measure_compaction"]

TOPIC = "orders"
RECORDS = 2_000_000
FILES = 10_000


def measure_compaction(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Drain, compact, validate, and read a tenth of the time range; once, regardless of rounds.

    Raises:
        RuntimeError: If a command fails.
    """
    archive = folder / "archive"
    with LocalKafka(folder / "broker") as broker:
        kafka = ["--bootstrap-servers", broker.bootstrap_servers]
        say(f"compact: sending {RECORDS:,} records")
        measured(produce, broker.bootstrap_servers, TOPIC, RECORDS)
        say(f"compact: draining them to about {FILES:,} files")
        run(
            *("drain", archive, *kafka, "--topic", TOPIC, "--partition-by", "topic"),
            *("--sink-option", f"maxRecordsPerFile={RECORDS // FILES}"),
            *("--source-option", f"maxOffsetsPerTrigger={RECORDS // 10}"),
        )
        run("validate", archive, *kafka)
        before = read_time_range(archive)
        say("compact: compacting them")
        load, began = load_average(), time.perf_counter()
        done = measured(compact, archive, kafka).answer
        seconds = time.perf_counter() - began
        say("compact: validating every byte")
        run("validate", archive, *kafka, "--deep")
    figures = {
        "records": RECORDS,
        **{key: value for key, value in done.items() if key.startswith(("files_", "bytes_"))},
        "seconds": round(seconds, 1),
        "largest_process_mib": done["largest_process_mib"],
        "every_receipt_proves": True,
        "read_a_tenth_of_the_time": {"before": before, "after": read_time_range(archive)},
        "load": load,
    }
    return figures, [_mark(figures)]


def _mark(figures: dict[str, Any]) -> Mark:
    return Mark(
        f"compaction of {figures['files_before']:,} files with {RECORDS:,} records",
        f"{figures['files_after']:,} files, {figures['bytes_before'] / 1e6:.1f} to "
        f"{figures['bytes_after'] / 1e6:.1f} MB, {figures['seconds']:.0f} s, "
        f"{figures['largest_process_mib']:,} MiB",
        wanted="",
        met=None,
        load=figures["load"],
    )


def compact(archive: Path, kafka: list[str]) -> dict[str, Any]:
    """Compact an archive, from a process that has started no other process.

    Returns:
        The command's result, plus largest_process_mib for the command and Spark's processes.
    """
    done = run("maintain", archive, *kafka, "--max-manifest-lines", "1", "--apply")
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return done | {"largest_process_mib": round(largest / 1024)}


def run(*arguments: object) -> dict[str, Any]:
    """Run a `kafka-drain` command and return its JSON output.

    Raises:
        RuntimeError: If it fails.
    """
    command = [*KAFKA_DRAIN, *map(str, arguments), "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


class CountingPath:
    """A file that counts the bytes read from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = 0

    @property
    def suffix(self) -> str:
        return self.path.suffix

    @property
    def parents(self) -> Sequence[Path]:
        return self.path.parents

    def open(self, mode: Literal["rb"], /) -> IO[bytes]:
        """Open the file."""
        file = self.path.open(mode, buffering=0)
        whole = file.read

        class Counting:
            def __init__(self, outer: CountingPath) -> None:
                self.outer = outer

            def read(self, size: int = -1) -> bytes:
                content = whole(size) or b""
                self.outer.read += len(content)
                return content

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def __enter__(self) -> Counting:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

        return Counting(self)  # type: ignore[return-value]


def read_time_range(archive_path: Path) -> dict[str, int]:
    """Read the records in the middle tenth of the time range, as a republish does.

    Returns:
        Number of opened files, bytes read, bytes of all files, and rows read.
    """
    files = [
        file for file in archive_files(Archive.at(str(archive_path)).snapshot()) if file.sealed
    ]
    contents = [content for file in files for content in file.sealed.contents]  # type: ignore[union-attr]
    first = min(content.first_timestamp or 0 for content in contents)
    last = max(content.last_timestamp or 0 for content in contents)
    from_ms = first + (last - first) * 45 // 100
    to_ms = first + (last - first) * 55 // 100
    opened = size = rows = 0
    for file in files:
        assert file.sealed is not None
        if not any(
            (content.first_timestamp or 0) < to_ms and (content.last_timestamp or 0) >= from_ms
            for content in file.sealed.contents
        ):
            continue
        path = CountingPath(archive_path / file.path)
        wanted = Wanted(from_ms=from_ms, to_ms=to_ms)
        rows += sum(b.num_rows for b in read_records(path, file.file_format, 32 << 20, wanted))
        opened += 1
        size += path.read
    total = sum(file.bytes for file in files)
    return {"files": opened, "bytes_read": size, "bytes_of_all_files": total, "rows": rows}
