"""A Spark job: run it and read its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from kafka_drain import errors
from kafka_drain.errors import KafkaDrainError, SparkJobError
from kafka_drain.kafka.topic_watch import TopicWatch
from kafka_drain.spark.engine import (
    NoServerError,
    ServerGoneError,
    SparkRunner,
    StillRunningError,
    stop_running,
)
from kafka_drain.spark.job_errors import no_result, spark_error
from kafka_drain.spark.job_spec import read_result
from kafka_drain.spark.submit import SparkApplication


@contextmanager
def private_folder() -> Iterator[Path]:
    """Create a folder that only this user can read (mode 0700), and remove it afterwards."""
    with TemporaryDirectory(prefix="kafka-drain-") as folder:
        yield Path(folder)


@dataclass(frozen=True)
class SparkJob:
    """A Spark job that is ready to run.

    Attributes:
        what: The job's name in messages.
        application: The Spark application that runs it.
        result_path: The file for its result.
        polled: Number of records that a Kafka consumer takes at a time; None without one.
    """

    what: ClassVar[str] = "job"

    application: SparkApplication
    result_path: Path
    polled: int | None = field(default=None, kw_only=True)

    def run(self, runner: SparkRunner) -> dict[str, Any]:
        """Run the job, and return its result.

        Raises:
            KafkaDrainError: When the job reported an error; see `result`.
            SparkJobError: When spark-submit failed otherwise, or a Spark Connect server is gone.
            StillRunningError: When it can't be followed any more; its driver goes on.
            TopicError: When a topic of `watch` was deleted meanwhile; what ran was stopped.
        """
        watch = self.watch()
        # One goes on running, with its lease; another has run nothing; the last says what happened.
        unless = (StillRunningError, NoServerError, ServerGoneError)
        with watch.ending(lambda: stop_running(runner), unless) if watch else nullcontext():
            try:
                runner(self.application)
            except unless:
                raise
            except SparkJobError:
                # Prefer the error in the result; without one, the exit code is all there is.
                self.result()
                raise
            return self.result()

    def watch(self) -> TopicWatch | None:
        """Return the topics that must be there while the job runs; None for none."""
        return None

    def result(self) -> dict[str, Any]:
        """Read the job's result.

        Raises:
            KafkaDrainError: When the job reported an error; the type says what went wrong.
            SparkJobError: When the job ended without a result.
        """
        result = read_result(self.result_path)
        if result is None:
            raise no_result(self.what, self.application.driver_memory, self.polled)
        if "error" in result:
            raise self.failed(result)
        return result

    def failed(self, result: dict[str, Any]) -> KafkaDrainError:
        """Return the error for the result of a failed job."""
        if kind := result.get("error_type"):
            error: KafkaDrainError = getattr(errors, kind)(result["error"])
            return error
        return spark_error(
            result["error"],
            what=self.what,
            memory=self.application.driver_memory,
            polled=self.polled,
            too_far=self.too_far,
            unread=self.unread,
        )

    def too_far(self) -> list[str]:
        """Return records whose timestamps Spark can't represent; none for a job without topics."""
        return []

    def unread(self, offset: int) -> list[str]:
        """Return partitions that don't deliver an offset; none for a job without topics."""
        return []
