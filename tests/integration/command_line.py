"""Run the real `kafka-drain` command in a separate process, and inspect what it leaves on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kafka_drain.cli.main import main
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_changes import ClusterChanges
from kafka_drain.kafka.consumer_groups import ConsumerGroups
from tests.forks import fork, run_forked
from tests.integration.killed_steps import kill_at_change

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """A process that has exited."""

    code: int
    out: str
    err: str


def run_module(
    module: str, *arguments: object, environment: Mapping[str, str | None] | None = None
) -> Ended:
    """Run a module of this checkout; an environment variable that is None is removed."""
    ended = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=_variables(environment),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def kafka_drain(*arguments: object, environment: Mapping[str, str | None] | None = None) -> Ended:
    """Run `kafka-drain` in a separate process; an environment variable that is None is removed."""
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / "out", Path(folder) / "err"]
        command = [str(argument) for argument in arguments]
        code = run_forked(_command, command, _variables(environment), said)
        return Ended(code, *(path.read_text() for path in said))


def kafka_drain_killed(folder: Path, number: int, *arguments: object) -> Ended:
    """Run `kafka-drain` as `kafka_drain` does, and kill it at a change that it makes.

    Args:
        folder: Changes below it count, and those of Kafka's topics, ACLs and groups: before Kafka
            is asked, and after it has answered.
        number: Number of the change; 0 for never.
        arguments: What the command is given.
    """
    with tempfile.TemporaryDirectory() as said_in:
        said = [Path(said_in) / "out", Path(said_in) / "err"]
        command = [str(argument) for argument in arguments]
        code = run_forked(_killed, str(folder), number, command, _variables(None), said)
        return Ended(code, *(path.read_text() for path in said))


def _killed(folder: str, number: int, *command: Any) -> None:
    change = kill_at_change(folder, number)
    for kind, name in (
        (KafkaCluster, "create_topic"),
        (ClusterChanges, "add_acl"),
        (ClusterChanges, "set_topic_config"),
        (ConsumerGroups, "commit"),
    ):
        setattr(kind, name, _counted(getattr(kind, name), change))
    _command(*command)


def _counted(method: Callable[..., Any], change: Callable[[], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        change()
        answer = method(*arguments, **named)
        change()
        return answer

    return call


def start_kafka_drain(
    folder: Path, *arguments: object, environment: Mapping[str, str | None] | None = None
) -> BaseProcess:
    """Start `kafka-drain` in a separate process; what it says goes to `out` and `err` in a folder.

    The process is the command's own: a signal to it is a signal to `kafka-drain`.
    """
    said = [folder / "out", folder / "err"]
    command = [str(argument) for argument in arguments]
    return fork(_command, command, _variables(environment), said)


def _command(command: Sequence[str], variables: Mapping[str, str], said: Sequence[Path]) -> None:
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(variables)
    for descriptor, path in enumerate(said, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.exit(main(command))


def _variables(changes: Mapping[str, str | None] | None) -> dict[str, str]:
    all_of = {**os.environ, "PYTHONPATH": str(ROOT / "plugins"), **(changes or {})}
    return {name: value for name, value in all_of.items() if value is not None}


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time of everything below a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }
