"""The pages in a real Chromium, in each state, narrow and wide, light and dark, checked by axe.

`make test-browser` fetches axe-core, and says with TESTS_AXE where it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from demo.chromium import CHROMIUM
from kafka_drain.archive.history import History, read_history
from kafka_drain.offsets import TopicPartition
from kafka_drain.pages.archive import archive_page
from kafka_drain.pages.documents import message_page, receipt_page
from kafka_drain.pages.overview import ArchiveRow, Doing, Run, overview_page
from kafka_drain.pages.placing import Placed
from kafka_drain.pages.records import (
    CutText,
    RecordRow,
    SearchResult,
    SelectedRecords,
    records_page,
)
from kafka_drain.pages.rendering import coloured
from kafka_drain.pages.report import report_page
from kafka_drain.pages.restores import restores_page
from tests.kafka_drain.archive.test_drill_status import NOW as DRILLED_AT
from tests.kafka_drain.archive.test_drill_status import drill
from tests.kafka_drain.archive.test_status import EVIL, NOW, overview
from tests.kafka_drain.golden import sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.pages.looks import look_of
from tests.kafka_drain.pages.test_archive import NOW as HOURS_AT
from tests.kafka_drain.pages.test_archive import hourly
from tests.kafka_drain.pages.test_report import full
from tests.kafka_drain.pages.test_restores import owner, restore

pytestmark = [pytest.mark.integration, pytest.mark.browser]

AXE = os.environ.get("TESTS_AXE", "")
#: Widths of the frames in pixels.
#: In Airflow's frame, a phone of 480 pixels leaves less.
WIDTHS = (360, 480, 1500)

#: Loads each page in frames of both widths, and says what axe finds there.
LOOK = """<!DOCTYPE html><html lang="en" class="COLOURS"><title>look</title><body><script>
(async () => {
  const found = {};
  for (const name of NAMES) for (const width of WIDTHS) {
    const frame = document.createElement("iframe");
    frame.style.cssText = "border: 0; height: 1000px; width: " + width + "px";
    frame.src = name + ".html";
    const loaded = new Promise((done) => frame.addEventListener("load", done));
    document.body.append(frame);
    await loaded;
    const inner = frame.contentWindow, page = frame.contentDocument, root = page.documentElement;
    const axe = page.createElement("script");
    axe.src = "axe.js";
    const ready = new Promise((done) => axe.addEventListener("load", done));
    page.head.append(axe);
    await ready;
    const {passes, violations} = await inner.axe.run(page, {iframes: false});
    found[name + " " + width] = {
      width: inner.innerWidth, passes: passes.length, errors: inner.errors,
      wider: root.scrollWidth - root.clientWidth,
      clipped: [...page.querySelectorAll(".wide:has(.cards)")].filter(
        (one) => one.scrollWidth > one.clientWidth).length, dark: root.classList.contains("dark"),
      charts: page.querySelectorAll(".uplot canvas").length,
      violations: violations.map((one) => one.id + ": " + one.nodes[0].html),
    };
    frame.remove();
  }
  document.body.textContent = JSON.stringify(found);
})();
</script></body></html>"""
# Errors of the page's script are noted. axe can't tell colours on a gradient, nor on a page that is
# loaded again meanwhile.
NOTED = """<head><script>
window.errors = []; addEventListener("error", (event) => errors.push(event.message));
</script>"""
PLAIN = "<style>.wide { background-image: none !important; }</style></head>"


def rows() -> list[ArchiveRow]:
    """Archives in every state that the list distinguishes, with and without hostile names."""
    row = ArchiveRow("orders", "/archives/orders", "/dags/orders", page="/p/orders", report="/r")
    failed, good = Run("failed", "failed: r2", "/run"), Run("success", "success: r1", "/run")
    red = overview(verdict="findings", findings={"file_missing": 3}, gaps={"lost": 7})
    soon = overview(lag=7, expires_at=(NOW + timedelta(hours=1)).isoformat())
    lost, evil = look_of(red, refused="a file is gone"), look_of(red, pipeline=EVIL, refused=EVIL)
    seen = {"overview": overview(), "looked": look_of(overview())}
    return [
        replace(row, **seen, runs=[good]),
        replace(row, overview=red, looked=lost, runs=[good, failed]),
        replace(row, overview=soon, runs=[Run("running", "running: r3", "/run")]),
        replace(row, problem="this server can't read it"),
        replace(row, looked=look_of(None)),
        replace(row, name=EVIL, archive=EVIL, overview=red, looked=evil, runs=[Run(*[EVIL] * 3)]),
    ]


def pages(folder: Path) -> dict[str, str]:
    """Return each page in each of its states."""
    green, red, running, unreadable, new, hostile = rows()
    archive, history = sealed_copy(folder / "a"), History()
    read_history(archive, history)
    generation = archive.generation(1)
    name = generation.receipt_names()[-1]
    receipt = generation.read_receipt(name)
    content = (generation.folder / "receipts" / name).read_bytes()
    odd, odd_history = MadeArchive(folder / "odd", {EVIL: "id"}), History()
    for batch in range(5):
        first = 100 * batch
        odd.seal({TopicPartition(EVIL, p): dense(first, first + 100) for p in range(3)})
    read_history(odd.archive, odd_history)
    drills = [drill(30), drill(1, "failed")]
    said = {"done": 12, "total": 50, "unit": "offsets", "percent": 24, "rate": "6/s"}
    said |= {"left": "3 s", "at": NOW.isoformat(), "spark_ui": "http://driver:4040"}
    doing = [Doing("drain_orders", "drain", "running", "/run", said)]
    failed = [Doing("drain_orders", "drain", "failed", "/run", {})]
    done: dict[str, Any] = {"has_receipt": True, "seconds": 3.0, "verified": "1,234 compared"}
    restores = owner(
        restore("verified", **done, is_exact=True),
        restore("lost", **done, is_exact=False, lost=2),
        restore("left", is_opened=True),
        restore("planned"),
        restore(EVIL, problem=EVIL),
        doing=[Doing("restore", "republish", "running", "/run", said)],
    )
    links = {"home": "/home", "archives": "/a", "restores": "/r", "json": "/j"}
    return {
        "list": overview_page(rows(), NOW, links),
        "list_empty": overview_page([], NOW, links),
        "restores": restores_page([restores, owner(problem="no way in")], NOW, links),
        "restores_empty": restores_page([], NOW, links),
        "archive_green": archive_page(green, history, NOW, "/r"),
        "archive_hours": archive_page(green, hourly("lost"), HOURS_AT, "/r"),
        "archive_red": archive_page(red, history, NOW, "/r", failed, placed=Placed()),
        "archive_running": archive_page(running, history, NOW, "/r", doing),
        "archive_unreadable": archive_page(unreadable, History(), NOW, "/r"),
        "archive_new": archive_page(new, History(), NOW, "/r"),
        "archive_hostile": archive_page(hostile, odd_history, NOW, "/r"),
        "archive_drills": archive_page(green, history, DRILLED_AT, "/r", drills=drills),
        **{f"records_{state}": page for state, page in records_pages().items()},
        "report": report_page(full()),
        "receipt": receipt_page(receipt, content, "/back", "/raw"),
        "message": message_page("Not found", "DAG a doesn't drain to an archive.", "/back"),
    }


def records_pages() -> dict[str, str]:
    """Return the page *Records* in each of its states."""
    text, digits = CutText.of("x" * 5_000_000, "text"), CutText.of("ff" * 5_000_000, "hex")
    evil = CutText.of("<script>alert(1)</script>", "text")
    record = RecordRow(
        *("flights", 3, 4711, "2026-01-01T00:00:00.000Z", CutText.of("k", "text")),
        *(text, [("source", CutText.of("web", "text"))], "f.parquet", True),
    )
    hostile = replace(record, topic=EVIL, key=evil, value=evil, headers=[(EVIL, evil)], file=EVIL)
    binary = replace(record, key=CutText.of("", None), value=digits, is_sealed=False)
    ranges = json.dumps({"offsets": [f"flights:3:{n}-{n + 1}" for n in range(0, 100, 2)]}, indent=1)
    selected = SelectedRecords(ranges, '{"topics": ["flights"]}', ["3 aren't sealed yet."])
    rows = [record, hostile, binary]
    found = SearchResult(rows=rows, trail=["p1", "p2"], next="p3", selected=selected)
    links = {"back": "/a", "here": "/r", "lines": "/r.jsonl", "republish": "/dags/republish"}
    given = {"key": "k" * 300, "scan": "yes"}

    def page(found: SearchResult | None, given: dict[str, str]) -> str:
        shown = records_page("flights", "/data/flights", given, found, links)
        # Opened, so that what is in it is looked at too.
        return shown.replace("<details", "<details open")

    return {
        "form": page(None, {}),
        "found": page(found, given),
        "none": page(SearchResult(), {}),
        "stopped": page(SearchResult(next="p1", ended=True), given),
        "problem": page(SearchResult(problem=EVIL), {"topic": EVIL}),
    }


@pytest.fixture(scope="module", params=["light", "dark"])
def looked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What Chromium and axe see of each page in each width, by page and width."""
    if not (AXE and CHROMIUM):
        pytest.skip("needs Chromium and axe-core: make test-browser")
    folder = tmp_path_factory.mktemp("pages")
    shutil.copy(AXE, folder / "axe.js")
    found = pages(folder)
    for name, page in found.items():
        page = coloured(page.encode(), request.param).decode()
        page = page.replace("<head>", NOTED, 1).replace("</head>", PLAIN, 1)
        page = re.sub(r' data-refresh="\d+"', "", page)
        (folder / f"{name}.html").write_text(page)
    look = LOOK.replace("COLOURS", request.param).replace("NAMES", json.dumps([*found]))
    (folder / "look.html").write_text(look.replace("WIDTHS", json.dumps(WIDTHS)))
    ended = subprocess.run(
        [
            *(CHROMIUM, "--headless=new", "--disable-gpu", "--window-size=1600,1200"),
            # A container has no sandbox for it.
            *("--no-sandbox", f"--user-data-dir={folder}/profile"),
            # Otherwise, each file is of an origin of its own.
            *("--allow-file-access-from-files", "--virtual-time-budget=600000"),
            *("--dump-dom", str(folder / "look.html")),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    said = re.search(r"<body>(\{.*\})", ended.stdout, re.DOTALL)
    assert said, ended.stdout[-2000:] + ended.stderr[-2000:]
    seen = json.loads(unescape(said[1]))
    assert {*seen} == {f"{name} {width}" for name in found for width in WIDTHS}
    assert {one["dark"] for one in seen.values()} == {request.param == "dark"}
    return seen


def test_pages_accessible(looked: dict[str, dict[str, Any]]) -> None:
    """In no page, axe finds anything: names, roles, contrast, headings, focus."""
    assert min(one["passes"] for one in looked.values()) > 10
    assert {name: one["violations"] for name, one in looked.items() if one["violations"]} == {}


def test_pages_fit(looked: dict[str, dict[str, Any]]) -> None:
    """No page is wider than its frame: what is too wide scrolls within it."""
    assert {one["width"] for one in looked.values()} == {*WIDTHS}
    assert {name: one["wider"] for name, one in looked.items() if one["wider"] > 0} == {}


def test_pages_whole_on_phones(looked: dict[str, dict[str, Any]]) -> None:
    """Where a list has a block for each row, nothing of it lies beyond the edge."""
    narrow = {name: one["clipped"] for name, one in looked.items() if one["width"] < WIDTHS[-1]}
    assert len(narrow) == len(looked) * 2 / 3
    assert {name: number for name, number in narrow.items() if number} == {}


def test_pages_scripts(looked: dict[str, dict[str, Any]]) -> None:
    """Scripts draw the charts without an error, also from names that look like scripts."""
    assert {name: one["errors"] for name, one in looked.items() if one["errors"]} == {}
    drawn = {name for name, one in looked.items() if one["charts"]}
    shown = ("green", "hours", "red", "running", "hostile", "drills")
    assert drawn == {f"archive_{name} {width}" for name in shown for width in WIDTHS}
