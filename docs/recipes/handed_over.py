"""Hand over by asset: another DAG, perhaps another team's, runs whenever something is sealed."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from kafka_drain_airflow import Pipeline, archive_asset

flights = Pipeline(
    name="flights",
    topics=["flights"],
    archive=os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain") + "/flights",
    partition_by=["topic"],
)


@task
def newly_sealed(**context: Any) -> int:
    """Return the number of records in the segments that the run's events tell of."""
    from kafka_drain.reading import archive_dataset, segments_filter

    # Airflow 2 calls assets datasets.
    events = context.get("triggering_asset_events") or context.get("triggering_dataset_events", {})
    segments = [
        segment
        for of_asset in events.values()
        for event in of_asset
        for segment in event.extra.get("segments", ())
    ]
    new = archive_dataset(flights.archive, segments=segments)
    return new.count_rows(filter=segments_filter(segments))


@dag(
    schedule=[archive_asset(flights)],
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    tags=["recipe"],
)
def handed_over() -> None:
    """Count the flights that were just archived."""
    newly_sealed()


handed_over()
