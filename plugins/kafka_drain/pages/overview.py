"""All archives at a glance, as one HTML page. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kafka_drain.gaps import is_harmless
from kafka_drain.pages.html import Html, many, page, rect, size_text, table, tag, time_text
from kafka_drain.pages.standing import (
    ACTIVE,
    LastRun,
    Standing,
    headline_kind,
    is_older,
    last_run,
    standing_of,
)
from kafka_drain.progress import duration_text

__all__ = [
    "SCRIPT",
    "ArchiveRow",
    "Doing",
    "Run",
    "archive_figures",
    "frame",
    "overview_page",
    "shown_task",
    "verdict_class",
    "verdict_words",
]

#: The page looks for news so often, in seconds.
REFRESH = 30
#: From so few hours on, what Kafka will delete undrained is a warning.
_SOON = 24 * 3600

#: Within Airflow's page: its colours, also for a frame within,
#: and links that leave this frame, which it may not itself.
SCRIPT = """
(() => {
  if (window.parent === window) return;
  const around = window.parent.document;
  const dark = () => {
    const colours = around.documentElement.classList.contains("dark") ? "dark" : "light";
    document.documentElement.className = colours;
    for (const inner of document.querySelectorAll("iframe"))
      inner.src = inner.src.split("?")[0] + "?colours=" + colours;
  };
  dark();
  document.addEventListener("DOMContentLoaded", dark);
  new MutationObserver(dark).observe(around.documentElement, {attributeFilter: ["class"]});
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-outside]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const copy = around.createElement("a");
    copy.href = link.href;
    copy.click();
  });
})();
"""


def frame(seconds: int = REFRESH) -> str:
    """Return what the head of each page has.

    Args:
        seconds: The page looks for news so often.
    """
    return f'<meta http-equiv="refresh" content="{seconds}"><script>{SCRIPT}</script>'


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a drain's DAG.

    Attributes:
        state: Airflow's word for its state.
        words: What is shown when the mouse is over it.
        link: Where Airflow shows it.
        began: When it began, as ISO 8601; empty while it waits.
        ended: When it ended; empty before that.
        was_validated: Whether its own validation of the archive has succeeded.
    """

    state: str
    words: str
    link: str
    began: str = ""
    ended: str = ""
    was_validated: bool = False


@dataclass(frozen=True, slots=True)
class Doing:
    """How far a task has got, or had when it ended.

    Attributes:
        dag_id: The DAG of the run.
        task_id: The task.
        state: Airflow's word for its state.
        link: Where Airflow shows the run.
        progress: What it said last: done, total, unit, percent, rate, left, at; empty before that.
    """

    dag_id: str
    task_id: str
    state: str
    link: str
    progress: Mapping[str, Any]


def shown_task(tasks: Sequence[Doing]) -> Doing | None:
    """Return the task that says most of a run: one that works, one that failed, or one with words.

    Args:
        tasks: Of one run, in the order in which they began.
    """
    for matters in (
        lambda one: one.state == "running",
        lambda one: one.state in (*ACTIVE, "up_for_retry") and one.progress,
        lambda one: one.state in ("failed", "up_for_retry"),
        lambda one: bool(one.progress),
    ):
        if found := [one for one in tasks if matters(one)]:
            return found[-1]
    return None


@dataclass(frozen=True, slots=True)
class ArchiveRow:
    """An archive in the list.

    Attributes:
        name: The pipeline's name.
        archive: Its folder or URL.
        link: Where Airflow shows the drain's DAG.
        page: Where the archive's own page is.
        report: Where the newest report is shown; empty without one.
        overview: What its validation left; None without one.
        problem: Why it can't be read; empty when it can.
        runs: The last runs, the one that ended last at the end.
    """

    name: str
    archive: str
    link: str
    page: str = ""
    report: str = ""
    overview: Mapping[str, Any] | None = None
    problem: str = ""
    runs: Sequence[Run] = field(default_factory=tuple)

    @property
    def verdict(self) -> str:
        """In a word: complete, findings, unreadable, or not validated."""
        if self.problem:
            return "unreadable"
        return str(self.overview["verdict"]) if self.overview else "not validated"

    def standing(self, now: datetime) -> Standing:
        """Return how it is shown."""
        overview = self.overview or {}
        expires_at = overview.get("expires_at")
        return standing_of(
            is_readable=not self.problem,
            verdict=overview.get("verdict"),
            last=last_run(run.state for run in self.runs),
            is_older=self._is_older(),
            expires_soon=bool(expires_at) and _left(str(expires_at), now) < _SOON,
        )

    def _is_older(self) -> bool:
        """Whether the last validation is too old to prove what the last run left."""
        ended = [run for run in self.runs if run.state in (LastRun.SUCCESS, LastRun.FAILED)]
        if not (self.overview and ended):
            return False
        last = ended[-1]
        return is_older(
            datetime.fromisoformat(self.overview["validated_at"]),
            began=_moment(last.began),
            ended=_moment(last.ended),
            was_validated=last.was_validated,
        )


def _moment(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def overview_page(rows: Sequence[ArchiveRow], now: datetime, home: str = "") -> str:
    """Return the page; what needs a look comes first.

    Args:
        rows: The archives.
        now: The time.
        home: Where Airflow's own pages begin; empty where they are around this one.
    """
    standings = {id(row): row.standing(now) for row in rows}
    ordered = sorted(rows, key=lambda row: (standings[id(row)].rank, row.name))
    bad = sum(standing.is_urgent for standing in standings.values())
    verdict = f"{many(bad, 'archive')} to look at" if bad else many(len(rows), "archive")
    heads = [
        *("pipeline", "verdict", "last runs", "behind Kafka", "newest record", "validated"),
        *("Kafka deletes", "records", "size", "files", "gaps"),
    ]
    body = tag(
        "body",
        *([tag("p", tag("a", "Airflow", href=home), class_="quiet")] if home else []),
        tag("h1", "Archives"),
        _headline(rows, [standings[id(row)] for row in rows]),
        table(heads, [_cells(row, now) for row in ordered]) if rows else _none(),
        tag(
            "footer",
            f"As of {time_text(now.isoformat())}; looks for news every {REFRESH} s. What each "
            "archive holds is what its last validation said.",
        ),
        class_="full",
    )
    return page("Archives", verdict, body, head=frame())


def _left(moment: str, now: datetime) -> float:
    """Return the seconds until a moment."""
    return (datetime.fromisoformat(moment) - now).total_seconds()


def _headline(rows: Sequence[ArchiveRow], standings: Sequence[Standing]) -> Html:
    records = sum(row.overview["records"] for row in rows if row.overview)
    size = sum(row.overview["bytes"] for row in rows if row.overview)
    held = f"{many(records, 'record')} in {size_text(size)}"
    kind = headline_kind(standings)
    if kind == "bad":
        bad = sum(standing.is_urgent for standing in standings)
        words = f"{bad:,} of {many(len(rows), 'archive')} to look at; {held}"
    elif kind == "good":
        words = f"{many(len(rows), 'archive')}, nothing wrong: {held}"
    else:
        waiting = sum(standing.kind != "good" for standing in standings)
        words = f"{many(len(rows), 'archive')}, {waiting:,} not validated yet: {held}"
    return tag("p", words, class_=verdict_class(kind))


def verdict_class(kind: str) -> str:
    """Return the classes of a headline of some colour."""
    more = {"good": "", "bad": " findings", "warning": " late"}
    return f"verdict{more.get(kind, ' waiting')}"


def _none() -> Html:
    return tag(
        "p",
        "No pipeline yet that you may read: a file in the DAGs folder makes one, with ",
        tag("code", "create_dags(Pipeline(…))"),
        ".",
    )


def _cells(row: ArchiveRow, now: datetime) -> list[object]:
    name = tag("a", row.name, href=row.page, title=row.archive)
    runs = _runs(row)
    seen = row.overview
    if seen is None:
        return [name, _verdict(row, now), runs, *[None] * 8]
    return [
        name,
        _verdict(row, now),
        runs,
        _behind(seen),
        _ago(seen.get("newest_record"), now),
        _ago(seen["validated_at"], now),
        _expiry(seen.get("expires_at"), now),
        seen["records"],
        size_text(seen["bytes"]),
        seen["files"],
        _gaps(seen.get("gaps", {})),
    ]


def _verdict(row: ArchiveRow, now: datetime) -> Html:
    standing = row.standing(now)
    words, title = standing.words, row.problem
    if row.verdict == "findings" and row.overview:
        found = row.overview.get("findings", {})
        title = ", ".join(f"{reason}: {number:,}" for reason, number in found.items())
        words = f"findings: {next(iter(found), '')}".rstrip(": ")
    badge = tag("span", words, class_=f"badge {standing.kind}", title=title)
    if row.problem:
        return tag("div", badge, tag("div", row.problem, class_="quiet why"))
    return tag("a", badge, href=row.report) if row.report else badge


def _gaps(gaps: Mapping[str, int]) -> Html | str:
    if not gaps:
        return "none"
    words = [f"{number:,} {reason}" for reason, number in gaps.items()]
    harmful = not all(map(is_harmless, gaps))
    return tag("span", ", ".join(words), class_="bad" if harmful else "quiet")


def _ago(moment: str | None, now: datetime) -> Html | str:
    if moment is None:
        return "unknown"
    seconds = (now - datetime.fromisoformat(moment)).total_seconds()
    words = f"{_about(seconds)} ago" if seconds >= 0 else f"in {_about(-seconds)}"
    return tag("span", words, title=time_text(moment))


def _expiry(moment: str | None, now: datetime) -> Html | str:
    """Say when Kafka may delete what isn't drained yet."""
    if moment is None:
        return tag("span", "nothing known", class_="quiet")
    left = _left(moment, now)
    kind = "bad badge" if left <= 0 else "warning" if left < _SOON else ""
    words = f"in {_about(left)}" if left > 0 else "now"
    return tag("span", words, class_=kind, title=time_text(moment))


def _about(seconds: float) -> str:
    """Write a time in its largest unit: `7 min`, `3 days`."""
    number, unit, *_ = duration_text(seconds).split()
    return f"{number} {unit}"


def archive_figures(row: ArchiveRow, now: datetime) -> Html:
    """Return what is known of one archive, as boxes."""
    seen = row.overview or {}
    figures: dict[str, object] = {}
    if seen:
        figures = {
            "behind Kafka": _behind(seen),
            "newest record": _ago(seen.get("newest_record"), now),
            "validated": _ago(seen["validated_at"], now),
            "Kafka deletes": _expiry(seen.get("expires_at"), now),
            "records": f"{seen['records']:,}",
            "offsets drained": f"{seen['offsets']:,}",
            "size": size_text(seen["bytes"]),
            "files": f"{seen['files']:,}",
            "generations, windows": f"{seen.get('generations', 0):,}, {seen.get('windows', 0):,}",
            "gaps": _gaps(seen.get("gaps", {})),
        }
    figures["last runs"] = tag(
        "span", _runs(row), " ", tag("a", "DAG", href=row.link, data_outside="")
    )
    boxes = [tag("div", tag("dt", name), tag("dd", words)) for name, words in figures.items()]
    return tag("dl", *boxes)


def verdict_words(row: ArchiveRow, now: datetime) -> list[object]:
    """Return the verdict of one archive, and where it is explained."""
    if row.problem:
        return [row.problem]
    words = row.standing(now).words.capitalize()
    if not row.overview:
        return [words]
    found = row.overview.get("findings", {})
    said = ", ".join(f"{reason}: {number:,}" for reason, number in found.items())
    return [f"{words}{f' ({said})' if said else ''}. ", tag("a", "The report", href=row.report)]


def _behind(seen: Mapping[str, Any]) -> str:
    return "unknown" if seen.get("lag") is None else many(seen["lag"], "offset")


def _runs(row: ArchiveRow) -> Html:
    return tag("span", *map(_run, row.runs), class_="runs") if row.runs else Html("none")


def _run(run: Run) -> Html:
    shape = tag("svg", tag("title", run.words), rect(0, 0, 10, 10, run.state), viewBox="0 0 10 10")
    return tag("a", shape, href=run.link, aria_label=run.words, data_outside="")
