"""Records of one Schema Registry in a cluster with another one, both of them real.

`REGISTRY_RECORDS` sets the number of records of the test that kills; 20,000 by default.
"""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import DrillDocument, RegistryDocument
from kafka_drain.archive.drills import read_drills
from kafka_drain.archive.schema_seals import accept_schemas
from kafka_drain.cli.main import main
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, SourceRecordError
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from kafka_drain.schemas.capture import capture_schemas, read_document
from kafka_drain.schemas.decoders import Decoders, registered_schemas
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.schemas.restore import SchemaRestore
from kafka_drain.schemas.restore_order import KEEP, NEW
from kafka_drain.schemas.schema_map import read_map
from kafka_drain.schemas.subjects import Subjects
from tests.apicurio_registry import ask
from tests.conftest import Drain
from tests.fake_registry import in_wire_format
from tests.faults.republishing import Record, Run, Torment, make_target, pace, read_topic

pytestmark = [pytest.mark.integration, pytest.mark.registry]

RECORDS = int(os.environ.get("REGISTRY_RECORDS", "20000"))
KILLS = 10
NOW = "2026-01-01T00:00:00.000+00:00"
PARTITIONS = 2
NOON = 1_700_000_000_000

CUSTOMER = {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}
CITY = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "long"}, {"name": "city", "type": "City"}],
}
WHOLE = ORDER | {"fields": [ORDER["fields"][0], {"name": "city", "type": CITY}]}  # type: ignore[index]
MONEY = 'syntax = "proto3"; package acme; message Money { int64 cents = 1; }'
EVENT = """syntax = "proto3"; package acme; import "money.proto";
message First { int32 unused = 1; }
message Event { message Paid { int64 number = 1; Money money = 2; } }"""
NOTE = {"type": "object", "properties": {"number": {"type": "integer"}}}


@dataclass(frozen=True)
class Registered:
    """The ids of the schemas above in a registry."""

    customer: int
    order: int
    event: int
    note: int


def register(url: str, subject: str, schema: Any, kind: str = "AVRO", **references: str) -> int:
    """Register a schema; references are subjects by the name they have in the schema."""
    body = {
        "schema": schema if isinstance(schema, str) else json.dumps(schema),
        "schemaType": kind,
        "references": [
            {"name": name.replace("_", "."), "subject": subject, "version": 1}
            for name, subject in references.items()
        ],
    }
    return int(ask(f"{url}/subjects/{subject}/versions", body)["id"])


def register_all(url: str, orders: str, events: str) -> Registered:
    """Register all schemas, in subjects named for the topics."""
    # Equal schemas would share an id with those of other tests.
    register(url, f"{orders}.city", CITY | {"doc": orders})
    register(url, f"{events}.money", f"{MONEY} // {events}", "PROTOBUF")
    return Registered(
        customer=register(url, f"{orders}-key", CUSTOMER | {"doc": orders}),
        order=register(url, f"{orders}-value", ORDER | {"doc": orders}, City=f"{orders}.city"),
        event=register(
            url,
            f"{events}-value",
            f"{EVENT} // {events}",
            "PROTOBUF",
            money_proto=f"{events}.money",
        ),
        note=register(url, f"{events}.note", NOTE | {"title": events}, "JSON"),
    )


def varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def order_of(ids: Registered, number: int) -> tuple[bytes | None, bytes | None]:
    """Return key and value of an order: some are tombstones, and some have no schema."""
    key = in_wire_format(ids.customer, CUSTOMER, {"name": f"c{number % 1000}"})
    if number % 50 == 49:
        return key, None
    if number % 97 == 96:
        return None, b'{"number": %d}' % number
    return key, in_wire_format(ids.order, WHOLE, {"number": number, "city": {"name": "Bonn"}})


def event_of(ids: Registered, number: int) -> tuple[bytes | None, bytes | None]:
    """Return key and value of an event: the first message in the second one, or JSON."""
    key = b"%d" % number
    if number % 10 == 9:
        return key, b"\0" + ids.note.to_bytes(4, "big") + b'{"number": %d}' % number
    money = b"\x08" + varint(number % 500 + 1)
    paid = b"\x08" + varint(number + 1) + b"\x12" + varint(len(money)) + money
    return key, b"\0" + ids.event.to_bytes(4, "big") + b"\4\2\0" + paid


def expected(topic: str, number: int) -> tuple[Any, Any]:
    """Return what key and value of a record mean, apart from any id."""
    if topic == "orders":
        if number % 97 == 96 and number % 50 != 49:
            return None, b'{"number": %d}' % number
        value = {"number": number, "city": {"name": "Bonn"}}
        return {"name": f"c{number % 1000}"}, None if number % 50 == 49 else value
    if number % 10 == 9:
        return b"%d" % number, {"number": number}
    paid = {"number": str(number + 1), "money": {"cents": str(number % 500 + 1)}}
    return b"%d" % number, {"acme.Event.Paid": paid}


def send(bootstrap: str, topic: str, records: int, make: Callable[[int], Any]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "queue.buffering.max.messages": 1_000_000}
    )
    for number in range(records):
        key, value = make(number)
        producer.produce(
            topic, value, key, partition=number % PARTITIONS, timestamp=NOON + number
        )  # fmt: skip
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def meaning(url: str) -> Callable[[bytes | None], Any]:
    """Return a function that decodes as the target's consumers do."""
    decoders = Decoders(registered_schemas(Subjects(SchemaRegistry({"url": url}))))
    avro: dict[int, Any] = {}

    def decode(payload: bytes | None) -> Any:
        if payload is None or payload[:1] != b"\0":
            return payload
        id_ = int.from_bytes(payload[1:5], "big")
        if id_ not in avro:
            answer = ask(f"{url}/schemas/ids/{id_}")
            avro[id_] = None
            if answer.get("schemaType", "AVRO") == "AVRO":
                named: dict[str, Any] = {}
                for reference in answer.get("references", ()):
                    place = f"{reference['subject']}/versions/{reference['version']}"
                    text = ask(f"{url}/subjects/{place}")["schema"]
                    fastavro.parse_schema(json.loads(text), named_schemas=named)
                avro[id_] = fastavro.parse_schema(json.loads(answer["schema"]), named_schemas=named)
        if avro[id_] is None:
            found = decoders.decode("value", payload, None)
            return found and found.value
        return fastavro.schemaless_reader(io.BytesIO(payload[5:]), avro[id_])

    return decode


@dataclass
class Drained:
    """An archive of both topics, whose schemas are kept, and the source's ids."""

    archive: Path
    orders: str
    events: str
    records: int
    ids: Registered


@pytest.fixture
def drained(
    drain: Drain,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    source_registry: str,
    make_topic: Callable[..., str],
    archive_folder: str,
) -> Callable[[int], Drained]:
    """Drain both topics, with so many records each."""

    def make(records: int) -> Drained:
        orders, events = make_topic(PARTITIONS), make_topic(PARTITIONS)
        ids = register_all(source_registry, orders, events)
        send(bootstrap_servers, orders, records, lambda number: order_of(ids, number))
        send(bootstrap_servers, events, records, lambda number: event_of(ids, number))
        drain(Pipeline(name="schemas", topics=[orders, events], archive=archive_folder))
        archive = Archive.at(archive_folder)
        assert validate_archive(archive, cluster).complete
        code = main(["capture-schemas", archive_folder, "--registry", source_registry])
        assert code == 0
        return Drained(Path(archive_folder), orders, events, 2 * records, ids)

    return make


def restored(drained: Drained, target: str) -> None:
    """Restore the schemas to a registry whose ids are other ones."""
    # Ids of schemas that only the target has, so that its others differ from the source's.
    for number in range(7):
        register(target, f"{drained.orders}.before{number}", CITY | {"name": f"Before{number}"})
    arguments = ["restore-schemas", str(drained.archive), "--registry", target, "--map", "dr"]
    assert main(arguments) == 0
    assert not (drained.archive / "schema-maps").exists()
    assert main([*arguments, "--apply"]) == 0
    ids = read_map(Archive.at(str(drained.archive)).root, "dr").ids
    assert {drained.ids.customer, drained.ids.order, drained.ids.event, drained.ids.note} <= set(
        ids
    )
    assert all(old != new for old, new in ids.items())


def check(target: str, name: str, found: dict[int, list[Record]], records: int) -> int:
    """Check that a target topic has each record once, in order, with its value."""
    decode = meaning(target)
    for partition, rows in found.items():
        wanted = range(partition, records, PARTITIONS)
        assert len(rows) == len(wanted)
        for number, (key, value, _, timestamp) in zip(wanted, rows, strict=True):
            assert (decode(key), decode(value)) == expected(name, number)
            assert timestamp == NOON + number
    return sum(map(len, found.values()))


def test_republish_other_ids_killed(
    drained: Callable[[int], Drained],
    target_registry: str,
    bootstrap_servers: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Killed ten times: each record is there once, in order, and decodes to the same value."""
    made = drained(RECORDS // 2)
    restored(made, target_registry)
    for topic in (made.orders, made.events):
        make_target(bootstrap_servers, f"{topic}.restored", PARTITIONS)
    run = Run(made.archive, bootstrap_servers, "{topic}.restored", tmp_path)
    speed, run.transaction_records = pace(made.records, KILLS)
    run.arguments = ("--engine", "worker", "--schema-map", "dr", "--records-per-second", speed)
    torment = Torment(run, made.records, KILLS, 0, random.Random(4))
    try:
        torment.inflict()
    finally:
        run.close()
    assert torment.kills == 0

    for name, topic in (("orders", made.orders), ("events", made.events)):
        found = read_topic(bootstrap_servers, f"{topic}.restored")
        assert check(target_registry, name, found, made.records // 2) == made.records // 2
    capsys.readouterr()
    plan = run.plan()
    assert plan is not None
    arguments = ["check-decoding", str(made.archive), "--run", plan.key, "--json"]
    arguments += ["--registry", target_registry, "--bootstrap-servers", bootstrap_servers]
    code = main(arguments)
    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["exact"], answer["failed"]) == (0, True, 0)
    assert answer["decoded"] == answer["expected"] > made.records
    assert answer["records"] == made.records


@pytest.mark.parametrize("engine", ["worker", "spark"])
def test_republish_other_ids(
    drained: Callable[[int], Drained],
    target_registry: str,
    bootstrap_servers: str,
    tmp_path: Path,
    engine: str,
) -> None:
    """Both engines replace ids, by key too: keys go where the target's producers would put them."""
    made = drained(200)
    restored(made, target_registry)
    make_target(bootstrap_servers, f"{made.orders}.restored", 3)
    run = Run(made.archive, bootstrap_servers, "{topic}.restored", tmp_path)
    run.arguments = ("--engine", engine, "--schema-map", "dr", "--topic", made.orders)
    run.arguments += ("--placement", "key", "--spark-conf", "spark.ui.enabled=false")
    try:
        run.finish(run.start())
    finally:
        run.close()

    decode = meaning(target_registry)
    found = read_topic(bootstrap_servers, f"{made.orders}.restored")
    values = [decode(value) for rows in found.values() for _, value, _, _ in rows]
    wanted = [expected("orders", number)[1] for number in range(200)]
    assert sorted(map(repr, values)) == sorted(map(repr, wanted))


def test_republish_unknown_id(
    drained: Callable[[int], Drained], target_registry: str, republish: Callable[..., Any]
) -> None:
    """An id that the map doesn't have stops the run before anything is sent."""
    made = drained(20)
    restored(made, target_registry)
    archive = Archive.at(str(made.archive))
    path = made.archive / "schema-maps" / "dr.json"
    document = json.loads(path.read_text())
    document["schemas"] = [r for r in document["schemas"] if r["id"] != made.ids.note]
    path.write_text(json.dumps(document))

    with pytest.raises(SourceRecordError, match=rf"2 values of {made.events} .*{made.ids.note}"):
        republish(archive, "{topic}.restored", create_target=True, schema_map="dr")


def test_restore_keeps_no_ids(drained: Callable[[int], Drained], target_registry: str) -> None:
    """This registry takes mode IMPORT but gives ids of its own: the first one says so."""
    made = drained(20)
    archive = Archive.at(str(made.archive))
    # Ids that no schema has, as in a source that has lived long.
    document = read_document(archive.root)
    subjects = [
        subject.model_copy(
            update={
                "versions": [
                    row.model_copy(update={"id": row.id + 1_000_000}) for row in subject.versions
                ]
            }
        )
        for subject in document.subjects
    ]
    document.model_copy(update={"subjects": subjects}).write(archive.root / "registry.json")
    accept_schemas(archive.root, at=NOW)
    registry = SchemaRegistry({"url": target_registry})
    restore = SchemaRestore(archive, registry, "dr", KEEP)

    with pytest.raises(ConfigError, match="doesn't keep ids"):
        restore.apply(restore.plan(), now=utc_now())

    again = SchemaRestore(archive, registry, "dr", NEW)
    assert len(again.apply(again.plan(), now=utc_now()).map.schemas) == len(again.plan().steps)


def without(document: RegistryDocument, subject: str) -> RegistryDocument:
    """Return what an archive keeps, without a subject."""
    left = [row for row in document.subjects if row.name != subject]
    assert len(left) == len(document.subjects) - 1
    return document.model_copy(update={"subjects": left})


def test_drill_protobuf(
    drained: Callable[[int], Drained],
    source_registry: str,
    bootstrap_servers: str,
    cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    """A drill decodes nested Protobuf, Avro and JSON by the archive alone; it misses no schema.

    The registry has lost everything. Then the archive loses a schema, or what it refers to; whoever
    removed it seals what is left, so that nothing but the records tells.
    """
    made, key = drained(200), tmp_path / "key"
    archive = Archive.at(str(made.archive))
    for subject in (f"{made.orders}-value", f"{made.events}-value", f"{made.events}.note"):
        ask(f"{source_registry}/subjects/{subject}", method="DELETE")
    SigningKey.create(key)
    arguments = ["drill", str(made.archive), "--to-bootstrap", bootstrap_servers]
    arguments += ["--sample", "newest-hour", "--evidence-key", str(key)]
    before = cluster.topic_names()

    def drill() -> DrillDocument:
        code = main(arguments)
        result = read_drills(archive.root)[-1]
        assert code == (result.verdict == "failed")
        evidence = str(made.archive / "evidence" / "drill" / f"{result.drill}.json")
        assert main(["verify-evidence", evidence, "--public-key", f"{key}.pub"]) == 0
        assert cluster.topic_names() == before
        return result

    passed = drill()
    assert (passed.verdict, passed.records, passed.problems) == ("passed", 400, [])
    assert passed.verification is not None
    assert passed.verification["is_exact"] is True
    plain = [n for n in range(200) if not isinstance(expected("orders", n)[1], dict)]
    assert passed.decoded is not None
    assert passed.decoded.content() == {
        "values": 400,
        "decoded": 400 - len(plain),
        "without_schema": len(plain),
        "unknown_schemas": [],
        "undecodable": 0,
    }

    kept = read_document(archive.root)
    for subject, said in (
        (f"{made.events}-value", f"doesn't have schema {made.ids.event},"),
        (f"{made.events}.note", f"doesn't have schema {made.ids.note},"),
        (f"{made.events}.money", "180 of 400 restored values don't decode"),
    ):
        kept.write(archive.root / "registry.json")
        accept_schemas(archive.root, at=NOW)
        without(kept, subject).write(archive.root / "registry.json")
        [problem] = drill().problems
        assert problem.step == "decode"
        assert f"version 1 of {subject}: missing" in problem.detail
        accept_schemas(archive.root, at=NOW)
        failed = drill()
        [problem] = failed.problems
        assert problem.step == "decode"
        assert said in problem.detail
        # The records themselves were restored.
        assert failed.rto_seconds is not None


def test_capture_from_a_real_registry(
    drained: Callable[[int], Drained], source_registry: str
) -> None:
    """All kinds are kept with their references and settings; asked again, nothing is new."""
    made = drained(20)
    archive = Archive.at(str(made.archive))
    document = read_document(archive.root)

    kinds = {subject.name: subject.versions[-1].kind for subject in document.subjects}
    assert kinds == {
        f"{made.orders}.city": "AVRO",
        f"{made.orders}-key": "AVRO",
        f"{made.orders}-value": "AVRO",
        f"{made.events}.money": "PROTOBUF",
        f"{made.events}-value": "PROTOBUF",
        f"{made.events}.note": "JSON",
    }
    assert document.notes == []
    assert document.mode == "READWRITE"
    again = capture_schemas(archive, SchemaRegistry({"url": source_registry}), now=utc_now())
    assert again.new == again.missing == ()
    assert again.document.subjects == document.subjects
