"""The stack in docker-compose.yaml, with a separate project name, images and ports."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from scripts.compose_test.commands import output_of, run_watched
from scripts.compose_test.engine import Engine
from scripts.compose_test.errors import CommandError, PortError, StackError
from scripts.compose_test.steps import say

__all__ = ["BuildWatch", "Stack", "changed", "is_free", "prepare_stack", "root_processes"]

_TAG = "compose-test"
_LOG_LINES = 25
# Airflow can use any port; Kafka can't, because it advertises a fixed port to its clients.
_ANY_PORT = "airflow"


def changed(config: Mapping[str, Any], ca: Path | None) -> dict[str, Any]:
    """Return a stack's configuration, changed so that it can run alongside others.

    Args:
        config: Output of `docker compose config`.
        ca: Additional certificates that builds have to trust.
    """
    services = {}
    for name, service in config["services"].items():
        services[name] = dict(service, image=service["image"].rpartition(":")[0] + f":{_TAG}")
        if "build" in service and ca:
            services[name]["build"] = service["build"] | {"secrets": [{"source": "ca"}]}
    services[_ANY_PORT]["ports"] = [
        {key: value for key, value in port.items() if key != "published"}
        for port in services[_ANY_PORT]["ports"]
    ]
    secrets = {"secrets": {"ca": {"file": str(ca)}}} if ca else {}
    return {**config, "services": services, **secrets}


def is_free(port: int) -> bool:
    """Return whether nothing listens on a port of 127.0.0.1."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def root_processes(top: str) -> list[str]:
    """Return the lines of `docker top … -eo uid,pid,args` for processes that run as root."""
    return [line for line in top.splitlines()[1:] if line.split()[0] == "0"]


def _extra_ca() -> Path | None:
    names = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
    paths = [Path(os.environ[name]) for name in names if os.environ.get(name)]
    return next((path for path in paths if path.is_file()), None)


def prepare_stack(engine: Engine, compose: list[str], checkout: Path, folder: Path) -> Stack:
    """Read docker-compose.yaml and write the variant for the test to a folder.

    Raises:
        CommandError: If Docker Compose rejects the file.
        PortError: If a port that can't be changed is in use.
    """
    # With the process id, so that two runs on one engine don't collide.
    project = f"kafka-drain-test-{os.getpid()}"
    asked = ["--project-name", project, "--file", str(checkout / "docker-compose.yaml")]
    config = json.loads(
        output_of([*compose, *asked, "config", "--format", "json"], environment=engine.environment)
    )
    for name, service in config["services"].items():
        for port in service.get("ports", []):
            if name != _ANY_PORT and not is_free(int(port["published"])):
                raise PortError(
                    f"127.0.0.1:{port['published']} is in use, but {name} of this stack needs it. "
                    "Stop the program that uses it; if it is your own stack, run `docker compose "
                    "stop`."
                )
    file = folder / "docker-compose.json"
    file.write_text(json.dumps(changed(config, _extra_ca())))
    command = [*compose, "--ansi", "never", "--project-name", project, "--file", str(file)]
    return Stack(engine, project, command, tuple(config["services"]))


@dataclass
class BuildWatch:
    """Reads BuildKit's plain progress and prints each step that took a second or longer.

    Attributes:
        names: Names of the steps, by their number.
    """

    names: dict[str, str] = field(default_factory=dict)

    def __call__(self, line: str) -> None:
        """Process a line that BuildKit printed."""
        if step := re.match(r"#(\d+) \[(.*)", line):
            self.names[step[1]] = f"[{step[2]}"
        elif (done := re.match(r"#(\d+) DONE (\d+\.\d)s", line)) and float(done[2]) >= 1:
            say(f"  {done[2]:>6} s  {shorten(self.names.get(done[1], ''), 90)}")


@dataclass(frozen=True, slots=True)
class Stack:
    """The stack, operated through Docker Compose.

    Attributes:
        engine: The Docker engine on which it runs.
        project: The Compose project name.
        compose: The command for Docker Compose with its options.
        services: Names of the services.
    """

    engine: Engine
    project: str
    compose: list[str]
    services: tuple[str, ...]

    def _run(self, *arguments: str, seconds: float = 60) -> str:
        return output_of(
            [*self.compose, *arguments], environment=self.engine.environment, seconds=seconds
        )

    def _docker(self, *arguments: str) -> str:
        return output_of(["docker", *arguments], environment=self.engine.environment)

    def build(self) -> None:
        """Build the images, and print the steps that took a second or longer.

        Raises:
            CommandError: If the build fails; with its last lines.
        """
        command = [*self.compose, "--progress", "plain", "build"]
        watch = BuildWatch()
        run_watched(command, watch, environment=self.engine.environment, seconds=1800)

    def up(self, seconds: int) -> None:
        """Start the stack and wait until all services are healthy.

        Raises:
            StackError: If a service isn't healthy within `seconds`; with its log's last lines.
        """
        try:
            self._run("up", "--wait", "--wait-timeout", str(seconds), seconds=seconds + 60)
        except CommandError as error:
            raise StackError(f"{error}\n{self._unhealthy()}") from error

    def down(self) -> None:
        """Remove the stack, including its volumes.

        Raises:
            StackError: If one of its containers, volumes or networks is left.
        """
        self._run("down", "--volumes", "--remove-orphans", "--timeout", "60", seconds=300)
        label = f"label=com.docker.compose.project={self.project}"
        for kind in (["ps", "--all"], ["volume", "ls"], ["network", "ls"]):
            if left := self._docker(*kind, "--quiet", "--filter", label).split():
                raise StackError(f"`down` left behind, as listed by `docker {kind[0]}`: {left}")

    def containers(self) -> dict[str, tuple[str, str]]:
        """Return id and status of each service's container, by service."""
        lines = self._docker(
            "ps",
            "--all",
            "--filter",
            f"label=com.docker.compose.project={self.project}",
            "--format",
            '{{.Label "com.docker.compose.service"}}\t{{.ID}}\t{{.Status}}',
        ).splitlines()
        return {name: (id_, status) for name, id_, status in (line.split("\t") for line in lines)}

    def _unhealthy(self) -> str:
        told = []
        for service, (_, status) in sorted(self.containers().items()):
            told.append(f"{service}: {status}")
            if "(healthy)" not in status and status != "Created":
                log = self._run("logs", "--no-color", "--tail", str(_LOG_LINES), service)
                told += [f"  {line}" for line in log.splitlines()]
        return "\n".join(told)

    def run_in(self, service: str, *command: str) -> str:
        """Run a command in a service's container and return its output.

        Raises:
            CommandError: If it fails.
        """
        return self._run("exec", "-T", service, *command)

    def copy_out(self, service: str, path: str, folder: Path) -> None:
        """Copy a folder from a service's container to this machine.

        Raises:
            CommandError: If the folder doesn't exist.
        """
        self._run("cp", f"{service}:{path}", str(folder), seconds=300)

    def address(self, service: str, port: int) -> str:
        """Return the address on this machine under which a service's port is published."""
        return self._run("port", service, str(port)).strip()

    def processes(self, service: str) -> str:
        """Return user id, process id and arguments of all processes in a service's container."""
        return self._docker("top", self.containers()[service][0], "-eo", "uid,pid,args")
