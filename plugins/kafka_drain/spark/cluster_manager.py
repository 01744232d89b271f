"""The interface of cluster mode to a cluster manager: YARN or Kubernetes. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafka_drain.spark.engine import StillRunningError

if TYPE_CHECKING:
    from pathlib import Path


class NoAnswerError(StillRunningError):
    """Raised when the cluster manager doesn't answer; its applications go on."""


class ClusterApplication(Protocol):
    """An application according to its cluster manager.

    Attributes:
        is_alive: Whether it hasn't ended.
        has_succeeded: Whether it has ended without an error; None if its result has to say so.
        waits_for: Why it doesn't start, in a few words that don't change each time; may be empty.
        outcome: Its result, and the reason, if that is known.
        kill_command: The command that ends it.
        log_command: The command that shows its log.
    """

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def tags(self) -> frozenset[str]: ...  # noqa: D102
    @property
    def is_alive(self) -> bool: ...  # noqa: D102
    @property
    def has_succeeded(self) -> bool | None: ...  # noqa: D102
    @property
    def waits_for(self) -> str: ...  # noqa: D102
    @property
    def outcome(self) -> str: ...  # noqa: D102
    @property
    def kill_command(self) -> str: ...  # noqa: D102
    @property
    def log_command(self) -> str: ...  # noqa: D102


class ClusterManager(Protocol):
    """Finds applications, ends them, and hands them secrets that must not be in an archive.

    Attributes:
        name: Its name, for messages.
        secrets_folder: Folder of a driver's files with secrets.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def secrets_folder(self) -> str: ...  # noqa: D102

    def tagged(self, tag: str, *, alive: bool = True) -> Sequence[ClusterApplication]:
        """Return the applications with a tag: those that haven't ended, or all that it remembers.

        Raises:
            NoAnswerError: When it doesn't answer.
            ConfigError: When it requires other rights.
        """

    def application(self, application_id: str, /) -> ClusterApplication:
        """Return an application.

        Raises:
            NoAnswerError: When it doesn't answer.
            ConfigError: When it requires other rights.
        """

    def kill(self, application_id: str, /) -> None:
        """End an application; does nothing if it has ended.

        Raises:
            NoAnswerError: When it doesn't answer.
            ConfigError: When it requires other rights.
        """

    def options(
        self,
        run: str,
        tags: Sequence[str],
        secrets: Mapping[str, Path],
        code: str,
    ) -> list[str]:
        """Return the options of spark-submit that tag an application.

        Args:
            run: The name of the run; one of the tags.
            secrets: Files with secrets, by the name that the driver gives them.
            code: A folder for our code, which the driver can read.

        Raises:
            ConfigError: When the configuration lacks something, or contradicts them.
        """

    def hand_over(self, application_id: str, secrets: Mapping[str, Path]) -> None:
        """Hand an application its files with secrets, unless it has them.

        Raises:
            NoAnswerError: When it doesn't answer.
            ConfigError: When it requires other rights.
        """

    def clean_up(self, application_id: str) -> None:
        """Remove the secrets of an application that has ended; does nothing if they are gone."""
