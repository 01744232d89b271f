"""The command line of a Spark Connect server."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.config.spark_conf import DEFAULTS, FIXED
from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.spark import connect_server, java
from kafka_drain.spark.connect_server import (
    ServerOptions,
    require_free,
    run_server,
    server_command,
)
from kafka_drain.spark.java import Java


def conf_of(command: list[str]) -> dict[str, str]:
    """Return the configuration in a command line."""
    given = [command[at + 1] for at, word in enumerate(command) if word == "--conf"]
    return dict(pair.split("=", 1) for pair in given)


def test_server_command() -> None:
    """A server has the connector on its class path, UTC, and listens on this machine alone."""
    command = server_command(ServerOptions(), ["-XX:X"], ["/j/a.jar", "/j/b.jar"], "")

    conf = conf_of(command)
    assert command[0] == "spark-submit"
    assert command[command.index("--deploy-mode") + 1] == "client"
    assert command[-3:] == [
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal")
    ]
    assert command[command.index("--jars") + 1] == "/j/a.jar,/j/b.jar"
    assert conf["spark.driver.extraClassPath"] == "/j/a.jar:/j/b.jar"
    assert conf["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert conf["spark.connect.grpc.binding.port"] == "15002"
    # A server at the next port would be none to its clients.
    assert conf["spark.connect.grpc.port.maxRetries"] == "0"
    assert conf.items() >= FIXED.items()
    assert conf.keys() >= DEFAULTS.keys()
    assert command[command.index("--name") + 1] == "kafka_drain"
    for side in ("driver", "executor"):
        assert "-Duser.timezone=UTC" in conf[f"spark.{side}.extraJavaOptions"]
        assert "org.apache.avro.limits" in conf[f"spark.{side}.extraJavaOptions"]
    assert "-XX:X" in conf["spark.driver.extraJavaOptions"]


def test_server_command_options() -> None:
    """Options are the user's, except what archives need."""
    options = ServerOptions(
        host="10.0.0.1",
        port=1,
        master="yarn",
        memory="8g",
        conf={"spark.ui.enabled": "true", "spark.sql.session.timeZone": "CET"},
        jars=["/j/c.jar"],
    )

    command = server_command(options, [], ["/j/a.jar"], "")

    conf = conf_of(command)
    assert command[1:3] == ["--master", "yarn"]
    assert command[command.index("--driver-memory") + 1] == "8g"
    assert command[command.index("--jars") + 1] == "/j/a.jar,/j/c.jar"
    assert conf["spark.connect.grpc.binding.address"] == "10.0.0.1"
    assert (conf["spark.ui.enabled"], conf["spark.sql.session.timeZone"]) == ("true", "UTC")


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("10.0.0.1", "10.0.0.1")],
)
def test_server_address(host: str, address: str) -> None:
    """A server that listens on all addresses is found on this machine's own."""
    assert ServerOptions(host=host, port=1).address.host == address


def test_require_free() -> None:
    """A port in use is refused before Java starts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} can't be used: Address already"):
            require_free(ServerOptions(port=port))
    require_free(ServerOptions(port=port))
    for none in (-1, 0, 65_536):
        with pytest.raises(ConfigError, match=f"port = {none} is not acceptable; .* 1 to 65535"):
            require_free(ServerOptions(port=none))


def test_accepts() -> None:
    """A server is ready when its port takes connections, and not before."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = ServerOptions(port=listening.getsockname()[1]).address
        assert not connect_server._accepts(address)
        listening.listen()
        assert connect_server._accepts(address)


class Server:
    """A server's process, which is ended by a signal or by itself.

    Attributes:
        ends: After how many looks it ends by itself; None for never.
        deaf: Whether it doesn't care about a request to end.
    """

    pid = 7

    def __init__(self, ends: int | None = None, *, deaf: bool = False) -> None:
        self.ends = ends
        self.deaf = deaf
        self.returncode: int | None = None
        self.signals: list[str] = []
        self.command: list[str] = []
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.returncode is not None, "it goes on"

    def poll(self) -> int | None:
        if self.returncode is None and self.ends is not None:
            self.ends -= 1
            if self.ends < 0:
                self.returncode = 3
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None:
            self.returncode = 0
        elif self.returncode is None:
            raise subprocess.TimeoutExpired("spark-submit", timeout)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self.signals.append("terminate")
        if not self.deaf:
            self.returncode = -15

    def kill(self) -> None:
        self.signals.append("kill")
        self.returncode = -9


Start = Callable[..., list[str]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Runs a server on a machine that has all it needs; returns what happens to its watcher.

    It accepts connections at the third look; each pause takes 40 seconds.
    """
    clock = [0.0]

    def pause(_: float) -> None:
        clock[0] += 40

    (tmp_path / "jars").mkdir()
    time = SimpleNamespace(monotonic=lambda: clock[0], sleep=pause)
    monkeypatch.setattr(connect_server, "time", time)
    monkeypatch.setattr(java, "require_java", lambda: Java(Path("/jdk/bin/java"), 17))
    monkeypatch.setattr(connect_server, "spark_home", lambda: tmp_path)
    monkeypatch.setattr(connect_server, "connector_jars", lambda is_needed: ["/c.jar"] * is_needed)
    monkeypatch.setattr(connect_server, "store_jars", lambda archive: ["/s3.jar"])
    monkeypatch.setattr(connect_server, "archive_name", lambda *_: "")
    monkeypatch.setattr(connect_server, "find_class_archive", lambda _: Path("/classes.jsa"))
    monkeypatch.setattr(connect_server, "require_free", lambda _: None)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)

    def run(
        server: Server, options: ServerOptions | None = None, looks: int = 2, **how: Any
    ) -> Any:
        happened: list[str] = []
        left = iter([False] * looks)
        monkeypatch.setattr(connect_server, "_accepts", lambda _: next(left, True))

        def popen(command: list[str], *, env: dict[str, str], **_: Any) -> Server:
            server.command, server.environment = command, env
            return server

        def watch(pid: int) -> Any:
            if "watch" in how:
                raise how["watch"]
            happened.append(f"watches {pid}")
            return SimpleNamespace(dismiss=lambda: happened.append("dismissed"))

        monkeypatch.setattr(connect_server.subprocess, "Popen", popen)
        monkeypatch.setattr(connect_server, "EndsWithParent", watch)
        ended = run_server(options or ServerOptions(), lambda: happened.append("ready"))
        return [*happened, f"ended {ended}"]

    return run


def test_run_server(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """Whoever waits is told when it accepts connections; its exit code is the command's."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    site = "spark.driver.extraClassPath /site.jar\nspark.executor.extraJavaOptions -Dsite=1\n"
    (tmp_path / "spark-defaults.conf").write_text(site)
    server = Server()
    options = ServerOptions(jars=["/own.jar"], conf={"spark.x": "1"}, with_store=True)

    assert start(server, options) == ["watches 7", "ready", "dismissed", "ended 0"]

    conf = conf_of(server.command)
    assert server.command[server.command.index("--jars") + 1] == "/c.jar,/own.jar,/s3.jar"
    assert conf["spark.x"] == "1"
    assert conf["spark.driver.extraClassPath"] == "/c.jar:/site.jar"
    assert "-Dsite=1" in conf["spark.executor.extraJavaOptions"]
    assert "-XX:SharedArchiveFile=/classes.jsa" in conf["spark.driver.extraJavaOptions"]
    assert "SPARK_REMOTE" not in server.environment
    # Such as the login of the store.
    assert server.environment["AWS_PROFILE"] == "mine"
    assert server.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert server.environment["JAVA_HOME"] == "/jdk"
    assert server.signals == []
    assert "listens on 127.0.0.1:15002, ready after 80.0 s; use --master sc://127.0.0.1" in said[0]


def test_run_server_elsewhere(start: Start) -> None:
    """Executors of other machines reach a driver that doesn't listen here alone."""
    server = Server()

    start(server, ServerOptions(master="spark://h:7077"))

    assert "SPARK_LOCAL_IP" not in server.environment
    assert server.command[server.command.index("--jars") + 1] == "/c.jar"


@pytest.mark.parametrize(
    ("ends", "deaf", "says", "signals"),
    [
        (1, False, "ended with exit code 3 before it was ready", []),
        (None, False, "didn't listen on port 15002 within 120 seconds", ["terminate"]),
        (None, True, "didn't listen on port 15002", ["terminate", "kill"]),
    ],
    ids=["ends", "hangs", "deaf"],
)
def test_run_server_not_ready(
    ends: int | None, deaf: bool, says: str, signals: list[str], start: Start
) -> None:
    """A server that doesn't come up is told, and doesn't stay."""
    server = Server(ends, deaf=deaf)

    with pytest.raises(MachineError, match=says):
        start(server, looks=9)

    assert server.signals == signals


@pytest.mark.parametrize("error", [OSError("no process"), KeyboardInterrupt()])
def test_run_server_not_watched(error: BaseException, start: Start) -> None:
    """A server that wouldn't end with this process is ended at once."""
    server = Server()

    with pytest.raises(type(error)):
        start(server, watch=error)

    assert server.signals == ["terminate"]


def test_run_server_client_only(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's package alone has no server."""
    (tmp_path / "jars").rmdir()

    with pytest.raises(MachineError, match="only pyspark-client is installed"):
        start(Server())


def test_run_server_port_taken(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another program listens, nothing is started, and that one isn't taken for it."""

    def refuse(options: ServerOptions) -> None:
        raise ConfigError(f"{options.port} can't be used")

    monkeypatch.setattr(connect_server, "require_free", refuse)
    server = Server()

    with pytest.raises(ConfigError, match="15002 can't be used"):
        start(server, looks=0)

    assert server.command == []


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_require_free_all_of_ipv6() -> None:
    """A server may listen on all addresses of both families."""
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        port = probe.getsockname()[1]

    require_free(ServerOptions(host="::", port=port))
