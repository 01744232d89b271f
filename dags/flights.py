"""Archive the flights that left New York City in 2013, once an hour."""

from __future__ import annotations

import os

from kafka_drain_airflow import Pipeline, create_dags

flights = Pipeline(
    name="flights",
    topics=["flights"],
    archive=os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain") + "/flights",
    schedule="@hourly",
    # The topic holds a whole year: partitioned by date, one drain would write a folder per day.
    partition_by=["topic"],
)
create_dags(flights)
