"""What the report's page says, and what it never does."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from kafka_drain.findings import Reason
from kafka_drain.gaps import GapReason
from kafka_drain.pages.commands import Reach, pasteable
from kafka_drain.pages.humanize import time_text
from kafka_drain.pages.report import BARS, PARTITIONS, ROWS, _headline, report_page
from kafka_drain.proof.report import Report

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Reads a page: its tags, its text, and whether each tag is closed where it has to be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def report(**changes: Any) -> dict[str, Any]:
    """Return a report of an archive in which nothing was drained, with changes."""
    return Report("/archives/p", "p").to_dict() | changes


def partition(number: int, gaps: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    gaps = gaps or {}
    row = {"topic": "t", "partition": number, "start": 0, "end": 5_000, "gaps": gaps}
    return row | {"records": 5_000 - sum(gaps.values())} | more


def gap(number: int, reason: str, start: int = 0, end: int = 3) -> dict[str, Any]:
    where = {"topic": "t", "partition": number, "start": start, "end": end}
    return where | {"reason": reason, "acknowledged": False}


def finding(reason: Reason, where: str = "t-0") -> dict[str, str]:
    return {"reason": str(reason), "severity": reason.severity, "where": where, "detail": "seen"}


def batch(number: int, **more: Any) -> dict[str, Any]:
    unsealed = dict.fromkeys(("records", "files", "bytes", "sealed_at"))
    return {"generation": 1, "first": number, "last": number, "offsets": 1_000 + number} | {
        **unsealed,
        **more,
    }


def full() -> dict[str, Any]:
    """Return a report with every kind of row."""
    reasons = list(enumerate(map(str, GapReason)))
    return report(
        verdict="findings",
        offsets=40_000,
        records=39_000,
        partitions=[partition(number, {reason: 3}) for number, reason in reasons],
        gaps=[
            gap(number, reason) | {"acknowledged": reason == "expired"}
            for number, reason in reasons
        ],
        findings=[finding(reason) for reason in Reason],
        batches=[
            batch(0, last=99),
            batch(
                0,
                generation=2,
                records=9,
                files=2,
                bytes=10,
                sealed_at="2026-07-30T01:00:00+02:00",
            ),
        ],
        generations=[{"generation": 1, "files": 3, "bytes": 2_000, "records": 1_000}],
        windows=[{"name": "t-0", "records": 7, "offsets": 8, "files": 1, "bytes": 0}],
        receipts={"total": 2, "written": 1, "unsealed": 1},
        scope="open",
        deep=True,
    )


def test_report_page_complete() -> None:
    """A complete archive's page says so first, with figures that can be read."""
    found = report(records=5_000, offsets=5_000, partitions=[partition(0)], batches=[batch(0)])
    page = Page(report_page(found))

    assert "Complete: every drained offset is in exactly one file" in page.text
    assert "Not complete" not in page.text
    assert "5,000 records for 5,000 offsets" in page.text
    assert f"Validated {time_text(found['validated_at'])}" in page.text
    assert found["validated_at"][:10] in page.text


def test_report_page_not_complete() -> None:
    """What is missing, from where and what to do stands before everything else."""
    page = Page(
        report_page(
            report(
                verdict="findings",
                offsets=5_000,
                partitions=[partition(0, {"lost": 3, "control": 4}), partition(1, {"expired": 2})],
                gaps=[gap(0, "lost"), gap(0, "control", 10, 14), gap(1, "expired", 0, 2)],
                findings=[finding(Reason.OFFSET_MISSING), finding(Reason.FILE_MISSING, "part-1")],
            )
        )
    )

    assert (
        "Not complete: 3 offsets of t-0 (and 2 offsets of 1 other partition) are in no file; "
        f"{Reason.FILE_MISSING.meaning} (file_missing: 1)" in page.text
    )
    remedy = pasteable(Reason.FILE_MISSING.remedy, Reach("/archives/p"))
    assert "kafka-drain repair /archives/p --apply" in remedy
    assert remedy.replace("`", "") in page.text
    assert page.text.index("part-1") < page.text.index("Topics")
    assert GapReason.LOST.meaning in page.text


def test_report_page_of_all_reasons() -> None:
    """Every reason has its meaning, and that of a newer release's receipt breaks nothing."""
    found = full()
    found["partitions"][0]["gaps"]["brand_new"] = 3
    text = Page(report_page(found)).text

    for reason in Reason:
        meaning = pasteable(reason.meaning, Reach("/archives/p")).replace("`", "")
        assert f"{meaning[:1].upper()}{meaning[1:]}" in text
    for gap_reason in GapReason:
        assert gap_reason.meaning in text
    assert "brand_new" in text
    assert "unknown to this release" in text


def test_report_page_of_every_kind_of_row() -> None:
    """Batches, generations, windows and receipts are said as people say them."""
    text = Page(report_page(full())).text

    assert "Scope: the open generation, including the content of every record." in text
    assert "expired, acknowledged" in text
    assert "generation 1, batch 0 to 99: 1,000 offsets" in text
    assert (
        "generation 2, batch 0: 1,000 offsets, 9 records, 2 files, 10 bytes, "
        "sealed 2026-07-29 23:00:00 UTC" in text
    )
    assert "share a bar; 1 of 2 were already sealed." in text
    assert "2 receipts, 1 of them new." in text


def test_report_page_complete_with_loss_acknowledged() -> None:
    """An acknowledged loss is told in the verdict, also after it was sealed."""
    found = report(offsets=5_000, partitions=[partition(0, {"expired": 3})])
    text = Page(report_page(found)).text

    assert "or was acknowledged as gone (3 offsets)" in text
    assert "The locations of gaps that were sealed before are in the receipts." in text


def test_report_page_escapes() -> None:
    """No name becomes a tag or an attribute, wherever it stands."""
    evil = "<script>alert(1)</script>\"' onload=x &amp; \udcff"
    found = full()
    for key in ("archive", "pipeline", "validated_at", "verdict"):
        found[key] = evil
    for row in found["partitions"] + found["gaps"]:
        row["topic"] = evil
    for row in found["findings"]:
        row |= {"where": evil, "detail": evil}
    found["gaps"][0]["reason"] = evil
    found["partitions"][0]["gaps"] = {evil: 1}
    found["windows"][0]["name"] = found["batches"][1]["sealed_at"] = evil
    page = Page(report_page(found, evil))

    assert "script" not in page.tags
    assert not any(name.startswith("on") for name in page.attributes)
    assert "<script>alert(1)</script>" in page.text
    assert "&amp;" in page.text


@pytest.mark.parametrize("found", [report(), full()], ids=["empty", "full"])
def test_report_page_stands_alone(found: dict[str, Any]) -> None:
    """A page loads nothing, runs nothing, and needs no encoding."""
    text = report_page(found)
    page = Page(text)

    assert text.isascii()
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text)
    assert not page.attributes & {"src", "href", "style", "srcdoc", "action"}
    assert not set(page.tags) & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_report_page_of_nothing() -> None:
    """An archive that nothing was drained to has its page as well."""
    text = Page(report_page(report())).text

    assert "Complete: nothing has been drained yet" in text
    assert "No batch has been drained." in text


@pytest.mark.parametrize("number", [1, BARS, BARS + 200])
def test_report_page_batches(number: int) -> None:
    """Each batch has a bar that says what it is, of many the newest ones have."""
    page = Page(report_page(report(batches=[batch(n) for n in range(number)])))

    assert page.tags.count("g") == min(number, BARS)
    assert f"batch {number - 1}: {999 + number:,} offsets" in page.text
    assert ("batch 0: 1,000 offsets" in page.text) == (number <= BARS)


def test_report_page_cuts_long_lists() -> None:
    """Long lists are cut, the page says where the rest is, and what is wrong is not cut."""
    rows = [partition(number) for number in range(PARTITIONS + 50)]
    rows[0]["gaps"] = {"control": 7}
    rows[-1]["gaps"] = {"lost": 1_234}
    harmless = [gap(0, "control", n, n + 1) for n in range(0, 4 * ROWS - 2, 2)]
    found = report(
        partitions=rows,
        gaps=[*harmless, gap(9, "lost", 77_000, 78_234)],
        findings=[finding(Reason.FILE_ORPHAN, f"part-{n}") for n in range(ROWS + 1_000)],
    )
    page = report_page(found, "run.json")
    text = Page(page).text

    assert "… and 1,000 more, all in run.json." in text
    assert f"… and {ROWS} more, all in run.json." in text
    assert "… and 50 more, all in run.json." in text
    assert "1,234 lost" in text
    assert '<td>t-9</td><td class="number">77,000</td>' in page
    assert text.index("lost not harmless") < text.index("control harmless")
    assert f"part-{ROWS}" not in text


def test_report_page_sets_numbers_right() -> None:
    """Numbers stand under each other with separators, text doesn't."""
    text = report_page(full())

    assert '<td class="number">1,000</td><td class="number">3</td><td>2.0 kB</td>' in text
    assert '<td>t-0</td><td class="number">7</td>' in text


def test_report_page_incomplete_with_loss_acknowledged() -> None:
    """The headline counts what is missing, without what was acknowledged as gone."""
    gaps = [gap(0, "expired") | {"acknowledged": True}, gap(1, "expired", 5, 7)]
    found = report(
        verdict="findings",
        offsets=5_000,
        gaps=gaps,
        partitions=[partition(0, {"expired": 3}), partition(1, {"expired": 2})],
        findings=[finding(Reason.OFFSET_MISSING, "t-1")],
    )

    assert "Not complete: 2 offsets of t-1 are in no file" in Page(report_page(found)).text


@pytest.mark.parametrize(
    ("reasons", "gaps", "said"),
    [
        # Warnings aren't a reason.
        ([Reason.FILE_MISSING, Reason.FILE_REPLACED], [], "FILE_MISSING"),
        ([Reason.FILE_MISSING] * 2 + [Reason.FILE_CHANGED], [], "FILE_MISSING; FILE_CHANGED"),
        (
            [Reason.FILE_MISSING] * 2 + [Reason.FILE_CHANGED, Reason.OFFSET_MISSING],
            [],
            "FILE_MISSING; FILE_CHANGED; and 1 other kind of finding",
        ),
        # What the gaps say already isn't said again.
        (
            [Reason.OFFSET_MISSING, Reason.OFFSET_UNEXPLAINED, Reason.FILE_MISSING],
            [gap(0, "lost", 3, 1204)],
            "1,201 offsets of t-0 are in no file; FILE_MISSING",
        ),
        ([Reason.OFFSET_MISSING], [gap(0, "lost", 3, 4)], "1 offset of t-0 is in no file"),
        (
            [Reason.OFFSET_MISSING],
            [gap(0, "lost", 3, 4), gap(1, "lost", 3, 4)],
            "1 offset of t-0 (and 1 offset of 1 other partition) are in no file",
        ),
        (
            [Reason.OFFSET_MISSING],
            [gap(0, "lost", 3, 4), gap(1, "lost", 0, 2), gap(2, "lost", 0, 2)],
            "2 offsets of t-1 (and 3 offsets of 2 other partitions) are in no file",
        ),
    ],
)
def test_headline(reasons: list[Reason], gaps: list[Any], said: str) -> None:
    """Missing offsets are said first, then the most frequent findings."""
    found = [finding(reason) for reason in reasons]

    headline = _headline(report(verdict="findings", gaps=gaps, findings=found))

    for reason in Reason:
        told = f"{reason.meaning} ({reason}: {reasons.count(reason):,})"
        headline = headline.replace(told, reason.name)
    assert headline == f"Not complete: {said}"
