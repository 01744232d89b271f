"""What all Spark jobs share: session, log levels, secrets, the result file and the exit code.

A job of kind `x` is `run_x` in the module `x` beside this one.
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

#: What pyspark raises for an error in the JVM: an aborted job comes as Py4J's own exception.
SPARK_ERRORS = (PySparkException, Py4JJavaError)


class Spec(Protocol):
    """What a job spec has, whatever the job."""

    @property
    def log_levels(self) -> dict[str, str]:
        """Level by full logger name."""

    @property
    def result_path(self) -> str:
        """Where the job writes its result."""


S = TypeVar("S", bound=Spec)


class JobFailed(Exception):
    """Raised when a job has to end with an error whose message says everything.

    Args:
        message: The error.
        left: What its result says beside the error.
    """

    def __init__(self, message: str, left: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.left = left


def main(kind: str, *paths: str) -> int:
    """Run jobs of one kind, each with a spec of its own; return the process's exit code."""
    work = getattr(import_module(f"kafka_drain_spark.{kind}"), f"run_{kind}")
    specs: list[Any] = [SPECS[kind].read(Path(path)) for path in paths]
    return run_jobs(specs, work)


def run_jobs(specs: Sequence[S], work: Callable[[SparkSession, S], dict[str, Any]]) -> int:
    """Run jobs one after the other in one session; return the process's exit code.

    Each writes its result file, and one that fails stops no other. The result of a failed job has
    an `error`: the caller turns it into its own error, and the log needs no stack trace.
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
    """Return the result of a job that failed: its error, and what it left all the same."""
    left = error.left if isinstance(error, JobFailed) else {}
    return {**left, "error": explain(error)}


def forget_numpy() -> None:
    """Take pyspark's converters of NumPy's numbers out of Py4J: no job has such numbers.

    The first of them imports pyspark.testing, and with it pandas: 1.5 seconds of each start
    (pyspark.sql.types in Spark 4.0).
    """
    converters = protocol.INPUT_CONVERTER
    converters[:] = [one for one in converters if not type(one).__name__.startswith("Numpy")]


def explain(error: Exception) -> str:
    """Return the one line of an error that says what happened."""
    if isinstance(error, JobFailed):
        return str(error)
    # pyspark keeps Java's causes apart from the message.
    text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
    lines = [line.strip() for line in text.splitlines()]
    if lines and lines[0].startswith("An error occurred while calling "):
        # Py4J's words; Java's follow behind a colon.
        lines = [line.removeprefix(": ") for line in lines[1:]]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Spark wraps what happened in a task; the innermost cause is the reason.
    first = next((line for line in lines if line), type(error).__name__)
    return f"{first} ({causes[-1]})" if causes and causes[-1] not in first else first


def set_log_levels(spark: SparkSession, levels: dict[str, str]) -> None:
    """Set log levels in the driver's JVM for this run."""
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for logger, level in levels.items():
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.valueOf(level))


def secret_options(path: str) -> dict[str, str]:
    """Read the options that may not stand in the job spec."""
    return dict(json.loads(Path(path).read_text())) if path else {}
