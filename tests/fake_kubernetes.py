"""A stand-in for Kubernetes: the API that Spark and kafka-drain use, over real HTTP, on loopback.

Each object that is created is checked against Kubernetes's own JSON schema. Nothing runs in its
pods, unless a test runs them as processes of this machine (`tests.kubernetes_node`).
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

KINDS = {
    "pods": "Pod",
    "secrets": "Secret",
    "services": "Service",
    "configmaps": "ConfigMap",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}
#: Of the schema; the newest that Spark 4.0's client knows is older.
VERSION = "1.33"

Object = dict[str, Any]


@dataclass
class FakeKubernetes:
    """What the API server knows.

    Attributes:
        address: Its URL.
        objects: Objects by kind (`pods`, …) and name, of all namespaces.
        requests: Method and path of each request.
        logins: The `Authorization` of each request.
        refuses: The status with which it answers everything, if it isn't 0.
        created: Called for each object that is created.
        deleted: Called for each object that is deleted.
    """

    address: str = ""
    objects: dict[str, dict[str, Object]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    requests: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    refuses: int = 0
    created: Callable[[Object], object] = id
    deleted: Callable[[Object], object] = id
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def master(self) -> str:
        """Its address as a Spark master."""
        return f"k8s://{self.address}"

    @property
    def pods(self) -> dict[str, Object]:
        """The pods by name."""
        return self.objects["pods"]

    def create(self, kind: str, namespace: str, content: Object) -> Object:
        """Create or replace an object; return it with what Kubernetes adds."""
        content.setdefault("kind", KINDS[kind])
        content.setdefault("apiVersion", "v1")
        kubernetes_validate.validate(content, VERSION, strict=True)
        meta = content["metadata"]
        meta |= {"namespace": namespace, "uid": str(uuid.uuid4()), "resourceVersion": "1"}
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
        if kind == "pods":
            content["status"] = {"phase": "Pending"}
        with self.lock:
            self.objects[kind][meta["name"]] = content
        self.created(content)
        return content

    def delete(self, kind: str, name: str) -> Object | None:
        """Delete an object, and those that it owns."""
        with self.lock:
            found = self.objects[kind].pop(name, None)
            if found is not None:
                uid = found["metadata"]["uid"]
                for each, objects in self.objects.items():
                    owned = [one for one, content in objects.items() if uid in _owners(content)]
                    for one in owned:
                        self.delete(each, one)
                self.deleted(found)
        return found

    def set_status(self, pod: str, phase: str, **status: Any) -> None:
        """Set a pod's status."""
        with self.lock:
            if pod in self.pods:
                self.pods[pod]["status"] = {"phase": phase, **status}

    def selected(self, kind: str, selector: str) -> list[Object]:
        """Return the objects of a kind that a label selector selects."""
        with self.lock:
            return [
                content
                for content in self.objects[kind].values()
                if all(_matches(content, each) for each in selector.split(",") if each)
            ]


def _status(message: str) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}


def _owners(content: Object) -> list[str]:
    return [each["uid"] for each in content["metadata"].get("ownerReferences", [])]


def _matches(content: Object, requirement: str) -> bool:
    labels = content["metadata"].get("labels", {})
    name, differs, value = requirement.partition("!=")
    if differs:
        return bool(labels.get(name) != value)
    name, equals, value = requirement.partition("=")
    if equals:
        return bool(labels.get(name) == value.lstrip("="))
    return requirement.lstrip("!") not in labels if name.startswith("!") else name in labels


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    known: FakeKubernetes

    def _handle(self) -> None:
        url = urlsplit(self.path)
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.known.logins.append(self.headers.get("Authorization") or "")
        self.known.requests.append(f"{self.command} {url.path}")
        parts = url.path.strip("/").split("/")
        if self.known.refuses:
            self._answer(self.known.refuses, {"message": "refused"})
        elif parts[:3] != ["api", "v1", "namespaces"] or len(parts) < 5 or parts[4] not in KINDS:
            self._answer(404, _status(f"no {url.path}"))
        else:
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            self._of_kind(parts[4], parts[3], parts[5:], query, content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _of_kind(
        self, kind: str, namespace: str, name: list[str], query: dict[str, str], content: bytes
    ) -> None:
        known, selector = self.known, query.get("labelSelector", "")
        if self.command in ("POST", "PUT", "PATCH"):
            asked = json.loads(content)
            if self.command == "POST" and asked["metadata"]["name"] in known.objects[kind]:
                self._answer(409, _status("it exists"))
                return
            try:
                self._answer(201, known.create(kind, namespace, asked))
            except kubernetes_validate.ValidationError as error:
                self._answer(422, {"message": str(error)})
        elif not name:
            found = known.selected(kind, selector)
            if self.command == "DELETE":
                for one in found:
                    known.delete(kind, one["metadata"]["name"])
            items = {"kind": f"{KINDS[kind]}List", "apiVersion": "v1", "items": found}
            self._answer(200, items | {"metadata": {"resourceVersion": "1"}})
        elif self.command == "DELETE":
            one = known.delete(kind, name[0])
            self._answer(200 if one else 404, one or _status("not found"))
        else:
            one = known.objects[kind].get(name[0])
            self._answer(200 if one else 404, one or _status("not found"))

    def _answer(self, status: int, content: Object) -> None:
        with self.known.lock:
            text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def fake_kubernetes() -> Iterator[FakeKubernetes]:
    """Serve an API."""
    known = FakeKubernetes()
    answers = type("Answers", (_Answers,), {"known": known})
    server = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    server.daemon_threads = True
    known.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
