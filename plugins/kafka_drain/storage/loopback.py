"""A server on this machine's loopback address that answers in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar


class JsonHandler(BaseHTTPRequestHandler):
    """Answers requests with JSON documents, and logs nothing."""

    content_type: ClassVar[str] = "application/json"

    def answer(self, status: int, document: object) -> None:
        """Answer a request."""
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", self.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@contextmanager
def loopback(handler: type[JsonHandler], poll_seconds: float = 0.5) -> Iterator[str]:
    """Serve requests during the body.

    Args:
        handler: Answers them, in threads.
        poll_seconds: Longest duration of the end, in seconds; it wakes up as often.

    Yields:
        The server's address, `http://127.0.0.1:<port>`.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = Thread(target=server.serve_forever, args=(poll_seconds,), daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()
