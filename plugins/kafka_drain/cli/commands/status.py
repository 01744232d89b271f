"""`kafka-drain status`: whether an archive could be restored, in one sentence."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.readiness import Readiness
from kafka_drain.cli.console import answer, print_lines
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.clock import utc_now
from kafka_drain.look import MAX_AGE
from kafka_drain.looking import look_at

#: A hundred years.
_MOST_HOURS = 24 * 36_525


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "archive", type=os.path.expanduser, nargs="+", help="an archive's folder; can be repeated"
    )
    parser.add_argument(
        "--max-age-hours",
        type=_hours,
        default=MAX_AGE.total_seconds() / 3600,
        metavar="N",
        help="age from which the last validation is too old to be ready (%(default)s)",
    )


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours < _MOST_HOURS:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number of hours, such as 24")
    return hours


def run(options: argparse.Namespace) -> int:
    """Print each archive's state; fail unless all are ready."""
    max_age, now = timedelta(hours=options.max_age_hours), utc_now()
    rows = [look(archive, max_age, now) for archive in options.archive]

    def show(console: Console) -> None:
        print_lines(console, [row["sentence"] for row in rows])

    answer(options, {"archives": rows}, show)
    return OK if all(row["state"] == Readiness.READY.value for row in rows) else FAILED


def look(place: str, max_age: timedelta, now: datetime) -> dict[str, Any]:
    """Return the state of one archive: archive, pipeline, state, why, sentence, and figures.

    Figures are validated_at, newest_record, records, lag, drilled_at (start of the last drill that
    passed), and restore_seconds (low, likely, high); None if unknown.
    """
    judged = look_at(Archive.at(place), place).judge(now, max_age)
    seen, drills = judged.overview or {}, judged.drills
    return {
        "archive": place,
        "pipeline": judged.pipeline,
        "state": judged.state.value,
        "why": judged.why,
        "sentence": judged.sentence,
        **{name: seen.get(name) for name in ("validated_at", "newest_record", "records", "lag")},
        "drilled_at": drills.passed.started_at if drills and drills.passed else None,
        "restore_seconds": asdict(judged.restore) if judged.restore else None,
    }
