"""Searches decode with the schemas that the archive keeps, when the registry is gone."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.offsets import TopicPartition
from kafka_drain.schemas.capture import capture_schemas
from kafka_drain.schemas.registry import SchemaRegistry
from tests.fake_registry import fake_registry, in_wire_format
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense

T0 = TopicPartition("t", 0)
CITY = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "City"}],
}
WHOLE = ORDER | {"fields": [{"name": "id", "type": "long"}, {"name": "city", "type": CITY}]}
MONEY = 'syntax = "proto3"; package acme; message Money { int64 cents = 1; }'
PAID = """syntax = "proto3"; package acme; import "money.proto";
message Unused { int32 n = 1; }
message Paid { int64 id = 1; Money money = 2; }"""
NOTE = {"type": "object", "properties": {"id": {"type": "integer"}}}

#: What each batch's values are: bytes, format, schema id, content.
VALUES: list[tuple[bytes | None, str | None, int | None, Any]] = [
    (
        in_wire_format(7, WHOLE, {"id": 42, "city": {"name": "Köln"}}),
        *("avro", 7, {"id": 42, "city": {"name": "Köln"}}),
    ),
    # Index 1 of the file's messages; id 42, and 150 cents.
    (
        b"\0\0\0\0\x09\x02\x02\x08\x2a\x12\x03\x08\x96\x01",
        *("protobuf", 9, {"id": "42", "money": {"cents": "150"}}),
    ),
    (b'\0\0\0\0\x0b{"id": 42}', "json", 11, {"id": 42}),
    (b'{"id": 42}', "json", None, {"id": 42}),
    (b"id 42", "text", None, "id 42"),
    (b"\xff\xfe", "hex", None, "fffe"),
    # Its schema was never registered.
    (b"\0\0\0\0\x63\x01", "hex", None, "000000006301"),
    (None, None, None, None),
]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """An archive with a record of each kind, whose registry is gone."""
    made = MadeArchive(tmp_path_factory.mktemp("decoded") / "made", {"t": "id"})
    for number, (value, *_) in enumerate(VALUES):
        made.seal({T0: dense(number, number + 1)}, value=value)
    made.open_generation()
    with fake_registry() as registry:
        registry.register("city", 3, CITY)
        registry.register("money", 4, MONEY, schemaType="PROTOBUF")
        of_city = [{"name": "City", "subject": "city", "version": 1}]
        of_money = [{"name": "money.proto", "subject": "money", "version": 1}]
        registry.register("t-value", 7, ORDER, references=of_city)
        registry.register("paid", 9, PAID, schemaType="PROTOBUF", references=of_money)
        registry.register("note", 11, NOTE, schemaType="JSON")
        capture_schemas(made.archive, SchemaRegistry(registry.settings), now=NOW)
    return made.archive


def test_search_decoded(archive: Archive) -> None:
    """Avro, Protobuf and JSON are decoded by their ids, with references; all else is as it is."""
    one = Search(archive, Criteria.of())
    payloads = one.payloads()
    found = [match.to_dict(payloads) for match in one.matches()]

    shown = [(row["value_format"], row["value_schema"], row["value"]) for row in found]
    assert shown == [tuple(rest) for _, *rest in VALUES]


@pytest.mark.parametrize(
    ("path", "offsets"),
    [
        ("$.city.name=Köln", [0]),
        ("$.money.cents=150", [1]),
        ("$.id=42", [0, 1, 2, 3]),
        ("$.money", [1]),
        ("$.id=43", []),
    ],
)
def test_search_decoded_path(archive: Archive, path: str, offsets: list[int]) -> None:
    """A path is looked for in what was decoded, whatever its format."""
    matches = Search(archive, Criteria.of(jsonpath=path)).matches()

    assert [match.position.offset for match in matches] == offsets
