"""Responses of the plugin's pages, shared by the servers of Airflow 2 and 3.

The servers check access; nothing in this module looks at a login.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import DrillDocument
from kafka_drain.archive.drills import read_drills
from kafka_drain.archive.history import Histories, History
from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.errors import KafkaDrainError
from kafka_drain.pages.archive import archive_page
from kafka_drain.pages.overview import ArchiveRow, overview_page
from kafka_drain.pages.placing import NOTHING
from kafka_drain.pages.rendering import coloured, render
from kafka_drain.storage.paths import read_bytes
from kafka_drain_airflow.addresses import dag_url, home_url, page_url
from kafka_drain_airflow.observability.task_links import KINDS
from kafka_drain_airflow.pages.archives import find, find_all, opened, page_beside, placed_findings
from kafka_drain_airflow.pages.database import (
    archives_of,
    dag_of,
    dags_of,
    drains_of,
    groups_of,
    last_runs,
    progress_of,
    report_of,
)

#: Color schemes that a page which embeds a report may choose.
COLOURS = ("dark", "light")

HEADERS = {
    # Names of topics and paths in a report are untrusted: nothing in it may run or load.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A task that is cleared overwrites its report.
    "Cache-Control": "private, no-cache",
}
_HASH = base64.b64encode(hashlib.sha256(render("frame.js").encode()).digest()).decode()
PAGE_HEADERS = HEADERS | {
    # Only the page's own script may run, and nothing is loaded.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
    # An archive's page embeds the newest report.
    "frame-src 'self'",
}
_HTML, _JSON, _TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"

_histories = Histories()


@dataclass(frozen=True, slots=True)
class Answer:
    """A response for a server to send.

    Attributes:
        content: The body.
        media_type: Value of the Content-Type header.
        status: HTTP status code.
        headers: All other headers.
    """

    content: str | bytes
    media_type: str = _HTML
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: HEADERS)


def archives(session: Any, dag_ids: Collection[str]) -> Answer:
    """Return the page that lists the archives of the given DAGs."""
    page = overview_page(_rows(session, dag_ids, dag_ids), datetime.now(timezone.utc), home_url())
    return Answer(page, headers=PAGE_HEADERS)


def archives_as_json(session: Any, dag_ids: Collection[str]) -> Answer:
    """Return the list as JSON: name, archive, verdict, problem and overview of each archive."""
    now = datetime.now(timezone.utc)
    rows = [
        {
            "name": row.name,
            "archive": row.archive,
            "verdict": row.verdict,
            "standing": row.status(now).words,
            "problem": row.problem,
            "overview": row.overview,
        }
        for row in _rows(session, dag_ids, dag_ids)
    ]
    return Answer(json.dumps({"archives": rows}), _JSON)


def archive(session: Any, dag_id: str, readable: Collection[str]) -> Answer:
    """Return the page of a drain's archive.

    Args:
        session: Session of Airflow's database.
        dag_id: Id of the archive's page: of the DAG that validates it.
        readable: Ids of the DAGs whose runs and progress may be shown.
    """
    page = _archive_url(dag_id)
    rows = [row for row in _rows(session, [dag_id], readable) if row.page == page]
    if not rows:
        return _not_found(f"{dag_id} isn't a DAG that drains to an archive.")
    [row], history, placed = rows, History(), NOTHING
    tried: list[DrillDocument] = []
    if not row.problem:
        try:
            root = opened(archives_of(session, [dag_id])[dag_id])
            history = _histories.of(Archive.at(root))
            placed = placed_findings(root, row.overview, history)
            tried = read_drills(Archive.at(root).root)
        except (KafkaDrainError, ReceiptError, OSError) as error:
            row = replace(row, problem=f"{row.archive}: {error}")
    groups = groups_of(session, [dag_id]).get(dag_id, [])
    related = {dag_of(dag_id), *groups, *dags_of(session, row.name)}
    shown = {*related, *(f"{kind}_{row.name}" for kind in KINDS)}.intersection(readable)
    doing = progress_of(session, shown)
    drains = drains_of(session, dag_id, [group for group in groups if group in shown])
    now = datetime.now(timezone.utc)
    address = f"{row.page}/receipts"
    content = archive_page(row, history, now, address, doing, drains, placed, tried)
    return Answer(content, headers=PAGE_HEADERS)


def archive_at(session: Any, archive: str, readable: Collection[str]) -> Answer:
    """Return a redirection to an archive's page, given its path or URL."""
    for page, place in archives_of(session, readable).items():
        if place.archive == archive:
            return Answer("", _TEXT, 302, HEADERS | {"Location": _archive_url(page)})
    return _not_found(f"No DAG that you may read validates {archive}.")


def receipt(session: Any, dag_id: str, generation: int, name: str) -> Answer:
    """Return a receipt exactly as it was sealed."""
    place = archives_of(session, [dag_id]).get(dag_id)
    if place is None or find(place).problem:
        return _not_found(
            f"{dag_id} isn't a DAG that drains to an archive that this server can read."
        )
    owner = Archive.at(opened(place)).generation(generation)
    # Only files that the folder lists are opened, whatever the URL says.
    if name not in owner.receipt_names():
        return _not_found(f"Generation {generation} of {place.archive} has no receipt {name}.")
    return Answer(read_bytes(owner.folder / "receipts" / name), _JSON)


def newest_report(session: Any, dag_id: str, colours: str = "") -> Answer:
    """Return the newest report of a drain's archive.

    Args:
        session: Session of Airflow's database.
        dag_id: Id of the drain's DAG.
        colours: `dark` or `light`; anything else means the system's color scheme.
    """
    place = archives_of(session, [dag_id]).get(dag_id)
    if place is None:
        return _not_found(f"{dag_id} isn't a DAG that drains to an archive.")
    found = find(place)
    if found.overview is None:
        return _not_found(found.problem or f"{place.archive} has not been validated yet.")
    root = opened(place)
    page = page_beside(f"{root}/{found.overview.get('report')}", root)
    if page is None:
        return _not_found(f"The report of {place.archive} no longer exists.")
    return Answer(coloured(page.read_bytes(), colours if colours in COLOURS else ""))


def report(session: Any, dag_id: str, run_id: str, task_id: str, map_index: int) -> Answer:
    """Return the report that a task instance wrote."""
    try:
        path = report_of(session, dag_id, run_id, task_id, map_index)
    except LookupError as error:
        return _not_found(str(error))
    places = archives_of(session, [dag_id]).values()
    inside = (place for place in places if str(path).startswith(f"{place.archive.rstrip('/')}/"))
    place = next(inside, None)
    try:
        root = opened(place) if place and place.conn_id else None
    except KafkaDrainError as error:
        return _not_found(f"this server can't read {place and place.archive}: {error}")
    page = page_beside(path, root)
    if page is None:
        return _not_found(f"{path!r} isn't the report of an archive that this server can read.")
    return Answer(page.read_bytes())


def _not_found(text: str) -> Answer:
    return Answer(text + "\n", _TEXT, status=404)


def _archive_url(page: str) -> str:
    """Return the URL of an archive's page."""
    return page_url(f"/archives/{quote(page, safe='')}")


def _rows(session: Any, dag_ids: Collection[str], readable: Collection[str]) -> list[ArchiveRow]:
    places = archives_of(session, dag_ids)
    groups = groups_of(session, places)
    runs = last_runs(
        session,
        {page: {dag_of(page)} | {*groups.get(page, ())}.intersection(readable) for page in places},
    )
    found = find_all(list(places.values()))
    return [
        ArchiveRow(
            name=place.name,
            archive=place.archive,
            link=dag_url(dag_of(dag_id)),
            page=_archive_url(dag_id),
            report=f"{_archive_url(dag_id)}/report" if of.overview else "",
            overview=of.overview,
            problem=of.problem,
            runs=runs.get(dag_id, ()),
        )
        for (dag_id, place), of in zip(places.items(), found, strict=True)
    ]
