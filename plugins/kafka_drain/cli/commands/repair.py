"""`kafka-drain repair`: restore sealed documents, drain lost offsets, rebuild a manifest."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import (
    add_apply,
    add_deep,
    add_job,
    cluster_from,
)
from kafka_drain.cli.commands.pipeline_arguments import add_keys, pipeline_from
from kafka_drain.cli.commands.plan_answer import acts, answer_fields
from kafka_drain.cli.commands.report_answer import answer_report
from kafka_drain.cli.exit_codes import FAILED
from kafka_drain.cli.foreground import runner_of
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.config.offset_ranges import ACKNOWLEDGE
from kafka_drain.drain.options import ValidateOptions
from kafka_drain.windows.options import ReplaceOptions
from kafka_drain.windows.repair import RepairRequest, preview_repair, run_repair


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    add_keys(parser, "source_options")
    add_options(parser, ValidateOptions, ACKNOWLEDGE)
    add_options(parser, ReplaceOptions)
    add_deep(parser)
    parser.add_argument(
        "--new-journal",
        action="store_true",
        help="recreate the journal from what exists: forgets what was sealed but is missing and "
        "has no copy",
    )
    add_apply(parser)


def run(options: argparse.Namespace) -> int:
    """Show the plan of a repair; with --apply, carry it out."""
    archive = Archive.at(options.archive)
    request = RepairRequest(
        archive,
        cluster_from(options),
        deep=options.deep,
        acknowledged=options_from(options, ValidateOptions).acknowledged,
        replaceable=options_from(options, ReplaceOptions).replaceable,
        new_journal=options.new_journal,
    )
    if acts(options):
        report = run_repair(
            request, lambda: pipeline_from(options), runner_of(options), run="terminal"
        )
        return answer_report(options, archive, report)
    preview = preview_repair(request)
    shown = answer_fields(options, preview.to_dict())
    return shown if preview.is_sound else FAILED
