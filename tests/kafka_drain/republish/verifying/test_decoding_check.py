"""What a run has sent, decoded on both sides: each difference is found."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import TopicError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.verifying import decoding_check
from kafka_drain.republish.verifying.decoding_check import DecodingCheck, check_decoding, check_run
from kafka_drain.republish.verifying.offset_map import Block, OffsetMap, PartitionMap
from kafka_drain.schemas.decoders import Decoders, SchemaText
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.schemas.schema_ids import SchemaId
from tests.fake_registry import in_wire_format
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.republish.planning.test_plan import PLAN

DATA = Path(__file__).parents[3] / "data"
CITY = '{"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}'
#: Decodes the same bytes to other names.
TOWN = '{"type": "record", "name": "Town", "fields": [{"name": "town", "type": "string"}]}'
G1, G2 = str(UUID(int=1)), str(UUID(int=2))
VALUE = in_wire_format(
    105,
    {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]},
    {"name": "Bonn"},
)
SOURCE, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)
TARGET = TopicPartition("copy", 0)


class Message(SimpleNamespace):
    """A record as Kafka's client returns it."""

    def key(self) -> bytes | None:
        return b"k"

    def value(self) -> bytes | None:
        found: bytes | None = self.content
        return found

    def headers(self) -> Any:
        return self.pairs

    def offset(self) -> int:
        return int(getattr(self, "at", 7))

    def topic(self) -> str:
        return "copy"

    def partition(self) -> int:
        return 0


def check(
    monkeypatch: pytest.MonkeyPatch,
    messages: list[Message],
    target: dict[SchemaId, str],
    translated: int = 1,
    kept: Sequence[str] = ("t:key",),
    other: Sequence[Block] = (),
) -> DecodingCheck:
    """Check these records of a run that has replaced id 5 by 105.

    Args:
        other: Where it has sent the records of another topic to.
    """

    class Reader:
        def __init__(self, cluster: Any, tp: TopicPartition, **bounds: Any) -> None:
            assert (tp, bounds["first"], bounds["end"]) == (TARGET, 3, 9)

        def messages(self, is_complete: Any) -> Any:
            yield messages

    monkeypatch.setattr(decoding_check, "TargetReader", Reader)
    counts: Any = [{"topic": "t", "part": "value", "translated": translated, "without": 0}]
    plan = replace(
        PLAN,
        schema_ids={
            "map": "dr",
            "ids": {"5": 105},
            "guids": {G1: G2},
            "kept": [*kept],
            "counts": counts,
        },
    )
    blocks = (Block(0, 2, 3, 5, 2), Block(2, 4, 7, 9, 2))
    maps = [PartitionMap(SOURCE, "", TARGET, blocks)]
    maps += [PartitionMap(OTHER, "", TARGET, tuple(other))] * bool(other)
    offset_map = OffsetMap("r", "p", "c", tuple(maps))
    source = {5: CITY, G1: CITY}
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "never-asked:1"}))
    return check_decoding(plan, offset_map, cluster, of(target), of(source))


def of(schemas: dict[Any, str]) -> Decoders:
    return Decoders(lambda id_: SchemaText("AVRO", schemas[id_]) if id_ in schemas else None)


def test_check_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values with an id before them or in a header are decoded; the rest is counted."""
    header = [("__value_schema_id", b"\1" + UUID(G2).bytes)]
    messages = [
        Message(content=VALUE, pairs=None),
        Message(content=VALUE[5:], pairs=header),
        Message(content=None, pairs=None),
        Message(content=b"plain", pairs=None),
    ]

    found = check(monkeypatch, messages, {105: CITY, G2: CITY}, translated=2)

    assert found == DecodingCheck(records=4, decoded=2, expected=2, without=1)
    assert found.is_exact
    assert found.lines() == [
        "decoded 2 of 2 keys and values in 4 records; 1 have no schema id",
    ]


def test_check_decoding_other_framings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Framing of other registries is named, and an id that was kept isn't decoded."""
    glue, apicurio = b"\3\0" + bytes(17), bytes(5) + b"\0\0\0\7x"
    messages = [Message(content=content, pairs=None) for content in (VALUE, glue, apicurio)]

    found = check(monkeypatch, messages, {105: CITY}, kept=["t:key", "t:value:0"])

    assert found.is_exact
    assert (found.decoded, found.without, found.kept) == (1, 1, 1)
    assert found.lines() == [
        "decoded 1 of 1 keys and values in 3 records; 1 have no schema id, 1 have one that was "
        "kept",
        "WARNING 1 keys and values look like AWS Glue's framing, and weren't decoded",
        "WARNING 1 keys and values look like Apicurio's framing with ids of eight bytes, and "
        "weren't decoded",
    ]


@pytest.mark.parametrize(
    "error", [SystemError("returned a result with an exception set"), b"\xff"], ids=repr
)
def test_check_decoding_unreadable_headers(
    monkeypatch: pytest.MonkeyPatch, error: Exception | bytes
) -> None:
    """A record of another producer, whose header name isn't UTF-8, ends nothing."""

    class Unreadable(Message):
        def headers(self) -> Any:
            if isinstance(error, bytes):
                error.decode()
            raise error

    messages = [Unreadable(content=VALUE), Message(content=VALUE, pairs=None)]

    found = check(monkeypatch, messages, {105: CITY})

    assert found.is_exact
    assert (found.records, found.decoded) == (2, 1)


def test_check_decoding_header_without_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header of the ids' name that has none leaves the id before the payload, which counts."""
    messages = [Message(content=VALUE, pairs=[("__value_schema_id", b"none")])]

    found = check(monkeypatch, messages, {105: CITY})
    assert found.problems == []
    assert found.is_exact


def test_check_decoding_topics_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several topics were sent into one, each record counts as one of its own topic."""
    number = b"\0\0\0\0\0\0\0\7"
    messages = [
        Message(content=number, pairs=None, at=5),
        Message(content=b"\0\0\0\0\0" + VALUE[5:], pairs=None, at=6),
        Message(content=VALUE, pairs=None, at=7),
    ]
    kept = ["t:key", "other:key", "other:value"]

    found = check(monkeypatch, messages, {105: CITY}, kept=kept, other=[Block(0, 2, 5, 7, 2)])
    assert found.problems == []
    assert (found.records, found.decoded, found.is_exact) == (3, 1, True)


def test_check_decoding_other_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of other producers between the run's own do no harm, and don't stand for these."""
    theirs = [
        # With a schema that only the target has; with one that the archive has, too; with none.
        Message(content=b"\0\0\0\1\x2c" + VALUE[5:], pairs=None, at=5),
        Message(content=VALUE, pairs=None, at=6),
        Message(content=b"\0\0\0\0\x63x", pairs=None, at=6),
    ]
    own = Message(content=VALUE, pairs=None, at=7)

    found = check(monkeypatch, [*theirs, own], {105: CITY, 300: CITY})
    assert found.problems == []
    assert (found.records, found.decoded, found.is_exact) == (1, 1, True)

    gone = check(monkeypatch, theirs[1:2], {105: CITY})
    assert not gone.is_exact


@pytest.mark.parametrize(
    ("content", "target", "says"),
    [
        (VALUE, {}, "schema id 105 is unknown"),
        (VALUE, {105: TOWN}, "another value than in the archive"),
        (VALUE + b"x", {105: CITY}, "left over"),
        (b"\0\0\0\0\x63x", {105: CITY}, "schema id 99 is unknown"),
        (b"\0\0\0\0\5" + VALUE[5:], {5: CITY}, "which the plan doesn't translate"),
    ],
)
def test_check_decoding_differs(
    monkeypatch: pytest.MonkeyPatch, content: bytes, target: Any, says: str
) -> None:
    """A value that the target decodes to something else, or not at all, is named."""
    found = check(monkeypatch, [Message(content=content, pairs=None)], target)

    assert not found.is_exact
    assert (found.failed, found.decoded) == (1, 0)
    assert says in found.problems[0]
    assert "offset 7 of copy-0" in found.lines()[1]


@pytest.mark.parametrize("number", [0, 2])
def test_check_decoding_counts(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Fewer or more values than planned aren't exact, even if each is decoded."""
    messages = [Message(content=VALUE, pairs=None)] * number

    found = check(monkeypatch, messages, {105: CITY})

    assert found.failed == 0
    assert not found.is_exact


@pytest.mark.parametrize(
    ("cluster_id", "topic_id", "says"),
    [
        ("another", "id-of-copy", "sends to Kafka cluster elsewhere, but this is another"),
        ("elsewhere", "new", "sends to topic copy with id id-of-copy, which has been recreated"),
    ],
)
@pytest.mark.parametrize("name", ["copy", "copy-6f5a6034e770"])
def test_check_run_elsewhere(
    name: str, cluster_id: str, topic_id: str, says: str, tmp_path: Path
) -> None:
    """Records of another cluster, or another topic of this name, aren't those that were sent.

    A run is found by its name and by its folder's.
    """
    archive = Archive.at(str(shutil.copytree(DATA / "archive_0_1", tmp_path / "archive")))
    cluster: Any = FakeCluster(
        {TopicPartition("copy", number): Log() for number in range(2)},
        id=cluster_id,
        topic_ids={"copy": topic_id},
    )
    registry = SchemaRegistry({"url": "http://never-asked:1"})

    with pytest.raises(TopicError, match=says) as raised:
        check_run(archive, name, cluster, registry)

    assert "Nothing was read; name the cluster that it sent to" in str(raised.value)
