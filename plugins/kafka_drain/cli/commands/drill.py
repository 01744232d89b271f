"""`kafka-drain drill`: restore a part of an archive, verify it, and remove it again."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.drill_status import DrillState, DrillStatus
from kafka_drain.archive.drills import read_drills
from kafka_drain.cli.commands.arguments import (
    add_archive,
    add_dry_run,
    add_evidence,
    add_state,
    add_target,
    archive_from,
    naming_state,
    signer_from,
    target_from,
)
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.cli.commands.plan_answer import acts, answer_plan
from kafka_drain.cli.console import answer, print_fields
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.clock import utc_now
from kafka_drain.config.drill import PREFIX, Drill
from kafka_drain.drills.drill import DrillRequest, plan_drill, run_drill
from kafka_drain.drills.options import DrillOptions
from kafka_drain.republish.engines.select import Engines
from kafka_drain.spark.job import private_folder

#: Keys of a pipeline's `drill` that are flags.
SETTINGS = ("prefix", "topic_config", "max_age_days")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_target(parser, "that gets the scratch topics")
    add_options(parser, DrillOptions)
    counts = {"prefix": PREFIX, "max_age_days": "never"}
    add_options(parser, Drill, *SETTINGS, otherwise=counts)
    parser.add_argument(
        "--check",
        action="store_true",
        help="restore nothing, but fail if the newest drill failed or none has passed within "
        "--max-age",
    )
    add_state(parser)
    add_evidence(parser)
    add_dry_run(parser)


def run(options: argparse.Namespace) -> int:
    """Run a drill, show what it would restore, or check the newest ones."""
    with naming_state(options):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    archive = archive_from(options)
    archive.require()
    settings = options_from(options, Drill, *SETTINGS)
    if options.check:
        return _check(options, archive, _max_age(settings))
    asked = options_from(options, DrillOptions)
    request = DrillRequest(
        sample=asked.sample or settings.sample,
        seed=asked.seed,
        prefix=settings.prefix,
        topic_config=settings.topic_config,
        max_age_days=_max_age(settings),
    )
    if not acts(options):
        return answer_plan(options, plan_drill(archive, request), lambda: None)
    cluster = target_from(options, "a drill restores to a cluster that you name")
    signer = signer_from(options)
    with private_folder() as folder:
        pipeline = pipeline_from(options)
        # Only the worker's engine sends: a drill must not depend on Spark.
        with Engines(str(archive.root), cluster, pipeline, folder, _no_spark) as engines:
            result = run_drill(
                archive, cluster, engines, request, run="terminal", clock=utc_now, signer=signer
            )
    document = result.content()
    shown = {k: v for k, v in document.items() if v is not None and not isinstance(v, (dict, list))}
    named = cluster.named()
    answer(options, document | named, print_fields(shown | named))
    return OK if result.verdict == "passed" else FAILED


def _check(options: argparse.Namespace, archive: Archive, days: int | None) -> int:
    max_age = None if days is None else timedelta(days=days)
    status = DrillStatus.of(read_drills(archive.state), max_age, utc_now())
    document: dict[str, Any] = {
        "state": status.state.value,
        "detail": status.words,
        "newest": status.newest.drill if status.newest else None,
        "passed": status.passed.drill if status.passed else None,
    }
    answer(options, document, print_fields(document))
    return OK if status.state is DrillState.OK else FAILED


def _max_age(settings: Drill) -> int | None:
    """Return the age in days at which a drill is too old; None for never, unless it is given."""
    return settings.max_age_days if "max_age_days" in settings.model_fields_set else None


def _no_spark(*_: object) -> None:
    raise AssertionError("a drill starts no Spark application")
