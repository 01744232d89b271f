"""What a registry is asked of its subjects: deleted versions are there, and known as deleted."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_drain.archive.documents import RegisteredRow, SubjectRow
from kafka_drain.errors import KafkaDrainError
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.schemas.subjects import Subjects, read_subject
from tests.fake_registry import FakeRegistry, fake_registry


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry with three versions of a subject, of which the second one is deleted."""
    with fake_registry() as registry:
        for id_, kind in ((5, "string"), (6, "long"), (7, "bytes")):
            registry.register("t-value", id_, {"type": kind})
        registry.delete("t-value", 2)
        yield registry


@pytest.fixture
def subjects(registry: FakeRegistry) -> Subjects:
    """Its subjects."""
    return Subjects(SchemaRegistry(registry.settings))


def flags(subject: SubjectRow | None) -> dict[int, bool]:
    """Return which versions are deleted."""
    assert subject is not None
    return {row.version: row.deleted for row in subject.versions}


def test_subjects_deleted(subjects: Subjects) -> None:
    """A deleted version is found by its number, its id and its text; it isn't among the live."""
    assert subjects.versions("t-value") == [1, 2, 3]
    assert subjects.versions("t-value", deleted=False) == [1, 3]
    found = subjects.version("t-value", 2, deleted=True)
    assert found is not None
    assert (found.id, found.deleted) == (6, True)
    assert subjects.of_id(6) == [("t-value", 2)]
    assert subjects.has_id(6)
    assert subjects.find("t-value", found, []) is None
    there = subjects.find("t-value", found, [], deleted=True)
    assert there is not None
    assert (there.version, there.id) == (2, 6)


def test_subjects_unknown(subjects: Subjects) -> None:
    """What the registry doesn't have is nothing, and no error."""
    row = RegisteredRow.model_validate(
        {"version": 1, "id": 9, "type": "AVRO", "schema": '"int"', "references": []}
    )

    assert subjects.versions("x-value") == []
    assert subjects.version("t-value", 9) is None
    assert subjects.of_id(9) == []
    assert not subjects.has_id(9)
    assert subjects.find("t-value", row, []) is None
    assert read_subject(subjects, "x-value", None, {}) is None


def test_read_subject(registry: FakeRegistry, subjects: Subjects) -> None:
    """Known versions aren't fetched again, but a later deletion of theirs is seen."""
    known = read_subject(subjects, "t-value", None, {})
    assert flags(known) == {1: False, 2: True, 3: False}
    registry.delete("t-value", 1)
    registry.register("t-value", 8, {"type": "double"})
    registry.asked.clear()

    again = read_subject(subjects, "t-value", known, {})

    assert flags(again) == {1: True, 2: True, 3: False, 4: False}
    fetched = [path for path in registry.asked if path.startswith("/subjects/t-value/versions/")]
    assert [path.partition("?")[0][-2:] for path in fetched] == ["/4"]


def test_read_subject_gone(subjects: Subjects) -> None:
    """A subject that the registry has no more is kept as it was."""
    known = SubjectRow(name="gone", compatibility="FULL", mode=None, versions=[])

    assert read_subject(subjects, "gone", known, {}) == known


def test_read_subject_version_gone(registry: FakeRegistry, subjects: Subjects) -> None:
    """A version that was deleted for good is kept as it was: records may have its id."""
    known = read_subject(subjects, "t-value", None, {})
    assert flags(known) == {1: False, 2: True, 3: False}
    del registry._subjects["t-value"][2]
    assert subjects.versions("t-value") == [1, 3]

    assert read_subject(subjects, "t-value", known, {}) == known


@pytest.mark.parametrize("status", [400, 401, 403])
def test_read_subject_settings_refused(
    registry: FakeRegistry, subjects: Subjects, status: int
) -> None:
    """Settings that the login may no longer read stay as they were known, and that is told."""
    registry.compatibility["t-value"] = "FULL"
    known = read_subject(subjects, "t-value", None, {})
    registry.statuses["GET /config"] = status
    refused: dict[str, KafkaDrainError] = {}

    assert read_subject(subjects, "t-value", known, refused) == known
    assert known is not None
    assert known.compatibility == "FULL"
    assert list(refused) == ["settings of t-value"]
    never = read_subject(subjects, "t-value", None, {})
    assert never is not None
    assert never.compatibility is None


def test_read_subject_settings_removed(registry: FakeRegistry, subjects: Subjects) -> None:
    """A subject that has no settings of its own any more is kept without any."""
    registry.compatibility["t-value"] = "FULL"
    known = read_subject(subjects, "t-value", None, {})
    del registry.compatibility["t-value"]
    refused: dict[str, KafkaDrainError] = {}

    again = read_subject(subjects, "t-value", known, refused)

    assert again is not None
    assert (again.compatibility, refused) == (None, {})


def test_ids_of_guid_of_other_context() -> None:
    """The ids of a GUID are those of the default context, which records' ids are of."""
    found = [{"context": ".", "id": 7}, {"context": ":.partner:", "id": 3}, {"id": 5}]
    answers: dict[str, Any] = {"/schemas/guids/g/ids": found}
    asked = Subjects(cast(SchemaRegistry, SimpleNamespace(ask=lambda _, path, **__: answers[path])))

    assert asked.ids_of_guid("g") == [5, 7]
