"""A republish on the executors of a standalone Spark cluster, of one to four workers.

Uses a real broker, a real drain, a real standalone cluster and `kafka-drain republish`, which reads
its target back. The operating system gives each worker, with its executor and Python processes, a
quarter of a core, so that four workers don't need four cores. From one and two workers,
`sizing.send_seconds` foretells three and four. Then four workers send under a limit of records per
second, and once more while one of them is killed. Needs a control group for processors that it may
write to.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.arms import KAFKA_DRAIN
from benchmarks.kafka_records import PARTITIONS, produce
from benchmarks.marks import Mark, Say
from benchmarks.processes import load_average, measured
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.sizing import ERROR, Sending, send_seconds
from tests.faults.spark_cluster import executors, standalone_spark

__all__ = ["measure_workers"]

TOPIC = "orders"
RECORDS = 6_000_000
#: Share of a core that each worker gets.
CORES = 0.25
WORKERS = (1, 2, 3, 4)
#: Records per second of the run that is limited; four workers send more than that.
LIMIT = 40_000
#: Share of the records that the target has when a worker is killed.
KILLED_AT = 0.2
#: How far a limit may be exceeded.
EXCEEDED = 1.05

#: Where Linux's control groups for processors are: of version 1, of version 2.
_GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
_PERIOD = 100_000


def measure_workers(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Send the same archive with one to four workers in turns.

    Raises:
        RuntimeError: If a command fails, or the machine doesn't allow control groups.
    """
    archive = folder / "archive"
    with LocalKafka(folder / "broker") as broker, processor_shares() as groups:
        kafka = ["--bootstrap-servers", broker.bootstrap_servers]
        cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": broker.bootstrap_servers}))
        say(f"workers: sending and draining {RECORDS:,} records")
        measured(produce, broker.bootstrap_servers, TOPIC, RECORDS)
        run("drain", archive, *kafka, "--topic", TOPIC)
        run("validate", archive, *kafka)

        def sent(workers: int, *more: object, kills: bool = False) -> dict[str, Any]:
            place = folder / uuid.uuid4().hex[:8]
            place.mkdir()
            with standalone_spark(place, workers=workers, prefixes=groups) as (master, pids):
                command = (
                    *("republish", archive, *kafka, "--target-topic", place.name),
                    *("--create-target", "--apply", "--repeat", "--engine", "spark"),
                    *("--master", master, "--conf", f"spark.cores.max={workers}"),
                    *("--conf", "spark.executor.memory=512m", *more),
                )
                if not kills:
                    return run(*command)
                with Killer(pids, cluster, place.name) as killer:
                    answer = run(*command)
            if killer.at is None:
                raise RuntimeError("the republish ended before a worker was killed")
            return answer | {"killed_at": killer.at}

        seconds: dict[int, list[float]] = {number: [] for number in WORKERS}
        load = load_average()
        for number in range(rounds):
            for workers in WORKERS:
                took = sent(workers)["seconds"]
                seconds[workers].append(took)
                say(f"workers: round {number} of {rounds}: {workers} sent in {took:.1f} s")
        limited = sent(4, "--records-per-second", LIMIT)
        say(f"workers: limited to {LIMIT:,}: {limited['records_per_second']:,} records per second")
        killed = sent(4, kills=True)
        say(f"workers: one of four killed at {killed['killed_at']:,}: {killed['seconds']:.1f} s")
    figures = _figures({n: statistics.median(s) for n, s in seconds.items()}) | {
        "rounds": rounds,
        "load": load,
        "limit": LIMIT,
        "limited": limited["records_per_second"],
        "killed_seconds": killed["seconds"],
        "killed_at": killed["killed_at"],
        "killed_is_exact": killed["verification"]["is_exact"],
    }
    return figures, _marks(figures)


def _figures(seconds: Mapping[int, float]) -> dict[str, Any]:
    model = Sending.fit(PARTITIONS, {n: seconds[n] for n in (1, 2)})
    rows = [
        {
            "workers": workers,
            "seconds": round(took, 1),
            "model": round(send_seconds(model, workers), 1),
            "is_held_back": workers > 2,
        }
        for workers, took in seconds.items()
    ]
    return {"records": RECORDS, "partitions": PARTITIONS, "cores_each": CORES, "rows": rows}


def _marks(figures: Mapping[str, Any]) -> list[Mark]:
    load = figures["load"]
    marks = []
    for row in figures["rows"]:
        off = abs(row["model"] / row["seconds"] - 1)
        marks.append(
            Mark(
                f"{RECORDS:,} records by {row['workers']} workers of {CORES:g} cores",
                f"{row['seconds']:.1f} s, model {row['model']:.1f} s",
                wanted=f"off by at most {ERROR:.0%}" if row["is_held_back"] else "",
                met=off <= ERROR if row["is_held_back"] else None,
                load=load,
            )
        )
    marks.append(
        Mark(
            f"four workers, all together limited to {LIMIT:,} records per second",
            f"{figures['limited']:,}",
            wanted=f"at most {EXCEEDED:g} of it",
            met=figures["limited"] <= LIMIT * EXCEEDED,
            load=load,
        )
    )
    marks.append(
        Mark(
            f"four workers, one of them killed when {figures['killed_at']:,} records were sent",
            f"{figures['killed_seconds']:.1f} s, each record once: {figures['killed_is_exact']}",
            wanted="each record once",
            met=figures["killed_is_exact"],
            load=load,
        )
    )
    return marks


class Killer:
    """Kills a worker with its executor, once a republish has sent some records.

    Attributes:
        at: Number of records that the target had then; None if that wasn't reached.
    """

    def __init__(self, workers: list[int], cluster: KafkaCluster, target: str) -> None:
        self.at: int | None = None
        self._workers, self._cluster = workers[:1], cluster
        self._target = [TopicPartition(target, number) for number in range(PARTITIONS)]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            if self._target[0].topic not in self._cluster.topic_names():
                continue  # The republish hasn't created it.
            ends = self._cluster.latest(self._target, "read_committed")
            if (sent := sum(ends.values())) < RECORDS * KILLED_AT:
                continue
            for pid in [*self._workers, *executors(self._workers)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.at = sent
            return


@contextlib.contextmanager
def processor_shares() -> Iterator[list[list[str]]]:
    """Make a control group for each worker; yields what begins the command of a process in each.

    Raises:
        RuntimeError: If the machine doesn't allow it.
    """
    root = next(
        (g for g in _GROUPS if (g / "cgroup.procs").exists() and os.access(g, os.W_OK)), None
    )
    if root is None:
        raise RuntimeError("this needs a control group for processors, writable by this user")
    made = [root / f"kafka-drain-{uuid.uuid4().hex[:8]}" for _ in WORKERS]
    try:
        for group in made:
            group.mkdir()
            quota = str(round(CORES * _PERIOD))
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
                (group / "cpu.cfs_quota_us").write_text(quota)
        yield [["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"] for group in made]
    finally:
        for group in made:
            with contextlib.suppress(FileNotFoundError):
                group.rmdir()


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
