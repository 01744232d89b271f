"""What a restore of schemas registers: in an order that works, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.documents import RegisteredRow, SubjectRow
from kafka_drain.errors import ConfigError
from kafka_drain.schemas.restore_order import (
    KEEP,
    NEW,
    PlannedVersion,
    TargetSubject,
    in_order,
    is_created,
    is_left,
    kept_settings,
    refusal,
    taken_ids,
    target_references,
    wanted_versions,
)
from kafka_drain.schemas.schema_ids import RegisteredSchema


def row(version: int, id_: int, *references: tuple[str, int], **more: Any) -> RegisteredRow:
    return RegisteredRow.model_validate(
        {
            "version": version,
            "id": id_,
            "type": "AVRO",
            "schema": "{}",
            "references": [{"name": s, "subject": s, "version": v} for s, v in references],
            **more,
        }
    )


def test_in_order() -> None:
    """References come first, and versions of a subject in their order."""
    versions = {
        ("a", 1): row(1, 1, ("c", 2)),
        ("a", 2): row(2, 2),
        ("b", 1): row(1, 3, ("a", 1)),
        ("c", 1): row(1, 4),
        ("c", 2): row(2, 5),
    }

    assert in_order(versions) == [("c", 1), ("c", 2), ("a", 1), ("a", 2), ("b", 1)]


@given(st.data())
def test_in_order_property(data: st.DataObject) -> None:
    """Whatever refers to what: nothing comes before what it needs, and nothing is left out."""
    places = data.draw(
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 4)), unique=True, max_size=10)
    )
    # A version that is registered later refers to earlier ones; older ones of a subject come first.
    order = sorted(places, key=lambda p: (p[1], p[0]))
    versions = {
        place: row(place[1], 1, *data.draw(st.lists(st.sampled_from(order[:at]), max_size=2)))
        if at
        else row(place[1], 1)
        for at, place in enumerate(order)
    }

    found = in_order(versions)

    assert sorted(found) == sorted(places)
    for at, place in enumerate(found):
        needs = {(r.subject, r.version) for r in versions[place].references}
        needs |= {(s, v) for s, v in places if s == place[0] and v < place[1]}
        assert needs <= set(found[:at])


def test_in_order_lost_reference() -> None:
    """A version that refers to one that isn't kept can't be restored; the error names both."""
    with pytest.raises(ConfigError, match="version 1 of a refers to version 2 of b"):
        in_order({("a", 1): row(1, 1, ("b", 2))})


def test_in_order_circle() -> None:
    """A circle, which no registry accepts, ends in words."""
    versions = {
        ("a", 1): row(1, 1, ("b", 2)),
        ("b", 2): row(2, 2, ("c", 3)),
        ("c", 3): row(3, 3, ("b", 2)),
    }

    with pytest.raises(ConfigError, match="version 3 of c refers to itself"):
        in_order(versions)


def test_wanted_versions() -> None:
    """Deleted versions are restored if records use them, or what is restored refers to them."""
    subjects = [
        SubjectRow(
            name="a",
            versions=[
                row(1, 1, deleted=True),
                row(2, 2, deleted=True),
                row(3, 3, ("b", 1)),
                row(4, 4, deleted=True, guid="g"),
            ],
        ),
        SubjectRow(name="b", versions=[row(1, 5, ("c", 1), ("lost", 9), deleted=True)]),
        SubjectRow(name="c", versions=[row(1, 6, deleted=True), row(2, 7, deleted=True)]),
    ]

    found = wanted_versions(subjects, {2, "g"})

    assert {place: row.id for place, row in found.items()} == {
        ("a", 2): 2,
        ("a", 3): 3,
        ("a", 4): 4,
        ("b", 1): 5,
        ("c", 1): 6,
    }


def steps(**found: Any) -> list[PlannedVersion]:
    """Versions with ids 1, 2, …; those that are given are in the target with version and id."""
    return [
        PlannedVersion(
            "s", row(v, v), RegisteredSchema("s", *found[f"v{v}"]) if f"v{v}" in found else None
        )
        for v in (1, 2)
    ]


@pytest.mark.parametrize(
    ("found", "held", "mode", "new", "keep"),
    [
        ({}, [], "READWRITE", "", ""),
        ({}, [], "IMPORT", "", ""),
        ({"v1": (1, 1)}, [1], "READWRITE", "", "isn't empty in the target"),
        ({"v1": (1, 1)}, [1], "IMPORT", "", ""),
        ({"v1": (1, 9)}, [1], "READWRITE", "", "has given it id 9"),
        ({"v1": (1, 1), "v2": (2, 2)}, [1, 2], "READWRITE", "", ""),
        ({"v1": (1, 8), "v2": (2, 9)}, [1, 2], "READWRITE", "", "has given it id 8"),
        ({"v1": (1, 1), "v2": (2, 2)}, [1, 2, 3], "READWRITE", "", ""),
        ({"v1": (1, 1)}, [1, 2], "IMPORT", "holds other schemas", "holds other schemas"),
        ({}, [1], "IMPORT", "holds other schemas", "holds other schemas"),
        ({"v2": (1, 2)}, [1], "IMPORT", "come after newer", "come after newer"),
    ],
)
def test_refusal(found: Any, held: list[int], mode: str, new: str, keep: str) -> None:
    """Other content, a wrong order and ids that can't be kept are refused; the rest isn't."""
    for ids, expected in ((NEW, new), (KEEP, keep)):
        said = refusal("s", steps(**found), TargetSubject(held, mode), ids)

        assert (expected in said) if expected else not said


def test_refusal_registered_again() -> None:
    """A newer version with the schema of an older one isn't one that the target already has."""
    first = RegisteredSchema("s", 1, 1)
    steps = [
        PlannedVersion("s", row(1, 1), first),
        PlannedVersion("s", row(2, 2)),
        PlannedVersion("s", row(3, 1), first),
    ]

    assert refusal("s", steps, TargetSubject([1], "READWRITE"), NEW) == ""
    assert refusal("s", steps, TargetSubject([1], "IMPORT"), KEEP) == ""
    steps[2] = PlannedVersion("s", row(3, 3), RegisteredSchema("s", 2, 3))
    assert "come after newer" in refusal("s", steps, TargetSubject([1, 2], "IMPORT"), NEW)


def test_taken_ids() -> None:
    """An id is taken if the target has it for none of the schemas that are restored."""
    shared = [
        PlannedVersion("s", row(1, 1), RegisteredSchema("s", 1, 1)),
        PlannedVersion("t", row(1, 1)),
        PlannedVersion("t", row(2, 2)),
    ]

    assert taken_ids(shared, [1, 2, 3]) == [2]
    assert taken_ids(shared, []) == []
    assert taken_ids(steps(), [1, 5]) == [1]


def test_target_references() -> None:
    """References are to the target's versions; without one, there is nothing to look for."""
    schema = row(1, 1, ("a", 3))

    assert target_references(schema, {}) is None
    found = target_references(schema, {("a", 3): RegisteredSchema("a", 1, 7)})
    assert found is not None
    assert [reference.content() for reference in found] == [
        {"name": "a", "subject": "a", "version": 1}
    ]


@pytest.mark.parametrize(
    ("versions", "is_open", "mapped", "created"),
    [
        ([], False, [], True),
        ([1], True, [], True),
        ([1], False, [], False),
        ([1, 2], True, [], False),
        ([1], True, [1], False),
        ([1], True, [3], True),
        ([], False, [1], True),
    ],
)
def test_is_created(versions: list[int], is_open: bool, mapped: list[int], created: bool) -> None:
    """New is what the target doesn't have, and what a killed restore has begun to fill."""
    planned = steps(v1=(1, 1)) if versions else steps()
    held = TargetSubject(versions, is_open=is_open)

    assert is_created(planned, held, mapped) is created


def test_kept_settings_unknown() -> None:
    """A level that the archive doesn't know isn't another one; one of the target may be."""
    assert kept_settings("s", TargetSubject([1], "READWRITE", "FULL"), (None, "READWRITE")) == []
    [said] = kept_settings("s", TargetSubject([1]), ("FULL", "READWRITE"))
    assert "keeps its compatibility (unknown), not FULL" in said


@pytest.mark.parametrize(
    ("deleted", "versions", "ids", "left"),
    [
        (False, [], NEW, False),
        (False, [1], NEW, False),
        (False, [3], NEW, True),
        (True, [], NEW, True),
        (True, [1], NEW, True),
        (True, [], KEEP, False),
        (True, [3], KEEP, True),
    ],
)
def test_is_left(deleted: bool, versions: list[int], ids: str, left: bool) -> None:
    """A version that is deleted there is registered again unless it would replace the newest."""
    gone = RegisteredSchema("s", 2, 7)

    assert is_left(row(2, 2, deleted=deleted), gone, TargetSubject(versions), ids) is left
