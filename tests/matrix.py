"""What was tested with what: `make matrix` notes it in docs/matrix.json, the README shows it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["MATRIX", "README", "VARIABLE", "kind_of", "note", "show", "shown", "table"]

ROOT = Path(__file__).resolve().parents[1]
MATRIX = ROOT / "docs" / "matrix.json"
README = ROOT / "README.md"
#: Set to anything, a run of pytest is noted.
VARIABLE = "KAFKA_DRAIN_MATRIX"

_SHOWN = re.compile(r"(?<=<!-- matrix -->\n).*?(?=<!-- end -->)", flags=re.S)


def kind_of(markers: str) -> str:
    """Return which of its tests a run of pytest selects by markers."""
    if markers == "not integration":
        return "without Java"
    return "with real parts" if markers == "integration" else "with Spark"


def note(kind: str, counts: Mapping[str, int], path: Path = MATRIX) -> None:
    """Note what a run of pytest in this environment came to.

    Args:
        kind: The result of `kind_of`.
        counts: How many tests passed, were skipped and failed.
        path: Where it is noted; what is known of other environments stays.
    """
    found = json.loads(path.read_text()) if path.exists() else []
    key = {
        "airflow": version("apache-airflow"),
        "spark": version("pyspark"),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    rows = {tuple(row["versions"].values()): row for row in found}
    row = rows.setdefault(tuple(key.values()), {"versions": key, "tests": {}})
    row["tests"][kind] = dict(counts)
    ordered = [rows[each] for each in sorted(rows, reverse=True)]
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the README's table."""
    lines = [
        "| Airflow | Spark | Python | tests without Java | with Kafka, Spark and Airflow |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        versions = " | ".join(row["versions"].values())
        tests = row["tests"]
        real = _cell(tests.get("with real parts"))
        if "with Spark" in tests and "with real parts" not in tests:
            real = f"those with Spark: {_cell(tests['with Spark'])}"
        lines.append(f"| {versions} | {_cell(tests.get('without Java'))} | {real} |")
    return "\n".join(lines) + "\n"


def _cell(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return "not run"
    text = f"{counts['passed']:,} passed"
    for kind in ("failed", "skipped"):
        if counts[kind]:
            text += f", {counts[kind]:,} {kind}"
    return text


def shown(readme: str) -> str:
    """Return the table that a README shows."""
    found = _SHOWN.search(readme)
    assert found is not None, "the README has no <!-- matrix --> … <!-- end -->"
    return found[0]


def show() -> None:
    """Write the README's table anew."""
    text = README.read_text()
    shown(text)  # refuses a README without a place for it
    README.write_text(_SHOWN.sub(lambda _: table(json.loads(MATRIX.read_text())), text))
