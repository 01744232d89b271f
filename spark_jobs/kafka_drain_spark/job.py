"""The common part of all Spark jobs: session, log levels, secrets, result file and exit code."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from kafka_drain.config.spark_conf import DEFAULT_LOG_LEVELS
from kafka_drain.errors import KafkaDrainError
from kafka_drain.spark.connect import absence, refusal
from kafka_drain.spark.job_spec import JobSpec, write_private
from kafka_drain_spark.session import (
    SPARK_ERRORS,
    open_session,
    require_source,
    set_log_levels,
    stop,
    ui_address,
)

S = TypeVar("S", bound=JobSpec)

# How a task raises one of our errors: the last line of a Python traceback within Java's message.
_RAISED_BY_TASK = re.compile(r"RuntimeError: (\w+Error: .+)")


class JobFailed(Exception):
    """Raised to fail a job with an error whose message is self-explanatory.

    Args:
        message: The error message.
        left: Entries of the job's result in addition to the error.
    """

    def __init__(self, message: str, left: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.left = left


def write_result(spec: JobSpec, result: dict[str, Any]) -> None:
    """Write a job's result file."""
    write_private(Path(spec.result_path), result)


@dataclass(frozen=True)
class Opened:
    """The result of opening the session of this process's jobs.

    Attributes:
        spark: The session, or the error that says why there is none.
        seconds: Its duration.
        version: Spark's version; asked for at once, because a server may end a session that isn't
            used while a long query runs.
    """

    spark: SparkSession | Exception
    seconds: float
    version: str = ""


def open_for_jobs(*sources: str) -> Opened:
    """Open the session of this process's jobs; see `require_source` for the sources."""
    began = time.monotonic()
    try:
        spark = open_session()
        require_source(spark, *sources)
        version = spark.version
    except (KafkaDrainError, *SPARK_ERRORS) as error:
        return Opened(error, time.monotonic() - began)
    return Opened(spark, time.monotonic() - began, version)


def run_jobs(
    specs: Sequence[S],
    work: Callable[[SparkSession, S], dict[str, Any]],
    write: Callable[[S, dict[str, Any]], None] = write_result,
    opened: Opened | None = None,
) -> int:
    """Run jobs one after another in one session; return the process's exit code.

    Each job's result is written, and a failed job doesn't stop the others. The result of a
    failed job has an `error`, which the caller raises, so that the log needs no stack trace.

    Args:
        specs: The jobs.
        work: Runs one.
        write: Writes the result of one.
        opened: Their session; None to open one.
    """
    opened = opened or open_for_jobs()
    spark = opened.spark
    if isinstance(spark, Exception):
        for spec in specs:
            write(spec, failed_result(spark))
        return 1
    versions = {"spark_version": opened.version, "session_seconds": round(opened.seconds, 1)}
    if address := ui_address(spark):
        print(f"spark ui: {address}", flush=True)
    failed = 0
    try:
        for spec in specs:
            try:
                _set_log_levels(spark, spec.log_levels)
                result = work(spark, spec)
                result |= versions
            except (JobFailed, KafkaDrainError, *SPARK_ERRORS) as error:
                result = failed_result(error)
                print(f"ERROR {result['error']}", flush=True)
                failed = 1
            write(spec, result)
    finally:
        stop(spark)
    return failed


def failed_result(error: Exception) -> dict[str, Any]:
    """Return the result of a failed job: its error and its other entries."""
    left: Mapping[str, Any] = error.left if isinstance(error, JobFailed) else {}
    if isinstance(error, KafkaDrainError):
        left = {"error_type": type(error).__name__}
    return {**left, "error": explain(error)}


def _set_log_levels(spark: SparkSession, levels: Mapping[str, str]) -> None:
    wanted = {logger: level for logger, level in levels.items() if logger not in DEFAULT_LOG_LEVELS}
    if not set_log_levels(spark, levels) and wanted:
        names = ", ".join(sorted(wanted))
        print(
            f"WARNING log levels of {names} weren't set: those of a Spark Connect server are set "
            "where it starts",
            flush=True,
        )


def explain(error: Exception) -> str:
    """Return the single line of an error that explains it."""
    if isinstance(error, (JobFailed, KafkaDrainError)):
        return str(error)
    if away := _away(error):
        return away
    # pyspark stores Java's causes separately from the message; Connect's client names them so.
    causes_text = getattr(error, "_stackTrace", None) or getattr(error, "_stacktrace", None)
    text = f"{error}\n{causes_text or ''}"
    lines = [line.strip() for line in text.splitlines()]
    if lines and lines[0].startswith("An error occurred while calling "):
        # This line is Py4J's; Java's message follows after a colon.
        lines = [line.removeprefix(": ") for line in lines[1:]]
    if raised := [found[1] for line in lines if (found := _RAISED_BY_TASK.fullmatch(line))]:
        return raised[-1]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Spark wraps errors of tasks; the innermost cause is the reason.
    first = next((line for line in lines if line), type(error).__name__)
    return f"{first} ({causes[-1]})" if causes and causes[-1] not in first else first


def _away(error: Exception) -> str | None:
    """Return the reason why pyspark's client got no answer; None for an answer."""
    said = f"{error}\n{error.__cause__ or ''}"
    if "RPC that terminated" not in said:
        return None
    if refused := refusal(said):
        return refused
    why = absence(said)
    return f"the Spark Connect server doesn't answer any more: {why}" if why else None


def secret_options(path: str) -> dict[str, str]:
    """Read the options that are too secret for the job spec."""
    return dict(json.loads(Path(path).read_text(encoding="utf-8"))) if path else {}
