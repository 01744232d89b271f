"""A broker as before Kafka 2.8: a proxy takes topic ids, and the cluster's id, out of its answers.

It lowers Metadata's highest version to 9 in the answers to ApiVersions, so that clients ask for a
version without topic ids, and empties the cluster's id in those to Metadata.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.broker import KafkaCluster as LocalKafka
from demo.broker.ports import HOST, free_ports
from tests.brokers import SHORT_LIVED

METADATA, API_VERSIONS = 3, 18
#: The last version of Metadata without topic ids.
WITHOUT_IDS = 9


def without_ids(answer: bytes, version: int) -> bytes:
    """Lower Metadata's highest version in an answer to ApiVersions."""
    found = bytearray(answer)
    # Correlation id, error code.
    at = 6
    if version < 3:
        (count,), at, size = struct.unpack_from(">i", found, at), at + 4, 6
    else:
        # The length of a compact array is one more than that; each entry ends with its tags.
        count, at = _varint(found, at)
        count, size = count - 1, 7
    for number in range(count):
        key, lowest, highest = struct.unpack_from(">hhh", found, at + number * size)
        if key == METADATA:
            newest = min(highest, WITHOUT_IDS)
            struct.pack_into(">hhh", found, at + number * size, key, lowest, newest)
    return bytes(found)


def without_cluster_id(answer: bytes, version: int) -> bytes:
    """Empty the cluster's id in an answer to Metadata of the version that has compact strings."""
    assert version == WITHOUT_IDS, version
    # Correlation id, tags, throttle time; then the brokers: id, host, port, rack, tags.
    brokers, at = _varint(answer, 9)
    for _ in range(brokers - 1):
        host, at = _varint(answer, at + 4)
        rack, at = _varint(answer, at + host - 1 + 4)
        at += max(rack - 1, 0) + 1
    length, end = _varint(answer, at)
    return answer[:at] + b"\0" + answer[end + length - 1 :]


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return an unsigned varint, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value, at = value | (byte & 0x7F) << shift, at + 1
        if byte < 0x80:
            return value, at
        shift += 7


class OldBroker:
    """Forwards connections, and changes the answers to some requests."""

    def __init__(self, port: int, broker_port: int) -> None:
        self._broker = HOST, broker_port
        self._listening = socket.create_server((HOST, port))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Close all connections."""
        for one in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._listening, *self._open):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(client)
            try:
                broker = socket.create_connection(self._broker)
            except OSError:
                client.shutdown(socket.SHUT_RDWR)
                continue
            self._open.append(broker)
            asked: dict[int, tuple[int, int]] = {}
            for ends in ((client, broker, asked, True), (broker, client, asked, False)):
                thread = threading.Thread(target=self._forward, args=ends)
                self._threads.append(thread)
                thread.start()

    def _forward(
        self,
        source: socket.socket,
        target: socket.socket,
        asked: dict[int, tuple[int, int]],
        are_requests: bool,
    ) -> None:
        with contextlib.suppress(OSError), source.makefile("rb") as incoming:
            while size := incoming.read(4):
                frame = incoming.read(*struct.unpack(">i", size))
                if are_requests:
                    key, version, number = struct.unpack_from(">hhi", frame)
                    if key in (METADATA, API_VERSIONS):
                        asked[number] = key, version
                else:
                    frame = _changed(frame, *asked.pop(*struct.unpack_from(">i", frame), (0, 0)))
                target.sendall(struct.pack(">i", len(frame)) + frame)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _changed(answer: bytes, key: int, version: int) -> bytes:
    if key == API_VERSIONS:
        return without_ids(answer, version)
    if key == METADATA:
        return without_cluster_id(answer, version)
    return answer


@contextmanager
def kafka_without_ids(folder: Path) -> Iterator[tuple[LocalKafka, str]]:
    """Start a broker with a second listener whose clients get no ids.

    Yields:
        The broker, and the address of that listener.
    """
    own, controller, inside, outside = free_ports(4, avoid=())
    listeners = (
        f"PLAINTEXT://{HOST}:{own},OLD://{HOST}:{{}},CONTROLLER://{HOST}:{controller}".format
    )
    properties = {
        "listeners": listeners(inside),
        "advertised.listeners": listeners(outside).rpartition(",")[0],
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
    }
    proxy = OldBroker(outside, inside)
    try:
        with LocalKafka(
            folder / "kafka", port=own, properties=properties, java_options=SHORT_LIVED
        ) as broker:
            yield broker, f"{HOST}:{outside}"
    finally:
        proxy.close()
