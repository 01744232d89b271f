"""Queries of Airflow's metadata database: archives, their DAGs, and the state of their runs.

Airflow 2 has datasets where Airflow 3 has assets; the imports hide the differences.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.models.dag import DagTag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.providers.common.compat.sdk import XCOM_RETURN_KEY
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from sqlalchemy import and_, case, func, select

from kafka_drain.pages.archive import Drained
from kafka_drain.pages.overview import Doing, Run, shown_task
from kafka_drain_airflow.addresses import run_url
from kafka_drain_airflow.observability.archive_events import CONN_ID
from kafka_drain_airflow.observability.report_link import REPORT_KEY
from kafka_drain_airflow.observability.task_links import GROUP
from kafka_drain_airflow.observability.task_links import VALIDATION as GROUP_VALIDATION
from kafka_drain_airflow.observability.task_progress import PROGRESS_KEY, is_progress

if TYPE_CHECKING or AIRFLOW_V_3_0_PLUS:
    from airflow.models.asset import AssetModel, TaskOutletAssetReference
    from airflow.models.xcom import XComModel  # type: ignore[attr-defined]

    ASSET_ID = TaskOutletAssetReference.asset_id
    RUN_TIME = DagRun.run_after
else:
    from airflow.models.dataset import DatasetModel as AssetModel
    from airflow.models.dataset import TaskOutletDatasetReference as TaskOutletAssetReference
    from airflow.models.xcom import XCom as XComModel

    ASSET_ID = TaskOutletAssetReference.dataset_id
    RUN_TIME = DagRun.execution_date

__all__ = [
    "PREFIX",
    "AssetModel",
    "Place",
    "TaskOutletAssetReference",
    "XComModel",
    "archives_of",
    "drains_of",
    "groups_of",
    "last_runs",
    "plain",
    "progress_of",
    "report_of",
]

#: Prefix of the DAG ids whose archives are listed, and the ids of their drain and validation tasks.
PREFIX, DRAIN, VALIDATION = "drain_", "drain", "validate"
#: When a run's state last changed. The run's logical date can't tell: a run with an old date may
#: belong to a backfill, or may have been cleared.
CHANGED_AT = func.coalesce(DagRun.end_date, DagRun.start_date, DagRun.queued_at, RUN_TIME)
RUNS = 8
#: Number of newest XComs among which drains are looked up.
NEWEST = 40


@dataclass(frozen=True, slots=True)
class Place:
    """Where an archive is.

    Attributes:
        archive: Its path or URL.
        conn_id: Id of the Airflow connection that opens it; empty if the server's own access does.
    """

    archive: str
    conn_id: str = ""


def archives_of(session: Any, dag_ids: Collection[str]) -> dict[str, Place]:
    """Return the archives of the given DAGs, taken from the outlets of their validation tasks."""
    query = (
        select(TaskOutletAssetReference.dag_id, AssetModel.uri, AssetModel.extra)
        .join(AssetModel, AssetModel.id == ASSET_ID)
        .join(DagTag, DagTag.dag_id == TaskOutletAssetReference.dag_id)
        .where(
            DagTag.name == "kafka-drain",
            TaskOutletAssetReference.task_id == VALIDATION,
            TaskOutletAssetReference.dag_id.in_(dag_ids),
        )
        .order_by(TaskOutletAssetReference.dag_id)
    )
    return {
        dag_id: Place(uri.removeprefix("file://"), str((extra or {}).get(CONN_ID) or ""))
        for dag_id, uri, extra in session.execute(query)
        if dag_id.startswith(PREFIX)
    }


def groups_of(session: Any, dag_ids: Collection[str]) -> dict[str, list[str]]:
    """Return the group DAGs that drain pipelines, by the id of each pipeline's own drain DAG."""
    validations = {f"{GROUP_VALIDATION}{name.removeprefix(PREFIX)}": name for name in dag_ids}
    query = (
        select(TaskOutletAssetReference.dag_id, TaskOutletAssetReference.task_id)
        .join(DagTag, DagTag.dag_id == TaskOutletAssetReference.dag_id)
        .where(
            DagTag.name == "kafka-drain",
            TaskOutletAssetReference.task_id.in_(validations),
            TaskOutletAssetReference.dag_id.startswith(GROUP, autoescape=True),
        )
        .order_by(TaskOutletAssetReference.dag_id)
    )
    found: dict[str, list[str]] = {}
    for group, task_id in session.execute(query):
        found.setdefault(validations[task_id], []).append(group)
    return found


def last_runs(session: Any, dags: Mapping[str, Collection[str]]) -> dict[str, list[Run]]:
    """Return the last runs for each archive; the one that changed most recently is last.

    Args:
        session: Session of Airflow's database.
        dags: Ids of the DAGs that drain to an archive, by the archive's name.
    """
    names: dict[str, list[str]] = {}
    for name, together in dags.items():
        for dag_id in together:
            names.setdefault(dag_id, []).append(name)
    newest = (
        select(
            DagRun.dag_id,
            DagRun.run_id,
            DagRun.state,
            DagRun.start_date,
            DagRun.end_date,
            CHANGED_AT.label("changed_at"),
            func.row_number()
            .over(partition_by=DagRun.dag_id, order_by=(CHANGED_AT.desc(), DagRun.id.desc()))
            .label("age"),
        )
        .where(DagRun.dag_id.in_(names))
        .subquery()
    )
    tasks = {_validation(name, dag_id) for dag_id, together in names.items() for name in together}
    succeeded = (
        select(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id)
        .join(newest, _are_of(newest))
        .where(
            newest.c.age <= RUNS, TaskInstance.task_id.in_(tasks), TaskInstance.state == "success"
        )
    )
    validated = {tuple(row) for row in session.execute(succeeded)}
    query = select(newest).where(newest.c.age <= RUNS)
    found: dict[str, list[Run]] = {}
    for row in session.execute(query.order_by(newest.c.changed_at, newest.c.age.desc())):
        words, link = f"{row.state}: {row.run_id}", run_url(row.dag_id, row.run_id)
        began, ended = (at.isoformat() if at else "" for at in (row.start_date, row.end_date))
        for name in names[row.dag_id]:
            # Other pipelines of a group may have failed in the same run.
            key = (row.dag_id, row.run_id, _validation(name, row.dag_id))
            run = Run(str(row.state), words, link, began, ended, key in validated)
            found.setdefault(name, []).append(run)
    return {name: runs[-RUNS:] for name, runs in found.items()}


def _validation(name: str, dag_id: str) -> str:
    """Return the id of a DAG's task that validates an archive, given the archive's drain DAG."""
    return VALIDATION if dag_id == name else f"{GROUP_VALIDATION}{name.removeprefix(PREFIX)}"


def _are_of(runs: Any) -> Any:
    """Return the join condition for the task instances of the given runs."""
    return and_(TaskInstance.dag_id == runs.c.dag_id, TaskInstance.run_id == runs.c.run_id)


def progress_of(session: Any, dag_ids: Collection[str]) -> list[Doing]:
    """Return the progress of each DAG's newest run, taken from its most informative task."""
    age = func.row_number().over(
        partition_by=DagRun.dag_id,
        # Running runs come before those that have finished meanwhile.
        order_by=(case((DagRun.state == "running", 0), else_=1), CHANGED_AT.desc()),
    )
    runs = (
        select(DagRun.dag_id, DagRun.run_id, age.label("age"))
        .where(DagRun.dag_id.in_(dag_ids), DagRun.state != "queued")
        .subquery()
    )
    of_task = (
        *(XComModel.dag_id == TaskInstance.dag_id, XComModel.run_id == TaskInstance.run_id),
        *(XComModel.task_id == TaskInstance.task_id, XComModel.map_index == TaskInstance.map_index),
        XComModel.key == PROGRESS_KEY,
    )
    query = (
        select(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.state)
        .add_columns(XComModel.value)
        .join(runs, _are_of(runs))
        .join(XComModel, and_(*of_task), isouter=True)
        .where(runs.c.age == 1)
        .order_by(TaskInstance.dag_id, TaskInstance.start_date, TaskInstance.task_id)
    )
    found: dict[str, list[Doing]] = {}
    for row in session.execute(query):
        said = plain(row.value)
        progress = said if is_progress(said) else {}
        state, link = str(row.state or "none"), run_url(row.dag_id, row.run_id)
        found.setdefault(row.dag_id, []).append(
            Doing(row.dag_id, row.task_id, state, link, progress)
        )
    shown = (shown_task(tasks) for tasks in found.values())
    return [task for task in shown if task]


def drains_of(session: Any, dag_id: str, groups: Sequence[str] = ()) -> list[Drained]:
    """Return the results of a DAG's newest drains and of its pipeline's groups, oldest first."""
    query = (
        select(XComModel.dag_id, XComModel.value, XComModel.timestamp)
        .where(XComModel.dag_id.in_([dag_id, *groups]), XComModel.task_id == DRAIN)
        .where(XComModel.key == XCOM_RETURN_KEY, XComModel.map_index == -1)
        .order_by(XComModel.timestamp.desc())
        .limit(NEWEST)
    )
    told = [(plain(row.value), row.dag_id, row.timestamp) for row in session.execute(query)]
    of_pipeline = [
        (_of_group(result, dag_id) if group in groups else result, at)
        for result, group, at in reversed(told)
    ]
    return [
        Drained(at.isoformat(), result["offsets"], result["seconds"])
        for result, at in of_pipeline
        # Window drains return other fields, and any task may write any XCom.
        if isinstance(result, dict)
        and isinstance(result.get("offsets"), int)
        and isinstance(result.get("seconds"), int | float)
    ]


def _of_group(result: object, dag_id: str) -> object:
    """Return a group drain's result for one pipeline, given the pipeline's own drain DAG."""
    return result.get(dag_id.removeprefix(PREFIX)) if isinstance(result, dict) else None


def report_of(session: Any, dag_id: str, run_id: str, task_id: str, map_index: int) -> object:
    """Return the report path that a task instance stored; any task may write any XCom.

    Raises:
        LookupError: If it stored none.
    """
    query = select(XComModel.value).where(
        XComModel.dag_id == dag_id,
        XComModel.run_id == run_id,
        XComModel.task_id == task_id,
        XComModel.map_index == map_index,
        XComModel.key == REPORT_KEY,
    )
    found = session.execute(query).first()
    if found is None:
        raise LookupError(
            f"Task {task_id} of {dag_id}, run {run_id}, wrote no report; its log says why."
        )
    return plain(found.value)


class _PlainUnpickler(pickle.Unpickler):
    """Reads strings, numbers, lists and dicts; refuses a pickle that references code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} isn't a plain value")


def plain(value: object) -> object:
    """Decode an XCom's value, which the database stores as JSON or natively.

    Airflow 2 stores bytes: JSON, or a pickle if `enable_xcom_pickling` is set. A value that isn't
    plain is returned as stored: nothing that a task has written is executed here.
    """
    try:
        if isinstance(value, bytes) and value.startswith(pickle.PROTO):
            return _PlainUnpickler(io.BytesIO(value)).load()
        return json.loads(value) if isinstance(value, (str, bytes)) else value
    except Exception:
        # A broken pickle may raise anything.
        return value
