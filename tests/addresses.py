"""Mistakes in the address of a Kafka, and the one sentence that is expected for each."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.security.secured_kafka import SecuredKafka

__all__ = ["NOT_HOST_AND_PORT", "Mistake", "mistakes_of_brokers", "mistakes_without_broker"]

_CHECK = (
    "check that the broker is running, and that bootstrap.servers is correct and reachable from "
    "here"
)

#: What isn't HOST:PORT.
NOT_HOST_AND_PORT = (
    "kafka",
    "kafka:",
    "kafka:x",
    ":9092",
    "http://kafka:9092",
    "kafka:9092:9093",
    "kafka:99999",
    "kafka:9092,other",
)


@dataclass(frozen=True)
class Mistake:
    """A mistake, and what is said of it.

    Attributes:
        name: Its name.
        address: The address that is given.
        sentence: What every command says; … stands for what the system or the broker adds.
        settings: Further settings of the connection.
        lasts: Whether waiting can't mend it, so that it is an error as soon as it is known.
        is_asked: Whether it is found by asking at the address, and not by its spelling.
    """

    name: str
    address: str
    sentence: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    lasts: bool = True
    is_asked: bool = True

    def is_said_in(self, line: str, after: str = "") -> bool:
        """Return whether a line ends with the sentence, and has exactly this before it, if any."""
        before = _pattern(after) if after else ".*"
        return re.fullmatch(before + _pattern(self.sentence), line) is not None


def _pattern(text: str) -> str:
    return ".*".join(map(re.escape, text.split("…")))


class _Web(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing: each request is an error."""


@contextmanager
def mistakes_without_broker() -> Iterator[list[Mistake]]:
    """Return the mistakes that need no real broker, with their addresses."""
    with ExitStack() as stack:
        unused, silent = (stack.enter_context(socket.socket()) for _ in range(2))
        unused.bind(("127.0.0.1", 0))
        silent.bind(("127.0.0.1", 0))
        # The system accepts connections, of which nobody hears.
        silent.listen(4096)
        web = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), _Web))
        thread = Thread(target=web.serve_forever, args=(0.05,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(web.shutdown)
        nobody, mute, other = (
            f"127.0.0.1:{port}"
            for port in (unused.getsockname()[1], silent.getsockname()[1], web.server_port)
        )
        # Such a name is unknown without asking a name server, which may take its time.
        unknown = "-no-such-host.invalid:9092"
        yield [
            Mistake(
                "refused",
                nobody,
                f"no response from Kafka at {nobody} within … s: {nobody} refuses connections; "
                f"{_CHECK}",
                lasts=False,
            ),
            Mistake(
                "silent",
                mute,
                f"no response from Kafka at {mute} within … s: {mute} accepts connections, but "
                f"doesn't answer; {_CHECK}",
                lasts=False,
            ),
            Mistake(
                "unknown host",
                unknown,
                f"no response from Kafka at {unknown}: {unknown} has a host name that isn't known "
                "(…); correct bootstrap.servers",
            ),
            Mistake(
                "not Kafka",
                other,
                f"no response from Kafka at {other}: {other} isn't Kafka: it answers something "
                "else; correct bootstrap.servers",
            ),
            *(_not_host_and_port(text) for text in NOT_HOST_AND_PORT),
        ]


def _not_host_and_port(text: str) -> Mistake:
    hint = "; leave out http://, and set security.protocol for TLS" if "://" in text else ""
    return Mistake(
        text,
        text,
        f"bootstrap.servers has '{text.rpartition(',')[2]}', which isn't HOST:PORT; accepted: "
        f"brokers as host:9092, separated by commas{hint}",
        is_asked=False,
    )


def mistakes_of_brokers(kafka: SecuredKafka) -> list[Mistake]:
    """Return the mistakes that a real broker answers: TLS on one side only, a wrong login."""
    tls, plain, login = (
        kafka.settings(protocol) for protocol in ("SSL", "PLAINTEXT", "SASL_PLAINTEXT")
    )
    at = "bootstrap.servers"
    return [
        Mistake(
            "plaintext to TLS",
            tls[at],
            f"no response from Kafka at {tls[at]}: {tls[at]} speaks TLS; set security.protocol to "
            "SSL in the Kafka connection, which has PLAINTEXT, or give the port of the listener "
            "without TLS",
        ),
        Mistake(
            "TLS to plaintext",
            plain[at],
            f"no response from Kafka at {plain[at]}: {plain[at]} doesn't speak TLS; set "
            "security.protocol to PLAINTEXT in the Kafka connection, which has SSL, or give the "
            "port of the listener with TLS",
            {"security.protocol": "SSL"},
        ),
        Mistake(
            "wrong login",
            login[at],
            f"Kafka at {login[at]} rejects the credentials: …; correct sasl.username, "
            "sasl.password or sasl.mechanism in the Kafka connection",
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "user",
                "sasl.password": "wrong",
            },
        ),
    ]
