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
    columns = {
        "seconds": "seconds",
        "process_seconds": "whole process",
        "cpu_seconds": "CPU seconds",
    }
    if all(figures["seconds"] == figures["process_seconds"] for figures in arms.values()):
        del columns["process_seconds"]
    yield f"| arm | records/s | {' | '.join(columns.values())} | peak memory |"
    yield "| --- " * (3 + len(columns)) + "|"
    for arm, figures in arms.items():
        spread = [_spread(figures[name]) for name in columns]
        memory = f"{figures['peak_mib']['max']:,.0f} MiB"
        rate = f"{figures['records_per_second']:,}"
        yield f"| {arm} | {rate} | {' | '.join(spread)} | {memory} |"


def _spread(figure: Mapping[str, float]) -> str:
    return f"{figure['median']:.1f} ({figure['min']:.1f} to {figure['max']:.1f})"


def _points(points: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    yield "| what | size | measured |"
    yield "| --- | --- | --- |"
    for point in points:
        yield f"| {point['what']} | {point['size']} | {point['measured']} |"
