"""The client of a Spark Connect server begins when it is told to, and ends with who started it."""

from __future__ import annotations

import subprocess
import sys

#: As `main` does, without a session.
WAITS = """
import threading
from kafka_drain_spark.application import _end_with_parent
told = threading.Event()
threading.Thread(target=_end_with_parent, args=(told,), daemon=True).start()
told.wait()
print("told", flush=True)
threading.Event().wait()
"""


def test_client_told_then_left() -> None:
    """A byte lets the jobs begin; the end of the pipe ends the process, also one that waits."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"told\n"
        process.stdin.close()
        assert process.wait(60) == 1


def test_client_left_untold() -> None:
    """Who ends before it tells the client to begin has had no jobs run."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.communicate(timeout=60)[0] == b""
        assert process.returncode == 1
