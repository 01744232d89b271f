"""The command line of a Spark Connect server."""

from __future__ import annotations

import socket

import pytest

from kafka_drain.config.spark_conf import FIXED
from kafka_drain.errors import ConfigError
from kafka_drain.spark.connect_server import ServerOptions, require_free, server_command


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
    assert conf.items() >= FIXED.items()
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
