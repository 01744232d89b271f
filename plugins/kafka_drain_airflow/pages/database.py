"""Queries of Airflow's metadata database: archives, their DAGs, and the state of their runs.

Airflow 2 has datasets where Airflow 3 has assets; the imports hide the differences.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.models.dag import DagTag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.providers.common.compat.sdk import XCOM_RETURN_KEY
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from sqlalchemy import and_, case, func, or_, select
from sqlalchemy.orm import aliased

from kafka_drain.pages.archive import DrainResult
from kafka_drain.pages.archive_status import ACTIVE
from kafka_drain.pages.commands import Reach
from kafka_drain.pages.overview import SHOWN_RUNS, Doing, Run, shown_task
from kafka_drain_airflow.addresses import run_url
from kafka_drain_airflow.command_reach import reach_of
from kafka_drain_airflow.connections import (
    NOT_DRAINED_KEY,
    PROBLEM_KEY,
    PROBLEM_LENGTH,
    WAITING_KEY,
    waiting_said,
)
from kafka_drain_airflow.dag_tags import TAG, kind_tag
from kafka_drain_airflow.observability.report_link import REPORT_KEY
from kafka_drain_airflow.observability.task_links import ARCHIVE_KEY, is_told
from kafka_drain_airflow.observability.task_progress import PROGRESS_KEY, is_progress
from kafka_drain_airflow.pages.finding import (
    VALIDATOR,
    AssetModel,
    TaskOutletAssetReference,
    Validation,
    chosen,
    dag_of,
    pages_of,
    pipelines_of,
)

if TYPE_CHECKING or AIRFLOW_V_3_0_PLUS:
    from airflow.models.xcom import XComModel  # type: ignore[attr-defined]

    RUN_TIME = DagRun.run_after
else:
    from airflow.models.xcom import XCom as XComModel

    RUN_TIME = DagRun.execution_date

__all__ = [
    "AssetModel",
    "Place",
    "TaskOutletAssetReference",
    "XComModel",
    "archives_of",
    "dag_of",
    "dags_of",
    "drains_of",
    "groups_of",
    "last_runs",
    "plain",
    "progress_of",
    "report_of",
    "working_on",
]

#: Operators of drains, and the id of a factory's drain task.
DRAINERS = ("KafkaDrainOperator", "KafkaDrainGroupOperator")
DRAIN = "drain"
#: When a run's state last changed. The run's logical date can't tell: a run with an old date may
#: belong to a backfill, or may have been cleared.
CHANGED_AT = func.coalesce(DagRun.end_date, DagRun.start_date, DagRun.queued_at, RUN_TIME)
#: Number of newest runs in each state that are looked at: those that wait, and there may be many,
#: mustn't hide how the runs before them ended.
RUNS = SHOWN_RUNS
#: Number of newest XComs among which drains are looked up.
NEWEST = 40


@dataclass(frozen=True, slots=True)
class Place:
    """Where an archive is.

    Attributes:
        archive: Its path or URL.
        conn_id: Id of the Airflow connection that opens it; empty if the server's own access does.
        name: Name of its pipeline.
        kafka_conn_id: Id of the connection of its Kafka; empty if it isn't known.
        spark_conn_id: Id of the connection of its Spark; empty if it isn't known.
        registry_conn_id: Id of the connection of its Schema Registry; empty if there is none.
    """

    archive: str
    conn_id: str = ""
    name: str = field(default="", compare=False)
    kafka_conn_id: str = field(default="", compare=False)
    spark_conn_id: str = field(default="", compare=False)
    registry_conn_id: str = field(default="", compare=False)

    def reach(self) -> Reach:
        """Return the settings for commands on it, from the current connections."""
        return reach_of(
            self.archive,
            store=self.conn_id,
            kafka=self.kafka_conn_id,
            spark=self.spark_conn_id,
            registry=self.registry_conn_id,
        )


def archives_of(session: Any, dag_ids: Collection[str]) -> dict[str, Place]:
    """Return the archives of the given DAGs, taken from the assets of their validations.

    Returns:
        The archives by the ids of their pages: the DAG's, and for a DAG's second archive and its
        others with the pipeline's name.
    """
    found = chosen(pages_of(session), dag_ids)
    return {page: _place(validation) for page, validation in found.items()}


def _place(of: Validation) -> Place:
    connections = (of.kafka_conn_id, of.spark_conn_id, of.registry_conn_id)
    return Place(of.archive, of.conn_id, of.name, *connections)


def groups_of(session: Any, pages: Collection[str]) -> dict[str, list[str]]:
    """Return the other DAGs that validate the archives of some pages, by the page's id."""
    known = pages_of(session)
    together = _by_archive(known.values())
    found: dict[str, list[str]] = {}
    for page in known.keys() & set(pages):
        own = known[page]
        others = {v.dag_id for v in together[own.archive]} - {own.dag_id}
        if others:
            found[page] = sorted(others)
    return found


def _by_archive(validations: Iterable[Validation]) -> dict[str, list[Validation]]:
    """Return validations by the archive that they validate."""
    found: dict[str, list[Validation]] = {}
    for validation in validations:
        found.setdefault(validation.archive, []).append(validation)
    return found


def dags_of(session: Any, names: Collection[str], kind: str = "") -> dict[str, set[str]]:
    """Return the DAGs that factories have created for pipelines, by the pipelines' names.

    DAGs are known by their tags, so that their ids don't matter; a tag may also be another
    pipeline's name, which its tasks tell.

    Args:
        session: Session of Airflow's database.
        names: Names of the pipelines.
        kind: Kind of the DAGs; empty for all kinds.
    """
    of_kind = select(DagTag.dag_id).where(DagTag.name == (kind_tag(kind) if kind else TAG))
    query = select(DagTag.name, DagTag.dag_id).where(
        DagTag.name.in_(names), DagTag.dag_id.in_(of_kind)
    )
    found: dict[str, set[str]] = {name: set() for name in names}
    rows = session.execute(query).all()
    said = pipelines_of(session, {dag_id for _, dag_id in rows})
    for name, dag_id in rows:
        if name in said.get(dag_id, {name}):
            found[name].add(dag_id)
    return found


def last_runs(
    session: Any, dags: Mapping[str, Collection[str]], shown: Collection[str]
) -> dict[str, list[Run]]:
    """Return the last runs in each state for each archive; the one that changed last is last.

    Args:
        session: Session of Airflow's database.
        dags: Ids of the DAGs that drain to an archive, by the archive's name.
        shown: The DAGs among these whose runs the user may see. The others' still tell whether the
            archive may be called proven; they have no link.
    """
    names: dict[str, list[str]] = {}
    for name, together in dags.items():
        for dag_id in dict.fromkeys(map(dag_of, together)):
            names.setdefault(dag_id, []).append(name)
    pages = pages_of(session)
    of_archive = _by_archive(pages.values())
    named = {page: validation.name for page, validation in pages.items()}
    validations = {
        (page, v.dag_id): v.task_id
        for page in dags.keys() & pages.keys()
        for v in of_archive[pages[page].archive]
    }
    newest = (
        select(
            DagRun.id,
            DagRun.dag_id,
            DagRun.run_id,
            DagRun.state,
            DagRun.start_date,
            DagRun.end_date,
            CHANGED_AT.label("changed_at"),
            func.row_number()
            .over(
                partition_by=(DagRun.dag_id, DagRun.state),
                order_by=(CHANGED_AT.desc(), DagRun.id.desc()),
            )
            .label("age"),
        )
        .where(DagRun.dag_id.in_(names))
        .subquery()
    )
    of_runs = (
        select(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.state)
        .join(newest, _are_of(newest))
        .where(
            newest.c.age <= RUNS,
            TaskInstance.task_id.in_({*validations.values()}),
            # Another mapped task may have succeeded, and any task may have the asset as outlet.
            TaskInstance.map_index == -1,
            or_(TaskInstance.operator.is_(None), TaskInstance.operator == VALIDATOR),
        )
    )
    validated = {tuple(row)[:3]: str(row.state or "none") for row in session.execute(of_runs)}
    failed, not_drained = _failures(session, newest), _not_drained(session, newest)
    query = select(newest).where(newest.c.age <= RUNS)
    found: dict[str, list[Run]] = {}
    for row in session.execute(query.order_by(newest.c.changed_at, newest.c.id)):
        words = f"{row.state}: {row.run_id}"
        link = run_url(row.dag_id, row.run_id) if row.dag_id in shown else ""
        began, ended = (at.isoformat() if at else "" for at in (row.start_date, row.end_date))
        for name in names[row.dag_id]:
            # Other pipelines of a group may have failed in the same run.
            key = (row.dag_id, row.run_id, validations.get((name, row.dag_id)))
            validation = validated.get(key, "")
            # A group's validations run even if its drain has failed.
            left_out = not_drained.get(key[:2], ())
            is_drained = left_out is not None and named.get(name) not in left_out
            # Only whoever may see a run is told of it.
            task, problem = failed.get(key[:2], ("", "")) if link else ("", "")
            run = Run(
                str(row.state),
                words if not problem else f"{words}: {task}: {problem}",
                link,
                began,
                ended,
                validation == "success" and is_drained,
                row.run_id,
                validation,
                task,
                problem,
            )
            found.setdefault(name, []).append(run)
    return found


def _failures(session: Any, runs: Any) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the first task of each run that failed, and why, in its own words."""
    of_task = (*_written_by_task(XComModel), XComModel.key == PROBLEM_KEY)
    query = (
        select(*_TASK, XComModel.value)
        .join(runs, _are_of(runs))
        .join(XComModel, and_(*of_task), isouter=True)
        .where(runs.c.age <= RUNS, runs.c.state == "failed", TaskInstance.state == "failed")
        .order_by(TaskInstance.start_date)
    )
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for row in session.execute(query):
        said = plain(row.value)
        problem = " ".join(said.split())[:PROBLEM_LENGTH] if isinstance(said, str) else ""
        found.setdefault((row.dag_id, row.run_id), (row.task_id, problem))
    return found


def _not_drained(session: Any, runs: Any) -> dict[tuple[str, str], list[str] | None]:
    """Return the pipelines that a group's drain didn't drain, by run; None if it hasn't said."""
    query = (
        select(*_TASK, XComModel.value)
        .join(runs, _are_of(runs))
        .join(XComModel, _written_as(XComModel, NOT_DRAINED_KEY), isouter=True)
        .where(
            runs.c.age <= RUNS,
            TaskInstance.operator == "KafkaDrainGroupOperator",
            TaskInstance.state != "success",
        )
    )
    found: dict[tuple[str, str], list[str] | None] = {}
    for row in session.execute(query):
        names, run = plain(row.value), (row.dag_id, row.run_id)
        # A user's own DAG may drain several groups.
        before = found.get(run, [])
        if before is None or not isinstance(names, list):
            found[run] = None
        else:
            found[run] = [*before, *names]
    return found


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
    progress, waiting = aliased(XComModel), aliased(XComModel)
    query = (
        select(*_TASK, progress.value.label("progress"), waiting.value.label("waiting"))
        .join(runs, _are_of(runs))
        .join(progress, _written_as(progress, PROGRESS_KEY), isouter=True)
        .join(waiting, _written_as(waiting, WAITING_KEY), isouter=True)
        .where(runs.c.age == 1)
        .order_by(TaskInstance.dag_id, TaskInstance.start_date, TaskInstance.task_id)
    )
    found: dict[str, list[Doing]] = {}
    for row in session.execute(query):
        found.setdefault(row.dag_id, []).append(_doing(row))
    shown = (shown_task(tasks) for tasks in found.values())
    return [task for task in shown if task]


def working_on(
    session: Any, archives: Collection[str], *, restores: bool = False
) -> dict[str, list[Doing]]:
    """Return the tasks that work on archives now, in any DAG, as they say themselves.

    Args:
        session: Session of Airflow's database.
        archives: Paths or URLs of the archives.
        restores: Whether only to return those that republish.

    Returns:
        The tasks by archive, in the order in which they started.
    """
    told, progress, waiting = (aliased(XComModel) for _ in range(3))
    said_of_itself = (
        told.value.label("told"),
        progress.value.label("progress"),
        waiting.value.label("waiting"),
    )
    query = (
        select(*_TASK, *said_of_itself)
        .join(told, _written_as(told, ARCHIVE_KEY))
        .join(progress, _written_as(progress, PROGRESS_KEY), isouter=True)
        .join(waiting, _written_as(waiting, WAITING_KEY), isouter=True)
        .where(TaskInstance.state.in_(ACTIVE))
        .order_by(TaskInstance.start_date, TaskInstance.dag_id, TaskInstance.task_id)
    )
    found: dict[str, list[Doing]] = {archive: [] for archive in archives}
    for row in session.execute(query):
        said = plain(row.told)
        if not is_told(said) or said["archive"] not in found:
            continue
        if not restores or said.get("is_restore"):
            found[said["archive"]].append(_doing(row))
    return found


def _written_by_task(xcom: Any) -> tuple[Any, ...]:
    """Return the join condition for the XComs of a task instance."""
    return (
        *(xcom.dag_id == TaskInstance.dag_id, xcom.run_id == TaskInstance.run_id),
        *(xcom.task_id == TaskInstance.task_id, xcom.map_index == TaskInstance.map_index),
    )


def _written_as(xcom: Any, key: str) -> Any:
    """Return the join condition for the XCom of a task instance with a key."""
    return and_(*_written_by_task(xcom), xcom.key == key)


#: The columns shown of a task instance.
_TASK = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.state)


def _doing(task: Any) -> Doing:
    """Return a task instance's progress; any task may write any XCom."""
    said = plain(task.progress)
    return Doing(
        task.dag_id,
        task.task_id,
        str(task.state or "none"),
        run_url(task.dag_id, task.run_id),
        said if is_progress(said) else {},
        waiting_said(plain(task.waiting)),
    )


def drains_of(session: Any, page: str, groups: Sequence[str] = ()) -> list[DrainResult]:
    """Return the results of an archive's newest drains in its page's and other DAGs, oldest first.

    Args:
        session: Session of Airflow's database.
        page: Id of the archive's page.
        groups: Ids of other DAGs that drain to it.
    """
    own = pages_of(session).get(page)
    if own is None:
        return []
    is_drain = or_(TaskInstance.operator.in_(DRAINERS), XComModel.task_id == DRAIN)
    query = (
        select(XComModel.value, XComModel.timestamp)
        .join(TaskInstance, and_(*_written_by_task(XComModel)), isouter=True)
        .where(XComModel.dag_id.in_([own.dag_id, *groups]), XComModel.key == XCOM_RETURN_KEY)
        .where(is_drain)
        .order_by(XComModel.timestamp.desc())
        .limit(NEWEST)
    )
    told = [(_of_archive(plain(row.value), own), row.timestamp) for row in session.execute(query)]
    return [
        DrainResult(at.isoformat(), result["offsets"], result["seconds"])
        for result, at in reversed(told)
        # Window drains return other fields, and any task may write any XCom.
        if isinstance(result, dict)
        and isinstance(result.get("offsets"), int)
        and isinstance(result.get("seconds"), int | float)
    ]


def _of_archive(result: object, own: Validation) -> object:
    """Return a drain's result if it is an archive's, or a group's result for the archive."""
    if not isinstance(result, dict):
        return None
    of_group = result.get(own.name)
    if isinstance(of_group, dict):
        return of_group
    return result if result.get("archive", own.archive) == own.archive else None


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
