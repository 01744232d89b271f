"""Archives as pages and as JSON: all at a glance, and one with what its runs have sealed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.dag import DagTag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XCOM_RETURN_KEY, XComModel
from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, JSONResponse, Response
from sqlalchemy import and_, func, select

from kafka_drain.archive import Archive
from kafka_drain.archive_page import Drained, archive_page
from kafka_drain.errors import KafkaDrainError
from kafka_drain.history import Histories, History
from kafka_drain.html_parts import coloured
from kafka_drain.locations import is_local, locate, read_bytes, require_reachable
from kafka_drain.overview import read_overview
from kafka_drain.overview_page import SCRIPT, ArchiveRow, Doing, Run, overview_page
from kafka_drain.receipts import ReceiptError
from kafka_drain_airflow.addresses import dag_url, page_url, run_url
from kafka_drain_airflow.report_view import HEADERS, STORES, not_found, page_beside, plain
from kafka_drain_airflow.task_progress import PROGRESS_KEY, is_progress

__all__ = ["router"]

#: The drains whose archives are listed, by their DAGs' ids, and the tasks that drain and validate.
PREFIX, DRAIN, VALIDATION = "drain_", "drain", "validate"
RUNS = 8
#: Whose progress an archive's page shows; it is looked for among so many of the newest.
KINDS = ("drain", "republish", "reprocess", "maintain")
NEWEST = 40
#: So long a store may take to answer, in seconds.
PATIENCE = 10.0

_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
PAGE_HEADERS = HEADERS | {
    # Nothing runs but the page's own script, and nothing is loaded.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
    # The newest report, below an archive's page.
    "frame-src 'self'",
}

router = APIRouter()
_histories = Histories()
_readers = ThreadPoolExecutor(16, thread_name_prefix="kafka-drain-overview")


@dataclass(frozen=True)
class _Found:
    """What is known of an archive: what its validation left, or why that can't be read."""

    overview: dict[str, Any] | None = None
    problem: str = ""


# 401 without a login; without the right to read a DAG, its archive isn't among them.
@router.get("/archives", response_class=HTMLResponse)
def archives(session: SessionDep, user: GetUserDep) -> Response:
    """Return the page of all archives."""
    rows = _rows(session, _readable(session, user))
    return HTMLResponse(overview_page(rows, datetime.now(timezone.utc)), headers=PAGE_HEADERS)


@router.get("/api/archives")
def archives_as_json(session: SessionDep, user: GetUserDep) -> Response:
    """Return the same as JSON: name, archive, verdict, problem and overview of each."""
    rows = [
        {
            "name": row.name,
            "archive": row.archive,
            "verdict": row.verdict,
            "problem": row.problem,
            "overview": row.overview,
        }
        for row in _rows(session, _readable(session, user))
    ]
    return JSONResponse({"archives": rows}, headers=HEADERS)


_MAY_READ = [Depends(requires_access_dag("GET", DagAccessEntity.XCOM))]


@router.get("/archives/{dag_id}", dependencies=_MAY_READ, response_class=HTMLResponse)
def archive_of(dag_id: str, session: SessionDep, user: GetUserDep) -> Response:
    """Return the page of a drain's archive."""
    rows = _rows(session, [dag_id])
    if not rows:
        return not_found(f"{dag_id} is no DAG that drains to an archive.")
    [row], history = rows, History()
    if not row.problem:
        try:
            history = _histories.of(Archive.at(row.archive))
        except (KafkaDrainError, ReceiptError, OSError) as error:
            row = replace(row, problem=f"{row.archive}: {error}")
    dag_ids = {f"{kind}_{row.name}" for kind in KINDS} & _readable(session, user)
    doing = _doing(session, dag_ids)
    now = datetime.now(timezone.utc)
    drains = _drains(session, dag_id)
    page = archive_page(row, history, now, f"{row.page}/receipts", doing, drains)
    return HTMLResponse(page, headers=PAGE_HEADERS)


@router.get("/archives/{dag_id}/receipts/{generation}/{name}", dependencies=_MAY_READ)
def receipt(dag_id: str, generation: int, name: str, session: SessionDep) -> Response:
    """Return a receipt as it was sealed."""
    archive = _archives(session, [dag_id]).get(dag_id)
    if archive is None or _find(archive).problem:
        return not_found(f"{dag_id} is no DAG that drains to an archive that can be read here.")
    owner = Archive.at(archive).generation(generation)
    # Only what the folder lists is opened, whatever the address says.
    if name not in owner.receipt_names():
        return not_found(f"Generation {generation} of {archive} has no receipt {name}.")
    content = read_bytes(owner.folder / "receipts" / name)
    return Response(content, media_type="application/json", headers=HEADERS)


@router.get("/archives/{dag_id}/report", dependencies=_MAY_READ, response_class=HTMLResponse)
def newest_report(
    dag_id: str, session: SessionDep, colours: Literal["", "dark", "light"] = ""
) -> Response:
    """Return the newest report of a drain's archive, in the system's colours or given ones."""
    archive = _archives(session, [dag_id]).get(dag_id)
    if archive is None:
        return not_found(f"{dag_id} is no DAG that drains to an archive.")
    found = _find(archive)
    if found.overview is None:
        return not_found(found.problem or f"{archive} has not been validated yet.")
    page = page_beside(f"{archive}/{found.overview.get('report')}")
    if page is None:
        return not_found(f"The report of {archive} is gone.")
    return HTMLResponse(coloured(page.read_bytes(), colours), headers=HEADERS)


def _readable(session: Any, user: Any) -> set[str]:
    """Return the DAGs that a user may read.

    Airflow's own dependency for it looks for the login in the application, and a plugin's is
    another one than Airflow's.
    """
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)


def _rows(session: Any, dag_ids: Collection[str]) -> list[ArchiveRow]:
    archives = _archives(session, dag_ids)
    runs = _last_runs(session, archives)
    found = _find_all(list(archives.values()))
    return [
        ArchiveRow(
            name=dag_id.removeprefix(PREFIX),
            archive=archive,
            link=dag_url(dag_id),
            page=page_url(f"/archives/{quote(dag_id, safe='')}"),
            report=page_url(f"/archives/{quote(dag_id, safe='')}/report") if of.overview else "",
            overview=of.overview,
            problem=of.problem,
            runs=runs.get(dag_id, ()),
        )
        for (dag_id, archive), of in zip(archives.items(), found, strict=True)
    ]


def _archives(session: Any, dag_ids: Collection[str]) -> dict[str, str]:
    """Return the archives of some DAGs, as their validations name them as outlets."""
    query = (
        select(TaskOutletAssetReference.dag_id, AssetModel.uri)
        .join(AssetModel, AssetModel.id == TaskOutletAssetReference.asset_id)
        .join(DagTag, DagTag.dag_id == TaskOutletAssetReference.dag_id)
        .where(
            DagTag.name == "kafka-drain",
            TaskOutletAssetReference.task_id == VALIDATION,
            TaskOutletAssetReference.dag_id.in_(dag_ids),
        )
        .order_by(TaskOutletAssetReference.dag_id)
    )
    return {
        dag_id: uri.removeprefix("file://")
        for dag_id, uri in session.execute(query)
        if dag_id.startswith(PREFIX)
    }


def _last_runs(session: Any, dag_ids: Collection[str]) -> dict[str, list[Run]]:
    """Return the last runs of some DAGs, oldest first."""
    newest = (
        select(
            DagRun.dag_id,
            DagRun.run_id,
            DagRun.state,
            DagRun.run_after,
            func.row_number()
            .over(partition_by=DagRun.dag_id, order_by=DagRun.run_after.desc())
            .label("age"),
        )
        .where(DagRun.dag_id.in_(dag_ids))
        .subquery()
    )
    query = select(newest).where(newest.c.age <= RUNS).order_by(newest.c.run_after)
    found: dict[str, list[Run]] = {}
    for row in session.execute(query):
        words, link = f"{row.state}: {row.run_id}", run_url(row.dag_id, row.run_id)
        found.setdefault(row.dag_id, []).append(Run(str(row.state), words, link))
    return found


def _doing(session: Any, dag_ids: Collection[str]) -> list[Doing]:
    """Return how far the task has got that last said so, of each DAG."""
    task = (
        *(XComModel.dag_id == TaskInstance.dag_id, XComModel.run_id == TaskInstance.run_id),
        *(XComModel.task_id == TaskInstance.task_id, XComModel.map_index == TaskInstance.map_index),
    )
    query = (
        select(XComModel.dag_id, XComModel.run_id, XComModel.task_id, XComModel.value)
        .add_columns(TaskInstance.state)
        .join(TaskInstance, and_(*task))
        .where(XComModel.key == PROGRESS_KEY, XComModel.dag_id.in_(dag_ids))
        .order_by(XComModel.timestamp.desc())
        .limit(NEWEST)
    )
    found: dict[str, Doing] = {}
    for row in session.execute(query):
        progress = plain(row.value)
        if is_progress(progress) and row.dag_id not in found:
            link = run_url(row.dag_id, row.run_id)
            state = str(row.state or "none")
            found[row.dag_id] = Doing(row.dag_id, row.task_id, state, link, progress)
    return list(found.values())


def _drains(session: Any, dag_id: str) -> list[Drained]:
    """Return what the newest drains of a DAG told, oldest first."""
    query = (
        select(XComModel.value, XComModel.timestamp)
        .where(XComModel.dag_id == dag_id, XComModel.task_id == DRAIN)
        .where(XComModel.key == XCOM_RETURN_KEY, XComModel.map_index == -1)
        .order_by(XComModel.timestamp.desc())
        .limit(NEWEST)
    )
    told = [(plain(row.value), row.timestamp) for row in session.execute(query)]
    return [
        Drained(at.isoformat(), int(result["offsets"]), float(result["seconds"]))
        for result, at in reversed(told)
        # Drains of windows tell other things.
        if isinstance(result, dict) and {"offsets", "seconds"} <= result.keys()
    ]


def _find_all(archives: Sequence[str]) -> list[_Found]:
    """Read what validations left, of all archives at once: a store takes its time."""
    reading = [_readers.submit(_find, archive) for archive in archives]
    wait(reading, timeout=PATIENCE)
    return [_found(future) for future in reading]


def _found(future: Future[_Found]) -> _Found:
    if not future.done():
        future.cancel()
        return _Found(problem=f"the store didn't answer within {PATIENCE:g} s")
    return future.result()


def _find(archive: str) -> _Found:
    try:
        root = locate(archive)
        if not is_local(root) and root.protocol not in STORES:
            return _Found(problem=f"{archive} is in no store that this server asks")
        require_reachable(root)
        return _Found(read_overview(root))
    except (KafkaDrainError, OSError, ValueError, ImportError) as error:
        # What the worker can read, this server may not: another machine, other credentials.
        return _Found(problem=f"this server can't read {archive}: {error}")
