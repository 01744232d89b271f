"""A Schema Registry of few words: what Confluent's REST API answers about subjects."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import fastavro

LOGIN = "reader:s3cr3t-of-the-registry"


@dataclass
class FakeRegistry:
    """What is registered: by subject, its versions in order.

    Attributes:
        url: Where it answers.
        login: `user:password` that it asks for; empty for none.
        fails: A status that it answers to everything; 0 for none.
        asked: The paths that it was asked for.
    """

    url: str = ""
    login: str = ""
    fails: int = 0
    asked: list[str] = field(default_factory=list)
    _subjects: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    _deleted: set[tuple[str, int]] = field(default_factory=set)

    def register(self, subject: str, id_: int, schema: Any, **more: Any) -> None:
        """Register the next version of a subject."""
        versions = self._subjects.setdefault(subject, {})
        number = len(versions) + 1
        answer = {"subject": subject, "version": number, "id": id_, "schema": json.dumps(schema)}
        versions[number] = answer | more

    def delete(self, subject: str, version: int) -> None:
        """Delete a version softly, as people do: its id still decodes."""
        self._deleted.add((subject, version))

    @property
    def settings(self) -> dict[str, str]:
        """A client's settings."""
        login = {"basic.auth.user.info": self.login} if self.login else {}
        return {"url": self.url, **login}

    def answer(self, target: str, authorization: str | None) -> tuple[int, Any]:
        """Return status and document for a request."""
        self.asked.append(target)
        wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and authorization != wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.fails:
            return self.fails, {"error_code": self.fails, "message": "no"}
        url = urlsplit(target)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        deleted = parse_qs(url.query).get("deleted") == ["true"]
        subject = parts[1]
        versions = {
            number: answer
            for number, answer in self._subjects.get(subject, {}).items()
            if deleted or (subject, number) not in self._deleted
        }
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if len(parts) == 3:
            return 200, list(versions)
        return 200, versions[int(parts[3])]


@contextmanager
def fake_registry(login: str = "") -> Iterator[FakeRegistry]:
    """Run a registry on a port of its own."""
    registry = FakeRegistry(login=login)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = registry.answer(self.path, self.headers.get("Authorization"))
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def in_wire_format(id_: int, schema: Any, record: Any) -> bytes:
    """Return a value as Confluent's serializers write it."""
    payload = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    fastavro.schemaless_writer(payload, parsed, record)
    return b"\0" + id_.to_bytes(4, "big") + payload.getvalue()
