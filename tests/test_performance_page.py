"""The figures of `docs/performance.md` are those that were measured."""

from __future__ import annotations

import json

from benchmarks.__main__ import PARTS, RESULTS
from benchmarks.page import PAGE, written


def test_performance_page_shows_the_results() -> None:
    """The tables are those of `benchmarks/results.json`."""
    results = json.loads(RESULTS.read_text())
    page = PAGE.read_text()

    assert set(results["parts"]) <= set(PARTS)
    assert written(page, results) == page
