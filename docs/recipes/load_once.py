"""Load each sealed record once, in another DAG: a cursor over the archive, and one transaction."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.providers.common.compat.sdk import dag, task

from kafka_drain_airflow import Pipeline, archive_asset

ARCHIVES = os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain")

flights = Pipeline(
    name="flights", topics=["flights"], archive=f"{ARCHIVES}/flights", partition_by=["topic"]
)


@task(retries=2)
def load() -> int:
    """Load what is new into DuckDB; return the number of batches."""
    import duckdb

    from kafka_drain.cursor import acknowledge, take

    batches = 0
    with duckdb.connect(f"{ARCHIVES}/warehouse.duckdb") as warehouse:
        warehouse.execute("CREATE TABLE IF NOT EXISTS batches (id TEXT PRIMARY KEY)")
        warehouse.execute(
            'CREATE TABLE IF NOT EXISTS flights ("partition" INT, "offset" BIGINT, value BLOB)'
        )
        while batch := take(flights.archive, "warehouse"):
            records = batch.dataset()  # noqa: F841 - DuckDB finds it by its name
            warehouse.execute("BEGIN")
            # A run that was killed before it acknowledged the batch may have committed it.
            known = warehouse.execute("SELECT id FROM batches WHERE id = ?", [batch.id])
            if not known.fetchall():
                warehouse.execute("INSERT INTO batches VALUES (?)", [batch.id])
                warehouse.execute(
                    'INSERT INTO flights SELECT "partition", "offset", value FROM records'
                )
            warehouse.execute("COMMIT")
            acknowledge(flights.archive, "warehouse", batch.id)
            batches += 1
    return batches


@dag(
    schedule=[archive_asset(flights)],
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    tags=["recipe"],
)
def load_once() -> None:
    """Load the flights that were archived since the last load."""
    load()


load_once()
