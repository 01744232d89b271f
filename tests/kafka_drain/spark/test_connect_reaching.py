"""What a Spark Connect server says to a look: each way in which it doesn't answer is told apart."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.spark import connect_reaching
from kafka_drain.spark.connect import ConnectAddress
from kafka_drain.spark.connect_reaching import (
    _requests,
    look_at_server,
    require_server,
    unreached,
)
from kafka_drain.spark.engine import NoServerError
from kafka_drain.spark.place import SparkConnection
from tests.fake_spark_connect import fake_server
from tests.security.certificates import Certificates

ADDRESS = ConnectAddress("spark", 15002)
TOKEN = "s3cret"


@pytest.mark.parametrize(
    ("message", "kind", "means"),
    [
        ("StatusCode.UNAVAILABLE ... Connection refused", NoServerError, "it refuses connections"),
        ("StatusCode.UNAVAILABLE errors resolving a:1: ...", NoServerError, "host name isn't kno"),
        ("StatusCode.DEADLINE_EXCEEDED Deadline Exceeded", NoServerError, "answer within 5 s; sta"),
        ("StatusCode.UNAVAILABLE recvmsg:Connection reset by", NoServerError, "closes each conne"),
        ("StatusCode.UNAVAILABLE Failed parsing HTTP/2", NoServerError, "doesn't speak gRPC"),
        ("StatusCode.UNIMPLEMENTED unknown service", NoServerError, "but isn't Spark"),
        ("StatusCode.INTERNAL what now", NoServerError, "StatusCode.INTERNAL what now; start one"),
        ("StatusCode.UNAUTHENTICATED who?", ConfigError, "refuses the token; set $SPARK_CONNECT"),
        ("Tls handshake failed CERTIFICATE_VERIFY_FAILED", ConfigError, "trusted certificate"),
        ("Tls handshake failed WRONG_VERSION_NUMBER", ConfigError, "doesn't speak TLS"),
        ("Handshake read failed (Socket closed)", ConfigError, "doesn't speak TLS"),
    ],
)
def test_unreached(message: str, kind: type[Exception], means: str) -> None:
    """What gRPC says becomes a sentence with the address, and what to do."""
    found = unreached(ADDRESS, message, 5.0)

    assert type(found) is kind
    assert means in str(found)
    assert "sc://spark:15002" in str(found)


def test_look_at_server_as_spark_reads_it() -> None:
    """The requests are those of Spark's protocol, and the session that they open is released."""
    base = pytest.importorskip("pyspark.sql.connect.proto.base_pb2")
    if not hasattr(base, "ReleaseSessionRequest"):
        pytest.skip("Spark 3.5's protocol releases no session")
    asked: list[tuple[str, bytes]] = []
    with fake_server(asked=asked) as port:
        assert look_at_server(ConnectAddress("127.0.0.1", port)) is None

    (first, config), (second, release) = asked
    assert (first, second) == ("Config", "ReleaseSession")
    read = base.ConfigRequest.FromString(config)
    assert list(read.operation.get_option.keys) == ["spark.sql.session.timeZone"]
    assert read.user_context.user_id == "kafka-drain"
    assert base.ReleaseSessionRequest.FromString(release).session_id == read.session_id
    assert _requests("a") != _requests("b")


#: Looks at addresses in a process of its own: gRPC reads its settings once.
LOOKS = """
import json, sys
from kafka_drain.spark.connect import ConnectAddress
from kafka_drain.spark.connect_reaching import look_at_server
for host, port, tls, token in json.load(sys.stdin):
    address = ConnectAddress(host, port, {"use_ssl": "true"} if tls else {})
    missed = look_at_server(address, token, 2.0)
    print(json.dumps([type(missed).__name__, str(missed)]))
"""


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, int], Path]]:
    """The port of each kind of server, and the certificate of whom to trust."""
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    signed = certificates.sign("connect")
    with ExitStack() as stack, socket.socket() as hangs, socket.socket() as unused:
        hangs.bind(("127.0.0.1", 0))
        hangs.listen()
        unused.bind(("127.0.0.1", 0))
        yield (
            {
                "plain": stack.enter_context(fake_server()),
                "tls": stack.enter_context(fake_server(signed)),
                "token": stack.enter_context(fake_server(signed, TOKEN)),
                "hangs": hangs.getsockname()[1],
                "refuses": unused.getsockname()[1],
            },
            certificates.authority,
        )


def test_look_at_server(ports: tuple[dict[str, int], Path]) -> None:
    """Real servers: each is accepted, or told apart, and nothing else is printed."""
    of_kind, authority = ports
    cases = [
        ("plain", False, "", None, ""),
        ("tls", True, "", None, ""),
        ("token", True, TOKEN, None, ""),
        ("token", True, "wrong", "ConfigError", "refuses the token"),
        ("token", True, "", "ConfigError", "refuses the token"),
        ("plain", True, "", "ConfigError", "doesn't speak TLS"),
        ("plain", False, TOKEN, "ConfigError", "doesn't speak TLS"),
        ("tls", False, "", "ConfigError", "speaks TLS; add /;use_ssl=true to the master"),
        ("hangs", False, "", "NoServerError", "accepts connections, but doesn't answer within 2"),
        ("hangs", True, TOKEN, "NoServerError", "doesn't answer within 2 s"),
        ("refuses", False, "", "NoServerError", "it refuses connections; start one with"),
    ]
    asked = [("127.0.0.1", of_kind[kind], tls, token) for kind, tls, token, _, _ in cases]
    ended = subprocess.run(
        [sys.executable, "-c", LOOKS],
        env={**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority)},
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(answers) == len(cases)
    for (kind, _, token, expected, means), (found, said) in zip(cases, answers, strict=True):
        assert found == (expected or "NoneType"), (kind, said)
        assert means in said, kind
        assert token not in ("", "wrong") or TOKEN not in said
    assert ended.stderr == ""


def test_look_at_server_untrusted(ports: tuple[dict[str, int], Path]) -> None:
    """A certificate that nobody vouches for is said, with where to name its authority."""
    of_kind, _ = ports
    missed = look_at_server(ConnectAddress("127.0.0.1", of_kind["tls"], {"use_ssl": "true"}))

    assert isinstance(missed, ConfigError)
    assert "doesn't have a trusted certificate; name a PEM file" in str(missed)


def test_require_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is asked with the connection's token; another master's isn't asked at all."""
    asked: list[tuple[ConnectAddress, str]] = []
    missed: list[NoServerError | None] = [None, NoServerError("nobody")]

    def look(address: ConnectAddress, token: str) -> NoServerError | None:
        asked.append((address, token))
        return missed.pop(0)

    monkeypatch.setattr(connect_reaching, "look_at_server", look)
    for master in ("local[*]", "yarn", "spark://h:1"):
        require_server(SparkConnection(master, token=TOKEN))
    assert asked == []

    require_server(SparkConnection("sc://h:1", token=TOKEN))
    with pytest.raises(NoServerError, match="nobody"):
        require_server(SparkConnection("sc://h:1", token=TOKEN))

    assert asked == [(ConnectAddress("h", 1), TOKEN)] * 2
