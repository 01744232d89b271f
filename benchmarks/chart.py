"""The chart in `docs/performance.md`: records per second of each arm, from `results.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["CHART", "drawn"]

CHART = Path(__file__).parents[1] / "docs" / "performance.svg"

_OURS = {"ours", "worker", "spark", "payments"}
_NAMES = {
    "ours": "kafka-drain",
    "stock": "stock Spark job",
    "nowhere": "Spark, Kafka to nowhere",
    "script": "handwritten script",
    "payments": "kafka-drain, second of a group",
    "nowhere 2": "Spark, Kafka to nowhere, warm",
    "bare": "bare loop, no transactions",
    "producer-performance": "Kafka's ProducerPerformance",
    "worker": "kafka-drain, worker",
    "sink-default": "Spark's sink, default",
    "sink-tuned": "Spark's sink, tuned",
    "spark": "kafka-drain, Spark",
}
_STYLE = """
    .page { fill: #ffffff } .title { fill: #1f2328; font-size: 15px; font-weight: 600 }
    .label { fill: #1f2328; font-size: 13px } .figure { fill: #57606a; font-size: 13px }
    .ours { fill: #3fa45b } .other { fill: #b6bec7 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117 } .title, .label { fill: #e6edf3 } .figure { fill: #9198a1 }
      .ours { fill: #4cb86c } .other { fill: #56606c }
    }
"""
_WIDTH, _LABELS, _FIGURES, _ROW = 900, 240, 90, 26

Bars = Sequence[tuple[str, int]]


def drawn(results: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    parts = results["parts"]
    charts: list[tuple[str, Bars]] = [
        ("Drain, cold query: records per second", _arms(parts["drain"]["orders"]["arms"])),
        ("Drain, second pipeline of a run: records per second", _arms(parts["warm"]["arms"])),
        ("Republish: records per second", _arms(parts["republish"]["arms"])),
    ]
    lines = list(_lines([(title, [b for b in bars if b[0] in _NAMES]) for title, bars in charts]))
    height = sum(_ROW * (len(bars) + 2) for _, bars in charts)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            'aria-labelledby="title" font-family="system-ui, -apple-system, '
            "'Segoe UI', Helvetica, Arial, sans-serif\">",
            '  <title id="title">Records per second of kafka-drain and alternatives</title>',
            f"  <style>{_STYLE}  </style>",
            f'  <rect class="page" width="{_WIDTH}" height="{height}" rx="12"/>',
            *lines,
            "</svg>\n",
        ]
    )


def _arms(arms: Mapping[str, Any]) -> Bars:
    return [(arm, figures["records_per_second"]) for arm, figures in arms.items()]


def _lines(charts: Sequence[tuple[str, Bars]]) -> Iterator[str]:
    y = _ROW
    room = _WIDTH - _LABELS - _FIGURES - 24
    for title, bars in charts:
        yield f'  <text class="title" x="24" y="{y}">{title}</text>'
        greatest = max(value for _, value in bars)
        for arm, value in bars:
            y += _ROW
            width = round(room * value / greatest)
            kind = "ours" if arm in _OURS else "other"
            name = _NAMES[arm]
            yield f'  <text class="label" x="{_LABELS}" y="{y}" text-anchor="end">{name}</text>'
            yield (
                f'  <rect class="{kind}" x="{_LABELS + 10}" y="{y - 14}" width="{width}" '
                'height="18" rx="3"/>'
            )
            at = _LABELS + 18 + width
            yield f'  <text class="figure" x="{at}" y="{y}">{value:,}</text>'
        y += 2 * _ROW
