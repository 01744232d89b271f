"""Schemas in another registry: all of them, once, with a map of their ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.documents import SchemaMapDocument
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.schemas import subjects as registering
from kafka_drain.schemas.capture import capture_schemas
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.schemas.restore import SchemaRestore, rows_of, settings_of
from kafka_drain.schemas.restore_order import KEEP, NEW
from kafka_drain.schemas.schema_map import read_map
from tests.fake_registry import FakeRegistry, fake_registry
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.schemas.test_capture import CITY, T0, capture, made, registry, value

__all__ = ["made", "registry"]


@pytest.fixture
def captured(made: MadeArchive, registry: FakeRegistry) -> MadeArchive:
    capture(made, registry)
    return made


@pytest.fixture
def target() -> Iterator[FakeRegistry]:
    with fake_registry(has_guids=True, next_id=500) as running:
        yield running


def restore(
    made: MadeArchive, target: FakeRegistry, ids: str = NEW, name: str = "dr"
) -> SchemaRestore:
    return SchemaRestore(made.archive, SchemaRegistry(target.settings), name, ids)


def apply(made: MadeArchive, target: FakeRegistry, ids: str = NEW) -> SchemaMapDocument:
    restoring = restore(made, target, ids)
    restored = restoring.apply(restoring.plan(), now=NOW)
    assert not restored.warnings
    return restored.map


def held(target: FakeRegistry) -> dict[tuple[str, int], int]:
    return {
        (subject, version): answer["id"]
        for subject, versions in target._subjects.items()
        for version, answer in versions.items()
    }


#: The versions that are restored, with their ids. Version 1 of t-value is deleted and unused.
IDS = {("city", 1): 3, ("city", 2): 4, ("com.acme.Outer", 1): 9, ("t-value", 2): 7}


def test_plan_changes_nothing(captured: MadeArchive, target: FakeRegistry) -> None:
    """A plan names what is registered, references first, and registers nothing."""
    plan = restore(captured, target).plan()

    assert plan.refusals == []
    assert rows_of(plan) == [
        ("city", 1, 3, "register"),
        ("city", 2, 4, "register"),
        ("com.acme.Outer", 1, 9, "register"),
        ("t-value", 2, 7, "register"),
    ]
    assert settings_of(plan) == [
        "city is new in the target, and gets compatibility BACKWARD and mode READONLY",
        "com.acme.Outer is new in the target, and gets compatibility BACKWARD and mode READWRITE",
        "t-value is new in the target, and gets compatibility FULL and mode READWRITE",
    ]
    assert held(target) == {}
    assert not (captured.root / "schema-maps").exists()


def test_plan_refuses_changed(captured: MadeArchive, target: FakeRegistry) -> None:
    """A schema that was changed in the archive isn't registered anywhere."""
    path = captured.root / "registry.json"
    path.write_text(path.read_text().replace("int32 n", "int64 n"))
    plan = restore(captured, target).plan()

    assert "version 1 of com.acme.Outer: changed; restore the document" in plan.refusals[0]
    with pytest.raises(ConfigError, match="nothing was registered: schema_changed"):
        apply(captured, target)
    assert held(target) == {}


def test_apply_new_ids(captured: MadeArchive, target: FakeRegistry) -> None:
    """Schemas get new ids, subjects their settings, and the map has all of them."""
    target.register("other", 3, CITY | {"name": "Other"})
    target.refuses = {"t-value"}
    target.compatibility[""] = "FULL_TRANSITIVE"

    written = apply(captured, target)

    assert {(row.subject, row.version): row.id for row in written.schemas} == IDS
    assert {row.new_id for row in written.schemas} == {500, 501, 502, 503}
    found = read_map(captured.root, "dr")
    assert sorted(found.ids) == [3, 4, 7, 9]
    assert found.ids[7] == target._subjects["t-value"][1]["id"]
    assert len(found.guids) == 4
    assert found.subjects[7] == {"t-value"}
    references = target._subjects["t-value"][1]["references"]
    assert references == [{"name": "City", "subject": "city", "version": 1}]
    assert target._subjects["com.acme.Outer"][1]["schemaType"] == "PROTOBUF"
    assert target.compatibility["t-value"] == "FULL"
    assert target.compatibility["city"] == "BACKWARD"
    assert target.modes["city"] == "READONLY"


def test_apply_keeps_ids(captured: MadeArchive, target: FakeRegistry) -> None:
    """In an empty registry, ids and versions stay, and subjects can be written afterwards."""
    written = apply(captured, target, KEEP)

    assert held(target) == IDS
    assert all(row.id == row.new_id and row.version == row.new_version for row in written.schemas)
    assert target.modes == {
        "": "READWRITE",
        "city": "READONLY",
        "com.acme.Outer": "READWRITE",
        "t-value": "READWRITE",
    }


@pytest.mark.parametrize("ids", [NEW, KEEP])
@pytest.mark.parametrize("after", range(5))
def test_apply_killed(
    captured: MadeArchive,
    target: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    ids: str,
    after: int,
) -> None:
    """A restore that was killed after any step is completed by the next one."""
    target.compatibility[""] = "FULL"
    register = registering.Subjects.register
    count = 0

    def killed(self: Any, *args: Any, **options: Any) -> int:
        nonlocal count
        if count == after:
            raise KeyboardInterrupt
        count += 1
        return register(self, *args, **options)

    monkeypatch.setattr(registering.Subjects, "register", killed)
    if after < 4:
        with pytest.raises(KeyboardInterrupt):
            apply(captured, target, ids)
    else:
        # All are registered, and no subject has its settings yet.
        monkeypatch.setattr("kafka_drain.schemas.restore._set", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            apply(captured, target, ids)
    monkeypatch.undo()

    written = apply(captured, target, ids)

    assert {(row.subject, row.version): row.id for row in written.schemas} == IDS
    assert len(held(target)) == 4
    if ids == KEEP:
        assert held(target) == IDS
    assert "IMPORT" not in target.modes.values()
    assert "NONE" not in target.compatibility.values()


@pytest.mark.parametrize("ids", [NEW, KEEP])
def test_apply_killed_registered_again(
    made: MadeArchive,
    registry: FakeRegistry,
    target: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    ids: str,
) -> None:
    """So is one of a subject that was deleted, and whose first schema was then registered again."""
    made.seal({T0: dense(6, 7)}, value=value(5), key=None)
    registry.delete("t-value", 2)
    registry.register("t-value", 5, CITY | {"name": "Old"})
    capture(made, registry)
    register = registering.Subjects.register

    def killed(self: Any, subject: str, schema: Any, *args: Any, **options: Any) -> int:
        if (subject, schema.version) == ("t-value", 2):
            raise KeyboardInterrupt
        return register(self, subject, schema, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(registering.Subjects, "register", killed)
        with pytest.raises(KeyboardInterrupt):
            apply(made, target, ids)

    written = apply(made, target, ids)

    new_ids = {row.id: row.new_id for row in written.schemas}
    assert [row.version for row in written.schemas if row.subject == "t-value"] == [1, 2, 3]
    assert len(set(new_ids.values())) == len(new_ids) == 5


def test_apply_twice(captured: MadeArchive, target: FakeRegistry) -> None:
    """A restore of what is there registers nothing, and leaves later settings alone."""
    first = apply(captured, target)
    target.compatibility["t-value"] = "FORWARD"
    target.register("t-value", 900, CITY | {"name": "Later"})
    plan = restore(captured, target).plan()

    assert plan.missing == []
    again = apply(captured, target)

    assert again == first
    assert target.compatibility["t-value"] == "FORWARD"


def test_plan_refuses_other_content(captured: MadeArchive, target: FakeRegistry) -> None:
    """A subject with other schemas is refused before anything is registered."""
    target.register("t-value", 600, CITY | {"name": "Foreign"})

    plan = restore(captured, target).plan()

    assert ["t-value holds other schemas" in said for said in plan.refusals] == [True]
    with pytest.raises(ConfigError, match="nothing was registered"):
        restore(captured, target).apply(plan, now=NOW)
    assert len(held(target)) == 1


def test_plan_refuses_taken_id(captured: MadeArchive, target: FakeRegistry) -> None:
    """An id of another schema can't be kept, but the schemas can get new ones."""
    target.register("other", 7, CITY | {"name": "Other"})

    assert restore(captured, target).plan().refusals == []
    [said] = restore(captured, target, KEEP).plan().refusals
    assert "given id 7 to another schema" in said


def test_apply_target_ignores_ids(captured: MadeArchive, target: FakeRegistry) -> None:
    """A registry that accepts mode IMPORT but gives ids of its own is noticed at the first one."""
    target.keeps_ids = False

    with pytest.raises(ConfigError, match=r"doesn't keep ids: .* with id 500 instead of 3"):
        apply(captured, target, KEEP)

    assert not (captured.root / "schema-maps").exists()
    written = apply(captured, target)
    assert len(written.schemas) == 4


def test_apply_incompatible(captured: MadeArchive, target: FakeRegistry) -> None:
    """A schema that the target finds incompatible is named, with what the target said."""
    apply(captured, target)
    target.refuses = {"city"}
    with fake_registry() as source:
        for number, id_ in ((1, 3), (2, 4), (3, 13)):
            source.register("city", id_, CITY | ({"doc": str(number)} if number > 2 else {}))
        source._subjects["city"][2]["schema"] = '{"x": 1}'
        capture_schemas(captured.archive, SchemaRegistry(source.settings), now=NOW)

    with pytest.raises(ConfigError, match=r"version 3 of city wasn't registered.*incompatible"):
        apply(captured, target)


def test_restore_nothing_kept(made: MadeArchive, target: FakeRegistry) -> None:
    """An archive without schemas says what to run."""
    with pytest.raises(ArchiveError, match="capture-schemas"):
        restore(made, target).plan()


def test_restore_map_of_other_registry(captured: MadeArchive, target: FakeRegistry) -> None:
    """A map isn't overwritten by that of another registry."""
    apply(captured, target)
    with fake_registry() as other, pytest.raises(ConfigError, match="name another map"):
        restore(captured, other).plan()


def test_restore_registry_file(tmp_path: Path) -> None:
    """A map's name can't lead out of its folder."""
    with pytest.raises(ConfigError, match="can't be named"):
        read_map(MadeArchive(tmp_path / "a", {"t": "id"}).root, "../x")


def test_map_of_other_context(made: MadeArchive, target: FakeRegistry) -> None:
    """The id of a record leads to a schema of the default context, not of another one."""
    with fake_registry(has_guids=True) as registry:
        registry.register("7-value", 7, CITY)
        registry.register(":.partner:x", 7, CITY | {"name": "Theirs"})
        registry.register("com.acme.Outer", 9, CITY | {"name": "Nine"})
        capture_schemas(
            made.archive,
            SchemaRegistry(registry.settings),
            now=NOW,
            subjects=["7-value", ":.partner:x"],
        )

    written = apply(made, target)

    ids = {row.subject: row.new_id for row in written.schemas}
    assert read_map(made.root, "dr").ids[7] == ids["7-value"]


def test_map_only_of_other_context(made: MadeArchive, target: FakeRegistry) -> None:
    """An id that only another context's schema has isn't a record's: a republish is refused."""
    with fake_registry(has_guids=True) as registry:
        registry.register(":.partner:x", 12, CITY)
        capture_schemas(
            made.archive, SchemaRegistry(registry.settings), now=NOW, subjects=[":.partner:x"]
        )

    [row] = apply(made, target).schemas

    read = read_map(made.root, "dr")
    assert row.id == 12
    assert 12 not in read.ids
    assert 12 not in read.subjects
    assert read.guids == {row.guid: row.new_guid}


@pytest.mark.parametrize("killed", [False, True])
def test_apply_level_unknown(
    made: MadeArchive,
    registry: FakeRegistry,
    target: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    killed: bool,
) -> None:
    """A subject whose level was never known gets back the target's, also after a kill."""
    registry.statuses = {"GET /config": 403}
    capture(made, registry)
    if killed:
        monkeypatch.setattr("kafka_drain.schemas.restore._set", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            apply(made, target)
        assert target.compatibility["t-value"] == "NONE"
        monkeypatch.undo()

    apply(made, target)

    levels = {name: level for name, level in target.compatibility.items() if name}
    assert levels == dict.fromkeys(["city", "com.acme.Outer", "t-value"], "BACKWARD")


def test_apply_subject_is_there(
    made: MadeArchive, registry: FakeRegistry, target: FakeRegistry
) -> None:
    """A subject that the target had before keeps its settings, stricter ones too; it is told."""
    registry.compatibility["city"] = "NONE"
    capture(made, registry)
    target.register("city", 600, CITY)
    target.compatibility["city"] = "FULL_TRANSITIVE"
    plan = restore(made, target).plan()

    assert next(step.place for step in plan.missing) == ("city", 2)
    assert [note for note in plan.notes if note.startswith("city")] == [
        "city is in the target already, and keeps its compatibility FULL_TRANSITIVE, not NONE as "
        "in the archive",
        "city is in the target already, and keeps its mode READWRITE, not READONLY as in the "
        "archive",
    ]
    assert [line.split()[0] for line in settings_of(plan)] == ["com.acme.Outer", "t-value"]
    apply(made, target)

    assert target.compatibility["city"] == "FULL_TRANSITIVE"
    assert "city" not in target.modes
    assert target.compatibility["t-value"] == "FULL"


def test_plan_subject_begun(
    made: MadeArchive, registry: FakeRegistry, target: FakeRegistry
) -> None:
    """A subject that a killed restore, or a user, may have set to NONE isn't called new."""
    capture(made, registry)
    target.register("city", 600, CITY)
    target.compatibility["city"] = "NONE"

    plan = restore(made, target).plan()

    said, *new = settings_of(plan)
    assert said.startswith("city is in the target with only the archive's versions, at compat")
    assert said.endswith(
        "It gets compatibility BACKWARD and mode READONLY; if its settings were yours, set them "
        "again afterwards: a later restore keeps them"
    )
    assert [line.split(",")[0] for line in new] == [
        "com.acme.Outer is new in the target",
        "t-value is new in the target",
    ]


def test_apply_settings_changed_later(captured: MadeArchive, target: FakeRegistry) -> None:
    """What an operator opens after a restore stays open: it isn't taken for a killed restore."""
    apply(captured, target)
    target.modes["city"], target.compatibility["t-value"] = "IMPORT", "NONE"

    assert settings_of(restore(captured, target).plan()) == []
    apply(captured, target)

    assert (target.modes["city"], target.compatibility["t-value"]) == ("IMPORT", "NONE")


@pytest.mark.parametrize("status", [401, 403, 404, 405, 422])
def test_apply_mode_refused(captured: MadeArchive, target: FakeRegistry, status: int) -> None:
    """A mode that the target refuses ends nothing, and is told, by later plans too."""
    target.statuses = {"PUT /mode": status}
    restoring = restore(captured, target)

    restored = restoring.apply(restoring.plan(), now=NOW)

    [warning] = restored.warnings
    assert warning.startswith("city didn't get its mode READONLY: ")
    assert "--ids" not in warning
    assert target.compatibility["t-value"] == "FULL"
    assert len(read_map(captured.root, "dr").ids) == 4
    again = restoring.plan()
    assert "keeps its mode READWRITE, not READONLY" in "".join(again.notes)
    assert not restoring.apply(again, now=NOW).warnings


@pytest.mark.parametrize("status", [403, 404])
def test_apply_compatibility_refused(
    captured: MadeArchive, target: FakeRegistry, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """So is a compatibility; the mode is set all the same."""
    set_ = registering.Subjects.set_compatibility

    def refusing(self: Any, level: str, subject: str) -> bool:
        if level != "NONE":
            target.statuses = {"PUT /config": status}
        return set_(self, level, subject)

    monkeypatch.setattr(registering.Subjects, "set_compatibility", refusing)
    restoring = restore(captured, target)

    restored = restoring.apply(restoring.plan(), now=NOW)

    assert [said.partition(":")[0] for said in restored.warnings] == [
        "city didn't get its compatibility BACKWARD",
        "com.acme.Outer didn't get its compatibility BACKWARD",
        "t-value didn't get its compatibility FULL",
    ]
    assert target.modes["city"] == "READONLY"


def test_apply_keeps_ids_mode_unreadable(captured: MadeArchive, target: FakeRegistry) -> None:
    """A subject doesn't stay in mode IMPORT, nor at NONE, if the login may not read its own."""
    target.statuses = {"GET /mode/": 403, "GET /config/": 403}

    apply(captured, target, KEEP)

    assert target.modes["t-value"] == "READWRITE"
    assert target.compatibility["city"] == "BACKWARD"


@pytest.mark.parametrize("ids", [NEW, KEEP])
def test_apply_killed_without_checks(
    captured: MadeArchive, target: FakeRegistry, monkeypatch: pytest.MonkeyPatch, ids: str
) -> None:
    """Where the target checks nothing, what a killed restore has begun is known all the same."""
    target.compatibility[""] = "NONE"
    with monkeypatch.context() as patch:
        patch.setattr("kafka_drain.schemas.restore._set", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            apply(captured, target, ids)

    apply(captured, target, ids)

    assert target.compatibility["t-value"] == "FULL"
    assert target.modes["city"] == "READONLY"


@pytest.mark.parametrize("ids", [NEW, KEEP])
def test_apply_killed_before_mode(
    captured: MadeArchive, target: FakeRegistry, monkeypatch: pytest.MonkeyPatch, ids: str
) -> None:
    """A mode that a killed restore didn't get to is set by the next one, or told by its plan."""
    set_ = registering.Subjects.set_mode

    def killed(self: Any, mode: str, subject: str) -> bool:
        if mode == "READONLY":
            raise KeyboardInterrupt
        return set_(self, mode, subject)

    with monkeypatch.context() as patch:
        patch.setattr(registering.Subjects, "set_mode", killed)
        with pytest.raises(KeyboardInterrupt):
            apply(captured, target, ids)
    plan = restore(captured, target, ids).plan()
    apply(captured, target, ids)

    told = "city is in the target already, and keeps its mode READWRITE, not READONLY"
    assert (target.modes.get("city") == "READONLY") is (ids == KEEP)
    assert any(told in note for note in plan.notes) is (ids == NEW)
    assert target.compatibility["t-value"] == "FULL"


def delete_all(target: FakeRegistry) -> None:
    """Delete all subjects softly, as people do after a test; their settings go with them."""
    for subject, version in held(target):
        target.delete(subject, version)
        target.compatibility.pop(subject, None)
        target.modes.pop(subject, None)


def live(target: FakeRegistry) -> dict[tuple[str, int], int]:
    return {place: id_ for place, id_ in held(target).items() if place not in target._deleted}


@pytest.mark.parametrize("ids", [NEW, KEEP])
def test_apply_deleted_in_target(captured: MadeArchive, target: FakeRegistry, ids: str) -> None:
    """What the target has deleted softly is registered again, and the plan says so."""
    first = apply(captured, target, ids)
    delete_all(target)

    plan = restore(captured, target, ids).plan()
    assert plan.refusals == []
    does = [row[-1] for row in rows_of(plan)]
    assert does[0] == "register again: its version 1 is deleted there"
    assert len(plan.missing) == len(plan.steps)
    assert len(settings_of(plan)) == 3
    again = apply(captured, target, ids)

    new = {(row.subject, row.new_version): row.new_id for row in again.schemas}
    assert live(target) == new
    assert {row.new_id for row in again.schemas if row.subject == "city"} == {
        row.new_id for row in first.schemas if row.subject == "city"
    }
    assert target.modes["city"] == "READONLY"
    assert restore(captured, target, ids).plan().missing == []


def test_apply_deleted_in_target_killed(
    captured: MadeArchive, target: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore of them that was killed is completed, though the map is that of the first one."""
    apply(captured, target)
    delete_all(target)
    with monkeypatch.context() as patch:
        patch.setattr("kafka_drain.schemas.restore._set", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            apply(captured, target)

    apply(captured, target)

    assert len(live(target)) == 4
    assert target.compatibility["t-value"] == "FULL"
    assert target.modes["city"] == "READONLY"


def test_apply_deleted_on_both_sides(
    made: MadeArchive, registry: FakeRegistry, target: FakeRegistry
) -> None:
    """What is deleted in the archive too, or has live newer versions, isn't made the newest."""
    made.seal({T0: dense(6, 7)}, value=value(5), key=None)
    capture(made, registry)
    first = apply(made, target)
    target.delete("t-value", 1)
    target.delete("city", 1)

    plan = restore(made, target).plan()

    assert plan.missing == []
    does = {row[:2]: row[-1] for row in rows_of(plan)}
    assert does["t-value", 1].startswith("is there, deleted, id ")
    assert does["city", 1].startswith("is there, deleted, id ")
    assert does["city", 2].startswith("is there, id ")
    assert apply(made, target) == first


@pytest.mark.parametrize("is_deleted", [True, False])
def test_plan_reference_gone(
    captured: MadeArchive, target: FakeRegistry, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """A schema whose reference the target lacks isn't looked for: it can't be there."""
    apply(captured, target)
    if is_deleted:
        delete_all(target)
    del target._subjects["city"]
    find = registering.Subjects.find

    def complete(self: Any, name: str, schema: Any, references: Any, **more: Any) -> Any:
        # A registry refuses to look for a schema whose references are left out.
        assert references is not None
        return find(self, name, schema, references, **more)

    monkeypatch.setattr(registering.Subjects, "find", complete)
    plan = restore(captured, target).plan()

    assert {row[-1] for row in rows_of(plan) if row[0] in ("city", "t-value")} == {"register"}
    assert ["t-value holds other" in said for said in plan.refusals] == [True] * (not is_deleted)
    if is_deleted:
        assert len(apply(captured, target).schemas) == len(live(target)) == 4


def test_apply_keeps_ids_no_modes(captured: MadeArchive, target: FakeRegistry) -> None:
    """A registry without modes can't keep ids, and nothing is registered there."""
    target.statuses = {"PUT /mode": 404}

    with pytest.raises(ConfigError, match=r"has no modes, so that it can't keep ids.*--ids new"):
        apply(captured, target, KEEP)

    assert held(target) == {}
