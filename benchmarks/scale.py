"""How planning, specs, receipts, leases and DAG files scale in large installations."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.marks import Mark, Say
from benchmarks.processes import measured
from benchmarks.session import run_session
from benchmarks.wide import create, fill
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import open_drain
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.lease import hold_lease

__all__ = ["measure_scale"]

DRAINED = (100, 1_000)
#: Partitions of a topic that is only planned: draining them would take a task and a file each.
PLANNED = 10_000
PIPELINES = (1, 10, 100, 1_000)
GROUP = 10
DAG_FILE = """
import sys, time
from kafka_drain_airflow import Pipeline, create_dags
began = time.perf_counter()
for n in range(int(sys.argv[1])):
    create_dags(Pipeline(name=f"p{n}", topics=[f"t{n}"], archive=f"/archives/p{n}"))
print(time.perf_counter() - began)
"""


def measure_scale(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Measure each point once.

    Raises:
        RuntimeError: If something fails at that size.
    """
    points: list[dict[str, Any]] = []

    def point(what: str, size: str, found: str) -> None:
        points.append({"what": what, "size": size, "measured": found})
        say(f"scale: {what}, {size}: {found}")

    for count in PIPELINES:
        ended = subprocess.run(
            [sys.executable, "-c", DAG_FILE, str(count)], capture_output=True, text=True, check=True
        )
        seconds = float(ended.stdout.splitlines()[-1])
        point("DAG file, all DAGs of its pipelines", f"{count} pipelines", f"{seconds:.2f} s")
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        for count in (*DRAINED, PLANNED):
            size = f"{count:,} partitions"
            for what, found in measured(_partitions, servers, str(folder / size), count).answer:
                point(what, size, found)
        for what, found in _group(servers, folder):
            point(what, f"{GROUP} pipelines of 1,000 records", found)
    point("lease, one renewal", "an archive", _renewals(folder))
    return {"points": points}, []


def _partitions(servers: str, folder: str, partitions: int) -> list[tuple[str, str]]:
    """Plan a topic with one record per partition; drain and prove it too if it isn't too large."""
    topic = f"wide-{partitions}"
    create(servers, topic, partitions)
    fill(servers, topic, partitions, 1)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))
    # Plan once before measuring, because the broker has just created all these partitions.
    _plan(Pipeline(name=topic, topics=[topic], archive=f"{folder}-first"), cluster)
    pipeline = Pipeline(name=topic, topics=[topic], archive=folder, partitions_per_task=1)
    found = _plan(pipeline, cluster)
    if partitions in DRAINED:
        found += _drain(pipeline, cluster, servers, partitions)
    return found


def _plan(pipeline: Pipeline, cluster: KafkaCluster) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as private:
        began = time.perf_counter()
        with open_drain(pipeline, cluster, Path(private), run="benchmark"):
            planned = time.perf_counter() - began
            size = (Path(private) / "drain.json").stat().st_size
    return [
        ("checks and plan of a drain", f"{planned:.1f} s"),
        ("job spec", f"{size / 1e3:,.0f} kB"),
    ]


def _drain(
    pipeline: Pipeline, cluster: KafkaCluster, servers: str, partitions: int
) -> list[tuple[str, str]]:
    cost = run_session([pipeline], servers)[pipeline.name]
    began = time.perf_counter()
    report = validate_archive(Archive.at(pipeline.archive), cluster, scope="open")
    proven = time.perf_counter() - began
    if not report.complete or report.records != partitions:
        raise RuntimeError(f"{pipeline.name}: {report.findings}")
    receipts = list(Path(pipeline.archive).glob("generations/0001/receipts/*.json"))
    size = sum(path.stat().st_size for path in receipts)
    return [
        ("query, with one record and one file per partition", f"{cost.seconds:.0f} s"),
        ("proof of these files and their receipt", f"{proven:.1f} s"),
        ("receipt", f"{size / 1e3:,.0f} kB"),
    ]


def _group(servers: str, folder: Path) -> list[tuple[str, str]]:
    from benchmarks.kafka_records import produce

    pipelines = []
    for number in range(GROUP):
        topic = f"small-{number}"
        measured(produce, servers, topic, 1_000)
        pipelines.append(Pipeline(name=topic, topics=[topic], archive=str(folder / topic)))
    costs = run_session(pipelines, servers)
    first, *others = (cost.seconds for cost in costs.values())
    whole = next(iter(costs.values())).process_seconds
    return [
        ("group: the first drain's query", f"{first:.1f} s"),
        ("group: each further drain's query", f"{sum(others) / len(others):.2f} s"),
        ("group: the whole Spark application", f"{whole:.1f} s"),
    ]


def _renewals(folder: Path) -> str:
    root = Archive.at(str(folder / "lease")).root
    with hold_lease(root, run="benchmark") as lease:
        size = len(json.dumps(json.loads((root / "lock.json").read_text())))
        began = time.perf_counter()
        for _ in range(100):
            lease.renew()
        seconds = (time.perf_counter() - began) / 100
    return f"{seconds * 1000:.1f} ms, {size} bytes"
