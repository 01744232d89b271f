"""The page to search an archive's records: a form, and the matches.

Opens nothing but its template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_drain.pages.rendering import render

#: Number of characters of a key, a value or a header that the page shows.
SHOWN = 500


@dataclass(frozen=True)
class FormField:
    """A field of the form.

    Attributes:
        label: The displayed label.
        hint: An example.
    """

    name: str
    label: str
    hint: str = ""


FIELDS = (
    FormField("topic", "topic"),
    FormField("partition", "partition"),
    FormField("offset", "offset", "100 or 100-200"),
    FormField("from_time", "from", "2026-01-31T13:00:00Z"),
    FormField("to_time", "to", "2026-02-01"),
    FormField("key", "key", "text or hex:00ff"),
    FormField("header", "header", "name=value"),
    FormField("value_contains", "value contains", "text or hex:00ff"),
    FormField("jsonpath", "JSONPath", "$.order.id=42"),
    FormField("limit", "records a page", "100"),
)


@dataclass(frozen=True)
class CutText:
    """A text that may be too long for the page.

    Attributes:
        text: The displayed part.
        characters: Its length; 0 if all of it is shown.
        format: Its format: `json`, `text`, `hex` and so on; None for null.
    """

    text: str
    characters: int
    format: str | None

    @classmethod
    def of(cls, text: str, format: str | None) -> CutText:
        """Cut a text if it is too long."""
        return cls(text[:SHOWN], len(text) if len(text) > SHOWN else 0, format)


@dataclass(frozen=True)
class RecordRow:
    """A record on the page.

    Attributes:
        time: Its timestamp; empty if it has none.
        headers: Its headers, by name.
        file: The file that holds it.
        is_sealed: Whether a receipt proves it.
    """

    topic: str
    partition: int
    offset: int
    time: str
    key: CutText
    value: CutText
    headers: Sequence[tuple[str, CutText]]
    file: str
    is_sealed: bool


@dataclass(frozen=True)
class SelectedRecords:
    """The fields that fill the form of a republish.

    Attributes:
        these: The JSON configuration that selects the records of this page.
        all: That of all records that match, on whichever page; empty if there is none, or if this
            page has them all.
        cannot: Criteria that the form can't express.
    """

    these: str
    all: str = ""
    cannot: Sequence[str] = ()


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        problem: Why it found none; empty if it could search.
        trail: Start of each page so far; empty on the first one.
        next: Start of the next page; empty if there is none.
        ended: Whether the search stopped because it took too long.
        selected: Fields for the form of a republish; None if nothing was found.
        not_searched: Which values the path couldn't be looked for in; empty for none.
    """

    rows: Sequence[RecordRow] = ()
    problem: str = ""
    trail: Sequence[str] = ()
    next: str = ""
    ended: bool = False
    selected: SelectedRecords | None = None
    not_searched: str = ""


def records_page(
    name: str,
    archive: str,
    given: Mapping[str, str],
    found: SearchResult | None,
    links: Mapping[str, str],
) -> str:
    """Return the page.

    Args:
        name: Name of the pipeline.
        archive: The archive's path or URL.
        given: The form's values, by the names of its fields; `scan` if it is ticked.
        found: The result of the search; None before the first one.
        links: Addresses of the archive's page (`back`), of this one (`here`), of the download
            (`lines`) and of the DAG that republishes (`republish`).
    """
    return render(
        "records.html",
        title=f"Records of {name}",
        verdict="kafka-drain",
        archive=archive,
        fields=FIELDS,
        given=given,
        found=found,
        links=links,
        script_file="frame.js",
    )
