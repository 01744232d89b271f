"""A Maven repository of few files, by HTTP or HTTPS, that can fail as real ones do."""

from __future__ import annotations

import base64
import hashlib
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from kafka_drain.spark.jars.lock import LockedJar

__all__ = ["MavenServer", "locked", "maven_server"]


@dataclass
class MavenServer:
    """What the repository holds, and what happens next.

    Attributes:
        url: Its base URL.
        files: What it holds, by path below the base URL.
        login: `user:password` that it asks for; empty for none.
        statuses: Answered to the next requests in place of a file.
        retry_after: How long it asks to wait, with these.
        cuts: Of so many of the next answers only the first half arrives.
        gate: Where it is clear, the second half of an answer waits for it.
        asked: What it was asked for, as in the requests' first lines.
        was_asked: Set by the first request.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    login: str = ""
    statuses: list[int] = field(default_factory=list)
    cuts: int = 0
    retry_after: str = ""
    gate: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)
    was_asked: threading.Event = field(default_factory=threading.Event)

    def answer(self, target: str, authorization: str | None) -> tuple[int, bytes]:
        """Return status and body for a request."""
        self.asked.append(target)
        self.was_asked.set()
        wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and authorization != wanted:
            return 401, b"log in first"
        if self.statuses:
            return self.statuses.pop(0), b"not now"
        body = self.files.get(urlsplit(target).path.removeprefix("/maven2/"))
        return (404, b"not here") if body is None else (200, body)


def locked(files: Mapping[str, bytes]) -> list[LockedJar]:
    """Return the jars of a lock that was made of these files."""
    return [
        LockedJar(path, len(body), hashlib.sha256(body).hexdigest()) for path, body in files.items()
    ]


@contextmanager
def maven_server(tls: ssl.SSLContext | None = None) -> Iterator[MavenServer]:
    """Run a repository on a port of its own."""
    repository = MavenServer()
    repository.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = repository.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if status != 200 and repository.retry_after:
                self.send_header("Retry-After", repository.retry_after)
            self.end_headers()
            half = len(body) // 2
            self.wfile.write(body[:half])
            self.wfile.flush()
            repository.gate.wait(30)
            if status == 200 and repository.cuts:
                repository.cuts -= 1
                return
            # Who was killed meanwhile hears nothing more.
            with suppress(ConnectionError):
                self.wfile.write(body[half:])

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    repository.url = f"{scheme}://127.0.0.1:{server.server_port}/maven2"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield repository
    finally:
        repository.gate.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
