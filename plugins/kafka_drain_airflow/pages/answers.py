"""Responses of the plugin's pages, shared by the servers of Airflow 2 and 3.

The servers check access, and say what a user may see; nothing in this module looks at a login.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import wraps
from typing import Any, ParamSpec
from urllib.parse import quote, urlencode

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import DrillDocument
from kafka_drain.archive.drills import read_drills
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.history import Histories, History
from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.errors import KafkaDrainError
from kafka_drain.pages.archive import archive_page
from kafka_drain.pages.documents import message_page
from kafka_drain.pages.documents import receipt_page as render_receipt
from kafka_drain.pages.overview import ArchiveRow, overview_page
from kafka_drain.pages.placing import NOTHING
from kafka_drain.pages.rendering import coloured, script, with_links
from kafka_drain.pages.restores import ArchiveRestores, restores_page
from kafka_drain.storage.paths import list_folder, read_bytes
from kafka_drain_airflow.addresses import dag_url, home_url, page_url
from kafka_drain_airflow.pages.archives import (
    LIST_SECONDS,
    PAGE_SECONDS,
    find,
    find_all,
    is_damage,
    looks_at,
    opened,
    page_beside,
    placed_findings,
    restores_of_all,
)
from kafka_drain_airflow.pages.database import (
    Place,
    archives_of,
    dag_of,
    dags_of,
    drains_of,
    groups_of,
    last_runs,
    progress_of,
    report_of,
    working_on,
)
from kafka_drain_airflow.pages.records import (
    RECORDS_URL,
    Posted,
    empty_page,
    is_on,
    lines_of,
    page_of,
)
from kafka_drain_airflow.pages.rights import Rights

#: Color schemes that a page which links to a report or embeds it may choose.
COLOURS = ("dark", "light")

HEADERS = {
    # Names of topics and paths in a report are untrusted: nothing in it may run or load. A page of
    # another origin would stay empty in a print of the page around it, and a link in it that is
    # followed in Airflow's frame would lead to the login: browsers send no cookie along.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; sandbox allow-same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A task that is cleared overwrites its report.
    "Cache-Control": "private, no-cache",
}


def _page_headers(name: str) -> dict[str, str]:
    """Return the headers of a page with a script."""
    digest = base64.b64encode(hashlib.sha256(script(name).encode()).digest()).decode()
    return HEADERS | {
        # Only the page's own script may run, and nothing is loaded.
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        # An archive's page embeds the newest report.
        "frame-ancestors 'self'; frame-src 'self'",
    }


PAGE_HEADERS = _page_headers("frame.js")
CHART_HEADERS = _page_headers("charts.js")
#: The form is sent to this server only.
FORM_HEADERS = PAGE_HEADERS | {
    "Content-Security-Policy": PAGE_HEADERS["Content-Security-Policy"].replace(
        "form-action 'none'", "form-action 'self'"
    ),
    "Cache-Control": "no-store",
}
_HTML, _JSON = "text/html; charset=utf-8", "application/json"

_histories = Histories()

A = ParamSpec("A")


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


@dataclass(frozen=True, slots=True)
class AskedReport:
    """The requested report: that of a task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int


def _or_why_not(answer: Callable[A, Answer]) -> Callable[A, Answer]:
    """Let an answer say why what it shows can't be read, such as that this server may not."""

    @wraps(answer)
    def read(*args: A.args, **options: A.kwargs) -> Answer:
        try:
            return answer(*args, **options)
        except (KafkaDrainError, OSError) as error:
            return _not_found(f"this server can't read it: {error}")

    return read


def archives(session: Any, rights: Rights) -> Answer:
    """Return the page that lists the archives that a user may see."""
    links = {
        "home": home_url(),
        "restores": page_url("/restores"),
        "json": page_url("/api/archives"),
    }
    page = overview_page(_rows(session, rights.dag_ids, rights), datetime.now(timezone.utc), links)
    return Answer(page, headers=PAGE_HEADERS)


def archives_as_json(session: Any, rights: Rights) -> Answer:
    """Return the list as JSON: state, sentence, verdict, overview and more of each archive."""
    now = datetime.now(timezone.utc)
    rows = [
        {
            **_judged(row, now),
            "name": row.name,
            "archive": row.archive,
            "verdict": row.verdict,
            "standing": row.status(now).words,
            "problem": row.problem,
            "overview": row.overview,
        }
        for row in _rows(session, rights.dag_ids, rights)
    ]
    return Answer(json.dumps({"archives": rows}), _JSON)


def _judged(row: ArchiveRow, now: datetime) -> dict[str, Any]:
    judged = row.judge(now)
    return {"state": judged.state.value, "sentence": judged.sentence, "why": judged.why}


def restores(session: Any, rights: Rights) -> Answer:
    """Return the page that lists the restores from all archives that a user may see."""
    places = _places(session, rights.dag_ids, rights)
    doing = working_on(session, {place.archive for place in places.values()}, restores=True)
    shown = rights.of({one.dag_id for tasks in doing.values() for one in tasks})
    found = restores_of_all(list(places.values()))
    listed = [
        ArchiveRestores(
            name=place.name,
            page=_archive_url(dag_id),
            archive=place.archive,
            restores=of.restores,
            more=of.more,
            problem=of.problem,
            doing=[one for one in doing[place.archive] if one.dag_id in shown],
        )
        for (dag_id, place), of in zip(places.items(), found, strict=True)
    ]
    links = {"home": home_url(), "archives": page_url("/archives")}
    page = restores_page(listed, datetime.now(timezone.utc), links)
    return Answer(page, headers=PAGE_HEADERS)


def archive(session: Any, dag_id: str, rights: Rights, *, may_see_records: bool = False) -> Answer:
    """Return the page of a drain's archive.

    Args:
        session: Session of Airflow's database.
        dag_id: Id of the archive's page: of the DAG that validates it.
        rights: The user's rights to see runs and progress.
        may_see_records: Whether the user may also see records.
    """
    address = _archive_url(dag_id)
    listed = _rows(session, [dag_id], rights, PAGE_SECONDS)
    rows = [row for row in listed if row.page == address]
    if not rows:
        return _not_found(f"DAG {dag_id} doesn't drain to an archive.")
    [row], history, placed = rows, History(), NOTHING
    tried: list[DrillDocument] = []
    if not row.problem:
        try:
            root = opened(archives_of(session, [dag_id])[dag_id])
            # Before the first drain, there is nothing.
            if row.overview or list_folder(root):
                history = _histories.of(Archive.at(root))
                placed = placed_findings(root, row.overview, history)
                tried = read_drills(Archive.at(root).root)
        except (KafkaDrainError, ReceiptError, OSError) as error:
            row = replace(row, problem=f"{row.archive}: {error}", is_damaged=is_damage(error))
    groups = groups_of(session, [dag_id]).get(dag_id, [])
    shown = rights.of({dag_of(dag_id), *groups, *dags_of(session, [row.name])[row.name]})
    others = working_on(session, [row.archive])[row.archive]
    seen = rights.of({one.dag_id for one in others}) - shown
    doing = [*progress_of(session, shown), *(one for one in others if one.dag_id in seen)]
    drains = drains_of(session, dag_id, [group for group in groups if group in shown])
    now = datetime.now(timezone.utc)
    row = replace(row, reached=archives_of(session, [dag_id])[dag_id].reach())
    address = f"{row.page}/receipts"
    records = f"{row.page}{RECORDS_URL}" if may_see_records and not row.problem else ""
    page = archive_page(row, history, now, address, doing, drains, placed, tried, records)
    return Answer(page, headers=CHART_HEADERS)


def records(
    session: Any, dag_id: str, rights: Rights, user: str, posted: Posted | None = None
) -> Answer:
    """Return the page on which an archive's records are looked for, and what was found.

    The server has to check before that the user may see records.

    Args:
        session: Session of Airflow's database.
        dag_id: Id of the archive's page.
        rights: To which DAGs the page may lead.
        user: The user who searches.
        posted: The submitted form; None before the first search.
    """
    place = archives_of(session, [dag_id]).get(dag_id)
    if place is None or not is_on():
        return _not_found(f"{dag_id} shows no records.")
    sending = rights.of(dags_of(session, [place.name], "republish")[place.name])
    address, republish = _archive_url(dag_id), min(sending, default="")
    if posted is None:
        return Answer(empty_page(place, address, republish), headers=FORM_HEADERS)
    return Answer(page_of(place, address, republish, posted, user), headers=FORM_HEADERS)


def records_as_lines(session: Any, dag_id: str, user: str, posted: Posted) -> Answer:
    """Return the records found, as a file of JSON lines; for the arguments see `records`."""
    place = archives_of(session, [dag_id]).get(dag_id)
    if place is None or not is_on():
        return _not_found(f"{dag_id} shows no records.")
    try:
        content = lines_of(place, posted, user)
    except (KafkaDrainError, OSError) as error:
        return _message(400, str(error))
    return Answer(
        content,
        "application/x-ndjson",
        headers=HEADERS
        | {
            "Content-Disposition": 'attachment; filename="records.jsonl"',
            "Cache-Control": "no-store",
        },
    )


def archive_at(session: Any, archive: str, rights: Rights) -> Answer:
    """Return a redirection to an archive's page, given its path or URL."""
    for page, place in _places(session, rights.dag_ids, rights).items():
        if place.archive == archive:
            return Answer("", _HTML, 302, HEADERS | {"Location": _archive_url(page)})
    return _not_found(f"No DAG that you may read validates {archive}.")


@_or_why_not
def receipt(session: Any, dag_id: str, generation: int, name: str) -> Answer:
    """Return a receipt exactly as it was sealed."""
    found = _receipt(session, dag_id, generation, name)
    if isinstance(found, Answer):
        return found
    return Answer(read_bytes(found.folder / "receipts" / name), _JSON)


@_or_why_not
def receipt_page(session: Any, dag_id: str, generation: int, name: str) -> Answer:
    """Return a receipt as a page."""
    found = _receipt(session, dag_id, generation, name)
    if isinstance(found, Answer):
        return found
    try:
        sealed = found.read_receipt(name)
    except ReceiptError as error:
        return _not_found(str(error))
    raw = _archive_url(dag_id, f"/receipts/{generation}/{quote(name, safe='')}")
    content = read_bytes(found.folder / "receipts" / name)
    page = render_receipt(sealed, content, _archive_url(dag_id), raw)
    return Answer(page, headers=PAGE_HEADERS)


def _receipt(session: Any, dag_id: str, generation: int, name: str) -> Generation | Answer:
    """Return the generation that a receipt belongs to, or why there is none."""
    place = archives_of(session, [dag_id]).get(dag_id)
    if place is None or find(place).problem:
        return _not_found(f"DAG {dag_id} doesn't drain to an archive that this server can read.")
    owner = Archive.at(opened(place)).generation(generation)
    # Only files that the folder lists are opened, whatever the URL says.
    if name not in owner.receipt_names():
        return _not_found(f"Generation {generation} of {place.archive} has no receipt {name}.")
    return owner


@_or_why_not
def newest_report(
    session: Any, dag_id: str, colours: str = "", *, embedded: bool = False, as_json: bool = False
) -> Answer:
    """Return the newest report of a drain's archive.

    Args:
        session: Session of Airflow's database.
        dag_id: Id of the drain's DAG.
        colours: `dark` or `light`; anything else means the system's.
        embedded: Whether another page embeds it; otherwise it has a way back.
        as_json: Whether to return its JSON document instead of the page.
    """
    place = archives_of(session, [dag_id]).get(dag_id)
    if place is None:
        return _not_found(f"DAG {dag_id} doesn't drain to an archive.")
    found = find(place)
    if found.overview is None:
        return _not_found(found.problem or f"{place.archive} has not been validated yet.")
    root = opened(place)
    page = page_beside(f"{root}/{found.overview.get('report')}", root)
    if page is None:
        return _not_found(f"The report of {place.archive} no longer exists.")
    scheme = colours if colours in COLOURS else ""
    if embedded:
        return Answer(coloured(page.read_bytes(), scheme))
    address = _archive_url(dag_id, "/report.json")
    return _report(page, address, _archive_url(dag_id), as_json=as_json, scheme=scheme)


@_or_why_not
def report(session: Any, asked: AskedReport, *, as_json: bool = False) -> Answer:
    """Return the report that a task instance wrote, as a page or as its JSON document."""
    try:
        path = report_of(session, asked.dag_id, asked.run_id, asked.task_id, asked.map_index)
    except LookupError as error:
        return _not_found(str(error))
    pages = archives_of(session, [asked.dag_id]).items()
    inside = ((p, at) for p, at in pages if str(path).startswith(f"{at.archive.rstrip('/')}/"))
    page_id, place = next(inside, (asked.dag_id, None))
    try:
        root = opened(place) if place and place.conn_id else None
    except KafkaDrainError as error:
        return _not_found(f"this server can't read {place and place.archive}: {error}")
    page = page_beside(path, root)
    if page is None:
        return _not_found(f"{path!r} isn't the report of an archive that this server can read.")
    query = {"run_id": asked.run_id, "task_id": asked.task_id, "map_index": asked.map_index}
    address = page_url(f"/reports/{quote(asked.dag_id, safe='')}")
    back = _archive_url(page_id) if place else page_url("/archives")
    return _report(page, f"{address}?{urlencode(query | {'form': 'json'})}", back, as_json=as_json)


def _report(page: UPath, address: str, back: str, *, as_json: bool, scheme: str = "") -> Answer:
    """Return a report.

    Args:
        page: The report's page in the archive.
        address: Address of its JSON document.
        back: Address of its archive's page.
        as_json: Whether to return the JSON document instead of the page.
        scheme: One of `COLOURS`, or empty.
    """
    document = page.with_name(page.name.removesuffix(".html") + ".json")
    if not as_json:
        content = with_links(page.read_bytes(), document.name, address, back)
        return Answer(coloured(content, scheme))
    try:
        said = json.loads(read_bytes(document))
    except FileNotFoundError:
        return _not_found(f"{document.name} no longer exists.")
    except ValueError as error:
        return _not_found(f"{document.name} is damaged: {error}")
    return Answer(json.dumps(said, indent=2), _JSON)


def refused(status: int, detail: str) -> Answer:
    """Return the page for a user who may not see the requested one."""
    text = (
        "Airflow doesn't let you see this: it takes the rights to read this DAG, its runs, its "
        "tasks and its XComs."
        if status == 403
        else detail
    )
    return _message(status, text)


def _not_found(text: str) -> Answer:
    return _message(404, text)


def _message(status: int, text: str) -> Answer:
    title = {403: "Not allowed", 404: "Not found"}.get(status, "Not possible")
    page = message_page(title, text, page_url("/archives"))
    return Answer(page, status=status, headers=PAGE_HEADERS)


def _archive_url(page: str, more: str = "") -> str:
    """Return the URL of an archive's page, or of what belongs to it."""
    return page_url(f"/archives/{quote(page, safe='')}{more}")


def _places(session: Any, dag_ids: Collection[str], rights: Rights) -> dict[str, Place]:
    """Return the archives of those of the given DAGs that a user may see."""
    places = archives_of(session, dag_ids)
    shown = rights.of({dag_of(page) for page in places})
    return {page: place for page, place in places.items() if dag_of(page) in shown}


def _rows(
    session: Any, dag_ids: Collection[str], rights: Rights, seconds: float = LIST_SECONDS
) -> list[ArchiveRow]:
    places = _places(session, dag_ids, rights)
    groups = groups_of(session, places)
    drains = {page: {dag_of(page), *groups.get(page, ())} for page in places}
    runs = last_runs(session, drains, rights.of(set[str]().union(*drains.values())))
    found = find_all(list(places.values()))
    looks = looks_at(list(places.values()), found, seconds)
    return [
        ArchiveRow(
            name=place.name,
            archive=place.archive,
            link=dag_url(dag_of(dag_id)),
            page=_archive_url(dag_id),
            report=_archive_url(dag_id, "/report") if of.overview else "",
            overview=of.overview,
            problem=of.problem,
            is_damaged=of.is_damaged,
            runs=runs.get(dag_id, ()),
            looked=look,
        )
        for (dag_id, place), of, look in zip(places.items(), found, looks, strict=True)
    ]
