"""The worker engine, when a sender or its process leaves without an answer."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import ConfigError, DeliveryError, KafkaDrainError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.change import Change
from kafka_drain.republish.changing.function_id import FunctionId
from kafka_drain.republish.changing.spec import ChangeRequest, ChangeSpec
from kafka_drain.republish.engines import worker, worker_main
from kafka_drain.republish.engines.worker import Child, Worker
from kafka_drain.republish.engines.worker_main import VerifyJob
from tests.kafka_drain.republish.sending.test_shard_sender import job as send_job

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


@pytest.mark.parametrize(
    "says", ["print('loaded')", "import os; os.write(1, b'loaded')", "import sys; sys.stdin.read()"]
)
def test_child_function_prints(says: str, tmp_path: Path) -> None:
    """What a user's function prints is no answer, and what it reads no job: nobody waits for it."""
    (tmp_path / "prints.py").write_text(f"{says}\ndef f(batch): return batch\n")
    spec = ChangeSpec(ChangeRequest(function="prints:f"), FunctionId("prints:f", "0", "3"))
    failed: list[KafkaDrainError] = []
    child = Child()

    def do() -> None:
        try:
            child.do(send_job(change=Change(spec, folder=str(tmp_path))))
        except KafkaDrainError as error:
            failed.append(error)

    asking = threading.Thread(target=do, daemon=True)
    try:
        asking.start()
        asking.join(20)
        assert not asking.is_alive()
    finally:
        child.close()
    # The module was imported, and isn't the planned one.
    assert [type(error) for error in failed] == [ConfigError]
    assert "the plan has the function prints:f" in str(failed[0])


def test_child_asked_when_gone() -> None:
    """Who asks a process that has ended is answered at once: nobody else would do it."""
    child = Child()
    try:
        child.end()
        child._reader.join(20)
        assert child._ask(JOB).get(timeout=5) == {}
    finally:
        child.close()
