"""Archives are found by the assets of their validations, whatever DAGs and tasks are called."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from airflow.models.base import Base
from airflow.models.dag import DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.providers.common.compat.sdk import DAG, Asset
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session

from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow import ValidateManifestOperator, create_dags, create_group_dags
from kafka_drain_airflow.observability.archive_events import archive_asset
from kafka_drain_airflow.pages import database
from kafka_drain_airflow.pages.answers import archive_at
from kafka_drain_airflow.pages.database import Place, archives_of, dags_of, groups_of
from kafka_drain_airflow.pages.finding import (
    Validation,
    chosen,
    dag_of,
    pages_of,
    was_validated,
)
from kafka_drain_airflow.pages.rights import Rights

MODELS: tuple[Any, ...] = (DagTag, SerializedDagModel, TaskInstance, Trigger)
if AIRFLOW_V_3_0_PLUS:
    from airflow.models.asset import AssetEvent, AssetModel, TaskOutletAssetReference

    try:
        from airflow.serialization.serialized_objects import DagSerialization
    except ImportError:  # before 3.2
        from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

    MODELS += (AssetModel, AssetEvent, TaskOutletAssetReference)

pytestmark = pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 has datasets")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session of an empty database of Airflow's."""
    engine = create_engine(f"sqlite:///{tmp_path}/airflow.db")
    Base.metadata.create_all(engine, tables=[model.__table__ for model in MODELS])
    with Session(engine) as made:
        yield made
    engine.dispose()


def add(
    session: Session,
    uri: str,
    pipeline: str = "",
    *tasks: tuple[str, str],
    conn_id: str = "",
    **extra: Any,
) -> int:
    """Add an asset, an archive if it has a pipeline, with the tasks that have it as outlet."""
    extra |= {"kafka_drain_pipeline": pipeline} if pipeline else {}
    extra |= {"archive_conn_id": conn_id} if conn_id else {}
    asset = AssetModel(name=uri, uri=uri, extra=extra)
    session.add(asset)
    session.flush()
    for dag_id, task_id in tasks:
        session.add(TaskOutletAssetReference(asset_id=asset.id, dag_id=dag_id, task_id=task_id))
    session.flush()
    return int(asset.id)


def tag(session: Session, dag_id: str, *names: str) -> None:
    """Tag a DAG."""
    session.add_all(DagTag(dag_id=dag_id, name=name) for name in names)
    session.flush()


def serialize(session: Session, *dags: Any) -> None:
    """Add DAGs as Airflow has parsed them."""
    for dag in dags:
        row = {"id": uuid4(), "dag_id": dag.dag_id, "dag_hash": "", "dag_version_id": uuid4()}
        row |= dict.fromkeys(("created_at", "last_updated"), datetime.now(timezone.utc))
        row["data"] = DagSerialization.to_dict(dag)
        session.execute(insert(SerializedDagModel.__table__).values(row))


def test_archive_of_own_dag(session: Session) -> None:
    """An archive is listed with the DAG that validates it; other assets aren't archives."""
    add(session, "s3://b/orders", "orders", ("elt", "kafka.proof"), conn_id="aws")
    add(session, "file:///mart", "", ("elt", "mart"), ("drain_mart", "validate"))

    assert archives_of(session, ["elt", "drain_mart"]) == {"elt": Place("s3://b/orders", "aws")}
    assert [place.name for place in archives_of(session, ["elt"]).values()] == ["orders"]
    assert archives_of(session, ["other"]) == {}


def test_archives_of_one_dag(session: Session) -> None:
    """Each archive of a DAG has a page; no DAG has the id of a second one's."""
    for name in ("a", "b", "c"):
        add(session, f"file:///{name}", name, ("elt", f"{name}.validate"))

    assert archives_of(session, ["elt"]) == {
        "elt": Place("/a"),
        "elt~b": Place("/b"),
        "elt~c": Place("/c"),
    }
    assert archives_of(session, ["elt~b"]) == {"elt~b": Place("/b")}
    assert [dag_of(page) for page in ("elt", "elt~b")] == ["elt", "elt"]


def test_archive_of_several_dags(session: Session) -> None:
    """An archive is listed once: with the pipeline's own DAG, or else another one's page."""
    dags = [("elt", "kafka.validate"), ("drain_group_g", "validate_a"), ("drain_a", "validate")]
    add(session, "file:///a", "a", *dags)

    every = ["elt", "drain_group_g", "drain_a"]
    assert list(archives_of(session, every)) == ["drain_a"]
    assert list(archives_of(session, every[:2])) == ["elt"]
    assert list(archives_of(session, ["drain_group_g"])) == ["drain_group_g"]
    assert groups_of(session, ["drain_a"]) == {"drain_a": ["drain_group_g", "elt"]}


def test_archive_of_mapped_tasks(session: Session) -> None:
    """A mapped validation has no asset as outlet: the newest event says which task told of it."""
    for number, name in enumerate(("arrivals", "departures")):
        asset_id = add(session, f"file:///{name}", name)
        for hour, dag_id in enumerate(("before", "many_topics")):
            event = AssetEvent(
                asset_id=asset_id,
                extra={},
                source_dag_id=dag_id,
                source_task_id="topic.validate",
                source_run_id="r",
                source_map_index=number,
                timestamp=datetime(2026, 1, 1, hour, tzinfo=timezone.utc),
            )
            session.add(event)
    session.flush()

    assert archives_of(session, ["many_topics", "before"]) == {
        "many_topics": Place("/arrivals"),
        "many_topics~departures": Place("/departures"),
    }


def test_archive_of_older_dags(session: Session) -> None:
    """DAGs that an older release has created are found by their tag and names."""
    add(session, "file:///a", "", ("drain_a", "validate"), ("drain_group_g", "validate_a"))
    add(session, "file:///b", "", ("drain_b", "validate"))
    for dag_id in ("drain_a", "drain_group_g"):
        tag(session, dag_id, "kafka-drain")

    assert archives_of(session, ["drain_a", "drain_group_g", "drain_b"]) == {"drain_a": Place("/a")}
    assert groups_of(session, ["drain_a"]) == {"drain_a": ["drain_group_g"]}


def test_archive_of_bare_asset(session: Session) -> None:
    """A bare asset in another DAG file takes the extra away: the validation's own DAG has it."""
    orders = Pipeline(name="orders", topics=["o"], archive="s3://b/orders", archive_conn_id="aws")
    serialize(session, *create_dags(orders, dag_id="team.{kind}.{name}").values())
    add(session, "s3://b/orders", "", ("team.drain.orders", "validate"), ("other", "validate"))
    for dag_id in ("team.drain.orders", "other"):
        tag(session, dag_id, "kafka-drain")

    assert archives_of(session, ["team.drain.orders", "other"]) == {
        "team.drain.orders": Place("s3://b/orders", "aws")
    }
    [found] = pages_of(session).values()
    assert (found.name, found.kafka_conn_id) == ("orders", "kafka_default")


def test_archive_of_bare_asset_untagged(session: Session) -> None:
    """So has a user's own DAG, without tags, once its validation has run."""
    orders = Pipeline(name="orders", topics=["o"], archive="s3://b/orders", archive_conn_id="aws")
    with DAG("elt", schedule=None) as dag:
        asset = archive_asset(orders)
        ValidateManifestOperator(task_id="proof", pipeline=orders, outlets=[asset, Asset("mart")])
    serialize(session, dag)
    add(session, "s3://b/orders", "", ("elt", "proof"), ("copy", "write"))
    add(session, "mart", "", ("elt", "proof"))
    task = {"dag_id": "elt", "run_id": "r", "task_id": "proof", "map_index": -1}
    task |= {"id": uuid4(), "pool": "p", "pool_slots": 1, "try_number": 1}
    task["operator"] = "ValidateManifestOperator"
    session.execute(insert(TaskInstance.__table__).values(task))

    [found] = pages_of(session).values()

    assert (found.dag_id, found.name, found.archive) == ("elt", "orders", "s3://b/orders")
    assert (found.conn_id, found.kafka_conn_id) == ("aws", "kafka_default")


def test_archive_connections(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands on a page get each connection of the pipeline, also the registry of its values."""
    ids = {"archive_conn_id": "aws", "kafka_conn_id": "brokers", "spark_conn_id": "yarn"}
    values = {"encoding": "avro", "registry_conn_id": "of_values"}
    asset = archive_asset(
        Pipeline(name="orders", topics=["o"], archive="s3://b/orders", values=values, **ids)
    )
    add(session, asset.uri, "", ("elt", "validate"), **dict[str, Any](asset.extra))
    monkeypatch.setattr(database, "reach_of", lambda archive, **reached: (archive, reached))

    [place] = archives_of(session, ["elt"]).values()

    reached = {"store": "aws", "kafka": "brokers", "spark": "yarn", "registry": "of_values"}
    found: Any = place.reach()
    assert found == ("s3://b/orders", reached)


def test_outlet_beside_archive(session: Session) -> None:
    """An outlet that a user has added to a factory's validation isn't another archive."""
    add(session, "file:///a", "a", ("drain_a", "validate"))
    add(session, "file:///mart", "", ("drain_a", "validate"))
    tag(session, "drain_a", "kafka-drain")

    assert archives_of(session, ["drain_a"]) == {"drain_a": Place("/a")}


def test_outlet_beside_bare_asset(session: Session) -> None:
    """Nor is it if a bare asset has taken the archive's extra away."""
    pipeline = Pipeline(name="a", topics=["a"], archive="/a")
    serialize(session, *create_dags(pipeline).values())
    add(session, "file:///a", "", ("drain_a", "validate"))
    add(session, "file:///mart", "", ("drain_a", "validate"))
    tag(session, "drain_a", "kafka-drain")

    assert archives_of(session, ["drain_a"]) == {"drain_a": Place("/a")}


def test_dags_of_factory(session: Session) -> None:
    """The DAGs of a pipeline are known by their tags, however their ids are made."""
    tag(session, "team.drain.a", "kafka-drain", "a")
    tag(session, "team.drain.b", "kafka-drain", "b")
    tag(session, "other", "a")

    assert dags_of(session, ["a", "c"]) == {"a": {"team.drain.a"}, "c": set()}


def test_dags_of_factory_by_kind(session: Session) -> None:
    """The kind of a pipeline's DAGs is known by a tag: neither its id nor a name says it."""
    tag(session, "one", "kafka-drain", "kafka-drain:republish", "a", "republish")
    tag(session, "two", "kafka-drain", "kafka-drain:drain", "b", "republish")
    tag(session, "republish_a", "kafka-drain", "a")

    found = dags_of(session, ["a", "b", "republish"], "republish")

    assert found == {"a": {"one"}, "b": set(), "republish": {"one"}}


def test_dags_of_factory_tagged_as_another(session: Session) -> None:
    """A user's tag, or a group, that is named like a pipeline makes a DAG none of that pipeline."""
    orders, bills = (
        Pipeline(name=name, topics=["t"], archive=f"/{name}") for name in ("orders", "bills")
    )
    dags = [*create_dags(orders).values(), *create_dags(bills, tags=["orders"]).values()]
    dags += create_group_dags("orders", [bills], dag_id="of_group.{kind}.{name}").values()
    serialize(session, *dags)
    for dag in dags:
        tag(session, dag.dag_id, *dag.tags)

    every, sending = (dags_of(session, ["orders"], kind) for kind in ("", "republish"))

    assert sending == {"orders": {"republish_orders"}}
    assert every["orders"] == {
        *("drain_orders", "republish_orders", "reprocess_orders", "maintain_orders"),
    }


@pytest.mark.parametrize(
    ("readable", "status", "location"),
    [
        (["elt"], 302, "/kafka-drain/archives/elt~b"),
        (["elt", "drain_b"], 302, "/kafka-drain/archives/drain_b"),
        (["other"], 404, None),
        ([], 404, None),
    ],
)
def test_archive_at(
    session: Session, readable: list[str], status: int, location: str | None
) -> None:
    """A task's button leads to the page of its archive, if the user may read a DAG that has one."""
    add(session, "file:///a", "a", ("elt", "a.validate"))
    add(session, "file:///b", "b", ("elt", "b.validate"), ("drain_b", "validate"))

    answer = archive_at(session, "/b", Rights(readable, list))

    assert (answer.status, answer.headers.get("Location")) == (status, location)


def test_chosen_is_stable() -> None:
    """Of several validations the same one is chosen, in whatever order the database has them."""
    a = Validation("x", "validate", "a", "/a")
    b = Validation("drain_a", "validate", "a", "/a")

    assert [*chosen({"x": a, "drain_a": b}, ["x", "drain_a"])] == ["drain_a"]
    assert [*chosen({"drain_a": b, "x": a}, ["x", "drain_a"])] == ["drain_a"]


def test_pages_of_nothing(session: Session) -> None:
    """An Airflow without archives has no pages."""
    assert pages_of(session) == {}


def test_was_validated(session: Session) -> None:
    """An archive was validated if there is an event of its asset, and not of another's."""
    asset_id = add(session, "file:///a", "a", ("drain_a", "validate"))
    add(session, "file:///b", "b", ("drain_b", "validate"))
    assert not was_validated(session, "/a")

    told = datetime(2026, 1, 1, tzinfo=timezone.utc)
    session.add(AssetEvent(asset_id=asset_id, extra={}, source_map_index=-1, timestamp=told))
    session.flush()

    assert was_validated(session, "/a")
    assert not was_validated(session, "/b")
    assert not was_validated(session, "/other")


def test_archive_of_former_validation(session: Session) -> None:
    """What a task was in an old run doesn't count: one run of it is looked at."""
    orders = Pipeline(name="orders", topics=["o"], archive="s3://b/orders")
    with DAG("elt", schedule=None) as dag:
        ValidateManifestOperator(task_id="t", pipeline=orders, outlets=[archive_asset(orders)])
    serialize(session, dag)
    add(session, "s3://b/orders", "", ("elt", "t"))
    for run, operator in (("1", "ValidateManifestOperator"), ("2", "PythonOperator")):
        task = {"dag_id": "elt", "run_id": run, "task_id": "t", "map_index": -1}
        task |= {"id": uuid4(), "pool": "p", "pool_slots": 1, "try_number": 1}
        session.execute(insert(TaskInstance.__table__).values(task | {"operator": operator}))

    assert pages_of(session) == {}
