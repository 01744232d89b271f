"""Finds Docker, or starts an engine of its own that touches no other.

What is missing on Debian is installed or unpacked from its archive: `docker.io`, and Compose from a
later release, for bookworm has none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.compose_test.commands import answers, output_of
from scripts.compose_test.errors import CommandError, ComposeError, EngineError
from scripts.compose_test.steps import say

__all__ = ["Engine", "docker_engine", "find_compose", "is_compose_2"]

_START_SECONDS = 60
_STOP_SECONDS = 60
_COMPOSE_RELEASE = "trixie"
_DEBIAN_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True, slots=True)
class Engine:
    """A Docker engine that answers.

    Attributes:
        environment: With what commands have to run to reach it.
        is_own: Whether it was started here, and nobody else uses it.
        version: As it says.
    """

    environment: Mapping[str, str]
    is_own: bool
    version: str


@contextmanager
def docker_engine(data_folder: Path | None = None) -> Iterator[Engine]:
    """Yield the machine's engine, else one of its own that ends with the block.

    Args:
        data_folder: Where an engine of its own keeps its images from one run to the next; None: in
            a temporary folder.

    Raises:
        EngineError: When none answers and none can be started.
    """
    version = _engine_version(os.environ)
    if version is None:
        _install_engine()
        # Debian starts it where the machine has a service manager.
        version = _engine_version(os.environ)
    if version is not None:
        yield Engine(dict(os.environ), is_own=False, version=version)
        return
    with (
        tempfile.TemporaryDirectory(prefix="kafka-drain-docker-") as folder,
        _started(Path(folder), data_folder or Path(folder) / "data") as engine,
    ):
        yield engine


def _engine_version(environment: Mapping[str, str]) -> str | None:
    return answers(["docker", "version", "--format", "{{.Server.Version}}"], environment) or None


def _install_engine() -> None:
    seen = "No Docker engine answers"
    if host := os.environ.get("DOCKER_HOST"):
        raise EngineError(
            f"{seen} at DOCKER_HOST, which is {host}. Start it, or unset DOCKER_HOST."
        )
    if os.geteuid() != 0:
        raise EngineError(
            f"{seen}, and one can be started by root only; this is user {os.geteuid()}. "
            "Start Docker, or let this user use it."
        )
    if shutil.which("dockerd") and shutil.which("docker"):
        return
    if shutil.which("apt-get") is None:
        raise EngineError(f"{seen}, and this isn't Debian, where it could be installed. Start one.")
    say("  no Docker engine: Debian's docker.io is installed")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--no-install-recommends", "docker.io"]
    try:
        output_of(["apt-get", "update"], environment=environment, seconds=300)
        output_of(install, environment=environment, seconds=600)
    except CommandError as error:
        raise EngineError(f"{seen}, and Debian's docker.io can't be installed: {error}") from error


@contextmanager
def _started(folder: Path, data_folder: Path) -> Iterator[Engine]:
    """Start an engine in `folder`, which must have a short path, and end it after the block."""
    host = f"unix://{folder}/docker.sock"
    log = folder / "dockerd.log"
    command = ["dockerd", "--host", host, "--data-root", str(data_folder)]
    command += ["--exec-root", str(folder / "exec"), "--pidfile", str(folder / "dockerd.pid")]
    environment = {**os.environ, "DOCKER_HOST": host, "DOCKER_BUILDKIT": "1"}
    with log.open("wb") as output:
        # In a session of its own: Ctrl-C is for us, who need the engine to clear up.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        version = _wait_for(process, environment, log)
        yield Engine(environment, is_own=True, version=version)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], environment: Mapping[str, str], log: Path) -> str:
    limit = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < limit:
        if version := _engine_version(environment):
            return version
        time.sleep(0.2)
    lines = "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-10:])
    raise EngineError(
        f"dockerd doesn't answer within {_START_SECONDS} s. It needs the rights to make network "
        f"bridges, mounts and control groups. The last lines of its log:\n{lines}"
    )


def is_compose_2(version: str) -> bool:
    """Return whether a version is new enough: 2.0 brought `up --wait`, 2.6 secrets of builds."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= (2, 6)


def find_compose(engine: Engine, folder: Path) -> list[str]:
    """Return the command of Docker Compose, unpacked into `folder` where it isn't installed.

    Raises:
        ComposeError: When there is none that is new enough.
    """
    for command in (["docker", "compose"], ["docker-compose"]):
        version = answers([*command, "version", "--short"], engine.environment)
        if version and is_compose_2(version):
            return command
    if shutil.which("apt-get") is None or not _DEBIAN_KEYS.exists():
        raise ComposeError(
            "Neither `docker compose version` nor `docker-compose version` says 2.6 or newer, and "
            "this isn't Debian, where it could be unpacked. Install Docker's Compose plugin."
        )
    say(f"  no Docker Compose: the one of Debian {_COMPOSE_RELEASE} is unpacked, not installed")
    try:
        return [str(_unpacked_compose(folder))]
    except CommandError as error:
        raise ComposeError(f"Debian's Docker Compose can't be unpacked: {error}") from error


def _unpacked_compose(folder: Path) -> Path:
    """Download and unpack Compose, with lists of packages of its own."""
    sources = folder / "sources.list"
    sources.write_text(
        f"deb [signed-by={_DEBIAN_KEYS}] http://deb.debian.org/debian {_COMPOSE_RELEASE} main\n"
    )
    apt = ["apt-get", "-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=-"]
    for option, name in (("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")):
        (folder / name / ("partial" if name == "lists" else "archives/partial")).mkdir(parents=True)
        apt += ["-o", f"{option}={folder / name}"]
    # apt's own user can't write into this folder.
    apt += ["-o", "APT::Sandbox::User=root"]
    output_of([*apt, "update"], seconds=300)
    output_of([*apt, "download", "docker-compose"], folder=folder, seconds=300)
    [package] = folder.glob("docker-compose_*.deb")
    output_of(["dpkg-deb", "--extract", str(package), str(folder / "compose")])
    return folder / "compose/usr/libexec/docker/cli-plugins/docker-compose"
