"""`kafka-drain backfill`: drain the missing offsets of a data interval."""

from __future__ import annotations

import argparse
from typing import Any

from kafka_drain.cli.commands.arguments import (
    add_apply,
    add_job,
    cluster_from,
)
from kafka_drain.cli.commands.pipeline_arguments import add_keys, pipeline_from
from kafka_drain.cli.commands.plan_answer import answer_plan
from kafka_drain.cli.console import answer, print_lines
from kafka_drain.cli.exit_codes import OK
from kafka_drain.cli.foreground import runner_of
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.config.offset_ranges import ACKNOWLEDGE, ACKNOWLEDGE_FLAG
from kafka_drain.drain.options import DrainOptions
from kafka_drain.errors import ConfigError
from kafka_drain.intervals import Interval
from kafka_drain.windows.backfill import run_backfill
from kafka_drain.windows.backfill_plan import plan_backfill
from kafka_drain.windows.options import ReplaceOptions
from kafka_drain.windows.preview import intervals_of, preview_backfill


def run(options: argparse.Namespace) -> int:
    """Drain the offsets of an interval that no receipt covers, prove and seal them.

    With --force it replaces archived files, and then requires --apply.
    """
    asked = options_from(options, DrainOptions)
    replaceable = options_from(options, ReplaceOptions).replaceable
    assert asked.window_start is not None
    assert asked.window_end is not None
    interval = Interval(asked.window_start, asked.window_end)
    if options.interval_minutes is not None:
        if options.apply is not False or asked.force or asked.acknowledged:
            raise ConfigError(
                "--interval-minutes only previews: pass --dry-run beside it, no --force and no "
                f"{ACKNOWLEDGE_FLAG}. To drain the intervals, use `airflow dags "
                "backfill`, or this command for each"
            )
        intervals = intervals_of(interval, options.interval_minutes)
        preview = preview_backfill(pipeline_from(options), cluster_from(options), intervals)
        answer(options, preview.to_dict(), lambda console: print_lines(console, preview.lines()))
        return OK
    pipeline, cluster = pipeline_from(options), cluster_from(options)
    plan = plan_backfill(
        pipeline,
        cluster,
        interval,
        force=asked.force,
        acknowledged=asked.acknowledged,
    )
    options.needs_apply = asked.force

    def carry_out() -> dict[str, Any]:
        if plan.nothing_to_do:
            return {}
        runner = runner_of(options)
        return run_backfill(
            plan, pipeline, cluster, runner, run="terminal", replaceable=replaceable
        )

    return answer_plan(options, plan, carry_out)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    times = ("window_start", "window_end")
    more = ("force", ACKNOWLEDGE)
    add_options(parser, DrainOptions, *times, *more, required=times)
    add_keys(parser, "source_options")
    add_options(parser, ReplaceOptions)
    parser.add_argument(
        "--interval-minutes",
        type=int,
        metavar="N",
        help="with --dry-run: preview each interval of N minutes between --start and --end: "
        "whether it is sealed, missing, partly so, or lost",
    )
    add_apply(parser, "carry out --force, which replaces files; not needed without --force")
