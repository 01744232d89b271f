"""The commands that a recovery's plan names, as they can be pasted into a shell. Opens nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_drain.kafka.cluster_state import ScramUser


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands for an archive and a target.

    Attributes:
        archive: The archive's folder or URL.
        servers: The target's brokers, `HOST:PORT`.
        connection: The flags by which `kafka-drain` reaches the target.
        at: The time as of which the archive's descriptions count; empty for the newest.
        state: The folder in which runs keep their state instead of in the archive; empty for there.
        is_secured: Whether the target wants TLS or a login, so that Kafka's own tools need a file.
    """

    archive: str
    servers: str
    connection: Sequence[str] = ()
    at: str = ""
    state: str = ""
    is_secured: bool = False

    def republish(
        self, run: str = "restore", *, topics: Sequence[str] = (), follows: bool = False
    ) -> str:
        """Return the command that sends records, as a run of a name; or goes on with a mirror.

        Args:
            run: Its name, which isn't its key.
            topics: The topics; empty for all.
        """
        more = ["--follow"] if follows else [f"--topic={topic}" for topic in topics]
        return self._drain("republish", "--same-topics", *more, "--run-name", run, "--apply")

    def apply_configs(self) -> str:
        """Return the command that sets settings of topics, as safe as before or not."""
        at = ["--at", self.at] if self.at else []
        return self._drain("plan-recovery", *at, "--apply", "configs", "--accept-lower-safety")

    def translate(self, group: str, run: str) -> str:
        """Return the command that commits a group's offsets.

        Args:
            run: Key of the republish.
        """
        at = ["--at", self.at] if self.at else []
        # A name may begin with a hyphen.
        return self._drain(
            "translate-group", "--run", run, f"--group={group}", "--from-archive", *at, "--apply"
        )

    def create_topic(self, topic: str, partitions: int) -> str:
        """Return the command that creates a topic."""
        return self._kafka("topics", "--create", "--topic", topic, "--partitions", partitions)

    def add_partitions(self, topic: str, partitions: int) -> str:
        """Return the command that adds partitions to a topic, up to a number."""
        return self._kafka("topics", "--alter", "--topic", topic, "--partitions", partitions)

    def unset(self, topic: str, setting: str) -> str:
        """Return the command that leaves a topic's setting to its brokers."""
        named = ("--entity-type", "topics", "--entity-name", topic)
        return self._kafka("configs", "--alter", *named, "--delete-config", setting)

    def from_start(self, group: str, topic: str) -> str:
        """Return the command that lets a group begin at the start of a topic."""
        named = (f"--group={group}", "--topic", topic, "--to-earliest", "--execute")
        return self._kafka("consumer-groups", "--reset-offsets", *named)

    def add_user(self, user: ScramUser) -> str:
        """Return the command that gives a user a new password, which the shell has to have."""
        named = ("--entity-type", "users", "--entity-name", user.name)
        # The shell refuses it while the variable isn't set.
        credential = f"[iterations={user.iterations},password=${{NEW_PASSWORD:?}}]"
        added = f'--add-config "{user.mechanism}={credential}"'
        return f"{self._kafka('configs', '--alter', *named)} {added}"

    def _drain(self, command: str, *arguments: str) -> str:
        state = ["--state", self.state] if self.state else []
        given = (*self.connection, *state, *arguments)
        return shlex.join(["kafka-drain", command, self.archive, *given])

    def _kafka(self, tool: str, *arguments: object) -> str:
        given = map(str, arguments)
        command = shlex.join([f"kafka-{tool}.sh", "--bootstrap-server", self.servers, *given])
        # The shell refuses it while the variable isn't set.
        file = ' --command-config "${CLIENT_PROPERTIES:?}"' if self.is_secured else ""
        return f"{command}{file}"
