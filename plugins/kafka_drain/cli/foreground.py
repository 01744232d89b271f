"""Spark jobs of a command: spark-submit runs in the foreground, its progress is a bar."""

from __future__ import annotations

from collections.abc import Callable

from kafka_drain.cli.console import is_watched, say
from kafka_drain.spark import process
from kafka_drain.spark.submit import SparkApplication

__all__ = ["submit"]


def submit(application: SparkApplication, master: str, explain: Callable[[], object]) -> None:
    """Run spark-submit; its output goes to standard error, where a terminal shows it as a bar.

    Raises:
        SparkJobError: When it fails, and `explain` has raised nothing.
    """
    process.submit(application, master, explain, say if is_watched() else None)
