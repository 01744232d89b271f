"""What a Schema Registry is asked for, and what is said when it doesn't answer as it should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from kafka_drain.errors import AuthenticationError, ConfigError, RegistryUnavailableError
from kafka_drain.schemas.registry import RefusedError, SchemaRegistry, UnwellError, WriterSchema
from kafka_drain.storage.loopback import JsonHandler, loopback
from tests.fake_registry import LOGIN, FakeRegistry, fake_registry


def record(name: str, *fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "", "fields": list(fields)}


ID = {"name": "id", "type": "long"}
V1 = record("Order", ID)
V2 = record("Order", ID, {"name": "city", "type": ["null", "string"], "default": None})


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry(LOGIN) as running:
        running.register("orders-value", 7, V1)
        running.register("orders-value", 9, V2)
        yield running


def test_schemas_deleted_too(registry: FakeRegistry) -> None:
    """Also deleted versions are found: Kafka may still hold values of theirs."""
    registry.delete("orders-value", 1)
    client = SchemaRegistry(registry.settings)

    assert client.schemas("orders-value") == (
        [WriterSchema(7, V1, "orders-value", 1), WriterSchema(9, V2, "orders-value", 2)],
        [],
    )
    assert client.live_versions("orders-value") == [2]


@pytest.mark.parametrize("status", [429, 503])
def test_schemas_retry_after(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """A registry that asks for an hour's patience doesn't hold up a drain for an hour."""
    slept: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", slept.append)

    class Busy(JsonHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Retry-After", "3600")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with loopback(Busy, 0.02) as url, pytest.raises(RegistryUnavailableError, match=f"{status}"):
        SchemaRegistry({"url": url}).schemas("orders-value")

    assert len(slept) == 2
    assert max(slept) <= 10


@pytest.mark.parametrize("said", [{"status": "maintenance"}, [{}], "no", 3, {"id": 1}], ids=str)
@pytest.mark.parametrize("begins", [[], [[1]]], ids=["versions", "version"])
def test_schemas_other_answers(said: Any, begins: list[Any]) -> None:
    """What isn't a registry's answer, such as a proxy's, is an error that says so."""
    answers = iter(begins)

    class Proxy(JsonHandler):
        def do_GET(self) -> None:
            self.answer(200, next(answers, said))

    with (
        loopback(Proxy, 0.02) as url,
        pytest.raises(RegistryUnavailableError, match="isn't a Schema Registry's"),
    ):
        SchemaRegistry({"url": url}).schemas("orders-value")


def test_schemas_known(registry: FakeRegistry) -> None:
    """A version that is known isn't returned again; all are, if its id isn't the known one."""
    client = SchemaRegistry(registry.settings)
    found, _ = client.schemas("orders-value", known={1: [7]})

    assert [schema.id for schema in found] == [9]
    assert len(registry.asked) == 3
    for known in ({1: [8]}, {1: [7], 2: [7, 8]}):
        assert [schema.id for schema in client.schemas("orders-value", known)[0]] == [7, 9]
    assert client.schemas("orders-value", known={1: [8], 2: [9]})[0] == []
    registry.delete("orders-value", 2)
    assert client.schemas("orders-value", known={1: [7], 2: [9]})[0] == []


def test_schemas_references(registry: FakeRegistry) -> None:
    """A schema comes with all that it refers to: at second hand, twice, and deleted ones too."""
    city = {"name": "City", "subject": "city/value", "version": 1}
    registry.register("city/value", 1, record("City", {"name": "name", "type": "string"}))
    registry.register("stop-value", 4, record("Stop", {"name": "at", "type": "long"}))
    registry.register(
        "place-value",
        2,
        record("Place", {"name": "city", "type": "City"}),
        references=[city],
    )
    registry.register(
        "trip-value",
        3,
        record(
            "Trip",
            {"name": "from", "type": "Place"},
            {"name": "to", "type": "Place"},
            {"name": "by", "type": "Stop"},
        ),
        references=[
            {"name": "Place", "subject": "place-value", "version": 1},
            city,
            {"name": "Stop", "subject": "stop-value", "version": 1},
        ],
    )
    registry.delete("city/value", 1)

    [[trip], _] = SchemaRegistry(registry.settings).schemas("trip-value")

    first, second, by = trip.schema["fields"]
    assert first["type"]["fields"][0]["type"]["fields"] == [{"name": "name", "type": "string"}]
    assert second["type"] == "Place"
    assert by["type"]["fields"] == [{"name": "at", "type": "long"}]
    assert sum("city%2Fvalue" in path for path in registry.asked) == 1


def test_schemas_other_types(registry: FakeRegistry) -> None:
    """A version that isn't Avro is left out, and said."""
    registry.register("orders-value", 11, "syntax = 'proto3';", schemaType="PROTOBUF")
    registry.register("orders-value", 13, V2 | {"doc": "newest"})

    found, warnings = SchemaRegistry(registry.settings).schemas("orders-value")

    assert [schema.id for schema in found] == [7, 9, 13]
    assert warnings == ["version 3 of subject orders-value is PROTOBUF, not Avro"]


def test_schemas_type_null(registry: FakeRegistry) -> None:
    """A version whose type is null is Avro, as one without a type is."""
    registry.register("orders-value", 11, V1 | {"doc": "newer"}, schemaType=None)

    found, warnings = SchemaRegistry(registry.settings).schemas("orders-value")

    assert ([schema.id for schema in found], warnings) == ([7, 9, 11], [])


def test_schemas_subject_with_slash(registry: FakeRegistry) -> None:
    """A subject's name may have any character."""
    registry.register("a/b c?-value", 1, V1)

    [[schema], _] = SchemaRegistry(registry.settings).schemas("a/b c?-value")

    assert schema.subject == "a/b c?-value"


def test_registry_login_refused(registry: FakeRegistry) -> None:
    """A wrong login is named without showing it."""
    client = SchemaRegistry({"url": registry.url, "basic.auth.user.info": "reader:wr0ng"})

    with pytest.raises(AuthenticationError, match=r"rejects the login \(401\)") as caught:
        client.schemas("orders-value")
    assert "wr0ng" not in f"{caught.value!r} {client!r}"


def test_registry_right_missing(registry: FakeRegistry) -> None:
    """A login that lacks a right is refused, with the advice to grant it."""
    registry.fails = 403

    with pytest.raises(RefusedError, match=r"\(403\).*, or grant the login the right"):
        SchemaRegistry(registry.settings).live_versions("orders-value")


def test_registry_no_subject(registry: FakeRegistry) -> None:
    """A subject that isn't there is named."""
    with pytest.raises(ConfigError, match=r"has no /subjects/flights-value/versions"):
        SchemaRegistry(registry.settings).schemas("flights-value")


def test_registry_unwell(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that fails is asked three times, and a retry may help."""
    monkeypatch.setattr("urllib3.util.retry.time.sleep", lambda _: None)
    registry.fails = 503

    # Callers stop at this one, and go on after an odd answer to one request.
    with pytest.raises(UnwellError, match="returned 503"):
        SchemaRegistry(registry.settings).live_versions("orders-value")
    assert len(registry.asked) == 3
    # To register is repeated too: it changes nothing the second time.
    with pytest.raises(RegistryUnavailableError, match="returned 503"):
        SchemaRegistry(registry.settings).ask("POST", "/subjects/orders-value/versions", {})
    assert len(registry.asked) == 6


def test_registry_not_there() -> None:
    """Where nobody listens, a retry may help."""
    with fake_registry() as gone:
        settings = gone.settings

    with pytest.raises(RegistryUnavailableError, match="doesn't respond"):
        SchemaRegistry(settings).live_versions("orders-value")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "no valid url"),
        ({"url": "registry:8081"}, "no valid url"),
        ({"url": "ftp://registry:8081"}, "no valid url"),
        ({"url": "https://:8081"}, "no valid url"),
        ({"url": "https://r:8O81"}, "no valid url"),
        ({"url": "https://[::1"}, "no valid url"),
        ({"url": "https://me:s3cr3t@registry"}, "move it to basic.auth.user.info"),
        ({"url": "https://s3cr3t@registry"}, "move it to basic.auth.user.info"),
        ({"url": "https://:s3cr3t@registry"}, "move it to basic.auth.user.info"),
        ({"url": "http://registry", "basic.auth.user_info": "s3cr3t"}, "basic.auth.user.info"),
    ],
)
def test_registry_settings(settings: dict[str, str], says: str) -> None:
    """A setting that isn't accepted is named, its value isn't shown."""
    with pytest.raises(ConfigError, match=says) as caught:
        SchemaRegistry(settings)
    assert "s3cr3t" not in str(caught.value)


class Asked(Exception):
    """Raised in place of a request's answer."""


CLIENT = {"ssl.certificate.location": "cert"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"verify": True}),
        ({"basic.auth.user.info": "me:pass:word"}, {"auth": ("me", "pass:word")}),
        ({"bearer.auth.token": "abc"}, {"headers": {"Authorization": "Bearer abc"}}),
        ({"ssl.ca.location": "ca"}, {"verify": "ca"}),
        ({"ssl.ca.location": None, "basic.auth.user.info": None}, {"verify": True}),
        (CLIENT, {"cert": ("cert", "cert")}),
        ({**CLIENT, "ssl.key.location": "key"}, {"cert": ("cert", "key")}),
    ],
)
def test_registry_access(
    settings: dict[str, str],
    expected: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Login, certificates and a time limit go with each request."""
    monkeypatch.chdir(tmp_path)
    for name in ("ca", "cert", "key"):
        Path(name).touch()
    sent: dict[str, Any] = {}

    def request(session: object, *place: object, **given: Any) -> None:
        sent.update(given)
        raise Asked

    monkeypatch.setattr(requests.Session, "request", request)
    with pytest.raises(Asked):
        SchemaRegistry({"url": "https://registry", **settings}).live_versions("orders-value")

    assert 0 < sent.pop("timeout") <= 60
    assert sent == {"params": {}, "json": None, "verify": True, **expected}


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (requests.exceptions.SSLError("self-signed"), ConfigError, "self-signed.*ssl.ca.location"),
        (requests.exceptions.SSLError("[SSL: WRONG_VERSION_NUMBER]"), ConfigError, "write http://"),
        (
            requests.exceptions.SSLError(
                "url: /subjects/alerts-value/versions (Caused by SSLError(SSLCertVerificationError("
                "1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed')))"
            ),
            ConfigError,
            "isn't trusted.*set ssl.ca.location",
        ),
        (
            requests.exceptions.SSLError("sslv3 alert handshake failure"),
            ConfigError,
            "refuses this client .*set ssl.certificate.location",
        ),
        (requests.exceptions.ReadTimeout(), RegistryUnavailableError, r"respond \(ReadTimeout\)"),
        (requests.exceptions.JSONDecodeError("no", "", 0), RegistryUnavailableError, "respond"),
        (OSError("a certificate"), RegistryUnavailableError, "respond"),
    ],
)
def test_registry_no_answer(
    error: Exception, kind: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that isn't trusted stays so; the rest may pass."""

    def request(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(requests.Session, "request", request)
    with pytest.raises(kind, match=says):
        SchemaRegistry({"url": "https://registry"}).live_versions("orders-value")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"error_code": 42201, "message": "no such type"}', "no such type"),
        (b'{"error": "gateway"}', '{"error": "gateway"}'),
        (b'["gateway"]', r'\["gateway"\]'),
        (b"<html>gateway</html>", "<html>gateway</html>"),
    ],
)
@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, RegistryUnavailableError), (409, ConfigError), (422, ConfigError)],
)
def test_registry_refuses(
    content: bytes,
    says: str,
    status: int,
    kind: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why a request was refused is told, whatever it is written in."""
    answer = requests.Response()
    answer.status_code, answer._content = status, content
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: answer)

    with pytest.raises(kind, match=rf"{status}\b.*: {says}$"):
        SchemaRegistry({"url": "https://registry"}).ask("PUT", "/mode", {"mode": "IMPORT"})


@pytest.mark.parametrize(
    "name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"]
)
def test_registry_missing_file(registry: FakeRegistry, tmp_path: Path, name: str) -> None:
    """A file for TLS that isn't there is named, not taken for an unreachable registry."""
    settings = {**registry.settings, name: str(tmp_path / "it.pem")}

    with pytest.raises(ConfigError, match=rf"{name} = .*it.pem' isn't a file"):
        SchemaRegistry(settings).live_versions("orders-value")
