"""Searches decode with the schemas that the archive keeps, when the registry is gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import MachineError
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.offsets import TopicPartition
from kafka_drain.schemas import protobuf
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


def test_search_path_without_library(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for content that can't be read here ends: "none found" would be untrue."""

    def missing(*_: object) -> object:
        raise MachineError("decoding Protobuf needs the extra protobuf")

    monkeypatch.setattr(protobuf, "_compiled", missing)

    with pytest.raises(MachineError, match="extra protobuf"):
        list(Search(archive, Criteria.of(jsonpath="$.id=42")).matches())
    # What only shows the values shows that one as bytes.
    search = Search(archive, Criteria.of())
    payloads = search.payloads()
    shown = [match.to_dict(payloads)["value_format"] for match in search.matches()]
    assert shown[:3] == ["avro", "hex", "json"]


@pytest.mark.parametrize(
    ("criteria", "undecoded", "says"),
    [
        ({}, 0, ""),
        ({"partitions": ["1"]}, 0, ""),
        ({"offset": "0-6", "topics": ["t"], "partitions": ["0"]}, 0, ""),
        (
            {"offset": "5-8", "topics": ["t"], "partitions": ["0"]},
            1,
            "1 value couldn't be decoded (schema ids 99): it wasn't searched",
        ),
    ],
)
def test_search_undecoded(
    archive: Archive, criteria: dict[str, Any], undecoded: int, says: str
) -> None:
    """Values whose schema isn't kept are counted where a path was looked for in them."""
    path = {"jsonpath": "$.id"} if criteria else {}
    search = Search(archive, Criteria.of(**criteria, **path))
    list(search.matches())

    assert (search.undecoded, search.not_searched()) == (undecoded, says)


def values(made: MadeArchive, of_partition: Sequence[bytes], headers: Any = None) -> None:
    """Seal a file that has a record of each partition."""
    for number, value in enumerate(of_partition):
        made.seal({TopicPartition("t", number): dense(0, 2)}, value=value, headers=headers)
    made.open_generation()


def test_search_undecoded_ids(tmp_path: Path) -> None:
    """Each value counts once, however it fails to decode; of many ids, a few are named."""
    made = MadeArchive(tmp_path / "made", {"t": "id"})
    values(made, [b"\0" + bytes([0, 0, 0, id_]) + b"x" for id_ in range(1, 13)])
    search = Search(made.archive, Criteria.of(jsonpath="$.id"))

    assert list(search.matches()) == []
    assert search.undecoded == 24
    assert search.not_searched() == (
        "24 values couldn't be decoded (schema ids 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 …): "
        "they weren't searched"
    )
    # A second time, they aren't counted in addition.
    list(search.matches())
    assert search.undecoded == 24


def test_search_undecoded_guid(tmp_path: Path) -> None:
    """An id in a header counts, unless the value is JSON all the same, which is searched."""
    made = MadeArchive(tmp_path / "made", {"t": "id"})
    guid = UUID(int=7)
    named = [{"key": "__value_schema_id", "value": b"\1" + guid.bytes}]
    values(made, [b"\x02x", b'{"id": 1}'], headers=named)
    search = Search(made.archive, Criteria.of(jsonpath="$.id"))

    assert [match.position.partition for match in search.matches()] == [1, 1]
    assert search.not_searched() == (
        f"2 values couldn't be decoded (schema ids {guid}): they weren't searched"
    )
