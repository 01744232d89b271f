"""`make test-compose`: the parts that need no engine."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from demo.content import TopicContent
from scripts.compose_test.airflow_api import Airflow, log_in
from scripts.compose_test.base_image import base_image
from scripts.compose_test.checks import check_same_content, ran_on_cluster
from scripts.compose_test.commands import answers, output_of, run_watched
from scripts.compose_test.engine import docker_engine, is_compose_2
from scripts.compose_test.errors import (
    ApiError,
    BaseImageError,
    CommandError,
    ContentError,
    DagRunError,
    EngineError,
)
from scripts.compose_test.stack import BuildWatch, changed, is_free, root_processes
from scripts.compose_test.steps import Steps

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {
    "name": "test",
    "services": {
        "broker": {
            "image": "drain:1",
            "build": {"context": "."},
            "ports": [{"published": "29092"}],
        },
        "airflow": {"image": "drain:1", "ports": [{"target": 8080, "published": "8080"}]},
    },
}


def test_changed() -> None:
    """Images get another tag, Airflow gets any port, and Kafka keeps its port."""
    stack = changed(CONFIG, None)

    assert {service["image"] for service in stack["services"].values()} == {"drain:compose-test"}
    assert stack["services"]["airflow"]["ports"] == [{"target": 8080}]
    assert stack["services"]["broker"]["ports"] == [{"published": "29092"}]
    assert "secrets" not in stack
    assert CONFIG["services"]["broker"]["build"] == {"context": "."}  # type: ignore[index]


def test_changed_ca(tmp_path: Path) -> None:
    """Builds get certificates as a secret; they never end up in the stack."""
    stack = changed(CONFIG, tmp_path / "ca.pem")

    assert stack["secrets"] == {"ca": {"file": str(tmp_path / "ca.pem")}}
    assert stack["services"]["broker"]["build"]["secrets"] == [{"source": "ca"}]
    assert "build" not in stack["services"]["airflow"]


def test_is_free() -> None:
    """A port is free if nothing listens on it."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        assert is_free(port)
        listening.listen()
        assert not is_free(port)


def test_root_processes() -> None:
    """Only processes that run as root are found."""
    top = "UID    PID    COMMAND\n50000  10  java -version\n0      11  sh 50000\n"

    assert root_processes(top) == ["0      11  sh 50000"]


@pytest.mark.parametrize(
    ("version", "fits"),
    [("2.26.1-4", True), ("v2.6.0", True), ("2.5.1", False), ("1.29.2", False), ("5.0", True)],
)
def test_is_compose_2(version: str, fits: bool) -> None:
    """Compose must support `up --wait` and build secrets."""
    assert is_compose_2(version) is fits


def test_base_image() -> None:
    """All stages of our Dockerfile are based on one Debian image."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")

    assert base_image(dockerfile) == "debian:bookworm-slim"


@pytest.mark.parametrize("dockerfile", ["FROM debian:12\nFROM debian:11", "FROM alpine:3", ""])
def test_base_image_refused(dockerfile: str) -> None:
    """A Dockerfile for which there is no stand-in is refused."""
    with pytest.raises(BaseImageError, match="expected one Debian image"):
        base_image(dockerfile)


def test_docker_engine_other_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the user names an engine, no other one is used."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")

    with pytest.raises(EngineError, match="unset DOCKER_HOST"), docker_engine():
        pass


def test_output_of_failing() -> None:
    """A failing command is named, with the last lines of both streams."""
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"

    with pytest.raises(CommandError, match=r"(?s)ended with 3:.*  one\n.*  two"):
        output_of([sys.executable, "-c", code])


def test_output_of_too_long() -> None:
    """A command that takes too long is stopped."""
    with pytest.raises(CommandError, match=r"longer than 0\.1 s"):
        output_of([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.1)


def test_run_watched() -> None:
    """Each line is passed on; a command that fails or takes too long is named with the last."""
    code = "print('one', flush=True); import sys, time; "
    lines: list[str] = []
    run_watched([sys.executable, "-c", code], lines.append, environment={}, seconds=60)
    assert lines == ["one"]

    failing = [sys.executable, "-c", f"{code} sys.exit(3)"]
    with pytest.raises(CommandError, match=r"ended with 3:\n  one$"):
        run_watched(failing, lines.append, environment={}, seconds=60)
    endless = [sys.executable, "-c", f"{code} time.sleep(60)"]
    with pytest.raises(CommandError, match=r"longer than 1 s:\n  one$"):
        run_watched(endless, lines.append, environment={}, seconds=1)


def test_build_watch(capsys: pytest.CaptureFixture[str]) -> None:
    """A build step that took long is printed with its duration and name."""
    watch = BuildWatch()
    for line in ("#9 [broker 1/15] RUN make it", "#9 0.1 noise", "#9 DONE 24.8s", "#8 DONE 0.1s"):
        watch(line)

    assert capsys.readouterr().out == "    24.8 s  [broker 1/15] RUN make it\n"


def test_answers_missing() -> None:
    """A command that doesn't exist returns None."""
    assert answers(["/no/such/command"]) is None


@pytest.mark.parametrize(
    ("state", "executor", "count", "missing"),
    [
        ("FINISHED", "app-1", 1, []),
        ("FINISHED", "app-1", 2, ["the master has 1 completed drain, expected 2"]),
        ("FAILED", "app-1", 1, ["app-1, drain, ended as FAILED, not FINISHED"]),
        ("FINISHED", "app-2", 1, ["the worker had no executor for app-1, drain"]),
    ],
)
def test_ran_on_cluster(state: str, executor: str, count: int, missing: list[str]) -> None:
    """An application ran on the cluster if the master saw it finish and a worker executed it."""
    master = {"completedapps": [{"name": "drain", "id": "app-1", "state": state}]}
    worker = {"finishedexecutors": [{"appid": executor}]}

    assert ran_on_cluster(master, worker, {"drain": count}) == missing


def test_check_same_content_differs() -> None:
    """A partition with different content is named."""
    source = TopicContent({0: 2, 1: 1}, {0: "a", 1: "b"})
    check_same_content(source, source)

    with pytest.raises(ContentError, match=r"partition 1: 1 records for 1$"):
        check_same_content(source, TopicContent({0: 2, 1: 1}, {0: "a", 1: "c"}))
    with pytest.raises(ContentError, match=r"partition 1: None records for 1$"):
        check_same_content(source, TopicContent({0: 2}, {0: "a"}))


def test_steps_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has each step with its duration, and a failed step makes the total fail."""
    steps = Steps()
    with steps.step("first"):
        pass
    with pytest.raises(KeyError), steps.step("second"):
        raise KeyError("why")

    rows = [line.split() for line in steps.table().splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [
        ("first", "ok"),
        ("second", "failed"),
        ("total", "failed"),
    ]
    assert re.search(r"(?m)^second: failed, \d\.\d s: KeyError: 'why'$", capsys.readouterr().out)


class _Handler(BaseHTTPRequestHandler):
    """Responds by path, with 403 for unknown paths."""

    answers: dict[str, Any] = {}

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = self.answers.get(self.path)
        self.send_response(200 if found is not None else 403)
        self.end_headers()
        self.wfile.write(json.dumps(found or {"detail": "no"}).encode())

    do_GET = do_POST = do_PATCH = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL of a server that responds as `_Handler.answers` says."""
    monkeypatch.setattr(_Handler, "answers", {})
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_log_in_refused(api: str) -> None:
    """A refused login doesn't expose the password."""
    with pytest.raises(ApiError, match="returned 403") as refused:
        log_in(api, "admin", "hunter2")

    assert "hunter2" not in str(refused.value)


def test_log_in_token_hidden(api: str) -> None:
    """The token isn't part of the client's repr."""
    _Handler.answers["/auth/token"] = {"access_token": "very-secret"}

    assert "very-secret" not in repr(log_in(api, "admin", "x"))


def test_wait_for_runs(api: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed run ends the wait, with the last lines of the failed task's log."""
    _Handler.answers |= {
        "/api/v2/dags/d/dagRuns": {"dag_runs": [{"dag_run_id": "r", "state": "failed"}]},
        "/api/v2/dags/d/dagRuns/r/taskInstances": {
            "task_instances": [{"task_id": "t", "state": "failed", "try_number": 3}]
        },
        "/api/v2/dags/d/dagRuns/r/taskInstances/t/logs/3?full_content=true": {
            "content": [{"event": "it broke"}]
        },
    }

    with pytest.raises(DagRunError, match=r"Run r of d failed\.\nt, try 3:\n  it broke"):
        Airflow(api, "token").wait_for_runs("d", seconds=10)

    assert "t: failed (r)" in capsys.readouterr().out


def test_wait_for_runs_too_long(api: str) -> None:
    """A run that doesn't end in time is named with its state."""
    _Handler.answers |= {
        "/api/v2/dags/d/dagRuns": {"dag_runs": [{"dag_run_id": "r", "state": "queued"}]},
        "/api/v2/dags/d/dagRuns/r/taskInstances": {"task_instances": []},
    }

    with pytest.raises(DagRunError, match="'r': 'queued'"):
        Airflow(api, "token").wait_for_runs("d", seconds=0)
