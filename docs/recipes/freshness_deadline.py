"""Tell somebody if an archive isn't proven up to date in time (Airflow 3.1 or later)."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import Any

from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference

from kafka_drain_airflow import Pipeline, create_dags

flights = Pipeline(
    name="flights",
    topics=["flights"],
    archive=os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain") + "/flights",
    partition_by=["topic"],
)


async def tell_late(text: str, context: dict[str, Any]) -> None:
    """Tell whom it concerns; a notifier, such as Slack's, is a callback too."""
    logging.getLogger(__name__).error("%s: %s", context["dag_run"]["dag_id"], text)


create_dags(
    flights,
    dag_kwargs={
        "drain": {
            # A run that is queued, drains or is retried for longer than this, and so the archive,
            # is late; after twice the time, the run fails.
            "deadline": DeadlineAlert(
                reference=DeadlineReference.DAGRUN_QUEUED_AT,
                interval=timedelta(minutes=30),
                # By its name: the triggerer imports it, so the module has to be on its Python path,
                # for example in an installed package or in Airflow's plugins folder.
                callback=AsyncCallback(
                    "freshness_deadline.tell_late", kwargs={"text": "not proven for 30 minutes"}
                ),
            ),
            "dagrun_timeout": timedelta(hours=1),
        }
    },
)
