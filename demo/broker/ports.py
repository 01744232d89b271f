"""Find free ports on this machine's loopback interface."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterable, Sequence

from kafka_drain.errors import MachineError

__all__ = ["HOST", "all_free", "free_ports", "require_free"]

HOST = "127.0.0.1"


#: Below the ephemeral ports (32768 and up on Linux): otherwise a client that retries a stopped
#: broker could connect to an unrelated program there, such as Spark's driver.
_PORTS = range(10_240, 32_768)


def free_ports(count: int, avoid: Sequence[int]) -> tuple[int, ...]:
    """Return free ports, none of which is to be avoided."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            # All ports stay bound until the last one is found, so that none is returned twice.
            listener = stack.enter_context(socket.socket())
            port = random.choice(_PORTS)
            with contextlib.suppress(OSError):
                listener.bind((HOST, port))
                if port not in avoid:
                    ports.append(port)
    return tuple(ports)


def is_free(port: int) -> bool:
    with socket.socket() as listener:
        # As in Java: without it, ports of recently closed connections would count as in use.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def all_free(ports: Iterable[int]) -> bool:
    """Return whether all ports are free."""
    return all(is_free(port) for port in ports)


def require_free(ports: Iterable[int]) -> None:
    """Raise MachineError if a port is in use."""
    taken = [port for port in ports if not is_free(port)]
    if taken:
        raise MachineError(
            f"Port {', '.join(map(str, taken))} on {HOST} is in use by another program or not "
            "allowed; nothing was started. Stop that program, or choose another port."
        )
