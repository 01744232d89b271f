"""How a drain decodes values: what is frozen, what is learnt, what the archive's copies do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.schema_seals import SEALS, check_schemas
from kafka_drain.archive.snapshot import SnapshotGeneration
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import AuthenticationError, ConfigError, RegistryUnavailableError
from kafka_drain.findings import Reason
from kafka_drain.schemas.decoding import ValuePlan, frozen_values, plan_values
from kafka_drain.schemas.registry import SchemaRegistry, WriterSchema
from tests.fake_registry import FakeRegistry, fake_registry
from tests.kafka_drain.made_archive import NOW

V1 = {
    "type": "record",
    "name": "Order",
    "namespace": "",
    "fields": [{"name": "id", "type": "long"}],
}
CITY = {"name": "city", "type": ["null", "string"], "default": None}
V2 = V1 | {"fields": [*V1["fields"], CITY]}
NODE = V1 | {"fields": [{"name": "next", "type": ["null", "Order"]}]}
BY_REGISTRY = {"encoding": "avro", "registry_conn_id": "registry"}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        running.register("orders-value", 7, V1)
        running.register("orders-value", 9, V2)
        yield running


def pipeline_to(folder: Path, values: dict[str, Any] | None, **keys: Any) -> Pipeline:
    keys = {"topics": ["orders"], **keys}
    return Pipeline(name="orders", archive=str(folder), values=values, **keys)


def opened(folder: Path, plan: ValuePlan) -> SnapshotGeneration:
    """Write what a drain leaves of a plan."""
    archive = Archive.at(folder)
    archive.create(pipeline="orders", cluster_id="c", topic_ids={"orders": "o"}, source={})
    plan.keep(archive.root, NOW)
    archive.generation(1).write(
        starting_offsets={},
        file_format="parquet",
        partition_by=[],
        topic_ids={},
        reason="first",
        values=plan.frozen,
    )
    return archive.snapshot().generations[0]


def test_plan_values_none(tmp_path: Path) -> None:
    """A pipeline that says nothing of values decodes nothing."""
    plan = plan_values(pipeline_to(tmp_path, None), Archive.at(tmp_path), None, None)

    assert (plan.spec, plan.frozen, plan.changed) == (None, None, False)


def test_plan_values_newest(registry: FakeRegistry, tmp_path: Path) -> None:
    """The columns are those of the subject's newest version; all versions can be decoded."""
    pipeline = pipeline_to(tmp_path, BY_REGISTRY)

    plan = plan_values(pipeline, Archive.at(tmp_path), None, SchemaRegistry(registry.settings))

    assert plan.spec == {"encoding": "avro", "reader": V2, "writers": {"7": V1, "9": V2}}
    assert plan.frozen == {"settings": BY_REGISTRY, "reader": V2}
    assert list(plan.warnings) == []


def test_plan_values_newest_deleted(registry: FakeRegistry, tmp_path: Path) -> None:
    """A deleted version decodes its values, and doesn't say what the columns are."""
    registry.delete("orders-value", 2)

    plan = plan_values(
        pipeline_to(tmp_path, BY_REGISTRY),
        Archive.at(tmp_path),
        None,
        SchemaRegistry(registry.settings),
    )

    assert plan.spec == {"encoding": "avro", "reader": V1, "writers": {"7": V1, "9": V2}}


def test_plan_values_contains_itself(registry: FakeRegistry, tmp_path: Path) -> None:
    """A newest version that can't be columns isn't decoded; the one before it says them."""
    registry.register("orders-value", 12, NODE)

    plan = plan_values(
        pipeline_to(tmp_path, BY_REGISTRY),
        Archive.at(tmp_path),
        None,
        SchemaRegistry(registry.settings),
    )

    assert plan.spec == {"encoding": "avro", "reader": V2, "writers": {"7": V1, "9": V2}}
    assert list(plan.warnings) == [
        "values of schema id 12 aren't decoded: Order contains itself",
        "the columns are those of schema id 9, because 12 can't be converted to columns",
    ]


def test_plan_values_frozen(registry: FakeRegistry, tmp_path: Path) -> None:
    """Within a generation the columns stay; what is registered later is decoded into them."""
    pipeline, client = pipeline_to(tmp_path, BY_REGISTRY), SchemaRegistry(registry.settings)
    archive = Archive.at(tmp_path)
    generation = opened(tmp_path, plan_values(pipeline, archive, None, client))
    registry.register("orders-value", 15, V1)
    registry.asked.clear()

    plan = plan_values(pipeline, archive, generation, client)

    assert plan.spec == {"encoding": "avro", "reader": V2, "writers": {"7": V1, "9": V2, "15": V1}}
    assert plan.changed
    assert list(plan.warnings) == []
    # Of the known ones, only the newest is looked at again.
    assert [target for target in registry.asked if "versions/" in target] == [
        "/subjects/orders-value/versions/2?deleted=true",
        "/subjects/orders-value/versions/3?deleted=true",
    ]


def test_plan_values_registry_gone(tmp_path: Path) -> None:
    """Without a registry, a first drain waits, and a later one uses the archive's copies."""
    pipeline, archive = pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path)
    with fake_registry() as registry:
        registry.register("orders-value", 7, V1)
        client = SchemaRegistry(registry.settings)
        first = plan_values(pipeline, archive, None, client)
    with pytest.raises(RegistryUnavailableError):
        plan_values(pipeline, archive, None, client)
    generation = opened(tmp_path, first)

    plan = plan_values(pipeline, archive, generation, client)

    assert (plan.spec, plan.changed) == (first.spec, False)
    [warning] = plan.warnings
    assert "the archive's own copies of schemas" in warning
    # Also where the next generation is opened meanwhile.
    assert plan_values(pipeline, archive, None, client).spec == first.spec


def test_plan_values_registry_refuses(registry: FakeRegistry, tmp_path: Path) -> None:
    """A login that the registry refuses stops only a first drain, as its outage does."""
    pipeline, archive = pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path)
    client = SchemaRegistry(registry.settings)
    first = plan_values(pipeline, archive, None, client)
    registry.login = "other:login"
    with pytest.raises(AuthenticationError):
        plan_values(pipeline, archive, None, client)
    generation = opened(tmp_path, first)

    for of in (generation, None):
        plan = plan_values(pipeline, archive, of, client)

        assert (plan.spec, plan.changed) == (first.spec, False)
        assert "the archive's own copies of schemas" in plan.warnings[0]


def test_plan_values_subject_gone(registry: FakeRegistry, tmp_path: Path) -> None:
    """A subject that was deleted for good stops no drain of its archive, but that of another."""
    pipeline, archive = pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path)
    client = SchemaRegistry(registry.settings)
    first = plan_values(pipeline, archive, None, client)
    generation = opened(tmp_path, first)
    del registry._subjects["orders-value"]

    for of in (generation, None):
        plan = plan_values(pipeline, archive, of, client)

        assert (plan.spec, plan.changed) == (first.spec, False)
        assert "orders-value" in plan.warnings[0]
    # A subject of which the archive has nothing may be a mistake in the settings.
    other = pipeline_to(tmp_path, {**BY_REGISTRY, "subjects": ["orders-value", "ordres-value"]})
    with pytest.raises(ConfigError, match="ordres-value"):
        plan_values(other, archive, None, client)


def test_plan_values_reference_gone(registry: FakeRegistry, tmp_path: Path) -> None:
    """A new version that can't be read is refused: its values would stay raw."""
    pipeline, archive = pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path)
    client = SchemaRegistry(registry.settings)
    generation = opened(tmp_path, plan_values(pipeline, archive, None, client))
    gone = [{"name": "Gone", "subject": "gone", "version": 1}]
    registry.register("orders-value", 15, V1, references=gone)

    with pytest.raises(ConfigError, match="/subjects/gone/versions/1"):
        plan_values(pipeline, archive, generation, client)


def test_plan_values_no_registry_named(tmp_path: Path) -> None:
    """At the terminal, a first drain has to be told where the registry is."""
    with pytest.raises(ConfigError, match="--registry-config"):
        plan_values(pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path), None, None)


def test_plan_values_other_registry(registry: FakeRegistry, tmp_path: Path) -> None:
    """An id that means another schema than before is another registry's: refused."""
    pipeline, archive = pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path)
    first = plan_values(pipeline, archive, None, SchemaRegistry(registry.settings))
    generation = opened(tmp_path, first)
    with fake_registry() as other:
        other.register("orders-value", 1, V1)
        other.register("orders-value", 2, V1)
        other.register("orders-value", 9, V1)

        with pytest.raises(ConfigError, match=r"schema id 9 is a different schema here"):
            plan_values(pipeline, archive, generation, SchemaRegistry(other.settings))


@pytest.mark.parametrize("versions", [[(9, V1)], [(9, V1), (1, V1)]])
def test_plan_values_other_registry_no_newer(
    registry: FakeRegistry, tmp_path: Path, versions: list[tuple[int, Any]]
) -> None:
    """Also if that registry has no more versions than the archive, which aren't fetched again."""
    pipeline, archive = pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path)
    first = plan_values(pipeline, archive, None, SchemaRegistry(registry.settings))
    generation = opened(tmp_path, first)
    with fake_registry() as other:
        for id_, schema in versions:
            other.register("orders-value", id_, schema)

        with pytest.raises(ConfigError, match=r"schema id 9 is a different schema here"):
            plan_values(pipeline, archive, generation, SchemaRegistry(other.settings))


def test_plan_values_registered_again(registry: FakeRegistry, tmp_path: Path) -> None:
    """A subject that was deleted for good and filled again has known versions with new schemas."""
    pipeline, archive = pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path)
    client = SchemaRegistry(registry.settings)
    generation = opened(tmp_path, plan_values(pipeline, archive, None, client))
    registry._subjects["orders-value"].clear()
    again = V1 | {"fields": [*V1["fields"], CITY | {"name": "country"}]}
    registry.register("orders-value", 12, again)

    for _ in range(2):
        plan = plan_values(pipeline, archive, generation, client)
        plan.keep(archive.root, NOW)

        assert sorted(plan.schemas) == [7, 9, 12]
        assert plan.schemas[12].schema == again
    assert not plan.changed
    spec = plan_values(pipeline, archive, None, client).spec
    assert spec is not None
    assert spec["reader"] == again


def test_plan_values_files(tmp_path: Path) -> None:
    """Schemas from files need no registry; the highest id's are the columns, or a file says so."""
    for name, schema in {"1.avsc": V1, "2.avsc": V2}.items():
        (tmp_path / name).write_text(json.dumps(schema))
    values = {
        "encoding": "avro",
        "schema_files": {"1": str(tmp_path / "1.avsc"), "2": str(tmp_path / "2.avsc")},
    }
    archive = Archive.at(tmp_path / "archive")

    plan = plan_values(pipeline_to(tmp_path / "archive", values), archive, None, None)
    told = values | {"reader_schema": str(tmp_path / "1.avsc")}
    other = plan_values(pipeline_to(tmp_path / "archive", told), archive, None, None)

    assert plan.spec == {"encoding": "avro", "reader": V2, "writers": {"1": V1, "2": V2}}
    assert other.spec == {"encoding": "avro", "reader": V1, "writers": {"1": V1, "2": V2}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "can't be read"),
        ("{", "isn't an Avro schema"),
        (json.dumps(NODE), "can't be converted to columns: Order contains itself"),
    ],
)
def test_plan_values_bad_reader(text: str | None, says: str, tmp_path: Path) -> None:
    """A reader's schema that can't be used is refused before the drain."""
    reader, writer = tmp_path / "reader.avsc", tmp_path / "1.avsc"
    writer.write_text(json.dumps(V1))
    if text is not None:
        reader.write_text(text)
    values = {
        "encoding": "avro",
        "schema_files": {"1": str(writer)},
        "reader_schema": str(reader),
    }
    archive = Archive.at(tmp_path / "archive")

    with pytest.raises(ConfigError, match=says):
        plan_values(pipeline_to(tmp_path / "archive", values), archive, None, None)


def test_plan_values_generation_without(tmp_path: Path) -> None:
    """A generation that was opened without columns gets none; the next one does."""
    values = {"encoding": "json", "columns": "id BIGINT"}
    generation = opened(tmp_path, ValuePlan())
    pipeline, archive = pipeline_to(tmp_path, values), Archive.at(tmp_path)

    plan = plan_values(pipeline, archive, generation, None)

    assert plan.spec is None
    [warning] = plan.warnings
    assert "aren't decoded in generation 1" in warning
    assert "kafka-drain roll" in warning
    assert plan_values(pipeline, archive, None, None).spec == values


def test_plan_values_columns_changed(tmp_path: Path) -> None:
    """Columns that the pipeline names later come with the next generation."""
    before = {"encoding": "json", "columns": "id BIGINT"}
    archive = Archive.at(tmp_path)
    generation = opened(tmp_path, plan_values(pipeline_to(tmp_path, before), archive, None, None))
    after = pipeline_to(tmp_path, before | {"columns": "id BIGINT, city STRING"})

    plan = plan_values(after, archive, generation, None)

    assert plan.spec == before
    [warning] = plan.warnings
    assert "are decoded with the old settings in generation 1" in warning


def test_frozen_values(registry: FakeRegistry, tmp_path: Path) -> None:
    """Windows and compactions ask no registry: the archive says it all."""
    pipeline, archive = pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path)
    plan = plan_values(pipeline, archive, None, SchemaRegistry(registry.settings))
    opened(tmp_path, plan)

    assert frozen_values(archive.snapshot(), pipeline) == plan.spec
    assert frozen_values(archive.snapshot(), pipeline_to(tmp_path, None)) is None


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"encoding": "avro"}, "give registry_conn_id, or schema_files"),
        ({"encoding": "json"}, "values.columns is missing"),
        ({"encoding": "json", "columns": "a INT", "subjects": ["a"]}, "values.subjects requires"),
        (BY_REGISTRY | {"columns": "a INT"}, "values.columns requires encoding 'json'"),
        ({"encoding": "avro", "schema_files": {"-1": "/x"}}, "values.schema_files.-1"),
        ({"encoding": "avro", "schema_files": {"1": "/x"}, "subjects": ["a"]}, "registry_conn_id"),
        ({"encoding": "protobuf"}, "values.encoding = 'protobuf'"),
        (BY_REGISTRY | {"subject": "orders-value"}, "'subject' .* a pipeline's values"),
    ],
)
def test_values_refused(values: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Keys that contradict each other are refused by name."""
    with pytest.raises(ConfigError, match=says):
        pipeline_to(tmp_path, values)


def test_values_several_topics(tmp_path: Path) -> None:
    """Where a pipeline has several topics, it has to name the subjects."""
    with pytest.raises(ConfigError, match=r"values.subjects is missing"):
        pipeline_to(tmp_path, BY_REGISTRY, topics=["orders", "returns"])

    named = BY_REGISTRY | {"subjects": ["orders-value", "returns-value"]}
    pipeline = pipeline_to(tmp_path, named, topics=["orders", "returns"])
    assert pipeline.subjects == ["orders-value", "returns-value"]


def test_keep_unknown_keys(tmp_path: Path) -> None:
    """Keys of a later release stay, in the document and in its rows, when a schema is added."""
    path = tmp_path / "schemas.json"
    ValuePlan(schemas={7: WriterSchema(7, V1)}, changed=True).keep(UPath(tmp_path), NOW)
    stored = json.loads(path.read_bytes())
    stored["later"], stored["schemas"][0]["note"] = 1, "x"
    path.write_text(json.dumps(stored))

    both = {7: WriterSchema(7, V1), 9: WriterSchema(9, V2, "orders-value", 2)}
    ValuePlan(schemas=both, changed=True).keep(UPath(tmp_path), NOW)

    rewritten = json.loads(path.read_bytes())
    assert rewritten["later"] == 1
    assert rewritten["schemas"] == [stored["schemas"][0], both[9].to_dict()]


@pytest.mark.parametrize("changed", [True, False])
def test_keep_seals(changed: bool, tmp_path: Path) -> None:
    """A drain seals the schemas it knows, also those that an older release has kept."""
    root, known = UPath(tmp_path), {7: WriterSchema(7, V1)}
    (tmp_path / "schemas.json").write_text(json.dumps({"schemas": [known[7].to_dict()]}))
    known |= {9: WriterSchema(9, V2)} if changed else {}

    ValuePlan(schemas=known, changed=changed).keep(root, NOW)

    [link] = SEALS.links(root)
    assert [key.id for key in link.schemas] == [*known]
    path = tmp_path / "schemas.json"
    path.write_text(path.read_text().replace('"long"', '"int"'))
    ValuePlan(schemas=known).keep(root, NOW)
    [found] = check_schemas(root, {}, SEALS.newest(root), whole=True)
    assert found.reason == Reason.SCHEMA_CHANGED


def test_keep_suspended(tmp_path: Path) -> None:
    """A drain that was suspended keeps the schemas that another one has added meanwhile."""
    root = UPath(tmp_path)
    ValuePlan(schemas={7: WriterSchema(7, V1)}, changed=True).keep(root, NOW)

    ValuePlan(schemas={8: WriterSchema(8, V2)}, changed=True).keep(root, NOW)

    stored = json.loads((tmp_path / "schemas.json").read_bytes())
    assert [row["id"] for row in stored["schemas"]] == [7, 8]
    assert check_schemas(root, {}, SEALS.newest(root), whole=True) == []


def test_keep_nothing(tmp_path: Path) -> None:
    """A drain that decodes nothing writes nothing."""
    ValuePlan().keep(UPath(tmp_path), NOW)

    assert [*tmp_path.iterdir()] == []


MONEY = {"type": "record", "name": "Money", "fields": [{"name": "c", "type": "int"}]}
COMMON = {
    "type": "record",
    "name": "Common",
    "namespace": "com.acme",
    "fields": [{"name": "price", "type": MONEY}],
}
PAID = V1 | {"fields": [{"name": "price", "type": "com.acme.Money"}]}
PAID_WHOLE = V1 | {"fields": [{"name": "price", "type": MONEY | {"namespace": "com.acme"}}]}


@pytest.mark.parametrize("is_kept", [False, True])
def test_plan_values_nested_in_reference(is_kept: bool, tmp_path: Path) -> None:
    """A type within a referenced schema is a column; a copy that lacks it is replaced, sealed."""
    pipeline, archive = pipeline_to(tmp_path, BY_REGISTRY), Archive.at(tmp_path)
    archive.create(pipeline="orders", cluster_id="c", topic_ids={"orders": "o"}, source={})
    if is_kept:
        lacking = WriterSchema(7, PAID, "orders-value", 1)
        ValuePlan(schemas={7: lacking}, changed=True).keep(archive.root, NOW)
    with fake_registry() as registry:
        registry.register("common", 3, COMMON)
        refers = [{"name": "com.acme.Common", "subject": "common", "version": 1}]
        registry.register("orders-value", 7, PAID, references=refers)
        plan = plan_values(pipeline, archive, None, SchemaRegistry(registry.settings))
    plan.keep(archive.root, NOW)

    assert plan.spec == {"encoding": "avro", "reader": PAID_WHOLE, "writers": {"7": PAID_WHOLE}}
    assert (plan.changed, list(plan.warnings)) == (True, [])
    assert check_schemas(archive.root, {}, SEALS.newest(archive.root), whole=True) == []
    # The registry isn't needed any more.
    again = plan_values(pipeline, archive, None, None)
    assert (again.spec, again.changed) == (plan.spec, False)


def test_plan_values_nested_in_no_reference(tmp_path: Path) -> None:
    """A schema that names a type which nobody defines makes no columns."""
    with fake_registry() as registry:
        registry.register("orders-value", 7, PAID)
        with pytest.raises(ConfigError, match="no schema of orders-value"):
            plan_values(
                pipeline_to(tmp_path, BY_REGISTRY),
                Archive.at(tmp_path),
                None,
                SchemaRegistry(registry.settings),
            )
