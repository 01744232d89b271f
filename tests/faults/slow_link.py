"""A slow link to a broker: a TCP proxy that limits bytes per second in each direction."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.broker import KafkaCluster as LocalKafka
from demo.broker.ports import HOST, free_ports
from tests.brokers import SHORT_LIVED

#: Number of bytes forwarded at a time, so that connections share the link fairly.
CHUNK = 8 << 10


class Limit:
    """Limits the number of bytes per second; callers wait in turn."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def wait(self, size: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self.rate
            at = self._free_at
        time.sleep(max(0.0, at - now))


class SlowLink:
    """Forwards connections from one port to another.

    Attributes:
        up: The limit of the direction to the broker.
        down: The limit of the direction from the broker.
    """

    def __init__(self, port: int, broker_port: int, rate: float) -> None:
        self.up, self.down = Limit(rate), Limit(rate)
        self._broker = HOST, broker_port
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Proxy and kernel buffer little: data that was sent has nearly arrived.
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * CHUNK)
        self._listening.bind((HOST, port))
        self._listening.listen(100)
        self._open: list[socket.socket] = []
        self._forwarding: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        """Close all connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._forwarding:
            thread.join()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            broker = socket.socket()
            self._open += (client, broker)
            broker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * CHUNK)
            try:
                broker.connect(self._broker)
            except ConnectionRefusedError:
                client.shutdown(socket.SHUT_RDWR)
                continue
            for ends in ((client, broker, self.up), (broker, client, self.down)):
                thread = threading.Thread(target=self._forward, args=ends)
                thread.start()
                self._forwarding.append(thread)

    def _forward(self, source: socket.socket, target: socket.socket, limit: Limit) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK):
                limit.wait(len(chunk))
                target.sendall(chunk)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def kafka_behind(folder: Path, rate: float) -> Iterator[tuple[LocalKafka, str, SlowLink]]:
    """Start a broker with a second listener behind a slow link.

    Yields:
        The broker, the address of its slow listener, and the link.
    """
    fast, controller, inside, outside = free_ports(4, avoid=())
    listeners = (
        f"PLAINTEXT://{HOST}:{fast},SLOW://{HOST}:{{}},CONTROLLER://{HOST}:{controller}".format
    )
    properties = {
        "listeners": listeners(inside),
        "advertised.listeners": listeners(outside).rpartition(",")[0],
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SLOW:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        # The tests' transactions are short.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    link = SlowLink(outside, inside, rate)
    try:
        with LocalKafka(
            folder / "kafka", port=fast, properties=properties, java_options=SHORT_LIVED
        ) as broker:
            yield broker, f"{HOST}:{outside}", link
    finally:
        link.close()
