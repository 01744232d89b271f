"""A child ends with its parent, also by SIGKILL, unless it is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.injection import wait_for

#: Starts a child, tells its process id, and waits.
PARENT = """
import subprocess, sys
from kafka_drain.child_process import EndsWithParent
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
waits = "print('ready', flush=True); import time; time.sleep(600)"
program = (deaf if "deaf" in sys.argv else "") + waits
child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
child.stdout.readline()
watcher = EndsWithParent(child.pid)
if "dismissed" in sys.argv:
    watcher.dismiss()
print(child.pid, flush=True)
child.wait()
"""


def is_alive(process_id: int) -> bool:
    """Return whether a process runs; one that nobody has waited for has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{process_id}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    return False


@contextmanager
def parent(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a parent; return it, and its child's process id."""
    command = [sys.executable, "-c", PARENT, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        yield started, int(started.stdout.readline())


@pytest.mark.parametrize("how", ["", "deaf"])
def test_child_ends(how: str) -> None:
    """Whatever ends the parent, the child ends: by SIGTERM, or 15 s later by SIGKILL."""
    children = []
    # Together, so that both wait the same 15 seconds.
    for number in (signal.SIGKILL, signal.SIGTERM):
        with parent(how) as (started, child):
            started.send_signal(number)
        children.append(child)

    wait_for(lambda: not any(map(is_alive, children)), "the children's end", patience=40)


def test_child_dismissed() -> None:
    """A child that is left alone goes on; nobody watches it any more."""
    with parent("dismissed") as (started, child):
        command = ["pgrep", "-f", f"kafka-drain-watcher {child}$"]
        watchers = subprocess.run(command, capture_output=True, check=False)
        started.kill()

    assert watchers.stdout == b""
    assert is_alive(child)
    os.kill(child, signal.SIGKILL)
