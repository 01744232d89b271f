"""The figures of the documentation are those that were measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.__main__ import PARTS, RESULTS
from benchmarks.page import PAGES, written


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_show_the_results(page: Path) -> None:
    """The tables are those of `benchmarks/results.json`."""
    results = json.loads(RESULTS.read_text())
    text = page.read_text()

    assert set(results["parts"]) <= set(PARTS)
    assert written(text, results) == text


def test_benchmarks_page_names_each_part() -> None:
    """The page on the method has a row for each part of the benchmarks, and for no other."""
    page = (PAGES[0].parent / "benchmarks.md").read_text()
    section = page.partition("## Parts")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?`) \|", section, flags=re.M)

    assert sorted(name.strip("`") for row in rows for name in row.split(", ")) == sorted(PARTS)
