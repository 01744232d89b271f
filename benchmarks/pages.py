"""The archive pages in Airflow's UI, for 100 pipelines with 1,000,000 files."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.marks import Mark, Say
from benchmarks.processes import measured
from benchmarks.synthetic import SyntheticArchive
from demo.airflow_pages import VIEWER, open_pages
from kafka_drain.proof.report import Report, note_overview

__all__ = ["make", "measure_pages", "serve"]

PIPELINES, RECEIPTS, FILES = 100, 208, 48
MOST_SECONDS = 1.0


def measure_pages(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Create the archives, and request the pages from a server, first with a cold cache.

    Raises:
        RuntimeError: If a request fails, or an archive is missing from the list.
    """
    files = PIPELINES * RECEIPTS * FILES
    say(f"pages: creating {PIPELINES} archives of {RECEIPTS * FILES:,} files each")
    measured(make, str(folder), PIPELINES, RECEIPTS)
    found = measured(serve, str(folder), rounds, PIPELINES)
    figures = {"pipelines": PIPELINES, "files": files, "peak_mib": found.peak_mib, **found.answer}
    say(f"pages: {json.dumps(figures)}")
    slowest = max(found.answer["list_first"], found.answer["archive_first"])
    return figures, [
        Mark(
            f"first page of {PIPELINES} pipelines with {files:,} files",
            f"list {found.answer['list_first']:.2f} s, "
            f"archive {found.answer['archive_first']:.2f} s",
            wanted=f"at most {MOST_SECONDS:.0f} s",
            met=slowest <= MOST_SECONDS,
            load=found.load,
        )
    ]


def make(folder: str, pipelines: int, receipts: int) -> dict[str, Any]:
    """Write one archive, and create the others as hard links to its files."""
    first = Path(folder, "archive-000")
    archive = SyntheticArchive(first, 100_000_000)
    archive.add_generation(1, sealed=receipts, files=FILES)
    generation = archive.archive.generation(1)
    report = Report(str(first), "synthetic", scope="open")
    report.add_sealed(generation, generation.last_receipt(), receipts)
    note_overview(archive.archive, report, "reports/none.json")
    for number in range(1, pipelines):
        shutil.copytree(first, Path(folder, f"archive-{number:03d}"), copy_function=os.link)
    return {"archives": len(list(Path(folder).glob("archive-*")))}


def serve(folder: str, rounds: int, pipelines: int) -> dict[str, Any]:
    """Serve requests as Airflow's server does, in one process, and measure their duration."""
    os.environ["AIRFLOW_HOME"] = str(Path(folder, "airflow"))
    warnings.simplefilter("ignore")
    dags = {
        f"drain_p{number:03d}": f"file://{folder}/archive-{number:03d}"
        for number in range(pipelines)
    }
    ask = open_pages({"dags": dags})

    def get(url: str) -> str:
        answer = ask(VIEWER, url)
        if answer.status != 200:
            raise RuntimeError(f"{url}: {answer.status} {answer.text[:200]}")
        return answer.text

    listed, first = _timed(lambda: get("/kafka-drain/api/archives"))
    if len(json.loads(listed)["archives"]) != pipelines:
        raise RuntimeError(f"the list has {listed[:200]!r}, expected {pipelines} archives")
    pages = [f"/kafka-drain/archives/drain_p{number:03d}" for number in range(pipelines)]
    list_times = [_timed(lambda: get("/kafka-drain/archives"))[1] for _ in range(rounds)]
    cold = [_timed(lambda page=page: get(page))[1] for page in pages]  # type: ignore[misc]
    warm = [_timed(lambda page=page: get(page))[1] for page in pages]  # type: ignore[misc]
    return {
        "list_first": round(first, 3),
        "list": round(statistics.median(list_times), 3),
        "archive_first": round(statistics.median(cold), 3),
        "archive": round(statistics.median(warm), 3),
    }


def _timed(ask: Callable[[], str]) -> tuple[str, float]:
    began = time.perf_counter()
    answer = ask()
    return answer, time.perf_counter() - began
