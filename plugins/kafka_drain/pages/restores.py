"""Render the restores of all archives as one HTML page: records sent, and results of verify.

Opens nothing but its template.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_drain.pages.archive_status import ACTIVE
from kafka_drain.pages.commands import Reach, pasteable
from kafka_drain.pages.humanize import many, size_text, time_text
from kafka_drain.pages.overview import REFRESH, Doing, verdict_class
from kafka_drain.pages.rendering import render
from kafka_drain.pages.tasks import BUSY, ShownTask
from kafka_drain.progress import duration_text

#: Maximum number of restores on the page.
ROWS = 100
#: Maximum number of topics listed for one restore.
TOPICS = 20

#: The states that need attention, the most urgent first.
_RANKS = {"bad": 0, "warning": 1}


@dataclass(frozen=True, slots=True)
class RestoreState:
    """The state of a restore, including the result of verify.

    Attributes:
        words: The displayed state.
        kind: Its colour: `good`, `warning`, `bad` or `quiet`.
    """

    words: str
    kind: str


def restore_state(
    *,
    has_receipt: bool,
    is_exact: bool | None,
    lost: int,
    is_abandoned: bool,
    is_opened: bool,
    is_running: bool,
) -> RestoreState:
    """Return the state of a restore: never better than its verification.

    Args:
        has_receipt: Whether the run has finished.
        is_exact: Whether verify found each record once and in order; None if it didn't run.
        lost: Number of records that verify didn't find.
        is_abandoned: Whether a user gave the run up.
        is_opened: Whether the run may have sent records.
        is_running: Whether a task of Airflow works on it now.
    """
    if has_receipt:
        if is_exact is None:
            return RestoreState("sent, not verified", "warning")
        if is_exact:
            return RestoreState("verified, exact", "good")
        return (
            RestoreState("records lost", "bad")
            if lost
            else RestoreState("all there, but not exact", "warning")
        )
    if is_abandoned:
        return RestoreState("abandoned", "warning" if is_opened else "quiet")
    if is_running:
        return RestoreState("sending" if is_opened else "planned", "quiet")
    if is_opened:
        return RestoreState("started, not verified", "warning")
    return RestoreState("planned, nothing sent", "quiet")


@dataclass(frozen=True, slots=True)
class TopicSent:
    """The records sent from one topic of the archive to one topic of Kafka.

    Attributes:
        source: The archived topic.
        target: The topic that gets the records.
        partitions: Number of source partitions.
        records: Number of records.
    """

    source: str
    target: str
    partitions: int
    records: int


@dataclass(frozen=True, slots=True)
class Restore:
    """A run of republish.

    Attributes:
        run: Its name.
        key: Name of its folder in the archive.
        started_at: When it was planned or started, as ISO 8601.
        ended_at: When it finished; empty until then.
        records: Number of records.
        size: Size of the files in bytes; None if unknown.
        topics: Its topics with their targets.
        cluster_id: The cluster that gets the records; empty if unknown.
        delivery: `exactly_once` or `at_least_once`.
        how: The engine, as text.
        has_receipt: Whether it has finished.
        is_exact: Whether verify found it exact; None if it didn't run.
        lost: Number of records that verify didn't find.
        verified: Result of verify, as text; empty if it didn't run.
        is_abandoned: Whether a user gave it up.
        is_opened: Whether it may have sent records.
        seconds: Duration of the sending; None until it has finished.
        problem: Why its documents can't be read; empty if they can.
    """

    run: str
    key: str
    started_at: str
    ended_at: str = ""
    records: int = 0
    size: int | None = None
    topics: Sequence[TopicSent] = ()
    cluster_id: str = ""
    delivery: str = ""
    how: str = ""
    has_receipt: bool = False
    is_exact: bool | None = None
    lost: int = 0
    verified: str = ""
    is_abandoned: bool = False
    is_opened: bool = False
    seconds: float | None = None
    problem: str = ""

    @property
    def is_unfinished(self) -> bool:
        """Whether an attempt may still work on it."""
        return not (self.has_receipt or self.is_abandoned or self.problem)

    def state(self, is_running: bool) -> RestoreState:
        """Return its state, given whether a task works on it now."""
        if self.problem:
            return RestoreState("unreadable", "bad")
        return restore_state(
            has_receipt=self.has_receipt,
            is_exact=self.is_exact,
            lost=self.lost,
            is_abandoned=self.is_abandoned,
            is_opened=self.is_opened,
            is_running=is_running,
        )


@dataclass(frozen=True, slots=True)
class ArchiveRestores:
    """The restores of one archive.

    Attributes:
        name: The pipeline's name.
        page: Address of the archive's page.
        archive: The archive's folder or URL.
        restores: Its newest restores, in any order.
        more: Number of older ones.
        problem: Why they can't be read; empty if they can.
        doing: Progress of the tasks that restore from it.
    """

    name: str
    page: str
    archive: str
    restores: Sequence[Restore] = ()
    more: int = 0
    problem: str = ""
    doing: Sequence[Doing] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    """A restore as it is shown."""

    owner: ArchiveRestores
    it: Restore
    state: RestoreState
    name: str
    started: str
    took: str
    size: str
    where: str
    what_to_do: str


def restores_page(archives: Sequence[ArchiveRestores], now: datetime, links: dict[str, str]) -> str:
    """Return the page; restores that need attention come first, then the newest.

    Args:
        links: Addresses: `archives` of the list of archives, `home` of Airflow's home page; empty
            if this page is embedded in Airflow.
    """
    lines = [line for one in archives for line in _lines(one)]
    lines.sort(key=lambda line: line.it.started_at, reverse=True)
    lines.sort(key=lambda line: _RANKS.get(line.state.kind, len(_RANKS)))
    tasks = [ShownTask.of(doing) for one in archives for doing in one.doing]
    bad = sum(line.state.kind in _RANKS for line in lines)
    problems = [one for one in archives if one.problem]
    is_busy = any(task.state in ACTIVE for task in tasks)
    headline, kind = _headline(lines, bad, len(problems))
    return render(
        "restores.html",
        title="Restores",
        verdict=f"{many(bad, 'restore')} needing attention" if bad else many(len(lines), "restore"),
        refresh=BUSY if is_busy else REFRESH,
        links=links,
        script_file="frame.js",
        verdict_class=verdict_class(kind),
        headline=headline,
        tasks=[task for task in tasks if task.state in ACTIVE],
        lines=lines[:ROWS],
        more=len(lines[ROWS:]) + sum(one.more for one in archives),
        problems=problems,
        topics=TOPICS,
        now=now.isoformat(),
    )


def _headline(lines: Sequence[_Line], bad: int, unreadable: int) -> tuple[str, str]:
    if bad or unreadable:
        words = [f"{bad:,} of {many(len(lines), 'restore')} needing attention"] if bad else []
        if unreadable:
            words.append(f"the restores of {many(unreadable, 'archive')} can't be read")
        return "; ".join(words), "bad"
    if not lines:
        return "Nothing has been restored yet", "quiet"
    exact = sum(line.state.kind == "good" for line in lines)
    return f"{many(len(lines), 'restore')}, {exact:,} of them verified", (
        "good" if exact == len(lines) else "quiet"
    )


def _lines(owner: ArchiveRestores) -> list[_Line]:
    unfinished = [one for one in owner.restores if one.is_unfinished]
    unfinished.sort(key=lambda one: one.started_at, reverse=True)
    # Airflow's tasks don't say which runs they work on: the newest that can be continued.
    busy = unfinished[: sum(one.state in ACTIVE for one in owner.doing)]
    return [_line(owner, one, any(one is other for other in busy)) for one in owner.restores]


def _line(owner: ArchiveRestores, it: Restore, is_running: bool) -> _Line:
    state = it.state(is_running)
    targets = sorted({topic.target for topic in it.topics})
    more = f" and {len(targets) - 3:,} more" if len(targets) > 3 else ""
    return _Line(
        owner=owner,
        it=replace(it, topics=list(it.topics)),
        state=state,
        # A name that wasn't given ends in all settings, as JSON; the plan has those that matter.
        name=it.run.partition(" {")[0],
        started=time_text(it.started_at) if it.started_at else "unknown",
        took="" if it.seconds is None else duration_text(it.seconds),
        size="" if it.size is None else size_text(it.size),
        where=", ".join(targets[:3]) + more,
        what_to_do=_what_to_do(Reach(owner.archive), it, state),
    )


#: Advice for a restore that needs attention, by the words of its state.
_REMEDIES = {
    "started, not verified": "No task of Airflow works on it. Records may be in Kafka, and no "
    "verification has found them all. If the failed task's log ends with VerifyError, it says "
    "what is lost or not as planned, and the same run would only verify again: look for what "
    "deletes or writes there, and restore under another run name, to new topics. Otherwise clear "
    "the failed task, or start the same run again: it resumes where it stopped. To give it up: "
    "`kafka-drain republish --abandon {run} --apply`",
    "records lost": "Look for what deletes records there: retention, compaction, another "
    "administrator. Restore again with `exactly_once` under another run name, to new topics",
    "all there, but not exact": "Nothing, if consumers can deal with duplicates; otherwise restore "
    "again with `exactly_once` under another run name, to new topics",
    "sent, not verified": "Restore again with verification, to new topics, if it matters",
    "abandoned": "Some records may be in Kafka, and no verification has found them all. If it is "
    "still needed, restore under another run name, to new topics",
}


def _what_to_do(reach: Reach, it: Restore, state: RestoreState) -> str:
    """Return the remedy for a restore that needs attention; commands are in backquotes."""
    if it.problem:
        return it.problem
    remedy = _REMEDIES.get(state.words, "") if state.kind in _RANKS else ""
    return pasteable(remedy.format(run=shlex.quote(it.key)), reach)
