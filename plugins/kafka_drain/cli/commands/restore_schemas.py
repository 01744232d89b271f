"""`kafka-drain restore-schemas`: register an archive's schemas in another Schema Registry."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import add_apply, add_archive
from kafka_drain.cli.commands.plan_answer import acts, say_dry_run
from kafka_drain.cli.commands.registry_arguments import add_registry, required_registry
from kafka_drain.cli.console import answer, print_fields, say, say_table
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.clock import utc_now
from kafka_drain.output import Level, Line
from kafka_drain.schemas.restore import SchemaRestore, rows_of, settings_of
from kafka_drain.schemas.restore_options import RestoreSchemasOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_registry(parser, "the Schema Registry to restore to")
    add_options(parser, RestoreSchemasOptions)
    add_apply(parser, "register the schemas; without it, only the plan is shown")


def run(options: argparse.Namespace) -> int:
    """Show the schemas to be registered; with --apply, register them and write the map."""
    archive = Archive.at(options.archive)
    asked = options_from(options, RestoreSchemasOptions)
    restore = SchemaRestore(archive, required_registry(options), asked.schema_map, asked.ids)
    plan = restore.plan()
    rows = rows_of(plan)
    say_table(
        [f"  version {version} of {name}, id {id_}: {does}" for name, version, id_, does in rows],
        ("subject", "version", "id", "in the target"),
        rows,
    )
    for line in settings_of(plan):
        say(f"  {line}")
    for note in (*plan.notes, *plan.refusals):
        say(Line(f"restore-schemas: WARNING {note}", Level.WARNING))
    warnings: Sequence[str] = ()
    document = {
        "archive": str(archive.root),
        "registry": plan.url,
        "map": asked.schema_map,
        "ids": asked.ids,
        "versions": len(plan.steps),
        "to_register": len(plan.missing),
        "new_subjects": sum(not plan.held[name].versions for name in plan.settings),
        "refused": len(plan.refusals),
    }
    if acts(options):
        restored = restore.apply(plan, now=utc_now())
        mapped, warnings = restored.map.schemas, restored.warnings
        changed = sum(row.id != row.new_id for row in mapped)
        document |= {"mapped": len(mapped), "other_ids": changed, "warnings": list(warnings)}
        for warning in warnings:
            say(Line(f"restore-schemas: WARNING {warning}", Level.WARNING))
    shown = {name: value for name, value in document.items() if name != "warnings"}
    answer(options, document, print_fields(shown))
    say_dry_run(options, "register them")
    return FAILED if plan.refusals or warnings else OK
