"""The figures of the documentation are those that were measured."""

from __future__ import annotations

import json
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
