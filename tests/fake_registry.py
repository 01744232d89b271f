"""A Schema Registry of few words: what Confluent's REST API answers about subjects."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

import fastavro

from kafka_drain.storage.loopback import JsonHandler, loopback

LOGIN = "reader:s3cr3t-of-the-registry"

Answer = tuple[int, Any]


@dataclass
class FakeRegistry:
    """What is registered: by subject, its versions in order.

    Attributes:
        url: Where it answers.
        login: `user:password` that it asks for; empty for none.
        fails: A status that it answers to everything; 0 for none.
        asked: The paths that it was asked for.
        has_guids: Whether it gives schemas GUIDs.
        keeps_ids: Whether it registers a schema with the id that it is sent with, in mode IMPORT.
        next_id: The id of the next new schema.
        statuses: What it answers to requests, by how their method and path begin.
        refuses: Subjects whose next versions it finds incompatible, unless they have level NONE.
    """

    url: str = ""
    login: str = ""
    fails: int = 0
    asked: list[str] = field(default_factory=list)
    has_guids: bool = False
    keeps_ids: bool = True
    next_id: int = 1000
    statuses: dict[str, int] = field(default_factory=dict)
    refuses: set[str] = field(default_factory=set)
    compatibility: dict[str, str] = field(default_factory=lambda: {"": "BACKWARD"})
    modes: dict[str, str] = field(default_factory=lambda: {"": "READWRITE"})
    _subjects: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    _deleted: set[tuple[str, int]] = field(default_factory=set)

    def register(self, subject: str, id_: int, schema: Any, **more: Any) -> None:
        """Register the next version of a subject."""
        versions = self._subjects.setdefault(subject, {})
        number = len(versions) + 1
        text = schema if isinstance(schema, str) and "{" in schema else json.dumps(schema)
        self._put(subject, number, id_, text, more)

    def _put(self, subject: str, number: int, id_: int, text: str, more: Mapping[str, Any]) -> None:
        answer = {"subject": subject, "version": number, "id": id_, "schema": text, **more}
        if self.has_guids:
            digest = hashlib.md5(f"{self.url}{text}".encode(), usedforsecurity=False).digest()
            answer["guid"] = str(UUID(bytes=digest))
        self._subjects.setdefault(subject, {})[number] = answer

    def delete(self, subject: str, version: int) -> None:
        """Delete a version softly, as people do: its id still decodes."""
        self._deleted.add((subject, version))

    @property
    def settings(self) -> dict[str, str]:
        """A client's settings."""
        login = {"basic.auth.user.info": self.login} if self.login else {}
        return {"url": self.url, **login}

    def answer(
        self, target: str, authorization: str | None, method: str = "GET", body: Any = None
    ) -> Answer:
        """Return status and document for a request."""
        self.asked.append(target)
        wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and authorization != wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.fails:
            return self.fails, {"error_code": self.fails, "message": "no"}
        for begins, status in self.statuses.items():
            if f"{method} {target}".startswith(begins):
                return status, {"error_code": status, "message": "no"}
        url = urlsplit(target)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        deleted = parse_qs(url.query).get("deleted") == ["true"]
        if parts[0] in ("config", "mode"):
            return self._setting(parts[0], "".join(parts[1:]), method, body)
        if parts[0] == "schemas":
            return self._schemas(parts[1:], deleted)
        if method == "POST":
            return self._post(parts[1], len(parts) == 3, body, deleted)
        return self._get(parts[1:], deleted)

    def _get(self, parts: list[str], deleted: bool) -> Answer:
        versions = self._versions(parts[0], deleted)
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{parts[0]}' not found."}
        if len(parts) == 2:
            return 200, list(versions)
        if int(parts[2]) not in versions:
            return 404, {"error_code": 40402, "message": f"Version {parts[2]} not found."}
        return 200, versions[int(parts[2])]

    def _versions(self, subject: str, deleted: bool) -> dict[int, dict[str, Any]]:
        return {
            number: answer
            for number, answer in self._subjects.get(subject, {}).items()
            if deleted or (subject, number) not in self._deleted
        }

    def _setting(self, kind: str, subject: str, method: str, body: Any) -> Answer:
        held = self.compatibility if kind == "config" else self.modes
        name = "compatibility" if kind == "config" else "mode"
        if method == "PUT":
            if kind == "mode" and self._versions(subject, False) and body["mode"] == "IMPORT":
                return 422, {"error_code": 42205, "message": "Cannot import: subject not empty"}
            held[subject] = body[name]
            return 200, body
        if subject not in held:
            return 404, {"error_code": 40408, "message": f"Subject '{subject}' has no {kind}."}
        return 200, {"compatibilityLevel" if kind == "config" else "mode": held[subject]}

    def _schemas(self, parts: list[str], deleted: bool) -> Answer:
        kind, wanted = parts[0].removesuffix("s"), parts[1]
        found = [
            answer
            for subject in self._subjects
            for answer in self._versions(subject, deleted or len(parts) == 2).values()
            if str(answer.get(kind)) == wanted
        ]
        if not found:
            return 404, {"error_code": 40403, "message": f"Schema {wanted} not found."}
        if parts[2:] == ["versions"]:
            return 200, [{name: one[name] for name in ("subject", "version")} for one in found]
        if parts[2:] == ["ids"]:
            return 200, [{"context": ".", "id": one["id"]} for one in found]
        return 200, {"schema": found[0]["schema"]}

    def _post(self, subject: str, registers: bool, body: Any, deleted: bool) -> Answer:
        more = {name: body[name] for name in ("schemaType", "references") if name in body}
        same = [
            answer
            for answer in self._versions(subject, deleted).values()
            if answer["schema"] == body["schema"]
            and answer.get("references") == body.get("references")
        ]
        if not registers:
            return (200, same[0]) if same else (404, {"error_code": 40403, "message": "no"})
        if same:
            return 200, {"id": same[0]["id"]}
        for reference in body.get("references", ()):
            if reference["version"] not in self._versions(reference["subject"], True):
                return 422, {"error_code": 42201, "message": f"no reference {reference['name']}"}
        level = self.compatibility.get(subject, self.compatibility[""])
        if subject in self.refuses and level != "NONE":
            return 409, {"error_code": 409, "message": "incompatible with an earlier schema"}
        mode = self.modes.get(subject, self.modes[""])
        if "id" in body and mode != "IMPORT":
            return 422, {"error_code": 42205, "message": "Subject isn't in import mode"}
        equal = [
            answer["id"]
            for versions in self._subjects.values()
            for answer in versions.values()
            if answer["schema"] == body["schema"]
            and answer.get("references") == body.get("references")
        ]
        number = max(self._versions(subject, True), default=0) + 1
        if "id" in body and self.keeps_ids:
            id_, number = body["id"], body["version"]
        elif equal:
            id_ = equal[0]
        else:
            id_, self.next_id = self.next_id, self.next_id + 1
        self._put(subject, number, id_, body["schema"], more)
        self._deleted.discard((subject, number))
        return 200, {"id": id_}


@contextmanager
def fake_registry(login: str = "", **more: Any) -> Iterator[FakeRegistry]:
    """Run a registry on a port of its own."""
    registry = FakeRegistry(login=login, **more)

    class Handler(JsonHandler):
        content_type = "application/vnd.schemaregistry.v1+json"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = json.loads(self.rfile.read(length)) if length else None
            login = self.headers.get("Authorization")
            status, document = registry.answer(self.path, login, self.command, sent)
            self.answer(status, document)

        do_POST = do_PUT = do_GET

    with loopback(Handler, 0.02) as address:
        registry.url = address
        yield registry


def in_wire_format(id_: int, schema: Any, record: Any) -> bytes:
    """Return a value as Confluent's serializers write it."""
    payload = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    fastavro.schemaless_writer(payload, parsed, record)
    return b"\0" + id_.to_bytes(4, "big") + payload.getvalue()
