"""Generate the tables and the chart in the documentation from `results.json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.chart import CHART, drawn
from benchmarks.marks import Mark, markdown

__all__ = ["PAGES", "update", "written"]

_DOCS = Path(__file__).parents[1] / "docs"
PAGES = tuple(_DOCS / f"{name}.md" for name in ("object-stores", "performance"))


def update(results: Mapping[str, Any]) -> None:
    """Regenerate the tables on the pages, and the chart."""
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    if {"drain", "warm", "republish"} <= set(results["parts"]):
        CHART.write_text(drawn(results), encoding="utf-8")


def written(page: str, results: Mapping[str, Any]) -> str:
    """Return a page with the tables between `<!-- NAME -->` and `<!-- end -->` regenerated.

    Raises:
        ValueError: If a table's name is unknown.
    """

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- {name} -->\n{_table(name, results['parts'])}\n<!-- end -->"

    return re.sub(r"<!-- (?P<name>[a-z: ]+) -->\n.*?<!-- end -->", table, page, flags=re.S)


def _table(name: str, parts: Mapping[str, Any]) -> str:
    kind, _, which = name.partition(": ")
    part, _, of = which.partition(" ")
    wanted = which.split() if kind == "marks" else [part]
    if missing := [name for name in wanted if name not in parts]:
        return f"Not measured yet: {', '.join(missing)}."
    if kind == "marks":
        return markdown(Mark(**mark) for name in wanted for mark in parts[name]["marks"])
    if kind == "arms":
        figures = parts[part][of] if of else parts[part]
        return "\n".join(_arms(figures["arms"]))
    if kind == "machine":
        seen = parts[part]["machine"]
        return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in seen.items())
    if kind == "points":
        return "\n".join(_points(parts[part]["points"]))
    raise ValueError(f"there is no table {name!r}")


def _arms(arms: Mapping[str, Any]) -> Iterable[str]:
    columns = {"seconds": "seconds", "process_seconds": "whole process"}
    if all(figures["seconds"] == figures["process_seconds"] for figures in arms.values()):
        del columns["process_seconds"]
    names = ["records/s", *columns.values(), "CPU µs a record", "peak memory"]
    yield f"| arm | {' | '.join(names)} |"
    yield "| --- " * (1 + len(names)) + "|"
    for arm, figures in arms.items():
        per_second = figures["records_per_second"]
        records = per_second * figures["seconds"]["median"]
        cells = [
            f"{per_second:,}",
            *(_spread(figures[name]) for name in columns),
            _spread(figures["cpu_seconds"], 1e6 / records),
            f"{figures['peak_mib']['max']:,.0f} MiB",
        ]
        yield f"| {arm} | {' | '.join(cells)} |"


def _spread(figure: Mapping[str, float], factor: float = 1.0) -> str:
    median, least, most = (factor * figure[name] for name in ("median", "min", "max"))
    return f"{median:.1f} ({least:.1f} to {most:.1f})"


def _points(points: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    yield "| what | size | measured |"
    yield "| --- | --- | --- |"
    for point in points:
        yield f"| {point['what']} | {point['size']} | {point['measured']} |"
