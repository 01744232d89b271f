"""`airflow dags backfill` for Airflow 3: wraps `airflow backfill create` and waits for the runs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import NoReturn

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

from kafka_drain.errors import ConfigError
from kafka_drain.progress import Progress
from kafka_drain_airflow.dag_tags import kind_of
from kafka_drain_airflow.run_conf import check_conf

POLL_SECONDS = 2.0
#: How often a line is printed while nothing changes.
QUIET_SECONDS = 60.0
#: How long to wait for the scheduler to mark a backfill as completed; it checks every 30 seconds.
MARKED_WITHIN_SECONDS = 150.0


@providers_configuration_loaded
def backfill(args: argparse.Namespace) -> None:
    """Create a backfill and wait until it has finished.

    Raises:
        SystemExit: With 1 if a run failed or the backfill can't be created; with 2 if the arguments
            are invalid.
    """
    start, end = args.start_date or args.end_date, args.end_date or args.start_date
    if start is None:
        _end(2, "no dates given; use -s/--start-date, -e/--end-date or both")
    if args.rerun_failed_tasks and args.reset_dagruns:
        _end(2, "--rerun-failed-tasks and --reset-dagruns contradict each other; choose one")
    _check_conf(args)
    if not args.dry_run:
        if args.reset_dagruns:
            _ask(args, "successful runs of these dates will run again")
        _unpause(args)
        _wait_for_earlier(args.dag_id)
    behavior = "failed" if args.rerun_failed_tasks else "completed" if args.reset_dagruns else None
    before = _newest(args.dag_id)
    asked = argparse.Namespace(
        subcommand="backfill",
        dag_id=args.dag_id,
        from_date=start,
        to_date=end,
        dag_run_conf=args.conf,
        run_backwards=args.run_backwards,
        max_active_runs=args.max_active_runs,
        dry_run=args.dry_run,
        reprocess_behavior=behavior,
        run_on_latest_version=None,
    )
    try:
        create_backfill(asked)
    except (AirflowException, ValueError) as error:
        _end(1, str(error))
    if args.dry_run:
        return
    created = _newest(args.dag_id)
    if created is None or created == before:
        _end(1, f"Airflow created no backfill for {args.dag_id}")
    if args.no_wait:
        print(f"backfill {args.dag_id}: created with id {created}; the scheduler will run it")
        return
    _wait(args.dag_id, created)


def _end(code: int, reason: str) -> NoReturn:
    print(f"airflow dags backfill: {reason}", file=sys.stderr)
    raise SystemExit(code)


def _ask(args: argparse.Namespace, what: str) -> None:
    """Ask for confirmation; without a terminal, --yes is required."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        _end(2, f"{what}; pass --yes to confirm")
    if input(f"{args.dag_id}: {what}. Continue? [y/N] ").strip().lower() not in ("y", "yes"):
        _end(1, "nothing was changed")


def _check_conf(args: argparse.Namespace) -> None:
    """Refuse what each run would refuse: a conf with a name that isn't in a factory's form."""
    if not args.conf:
        return
    try:
        conf = json.loads(args.conf)
    except ValueError:
        return  # Airflow refuses it.
    dag = SerializedDagModel.get_dag(args.dag_id)
    kind = None if dag is None else kind_of(dag.tags)
    if dag is None or kind is None:
        return
    try:
        check_conf(args.dag_id, kind, conf, dag.params)
    except ConfigError as error:
        _end(2, str(error))


def _unpause(args: argparse.Namespace) -> None:
    """Unpause a paused DAG after confirmation: its runs would stay queued forever."""
    with create_session() as session:
        model = session.scalar(select(DagModel).where(DagModel.dag_id == args.dag_id))
        if model is None:
            _end(1, f"there is no dag {args.dag_id}; `airflow dags list` lists all dags")
        if not model.is_paused:
            return
    _ask(args, "the dag is paused and its runs would wait forever; unpausing also schedules it")
    with create_session() as session:
        session.execute(
            update(DagModel).where(DagModel.dag_id == args.dag_id).values(is_paused=False)
        )
    print(f"backfill {args.dag_id}: unpaused")


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
