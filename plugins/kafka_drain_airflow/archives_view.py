"""Archives as pages and as JSON: all at a glance, and one with what its runs have sealed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Literal
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, JSONResponse, Response

from kafka_drain.archive import Archive
from kafka_drain.archive_page import archive_page
from kafka_drain.errors import KafkaDrainError
from kafka_drain.history import Histories, History
from kafka_drain.html_parts import coloured
from kafka_drain.locations import read_bytes
from kafka_drain.overview_page import SCRIPT, ArchiveRow, overview_page
from kafka_drain.receipts import ReceiptError
from kafka_drain_airflow.addresses import dag_url, page_url
from kafka_drain_airflow.metadata_database import (
    PREFIX,
    archives_of,
    drains_of,
    last_runs,
    progress_of,
)
from kafka_drain_airflow.report_view import HEADERS, not_found
from kafka_drain_airflow.server_reading import find, find_all, page_beside

__all__ = ["router"]

#: Whose progress an archive's page shows.
KINDS = ("drain", "republish", "reprocess", "maintain")

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
    doing = progress_of(session, dag_ids)
    now = datetime.now(timezone.utc)
    drains = drains_of(session, dag_id)
    page = archive_page(row, history, now, f"{row.page}/receipts", doing, drains)
    return HTMLResponse(page, headers=PAGE_HEADERS)


@router.get("/archives/{dag_id}/receipts/{generation}/{name}", dependencies=_MAY_READ)
def receipt(dag_id: str, generation: int, name: str, session: SessionDep) -> Response:
    """Return a receipt as it was sealed."""
    archive = archives_of(session, [dag_id]).get(dag_id)
    if archive is None or find(archive).problem:
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
    archive = archives_of(session, [dag_id]).get(dag_id)
    if archive is None:
        return not_found(f"{dag_id} is no DAG that drains to an archive.")
    found = find(archive)
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
    archives = archives_of(session, dag_ids)
    runs = last_runs(session, archives)
    found = find_all(list(archives.values()))
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
