"""The page *Records*: nothing of a record runs, and large values are cut."""

from __future__ import annotations

from typing import Any

from kafka_drain.pages.records import (
    FIELDS,
    SHOWN,
    CutText,
    RecordRow,
    SearchResult,
    SelectedRecords,
    records_page,
)

LINKS = {"back": "/a", "here": "/a/records", "lines": "/a/records.jsonl", "republish": "/dags/r"}
EVIL = "<script>alert('x')</script>"


def row(**changes: Any) -> RecordRow:
    values: dict[str, Any] = {
        "topic": "orders",
        "partition": 3,
        "offset": 4711,
        "time": "2026-01-01T00:00:00.000Z",
        "key": CutText.of("k", "text"),
        "value": CutText.of("v", "text"),
        "headers": [],
        "file": "generations/0001/data/part-0.parquet",
        "is_sealed": True,
    }
    return RecordRow(**values | changes)


def page(found: SearchResult | None = None, given: dict[str, str] | None = None) -> str:
    return records_page("orders", "/data/orders", given or {}, found, LINKS)


def test_records_page_empty() -> None:
    """Before a search there is the form alone; it is posted, and nothing of it is remembered."""
    shown = page()

    assert 'method="post" action="/a/records" autocomplete="off"' in shown
    assert all(f'name="{field.name}"' in shown for field in FIELDS)
    assert "Next" not in shown
    assert "<td" not in shown


def test_records_page_escapes() -> None:
    """Whatever a record or a user writes is text."""
    evil = CutText.of(EVIL, "text")
    one = row(key=evil, value=evil, headers=[(EVIL, evil)], file=EVIL, topic=EVIL, time=EVIL)
    selected = SelectedRecords(EVIL, EVIL, [EVIL])
    found = SearchResult(rows=[one], trail=[EVIL], next=EVIL, selected=selected)
    given = {field.name: f'"{EVIL}' for field in FIELDS}
    shown = page(found, given) + page(SearchResult(problem=EVIL), given)

    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert" in shown
    assert 'value=""<' not in shown


def test_records_page_large_value() -> None:
    """Of a value of 5 MB, the page has the beginning and the size; the whole is downloaded."""
    shown = page(SearchResult(rows=[row(value=CutText.of("x" * 5_000_000, "text"))]))

    assert len(shown) < 50_000
    assert "x" * SHOWN in shown
    assert "x" * (SHOWN + 1) not in shown
    assert "5,000,000 characters" in shown
    assert 'action="/a/records.jsonl"' in shown
    assert '<input type="hidden" name="offset" value="4711">' in shown


def test_records_page_null() -> None:
    """A null isn't an empty value."""
    shown = page(SearchResult(rows=[row(key=CutText.of("", None), value=CutText.of("", "text"))]))

    assert '<span class="quiet">null</span>' in shown
    assert "<code></code>" in shown


def test_records_page_turns() -> None:
    """The next page begins where this one ends, the previous one where it began."""
    found = SearchResult(rows=[row()], trail=["p1", "p2"], next="p3")
    shown = page(found, {"key": "k", "scan": "yes"})
    previous, following = (
        part.partition("</form>")[0]
        for part in shown.split('<form class="row" method="post" action="/a/records">')[1:3]
    )

    assert previous.count('name="trail"') == 1
    assert '"p1"' in previous
    assert [f'"p{n}"' in following for n in (1, 2, 3)] == [True] * 3
    for form in (previous, following):
        assert '<input type="hidden" name="key" value="k">' in form
        assert '<input type="hidden" name="scan" value="yes">' in form
    assert "there may be more" in shown


def test_records_page_republish() -> None:
    """What fills the form of a republish is shown with what it can't say; nothing without a DAG."""
    selected = SelectedRecords('{"offsets": []}', '{"topics": []}', ["a was created again"])
    found = SearchResult(rows=[row()], selected=selected)
    shown = page(found)

    assert shown.count("<textarea readonly") == 2
    assert "{&#34;offsets&#34;: []}" in shown
    assert "{&#34;topics&#34;: []}" in shown
    assert "<li>a was created again</li>" in shown
    one = page(SearchResult(rows=[row()], selected=SelectedRecords("{}")))
    assert one.count("<textarea readonly") == 1
    nowhere = records_page("orders", "/data/orders", {}, found, {**LINKS, "republish": ""})
    assert "textarea readonly" not in nowhere


def test_records_page_ends() -> None:
    """The last page says so; a search that took too long says that it goes on."""
    assert "there are no more" in page(SearchResult(rows=[row()]))
    assert "took too long" in page(SearchResult(next="p1", ended=True))
    assert "Previous" not in page(SearchResult(next="p1"))
    assert "not sealed yet" in page(SearchResult(rows=[row(is_sealed=False)]))


def test_records_page_not_searched() -> None:
    """Values that couldn't be searched are told of, also where nothing was found."""
    shown = page(SearchResult(not_searched="3 values couldn't be decoded <"))

    assert '<p class="warning">3 values couldn&#39;t be decoded &lt;.</p>' in shown
    assert 'class="warning"' not in page(SearchResult())
