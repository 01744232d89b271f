"""The common part of all Spark jobs: session, log levels, secrets, result file and exit code.

A job of kind `x` is the function `run_x` in this package's module `x`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from py4j import protocol  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_drain.spark.job_spec import SPECS, write_private

__all__ = [
    "SPARK_ERRORS",
    "JobFailed",
    "explain",
    "failed_result",
    "main",
    "run_jobs",
    "secret_options",
]

#: What pyspark raises for an error in the JVM: an aborted job raises Py4J's own exception.
SPARK_ERRORS = (PySparkException, Py4JJavaError)


class Spec(Protocol):
    """The attributes that every job spec has."""

    @property
    def log_levels(self) -> dict[str, str]:
        """Level by full logger name."""

    @property
    def result_path(self) -> str:
        """Where the job writes its result."""


S = TypeVar("S", bound=Spec)


class JobFailed(Exception):
    """Raised to fail a job with an error whose message is self-explanatory.

    Args:
        message: The error message.
        left: Entries of the job's result in addition to the error.
    """

    def __init__(self, message: str, left: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.left = left


def main(kind: str, *paths: str) -> int:
    """Run jobs of one kind, each with its own spec; return the process's exit code."""
    work = getattr(import_module(f"kafka_drain_spark.{kind}"), f"run_{kind}")
    specs: list[Any] = [SPECS[kind].read(Path(path)) for path in paths]
    return run_jobs(specs, work)


def run_jobs(specs: Sequence[S], work: Callable[[SparkSession, S], dict[str, Any]]) -> int:
    """Run jobs one after another in one session; return the process's exit code.

    Each job writes its result file, and a failed job doesn't stop the others. The result of a
    failed job has an `error`, which the caller raises, so that the log needs no stack trace.
    """
    began = time.monotonic()
    forget_numpy()
    spark = SparkSession.builder.getOrCreate()
    session_seconds = round(time.monotonic() - began, 1)
    if address := spark.sparkContext.uiWebUrl:
        print(f"spark ui: {address}", flush=True)
    failed = 0
    try:
        for spec in specs:
            try:
                set_log_levels(spark, spec.log_levels)
                result = work(spark, spec)
                result |= {"spark_version": spark.version, "session_seconds": session_seconds}
            except (JobFailed, *SPARK_ERRORS) as error:
                result = failed_result(error)
                print(f"ERROR {result['error']}", flush=True)
                failed = 1
            write_private(Path(spec.result_path), result)
    finally:
        spark.stop()
    return failed


def failed_result(error: Exception) -> dict[str, Any]:
    """Return the result of a failed job: its error and its other entries."""
    left = error.left if isinstance(error, JobFailed) else {}
    return {**left, "error": explain(error)}


def forget_numpy() -> None:
    """Remove pyspark's converters of NumPy numbers from Py4J: no job uses such numbers.

    The first one imports pyspark.testing and thus pandas, which adds 1.5 seconds to each start
    (pyspark.sql.types in Spark 4.0).
    """
    converters = protocol.INPUT_CONVERTER
    converters[:] = [one for one in converters if not type(one).__name__.startswith("Numpy")]


def explain(error: Exception) -> str:
    """Return the single line of an error that explains what happened."""
    if isinstance(error, JobFailed):
        return str(error)
    # pyspark stores Java's causes separately from the message.
    text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
    lines = [line.strip() for line in text.splitlines()]
    if lines and lines[0].startswith("An error occurred while calling "):
        # This line is Py4J's; Java's message follows after a colon.
        lines = [line.removeprefix(": ") for line in lines[1:]]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Spark wraps errors of tasks; the innermost cause is the reason.
    first = next((line for line in lines if line), type(error).__name__)
    return f"{first} ({causes[-1]})" if causes and causes[-1] not in first else first


def set_log_levels(spark: SparkSession, levels: dict[str, str]) -> None:
    """Set log levels in the driver's JVM for this run."""
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for logger, level in levels.items():
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.valueOf(level))


def secret_options(path: str) -> dict[str, str]:
    """Read the options that are too secret for the job spec."""
    return dict(json.loads(Path(path).read_text())) if path else {}
