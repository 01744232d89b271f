"""A server that speaks S3, for tests: moto's, or Versity's Gateway, as a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from kafka_drain.spark.stores import store_conf
from kafka_drain.storage.s3 import S3_SCHEMES, scheme_of

__all__ = ["CREDENTIALS", "VARIABLE", "s3_server", "session_for"]

#: Names the program `versitygw`, which then takes the place of moto's server (`make test-s3`).
VARIABLE = "TESTS_VERSITYGW"

PATIENCE = 60.0
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "not-in-any-log"}


@contextlib.contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """Start the server and return its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    gateway = os.environ.get(VARIABLE)
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    if gateway:
        data, versions = log.with_name("objects"), log.with_name("versions")
        data.mkdir()
        versions.mkdir()
        command = [
            gateway,
            "--port",
            f"127.0.0.1:{port}",
            "--health",
            "/health",
            "posix",
            # Without one, a bucket keeps no versions and locks nothing.
            *("--versioning-dir", str(versions)),
            str(data),
        ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={
                **os.environ,
                "ROOT_ACCESS_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"],
                "ROOT_SECRET_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            },
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not _answers(f"{url}/health" if gateway else f"{url}/moto-api/"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"no S3 at {url} within {PATIENCE:g} s"
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except (URLError, OSError):
        return False


def session_for(
    spark: Any, archive: str, environment: dict[str, str], *, is_locked: bool = False
) -> Any:
    """Return a session of the shared Spark that is set up as a job with this archive is."""
    conf = store_conf(archive, environment, is_locked=is_locked)
    if not conf:
        return spark
    session = spark.newSession()
    # The shared Spark was started before there was a store: a job's driver reads its environment.
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    if scheme_of(archive) in S3_SCHEMES:
        hadoop.set("fs.s3a.access.key", environment["AWS_ACCESS_KEY_ID"])
        hadoop.set("fs.s3a.secret.key", environment["AWS_SECRET_ACCESS_KEY"])
    for name, value in conf.items():
        if name.startswith("spark.hadoop."):
            hadoop.set(name.removeprefix("spark.hadoop."), value)
        else:
            session.conf.set(name, value)
    return session
