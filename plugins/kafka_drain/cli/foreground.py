"""Run the Spark jobs of a command in the foreground, with their progress as a bar."""

from __future__ import annotations

import os

from kafka_drain.cli.console import is_watched, say
from kafka_drain.spark.connect import TOKEN_VARIABLE
from kafka_drain.spark.runner import SparkConnection, SparkRunner, runner_for


def runner_of(master: str) -> SparkRunner:
    """Return a runner for applications on a master; a terminal shows their progress as a bar."""
    connection = SparkConnection(master, token=os.environ.get(TOKEN_VARIABLE, ""))
    return runner_for(connection, say if is_watched() else None)
