"""Why no broker answers: what each kind of address says, on real sockets."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.kafka.admin import Admin
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.reaching import (
    AddressAnswer,
    Reached,
    is_lasting,
    reach,
    reasons,
    remedy,
    speaks_tls,
)
from tests.security.certificates import Certificates

CHECK = "check that the broker is running"


@contextmanager
def listener(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """Let a function have each connection that is made to a port, until it returns."""
    ended = Event()
    with socket.socket() as server, ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.02)

        def serve() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    connection, _ = server.accept()
                    connection.settimeout(5)
                    with connection, suppress(OSError):
                        handle(connection)

        thread = Thread(target=serve)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        yield int(server.getsockname()[1])


def kafka(connection: socket.socket) -> None:
    """Answer the first request as a broker does: with the request's id."""
    asked = connection.recv(1000)
    if asked[:1] == b"\x16":
        # The first bytes of TLS are the size of a request that is too large.
        return
    connection.sendall(b"\0\0\0\x06" + asked[8:12] + b"\0\0")


def web(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def web_by_line(connection: socket.socket) -> None:
    """Answer as a web server does that waits for the end of what it is asked."""
    asked = b""
    while b"\r\n\r\n" not in asked and (more := connection.recv(1000)):
        asked += more
    if asked:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def old_tls(connection: socket.socket) -> None:
    """Speak TLS in a way that Python's library refuses; librdkafka's may not."""
    if connection.recv(1000)[:1] == b"\x16":
        # A ServerHello that ends early.
        connection.sendall(b"\x16\x03\x03\0\x06\x02\0\0\x02\x03\x03")
        connection.recv(1000)


def silent(connection: socket.socket) -> None:
    while connection.recv(1000):
        pass


def closing(connection: socket.socket) -> None:
    connection.recv(1000)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """What a server with TLS needs."""
    signed = Certificates(Path(tmp_path_factory.mktemp("certificates"))).sign("broker")
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(signed.certificate, signed.key)
    return found


@pytest.fixture(scope="module")
def of_kind(context: ssl.SSLContext) -> Iterator[dict[str, str]]:
    """An address of each kind."""

    def tls(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1000)

    def web_tls(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            web(wrapped)

    def kafka_tls(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            kafka(wrapped)

    kinds = (kafka, web, web_by_line, old_tls, silent, closing, tls, web_tls, kafka_tls)
    with ExitStack() as stack, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield {
            "refused": f"127.0.0.1:{unused.getsockname()[1]}",
            "unknown": "no-such-host.invalid:9092",
            "label": "kafka..svc:9092",
            **{
                handle.__name__: f"127.0.0.1:{stack.enter_context(listener(handle))}"
                for handle in kinds
            },
        }


@pytest.mark.parametrize(
    ("kind", "protocol", "answer", "lasts", "todo"),
    [
        ("kafka", "plaintext", AddressAnswer.ANSWERS, False, CHECK),
        ("kafka", "SASL_PLAINTEXT", AddressAnswer.ANSWERS, False, CHECK),
        ("tls", "ssl", AddressAnswer.ANSWERS, False, CHECK),
        ("refused", "plaintext", AddressAnswer.REFUSED, False, CHECK),
        ("refused", "ssl", AddressAnswer.REFUSED, False, CHECK),
        ("unknown", "plaintext", AddressAnswer.UNKNOWN_HOST, True, "correct bootstrap.servers"),
        ("silent", "plaintext", AddressAnswer.SILENT, False, CHECK),
        ("silent", "ssl", AddressAnswer.SILENT, False, CHECK),
        ("closing", "plaintext", AddressAnswer.CLOSES, False, CHECK),
        ("closing", "ssl", AddressAnswer.CLOSES, False, CHECK),
        ("tls", "plaintext", AddressAnswer.TLS, True, "set security.protocol to SSL "),
        ("tls", "sasl_plaintext", AddressAnswer.TLS, True, "set security.protocol to SASL_SSL "),
        ("kafka", "SSL", AddressAnswer.PLAINTEXT, True, "set security.protocol to PLAINTEXT "),
        (
            "kafka",
            "sasl_ssl",
            AddressAnswer.PLAINTEXT,
            True,
            "set security.protocol to SASL_PLAINTEXT ",
        ),
        ("web", "plaintext", AddressAnswer.OTHER, True, "correct bootstrap.servers"),
        ("web", "ssl", AddressAnswer.OTHER, True, "correct bootstrap.servers"),
        ("web_by_line", "plaintext", AddressAnswer.OTHER, True, "correct bootstrap.servers"),
        ("web_by_line", "ssl", AddressAnswer.OTHER, True, "correct bootstrap.servers"),
        ("web_tls", "ssl", AddressAnswer.OTHER, True, "correct bootstrap.servers"),
        ("web_tls", "plaintext", AddressAnswer.TLS, True, "set security.protocol to SSL "),
        ("kafka_tls", "ssl", AddressAnswer.ANSWERS, False, CHECK),
        ("old_tls", "ssl", AddressAnswer.ANSWERS, False, CHECK),
        ("old_tls", "plaintext", AddressAnswer.CLOSES, False, CHECK),
        ("label", "plaintext", AddressAnswer.UNKNOWN_HOST, True, "correct bootstrap.servers"),
    ],
)
def test_reach(
    kind: str, protocol: str, answer: AddressAnswer, lasts: bool, todo: str, of_kind: dict[str, str]
) -> None:
    """Each kind of address is told apart, with what to do."""
    (reached,) = reach(of_kind[kind], protocol, 0.5)

    assert (reached.address, reached.answer) == (of_kind[kind], answer)
    assert is_lasting([reached]) is lasts
    assert remedy([reached], protocol).startswith(todo)
    assert reasons([reached]) == ("" if answer is AddressAnswer.ANSWERS else str(reached))


def test_reach_several(of_kind: dict[str, str]) -> None:
    """Each address has its own reason; one that may come back, or answers, is waited for."""
    both = reach(f"{of_kind['refused']}, {of_kind['unknown']}", "plaintext")

    assert [each.answer for each in both] == [AddressAnswer.REFUSED, AddressAnswer.UNKNOWN_HOST]
    assert f"{of_kind['refused']} refuses connections, no-such-host" in reasons(both)
    assert not is_lasting(both)
    assert "correct bootstrap.servers" in remedy(both, "plaintext")
    one = [*both, Reached("b:9092", AddressAnswer.ANSWERS)]
    assert (reasons(one), is_lasting(one), is_lasting([])) == ("", False, False)


def test_speaks_tls(of_kind: dict[str, str]) -> None:
    """A handshake tells who speaks TLS."""
    spoken = {kind: of_kind[kind].split(":") for kind in ("tls", "kafka", "refused")}

    assert {kind: speaks_tls(host, int(port), 0.5) for kind, (host, port) in spoken.items()} == {
        "tls": True,
        "kafka": False,
        "refused": False,
    }


@pytest.mark.parametrize(
    ("kind", "protocol", "says"),
    [
        ("unknown", "plaintext", "no-such-host.invalid:9092 has a host name that isn't known"),
        ("tls", "plaintext", "speaks TLS; set security.protocol to SSL in the Kafka connection"),
        ("kafka", "ssl", "doesn't speak TLS; set security.protocol to PLAINTEXT in the Kafka"),
        ("web", "plaintext", "isn't Kafka: it answers something else; correct bootstrap.servers"),
        ("tls", "ssl", "certificate verify failed"),
    ],
)
def test_ask_address_that_waiting_does_not_mend(
    kind: str, protocol: str, says: str, of_kind: dict[str, str]
) -> None:
    """What waiting can't mend is an error within seconds, not after the whole timeout."""
    settings = {"bootstrap.servers": of_kind[kind], "security.protocol": protocol}
    began = time.monotonic()

    with pytest.raises(KafkaUnavailableError) as raised:
        Admin(KafkaConfig(settings), 30).ask(lambda client: client.list_topics(timeout=30))

    assert time.monotonic() - began < 10
    assert says in str(raised.value)


def test_ask_refused_address(of_kind: dict[str, str]) -> None:
    """A broker that isn't running may come back: it is waited for, and named in the end."""
    admin = Admin(KafkaConfig({"bootstrap.servers": of_kind["refused"]}), 1)

    with pytest.raises(KafkaUnavailableError) as raised:
        admin.ask(lambda client: client.list_topics(timeout=1))

    assert str(raised.value).startswith(f"no response from Kafka at {of_kind['refused']} within 1 ")
    assert f": {of_kind['refused']} refuses connections; {CHECK}" in str(raised.value)


@pytest.mark.parametrize(("kind", "why"), [("refused", "refuses"), ("silent", "doesn't answer")])
def test_look(kind: str, why: str, of_kind: dict[str, str], monkeypatch: Any) -> None:
    """A look takes as long as it says, and returns what a request would raise."""
    monkeypatch.setattr("kafka_drain.kafka.admin.LOOK_SECONDS", 1.5)
    began = time.monotonic()

    missed = Admin(KafkaConfig({"bootstrap.servers": of_kind[kind]})).look()

    assert time.monotonic() - began < 2.5
    assert isinstance(missed, KafkaUnavailableError)
    assert f"{of_kind[kind]} within 1.5 s: " in str(missed)
    assert why in str(missed)


def test_remedy_login() -> None:
    """A connection with a login keeps it, with TLS."""
    tls = [Reached("k:1", AddressAnswer.TLS)]

    assert remedy(tls, "plaintext", logs_in=True).startswith("set security.protocol to SASL_SSL ")
