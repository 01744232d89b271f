"""The parts that an HTML page is built of: tags, tables, bar charts, words. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from html import escape
from math import ceil

__all__ = [
    "Bar",
    "Html",
    "bar_chart",
    "coloured",
    "is_web_address",
    "many",
    "page",
    "rect",
    "size_text",
    "swatch",
    "table",
    "tag",
    "time_text",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --quiet: #59636e; --line: #d5dae0;
  --panel: #f5f7f9; --good: #0a6b3b; --bad: #b3200f; --warn: #875000; --covered: #3f9d6b;
  --control: #94a3b8; --aborted: #6d83c9; --compacted: #4aa3b0; --open: #d9a400;
  --expired: #e07b1a; --lost: #d92d20; --unknown: #9a4fd0; --alt: #5b8fc7; --window: #a58563; }
@media screen and (prefers-color-scheme: dark) { :root:not(.light) { DARK } }
@media screen { :root.dark { DARK } }
:root.dark { color-scheme: dark; } :root.light { color-scheme: light; }
* { box-sizing: border-box; }
body.full { max-width: none; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--page);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { margin: .3rem 0; max-width: 60rem; }
code { font: .92em ui-monospace, monospace; }
.quiet, figcaption, footer { color: var(--quiet); }
.verdict { margin: 1rem 0; padding: .8rem 1rem; background: var(--panel); font-size: 1.15rem;
  max-width: none; font-weight: 600; border-left: .4rem solid var(--good); color: var(--good); }
.verdict.findings { border-color: var(--bad); color: var(--bad); }
.verdict.late { border-color: var(--warn); color: var(--warn); }
.verdict.waiting { border-color: var(--quiet); color: var(--text); }
.good { color: var(--good); } .bad, .error { color: var(--bad); } .warning { color: var(--warn); }
.error, .warning { font-weight: 600; }
dl { display: flex; flex-wrap: wrap; gap: .6rem; }
dl div { flex: 1 1 8.3rem; padding: .5rem .8rem; background: var(--panel); }
dt { color: var(--quiet); font-size: .85rem; }
dd { margin: 0; font-size: 1.15rem; white-space: nowrap; }
dd, td, text { font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .3rem 1.8rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; white-space: nowrap; }
th { color: var(--quiet); font-weight: 500; }
.prose td { white-space: normal; }
.number { text-align: right; }
.swatch { width: .7em; height: .7em; margin-right: .4em; }
.share { display: block; width: 12rem; height: .8rem; margin-top: .3rem; background: var(--line); }
figure { margin: .5rem 0; }
figure svg { display: block; width: 100%; max-width: 60rem; height: auto; }
@media (max-width: 44rem) { figure { overflow-x: auto; } figure svg { min-width: 40rem; } }
svg text { fill: var(--quiet); font-size: 12px; }
svg line { stroke: var(--line); }
rect { fill: var(--unknown); }
.covered { fill: var(--covered); } .alt { fill: var(--alt); }
.control { fill: var(--control); } .aborted { fill: var(--aborted); }
.compacted { fill: var(--compacted); } .open { fill: var(--open); }
.expired { fill: var(--expired); } .lost { fill: var(--lost); } .window { fill: var(--window); }
iframe { width: 100%; height: 46rem; border: 1px solid var(--line); color-scheme: inherit; }
g:hover rect { opacity: .7; }
footer { margin-top: 2.5rem; padding-top: .6rem; border-top: 1px solid var(--line); }
.why { white-space: normal; min-width: 12rem; font-size: .9em; }
.badge { white-space: nowrap; font-weight: 600; }
a { color: inherit; }
.progress { display: block; width: 100%; max-width: 40rem; height: .9rem; margin-top: .3rem;
  background: var(--line); }
.runs a { text-decoration: none; } .runs svg { width: .8em; height: .8em; margin-right: .15em; }
.success { fill: var(--covered); } .failed { fill: var(--lost); } .running { fill: var(--alt); }
.queued { fill: var(--control); } .damaged { fill: var(--bad); }
.unproven { fill: var(--panel); stroke: var(--quiet); stroke-width: .8; stroke-dasharray: 2 1.5; }
@media print { html { font-size: 10px; }
  body { max-width: none; padding: 0; font-size: 1rem; }
  td.text, th { white-space: normal; overflow-wrap: break-word; padding-right: .6rem; }
  .share { width: 6rem; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  tr, dl div, figure, .verdict { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""


# Of the system's choice, or of a page around this one that says `dark` or `light`.
_DARK = """--page: #14171b; --text: #e6e9ed; --quiet: #9ea8b4; --line: #363d46; --panel: #1d2228;
  --good: #62d394; --bad: #ff8f82; --warn: #f0b454; --covered: #3c9366; --control: #76859a;
  --lost: #f0564a;"""


class Html(str):
    """Text that is HTML; all other text is escaped when it goes into a tag."""

    __slots__ = ()


def page(title: str, verdict: str, body: Html, *, head: str = "") -> str:
    """Return a whole page: nothing loaded, in ASCII.

    Args:
        title: What it is about.
        verdict: In a word or two, for the title too.
        body: The body tag.
        head: More tags of the head, as HTML.
    """
    style = _STYLE.replace("DARK", _DARK)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"{tag('title', title, ': ', verdict)}<style>{style}</style>{head}"
    )
    text = f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>{body}</html>\n'
    # A worker's locale may be any, and names in an archive may be no text at all.
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def coloured(content: bytes, colours: str) -> bytes:
    """Return a page that is `dark` or `light`, whatever the system's choice; empty for that."""
    mark = f'<html lang="en" class="{colours}">' if colours else '<html lang="en">'
    return content.replace(b'<html lang="en">', mark.encode(), 1)


def tag(name: str, *inside: object, **attributes: object) -> Html:
    """Return a tag; `class_` and `aria_label` stand for `class` and `aria-label`."""
    marks = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
    )
    content = "".join(part if isinstance(part, Html) else escape(str(part)) for part in inside)
    return Html(f"<{name}{marks}>{content}</{name}>")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], kind: str = "") -> Html:
    """Return a table; columns that hold nothing but whole numbers are set right.

    Args:
        heads: Names of the columns.
        rows: Their cells.
        kind: `prose` where lines may break; else a table that is too wide is scrolled.
    """
    columns = range(len(heads))
    kinds = ["number" if _is_number([row[i] for row in rows]) else "text" for i in columns]
    head = tag("tr", *(tag("th", heads[i], class_=kinds[i]) for i in columns))
    lines = [tag("tr", *(_cell(row[i], kinds[i]) for i in columns)) for row in rows]
    whole = tag("table", tag("thead", head), tag("tbody", *lines))
    return tag("div", whole, class_=f"wide {kind}".strip())


def _is_number(cells: Sequence[object]) -> bool:
    """Whether a column holds whole numbers, and at most empty cells beside them."""
    return {type(cell) for cell in cells} - {type(None)} == {int}


def _cell(cell: object, kind: str) -> Html:
    text = f"{cell:,}" if isinstance(cell, int) else cell
    return tag("td", "" if text is None else text, class_=kind)


def rect(x: float, y: float, width: float, height: float, colour: str) -> Html:
    """Return a rectangle of a drawing; its colour is a class of the style."""
    place = {"x": x, "y": y, "width": width, "height": height}
    return tag("rect", **{key: f"{value:.2f}" for key, value in place.items()}, class_=colour)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart.

    Attributes:
        value: Its height.
        name: What the axis says; every so many are shown, as there is room.
        words: What is shown when the mouse is over it.
        colour: Class of its colour.
    """

    value: int
    name: str
    words: str
    colour: str


def bar_chart(
    bars: Sequence[Bar], label: str, axis: str, write: Callable[[int], str] = "{:,}".format
) -> Html:
    """Return a bar chart with round numbers beside it and a title for each bar.

    Args:
        bars: From left to right; at least one.
        label: What it shows, for those who don't see it.
        axis: What the bars' names are.
        write: How a value is written beside the chart.
    """
    left, top, width, height = 90, 12, 800, 160
    highest = _round_up(max(bar.value for bar in bars))
    parts = []
    for value in (0, highest // 2, highest) if highest > 1 else (0, 1):
        y = top + height - height * value / highest
        parts.append(tag("line", x1=left, x2=left + width, y1=f"{y:.1f}", y2=f"{y:.1f}"))
        parts.append(tag("text", write(value), x=left - 8, y=f"{y + 4:.1f}", text_anchor="end"))
    step = min(width / len(bars), 60)
    every, under = ceil(55 / step), top + height + 18
    for number, bar in enumerate(bars):
        tall = max(height * bar.value / highest, 1)
        x = left + (number + 0.1) * step
        shape = rect(x, top + height - tall, 0.8 * step, tall, bar.colour)
        parts.append(tag("g", tag("title", bar.words), shape))
        if number % every == 0:
            middle = f"{left + (number + 0.5) * step:.1f}"
            parts.append(tag("text", bar.name, x=middle, y=under, text_anchor="middle"))
    parts.append(tag("text", axis, x=0, y=under))
    box = f"0 0 {left + width + 10} {under + 8}"
    return tag("svg", *parts, viewBox=box, role="img", aria_label=label)


def is_web_address(text: str) -> bool:
    """Whether a text that others wrote may be where a link leads: no `javascript:` and its like."""
    return text.startswith(("http://", "https://"))


def many(number: int, unit: str) -> str:
    """Write a number with its unit: `1 file`, `2,000 files`."""
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


def size_text(number: int) -> str:
    """Write a number of bytes as people say it."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:,.1f} {unit}"
    return f"{number:,} bytes"


def time_text(moment: str | int | None) -> str:
    """Write an ISO time or milliseconds since 1970 as a UTC time."""
    if moment is None or moment == -1:
        return "unknown"
    try:
        if isinstance(moment, int):
            time = _EPOCH + timedelta(milliseconds=moment)
        else:
            time = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        # Kafka's timestamps may be any number.
        return str(moment)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def swatch(colour: str) -> Html:
    """Return a small square of a colour, for a legend."""
    return tag("svg", rect(0, 0, 10, 10, colour), class_="swatch", viewBox="0 0 10 10")


def _round_up(number: int) -> int:
    """Return the next 1, 2 or 5 with zeros."""
    power = int("1" + "0" * (len(str(max(number, 1))) - 1))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= number)
