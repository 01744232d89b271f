"""The tables and the picture of `docs/performance.md`, from `results.json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.chart import CHART, drawn
from benchmarks.marks import Mark, markdown

__all__ = ["PAGE", "update", "written"]

#: What can be measured and isn't yet has no table.
PARTS = ("drain", "warm", "hot", "hourly", "memory", "republish", "scale")
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


def update(results: Mapping[str, Any]) -> None:
    """Write the tables of the page anew, and its picture."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    if {"drain", "warm", "republish"} <= set(results["parts"]):
        CHART.write_text(drawn(results), encoding="utf-8")


def written(page: str, results: Mapping[str, Any]) -> str:
    """Return a page with its tables written anew, between `<!-- NAME -->` and `<!-- end -->`."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- {name} -->\n{_table(name, results['parts'])}\n<!-- end -->"

    return re.sub(r"<!-- (?P<name>[a-z: ]+) -->\n.*?<!-- end -->", table, page, flags=re.S)


def _table(name: str, parts: Mapping[str, Any]) -> str:
    kind, _, which = name.partition(": ")
    missing = [part for part in which.split() if part in PARTS and part not in parts]
    if missing:
        return f"Not measured yet: {', '.join(missing)}."
    if kind == "marks":
        return markdown(Mark(**mark) for part in which.split() for mark in parts[part]["marks"])
    if kind == "arms":
        part, _, of = which.partition(" ")
        figures = parts[part][of] if of else parts[part]
        return "\n".join(_arms(figures["arms"]))
    if kind == "machine":
        seen = parts[which]["machine"]
        return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in seen.items())
    if kind == "points":
        return "\n".join(_points(parts[which]["points"]))
    raise ValueError(f"there is no table {name!r}")


def _arms(arms: Mapping[str, Any]) -> Iterable[str]:
    yield "| arm | records/s | seconds | whole process | CPU seconds | peak memory |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for arm, figures in arms.items():
        spread = [_spread(figures[name]) for name in ("seconds", "process_seconds", "cpu_seconds")]
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
