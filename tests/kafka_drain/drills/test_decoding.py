"""Restored values, decoded with the archive's schemas."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastavro import parse_schema, schemaless_writer

from kafka_drain.archive.documents import RegistryDocument, SchemasDocument
from kafka_drain.drills.decoding import Decoding, by_schema_id
from kafka_drain.errors import MachineError
from kafka_drain.offsets import TopicPartition
from kafka_drain.schemas import protobuf
from kafka_drain.schemas.capture import capture_schemas
from kafka_drain.schemas.registry import SchemaRegistry
from tests.fake_registry import FakeRegistry, fake_registry
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense

T0 = TopicPartition("t", 0)

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NAME = {"type": "record", "name": "Name", "fields": [{"name": "name", "type": "string"}]}
EMPTY = {"type": "record", "name": "Empty", "fields": []}
SCHEMAS = {7: ORDER, 9: NAME, 11: EMPTY}


def value(id_: int, schema: dict[str, object], record: dict[str, object]) -> bytes:
    """A value in Confluent's wire format."""
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), record)
    return b"\0" + id_.to_bytes(4, "big") + stream.getvalue()


def schemas(by_id: Mapping[int, Any]) -> SchemasDocument:
    """What a drain that decodes Avro keeps."""
    rows = [{"id": id_, "schema": schema} for id_, schema in by_id.items()]
    return SchemasDocument.model_validate({"schemas": rows})


GOOD = [value(7, ORDER, {"id": 5}), value(9, NAME, {"name": "x"})]


@pytest.mark.parametrize(
    ("values", "decoded", "without", "unknown", "undecodable", "problem"),
    [
        ([], 0, 0, [], 0, ""),
        (GOOD, 2, 0, [], 0, ""),
        ([None, None, b"", b"text", b"\0\0\0\0"], 0, 5, [], 0, ""),
        ([*GOOD, value(8, ORDER, {"id": 5})], 2, 0, [8], 1, "doesn't have schema 8"),
        # Ids have four bytes, the highest first; nothing but the id is enough for an empty record.
        ([value(0x01_02_03_07, ORDER, {"id": 5})], 0, 0, [0x01_02_03_07], 1, "schema 16909063"),
        ([value(0x07_00_00_00, ORDER, {"id": 5})], 0, 0, [0x07_00_00_00], 1, "schema 117440512"),
        ([b"\0\0\0\0\x0b"], 1, 0, [], 0, ""),
        ([b"\0\0\0\0\x08", b"\0\0\0\0\x0a"], 0, 0, [8, 10], 2, "doesn't have schema 8, 10"),
        # Cut short, with something after it, and of another schema than it says.
        ([GOOD[1][:-1]] * 2, 0, 0, [], 2, "2 of 2 restored values don't decode"),
        ([GOOD[0] + b"x"], 0, 0, [], 1, "1 of 1 restored values don't decode"),
        ([value(9, ORDER, {"id": -40})], 0, 0, [], 1, "1 of 1 restored values don't decode"),
    ],
)
def test_decode_avro(
    values: list[bytes | None],
    decoded: int,
    without: int,
    unknown: list[int],
    undecodable: int,
    problem: str,
) -> None:
    """A value is decoded as a whole by the schema that it names, or counted by why not."""
    decoding = by_schema_id(RegistryDocument.empty(), schemas(SCHEMAS))
    decoding.add((value, None) for value in values)

    seen = (decoding.values, decoding.decoded, decoding.without_schema)
    assert seen == (len(values), decoded, without)
    assert (sorted(decoding.unknown), decoding.undecodable) == (unknown, undecodable)
    assert problem in decoding.problem
    assert bool(problem) == bool(decoding.problem)


def test_decode_json() -> None:
    """JSON is decoded with and without the header of a registry's serializer."""
    decoding = Decoding(None)
    decoding.add((v, None) for v in (b'{"a": 1}', b'\0\0\0\0\x07{"a": 1}', None))
    assert (decoding.decoded, decoding.without_schema, decoding.problem) == (2, 1, "")
    decoding.add((v, None) for v in (b"{", b"\xff", b"[" * 100_000))

    # They were restored as they are archived, and no schema is missing.
    assert (decoding.undecodable, decoding.not_json, decoding.problem) == (3, 3, "")


def test_decode_json_beside_others() -> None:
    """Of values that aren't JSON, one may name a schema: without it, consumers can't read them."""
    decoders = by_schema_id(RegistryDocument.empty(), schemas(SCHEMAS)).decoders
    assert decoders is not None
    decoding = Decoding(None, named=decoders)

    decoding.add((v, None) for v in (b"text", *GOOD))
    assert (decoding.decoded, decoding.undecodable, decoding.problem) == (2, 1, "")
    decoding.add([(value(8, ORDER, {"id": 5}), None)])
    assert (decoding.undecodable, decoding.not_json) == (2, 1)
    assert "doesn't have schema 8" in decoding.problem
    by_header = Decoding(None, named=decoders)
    by_header.add([(b"text", [("__value_schema_id", b"\0\0\0\0\x08")])])
    assert "doesn't have schema 8" in by_header.problem
    broken = Decoding(None, named=decoders)
    broken.add([(b"text", None), (GOOD[1][:-1], None)])
    assert "1 of 2 restored values don't decode" in broken.problem


GUID = UUID("01234567-89ab-cdef-0123-456789abcdef")
PROTO = 'syntax = "proto3"; message Paid { int32 cents = 1; message Inner { string note = 1; } }'


def registry(*topics: str) -> RegistryDocument:
    """What a capture keeps: Protobuf, Avro with a GUID and a reference, and JSON."""
    kept = [("p", 3, None, "PROTOBUF", PROTO, []), ("j", 5, None, "JSON", "{}", [])]
    kept += [("city", 7, None, "AVRO", json.dumps(NAME), [])]
    order = ORDER | {"fields": [{"name": "city", "type": "Name"}]}
    references = [{"name": "Name", "subject": "city", "version": 1}]
    kept += [("o", 8, str(GUID), "AVRO", json.dumps(order), references)]
    subjects = [
        {
            "name": name,
            "versions": [
                {
                    "version": 1,
                    "id": id_,
                    "guid": guid,
                    "type": kind,
                    "schema": text,
                    "references": refers,
                }
            ],
        }
        for name, id_, guid, kind, text, refers in kept
    ]
    seen = [{"topic": topic, "part": "value", "ids": [3, 99]} for topic in topics]
    seen += [{"topic": "keys", "part": "key", "ids": [3]}]
    seen += [{"topic": "numbers", "part": "value", "ids": [0, 1]}]
    more = {"url": "http://r", "captured_at": "", "seen": seen, "read": {}, "notes": []}
    return RegistryDocument.model_validate({**more, "subjects": subjects})


def test_decode_kept() -> None:
    """Protobuf, JSON, and Avro by a GUID in a header are decoded by what a capture has kept."""
    decoding = by_schema_id(registry("t"), schemas({}))
    named = [("__value_schema_id", b"\1" + GUID.bytes)]
    decoding.add(
        [
            (b"\0\0\0\0\3\0\x08\x05", None),
            (b"\0\0\0\0\3\4\0\0\x0a\1x", None),
            (b'\0\0\0\0\5{"a": 1}', None),
            (b"\2x", named),
            (b"text", [("other", None)]),
        ]
    )
    assert (decoding.decoded, decoding.without_schema, decoding.problem) == (4, 1, "")

    # A message that isn't in the schema, half a field, and two ids that nobody knows.
    decoding.add([(b"\0\0\0\0\3\2\x0a", None), (b"\0\0\0\0\3\0\x08", None)])
    assert (decoding.undecodable, decoding.unknown) == (2, set())
    other = UUID(int=1)
    unnamed = [("__value_schema_id", b"\1" + other.bytes)]
    decoding.add([(b"x", unnamed), (b"\0\0\0\0\x09", None)])
    assert decoding.unknown == {str(other), 9}
    assert f"doesn't have schema 9, {other}" in decoding.problem


def test_decode_kept_topics() -> None:
    """Topics whose values have no id of the registry aren't decoded: they may only look like it."""
    assert by_schema_id(registry("t"), schemas({})).topics == {"t"}
    assert by_schema_id(registry("t", "u"), schemas({})).topics == {"t", "u"}
    assert by_schema_id(registry("t"), schemas(SCHEMAS)).topics is None


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive whose values name schema 7, and which no capture has seen yet."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal({T0: dense(0, 2)}, value=value(7, ORDER, {"id": 5}), key=None)
    return made


def captured(made: MadeArchive, source: FakeRegistry) -> Decoding:
    """Capture, and return the decoding of the same values."""
    found = capture_schemas(made.archive, SchemaRegistry(source.settings), now=NOW)
    assert found.missing == (7,)
    assert found.document.notes
    return by_schema_id(found.document, schemas({}))


@pytest.mark.parametrize("subject", ["t-value", "other"])
def test_decode_nothing_kept_refused(subject: str, made: MadeArchive) -> None:
    """A schema that the registry refused to give may well exist, and the archive lacks it."""
    with fake_registry() as source:
        source.register(subject, 7, ORDER)
        source.fails = 403
        decoding = captured(made, source)
    decoding.add([(value(7, ORDER, {"id": 5}), None)])

    assert decoding.topics == {"t"}
    assert "doesn't have schema 7" in decoding.problem


def test_decode_nothing_kept_of_subject(made: MadeArchive) -> None:
    """Where the values' own subject is kept, an id that it lacks is a schema's all the same."""
    with fake_registry() as source:
        source.register("t-value", 8, ORDER)
        decoding = captured(made, source)
    decoding.add([(value(7, ORDER, {"id": 5}), None)])

    assert decoding.topics == {"t"}
    assert "doesn't have schema 7" in decoding.problem


def test_decode_nothing_kept_of_topic(made: MadeArchive) -> None:
    """Bytes that the registry knows no schema for may only look like ids: they aren't judged."""
    with fake_registry() as source:
        source.register("unused", 8, ORDER)
        decoding = captured(made, source)

    assert (decoding.topics, decoding.not_judged) == (set(), {"t": [7]})
    assert decoding.problem == ""
    # Id 0, which no registry gives, says nothing.
    assert by_schema_id(registry("t"), schemas({})).not_judged == {"numbers": [1]}


def test_decode_without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protobuf that can't be decoded here isn't counted as bad: the drill says what to install."""

    def missing(*_: object) -> object:
        raise MachineError("decoding Protobuf needs the extra protobuf")

    monkeypatch.setattr(protobuf, "_compiled", missing)
    decoding = by_schema_id(registry("t"), schemas({}))

    with pytest.raises(MachineError, match="extra protobuf"):
        decoding.add([(b"\0\0\0\0\3\0\x08\x05", None)])
    assert decoding.undecodable == 0


def test_decode_json_without_registry() -> None:
    """Where no schema was ever kept or asked for, no value names one."""
    decoding = Decoding(None)

    decoding.add([(b"\0\0\0\1\2\xff", None), ('{"a":1}'.encode("utf-16-be"), None)])

    assert (decoding.not_json, decoding.unknown, decoding.problem) == (2, set(), "")
