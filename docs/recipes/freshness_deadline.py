"""Tell somebody if an archive isn't proven up to date in time (Airflow 3.3 or later)."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import Any

from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback

from kafka_drain_airflow import Pipeline, create_dags

flights = Pipeline(
    name="flights",
    topics=["flights"],
    archive=os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain") + "/flights",
    partition_by=["topic"],
    schedule="@hourly",
)
#: With a drain each hour, an archive that nobody was told of is proven up to 90 minutes ago.
MINUTES = float(os.environ.get("RECIPE_LATE_MINUTES", "30"))


def tell_late(text: str, context: dict[str, Any]) -> None:
    """Tell whom it concerns; a notifier, such as Slack's, is a callback too."""
    logging.getLogger(__name__).error("%s: %s", context["dag_run"]["dag_id"], text)


create_dags(
    flights,
    dag_kwargs={
        "drain": {
            # A run that is queued, drains or is retried for longer than this is late, and so is one
            # that has failed; after twice the time, the run fails.
            "deadline": DeadlineAlert(
                reference=DeadlineReference.DAGRUN_QUEUED_AT,
                interval=timedelta(minutes=MINUTES),
                # Runs where tasks run. In Airflow 3.2, the function has to be in another module of
                # the DAG bundle; 3.1 has AsyncCallback only, for a coroutine function in a module
                # that its triggerer can import.
                callback=SyncCallback(
                    tell_late, kwargs={"text": f"not proven within {MINUTES:g} minutes"}
                ),
            ),
            "dagrun_timeout": timedelta(hours=1),
        }
    },
)
