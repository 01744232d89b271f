"""A server in the place of Spark Connect's, which answers any call, refuses it, or hangs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from tests.security.certificates import Certificate

__all__ = ["fake_server"]


class _Answers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers with an empty message, or refuses who doesn't know the token."""

    def __init__(self, token: str, asked: list[tuple[str, bytes]]) -> None:
        self._token, self._asked = token, asked

    def service(self, call: Any) -> Any:
        """Return what handles a call, whichever method it calls."""

        def answer(request: bytes, context: Any) -> bytes:
            known = dict(context.invocation_metadata()).get("authorization", "")
            if self._token and known != f"Bearer {self._token}":
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown token")
            self._asked.append((call.method.rpartition("/")[2], request))
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def fake_server(
    certificate: Certificate | None = None,
    token: str = "",
    asked: list[tuple[str, bytes]] | None = None,
) -> Iterator[int]:
    """Run a server; return its port on 127.0.0.1.

    Args:
        certificate: Its certificate; None for no TLS.
        token: What it asks for; empty for nothing.
        asked: Takes the methods that are called, and the requests.
    """
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads, [_Answers(token, [] if asked is None else asked)])
        if certificate is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            pair = (certificate.key.read_bytes(), certificate.certificate.read_bytes())
            port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()
