"""A real Schema Registry for tests: Apicurio's, which has an API compatible with Confluent's."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from demo.broker.ports import free_ports
from kafka_drain.spark.jars import maven
from kafka_drain.spark.jars.fetch import cache_folder
from kafka_drain.spark.jars.lock import LockedJar
from tests.brokers import SHORT_LIVED
from tests.faults.injection import wait_for

__all__ = ["JAVA", "apicurio_registry", "ask"]

#: Names a folder with a Java of version 21 or later, which this server needs.
JAVA = "TESTS_REGISTRY_JAVA_HOME"
_LEAST_JAVA = 21

#: The whole server, as Maven Central has it.
SERVER = LockedJar(
    "io/apicurio/apicurio-registry-app/3.3.3/apicurio-registry-app-3.3.3-all.tar.gz",
    158_577_952,
    "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63",
)
PATH = "/apis/ccompat/v7"


@contextlib.contextmanager
def apicurio_registry(folder: Path) -> Iterator[str]:
    """Start a registry that keeps everything in memory; yield the URL of its compatible API.

    Args:
        folder: An empty folder for its log.
    """
    server = _unpacked()
    port, management = free_ports(2, ())
    url = f"http://127.0.0.1:{port}{PATH}"
    command = [
        str(_java()),
        "-Xmx512m",
        *SHORT_LIVED,
        "-Dquarkus.http.host=127.0.0.1",
        f"-Dquarkus.http.port={port}",
        "-Dquarkus.management.host=127.0.0.1",
        f"-Dquarkus.management.port={management}",
        "-Dapicurio.storage.kind=sql",
        "-Dapicurio.storage.sql.kind=h2",
        f"-Dapicurio.datasource.url=jdbc:h2:mem:registry{port}",
        *("-jar", str(server / "quarkus-run.jar")),
    ]
    log = folder / "registry.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=server, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            with contextlib.suppress(URLError, OSError):
                return ask(f"{url}/subjects") == []
            return False

        wait_for(answers, "the registry", patience=120, pause=0.2)
        yield url
    finally:
        process.kill()
        process.wait()


def ask(url: str, body: Any = None, method: str | None = None) -> Any:
    """Ask a registry without the product's client."""
    sent = None if body is None else json.dumps(body).encode()
    request = Request(url, data=sent, headers={"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _unpacked() -> Path:
    """Return the folder of the unpacked server, fetching it the first time."""
    folder = cache_folder() / "apicurio-registry" / SERVER.sha256[:12]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            maven.download([SERVER], folder, "registry")
            with tarfile.open(folder / SERVER.name) as packed:
                packed.extractall(folder, filter="data")
            (folder / SERVER.name).unlink()
            (folder / "done").touch()
    return folder


def _java() -> Path:
    """Return a Java that is new enough."""
    homes = [os.environ.get(JAVA), os.environ.get("JAVA_HOME"), *sorted(_installed())]
    on_path = which("java")
    found = [Path(home) / "bin" / "java" for home in homes if home]
    for java in [*found, *([Path(on_path)] if on_path else [])]:
        if java.is_file() and _major(java) >= _LEAST_JAVA:
            return java
    raise RuntimeError(f"the registry needs Java {_LEAST_JAVA} or later; set {JAVA} to its folder")


def _installed() -> list[str]:
    folder = Path("/usr/lib/jvm")
    return [str(home) for home in folder.iterdir()] if folder.is_dir() else []


def _major(java: Path) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else 0
