"""`kafka-drain repair`: restore sealed documents, drain lost offsets, rebuild a manifest."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.journal.checks import begin_journal_anew, refuse_unsound
from kafka_drain.cli.commands.arguments import (
    add_acknowledgement,
    add_apply,
    add_archive,
    add_kafka,
    add_spark,
    say_dry_run,
    the_cluster,
)
from kafka_drain.cli.commands.pipeline_arguments import the_pipeline
from kafka_drain.cli.commands.report_answer import answer_report
from kafka_drain.cli.console import answer, print_fields, say
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.cli.foreground import runner_of
from kafka_drain.errors import KafkaDrainError
from kafka_drain.findings import errors
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.report import Report
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.job import private_folder
from kafka_drain.storage.lease import hold_lease, wait_for_lease
from kafka_drain.windows.receipt_repair import mend_sealed, plan_mending
from kafka_drain.windows.repair import RepairPlan, plan_repair, repair_manifest
from kafka_drain.windows.window_jobs import finish_window, open_window, prepare_window

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_kafka(parser)
    add_spark(parser)
    add_acknowledgement(parser)
    parser.add_argument("--deep", action="store_true", help="read all bytes of sealed files")
    parser.add_argument(
        "--new-journal",
        action="store_true",
        help="recreate the journal from what exists: forgets what was sealed but is missing and "
        "has no copy",
    )
    add_apply(parser)


def run(options: argparse.Namespace) -> int:
    """Show what a repair would restore, drain and rebuild; with --apply, do it."""
    archive, cluster = Archive.at(options.archive), the_cluster(options)

    def validated() -> Report:
        return validate_archive(
            archive,
            cluster,
            say,
            deep=options.deep,
            acknowledge_expired=options.acknowledge_expired,
            writes=options.apply,
        )

    if not options.apply:
        return _show_plan(options, archive, validated)
    _mend(archive, new_journal=options.new_journal)
    report = validated()
    plan = plan_repair(archive, report)
    for line in plan.lines():
        say(line)
    if plan.nothing_to_do:
        return answer_report(options, archive, report)
    with hold_lease(archive.root, run="terminal", say=say):
        if plan.manifest is not None:
            say(f"repair {archive.root}: the manifest lists {repair_manifest(plan):,} files again")
            # Offsets that looked lost may just not have been listed.
            plan = plan_repair(archive, validated())
        if plan.ranges:
            _drain_window(options, cluster, plan)
    return answer_report(options, archive, validated())


def _show_plan(
    options: argparse.Namespace, archive: Archive, validated: Callable[[], Report]
) -> int:
    """Show what would be restored or moved aside, drained and rebuilt; change nothing."""
    mending = plan_mending(archive.root, forget=options.new_journal)
    for line in mending.lines():
        say(line)
    if options.new_journal and not mending.to_do:
        begin_journal_anew(archive, say, dry_run=True)
    try:
        report = validated()
        plan = plan_repair(archive, report)
    except KafkaDrainError as error:
        # The validation may need the very documents that a repair would restore.
        if not mending.to_do:
            raise
        document: dict[str, Any] = {"archive": str(archive.root), "mends": mending.lines()}
        say(f"repair {archive.root}: any other damage only shows once this is repaired: {error}")
        code = FAILED
    else:
        for line in plan.lines():
            say(line)
        document, code = plan.to_dict(), FAILED if errors(report.findings) else OK
    answer(options, document, print_fields(document))
    say_dry_run()
    return code


def _mend(archive: Archive, *, new_journal: bool) -> None:
    """Restore or move aside damaged sealed documents, then recreate the journal if requested."""
    root = archive.root
    # Without a lease: if nothing is wrong, a drain may be running.
    mending = plan_mending(root, forget=new_journal)
    if not mending.to_do and not new_journal:
        for line in mending.lines():
            say(line)
        return
    with (
        hold_lease(root, run="terminal", say=say),
        hold_lease(root / "maintenance", run="terminal", say=say),
        wait_for_lease(root / "windows", run="terminal", say=say),
    ):
        mend_sealed(root, say, forget=new_journal)
        if new_journal:
            begin_journal_anew(archive, say, dry_run=False)


def _drain_window(options: argparse.Namespace, cluster: KafkaCluster, plan: RepairPlan) -> None:
    pipeline, archive = the_pipeline(options), plan.archive
    # Check before draining for hours: with damage like this, the window couldn't be sealed.
    document = refuse_unsound(archive.snapshot(), filling=True).snapshot.document
    identity = Identity(document.pipeline, document.cluster_id, document.topics)
    window = open_window(
        archive, plan.window_key, plan.ranges, pipeline=pipeline, replaces=plan.replaces
    )
    with private_folder() as folder:
        job = prepare_window(window, plan.ranges, pipeline=pipeline, cluster=cluster, folder=folder)
        job.run(runner_of(options.master))
        receipt = finish_window(
            job,
            cluster,
            identity,
            run="terminal",
            say=say,
            acknowledged=plan.acknowledged,
        )
    say(f"repair {archive.root}: window {window.key} holds {receipt.records:,} records, sealed")
