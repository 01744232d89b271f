"""Run the Spark jobs of a command in the foreground, with their progress as a bar."""

from __future__ import annotations

from kafka_drain.cli.console import is_watched, say
from kafka_drain.spark.runner import SparkConnection, SparkRunner, SparkSubmit

__all__ = ["runner_of"]


def runner_of(master: str) -> SparkRunner:
    """Return a runner for applications on a master; a terminal shows their progress as a bar."""
    return SparkSubmit(SparkConnection(master), say if is_watched() else None)
