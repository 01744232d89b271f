"""`kafka-drain plan-recovery`: compare the archived cluster with another; restore some."""

from __future__ import annotations

import argparse
from collections import Counter

from rich.console import Console

from kafka_drain.cli.commands.arguments import (
    add_archive,
    add_kafka,
    add_state,
    archive_from,
    cluster_from,
)
from kafka_drain.cli.console import answer, complain, new_table, print_table, say
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.config.checks import refuse
from kafka_drain.intervals import parse_time
from kafka_drain.output import Level, Line
from kafka_drain.recovery.commands import Commands
from kafka_drain.recovery.diff import APPLICABLE, LEFT, Kind, chosen
from kafka_drain.recovery.recovery import apply_rows, plan_recovery


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_kafka(parser)
    add_state(parser)
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="compare with the last description at or before this time (default: the last one)",
    )
    told = parser.add_mutually_exclusive_group()
    told.add_argument(
        "--apply",
        metavar="KINDS",
        nargs="?",
        default="",
        const=",".join(APPLICABLE),
        help=f"restore what is named, separated by commas: {', '.join(APPLICABLE)} (all of them); "
        "without it, only the plan is shown and nothing is changed",
    )
    told.add_argument(
        "--dry-run",
        dest="apply",
        action="store_const",
        const="",
        help="show the plan, change nothing",
    )
    parser.add_argument(
        "--accept-lower-safety",
        action="store_true",
        help="also apply what makes the target less safe, such as a shorter retention",
    )


def run(options: argparse.Namespace) -> int:
    """Show the differences; apply those of the chosen kinds."""
    archive, cluster = archive_from(options), cluster_from(options)
    archive.require()
    kinds = _kinds(options.apply)
    at = parse_time("--at", options.at) if options.at else None
    servers = cluster.config.bootstrap_servers
    commands = Commands(
        str(archive.root),
        servers,
        _connection(options, servers),
        options.at or "",
        options.state or "",
        cluster.config.protocol != "plaintext",
    )
    plan = plan_recovery(archive, cluster, commands, at)
    rows, held = chosen(plan.rows, kinds, accept_lower_safety=options.accept_lower_safety)
    applied, refused = apply_rows(rows, cluster)
    # A topic that was created has settings that are to be set back later.
    now = plan_recovery(archive, cluster, commands, at) if applied else plan
    left = [row for row in now.rows if row.action in LEFT]
    document = {
        "archive": str(archive.root),
        "as_of": {str(part): when for part, when in plan.archived.as_of.items()},
        "target": plan.target_id,
        "rows": [row.to_dict() for row in plan.rows],
        "left": len(left),
        "not_compared": dict(plan.not_compared),
        "actions": dict(Counter(str(row.action) for row in plan.rows)),
        "applied": applied,
        "held_back": len(held),
        "refused": refused,
    }

    def show(console: Console) -> None:
        table = new_table(console, "what", "name", "action", "archive", "target", "note")
        for row in plan.rows:
            note = "; ".join(filter(None, [row.lowers and f"LESS SAFE: {row.lowers}", row.note]))
            named = f"{row.name} {row.setting}".rstrip()
            cells = (str(row.kind), named, str(row.action), row.archived or "", row.target or "")
            table.add_row(*cells, note)
        print_table(console, table)
        for part, note in plan.not_compared.items():
            console.print(f"not compared: {part}: {note}", markup=False, highlight=False)

    answer(options, document, show)
    for row in held:
        what = f"{row.kind} {row.name} {row.setting}".rstrip()
        say(Line(f"plan-recovery: not applied: {what} {row.lowers}", Level.WARNING))
    if held:
        say(Line("plan-recovery: pass --accept-lower-safety to apply these too", Level.WARNING))
    actions = Counter(str(row.action) for row in left).items()
    counted = ", ".join(f"{count:,} {action}" for action, count in actions)
    say(f"plan-recovery: what is left: {counted or 'nothing'}")
    for why in refused:
        complain(f"kafka-drain plan-recovery: {why}")
    if not kinds:
        hint = f"dry run: nothing was changed; pass --apply {','.join(APPLICABLE)} to restore them"
        say(Line(hint, Level.WARNING))
    return FAILED if held or refused else OK


def _connection(options: argparse.Namespace, servers: str) -> list[str]:
    """Return the flags by which the command reached the target, for the commands that it names."""
    file = ["--kafka-config", options.kafka_config] if options.kafka_config else []
    is_named = options.bootstrap_servers or not file
    return [*file, *(["--bootstrap-servers", servers] if is_named else [])]


def _kinds(text: str) -> list[Kind]:
    given = [kind.strip() for kind in text.split(",") if kind.strip()]
    if unknown := [kind for kind in given if kind not in APPLICABLE]:
        accepted = (
            f"any of {', '.join(APPLICABLE)}, separated by commas; everything else is done by hand"
        )
        raise refuse("--apply", ",".join(unknown), accepted)
    return [Kind(kind) for kind in given]
