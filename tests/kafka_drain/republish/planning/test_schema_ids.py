"""Schema ids in a plan: every id that is sent has a translation, or nothing is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from upath import UPath

from kafka_drain.archive.documents import SchemaMapDocument
from kafka_drain.errors import ConfigError, SourceRecordError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.schema_ids import notes_of, plan_schema_ids
from kafka_drain.schemas.schema_ids import IdLocation
from kafka_drain.schemas.schema_map import SchemaMap, map_path
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.republish.planning.test_planner import plan_of

G1, G2 = str(UUID(int=1)), str(UUID(int=2))
MAP = SchemaMap(
    "dr",
    {5: 105, 6: 6, 7: 107},
    {G1: G2},
    {5: frozenset({"t-value"}), 6: frozenset({"t-key", "com.acme.Order"}), 7: frozenset()},
)
P = [TopicPartition("t", p) for p in (0, 1)]


def test_plan_schema_ids() -> None:
    """The plan has the ids that occur, and how many keys and values have one."""
    counts = {
        IdLocation("t", "value", 5): 10,
        IdLocation("t", "value", G1): 3,
        IdLocation("t", "value", None): 2,
        IdLocation("t", "key", 6): 15,
        IdLocation("u", "key", None): 4,
    }

    found = plan_schema_ids(counts, MAP, ["u:value"])

    assert found == {
        "map": "dr",
        "ids": {"5": 105, "6": 6},
        "guids": {G1: G2},
        "kept": ["u:value"],
        "counts": [
            {"topic": "t", "part": "key", "translated": 15, "without": 0},
            {"topic": "t", "part": "value", "translated": 13, "without": 2},
            {"topic": "u", "part": "key", "translated": 0, "without": 4},
        ],
    }
    assert notes_of(found) == [
        "schema ids of t: 15 keys get new ones, 0 have none and stay as they are",
        "schema ids of t: 13 values get new ones, 2 have none and stay as they are",
        "schema ids of u: 0 keys get new ones, 4 have none and stay as they are",
        "schema map dr: 5 -> 105",
    ]


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("id_", [9, str(UUID(int=9))])
def test_plan_schema_ids_unknown(part: str, id_: int | str) -> None:
    """An id without a translation refuses the run; the error names it and how often it occurs."""
    with pytest.raises(SourceRecordError, match=rf"2 {part}s of t .* dr doesn't have: {id_}\."):
        plan_schema_ids({IdLocation("t", part, id_): 2, IdLocation("t", "value", 7): 1}, MAP)


@pytest.mark.parametrize(
    ("part", "subjects", "is_refused"),
    [
        ("key", {"t-value"}, True),
        ("key", {"t-value", "u-value"}, True),
        ("key", {"t-value", "u-key"}, False),
        ("key", {"com.acme.Order"}, False),
        ("key", set(), False),
        ("value", {"t-key"}, True),
        ("value", {"t-value"}, False),
    ],
)
def test_plan_schema_ids_of_other_part(part: str, subjects: set[str], is_refused: bool) -> None:
    """Keys with ids of values are hardly ids: eight-byte numbers start with zero bytes too."""
    schema_map = SchemaMap("dr", {5: 105}, {}, {5: frozenset(subjects)})

    if is_refused:
        with pytest.raises(SourceRecordError, match=f"hardly ids.*--keep-ids t:{part}"):
            plan_schema_ids({IdLocation("t", part, 5): 2}, schema_map)
    else:
        assert plan_schema_ids({IdLocation("t", part, 5): 2}, schema_map)["ids"] == {"5": 105}


def write_map(root: UPath, *rows: dict[str, Any], name: str = "dr") -> None:
    schemas = [{"subject": "t-value", "version": 1, "new_version": 1, **row} for row in rows]
    document = {"url": "http://r", "written_at": "2026-01-01T00:00:00Z", "schemas": schemas}
    SchemaMapDocument.model_validate(document).write(map_path(root, name))


def made(tmp_path: Path) -> MadeArchive:
    archive = MadeArchive(tmp_path / "archive", {"t": "id"})
    archive.seal({tp: dense(0, 5) for tp in P}, value=b"\0\0\0\0\5abc", key=b"k")
    archive.seal({P[0]: dense(5, 9)}, value=b"\0\0\0\0\7abc", key=None)
    archive.seal({P[1]: dense(5, 6)}, value=None)
    return archive


def test_make_plan_schema_ids(tmp_path: Path) -> None:
    """The map is fixed in the plan, for the selected records, and the plan needs a new release."""
    archive = made(tmp_path)
    write_map(archive.root, {"id": 5, "new_id": 105}, {"id": 8, "new_id": 1})

    with pytest.raises(SourceRecordError, match=r"4 values of t have .* doesn't have: 7"):
        plan_of(archive.archive, files=archive.files, schema_map="dr")
    plan = plan_of(
        archive.archive, files=archive.files, schema_map="dr", offsets=["t:0:0-5", "t:1:2-6"]
    )

    assert plan.schema_ids is not None
    assert plan.schema_ids["ids"] == {"5": 105}
    assert plan.schema_ids["counts"] == [
        {"topic": "t", "part": "key", "translated": 0, "without": 9},
        {"topic": "t", "part": "value", "translated": 8, "without": 0},
    ]
    assert plan.translation is not None
    assert plan.translation.ids == {5: 105}
    assert b'"format_version":3' in plan.to_bytes()
    assert RepublishPlan.parse(plan.to_bytes()) == plan
    assert plan.sha256
    write_map(archive.root, {"id": 5, "new_id": 106})
    again = plan_of(
        archive.archive, files=archive.files, schema_map="dr", offsets=["t:0:0-5", "t:1:2-6"]
    )
    assert again.sha256 != plan.sha256


def test_make_plan_schema_ids_kept(tmp_path: Path) -> None:
    """Parts that are kept aren't looked at."""
    archive = made(tmp_path)
    write_map(archive.root)

    plan = plan_of(archive.archive, files=archive.files, schema_map="dr", keep_ids=["t:value"])

    assert plan.schema_ids is not None
    assert plan.schema_ids["kept"] == ["t:value"]
    assert [row["part"] for row in plan.schema_ids["counts"]] == ["key"]


def test_make_plan_other_framings(tmp_path: Path) -> None:
    """Framing of other registries is named; one id is kept, while others are translated."""
    archive = MadeArchive(tmp_path / "archive", {"t": "id"})
    glue, apicurio = b"\3\5" + bytes(16) + b"x", bytes(5) + b"\0\0\0\7x"
    values = [b"\0\0\0\0\5abc"] * 10 + [glue] * 3 + [apicurio] * 2 + [b"\3\0short"]
    archive.seal({P[0]: dense(0, len(values))}, value=lambda _, at: values[at], key=b"k")
    write_map(archive.root, {"id": 5, "new_id": 105})

    with pytest.raises(
        SourceRecordError, match=r"2 look like Apicurio's framing .* --keep-ids t:value:0 if"
    ):
        plan_of(archive.archive, files=archive.files, schema_map="dr")
    plan = plan_of(archive.archive, files=archive.files, schema_map="dr", keep_ids=["t:value:0"])

    assert plan.schema_ids is not None
    assert plan.schema_ids["counts"][1] == {
        "topic": "t",
        "part": "value",
        "translated": 10,
        "without": 4,
        "kept": 2,
        "framings": {
            "AWS Glue's framing": 3,
            "Apicurio's framing with ids of eight bytes": 2,
        },
    }
    assert [note.partition(":")[0] for note in plan.notes if "look like" in note] == [
        "WARNING 3 values of t look like AWS Glue's framing",
        "WARNING 2 values of t look like Apicurio's framing with ids of eight bytes",
    ]
    assert any("10 values get new ones, 4 have none" in n and "2 have ids" in n for n in plan.notes)
    assert RepublishPlan.parse(plan.to_bytes()) == plan


@pytest.mark.parametrize("name", ["missing", "../dr", "", "a/b"])
def test_make_plan_schema_map_missing(tmp_path: Path, name: str) -> None:
    """A map that isn't there, or can't be a file's name, is refused in words."""
    archive = made(tmp_path)

    with pytest.raises(ConfigError, match=r"has no schema map missing|can't be named"):
        plan_of(archive.archive, files=archive.files, schema_map=name)


def test_make_plan_without_map(tmp_path: Path) -> None:
    """Without a map, nothing is read, and the plan has the version that older releases know."""
    archive = made(tmp_path)

    plan = plan_of(archive.archive, files=archive.files)

    assert plan.schema_ids is plan.translation is None
    assert b"schema_ids" not in plan.to_bytes()
