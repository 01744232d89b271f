"""A DAG scheduled on the archive: whenever flights are sealed, it computes their mean delays.

An example of how to use the asset's events; nothing else depends on it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from datetime import datetime, timezone
from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from kafka_drain_airflow import Pipeline, archive_asset

ARCHIVE = os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain") + "/flights"


@task
def mean_delays(**context: Any) -> dict[str, float]:
    """Return the mean delay in minutes, by carrier, of the flights that were just sealed."""
    import json

    from kafka_drain.reading import archive_dataset, segments_filter

    # Airflow 2 calls assets datasets.
    events = context.get("triggering_asset_events") or context.get("triggering_dataset_events", {})
    segments = [
        segment
        for of_asset in events.values()
        for event in of_asset
        # An event that was created manually has none.
        for segment in event.extra.get("segments", ())
    ]
    delays: dict[str, list[float]] = defaultdict(list)
    flights = archive_dataset(ARCHIVE, segments=segments).scanner(
        columns=["value"], filter=segments_filter(segments)
    )
    for batch in flights.to_batches():
        for value in batch.column("value").to_pylist():
            flight = json.loads(value)
            if flight["dep_delay"] is not None:
                delays[flight["carrier"]].append(flight["dep_delay"])
    return {carrier: round(sum(late) / len(late), 1) for carrier, late in sorted(delays.items())}


@dag(
    schedule=[archive_asset(Pipeline(name="flights", topics=["flights"], archive=ARCHIVE))],
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    tags=["example"],
)
def flights_delays() -> None:
    """Compute the mean delay of the flights that were just archived."""
    mean_delays()


flights_delays()
