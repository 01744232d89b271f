"""Keys and values decoded by their ids: with the archive's schemas and with a registry's."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import fastavro
import pytest

from kafka_drain.archive.documents import RegistryDocument, SchemasDocument
from kafka_drain.errors import ConfigError
from kafka_drain.schemas.decoders import (
    Decoders,
    SchemaText,
    archived_schemas,
    kept_schemas,
    reader_of,
    registered_schemas,
)
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.schemas.schema_ids import SchemaId
from kafka_drain.schemas.subjects import Subjects, read_subject
from tests.fake_registry import FakeRegistry, fake_registry, in_wire_format

CITY = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "city", "type": "City"}]}
WHOLE = ORDER | {"fields": [{"name": "city", "type": CITY}]}
PROTO = 'syntax = "proto3"; message Outer { message Inner { int32 n = 1; } }'
VALUE = {"city": {"name": "Bonn"}}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry(has_guids=True) as running:
        running.register("city", 3, CITY)
        running.register(
            "order", 4, ORDER, references=[{"name": "City", "subject": "city", "version": 1}]
        )
        running.register("proto", 5, PROTO, schemaType="PROTOBUF")
        running.register("json", 6, {"type": "object"}, schemaType="JSON")
        running.register("xml", 7, "<xml{>", schemaType="XML")
        yield running


@pytest.fixture(params=["registry", "archive"])
def decoders(request: pytest.FixtureRequest, registry: FakeRegistry) -> Decoders:
    """Decoders of a registry, and of what an archive keeps of it."""
    subjects = Subjects(SchemaRegistry(registry.settings))
    if request.param == "registry":
        return Decoders(registered_schemas(subjects))
    names = ("city", "order", "proto", "json", "xml")
    rows = [read_subject(subjects, name, None, {}) for name in names]
    kept = {"subjects": [row for row in rows if row]}
    return Decoders(kept_schemas(RegistryDocument.empty().model_copy(update=kept)))


def test_decode(decoders: Decoders, registry: FakeRegistry) -> None:
    """Each kind is decoded; what has no id, and null, isn't."""
    proto = b"\0\0\0\0\5\4\0\0\x08\x07"
    order = in_wire_format(4, WHOLE, VALUE)

    for payload, expected in (
        (order, (4, VALUE)),
        (proto, (5, {"Outer.Inner": {"n": 7}})),
        (b"\0\0\0\0\6" + b'{"a": 1}', (6, {"a": 1})),
    ):
        found = decoders.decode("value", payload, [("other", b"x")])
        assert found is not None
        assert (found.id, found.value) == expected
    assert decoders.decode("key", b"plain", None) is None
    assert decoders.decode("key", None, None) is None
    asked = len(registry.asked)
    decoders.decode("key", order, None)
    assert len(registry.asked) == asked


def test_decode_by_header(decoders: Decoders, registry: FakeRegistry) -> None:
    """A GUID in the part's own header counts; Protobuf's indexes are then in the header."""
    guids = {name: UUID(registry._subjects[name][1]["guid"]).bytes for name in ("order", "proto")}
    payload = in_wire_format(4, WHOLE, VALUE)[5:]

    found = decoders.decode("value", payload, [("__value_schema_id", b"\1" + guids["order"])])
    assert found is not None
    assert found.value == VALUE
    headers = [("__key_schema_id", b"\1" + guids["proto"] + b"\4\0\0")]
    found = decoders.decode("key", b"\x08\x07", headers)
    assert found is not None
    assert found.value == {"Outer.Inner": {"n": 7}}


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"\0\0\0\0\x63", "schema id 99 is unknown"),
        (b"\0\0\0\0\4", "Error"),
        (in_wire_format(4, WHOLE, VALUE) + b"x", "left over"),
        (b"\0\0\0\0\6{", "Expecting"),
        (b"\0\0\0\0\7x", "type XML aren't supported"),
        (b"\0\0\0\0\5", "no message indexes"),
    ],
)
def test_decode_not_possible(decoders: Decoders, payload: bytes, says: str) -> None:
    """Whatever is wrong with an id or its bytes is one type of error."""
    with pytest.raises(ValueError, match=says):
        decoders.decode("value", payload, None)


@pytest.mark.parametrize("schema", [None, SchemaText("PROTOBUF", 'import "gone.proto";')])
def test_decode_asks_once(schema: SchemaText | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema is looked for and compiled once, also if there is none or it is wrong."""
    asked: list[Any] = []
    made: list[Any] = []

    def find(id_: SchemaId) -> SchemaText | None:
        asked.append(id_)
        return schema

    def reader_of(found: SchemaText) -> Any:
        made.append(found)
        raise ConfigError("a schema isn't Protobuf")

    monkeypatch.setattr("kafka_drain.schemas.decoders.reader_of", reader_of)
    decoders = Decoders(find)
    for _ in range(3):
        with pytest.raises(ValueError, match="schema id 5") as raised:
            decoders.decode("value", b"\0\0\0\0\5x", None)
    depth = len(raised.traceback)
    with pytest.raises(ValueError, match="schema id 5") as raised:
        decoders.decode("value", b"\0\0\0\0\5x", None)

    assert asked == [5]
    assert made == ([] if schema is None else [schema])
    assert len(raised.traceback) == depth


def test_reader_of_odd_logical_values() -> None:
    """A value that Python has no date, UUID or number for stays as it is stored; others don't."""
    types = [
        *(("long", "timestamp-millis"), ("long", "local-timestamp-micros"), ("int", "date")),
        *(("string", "uuid"), ("long", "timestamp-millis")),
    ]
    named = [
        {"name": f"f{n}", "type": ["null", {"type": type_, "logicalType": logical}]}
        for n, (type_, logical) in enumerate(types)
    ]
    plain = [{"name": f"f{n}", "type": ["null", type_]} for n, (type_, _) in enumerate(types)]
    odd = {"f0": 2**63 - 1, "f1": -(2**62), "f2": 2**31 - 1, "f3": "none", "f4": 0}
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, {"type": "record", "name": "R", "fields": plain}, odd)
    schema = {"type": "record", "name": "R", "fields": named}
    read = reader_of(SchemaText("AVRO", json.dumps(schema)))

    assert read(payload.getvalue(), None) == odd | {"f4": datetime(1970, 1, 1, tzinfo=timezone.utc)}
    with pytest.raises(ValueError, match="left over"):
        read(payload.getvalue() + b"x", None)


def test_reader_of_nested_type() -> None:
    """A type that is only nested in a referenced schema decodes, as it does for a registry."""
    money = {"type": "record", "name": "Money", "fields": [{"name": "c", "type": "int"}]}
    fields = [{"name": "price", "type": money}]
    common = {"type": "record", "name": "Common", "namespace": "com.acme", "fields": fields}
    main = ORDER | {"fields": [{"name": "price", "type": "com.acme.Money"}]}
    references = {"com.acme.Common": json.dumps(common)}

    read = reader_of(SchemaText("AVRO", json.dumps(main), references))

    assert read(b"\x02", None) == {"price": {"c": 1}}


def test_archived_schemas_lacking_type(registry: FakeRegistry) -> None:
    """Of two copies of a schema, one that lacks a type doesn't hide the one that has it."""
    subjects = Subjects(SchemaRegistry(registry.settings))
    read = [read_subject(subjects, name, None, {}) for name in ("city", "order")]
    kept = RegistryDocument.empty().model_copy(update={"subjects": read})
    rows = [{"id": 3, "schema": CITY}, {"id": 4, "schema": ORDER}]
    find = archived_schemas(kept, SchemasDocument.model_validate({"schemas": rows}))

    assert find(4) == SchemaText("AVRO", json.dumps(ORDER), {"City": json.dumps(CITY)})
    assert json.loads(find(3).text) == CITY  # type: ignore[union-attr]


def test_reader_of_no_schema() -> None:
    """A text that isn't a schema is refused."""
    for text in ("{", json.dumps({"type": "nothing"})):
        with pytest.raises(ConfigError):
            reader_of(SchemaText("AVRO", text))


def test_kept_schemas_nothing() -> None:
    """An archive that keeps nothing decodes nothing."""
    find: Callable[[Any], Any] = kept_schemas(RegistryDocument.empty())

    assert find(1) is None


def test_kept_schemas_of_other_context(registry: FakeRegistry) -> None:
    """A subject of another context has ids of its own: records' are of the default one."""
    registry.register(":.partner:order", 3, ORDER | {"fields": []})
    subjects = Subjects(SchemaRegistry(registry.settings))
    rows = [read_subject(subjects, name, None, {}) for name in (":.partner:order", "city")]
    kept = {"subjects": [row for row in rows if row]}
    find = kept_schemas(RegistryDocument.empty().model_copy(update=kept))

    assert json.loads(find(3).text) == CITY  # type: ignore[union-attr]


def test_kept_schemas_only_of_other_context(registry: FakeRegistry) -> None:
    """Where the default context's schema isn't kept, its id is unknown; GUIDs are everyone's."""
    registry.register(":.partner:order", 12, CITY)
    row = read_subject(Subjects(SchemaRegistry(registry.settings)), ":.partner:order", None, {})
    assert row is not None
    [version] = row.versions
    assert version.guid is not None
    find = kept_schemas(RegistryDocument.empty().model_copy(update={"subjects": [row]}))

    assert find(12) is None
    assert json.loads(find(version.guid).text) == CITY  # type: ignore[union-attr]
