"""Drivers that a killed command has left on this machine are found and named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_drain.errors import LockedError
from kafka_drain.spark.drivers import SPARK, drivers_of, refuse_orphans, specs_in

#: Starts a process, tells its id, and waits for the end of its own input.
LEAVES = """
import subprocess, sys
left = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
left.stdout.readline()
print(left.pid, flush=True)
sys.stdin.read()
left.kill()
left.wait()
"""
WAITS = "print('ready', flush=True)\nimport sys\nsys.stdin.read()\n"


@contextmanager
def driver(folder: Path, kind: str, archive: str) -> Iterator[int]:
    """Run what looks like a driver, started by another process; return its process id."""
    spec = folder / "drain.json"
    spec.write_text(json.dumps({"archive": archive}))
    left = [sys.executable, "-c", WAITS, SPARK, str(folder / "main.py"), kind, str(spec)]
    with subprocess.Popen(
        [sys.executable, "-c", LEAVES, *left], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        yield int(starter.stdout.readline())
        assert starter.stdin is not None
        starter.stdin.close()


@pytest.mark.parametrize(
    ("command", "specs"),
    [
        (f"java {SPARK} /x/main.py drain /tmp/a.json", ["/tmp/a.json"]),
        (f"java {SPARK} --name d /x/main.py drain /tmp/a.json /b", ["/tmp/a.json", "/b"]),
        (f"java {SPARK} /x/main.py window /tmp/a.json", []),
        # A client of a Spark Connect server, or the Python of a local Spark.
        ("python /x/main.py drain /tmp/a.json", []),
        ("vim /x/main.py", []),
        ("drain /x/main.py", []),
        ("", []),
    ],
)
def test_specs_in(command: str, specs: list[str]) -> None:
    """Only the command line of a drain's driver has specs."""
    assert specs_in(command.split()) == specs


def test_refuse_orphans_left(tmp_path: Path) -> None:
    """A driver that another process started is named, with what ends it."""
    with (
        driver(tmp_path, "drain", "/archives/orders") as left,
        pytest.raises(LockedError, match=rf"process {left} on this machine.*`kill -KILL {left}`"),
    ):
        refuse_orphans("/archives/orders")


@pytest.mark.parametrize(
    ("kind", "archive"), [("drain", "/archives/others"), ("compact", "/archives/orders")]
)
def test_refuse_orphans_others(kind: str, archive: str, tmp_path: Path) -> None:
    """Drivers of other archives, and of jobs that have folders of their own, don't matter."""
    with driver(tmp_path, kind, archive):
        refuse_orphans("/archives/orders")


def test_drivers_of_own(tmp_path: Path) -> None:
    """What this process has started itself isn't left by anybody."""
    (tmp_path / "drain.json").write_text(json.dumps({"archive": "/archives/orders"}))
    job = [str(tmp_path / "main.py"), "drain", str(tmp_path / "drain.json")]
    command = [sys.executable, "-c", WAITS, SPARK, *job]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as own:
        assert own.stdout is not None
        own.stdout.readline()

        assert drivers_of("/archives/orders") == []

        assert own.stdin is not None
        own.stdin.close()
