"""The runner for a connection, for commands and operators alike."""

from __future__ import annotations

from collections.abc import Callable

from kafka_drain.output import Line
from kafka_drain.spark.client_mode import SparkConnect, SparkProcess, SparkSubmit
from kafka_drain.spark.cluster_mode import SparkCluster
from kafka_drain.spark.place import DriverPlace, SparkConnection


def runner_for(
    connection: SparkConnection,
    hear: Callable[[Line], None] | None = None,
    started: Callable[[str], object] = str,
) -> SparkProcess:
    """Return the runner for a connection: the engine for where its drivers run.

    Args:
        hear: See `SparkProcess`.
        started: Receives the id of each application that outlives this process.
    """
    if connection.place is DriverPlace.CLUSTER:
        return SparkCluster(connection, hear, started=started)
    kind = SparkConnect if connection.place is DriverPlace.SERVER else SparkSubmit
    return kind(connection, hear)
