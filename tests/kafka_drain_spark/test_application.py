"""A driver ends with the process that started it; a client of Spark Connect begins when told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.spark.job_spec import PARENT_VARIABLE, RUN_OPTION
from kafka_drain_spark import application
from kafka_drain_spark.application import main

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


@pytest.mark.parametrize("missing", [AttributeError, OSError])
def test_driver_ends_after_without_pidfd(
    monkeypatch: pytest.MonkeyPatch, missing: type[Exception]
) -> None:
    """On an older system the process is asked for until it is gone; another user's is there."""
    answers = [None, PermissionError, None, ProcessLookupError]
    asked: list[tuple[int, int]] = []

    def opened(_: int) -> int:
        raise missing

    def kill(process_id: int, number: int) -> None:
        asked.append((process_id, number))
        if answer := answers[len(asked) - 1]:
            raise answer

    ended: list[int] = []
    naps: list[float] = []
    monkeypatch.setattr(os, "pidfd_open", opened, raising=False)
    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(time, "sleep", naps.append)

    application._end_after(77)

    # Signal 0 asks, and changes nothing.
    assert asked == [(77, 0)] * 4
    assert (ended, len(naps)) == ([1], 3)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the jobs were run with, and which sources the session was opened for."""
    given: list[Any] = []

    def run_jobs(specs: Any, work: Any, *, opened: Any) -> int:
        given.append((specs, work.__name__, opened))
        return 5

    spec = SimpleNamespace(read=lambda path: f"spec at {path}")
    monkeypatch.setattr(application, "SPECS", {"drain": spec, "validate": spec})
    monkeypatch.setattr(application, "open_for_jobs", lambda *sources: sources)
    monkeypatch.setattr(application, "run_jobs", run_jobs)
    monkeypatch.setattr(application, "is_on_connect", lambda: False)
    monkeypatch.delenv(PARENT_VARIABLE, raising=False)
    return given


def test_main(ran: list[Any]) -> None:
    """All jobs of one kind are run in one session, and their exit code is the process's."""
    assert main("validate", "/a", "/b") == 5

    assert ran == [(["spec at /a", "spec at /b"], "run_validate", ())]


def test_main_with_parent(ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver watches the process that started it, while it runs its jobs."""
    threads: list[Any] = []

    def thread(**given: Any) -> Any:
        threads.append(given)
        return SimpleNamespace(start=lambda: threads.append("started"))

    monkeypatch.setattr(threading, "Thread", thread)
    monkeypatch.setenv(PARENT_VARIABLE, "77")

    assert main("validate", "/a") == 5

    watching = {"target": application._end_after, "args": (77,), "daemon": True}
    assert threads == [watching, "started"]


@pytest.mark.parametrize(("kind", "sources"), [("drain", ("kafka",)), ("validate", ())])
def test_main_on_connect(
    ran: list[Any], monkeypatch: pytest.MonkeyPatch, kind: str, sources: tuple[str, ...]
) -> None:
    """A client opens its session early, and begins its jobs only when it is told to."""
    order: list[object] = []

    class Told:
        def wait(self) -> None:
            order.append("told")

    def open_early(*given: str) -> str:
        order.append(given)
        return "opened"

    def thread(**given: Any) -> Any:
        return SimpleNamespace(start=lambda: order.append(given["target"].__name__))

    monkeypatch.setattr(application, "is_on_connect", lambda: True)
    monkeypatch.setattr(application, "open_for_jobs", open_early)
    monkeypatch.setattr(threading, "Event", Told)
    monkeypatch.setattr(threading, "Thread", thread)
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)

    assert main(kind, "/a") == 5

    assert order == ["_end_with_parent", sources, "told"]
    assert ran == [(["spec at /a"], f"run_{kind}", "opened")]
    with pytest.raises(SystemExit) as left:
        handlers[signal.SIGTERM]()
    assert left.value.code == 128 + signal.SIGTERM


def test_main_of_run_folders(ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster, the driver takes its jobs from run folders."""
    from kafka_drain_spark import driver

    given: list[Any] = []

    def drive(kind: str, folders: Any, work: Any) -> int:
        given.append((kind, tuple(folders), work.__name__))
        return 3

    monkeypatch.setattr(driver, "drive", drive)

    assert main("drain", RUN_OPTION, "/a", "/b") == 3

    assert given == [("drain", ("/a", "/b"), "run_drain")]
    assert ran == []
