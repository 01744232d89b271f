"""`kafka-drain status`: whether an archive could be restored, in one sentence."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.drill_status import DrillStatus
from kafka_drain.archive.drills import read_drills
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.readiness import (
    Evidence,
    Readiness,
    judge_readiness,
    readiness_text,
    state_of,
)
from kafka_drain.archive.status import read_overview
from kafka_drain.cli.console import answer, print_lines
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.clock import utc_now
from kafka_drain.errors import ArchiveError, KafkaDrainError, StoreUnavailableError
from kafka_drain.sizing import STORED_LEAST, STORED_MOST, Between, restore_seconds

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
        default=24.0,
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
    archive, files, refused = Archive.at(place), list[ArchiveFile](), ""
    try:
        snapshot = archive.snapshot()
        pipeline = snapshot.document.pipeline
        overview = read_overview(archive.root)
        drills = [one for one in read_drills(archive.root) if one.pipeline == pipeline]
    except (ArchiveError, StoreUnavailableError, OSError) as error:
        # What this user may not read, or a store doesn't give, is no word on the archive.
        state = Readiness.NOT_READY if isinstance(error, ArchiveError) else Readiness.UNKNOWN
        said = f"{place}: {state.words}: {error}"
        row = {"archive": place, "pipeline": None, "state": state.value}
        return row | {"why": [str(error)], "sentence": said} | dict.fromkeys(_FIGURES)
    try:
        files = archive_files(snapshot)
    except (KafkaDrainError, OSError) as error:
        refused = str(error)
    drilled = DrillStatus.of_their_own(drills, now)
    evidence = Evidence(
        pipeline=pipeline,
        refused=refused,
        overview=overview,
        is_sealed=any(file.sealed is not None for file in files),
        unsealed=sum(file.sealed is None for file in files),
        drills=drilled,
        now=now,
        max_age=max_age,
    )
    found = judge_readiness(evidence)
    restore = _restore(overview) if overview and not refused else None
    seen = overview or {}
    return {
        "archive": place,
        "pipeline": evidence.pipeline,
        "state": state_of(found).value,
        "why": [text for _, text in found],
        "sentence": readiness_text(evidence, found, restore.likely if restore else None),
        **{name: seen.get(name) for name in _FIGURES[:4]},
        "drilled_at": drilled.passed.started_at if drilled.passed else None,
        "restore_seconds": asdict(restore) if restore else None,
    }


_FIGURES = ("validated_at", "newest_record", "records", "lag", "drilled_at", "restore_seconds")


def _restore(overview: dict[str, Any]) -> Between | None:
    """Return how long a restore of all records takes on two cores; None without any record."""
    records = overview["records"]
    if not records:
        return None
    stored = overview["bytes"] / records * 2 / (STORED_LEAST + STORED_MOST)
    return restore_seconds(records, stored, max(1, overview["partitions"]))
