"""1,000 pipelines in one Airflow: parsing their DAG file, the database, and the archive pages.

As Airflow's DAG processor does it: parse the file in a process of its own, serialize the DAGs, and
write them to PostgreSQL. Processor time is that of the process, which doesn't depend on others.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.marks import Mark, Say
from benchmarks.pages import make, serve
from benchmarks.processes import measured
from demo.local_postgres import LocalPostgres

__all__ = ["measure_dags"]

PIPELINES = (100, 1_000)
#: Hourly drains that each archive's page shows.
RECEIPTS = 10
DAG_FILE = '''"""A DAG file with many pipelines."""
from kafka_drain_airflow import Pipeline, create_dags

for n in range({count}):
    create_dags(Pipeline(name=f"p{{n}}", topics=[f"t{{n}}"], archive=f"{folder}/p{{n}}"))
'''


def measure_dags(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Measure each number of pipelines once.

    Raises:
        RuntimeError: If Airflow reports an error of the file, or a page isn't served.
    """
    points: list[dict[str, str]] = []
    figures: dict[str, Any] = {}

    def point(count: int, what: str, shown: str) -> None:
        points.append({"what": what, "size": f"{count:,} pipelines", "measured": shown})
        say(f"dags: {what}, {count:,} pipelines: {shown}")

    for count in PIPELINES:
        at = folder / str(count)
        (at / "dags").mkdir(parents=True)
        text = DAG_FILE.format(count=count, folder=at / "archives")
        (at / "dags" / "pipelines.py").write_text(text)
        with LocalPostgres(at / "database") as database:
            run = measured(parse, str(at), database.url)
        found: dict[str, Any] = run.answer
        figures[str(count)] = {**found, "peak_mib": round(run.peak_mib)}
        point(count, "DAGs", f"{found['dags']:,}")
        point(count, "parsing the file, processor time", f"{found['parse']:.1f} s")
        point(count, "serialized DAGs", f"{found['bytes'] / 1e6:,.1f} MB")
        point(count, "writing them to PostgreSQL, processor time", f"{found['sync']:.1f} s")
        point(count, "peak memory of the process", f"{run.peak_mib:,.0f} MiB")
        measured(make, str(at / "archives"), count, RECEIPTS)
        pages = measured(serve, str(at / "archives"), rounds, count)
        figures[str(count)]["pages"] = pages.answer
        point(count, "list of archives, the first time", f"{pages.answer['list_first']:.2f} s")
        point(count, "list of archives", f"{pages.answer['list']:.2f} s")
        point(count, "an archive's page, the first time", f"{pages.answer['archive_first']:.2f} s")
        point(count, "an archive's page", f"{pages.answer['archive']:.2f} s")
    figures["points"] = sorted(points, key=lambda row: _order(row["what"], points))
    return figures, []


def _order(what: str, points: list[dict[str, str]]) -> int:
    return next(number for number, row in enumerate(points) if row["what"] == what)


def parse(folder: str, database: str) -> dict[str, Any]:
    """Parse the DAG file, serialize its DAGs, and write them to a database."""
    os.environ |= {
        "AIRFLOW_HOME": f"{folder}/airflow",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
        # What is measured here would exceed it.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "3600",
    }
    warnings.simplefilter("ignore")
    from airflow import settings
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from airflow.models.dagbundle import DagBundleModel
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.utils.session import create_session

    began = time.process_time()
    bag = DagBag(dag_folder=f"{folder}/dags", bundle_path=Path(folder, "dags"))
    parsed = time.process_time() - began
    if bag.import_errors:
        raise RuntimeError(f"{folder}: {bag.import_errors}")
    size = sum(len(json.dumps(DagSerialization.to_dict(dag))) for dag in bag.dags.values())
    found = {"dags": len(bag.dags), "parse": round(parsed, 2), "bytes": size}
    import_all_models()  # type: ignore[no-untyped-call]
    Base.metadata.create_all(settings.engine)
    began = time.process_time()
    with create_session() as session:
        session.add(DagBundleModel(name="dags-folder"))
        session.flush()
        sync_bag_to_db(bag, "dags-folder", None, session=session)
    return {**found, "sync": round(time.process_time() - began, 2)}
