"""The worker engine, when a sender or its process leaves without an answer."""

from __future__ import annotations

import io
import json
import os
import signal
from typing import Any

import pytest

from kafka_drain.errors import DeliveryError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.engines import worker, worker_main
from kafka_drain.republish.engines.worker import Child, Worker
from kafka_drain.republish.engines.worker_main import VerifyJob

JOB = VerifyJob("/archives/none", "/archives/none", "run", (TopicPartition("t", 0),), {})


def leave(*_: Any) -> None:
    raise SystemExit(0)


def test_worker_sender_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that leaves is a failure, and not the end of the process, with code 0."""
    monkeypatch.setattr(worker, "run_job", leave)

    with pytest.raises(DeliveryError, match="a sender left by SystemExit; a retry resumes"):
        Worker().run([[JOB]], 1)


def test_worker_main_answers_when_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that leaves is answered: the parent would wait for ever."""
    monkeypatch.setattr(worker_main, "run_job", leave)
    asked = json.dumps({"number": 7, "job": JOB.to_dict()})
    # A process joins its threads when it ends; here the test does.
    started: list[Any] = []
    thread = worker_main.threading.Thread

    def starting(*arguments: Any, **options: Any) -> Any:
        started.append(thread(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(worker_main.threading, "Thread", starting)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{asked}\n"))

    assert worker_main.main() == 0
    started[0].join()

    answer = {"error": "DeliveryError", "message": "SystemExit: 0"}
    assert json.loads(capsys.readouterr().out) == {"number": 7, "answer": answer}


@pytest.mark.parametrize(
    ("is_killed", "said"),
    [
        (True, r"verifying t-0 was killed from outside by signal 9 \(out of memory\?\)"),
        (False, "verifying t-0 ended with exit code 0 before it answered"),
    ],
)
def test_child_ends_without_answer(is_killed: bool, said: str) -> None:
    """A process that ends without an answer has failed, whatever its exit code is."""
    child = Child()
    try:
        if is_killed:
            os.kill(child._process.pid, signal.SIGKILL)
        else:
            child.end()
        with pytest.raises(DeliveryError, match=f"{said}; a retry resumes"):
            child.do(JOB)
    finally:
        child.close()
