"""Bars in one line, and lines in the colour of what they say."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kafka_drain.cli.progress_bar import bar, styled
from kafka_drain.output import Level, Line
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
        (Line("lost", Level.ERROR), "red"),
        (Line("old", Level.WARNING), "yellow"),
        (Line("proven", Level.GOOD), "green"),
        (Line("planned"), ""),
        ("planned", ""),
        # Its words decide nothing.
        ("ERROR file_missing: WARNING verdict: complete", ""),
        (Line("verdict: complete", Level.ERROR), "red"),
        (ProgressLine("drain a", 1, 2, "offsets"), ""),
    ],
)
def test_styled(line: str, style: str) -> None:
    """What is wrong is red, what one should know yellow, what is proven green."""
    text = styled(line)

    assert (text.plain, text.style) == (str(line), style)
