"""Engines: they submit Spark applications, poll and cancel them, and find them again.

Three implement it: spark-submit in client mode and the client of a Spark Connect server
(`client_mode`), whose applications are child processes, and spark-submit in cluster mode
(`cluster_mode`), whose drivers outlive the process that started them. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kafka_drain.errors import ConfigError, SparkJobError

if TYPE_CHECKING:
    from kafka_drain.spark.submit import SparkApplication


class StillRunningError(SparkJobError):
    """Raised when an application can't be followed any more: it goes on, and a retry finds it."""


class NoServerError(SparkJobError):
    """Raised when no Spark Connect server answers, so that nothing was run."""


class ServerGoneError(SparkJobError):
    """Raised when a Spark Connect server stopped answering while it ran something."""


@dataclass(frozen=True)
class StartedApplication:
    """An application that an earlier process started, and whose result nobody has read.

    Attributes:
        leases: The leases that its driver renews: the token of each, by the archive's folder.
    """

    id: str
    leases: Mapping[str, str] = field(default_factory=dict)


class SparkRunner(Protocol):
    """Runs an application and waits until it finishes."""

    def __call__(self, application: SparkApplication, /) -> None:
        """Run an application.

        Raises:
            SparkJobError: When it failed; the results of its jobs may say why.
        """


class Engine(Protocol):
    """Runs Spark applications somewhere."""

    def find(self, application: SparkApplication, /) -> StartedApplication | None:
        """Return an application that an earlier process started with the same jobs.

        Raises:
            LockedError: When another application drains the archive.
        """

    def submit(self, application: SparkApplication, /) -> str:
        """Start an application, and return its id.

        Raises:
            SparkJobError: When it can't be started.
        """

    def poll(self, application_id: str, /) -> bool:
        """Wait a moment for news of an application; return whether it has ended.

        Raises:
            SparkJobError: When it has failed, or was cancelled.
        """

    def cancel(self, application_id: str, /) -> None:
        """End an application; does nothing if it has ended."""


def run_on(
    engine: Engine, application: SparkApplication, started: Callable[[str], object] = str
) -> None:
    """Run an application to its end: one that is found again, or a new one.

    Cancels it when interrupted, but not when it can't be asked.

    Args:
        engine: Runs it.
        started: Receives its id, unless it has ended before.

    Raises:
        SparkJobError: When it failed.
        ConfigError: When the engine may not ask how it is.
    """
    found = engine.find(application)
    application_id = found.id if found else engine.submit(application)
    try:
        if application_id:
            started(application_id)
        while not engine.poll(application_id):
            pass
    except (SparkJobError, ConfigError):
        raise
    except BaseException:
        engine.cancel(application_id)
        raise


#: Starts the part of an application that has no effect; ends it if the application isn't run within
#: the context.
StartEarly = Callable[["SparkApplication"], AbstractContextManager[None]]


@dataclass(frozen=True)
class FindingRunner:
    """A runner that finds its applications again.

    Attributes:
        run: Runs an application.
        find: See `Engine.find`.
        early: Starts an application early.
        stop: Stops what runs.
    """

    run: SparkRunner
    find: Callable[[SparkApplication], StartedApplication | None]
    early: StartEarly
    stop: Callable[[], object] = lambda: None

    def __call__(self, application: SparkApplication) -> None:
        """Run an application; see `SparkRunner`."""
        self.run(application)


def find_again(runner: object, application: SparkApplication) -> StartedApplication | None:
    """Return a runner's application of an earlier process; None if it is just a function.

    Raises:
        LockedError: As `Engine.find` does.
    """
    find = getattr(runner, "find", None)
    found: StartedApplication | None = find(application) if find else None
    return found


def stop_running(runner: object) -> None:
    """Stop a runner's application, from another thread; does nothing if it is just a function."""
    stop: Callable[[], object] | None = getattr(runner, "stop", None)
    if stop is not None:
        stop()


@contextmanager
def started_early(runner: object, application: SparkApplication) -> Iterator[None]:
    """Let a runner start an application early; does nothing if it is just a function."""
    early: StartEarly | None = getattr(runner, "early", None)
    if early is None:
        yield
        return
    with early(application):
        yield
