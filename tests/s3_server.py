"""A server that speaks S3, for tests: moto's, as a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from kafka_drain.object_store import spark_conf_for

__all__ = ["CREDENTIALS", "s3_server", "session_for"]

PATIENCE = 60.0
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "not-in-any-log"}


@contextlib.contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """Start the server and return its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not _answers(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"no S3 at {url} within {PATIENCE:g} s"
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/moto-api/", timeout=5):
            return True
    except (URLError, OSError):
        return False


def session_for(spark: Any, archive: str, environment: dict[str, str]) -> Any:
    """Return a session of the shared Spark that is set up as a job with this archive is."""
    conf = spark_conf_for(archive, environment)
    if not conf:
        return spark
    session = spark.newSession()
    # The shared Spark was started before there was a store: a job's driver reads its environment.
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.access.key", environment["AWS_ACCESS_KEY_ID"])
    hadoop.set("fs.s3a.secret.key", environment["AWS_SECRET_ACCESS_KEY"])
    for name, value in conf.items():
        if name.startswith("spark.hadoop."):
            hadoop.set(name.removeprefix("spark.hadoop."), value)
        else:
            session.conf.set(name, value)
    return session
