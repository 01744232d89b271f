"""What a Schema Registry is asked for, and what is said when it doesn't answer as it should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import AuthenticationError, ConfigError, RegistryUnavailableError
from kafka_drain.schemas.registry import SchemaRegistry, WriterSchema
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


def test_schemas_references(registry: FakeRegistry) -> None:
    """A schema comes with all that it refers to, also at second hand."""
    registry.register("city-value", 1, record("City", {"name": "name", "type": "string"}))
    registry.register(
        "place-value",
        2,
        record("Place", {"name": "city", "type": "City"}),
        references=[{"name": "City", "subject": "city-value", "version": 1}],
    )
    registry.register(
        "trip-value",
        3,
        record("Trip", {"name": "from", "type": "Place"}, {"name": "to", "type": "Place"}),
        references=[{"name": "Place", "subject": "place-value", "version": 1}],
    )

    [[trip], _] = SchemaRegistry(registry.settings).schemas("trip-value")

    first, second = trip.schema["fields"]
    assert first["type"]["fields"][0]["type"]["fields"] == [{"name": "name", "type": "string"}]
    assert second["type"] == "Place"


def test_schemas_other_types(registry: FakeRegistry) -> None:
    """A version that isn't Avro is left out, and said."""
    registry.register("orders-value", 11, "syntax = 'proto3';", schemaType="PROTOBUF")

    found, warnings = SchemaRegistry(registry.settings).schemas("orders-value")

    assert [schema.id for schema in found] == [7, 9]
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


def test_registry_no_subject(registry: FakeRegistry) -> None:
    """A subject that isn't there is named."""
    with pytest.raises(ConfigError, match=r"has no /subjects/flights-value/versions"):
        SchemaRegistry(registry.settings).schemas("flights-value")


def test_registry_unwell(registry: FakeRegistry) -> None:
    """A registry that fails is asked three times, and a retry may help."""
    registry.fails = 503

    with pytest.raises(RegistryUnavailableError, match="returned 503"):
        SchemaRegistry(registry.settings).live_versions("orders-value")
    assert len(registry.asked) == 3


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
        ({"url": "https://me:s3cr3t@registry"}, "move it to basic.auth.user.info"),
        ({"url": "http://registry", "basic.auth.user_info": "s3cr3t"}, "basic.auth.user.info"),
    ],
)
def test_registry_settings(settings: dict[str, str], says: str) -> None:
    """A setting that isn't accepted is named, its value isn't shown."""
    with pytest.raises(ConfigError, match=says) as caught:
        SchemaRegistry(settings)
    assert "s3cr3t" not in str(caught.value)


def test_registry_missing_ca(registry: FakeRegistry, tmp_path: Path) -> None:
    """A CA file that isn't there is named, not taken for an unreachable registry."""
    settings = {**registry.settings, "ssl.ca.location": str(tmp_path / "ca.pem")}

    with pytest.raises(ConfigError, match=r"ssl.ca.location = .*ca.pem' isn't a file"):
        SchemaRegistry(settings).live_versions("orders-value")
