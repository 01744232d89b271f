"""Render an overview of all archives as one HTML page. Opens nothing but its template."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from kafka_drain.archive.drill_status import SKEW
from kafka_drain.archive.readiness import Readiness
from kafka_drain.findings import Reason
from kafka_drain.gaps import NOT_ARCHIVED, gaps_text, is_harmless
from kafka_drain.look import Judged, Look
from kafka_drain.pages.archive_status import (
    ACTIVE,
    ArchiveStatus,
    LastRun,
    archive_status,
    headline_kind,
    is_older,
    last_run,
)
from kafka_drain.pages.commands import Reach
from kafka_drain.pages.humanize import many, size_text, time_text
from kafka_drain.pages.remedies import EndedRun, Remedy, remedies
from kafka_drain.pages.rendering import render
from kafka_drain.progress import duration_text

#: Seconds between refreshes of the page.
REFRESH = 30
#: Addresses that the list may link to.
NO_LINKS = MappingProxyType({"home": "", "restores": "", "json": ""})
#: Maximum number of runs shown of an archive.
SHOWN_RUNS = 8
#: If undrained records expire in less than this, in seconds, show a warning.
_SOON = 24 * 3600
#: A clock may be ahead of another's by so much, in seconds.
_SKEW = SKEW.total_seconds()


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a drain's DAG.

    Attributes:
        state: Airflow's state.
        words: Tooltip.
        link: Its page in Airflow; empty if the user may not see it.
        began: When it started, as ISO 8601; empty while it is queued.
        ended: When it finished; empty until then.
        was_validated: Whether its own validation of the archive succeeded.
        name: Its id.
        validation: State of its task that validates the archive; empty if it has none.
        task: The first of its tasks that failed; empty if none has.
        problem: Why that failed, as its log says; empty if it isn't known.
    """

    state: str
    words: str
    link: str
    began: str = ""
    ended: str = ""
    was_validated: bool = False
    name: str = ""
    validation: str = ""
    task: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Doing:
    """The progress of a task, running or finished.

    Attributes:
        dag_id: The DAG of the run.
        state: Airflow's state.
        link: The run's page in Airflow.
        progress: Its last report: done, total, unit, percent, rate, left, at; empty if nothing yet.
        waiting: Its last message about a server that doesn't answer; empty if it answers again.
    """

    dag_id: str
    task_id: str
    state: str
    link: str
    progress: Mapping[str, Any]
    waiting: str = ""


def shown_task(tasks: Sequence[Doing]) -> Doing | None:
    """Return the most informative task of a run: a running one, a failed one, or one with progress.

    Args:
        tasks: The tasks of one run, in the order in which they started.
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
        link: The page of the drain's DAG in Airflow.
        page: Address of the archive's own page.
        report: Address of the newest report; empty without one.
        overview: Results of its last validation; None without one.
        problem: Why it can't be read; empty if it can.
        runs: The last runs in each state; the one that finished last comes last.
        is_damaged: Whether it can't be read because a document in it is damaged.
        reached: Addresses for commands; None if only its place is known.
        looked: What was seen of its files; None if nobody has looked yet.
    """

    name: str
    archive: str
    link: str
    page: str = ""
    report: str = ""
    overview: Mapping[str, Any] | None = None
    problem: str = ""
    runs: Sequence[Run] = field(default_factory=tuple)
    is_damaged: bool = False
    reached: Reach | None = None
    looked: Look | None = None

    @property
    def reach(self) -> Reach:
        """Addresses for commands."""
        return self.reached or Reach(self.archive)

    @property
    def last(self) -> EndedRun:
        """The run that the status is about; without a name if the user may not see it.

        It is the last one since the validation, or else the one that ended last.
        """
        running = any(run.state in ACTIVE for run in self.runs)
        run = self._since or next(reversed(self._ended), None)
        if run is None or not run.link:
            return EndedRun(is_followed=running)
        return EndedRun(run.name, run.problem, run.task, run.validation, is_followed=running)

    @property
    def shown_runs(self) -> list[Run]:
        """The newest runs that the user may see; others tell only how the archive stands."""
        return [run for run in self.runs if run.link][-SHOWN_RUNS:]

    @property
    def verdict(self) -> str:
        """The verdict: complete, findings, damaged, unreadable, or not validated."""
        if self.problem:
            return "damaged" if self.is_damaged else "unreadable"
        return str(self.overview["verdict"]) if self.overview else "not validated"

    def judge(self, now: datetime) -> Judged:
        """Return whether the archive could be restored, by what is known now."""
        if self.problem or self.looked is None:
            problem = self.problem or "its files are still being looked at"
            return Judged.unread(self.name, problem, is_damaged=self.is_damaged)
        return self.looked.judge(now)

    def status(self, now: datetime) -> ArchiveStatus:
        """Return the archive's status."""
        overview, since = self.overview or {}, self._since
        expires_at = overview.get("expires_at")
        return archive_status(
            is_readable=not self.problem,
            is_damaged=self.is_damaged,
            verdict=overview.get("verdict"),
            last=LastRun(since.state) if since else last_run(run.state for run in self.runs),
            is_older=since is not None,
            expires_soon=bool(expires_at) and _left(str(expires_at), now) < _SOON,
            has_unknown=str(Reason.CONTENT_UNKNOWN) in overview.get("findings", {}),
            is_ahead=bool(overview) and _left(str(overview["validated_at"]), now) > _SKEW,
        )

    @property
    def _ended(self) -> list[Run]:
        return [run for run in self.runs if run.state in (LastRun.SUCCESS, LastRun.FAILED)]

    @property
    def _since(self) -> Run | None:
        """The last run that the validation is too old to cover; None without one.

        Not only the run that ended last is looked at: a backfill's may have begun before a drain
        that failed meanwhile, and proves its own window alone.
        """
        if not self.overview:
            return None
        at, ended = datetime.fromisoformat(self.overview["validated_at"]), self._ended
        later = (
            run
            for run in reversed(ended)
            # An earlier one without a time never began, such as that of a cancelled backfill.
            if (run is ended[-1] or run.began or run.ended)
            and is_older(
                at,
                began=_moment(run.began),
                ended=_moment(run.ended),
                was_validated=run.was_validated,
            )
        )
        return next(later, None)


def _moment(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


@dataclass(frozen=True, slots=True)
class Note:
    """Text on a page.

    Attributes:
        words: The text.
        kind: CSS classes of its colour; empty for the default.
        title: Tooltip; empty for none.
    """

    words: str
    kind: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class LastValidation:
    """The results of an archive's last validation, as text.

    Attributes:
        behind: Lag: the number of offsets in Kafka that aren't drained.
        newest: Age of the newest record.
        validated: When the validation took place.
        deletes: When Kafka may delete records that aren't drained.
        gaps: Offsets that are in no file.
    """

    behind: str
    newest: Note
    validated: Note
    deletes: Note
    gaps: Note

    @classmethod
    def of(cls, overview: Mapping[str, Any], now: datetime) -> LastValidation:
        """Return the texts for an overview at a given time."""
        lag, gaps = overview.get("lag"), overview.get("gaps", {})
        # Nobody has asked for what isn't archived: no loss, and no harm either.
        harmful = not all(map(is_harmless, gaps.keys() - {NOT_ARCHIVED}))
        kind = "bad" if harmful else "warning" if NOT_ARCHIVED in gaps else "quiet"
        return cls(
            behind="unknown" if lag is None else many(lag, "offset"),
            newest=_ago(overview.get("newest_record"), now),
            validated=_ago(overview["validated_at"], now),
            deletes=_expiry(overview.get("expires_at"), now),
            gaps=Note(gaps_text(gaps), kind if gaps else ""),
        )


@dataclass(frozen=True, slots=True)
class _Line:
    """A row of the list."""

    row: ArchiveRow
    judged: Judged
    status: ArchiveStatus
    state: Note
    badge: Note
    seen: LastValidation | None
    why: str

    @classmethod
    def of(cls, row: ArchiveRow, now: datetime) -> _Line:
        judged, status = row.judge(now), row.status(now)
        seen = None if row.overview is None else LastValidation.of(row.overview, now)
        kind = f"badge {STATE_KINDS[judged.state]}"
        state = Note(judged.state.words, kind, judged.sentence)
        return cls(row, judged, status, state, _badge(row, status), seen, _why(row, status))

    @property
    def urgency(self) -> tuple[int, int, str]:
        """Its place in the list."""
        return -[*Readiness].index(self.judged.state), self.status.rank, self.row.name


#: Colours of the states.
STATE_KINDS = {
    Readiness.READY: "good",
    Readiness.UNKNOWN: "warning",
    Readiness.NOT_READY: "bad",
}


def overview_page(
    rows: Sequence[ArchiveRow], now: datetime, links: Mapping[str, str] = NO_LINKS
) -> str:
    """Return the page; archives that need attention come first.

    Args:
        links: Addresses: `restores` of the list of restores, `json` of this list as JSON, `home` of
            Airflow's home page; empty if this page is embedded in Airflow.
    """
    lines = sorted((_Line.of(row, now) for row in rows), key=lambda line: line.urgency)
    headline, kind = _headline(lines)
    return render(
        "overview.html",
        title="Archives",
        verdict=headline,
        refresh=REFRESH,
        links=links,
        script_file="frame.js",
        verdict_class=verdict_class(kind),
        headline=headline,
        held=_held(lines),
        lines=lines,
        now=now.isoformat(),
    )


def _left(moment: str, now: datetime) -> float:
    """Return the seconds until a time."""
    return (datetime.fromisoformat(moment) - now).total_seconds()


def _headline(lines: Sequence[_Line]) -> tuple[str, str]:
    """Return the headline for all archives, by the worst of them, and its colour."""
    if not lines:
        return "No archives", "quiet"
    count = Counter(line.judged.state for line in lines)
    urgent = sum(line.status.is_urgent for line in lines if not line.judged.why)
    said = [
        *(f"{count[state]:,} {state.words}" for state in reversed(Readiness) if count[state]),
        *([f"{urgent:,} needing attention"] if urgent else []),
    ]
    kinds = {STATE_KINDS[state] for state in count} | {headline_kind(one.status for one in lines)}
    return f"{many(len(lines), 'archive')}: {', '.join(said)}", worst_kind(kinds)


def _held(lines: Sequence[_Line]) -> str:
    seen = [line.row.overview for line in lines if line.row.overview]
    records, size = (sum(overview[key] for overview in seen) for key in ("records", "bytes"))
    return f"{many(records, 'record')} in {size_text(size)}"


def worst_kind(kinds: Iterable[str]) -> str:
    """Return the worst of some colours of headlines."""
    known = {*kinds}
    return next(kind for kind in ("bad", "warning", "quiet", "good") if kind in known)


def verdict_class(kind: str) -> str:
    """Return the CSS classes of a headline of the given colour."""
    more = {"good": "", "bad": " findings", "warning": " late"}
    return f"verdict{more.get(kind, ' waiting')}"


def verdict_text(row: ArchiveRow, now: datetime) -> str:
    """Return the verdict of one archive, or why there is none."""
    if row.problem:
        return row.problem
    found = _errors(row)
    if row.verdict != "findings" or not found:
        return row.status(now).words.capitalize()
    said = [f"{one.meaning} ({one.counted})" for one in found[:2]]
    if len(found) > 2:
        said.append(f"and {many(len(found) - 2, 'other kind')} of finding")
    return f"Not complete: {'; '.join(said)}"


def _errors(row: ArchiveRow) -> list[Remedy]:
    return [one for one in remedies(row.overview or {}, row.reach) if one.is_error]


def _first_finding(row: ArchiveRow) -> str:
    """Return the first reason why an archive is incomplete, in a few words; empty if it isn't."""
    found = _errors(row)
    if row.verdict != "findings" or not found:
        return ""
    more = f", and {many(len(found) - 1, 'other kind')} of finding" if len(found) > 1 else ""
    return f"{found[0].meaning} ({found[0].counted}){more}"


def _why(row: ArchiveRow, status: ArchiveStatus) -> str:
    """Return why an archive needs attention, in a few words; empty if it doesn't."""
    if row.problem or not status.is_urgent:
        return row.problem
    failed = status.words.endswith("last run failed")
    return _first_finding(row) or (row.last.failure if failed else "")


def _badge(row: ArchiveRow, status: ArchiveStatus) -> Note:
    codes = ", ".join(f"{one.code}: {one.counted}" for one in _errors(row))
    return Note(status.words, f"badge {status.kind}", row.problem or codes)


def _ago(moment: str | None, now: datetime) -> Note:
    if moment is None:
        return Note("unknown")
    seconds = (now - datetime.fromisoformat(moment)).total_seconds()
    words = f"{_about(seconds)} ago" if seconds >= 0 else f"in {_about(-seconds)}"
    return Note(words, title=time_text(moment))


def _expiry(moment: str | None, now: datetime) -> Note:
    """Return the time at which Kafka may delete records that aren't drained yet."""
    if moment is None:
        return Note("none known", "quiet")
    left = _left(moment, now)
    kind = "bad badge" if left <= 0 else "warning" if left < _SOON else ""
    return Note(f"in {_about(left)}" if left > 0 else "now", kind, time_text(moment))


def _about(seconds: float) -> str:
    """Format a duration in its largest unit: `7 min`, `3 days`."""
    number, unit, *_ = duration_text(seconds).split()
    return f"{number} {unit}"
