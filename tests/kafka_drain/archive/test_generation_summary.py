"""Summaries of closed generations: rows, bytes, and which receipts they rule out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.generation_summary import (
    Summary,
    SummaryError,
    SummaryRow,
    parse_summary,
    summarized,
)
from kafka_drain.archive.receipts import FileSet, Receipt, SealedContent, SealedFile
from kafka_drain.intervals import TimeRange
from kafka_drain.offsets import TopicPartition
from kafka_drain.storage.sealed_json import seal
from tests.tables import each_of

ROW = SummaryRow("000000000000.json", "a" * 64, "2026-01-01T00:00:00Z", 9, 8, 2, 70, 5, 20, False)
NEXT = replace(ROW, name="000000000001.json", sha256="b" * 64, first_timestamp=15)
SUMMARY = Summary(3, (ROW, NEXT))

TIME = st.one_of(st.none(), st.integers(0, 6))


def receipt(
    files: list[list[tuple[int | None, int | None]]], fingerprint: str | None = "0" * 16
) -> Receipt:
    """A receipt whose files have contents with these first and last timestamps."""
    return Receipt(
        pipeline="p",
        cluster_id="c",
        topics={"t": "id"},
        generation=3,
        first_batch=7,
        last_batch=8,
        sealed_at="2026-01-01T00:00:00Z",
        previous=None,
        partitions=(),
        files=tuple(
            SealedFile(
                f"f{number}",
                10,
                "0" * 64,
                tuple(
                    SealedContent.of(TopicPartition("t", tp), 0, 4, 5, first, last)
                    for tp, (first, last) in enumerate(contents)
                ),
            )
            for number, contents in enumerate(files)
        ),
        files_so_far=FileSet(),
        fingerprint=fingerprint,
        sha256="c" * 64,
    )


@pytest.mark.parametrize(
    ("files", "first", "last"),
    [
        ([], None, None),
        ([[(5, 9)]], 5, 9),
        ([[(5, 9), (2, 3)], [(4, 30)]], 2, 30),
        # One that doesn't say may hold any time.
        ([[(5, 9)], [(None, None)]], None, None),
        ([[(5, None)]], 5, None),
    ],
)
def test_summary_row_times(
    files: list[list[tuple[int | None, int | None]]], first: int | None, last: int | None
) -> None:
    """A row's times are those of all contents of all files, or unknown if one of them is."""
    row = SummaryRow.of(receipt(files))

    assert (row.first_timestamp, row.last_timestamp) == (first, last)
    assert (row.name, row.sha256) == ("000000000008.json", "c" * 64)
    assert (row.files, row.bytes) == (len(files), 10 * len(files))
    assert (row.offsets, row.records) == (0, 0)
    assert row.sealed_at == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(("fingerprint", "unknown"), [("0" * 16, False), (None, True)])
def test_summary_row_unknown(fingerprint: str | None, unknown: bool) -> None:
    """A row says whether it isn't known what Spark read."""
    assert SummaryRow.of(receipt([[(1, 2)]], fingerprint)).unknown_content is unknown


@given(
    files=st.lists(st.lists(st.tuples(TIME, TIME), max_size=2), max_size=3), start=TIME, end=TIME
)
def test_summary_row_rules_out_nothing_wanted(
    files: list[list[tuple[int | None, int | None]]], start: int | None, end: int | None
) -> None:
    """A row that rules out a range has no content that may have a record in it."""
    times = TimeRange(start, end)

    may_hold = any(times.may_hold(*content) for contents in files for content in contents)

    if not SummaryRow.of(receipt(files)).may_hold(times):
        assert not may_hold


@pytest.mark.parametrize(
    ("start", "end", "held"),
    [
        (None, None, True),
        (20, None, True),
        (21, None, False),
        (None, 5, False),
        (None, 6, True),
        (10, 11, True),
    ],
)
def test_summary_row_may_hold(start: int | None, end: int | None, held: bool) -> None:
    """The lower bound belongs to a range, the upper one doesn't; without files nothing is held."""
    assert ROW.may_hold(TimeRange(start, end)) is held
    assert not replace(ROW, files=0).may_hold(TimeRange(start, end))


@pytest.mark.parametrize(
    ("names", "newest", "fits"),
    [
        ([ROW.name, NEXT.name], NEXT.sha256, True),
        ([ROW.name, NEXT.name], ROW.sha256, False),
        ([ROW.name], NEXT.sha256, False),
        ([ROW.name, NEXT.name, "000000000002.json"], NEXT.sha256, False),
        ([NEXT.name, ROW.name], NEXT.sha256, False),
    ],
)
def test_summary_is_of(names: list[str], newest: str, fits: bool) -> None:
    """A summary counts only for the receipts that it names, with its hash of the newest one."""
    assert SUMMARY.is_of(names, newest) is fits
    assert not Summary(3, ()).is_of([], newest)
    assert Summary(3, (ROW,)).is_of([ROW.name], ROW.sha256)


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ((ROW, NEXT), ""),
        ((ROW,), ""),
        ((ROW, NEXT, replace(ROW, name="000000000002.json")), ""),
        ((ROW, replace(NEXT, last_timestamp=21)), NEXT.name),
        ((replace(ROW, files=1), replace(NEXT, files=1)), ROW.name),
    ],
)
def test_summary_contradicts(rows: tuple[SummaryRow, ...], name: str) -> None:
    """Only receipts that both name can contradict; one that is missing in either is none."""
    assert SUMMARY.contradicts(Summary(3, rows)) == name


def test_summary_bytes() -> None:
    """A summary is read as it was written, and is the same bytes each time."""
    content = SUMMARY.to_bytes()

    assert parse_summary(content) == SUMMARY
    assert parse_summary(content).to_bytes() == content
    made = summarized(3, [receipt([[(1, 2)]])])
    assert made == Summary(3, (SummaryRow.of(receipt([[(1, 2)]])),))


@each_of("at", range(0, len(SUMMARY.to_bytes()), 7))
def test_parse_summary_changed(at: int) -> None:
    """A single changed byte is noticed."""
    content = bytearray(SUMMARY.to_bytes())
    content[at] ^= 1

    with pytest.raises(SummaryError):
        parse_summary(bytes(content))


@pytest.mark.parametrize(
    "document", [{}, {"format_version": 9, "generation": 3, "receipts": []}, {"format_version": 1}]
)
def test_parse_summary_other(document: dict[str, object]) -> None:
    """Another sealed document, or one of a newer format, isn't a summary."""
    with pytest.raises(SummaryError) as refused:
        parse_summary(seal(document))
    assert str(refused.value) == str(refused.value.__cause__)
