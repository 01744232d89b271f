"""Find archives in Airflow's metadata database, by the assets that validations have as outlets.

What DAGs and tasks are called doesn't matter, except for DAGs that were parsed by release 0.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.models.dag import DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from sqlalchemy import String, and_, cast, func, or_, select

from kafka_drain_airflow.dag_tags import TAG
from kafka_drain_airflow.observability.archive_events import (
    CONN_ID,
    KAFKA,
    PIPELINE,
    REGISTRY,
    SPARK,
    archive_of,
    archive_uri,
)

if TYPE_CHECKING or AIRFLOW_V_3_0_PLUS:
    from airflow.models.asset import AssetEvent, AssetModel, TaskOutletAssetReference

    OUTLET_ASSET, EVENT_ASSET = TaskOutletAssetReference.asset_id, AssetEvent.asset_id
else:
    from airflow.models.dataset import DatasetEvent as AssetEvent
    from airflow.models.dataset import DatasetModel as AssetModel
    from airflow.models.dataset import TaskOutletDatasetReference as TaskOutletAssetReference

    OUTLET_ASSET, EVENT_ASSET = TaskOutletAssetReference.dataset_id, AssetEvent.dataset_id

__all__ = [
    "AssetModel",
    "TaskOutletAssetReference",
    "Validation",
    "chosen",
    "dag_of",
    "pages_of",
    "pipelines_of",
    "was_validated",
]

#: In DAGs of release 0.1, whose assets don't say whose they are: prefix of a DAG's id by the prefix
#: of the id of its task that validates. A pipeline's own DAG comes before a group's.
NAMES = {"drain_group_": "validate_", "drain_": "validate"}
#: The operator of validations.
VALIDATOR = "ValidateManifestOperator"
#: A pipeline among a serialized task's fields, as text: its name comes first.
_NAMED = re.compile(r"([\w.-]+): ")
#: Before the pipeline's name, in the page id of a DAG's second archive, and of its others. No DAG
#: id has it, and so whoever may only read some DAGs may not read these pages.
SECOND = "~"


@dataclass(frozen=True, slots=True)
class Validation:
    """A task that validates an archive.

    Attributes:
        name: Name of the pipeline.
        archive: Path or URL of the archive.
        conn_id: Id of the Airflow connection that opens it; empty if the server's own access does.
        kafka_conn_id: Id of the connection of its Kafka; empty if it isn't known.
        spark_conn_id: Id of the connection of its Spark; empty if it isn't known.
        registry_conn_id: Id of the connection of its Schema Registry; empty if there is none.
    """

    dag_id: str
    task_id: str
    name: str
    archive: str
    conn_id: str = ""
    kafka_conn_id: str = ""
    spark_conn_id: str = ""
    registry_conn_id: str = ""

    @property
    def rank(self) -> tuple[bool, bool, str, str]:
        """The order of several validations of an archive, or of a DAG: the smallest comes first."""
        of_group = self.task_id == f"validate_{self.name}"
        return (of_group, self.dag_id != f"drain_{self.name}", self.dag_id, self.name)


def dag_of(page: str) -> str:
    """Return the id of a page's DAG."""
    return page.partition(SECOND)[0]


def pages_of(session: Any) -> dict[str, Validation]:
    """Return the validations of all DAGs, by the ids of their archives' pages.

    The id is that of the DAG; of a DAG's second and further archives, with the pipeline's name.
    """
    pages: dict[str, Validation] = {}
    of_dags = sorted({*_by_outlets(session), *_by_events(session)}, key=lambda v: v.rank)
    for validation in of_dags:
        page = validation.dag_id
        if page in pages:
            page = f"{page}{SECOND}{validation.name}"
        pages.setdefault(page, validation)
    return pages


def was_validated(session: Any, archive: str) -> bool:
    """Return whether Airflow has an event of an archive's asset: a validation that succeeded."""
    query = (
        select(AssetEvent.id)
        .join(AssetModel, AssetModel.id == EVENT_ASSET)
        .where(AssetModel.uri == archive_uri(archive))
    )
    return session.execute(query.limit(1)).first() is not None


def chosen(pages: dict[str, Validation], dag_ids: Collection[str]) -> dict[str, Validation]:
    """Return a page for each archive that some DAGs, or pages, validate, in order of their ids."""
    first: dict[str, str] = {}
    for page in sorted(pages, key=lambda page: pages[page].rank):
        if page in dag_ids or dag_of(page) in dag_ids:
            first.setdefault(pages[page].archive, page)
    return {page: pages[page] for page in sorted(first.values())}


def _by_outlets(session: Any) -> list[Validation]:
    """Return the validations whose archive is an outlet of theirs."""
    task = TaskOutletAssetReference
    # By the index: a task that isn't a validation may have years of runs.
    of_one_run = (
        select(TaskInstance.operator)
        .where(TaskInstance.dag_id == task.dag_id, TaskInstance.task_id == task.task_id)
        .order_by(TaskInstance.run_id.desc())
        .limit(1)
        .correlate(task)
        .scalar_subquery()
    )
    is_validation = of_one_run == VALIDATOR
    is_archive = cast(AssetModel.extra, String).contains(PIPELINE)
    tag = and_(DagTag.dag_id == TaskOutletAssetReference.dag_id, DagTag.name == TAG)
    rows = session.execute(
        select(TaskOutletAssetReference.dag_id, TaskOutletAssetReference.task_id)
        .add_columns(AssetModel.uri, AssetModel.extra)
        .join(AssetModel, AssetModel.id == OUTLET_ASSET)
        .join(DagTag, tag, isouter=True)
        .where(or_(DagTag.name.is_not(None), is_archive, is_validation))
    ).all()
    found = [validation for row in rows if (validation := _validation(*row))]
    others = _unknown(rows, found)
    declared = _declared(session, {row[0] for row in others})
    for dag_id, task_id, uri, extra in others:
        told_of = declared.get((dag_id, task_id, uri), extra)
        found += filter(None, [_validation(dag_id, task_id, uri, told_of)])
    return [*found, *filter(None, (_by_names(*row) for row in _unknown(others, found)))]


def _unknown(rows: Sequence[Any], found: Sequence[Validation]) -> list[Any]:
    """Return the outlets of other tasks: those that users add to a validation aren't archives."""
    known = {(validation.dag_id, validation.task_id) for validation in found}
    return [row for row in rows if tuple(row[:2]) not in known]


def _by_events(session: Any) -> list[Validation]:
    """Return the validations that told of an archive's asset by an alias, as mapped tasks do."""
    has_outlet = select(OUTLET_ASSET)
    age = func.row_number().over(partition_by=EVENT_ASSET, order_by=AssetEvent.timestamp.desc())
    assets = (
        select(AssetModel.id, AssetModel.uri, AssetModel.extra)
        .where(cast(AssetModel.extra, String).contains(PIPELINE), AssetModel.id.not_in(has_outlet))
        .subquery()
    )
    if not session.execute(select(assets.c.id).limit(1)).first():
        return []
    newest = (
        select(AssetEvent.source_dag_id, AssetEvent.source_task_id, EVENT_ASSET.label("of"))
        .add_columns(age.label("age"))
        .join(assets, assets.c.id == EVENT_ASSET)
        .where(AssetEvent.source_dag_id.is_not(None))
        .subquery()
    )
    rows = session.execute(
        select(newest.c.source_dag_id, newest.c.source_task_id, assets.c.uri, assets.c.extra)
        .join(assets, assets.c.id == newest.c.of)
        .where(newest.c.age == 1)
    )
    return [validation for row in rows if (validation := _validation(*row))]


def _declared(session: Any, dag_ids: Collection[str]) -> dict[tuple[Any, Any, Any], Any]:
    """Return the extras of outlets as DAGs declare them, by DAG, task and URI.

    Of an asset, Airflow keeps the extra that it parsed last: a bare `Asset` as the schedule of
    another file's DAG takes the archive's away.
    """
    return {
        (dag_id, task.get("task_id"), outlet.get("uri")): _plain(outlet.get("extra"))
        for dag_id, task in _serialized_tasks(session, dag_ids)
        for outlet in map(_plain, task.get("outlets") or ())
    }


def pipelines_of(session: Any, dag_ids: Collection[str]) -> dict[str, set[str]]:
    """Return the names of the pipelines that tasks of some DAGs have, by DAG, where they say it."""
    found: dict[str, set[str]] = {}
    for dag_id, task in _serialized_tasks(session, dag_ids):
        if said := _NAMED.match(str(task.get("pipeline", ""))):
            found.setdefault(dag_id, set()).add(said[1])
    return found


def _serialized_tasks(
    session: Any, dag_ids: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tasks of some DAGs as they were serialized last, with the DAG's id."""
    if not dag_ids:
        return
    age = func.row_number().over(
        partition_by=SerializedDagModel.dag_id, order_by=SerializedDagModel.last_updated.desc()
    )
    aged = (
        select(SerializedDagModel.dag_hash, SerializedDagModel.dag_id, age.label("age"))
        .where(SerializedDagModel.dag_id.in_(dag_ids))
        .subquery()
    )
    newest = and_(
        SerializedDagModel.dag_id == aged.c.dag_id,
        SerializedDagModel.dag_hash == aged.c.dag_hash,
        aged.c.age == 1,
    )
    for dag in session.scalars(select(SerializedDagModel).join(aged, newest)):
        for task in _plain((dag.data or {}).get("dag")).get("tasks") or ():
            yield dag.dag_id, _plain(task)


def _plain(serialized: Any) -> dict[str, Any]:
    """Return an object of a serialized DAG without its type."""
    plain = serialized.get("__var", serialized) if isinstance(serialized, dict) else None
    return plain if isinstance(plain, dict) else {}


def _validation(dag_id: str, task_id: str, uri: str, extra: Any) -> Validation | None:
    """Return a validation by the asset's extra; None if that isn't an archive's."""
    name = extra.get(PIPELINE) if isinstance(extra, dict) else None
    return _named(dag_id, task_id, uri, extra, name) if isinstance(name, str) and name else None


def _by_names(dag_id: str, task_id: str, uri: str, extra: Any) -> Validation | None:
    for of_dag, of_task in NAMES.items():
        if dag_id.startswith(of_dag) and task_id.startswith(of_task):
            name = task_id.removeprefix(of_task) or dag_id.removeprefix(of_dag)
            return _named(dag_id, task_id, uri, extra, name)
    return None


def _named(dag_id: str, task_id: str, uri: str, extra: Any, name: str) -> Validation:
    ids = (str((extra or {}).get(key) or "") for key in (CONN_ID, KAFKA, SPARK, REGISTRY))
    return Validation(dag_id, task_id, name, archive_of(uri), *ids)
