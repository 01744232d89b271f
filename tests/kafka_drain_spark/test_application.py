"""A driver ends with the process that started it; a client of Spark Connect begins when told to."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

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


#: As a driver does that was started by the process with the given id.
ENDS_AFTER = """
import sys
import threading
from kafka_drain_spark.application import _end_after
threading.Thread(target=_end_after, args=(int(sys.argv[1]),), daemon=True).start()
print("runs", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_driver_ends_after(how: signal.Signals) -> None:
    """A driver ends when the process that started it has ended, however it did, and not before."""
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent,
        subprocess.Popen(
            [sys.executable, "-c", ENDS_AFTER, str(parent.pid)], stdout=subprocess.PIPE
        ) as driver,
    ):
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"runs\n"
        assert driver.poll() is None
        parent.send_signal(how)
        parent.wait(60)

        assert driver.wait(60) == 1


def test_driver_ends_after_ended() -> None:
    """A driver that starts later than its parent ended doesn't begin."""
    with subprocess.Popen([sys.executable, "-c", ""]) as parent:
        parent.wait(60)

    ended = subprocess.run(
        [sys.executable, "-c", ENDS_AFTER, str(parent.pid)], check=False, timeout=60
    )

    assert ended.returncode == 1
