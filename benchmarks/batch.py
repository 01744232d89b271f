"""The validation of one batch of 2,000,000 records, compared with the time of its drain."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.arms import KAFKA_DRAIN, run_command
from benchmarks.footers import check_footers
from benchmarks.kafka_records import PARTITIONS, produce
from benchmarks.marks import Mark, Say
from benchmarks.processes import Measured, load_average, measured, median_of
from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.archive.archive import Archive
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive

__all__ = ["measure_batch"]

RECORDS = 2_000_000
TOPIC = "orders"
#: Maximum share of the drain's time that a validation may take; None for no target. The command is
#: compared with the drain's command, the functions it calls with the drain's query.
MOST = {"command": 0.15, "columns": 0.15, "footers": 0.01, "deep": None}


def measure_batch(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Drain the batch once, and validate copies of it in each way.

    Raises:
        RuntimeError: If a validation doesn't find the whole batch complete.
    """
    archive = folder / "archive"
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        began = time.perf_counter()
        say(f"batch: broker running on {servers}; sending {RECORDS:,} records")
        # In a separate process, because this one has to stay small; see `measured`.
        mean = measured(produce, servers, TOPIC, RECORDS).answer
        say(f"batch: sent in {time.perf_counter() - began:.0f} s; draining")
        drained = drain(archive, servers)
        say(
            f"batch: drained in {drained['process_seconds']:.1f} s, of which the query took "
            f"{drained['query_seconds']:.1f} s, {drained['bytes'] / 1e6:,.1f} MB"
        )
        runs: dict[str, list[Measured]] = {arm: [] for arm in MOST}
        for number in range(1, rounds + 1):
            for arm, so_far in runs.items():
                so_far.append(_validate_copy(arm, archive, servers))
            told = ", ".join(f"{arm} {runs[arm][-1].seconds:.2f} s" for arm in runs)
            say(f"batch: round {number} of {rounds}: {told}")
    medians = {arm: median_of(of_arm) for arm, of_arm in runs.items()}
    figures: dict[str, Any] = {
        "records": RECORDS,
        "partitions": PARTITIONS,
        "mean_value_bytes": round(mean, 1),
        "rounds": rounds,
        "drain": drained,
    }
    for arm, median in medians.items():
        whole = drained["process_seconds" if arm == "command" else "query_seconds"]
        figures[arm] = {
            **median.to_dict(),
            "all_seconds": [round(run.seconds, 3) for run in runs[arm]],
            "of_drain": round(median.seconds / whole, 4),
        }
    return figures, [_mark(arm, figures) for arm in runs]


def drain(archive: Path, servers: str, topic: str = TOPIC) -> dict[str, Any]:
    """Drain a topic with the command line into a new archive."""
    load = load_average()
    command = [*KAFKA_DRAIN, "drain", str(archive), "--json", "--bootstrap-servers", servers]
    command += ["--topic", topic, "--partition-by", "topic", "--compression", "zstd"]
    printed, cost = run_command([*command, "--master", "local[2]"])
    answer = json.loads(printed)
    files = Archive.at(str(archive)).generation(1).list_data_files()
    return {
        "process_seconds": round(cost.seconds, 2),
        "query_seconds": answer["seconds"],
        "records": answer["records"],
        "batches": answer["batches"],
        "files": len(files),
        "bytes": sum(files.values()),
        "load": load,
    }


def _validate_copy(arm: str, archive: Path, servers: str) -> Measured:
    """Validate a copy of the unsealed archive, which is in the page cache as after a drain."""
    copy = archive.with_name("copy")
    shutil.copytree(archive, copy)
    try:
        if arm == "command":
            run = _validate_by_command(str(copy), servers)
        elif arm == "footers":
            run = measured(check_footers, str(copy))
        else:
            run = measured(validate, str(copy), servers)
        if arm == "deep":
            # Reads all bytes of the files that are sealed by then.
            run = measured(validate_deep, str(copy), servers)
    finally:
        shutil.rmtree(copy)
    if not run.answer["complete"] or run.answer["records"] != RECORDS:
        raise RuntimeError(f"{arm}: the batch isn't proven complete: {run.answer}")
    return run


def _validate_by_command(folder: str, servers: str) -> Measured:
    """Validate and seal an archive with the command line."""
    command = [*KAFKA_DRAIN, "validate", folder, "--json", "--scope", "open"]
    load = load_average()
    printed, cost = run_command([*command, "--bootstrap-servers", servers])
    report = json.loads(printed)
    complete = report["verdict"] == "complete" and report["receipts"]["written"] == 1
    answer = {"complete": complete, "records": report["records"]}
    return Measured(answer, cost.seconds, cost.cpu_seconds, cost.seconds, cost.peak_mib, load)


def validate(folder: str, servers: str) -> dict[str, Any]:
    """Validate and seal an archive in the same way as the task and the command."""
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))
    report = validate_archive(Archive.at(folder), cluster, scope="open")
    return {
        "complete": report.complete and report.receipts_written == 1,
        "records": report.records,
        "receipts_written": report.receipts_written,
        "findings": [str(finding) for finding in report.findings[:5]],
    }


def validate_deep(folder: str, servers: str) -> dict[str, Any]:
    """Compare every byte of a sealed archive with its receipts."""
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))
    report = validate_archive(Archive.at(folder), cluster, deep=True)
    return {"complete": report.complete, "records": report.records}


def _mark(arm: str, figures: dict[str, Any]) -> Mark:
    found, drained, most = figures[arm], figures["drain"], MOST[arm]
    if arm == "command":
        whole = f"the drain's command, {drained['process_seconds']:.1f} s"
    else:
        whole = f"the drain's query, {drained['query_seconds']:.1f} s"
    return Mark(
        f"{RECORDS:,} records, {arm}",
        f"{found['seconds']:.2f} s, {found['of_drain']:.2%} of {whole}",
        f"at most {most:.0%}" if most else "",
        found["of_drain"] <= most if most else None,
        found["load"],
    )
