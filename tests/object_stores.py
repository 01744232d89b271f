"""Servers that speak Azure's and Google's protocols of object stores: Azurite, fake-gcs-server."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from demo.broker.ports import free_ports

__all__ = ["AZURITE", "FAKE_GCS", "PACKAGES", "SCHEMES", "azure_server", "gcs_server"]

#: Variables that name the programs; `make test-azure-gcs` sets them.
AZURITE, FAKE_GCS = "TESTS_AZURITE", "TESTS_FAKE_GCS"
#: Of each store the variable, and the scheme of its URLs.
SCHEMES = {"azure": (AZURITE, "abfs"), "gcs": (FAKE_GCS, "gs")}

PATIENCE = 60.0

#: The folder of adlfs, gcsfs and what they need; empty if they are in this environment.
PACKAGES = os.environ.get("TESTS_STORE_PACKAGES", "")

# Behind all that this environment has of its own.
sys.path += filter(None, [PACKAGES])


@contextlib.contextmanager
def azure_server(folder: Path) -> Iterator[dict[str, str]]:
    """Start Azurite; yields what a client needs in its environment."""
    (port,) = free_ports(1, ())
    key = base64.b64encode(b"not-in-any-log").decode()
    url = f"http://127.0.0.1:{port}/tests"
    command = [os.environ[AZURITE], "--silent", "--location", str(folder), "--skipApiVersionCheck"]
    with _running([*command, "--blobPort", str(port)], url, AZURITE_ACCOUNTS=f"tests:{key}"):
        settings = ("DefaultEndpointsProtocol=http", "AccountName=tests", f"AccountKey={key}")
        settings += (f"BlobEndpoint={url}",)
        yield {"AZURE_STORAGE_CONNECTION_STRING": ";".join(settings)}


@contextlib.contextmanager
def gcs_server() -> Iterator[dict[str, str]]:
    """Start fake-gcs-server; yields what a client needs in its environment."""
    (port,) = free_ports(1, ())
    url = f"http://127.0.0.1:{port}"
    command = [os.environ[FAKE_GCS], "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-public-host", f"127.0.0.1:{port}", "-external-url", url]
    # On a disk it has no empty objects for folders, which Hadoop makes.
    command += ["-backend", "memory"]
    with _running(command, f"{url}/storage/v1/b?project=tests"):
        # Otherwise, gcsfs asks Google itself which kind of bucket it is, and waits for it.
        yield {"STORAGE_EMULATOR_HOST": url, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}


@contextlib.contextmanager
def _running(command: list[str], url: str, **variables: str) -> Iterator[None]:
    """Run a server while the body runs, from when it answers."""
    with subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while not _answers(url):
                assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
                assert time.monotonic() < deadline, f"nothing at {url} within {PATIENCE:g} s"
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except HTTPError:
        # It wants a login, so it is there.
        return True
    except (URLError, OSError):
        return False
