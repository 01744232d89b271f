"""Members of groups that librdkafka has no clients for: they send heartbeats as Kafka's own do."""

from __future__ import annotations

import contextlib
import socket
import struct
import uuid
from collections.abc import Iterator

#: Numbers of Kafka's requests.
_SHARE_GROUP_HEARTBEAT, _STREAMS_GROUP_HEARTBEAT = 76, 88

_NO_TAGS = b"\0"
_NULL = b"\0"


@contextlib.contextmanager
def streams_member(address: str, group: str, topic: str) -> Iterator[None]:
    """Keep an application of Kafka Streams' own protocol (KIP-1071) in a group."""
    topology = b"".join(
        (
            b"\1",  # it isn't null
            struct.pack(">i", 0),
            _array(_text("0") + _array(_text(topic)) + _array() * 5 + _NO_TAGS),
            _NO_TAGS,
        )
    )
    body = b"".join(
        (
            _text(group),
            _text(str(uuid.uuid4())),
            struct.pack(">ii", 0, 0),
            _NULL * 2,  # instance, rack
            struct.pack(">i", 300_000),
            topology,
            _array() * 3,  # tasks
            _text("process"),
            b"\xff",  # no endpoint
            _array(),
            _NULL * 2,  # offsets of tasks
            b"\0",
            _NO_TAGS,
        )
    )
    with _joined(address, _STREAMS_GROUP_HEARTBEAT, 0, body):
        yield


@contextlib.contextmanager
def share_member(address: str, group: str, topic: str) -> Iterator[None]:
    """Keep a consumer in a share group (KIP-932)."""
    member = _text(str(uuid.uuid4()))
    body = _text(group) + member + struct.pack(">i", 0) + _NULL + _array(_text(topic)) + _NO_TAGS
    with _joined(address, _SHARE_GROUP_HEARTBEAT, 1, body):
        yield


@contextlib.contextmanager
def _joined(address: str, api: int, version: int, body: bytes) -> Iterator[None]:
    host, _, port = address.partition(":")
    client = b"\0\4test"
    request = struct.pack(">hhi", api, version, 1) + client + _NO_TAGS + body
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = _read(connection, struct.unpack(">i", _read(connection, 4))[0])
        # Correlation, tags, throttle time.
        [error] = struct.unpack_from(">h", answer, 4 + 1 + 4)
        if error:
            raise RuntimeError(f"the group refused its member: error {error}: {answer!r}")
        yield


def _read(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        content += connection.recv(size - len(content)) or _ended()
    return content


def _ended() -> bytes:
    raise ConnectionError("the broker closed the connection")


def _text(text: str) -> bytes:
    return bytes([len(text.encode()) + 1]) + text.encode()


def _array(*items: bytes) -> bytes:
    return bytes([len(items) + 1]) + b"".join(items)
