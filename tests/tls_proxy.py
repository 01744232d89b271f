"""A proxy for a Spark Connect server that ends TLS and lets in those who know the token."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from tests.security.certificates import Certificate

__all__ = ["tls_proxy"]

#: Of the connection, not of the call.
_OWN = ("authorization", "user-agent")
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class _Forwards(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Passes each call on as it is, bytes for bytes."""

    def __init__(self, channel: grpc.Channel, token: str) -> None:
        self._channel, self._token = channel, token

    def service(self, call: Any) -> Any:
        """Return what handles a call, whichever method it calls."""
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._forward(call, requests, context)
        )

    def _forward(self, call: Any, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        known = dict(call.invocation_metadata)
        if known.get("authorization") != f"Bearer {self._token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown token")
        metadata = [pair for pair in call.invocation_metadata if pair[0] not in _OWN]
        answers = self._channel.stream_stream(call.method)(requests, metadata=metadata)
        context.add_callback(answers.cancel)
        try:
            yield from answers
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata())
            context.abort(error.code(), error.details())


@contextmanager
def tls_proxy(port: int, certificate: Certificate, token: str) -> Iterator[int]:
    """Run a proxy in front of 127.0.0.1:port; return its own port."""
    with ThreadPoolExecutor(32) as threads:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", _OPTIONS)
        server = grpc.server(threads, [_Forwards(channel, token)], options=_OPTIONS)
        pair = (certificate.key.read_bytes(), certificate.certificate.read_bytes())
        own = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        server.start()
        try:
            yield own
        finally:
            server.stop(None).wait()
            channel.close()
