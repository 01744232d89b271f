"""`kafka-drain spark-server`: what it starts, and which way of ending is a failure."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from kafka_drain.cli.commands import spark_server
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.cli.main import main
from kafka_drain.spark.connect import DEFAULT_PORT
from kafka_drain.spark.connect_server import ServerOptions


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def started(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, ends: Callable[[], int] = lambda: 0
) -> tuple[int, ServerOptions]:
    """Run the command with a server that only ends; return its exit code, and what was started."""
    asked: list[ServerOptions] = []

    def run_server(options: ServerOptions) -> int:
        asked.append(options)
        return ends()

    monkeypatch.setattr(spark_server, "run_server", run_server)
    code = main(["spark-server", *arguments])
    [options] = asked
    return code, options


def test_spark_server_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, only this machine reaches it; what is given goes to the server."""
    _, plain = started(monkeypatch)
    given = [
        *("--host", "10.0.0.1", "--port", "15003", "--master", "yarn", "--memory", "4g"),
        *("--spark-conf", "spark.executor.cores=2", "--jar", "/a.jar", "--jar", "/b.jar"),
        "--with-store",
    ]
    _, other = started(monkeypatch, *given)

    assert plain == ServerOptions(
        host="127.0.0.1", port=DEFAULT_PORT, master="local[*]", memory="2g", jars=[]
    )
    assert other == ServerOptions(
        host="10.0.0.1",
        port=15003,
        master="yarn",
        memory="4g",
        conf={"spark.executor.cores": "2"},
        jars=["/a.jar", "/b.jar"],
        with_store=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_spark_server_stopped(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is stopped has done what it was to do."""

    def stopped() -> int:
        os.kill(os.getpid(), number)
        return 143

    assert started(monkeypatch, ends=stopped)[0] == OK


@pytest.mark.parametrize("status", [0, 1])
def test_spark_server_ends_by_itself(
    status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that ends by itself has failed, whatever its exit code says."""
    assert started(monkeypatch, ends=lambda: status)[0] == FAILED
    assert f"ended by itself, with exit code {status}" in capsys.readouterr().err
    assert started(monkeypatch, ends=lambda: sys.exit(status))[0] != OK
