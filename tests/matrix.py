"""What was tested with what: `make matrix` notes it, docs/tested.md shows it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["MATRIX", "PAGE", "VARIABLE", "kind_of", "note", "show", "shown", "table"]

ROOT = Path(__file__).resolve().parents[1]
MATRIX = ROOT / "docs" / "matrix.json"
PAGE = ROOT / "docs" / "tested.md"
#: Set to anything, a run of pytest is noted.
VARIABLE = "KAFKA_DRAIN_MATRIX"

#: All tests with Kafka, Spark and Airflow, in one run.
ALL = "with real parts"
#: Its parts, in the order of the page, by the markers that select them.
_PARTS = {
    "spark": "with Spark",
    "airflow and not spark": "with Airflow",
    "not (airflow or spark)": "with neither",
    "store": "on a store",
    "cluster": "on clusters",
    "connect": "by Connect",
    "kubernetes": "on Kubernetes",
    "yarn": "on YARN",
    "registry": "on a Schema Registry",
    "browser": "in a browser",
    "recipes": "recipes",
}

_SHOWN = re.compile(r"(?<=<!-- matrix -->\n).*?(?=<!-- end -->)", flags=re.S)


def kind_of(markers: str) -> str:
    """Return which of its tests a run of pytest selects by the Makefile's markers.

    Empty if they are no row's: what is run by names, as `make test-s3` does, isn't noted.
    """
    if markers == "not integration":
        return "without Java"
    if markers == "integration":
        return ALL
    return _PARTS.get(re.sub(r"^integration and not \(.*?\) and ", "", markers), "")


def note(kind: str, counts: Mapping[str, int], day: str, path: Path = MATRIX) -> None:
    """Note what a run of pytest in this environment came to.

    Args:
        kind: The result of `kind_of`.
        counts: How many tests passed, were skipped and failed.
        day: When, as YYYY-MM-DD: other rows may be of older code.
        path: Where it is noted; what is known of other environments stays. Of one environment,
            either a run of all tests with real parts is kept or runs of parts, the newer.
    """
    found = json.loads(path.read_text()) if path.exists() else []
    key = {
        "airflow": version("apache-airflow"),
        "spark": version("pyspark"),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    rows = {tuple(row["versions"].values()): row for row in found}
    row = rows.setdefault(tuple(key.values()), {"versions": key, "tests": {}})
    tests = row["tests"]
    if kind in _PARTS.values():
        tests.pop(ALL, None)
    elif kind == ALL:
        row["tests"] = tests = {each: tests[each] for each in tests if each not in _PARTS.values()}
    tests[kind] = {**counts, "day": day}
    ordered = [rows[each] for each in sorted(rows, reverse=True)]
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the page's table."""
    lines = [
        "| Airflow | Spark | Python | tests without Java | with Kafka, Spark and Airflow |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        versions = " | ".join(row["versions"].values())
        tests = row["tests"]
        parts = [f"{part}: {_cell(tests[part])}" for part in _PARTS.values() if part in tests]
        real = "; ".join(parts) or _cell(tests.get(ALL))
        lines.append(f"| {versions} | {_cell(tests.get('without Java'))} | {real} |")
    return "\n".join(lines) + "\n"


def _cell(counts: Mapping[str, Any] | None) -> str:
    if counts is None:
        return "not run"
    text = f"{counts['passed']:,} passed"
    for kind in ("failed", "skipped"):
        if counts[kind]:
            text += f", {counts[kind]:,} {kind}"
    return f"{text} ({counts['day']})"


def shown(page: str) -> str:
    """Return the table that a page shows."""
    found = _SHOWN.search(page)
    assert found is not None, "the page has no <!-- matrix --> … <!-- end -->"
    return found[0]


def show() -> None:
    """Write the page's table anew."""
    text = PAGE.read_text()
    shown(text)  # refuses a page without a place for it
    PAGE.write_text(_SHOWN.sub(lambda _: table(json.loads(MATRIX.read_text())), text))
