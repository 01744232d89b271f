"""`python -m benchmarks.erase FOLDER`: erase 1,000 keys of 20,000,000 records, killed on the way.

Uses a real broker, a real drain, and the commands. The erasure is killed by SIGKILL at changes of
the archive's file system, further on each time, and started again, until it ends by itself. Then
each file that lies in the archive is read by pyarrow: no record with one of the keys is there; all
others are, with their values, and once in the files that readers get. So they are after a deep
validation, a republish (the target is read), the loss and repair of each file that the erasure
wrote, and a reprocess; the source still has all records.

Prints the figures as JSON; raises an error if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from benchmarks.arms import KAFKA_DRAIN
from benchmarks.kafka_records import PARTITIONS, produce
from benchmarks.processes import load_average, measured
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files

TOPIC, COPY = "orders", "orders_copy"
#: Where the number is in a value, `{"order_id":10000000,…`, and the first record's.
_ID, _FIRST = slice(12, 20), 10_000_000
#: Of how many keys there are records.
_ALL_KEYS = 50_021

#: Ends this process at the nth change of the file system below a folder, then runs a command.
_KILLED = """
import sys
from tests.integration.killed_steps import kill_at_change
from kafka_drain.cli.main import main
kill_at_change(sys.argv[1], int(sys.argv[2]))
sys.exit(main(sys.argv[3:]))
"""


def measure(folder: Path, records: int, files: int, keys: int, steps: Sequence[int]) -> Any:
    """Do all of it; return the figures.

    Args:
        folder: An empty folder.
        records: Number of records.
        files: Number of data files, about.
        keys: Number of keys to be erased.
        steps: At which change of the file system, counted in its own process, each run is killed.

    Raises:
        RuntimeError: If a command fails, or a record is there that shouldn't be, or isn't.
    """
    archive, took = folder / "archive", {}
    gone = erased_records(records, keys)
    words = folder / "keys.txt"
    folder.mkdir(parents=True, exist_ok=True)
    words.write_text("".join(f"customer-{n:05d}\n" for n in range(keys)))
    with LocalKafka(folder / "broker") as broker:
        kafka = ["--bootstrap-servers", broker.bootstrap_servers]
        say(f"sends {records:,} records")
        measured(produce, broker.bootstrap_servers, TOPIC, records)
        say("drains them")
        run(
            *("drain", archive, *kafka, "--topic", TOPIC, "--partition-by", "topic"),
            *("--sink-option", f"maxRecordsPerFile={-(-records // files)}"),
        )
        run("validate", archive, *kafka)
        before = refuse_inexact(archive, np.zeros(records, bool))
        erase = ("erase", archive, *kafka, "--request", "figure", "--by", "benchmark")
        erase += ("--keys", words, "--apply", "--json")
        said = [killed(archive, number, erase) for number in steps]
        began = time.perf_counter()
        unlock(archive)
        run(*erase[:-1])
        took["last_run"] = time.perf_counter() - began
        after = refuse_inexact(archive, gone)
        began = time.perf_counter()
        run("validate", archive, *kafka, "--deep")
        took["validate_deep"] = time.perf_counter() - began
        began = time.perf_counter()
        run("republish", archive, *kafka, "--target-topic", COPY, "--create-target", "--apply")
        took["republish"] = time.perf_counter() - began
        refuse_keys(broker.bootstrap_servers, records - int(gone.sum()), keys)
        files_now = archive_files(Archive.at(str(archive)).snapshot())
        written = [archive / file.path for file in files_now if "windows" in file.path]
        say(f"loses {len(written):,} files that the erasure wrote, and repairs")
        for path in written:
            path.unlink()
        began = time.perf_counter()
        run("repair", archive, *kafka, "--apply")
        took["repair"] = time.perf_counter() - began
        refuse_inexact(archive, gone)
        began = time.perf_counter()
        run("reprocess", archive, *kafka, "--from-batch", "1:0", "--apply")
        took["reprocess"] = time.perf_counter() - began
        refuse_inexact(archive, gone)
        run("validate", archive, *kafka, "--deep")
    return {
        "records": records,
        "erased": int(gone.sum()),
        "keys": keys,
        "files_before": before,
        "files_after": after,
        "killed": [
            {"change": step, "seconds": round(s, 1)} for step, s in zip(steps, said, strict=True)
        ],
        "seconds": {name: round(seconds, 1) for name, seconds in took.items()},
        "load": load_average(),
    }


def erased_records(records: int, keys: int) -> Any:
    """Return, by number of a record, whether its key is one of the first so many."""
    random = Random(1)
    drawn = (random.getrandbits(96) % _ALL_KEYS < keys for _ in range(records))
    return np.fromiter(drawn, bool, records)


def killed(archive: Path, number: int, command: Sequence[object]) -> float:
    """Run a command until the archive's nth change; return the seconds.

    Raises:
        RuntimeError: If it ended otherwise.
    """
    unlock(archive)
    began = time.perf_counter()
    words = [sys.executable, "-c", _KILLED, str(archive), str(number), *map(str, command)]
    ended = subprocess.run(words, check=False, env=environment(), capture_output=True, text=True)
    seconds = time.perf_counter() - began
    say(f"killed at change {number} after {seconds:.1f} s")
    if ended.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"killed at {number}: {ended.stderr[-2000:]}")
    return round(seconds, 1)


def unlock(archive: Path) -> None:
    """Let go of what a killed process held, rather than wait for that."""
    for path in archive.rglob("lock.json"):
        path.unlink()


def refuse_inexact(archive: Path, gone: Any) -> int:
    """Read every data file that lies there; return how many of them readers get.

    What a killed run's Spark has left behind, no reader gets: it mustn't have an erased record, but
    may have others.

    Raises:
        RuntimeError: Names a record that is there and shouldn't be, or isn't and should.
    """
    live = {file.path for file in archive_files(Archive.at(str(archive)).snapshot())}
    lying = {str(path.relative_to(archive)) for path in archive.rglob("part-*.parquet")}
    seen, any_seen = np.zeros(len(gone), np.uint8), np.zeros(len(gone), bool)
    for path in sorted(lying | live):
        table = pq.ParquetFile(archive / path).read(["partition", "offset", "value"])
        offsets, partitions = (table[name].to_numpy() for name in ("offset", "partition"))
        numbers = offsets * PARTITIONS + partitions
        ids = pc.binary_slice(table["value"], _ID.start, _ID.stop)
        found = pc.cast(pc.cast(ids, pa.string()), pa.int64()).to_numpy() - _FIRST
        if not np.array_equal(numbers, found):
            raise RuntimeError(f"{path} has a record with another one's value")
        any_seen[numbers] = True
        if path in live:
            np.add.at(seen, numbers, 1)
    wrong = np.flatnonzero((seen != ~gone) | (any_seen & gone))
    if len(wrong):
        first = wrong[0]
        raise RuntimeError(f"{len(wrong):,} records: {first} is there {seen[first]} times")
    say(
        f"brute force: {int(seen.sum()):,} records in {len(live):,} files, each once; none of the "
        f"others in these, or in {len(lying - live):,} files that no reader gets"
    )
    return len(live)


def refuse_keys(bootstrap_servers: str, records: int, keys: int) -> None:
    """Read the republished topic.

    Raises:
        RuntimeError: If it has an erased key, or not as many records as are left.
    """
    gone = {b"customer-%05d" % n for n in range(keys)}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "benchmark",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(COPY, p, 0) for p in range(PARTITIONS)])
    number = ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 5.0):
            if message.error():
                ended += 1
            elif message.key() in gone:
                raise RuntimeError(f"{COPY} has an erased record")
            else:
                number += 1
    consumer.close()
    if number != records:
        raise RuntimeError(f"{COPY} has {number:,} records, expected {records:,}")
    say(f"the republished topic has {number:,} records, none of them erased")


def environment() -> Mapping[str, str]:
    """Return the environment of the commands."""
    return {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}


def run(*arguments: object) -> None:
    """Run a `kafka-drain` command.

    Raises:
        RuntimeError: If it fails.
    """
    command = [*KAFKA_DRAIN, *map(str, arguments)]
    began = time.perf_counter()
    ended = subprocess.run(command, check=False, env=environment(), capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr[-2000:]}")
    say(f"{arguments[0]} took {time.perf_counter() - began:.1f} s")


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument(
        "--steps",
        type=int,
        nargs="*",
        default=[1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233],
        help="at which change each run is killed",
    )
    options = parser.parse_args()
    figures = measure(options.folder, options.records, options.files, options.keys, options.steps)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
