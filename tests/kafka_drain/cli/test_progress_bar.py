"""Bars in one line, and lines in the colour of what they say."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kafka_drain.cli.progress_bar import bar, styled
from kafka_drain.progress import ProgressLine


def drawn(at: ProgressLine, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(bar(at, width))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


@given(
    what=st.text("abc/ é", min_size=1, max_size=200).filter(str.strip),
    done=st.integers(0, 10**12),
    more=st.integers(0, 10**12),
    width=st.integers(24, 300),
)
def test_bar_is_one_line(what: str, done: int, more: int, width: int) -> None:
    """Whatever is counted, a bar is one line that fits, with its percents whole."""
    total = done + more
    percent = 100 * done // total if total else 100
    line = drawn(
        ProgressLine(what, done, total, "source partitions", "8,367/s", "3 min 20 s"),
        width,
    )

    assert line.count("\n") == 1
    assert len(line) <= width + 1
    assert f" {percent} %" in line


@pytest.mark.parametrize(
    ("done", "total", "expected"),
    [(0, 4, "     "), (2, 4, "━━━━━╸    "), (4, 4, "━━━━━"), (0, 0, "━━━━━")],
)
def test_bar_is_as_long_as_done(done: int, total: int, expected: str) -> None:
    """Nothing of something is an empty bar; nothing of nothing a full one."""
    assert expected in drawn(ProgressLine("a", done, total, "files"), 60)


@pytest.mark.parametrize(
    ("line", "style"),
    [
        ("ERROR file_missing: data/a: listed in manifest file 9.compact", "red"),
        ("WARNING file_unlisted: data/a: in no manifest", "yellow"),
        ("repair /archive: can't fix: file_missing: data/a: gone", "red"),
        ("verdict: complete", "green"),
        ("verdict: findings", "red"),
        ("republish a: verify: 5 records are in Kafka once, in order, as in the files", "green"),
        (
            "republish a: verify: NOT EXACT: of 5 records 1 are lost; 0 are duplicates",
            "red",
        ),
        ("drain a: WARNING Kafka deletes records after an hour", "yellow"),
        ("dry run: nothing was changed; pass --apply to carry it out", "yellow"),
        ("republish a: dry run, nothing was sent", "yellow"),
        ("26/11/22 12:00:00 WARN TaskSetManager: lost task 0.0", "yellow"),
        ("26/11/22 12:00:00 ERROR Executor: exception in task 0.0", "red"),
        ("26/11/22 12:00:00 INFO Executor: no ERROR here", ""),
        ("drain a: 200,000 offsets planned", ""),
        ("drain errors: nothing new; every offset is drained", ""),
    ],
)
def test_styled(line: str, style: str) -> None:
    """What is wrong is red, what one should know yellow, what is proven green."""
    text = styled(line)

    assert (text.plain, text.style) == (line, style)
