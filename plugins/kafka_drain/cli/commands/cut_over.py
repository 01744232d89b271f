"""`kafka-drain cut-over`: move all clients to another cluster, step by step."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from rich.console import Console

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import CutOverDocument
from kafka_drain.cli.commands.arguments import (
    add_apply,
    add_evidence,
    add_job,
    add_target,
    cluster_from,
    json_file,
    signer_from,
    target_from,
)
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.cli.commands.plan_answer import acts, say_dry_run
from kafka_drain.cli.console import answer, new_table, print_table
from kafka_drain.cli.exit_codes import OK
from kafka_drain.cli.foreground import runner_of
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.clock import utc_now
from kafka_drain.config.cut_over import MAX_LAG, QUIET_SECONDS, RUN_NAME
from kafka_drain.config.cut_over import CutOver as Settings
from kafka_drain.cut_over.request import CutOverRequest
from kafka_drain.cut_over.run import CutOver
from kafka_drain.cut_over.steps import STEPS, CutOverStep, checklist
from kafka_drain.errors import ConfigError
from kafka_drain.republish.engines.select import Engines
from kafka_drain.spark.job import private_folder

_NAMES = [step.value.replace("_", "-") for step in STEPS]


#: Keys of a pipeline's `cut_over` that are flags.
SETTINGS = ("run_name", "groups", "max_lag", "quiet_seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    add_target(parser, "that clients move to")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--step",
        metavar="STEP",
        help=f"step to take, one of {', '.join(_NAMES)}; without it, the checklist is shown",
    )
    what.add_argument(
        "--back",
        action="store_true",
        help="restore the groups' offsets in the target, and say what stays there",
    )
    counts = {"run_name": RUN_NAME, "max_lag": f"{MAX_LAG}", "quiet_seconds": f"{QUIET_SECONDS:g}"}
    add_options(parser, Settings, *SETTINGS, otherwise=counts)
    parser.add_argument(
        "--mirror-options",
        metavar="FILE",
        help="JSON file with options of the republish, such as placement",
    )
    add_evidence(parser)
    add_apply(parser, "take the step; without it, only the checklist is shown")


def run(options: argparse.Namespace) -> int:
    """Show the checklist, take a step, or go back."""
    archive = Archive.at(options.archive)
    archive.require()
    step = _step(options.step) if options.step else None
    cut_over = _cut_over(options, archive)
    taken: CutOverDocument | None = None
    if options.back:
        taken = cut_over.go_back(apply=acts(options))
    elif step is not None and acts(options):
        with (
            private_folder() as folder,
            Engines(
                str(archive.root), cut_over.target, cut_over.pipeline, folder, runner_of(options)
            ) as engines,
        ):
            taken = cut_over.take(step, engines)
    history = cut_over.history()
    states = checklist([(d.step, d.verdict == "passed") for d in history])
    rows = [(each.value, state.value, _saw(each, history)) for each, state in states.items()]
    document = {
        "run_name": cut_over.request.run_name,
        "steps": {name: {"state": state, "saw": saw} for name, state, saw in rows},
        "taken": None if taken is None else taken.content(),
    }
    answer(options, document, _table(rows))
    if step is not None or options.back:
        say_dry_run(options, "take the step")
    return OK


def _cut_over(options: argparse.Namespace, archive: Archive) -> CutOver:
    settings = options_from(
        options,
        Settings,
        *SETTINGS,
        kafka_conn_id="terminal",
        mirror=json_file(options.mirror_options) if options.mirror_options else {},
    )
    return CutOver(
        archive,
        pipeline_from(options),
        cluster_from(options),
        target_from(options, "clients move to a cluster that you name"),
        CutOverRequest.of(settings),
        "terminal",
        utc_now,
        signer_from(options),
    )


def _step(name: str) -> CutOverStep:
    try:
        return CutOverStep(name.replace("-", "_"))
    except ValueError as error:
        raise ConfigError(
            f"--step {name!r} is not acceptable; accepted: {', '.join(_NAMES)}"
        ) from error


def _saw(step: CutOverStep, history: Sequence[CutOverDocument]) -> str:
    newest = next((d for d in reversed(history) if d.step == step.value), None)
    if newest is None:
        return ""
    return "; ".join(newest.problems) or f"{newest.finished_at}: {newest.records:,} records sent"


def _table(rows: Sequence[tuple[str, str, str]]) -> Callable[[Console], None]:
    def show(console: Console) -> None:
        table = new_table(console, "step", "state", "seen")
        for row in rows:
            table.add_row(*row)
        print_table(console, table)

    return show
