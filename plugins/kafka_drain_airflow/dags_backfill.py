"""`airflow dags backfill` for Airflow 3: wraps `airflow backfill create` and waits for the runs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, NoReturn

from airflow.cli.commands.backfill_command import create_backfill
from airflow.models.backfill import Backfill, BackfillDagRun
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.providers.common.compat.sdk import AirflowException
from airflow.utils.providers_configuration_loader import providers_configuration_loaded
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError

from kafka_drain.errors import ConfigError
from kafka_drain.progress import Progress
from kafka_drain_airflow.dag_tags import kind_of
from kafka_drain_airflow.forms import form_of
from kafka_drain_airflow.pages.archives import start_of
from kafka_drain_airflow.pages.database import archives_of
from kafka_drain_airflow.pages.finding import was_validated
from kafka_drain_airflow.run_conf import check_conf
from kafka_drain_airflow.timetables import BackfillTimetable

POLL_SECONDS = 2.0
#: Time between lines while nothing changes.
QUIET_SECONDS = 60.0
#: Longest wait for the scheduler to mark a backfill as completed; it checks every 30 seconds.
MARKED_WITHIN_SECONDS = 150.0


@providers_configuration_loaded
def backfill(args: argparse.Namespace) -> None:
    """Create a backfill and wait until it has finished.

    What can be refused is refused before anything changes. A paused DAG is unpaused when its
    backfill is there, and stays paused if Airflow refuses it.

    Raises:
        SystemExit: With 1 if a run failed or the backfill can't be created; with 2 if the arguments
            are invalid.
    """
    with _database("nothing more was done"):
        start, end = _dates(args)
        conf = _conf(args)
        if args.rerun_failed_tasks and args.reset_dagruns:
            _end(2, "--rerun-failed-tasks and --reset-dagruns contradict each other; choose one")
        is_paused, dag = _found(args.dag_id)
        _check_kind(args.dag_id, dag)
        _check_conf(args.dag_id, dag, conf)
        _check_archive(args.dag_id, dag, is_paused=is_paused)
        if not args.dry_run:
            _wait_for_earlier(args.dag_id)
            if args.reset_dagruns:
                _ask(args, "successful runs of these dates will run again")
            if is_paused:
                _ask(args, f"its runs wait until the dag is unpaused, and then {_wakes(dag)}")
        before = _newest(args.dag_id)
    at_once = args.max_active_runs or max(1, dag.max_active_runs)
    still = "; the dag is still paused" if is_paused else ""
    _create(args, (start, end), at_once, still)
    if args.dry_run:
        return
    with _database(f"look for the backfill in Airflow's UI{still}"):
        created = _newest(args.dag_id)
    if created is None or created == before:
        _end(1, f"Airflow created no backfill for {args.dag_id}{still}")
    print(f"backfill {args.dag_id}: created with id {created}, {at_once} at a time", flush=True)
    if is_paused:
        with _database(f"its runs wait until you run `airflow dags unpause {args.dag_id}`"):
            _unpause(args.dag_id)
        print(f"backfill {args.dag_id}: unpaused; {_wakes(dag)}", flush=True)
    if args.no_wait:
        print(f"backfill {args.dag_id}: the scheduler will run it")
        return
    with _database("the backfill goes on without this command; see its runs in Airflow's UI"):
        _wait(args.dag_id, created)


def _create(
    args: argparse.Namespace, dates: tuple[datetime, datetime], at_once: int, still: str
) -> None:
    """Have Airflow create the backfill, or show its runs."""
    behavior = "failed" if args.rerun_failed_tasks else "completed" if args.reset_dagruns else None
    asked = argparse.Namespace(
        subcommand="backfill",
        dag_id=args.dag_id,
        from_date=dates[0],
        to_date=dates[1],
        dag_run_conf=args.conf,
        run_backwards=args.run_backwards,
        max_active_runs=at_once,
        dry_run=args.dry_run,
        reprocess_behavior=behavior,
        run_on_latest_version=None,
    )
    left = f"the backfill can't be created{still}. Cancel what the UI shows of it, and try again"
    try:
        with _database(left):
            create_backfill(asked)
    except (AirflowException, ValueError) as error:
        _end(1, f"{error}{still}")


def _end(code: int, reason: str) -> NoReturn:
    print(f"airflow dags backfill: {reason}", file=sys.stderr)
    raise SystemExit(code)


@contextmanager
def _database(left: str) -> Iterator[None]:
    """End with a sentence if Airflow's database refuses, such as SQLite while another one writes.

    Args:
        left: The consequence, and the remedy.
    """
    try:
        yield
    except DBAPIError as error:
        said = str(error.orig).strip().partition("\n")[0]
        is_sqlite = said == "database is locked"
        instead = ". PostgreSQL takes several writers, SQLite one" if is_sqlite else ""
        _end(1, f"Airflow's database says: {said}; {left}{instead}")


def _dates(args: argparse.Namespace) -> tuple[datetime, datetime]:
    start, end = args.start_date or args.end_date, args.end_date or args.start_date
    if start is None:
        _end(2, "no dates given; use -s/--start-date, -e/--end-date or both")
    if start > end:
        _end(2, f"the start date {start.isoformat()} is after the end date {end.isoformat()}")
    if start >= datetime.now(timezone.utc):
        _end(2, f"{start.isoformat()} is in the future; a backfill is for dates that are past")
    return start, end


def _conf(args: argparse.Namespace) -> dict[str, Any]:
    """Return the runs' conf; says nothing of its values, which may be secret."""
    example = """such as '{"mode": "window"}'"""
    try:
        conf = json.loads(args.conf) if args.conf else {}
    except ValueError as error:
        _end(2, f"--conf isn't JSON: {error}; give an object {example}")
    if not isinstance(conf, dict):
        _end(2, f"--conf is JSON, but no object; give one {example}")
    return conf


def _ask(args: argparse.Namespace, what: str) -> None:
    """Ask for confirmation; without a terminal, --yes is required."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        _end(2, f"{what}; pass --yes to confirm")
    if input(f"{args.dag_id}: {what}. Continue? [y/N] ").strip().lower() not in ("y", "yes"):
        _end(1, "nothing was changed")


def _found(dag_id: str) -> tuple[bool, Any]:
    """Return whether a DAG is paused, and the DAG as Airflow keeps it."""
    with create_session() as session:
        model = session.scalar(select(DagModel).where(DagModel.dag_id == dag_id))
        is_paused = model is not None and bool(model.is_paused)
    dag = SerializedDagModel.get_dag(dag_id)
    if model is None or dag is None:
        _end(1, f"there is no dag {dag_id}; `airflow dags list` lists all dags")
    return is_paused, dag


def _check_kind(dag_id: str, dag: Any) -> None:
    """Refuse to backfill a group: each run would."""
    if kind_of(dag.tags) == "drain_group":
        _end(
            2,
            f"{dag_id} drains from its cursors, and nothing of an interval; backfill the drains of "
            "its pipelines instead, such as drain_<pipeline>",
        )


def _check_conf(dag_id: str, dag: Any, conf: dict[str, Any]) -> None:
    """Refuse a conf that each run would refuse: one with a name that isn't in a factory's form."""
    kind = kind_of(dag.tags)
    if kind is None:
        return
    try:
        check_conf(dag_id, form_of(kind), conf, dag.params)
    except ConfigError as error:
        _end(2, str(error))


def _check_archive(dag_id: str, dag: Any, *, is_paused: bool) -> None:
    """Refuse to backfill an archive before its first drain, which decides where it begins.

    Otherwise the drain that the scheduler starts beside the backfill would decide it.
    """
    if kind_of(dag.tags) != "drain":
        return
    with create_session() as session:
        place = next(iter(archives_of(session, [dag_id]).values()), None)
        if place is None or was_validated(session, place.archive):
            return
    found = start_of(place)
    if found.is_begun is None:
        print(
            f"backfill {dag_id}: {found.problem}. If the archive is empty, the runs fail",
            file=sys.stderr,
        )
    if found.is_begun is not False:
        return
    first = [f"airflow dags unpause {dag_id}"] if is_paused else []
    if not first or _is_manual(dag):
        first.append(f"airflow dags trigger {dag_id}")
    _end(
        1,
        f"the archive {place.archive} is empty, and a backfill only adds what comes before its "
        "first drain; nothing was changed. That drain decides where the archive begins: at the "
        "pipeline's startingOffsets or startingTimestamp, else with everything that Kafka holds. "
        f"Start it with `{' && '.join(first)}`, and backfill when it has ended",
    )


def _is_manual(dag: Any) -> bool:
    """Return whether the scheduler starts no runs of a DAG on its own."""
    return isinstance(dag.timetable, BackfillTimetable)


def _wakes(dag: Any) -> str:
    """Describe the runs that unpausing a DAG starts besides a backfill."""
    if _is_manual(dag):
        return "no other runs start"
    return "its schedule starts too, with a run for the newest interval"


def _unpause(dag_id: str) -> None:
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(is_paused=False))


def _wait_for_earlier(dag_id: str) -> None:
    """Wait until the scheduler has marked an earlier backfill of the DAG as completed.

    Airflow allows only one backfill per DAG, and the scheduler checks only periodically.
    """
    deadline, told = time.monotonic() + MARKED_WITHIN_SECONDS, False
    while (active := _active(dag_id)) is not None:
        states = _states(active)
        unfinished = states[DagRunState.QUEUED] + states[DagRunState.RUNNING]
        if unfinished or time.monotonic() > deadline:
            _end(
                1,
                f"backfill {active} of {dag_id} isn't finished ({unfinished} of {states.total()} "
                "runs left), and Airflow allows one at a time; wait for it, or cancel it in the UI",
            )
        if not told:
            print(f"backfill {dag_id}: waiting for the scheduler to close backfill {active}")
            told = True
        time.sleep(POLL_SECONDS)


def _active(dag_id: str) -> int | None:
    with create_session() as session:
        found: int | None = session.scalar(
            select(Backfill.id).where(Backfill.dag_id == dag_id, Backfill.completed_at.is_(None))
        )
        return found


def _newest(dag_id: str) -> int | None:
    with create_session() as session:
        found: int | None = session.scalar(
            select(Backfill.id).where(Backfill.dag_id == dag_id).order_by(Backfill.id.desc())
        )
        return found


def _wait(dag_id: str, backfill_id: int) -> None:
    """Print progress until all runs have finished."""
    skipped = list(_skipped(backfill_id))
    for line in skipped:
        print(f"backfill {dag_id}: {line}", flush=True)
    states = _states(backfill_id)
    progress, shown, shown_at = Progress("runs", states.total()), Counter[str](), 0.0
    while states.total():
        done = states[DagRunState.SUCCESS] + states[DagRunState.FAILED]
        if states != shown or time.monotonic() - shown_at > QUIET_SECONDS:
            detail = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
            print(f"{progress.line(f'backfill {dag_id}', done)} ({detail})", flush=True)
            if states == shown and not done and not states[DagRunState.RUNNING]:
                print(f"backfill {dag_id}: no run has started; is a scheduler running?", flush=True)
            shown, shown_at = states, time.monotonic()
        if done == states.total():
            break
        time.sleep(POLL_SECONDS)
        states = _states(backfill_id)
    failed = states[DagRunState.FAILED]
    if failed:
        _end(
            1,
            f"{failed} of {states.total()} runs of {dag_id} failed; rerun them with "
            "--rerun-failed-tasks",
        )
    if any("failed" in line for line in skipped):
        _end(1, f"{dag_id} has runs that failed earlier; rerun them with --rerun-failed-tasks")


def _states(backfill_id: int) -> Counter[str]:
    with create_session() as session:
        states = session.scalars(
            select(DagRun.state)
            .join(BackfillDagRun, BackfillDagRun.dag_run_id == DagRun.id)
            .where(BackfillDagRun.backfill_id == backfill_id)
        )
        return Counter(str(state) for state in states)


def _skipped(backfill_id: int) -> Iterator[str]:
    """Yield a line for each date that already has a run, with that run's state."""
    with create_session() as session:
        rows = session.execute(
            select(BackfillDagRun.logical_date, BackfillDagRun.exception_reason, DagRun.state)
            .join(Backfill, Backfill.id == BackfillDagRun.backfill_id)
            .join(
                DagRun,
                (DagRun.dag_id == Backfill.dag_id)
                & (DagRun.logical_date == BackfillDagRun.logical_date),
                isouter=True,
            )
            .where(
                BackfillDagRun.backfill_id == backfill_id,
                BackfillDagRun.exception_reason.is_not(None),
            )
            .order_by(BackfillDagRun.logical_date)
        )
        for date, reason, state in rows:
            yield f"{date.isoformat()} is skipped: a run {reason}, {state}"
