"""Search an archive for its page *Records*, and answer with a page or with JSON lines.

The servers check access before; what is looked for is in no address and in no log.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ConfigError, KafkaDrainError
from kafka_drain.intervals import time_text
from kafka_drain.pages.records import (
    CutText,
    RecordRow,
    SearchResult,
    SelectedRecords,
    records_page,
)
from kafka_drain_airflow.addresses import dag_url
from kafka_drain_airflow.pages.archives import find, opened
from kafka_drain_airflow.pages.database import Place

if TYPE_CHECKING:
    from kafka_drain.find.search import Match, Search

#: Name of the right to see records, as Airflow's auth manager knows it: a custom view's.
RIGHT = "Kafka records"
#: Address of the page below that of its archive.
RECORDS_URL = "/records"
#: Seconds after which a search ends; it can be continued.
SECONDS = 20.0
#: Number of searches that a server runs at once.
AT_ONCE = 2
#: Most records of a page, and of a download.
PAGE, DOWNLOAD = 1_000, 10_000

_AUDIT = logging.getLogger("kafka_drain.audit")
_searches = threading.BoundedSemaphore(AT_ONCE)

#: The posted form: the texts of each field.
Posted = Mapping[str, Sequence[str]]


def is_on() -> bool:
    """Return whether this server shows records at all: `[kafka_drain] records_page`."""
    on: bool = conf.getboolean("kafka_drain", "records_page", fallback=False)
    return on


def empty_page(place: Place, address: str, republish: str) -> str:
    """Return the form.

    Args:
        place: The archive.
        address: Address of the archive's page.
        republish: Id of the DAG that republishes it; empty if there is none.
    """
    return records_page(place.name, place.archive, {}, None, _links(address, republish))


def page_of(place: Place, address: str, republish: str, posted: Posted, user: str) -> str:
    """Search, and return a page of records; see `empty_page`.

    Args:
        place: The archive.
        address: Address of the archive's page.
        republish: Id of the DAG that republishes it; empty if there is none.
        posted: The submitted form.
        user: The user who searches.
    """
    given, trail = _given(posted), list(posted.get("trail", ()))
    try:
        search = _search_of(place, given, trail, _limit(given, PAGE))
        matches = _matches(search, place, user)
        found = SearchResult(
            rows=_rows(search, matches),
            trail=trail,
            next="" if search.is_complete else str(search.through or ""),
            ended=not search.is_complete and len(matches) < search.limit,
            selected=_selected(search, matches),
            not_searched=search.not_searched(),
        )
    except (KafkaDrainError, OSError) as error:
        found = SearchResult(problem=str(error).replace("--scan", "the box above"), trail=trail)
    return records_page(place.name, place.archive, given, found, _links(address, republish))


def lines_of(place: Place, posted: Posted, user: str) -> bytes:
    """Search, and return the records as JSON lines; for the arguments see `page_of`.

    Raises:
        KafkaDrainError: When the criteria aren't acceptable, or the archive can't be searched.
    """
    given = _given(posted)
    search = _search_of(place, given, list(posted.get("trail", ())), _limit(given, DOWNLOAD))
    payloads = search.payloads()
    matches = _matches(search, place, user)
    return b"".join(json.dumps(match.to_dict(payloads)).encode() + b"\n" for match in matches)


def _given(posted: Posted) -> dict[str, str]:
    """Return the fields that aren't empty."""
    return {name: texts[0] for name, texts in posted.items() if texts and texts[0]}


def _links(address: str, republish: str) -> dict[str, str]:
    return {
        "back": address,
        "here": f"{address}{RECORDS_URL}",
        "lines": f"{address}{RECORDS_URL}.jsonl",
        "republish": dag_url(republish) if republish else "",
    }


def _limit(given: Mapping[str, str], most: int) -> int:
    text = given.get("limit", "100")
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ConfigError(f"records a page = {text!r} is not acceptable; accepted: 1 to {most:,}")
    return int(text)


def _search_of(place: Place, given: Mapping[str, str], trail: Sequence[str], limit: int) -> Search:
    """Return the search that a form describes.

    Raises:
        KafkaDrainError: When it isn't acceptable, or this server can't read the archive.
    """
    # Not at the top: Airflow loads this module for every page, and pyarrow for none of the others.
    from kafka_drain.find.criteria import Criteria
    from kafka_drain.find.plan import Position
    from kafka_drain.find.search import Search

    def texts(name: str) -> list[str]:
        return [given[name]] if name in given else []

    criteria = Criteria.of(
        topics=texts("topic"),
        partitions=texts("partition"),
        offset=given.get("offset"),
        from_time=given.get("from_time"),
        to_time=given.get("to_time"),
        keys=texts("key"),
        headers=texts("header"),
        value_contains=given.get("value_contains"),
        jsonpath=given.get("jsonpath"),
    )
    problem = find(place).problem
    if problem:
        raise ConfigError(problem)
    end = time.monotonic() + SECONDS
    return Search(
        Archive.at(opened(place)),
        criteria,
        limit=limit,
        after=Position.parse(trail[-1]) if trail else None,
        scan="scan" in given,
        should_stop=lambda: time.monotonic() > end,
    )


def _matches(search: Search, place: Place, user: str) -> list[Match]:
    """Search, and log who did."""
    kinds = ", ".join(search.criteria.kinds()) or "no criteria"
    if not _searches.acquire(blocking=False):
        raise ConfigError("this server runs other searches; try again in a moment")
    try:
        # Before it reads anything, and whether or not it finds something.
        _AUDIT.info("%s searches the records of %s by %s", user, place.archive, kinds)
        return list(search.matches())
    finally:
        _searches.release()


def _rows(search: Search, matches: Sequence[Match]) -> list[RecordRow]:
    payloads = search.payloads()
    rows = []
    for match in matches:
        key = payloads.of("key", match.key, match.headers)
        value = payloads.of("value", match.value, match.headers)
        rows.append(
            RecordRow(
                topic=match.position.topic,
                partition=match.position.partition,
                offset=match.position.offset,
                time="" if match.timestamp is None else time_text(match.timestamp),
                key=CutText.of(key.line(), key.format),
                value=CutText.of(value.line(), value.format),
                headers=[(n, CutText.of(v.line(), v.format)) for n, v in match.shown_headers()],
                file=match.file,
                is_sealed=match.is_sealed,
            )
        )
    return rows


def _selected(search: Search, matches: Sequence[Match]) -> SelectedRecords:
    """Return the fields that select the records in a republish's form."""
    from kafka_drain.find.as_republish import as_republish

    is_all = search.is_complete and search.after is None
    selected = as_republish(search.criteria, matches, is_all=is_all, recreated=search.recreated)
    others = selected.all if selected.all != selected.these else None
    return SelectedRecords(
        these=_pretty(selected.these),
        all="" if others is None else _pretty(others),
        cannot=selected.cannot,
    )


def _pretty(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=1)
