"""Schemas that an archive keeps: of the ids in its records, whatever becomes of the registry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from benchmarks.synthetic import AnyHash
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import RegistryDocument, SeenIdsRow
from kafka_drain.archive.schema_seals import SEALS, SchemaKey, check_schemas, registry_digests
from kafka_drain.data_files.reader import read_records
from kafka_drain.findings import Reason, errors
from kafka_drain.kafka.identity import SeenRecord
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive
from kafka_drain.schemas import capture as capturing
from kafka_drain.schemas.capture import Capture, capture_schemas, merged_seen, read_document
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.schemas.schema_ids import IdLocation
from kafka_drain.storage.loopback import JsonHandler, loopback
from tests.fake_registry import LOGIN, FakeRegistry, fake_registry
from tests.kafka_drain.golden import (
    END,
    MANIFEST,
    add_batch,
    golden_cluster,
    golden_copy,
    note_batch,
)
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CITY = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "city", "type": "City"}]}
PROTO = 'syntax = "proto3"; message Outer { message Inner { int32 n = 1; } }'
REFERENCES = [{"name": "City", "subject": "city", "version": 1}]


def value(id_: int) -> bytes:
    return b"\0" + id_.to_bytes(4, "big") + b"x"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry(LOGIN, has_guids=True) as running:
        running.register("city", 3, CITY)
        running.register("city", 4, CITY | {"doc": "newer"})
        running.register("t-value", 5, CITY | {"name": "Old"})
        running.register("t-value", 7, ORDER, references=REFERENCES)
        running.delete("t-value", 1)
        running.register("com.acme.Outer", 9, PROTO, schemaType="PROTOBUF")
        running.register("unused", 11, CITY | {"name": "Unused"})
        running.compatibility["t-value"] = "FULL"
        running.modes["city"] = "READONLY"
        yield running


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    archive = MadeArchive(tmp_path / "archive", {"t": "id"})
    archive.seal({T0: dense(0, 5), T1: dense(0, 2)}, value=value(7), key=value(9))
    archive.seal({T0: dense(5, 6)}, value=b"plain", key=None)
    return archive


def capture(made: MadeArchive, registry: FakeRegistry, **more: str) -> Capture:
    settings = registry.settings | more
    return capture_schemas(made.archive, SchemaRegistry(settings), now=NOW)


def versions_of(document: RegistryDocument) -> list[tuple[str, int, int, bool]]:
    return [(s.name, v.version, v.id, v.deleted) for s in document.subjects for v in s.versions]


ALL = [
    ("city", 1, 3, False),
    ("city", 2, 4, False),
    ("com.acme.Outer", 1, 9, False),
    ("t-value", 1, 5, True),
    ("t-value", 2, 7, False),
]


def test_capture_schemas(made: MadeArchive, registry: FakeRegistry) -> None:
    """The subjects of the ids in keys and values are kept whole, and what they refer to."""
    found = capture(made, registry)

    document = read_document(made.root)
    assert document == found.document
    assert versions_of(document) == ALL
    assert found.new == tuple((name, version) for name, version, _, _ in ALL)
    assert (document.compatibility, document.mode) == ("BACKWARD", "READWRITE")
    settings = {s.name: (s.compatibility, s.mode) for s in document.subjects}
    assert settings == {
        "city": (None, "READONLY"),
        "com.acme.Outer": (None, None),
        "t-value": ("FULL", None),
    }
    newest = document.subjects[-1].versions[-1]
    assert (newest.kind, len(newest.references), bool(newest.guid)) == ("AVRO", 1, True)
    assert document.subjects[1].versions[0].text == PROTO
    assert [(row.topic, row.part, row.ids) for row in document.seen] == [
        ("t", "key", [9]),
        ("t", "value", [7]),
    ]
    assert document.notes == []
    assert LOGIN.partition(":")[2] not in (made.root / "registry.json").read_text()
    assert document.format_version == 1


def test_capture_schemas_again(
    made: MadeArchive, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next time, only new files are read and new versions fetched; nothing is removed."""
    read: list[str] = []

    def records(path: object, *given: Any) -> Any:
        read.append(str(path))
        return read_records(path, *given)

    monkeypatch.setattr(capturing, "read_records", records)
    capture(made, registry)
    assert len(read) == 3
    [new] = made.seal({T1: dense(2, 3)}, value=value(12), key=None)
    registry.register("t-value", 12, CITY | {"name": "New"})
    registry._subjects["com.acme.Outer"].clear()
    registry.asked.clear()

    found = capture_schemas(made.archive, SchemaRegistry(registry.settings), now=NOW)

    assert found.new == (("t-value", 3),)
    assert versions_of(found.document) == [*ALL, ("t-value", 3, 12, False)]
    assert found.document.seen[1].ids == [7, 12]
    assert any("versions/3" in path for path in registry.asked)
    assert read[3:] == [f"{made.root}/{new.path}"]


@pytest.mark.parametrize("fails", [401, 403, 500])
def test_capture_schemas_registry_fails(
    made: MadeArchive, registry: FakeRegistry, fails: int
) -> None:
    """A registry that refuses or fails stops nothing: it is noted, and asked again."""
    registry.fails = fails

    found = capture(made, registry)

    assert found.missing == (7, 9)
    assert found.document.subjects == []
    assert len(found.document.notes) == 1
    assert str(fails) in found.document.notes[0]
    assert found.lines("/a")[1].startswith("WARNING ")
    registry.fails = 0
    again = capture(made, registry)
    assert versions_of(again.document) == ALL
    assert again.document.notes == []


def sealed(made: MadeArchive) -> dict[SchemaKey, str]:
    """What the newest seal holds."""
    return dict(next(SEALS.links(made.archive.root)).schemas)


def findings(made: MadeArchive) -> list[Reason]:
    root = made.archive.root
    return [each.reason for each in check_schemas(root, {}, SEALS.newest(root), whole=True)]


def test_capture_schemas_seals(made: MadeArchive, registry: FakeRegistry) -> None:
    """A capture seals what it keeps, and what the registry has changed; a dry run seals nothing."""
    url = SchemaRegistry(registry.settings)
    capture_schemas(made.archive, url, now=NOW, writes=False)
    assert SEALS.newest(made.archive.root) is None

    first = capture(made, registry)
    assert sealed(made) == registry_digests(first.document)
    registry.compatibility["t-value"] = "NONE"
    registry.delete("city", 1)
    second = capture(made, registry)

    assert sealed(made) == registry_digests(second.document) != registry_digests(first.document)
    assert findings(made) == []
    assert not second.unsealed


@pytest.mark.parametrize("answers", [True, False])
def test_capture_schemas_changed(made: MadeArchive, registry: FakeRegistry, answers: bool) -> None:
    """A capture doesn't make a finding of a changed schema go away, whether or not it can ask."""
    capture(made, registry)
    path = made.root / "registry.json"
    path.write_text(path.read_text().replace("int32 n", "int64 n"))
    registry.fails = 0 if answers else 500

    capture(made, registry)

    assert findings(made) == [Reason.SCHEMA_CHANGED]
    # The way out, while the registry has it: remove the document, and capture again.
    registry.fails = 0
    path.unlink()
    assert findings(made) == [Reason.SCHEMA_CHANGED]
    capture(made, registry)
    assert findings(made) == []


def test_capture_schemas_seal_lost(made: MadeArchive, registry: FakeRegistry) -> None:
    """With the newest seal gone, schemas are kept, but not sealed, and that is said."""
    capture(made, registry)
    (made.root / SEALS.where(1)).unlink()

    found = capture(made, registry)

    assert found.unsealed
    assert "WARNING schemas: nothing was sealed" in found.lines("/a")[-1]
    assert findings(made) == [Reason.SCHEMA_SEAL_LOST]


def test_capture_schemas_registry_gone(made: MadeArchive, registry: FakeRegistry) -> None:
    """What is kept stays when the registry doesn't respond."""
    before = capture(made, registry).document

    found = capture(made, registry, url="http://127.0.0.1:9")

    assert versions_of(found.document) == ALL
    assert (before.compatibility, before.mode) == ("BACKWARD", "READWRITE")
    assert (found.document.compatibility, found.document.mode) == ("BACKWARD", "READWRITE")
    assert "doesn't respond" in found.document.notes[0]


def test_capture_schemas_unknown_id(made: MadeArchive, registry: FakeRegistry) -> None:
    """An id that the registry doesn't have is noted."""
    made.seal({T1: dense(2, 3)}, value=value(99), key=None)

    found = capture(made, registry)

    assert found.missing == (99,)
    assert "doesn't have the schemas of 1 ids in the records: 99" in found.document.notes[0]
    assert versions_of(found.document) == ALL


def test_capture_schemas_guid(made: MadeArchive, registry: FakeRegistry) -> None:
    """A GUID in a header leads to its subject, as an id does."""
    guid = registry._subjects["unused"][1]["guid"]
    header = {"key": "__value_schema_id", "value": b"\1" + UUID(guid).bytes}
    made.seal({T1: dense(2, 3)}, value=b"x", headers=[header])

    found = capture(made, registry)

    assert found.missing == ()
    assert found.document.seen[1].guids == [guid]
    assert "unused" in [subject.name for subject in found.document.subjects]


def test_capture_schemas_other_registry(made: MadeArchive, registry: FakeRegistry) -> None:
    """A registry in which a version has another id is another one: nothing of it is kept."""
    capture(made, registry)
    with fake_registry() as other:
        other.register("city", 30, CITY)
        other.register("city", 31, CITY | {"doc": "newer"})
        other.register("city", 32, CITY | {"doc": "newest"})

        found = capture(made, other)

    assert versions_of(found.document) == ALL
    assert "version 2 of city has schema id 31" in found.document.notes[0]


def test_capture_schemas_other_ids(made: MadeArchive, registry: FakeRegistry) -> None:
    """Nor is anything kept of a registry without these subjects that has other schemas for ids.

    Two schemas of one id would decode and translate records of one by the other.
    """
    capture(made, registry)
    made.seal({T1: dense(2, 3)}, value=value(21), key=None)
    with fake_registry() as other:
        other.register("elsewhere", 7, CITY | {"name": "Elsewhere"})
        other.register("elsewhere", 21, CITY | {"name": "Elsewhere", "doc": "newer"})

        found = capture(made, other)

    assert versions_of(found.document) == ALL
    assert found.missing == (21,)
    [note] = found.document.notes
    assert "schema id 7 is version 1 of elsewhere in http" in note
    assert "version 2 of t-value in the archive" in note


def test_capture_schemas_shared_id(made: MadeArchive, registry: FakeRegistry) -> None:
    """A registry gives a schema the same id in every subject, however it is spaced."""
    capture(made, registry)
    text = json.dumps(CITY, indent=1)
    registry.register("t-key", 3, text)

    found = capture(made, registry)

    assert ("t-key", 1, 3, False) in versions_of(found.document)
    assert found.document.notes == []


def test_capture_schemas_registered_again(made: MadeArchive, registry: FakeRegistry) -> None:
    """A subject that was deleted for good and filled again is told; the way on keeps its schema."""
    capture(made, registry)
    registry._subjects["t-value"].clear()
    registry._deleted.clear()
    again = CITY | {"name": "Again"}
    registry.register("t-value", 12, again)
    made.seal({T1: dense(2, 3)}, value=value(12), key=None)

    found = capture(made, registry)

    assert versions_of(found.document) == ALL
    assert found.missing == (12,)
    [note] = found.document.notes
    assert "version 1 of t-value has schema id 12" in note
    assert "register its schemas under another subject, too" in note
    registry.register("t-value-again", 12, again)
    found = capture(made, registry)
    assert found.missing == ()
    assert versions_of(found.document) == [*ALL, ("t-value-again", 1, 12, False)]


def compact(made: MadeArchive) -> None:
    """Replace all files by those of a window, and remove them."""
    files = made.files()
    made.seal_window(
        "compact_0001",
        {T0: dense(0, 6), T1: dense(0, 2)},
        [file.path for file in files],
        {"value": value(7), "key": value(9)},
        kind="compact",
    )
    for file in files:
        (made.root / file.path).unlink()


def test_capture_schemas_after_compaction(made: MadeArchive, registry: FakeRegistry) -> None:
    """Records whose files were compacted before their ids were read are read from the new ones."""
    compact(made)

    assert versions_of(capture(made, registry).document) == ALL


def test_capture_schemas_compacted_meanwhile(
    made: MadeArchive, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are records missed whose files maintenance replaces while a capture is reading."""

    def records(path: Any, *given: Any) -> Any:
        monkeypatch.setattr(capturing, "read_records", read_records)
        compact(made)
        return read_records(path, *given)

    monkeypatch.setattr(capturing, "read_records", records)
    capture(made, registry)
    found = capture(made, registry)

    assert versions_of(found.document) == ALL
    assert [(row.part, row.ids) for row in found.document.seen] == [("key", [9]), ("value", [7])]


@pytest.fixture
def drained(tmp_path: Path) -> Archive:
    """The golden archive with one more batch, whose records have ids; nothing is sealed."""
    archive = golden_copy(tmp_path / "archive")
    paths = add_batch(archive.generation(1), 14, END, 50, value=value(7), key=value(9))
    note_batch(archive.generation(1), 14, paths, END, 50)
    return archive


def validate(archive: Archive, registry: FakeRegistry) -> Report:
    """Validate, and keep the schemas of new records on the way."""

    def keep() -> None:
        capture_schemas(archive, SchemaRegistry(registry.settings), now=NOW)

    kafka: Any = golden_cluster()
    # These archives have other values than the golden one.
    kafka.single_records = lambda offsets, _="", **more: {
        tp: SeenRecord(at, AnyHash(), None) for tp, at in offsets.items()
    }
    return validate_archive(archive, kafka, keep_schemas=keep)


def test_validation_names_new_schemas(
    drained: Archive, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt that seals records names the seal of their schemas; they are read only once."""
    report = validate(drained, registry)

    assert report.findings == []
    newest = drained.generation(1).last_receipt()
    assert newest is not None
    assert (newest.last_batch, newest.schemas) == (14, SEALS.newest(drained.root))
    document = read_document(drained.root)
    assert dict(next(SEALS.links(drained.root)).schemas) == registry_digests(document)
    assert versions_of(document) == ALL
    assert [(row.part, row.ids) for row in document.seen] == [("key", [9]), ("value", [7])]
    assert document.read_through.generations == {"1": "000000000014.json"}
    monkeypatch.setattr("kafka_drain.schemas.capture.read_records", None)
    assert validate(drained, registry).findings == []


@pytest.mark.parametrize("fails", [0, 500])
def test_validation_seals_without_registry(
    drained: Archive, registry: FakeRegistry, fails: int
) -> None:
    """A registry that fails stops no seal; the schemas are named by a later receipt."""
    registry.fails = fails
    report = validate(drained, registry)
    registry.fails = 0
    paths = add_batch(drained.generation(1), 15, 50, 52)
    note_batch(drained.generation(1), 15, paths, 50, 52)

    assert errors(report.findings) == []
    validate(drained, registry)

    names = [receipt.schemas for receipt in drained.generation(1).receipts()]
    newest = SEALS.newest(drained.root)
    # What a capture seals that couldn't ask is that nothing is known of the registry.
    assert names[-1] == newest is not None
    assert (names[-2] == newest) is not bool(fails)
    assert versions_of(read_document(drained.root)) == ALL


def test_validation_finds_removed_schemas(drained: Archive, registry: FakeRegistry) -> None:
    """Schemas that were removed are found, even if the registry still has them."""
    validate(drained, registry)
    (drained.root / "registry.json").unlink()

    assert [found.reason for found in validate(drained, registry).findings] == [
        Reason.SCHEMA_CHANGED
    ]
    assert validate(drained, registry).findings == []


def lose_file(archive: Archive) -> None:
    next(Path(str(archive.root)).rglob("part-*-14.parquet")).unlink()


def cut_manifest(archive: Archive) -> None:
    path = Path(str(archive.root)) / MANIFEST / "14"
    path.write_text(path.read_text()[:20])


@pytest.mark.parametrize("harm", [lose_file, cut_manifest])
def test_capture_schemas_unsealed_damaged(
    harm: Callable[[Archive], None], drained: Archive, registry: FakeRegistry
) -> None:
    """Of damaged files that aren't sealed, nothing is read until a validation has judged them."""
    harm(drained)

    found = capture_schemas(drained, SchemaRegistry(registry.settings), now=NOW)

    assert found.document.seen == []
    assert found.document.read_through.generations == {}


def test_merged_seen() -> None:
    """Ids are added to those that are known, by topic and part."""
    rows = [SeenIdsRow(topic="t", part="key", ids=[3], guids=["g"])]

    found = merged_seen(rows, {IdLocation("t", "key", 1): 5, IdLocation("u", "value", None): 1})

    assert [row.content() for row in found] == [
        {"topic": "t", "part": "key", "ids": [1, 3], "guids": ["g"]}
    ]


@pytest.mark.parametrize("said", [{}, {"status": "maintenance"}, [], [1], "no", 3, [{}]], ids=str)
def test_capture_schemas_other_answers(
    made: MadeArchive, registry: FakeRegistry, said: Any
) -> None:
    """What isn't a registry's answer, such as a proxy's, is noted; what is kept stays."""
    kept = capture(made, registry).document.subjects

    class Proxy(JsonHandler):
        def do_GET(self) -> None:
            self.answer(200, said)

    with loopback(Proxy, 0.02) as url:
        found = capture(made, registry, url=url)

    assert found.document.subjects == kept
    assert found.new == ()
    if said:
        assert re.search("isn't a Schema Registry's", "".join(found.document.notes))


def test_capture_schemas_of_other_context(made: MadeArchive, registry: FakeRegistry) -> None:
    """An id that only another context's subject has kept so far is asked for all the same."""
    made.seal({T1: dense(2, 3)}, value=value(12), key=None)
    registry.register(":.partner:t-value", 12, CITY | {"name": "Theirs"})
    registry.register("com.acme.Twelve", 12, CITY | {"name": "Twelve"})

    capture_schemas(
        made.archive, SchemaRegistry(registry.settings), now=NOW, subjects=[":.partner:t-value"]
    )

    found = versions_of(read_document(made.root))
    assert ("com.acme.Twelve", 1, 12, False) in found
    assert (":.partner:t-value", 1, 12, False) in found


def test_capture_schemas_url_of_context(
    made: MadeArchive, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A url that leads to a context is what a capture blames for ids that it doesn't find."""
    registry.register(":.x:t-value", 7, CITY)
    made.seal({T1: dense(2, 3)}, value=value(12), key=None)
    registry.register(":.x:com.acme.Twelve", 12, CITY)
    answer = FakeRegistry.answer

    def within(self: FakeRegistry, target: str, *given: Any) -> tuple[int, Any]:
        # Confluent's ContextFilter.
        target = target.removeprefix("/contexts/.x:").replace("/subjects/t-", "/subjects/:.x:t-")
        return answer(self, target, *given)

    monkeypatch.setattr(FakeRegistry, "answer", within)

    found = capture(made, registry, url=f"{registry.url}/contexts/.x:")

    assert ("t-value", 1, 7, False) in versions_of(found.document)
    [note] = found.document.notes
    assert "/contexts/.x: doesn't have the schemas of 1 ids in the records: 12; its url" in note


def test_missing_ids_of_other_context(made: MadeArchive, registry: FakeRegistry) -> None:
    """A schema of another context doesn't stand in for one of the default context with its id."""
    made.seal({T1: dense(2, 3)}, value=value(12), key=None)
    registry.register(":.partner:x", 12, CITY | {"name": "Theirs"})

    found = capture_schemas(
        made.archive, SchemaRegistry(registry.settings), now=NOW, subjects=[":.partner:x"]
    )

    assert (":.partner:x", 1, 12, False) in versions_of(found.document)
    assert found.missing == (12,)


def test_capture_schemas_of_some_refused(
    made: MadeArchive, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login with rights on some subjects only keeps these; the others are named in one note."""
    answer = FakeRegistry.answer

    def refusing(self: FakeRegistry, target: str, *given: Any) -> tuple[int, Any]:
        if target.startswith("/subjects/t-key/"):
            return 403, {"error_code": 40301, "message": "User is denied operation Read"}
        return answer(self, target, *given)

    monkeypatch.setattr(FakeRegistry, "answer", refusing)

    found = capture(made, registry)

    assert versions_of(found.document) == ALL
    [note] = found.document.notes
    assert "403" in note
    assert note.endswith("not read: t-key")


def test_capture_schemas_settings_refused(made: MadeArchive, registry: FakeRegistry) -> None:
    """A login that may not read settings any more forgets none: they stay, and a note says so."""
    capture(made, registry)
    registry.statuses = {"GET /config": 403, "GET /mode": 403}

    found = capture(made, registry)

    levels = {subject.name: subject.compatibility for subject in found.document.subjects}
    assert (levels["t-value"], found.document.compatibility) == ("FULL", "BACKWARD")
    assert versions_of(found.document) == ALL
    [note] = found.document.notes
    assert "403" in note
    assert "another right: settings of the registry, settings of city" in note


def test_capture_schemas_settings_refused_too(made: MadeArchive, registry: FakeRegistry) -> None:
    """Settings that can't be read are told beside a subject that is refused in the same words."""
    registry.statuses = {"GET /subjects/t-key/": 403, "GET /config/ci": 403, "GET /config/t": 405}

    found = capture(made, registry)

    refused, other = found.document.notes
    assert refused.endswith("not read: t-key, settings of city")
    assert "another right: settings of t-value: " in other


@pytest.mark.parametrize("status", [400, 405, 409, 422, 500])
def test_capture_schemas_of_one_fails(
    made: MadeArchive, registry: FakeRegistry, status: int
) -> None:
    """A subject that always gets an odd answer keeps no other subject or id from being kept."""
    registry.statuses = {"GET /subjects/t-key/": status, "GET /schemas/ids/9/": status}

    found = capture(made, registry)

    kept = [row for row in ALL if row[0] != "com.acme.Outer"]
    assert versions_of(found.document) == kept
    assert found.missing == (9,)
    [note] = found.document.notes
    assert str(status) in note
    assert note.endswith("not read: t-key, schema id 9")


def test_capture_schemas_of_many_fail(made: MadeArchive, registry: FakeRegistry) -> None:
    """Any number of subjects whose names a registry refuses keeps no other from being kept."""
    registry.statuses = {"GET /subjects/team%2F": 400}
    names = [f"team/{number}" for number in range(12)]

    found = capture_schemas(
        made.archive, SchemaRegistry(registry.settings), now=NOW, subjects=names
    )

    assert versions_of(found.document) == ALL
    assert found.missing == ()
    [note] = found.document.notes
    assert note.endswith("team/9 …")


def test_capture_schemas_of_unwell(made: MadeArchive, registry: FakeRegistry) -> None:
    """A registry that fails several times in a row isn't asked on and on, and one note says so."""
    registry.statuses = {"GET /subjects/": 503}
    names = [f"other-{number}" for number in range(9)]

    found = capture_schemas(
        made.archive, SchemaRegistry(registry.settings), now=NOW, subjects=names
    )

    assert len({path.partition("?")[0] for path in registry.asked if "subjects" in path}) == 3
    [note] = found.document.notes
    assert note.endswith("not read: other-0, other-1, other-2, and nothing after them")


def test_capture_schemas_of_unwell_seldom(made: MadeArchive, registry: FakeRegistry) -> None:
    """Failures that aren't in a row end nothing, however many there are."""
    registry.statuses = dict.fromkeys([f"GET /subjects/a{n}/" for n in range(4)], 500)
    names = ["a0", "a1", "b", "a2", "a3"]

    found = capture_schemas(
        made.archive, SchemaRegistry(registry.settings), now=NOW, subjects=names
    )

    assert versions_of(found.document) == ALL
    assert found.document.notes[0].endswith("not read: a0, a1, a2, a3")


def test_capture_schemas_of_one_fails_lacks_id(made: MadeArchive, registry: FakeRegistry) -> None:
    """An id that the registry lacks is noted, whatever else couldn't be read."""
    made.seal({T1: dense(2, 3)}, value=value(99), key=None)
    registry.statuses = {"GET /subjects/t-key/": 400, "GET /subjects/com.acme.Outer/": 403}

    found = capture(made, registry)

    assert found.missing == (9, 99)
    first, *others = found.document.notes
    assert "doesn't have the schemas of 1 ids in the records: 99" in first
    assert [note.partition("not read: ")[2] for note in others] == [
        "t-key",
        "com.acme.Outer, schema id 9",
    ]
