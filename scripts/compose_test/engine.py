"""Find Docker, or start a private engine that doesn't affect any other.

On Debian, missing parts come from its package archive: `docker.io` is installed, and Compose is
unpacked from a later release, because bookworm has none.
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
    """A running Docker engine.

    Attributes:
        environment: Environment with which commands reach it.
        is_own: Whether it was started here, so that nothing else uses it.
        version: The version that it reports.
    """

    environment: Mapping[str, str]
    is_own: bool
    version: str


@contextmanager
def docker_engine(data_folder: Path | None = None) -> Iterator[Engine]:
    """Yield the machine's engine, or else a private one that is stopped after the block.

    Args:
        data_folder: Where a private engine keeps its images between runs; None for a temporary
            folder.

    Raises:
        EngineError: If no engine responds and none can be started.
    """
    version = _engine_version(os.environ)
    if version is None:
        _install_engine()
        # Debian's package starts it if the machine has a service manager.
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
    seen = "No Docker engine responds"
    if host := os.environ.get("DOCKER_HOST"):
        raise EngineError(
            f"{seen} at DOCKER_HOST, which is {host}. Start it, or unset DOCKER_HOST."
        )
    if os.geteuid() != 0:
        raise EngineError(
            f"{seen}, and only root can start one; this is user {os.geteuid()}. "
            "Start Docker, or give this user access to it."
        )
    if shutil.which("dockerd") and shutil.which("docker"):
        return
    if shutil.which("apt-get") is None:
        raise EngineError(f"{seen}, and it can be installed only on Debian. Start an engine.")
    say("  no Docker engine: installing Debian's docker.io")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--no-install-recommends", "docker.io"]
    try:
        output_of(["apt-get", "update"], environment=environment, seconds=300)
        output_of(install, environment=environment, seconds=600)
    except CommandError as error:
        raise EngineError(f"{seen}, and Debian's docker.io can't be installed: {error}") from error


@contextmanager
def _started(folder: Path, data_folder: Path) -> Iterator[Engine]:
    """Start an engine in `folder`, which must have a short path, and stop it after the block."""
    host = f"unix://{folder}/docker.sock"
    log = folder / "dockerd.log"
    command = ["dockerd", "--host", host, "--data-root", str(data_folder)]
    command += ["--exec-root", str(folder / "exec"), "--pidfile", str(folder / "dockerd.pid")]
    environment = {**os.environ, "DOCKER_HOST": host, "DOCKER_BUILDKIT": "1"}
    with log.open("wb") as output:
        # In its own session, so that Ctrl-C reaches only this process, which needs the engine to
        # clean up.
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
        f"dockerd didn't respond within {_START_SECONDS} s. It needs permission to create network "
        f"bridges, mounts and control groups. The last lines of its log:\n{lines}"
    )


def is_compose_2(version: str) -> bool:
    """Return whether a version is new enough: 2.0 added `up --wait`, 2.6 added build secrets."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= (2, 6)


def find_compose(engine: Engine, folder: Path) -> list[str]:
    """Return the command for Docker Compose, which is unpacked into `folder` if it isn't installed.

    Raises:
        ComposeError: If no version that is new enough is available.
    """
    for command in (["docker", "compose"], ["docker-compose"]):
        version = answers([*command, "version", "--short"], engine.environment)
        if version and is_compose_2(version):
            return command
    if shutil.which("apt-get") is None or not _DEBIAN_KEYS.exists():
        raise ComposeError(
            "Neither `docker compose version` nor `docker-compose version` reports 2.6 or newer, "
            "and it can be unpacked only on Debian. Install Docker's Compose plugin."
        )
    say(f"  no Docker Compose: unpacking that of Debian {_COMPOSE_RELEASE}, without installing it")
    try:
        return [str(_unpacked_compose(folder))]
    except CommandError as error:
        raise ComposeError(f"Debian's Docker Compose can't be unpacked: {error}") from error


def _unpacked_compose(folder: Path) -> Path:
    """Download and unpack Compose, with separate package lists."""
    sources = folder / "sources.list"
    sources.write_text(
        f"deb [signed-by={_DEBIAN_KEYS}] http://deb.debian.org/debian {_COMPOSE_RELEASE} main\n"
    )
    apt = ["apt-get", "-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=-"]
    for option, name in (("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")):
        (folder / name / ("partial" if name == "lists" else "archives/partial")).mkdir(parents=True)
        apt += ["-o", f"{option}={folder / name}"]
    # apt's sandbox user can't write to this folder.
    apt += ["-o", "APT::Sandbox::User=root"]
    output_of([*apt, "update"], seconds=300)
    output_of([*apt, "download", "docker-compose"], folder=folder, seconds=300)
    [package] = folder.glob("docker-compose_*.deb")
    output_of(["dpkg-deb", "--extract", str(package), str(folder / "compose")])
    return folder / "compose/usr/libexec/docker/cli-plugins/docker-compose"
