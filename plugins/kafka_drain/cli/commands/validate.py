"""`kafka-drain validate`: prove that every drained offset is in the archive."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import (
    add_archive,
    add_deep,
    add_dry_run,
    add_evidence,
    add_kafka,
    add_spark,
    cluster_from,
    names_kafka,
    signer_from,
)
from kafka_drain.cli.commands.plan_answer import acts, say_dry_run
from kafka_drain.cli.commands.report_answer import answer_report
from kafka_drain.cli.console import say
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.config.checks import refuse
from kafka_drain.config.offset_ranges import ACKNOWLEDGE
from kafka_drain.drain.options import ValidateOptions
from kafka_drain.errors import KAFKA_ERRORS, KafkaDrainError, NotWritableError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_state import ASKED
from kafka_drain.output import Level, Line
from kafka_drain.proof.cluster_capture import Describe, describe_with, parts_before
from kafka_drain.proof.committed_files import ReadFiles
from kafka_drain.proof.report import Report, note_damage
from kafka_drain.proof.validation import validate_archive, validate_files_alone
from kafka_drain.storage.paths import why_not_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_kafka(parser)
    parser.add_argument(
        "--scope",
        choices=["all", "open"],
        default="all",
        help="all generations and receipts, or only the one that drains append to (%(default)s)",
    )
    add_deep(parser)
    add_spark(parser, "Spark master, used if more than 10,000 files are new (%(default)s)")
    add_options(parser, ValidateOptions, ACKNOWLEDGE)
    add_evidence(parser, witness=True)
    parser.add_argument(
        "--describe-cluster",
        metavar="PARTS",
        help="parts of the cluster to describe in the archive, separated by commas: "
        f"{', '.join(ASKED)}; or none (default: as the last validation did)",
    )
    add_dry_run(parser)


def run(options: argparse.Namespace) -> int:
    """Validate an archive and seal what is proven."""
    archive = Archive.at(options.archive)
    cluster = cluster_from(options) if names_kafka(options) else None
    signer = signer_from(options)
    how = {
        "scope": options.scope,
        "deep": options.deep,
        "acknowledged": options_from(options, ValidateOptions).acknowledged,
        # Made only if there are many files: it needs Java.
        "read_many": lambda *asked: _by_spark(options)(*asked),  # noqa: PLW0108
        "signer": signer,
    }
    described = _describe(options, archive, cluster)
    validate = partial(validate_archive, archive, cluster, describe=described, **how)
    try:
        report, unwritten = _validated(options, archive, validate)
    except KAFKA_ERRORS as error:
        report = validate_files_alone(archive, error, **how)
        if acts(options):
            # It may be read-only; what was found is told all the same.
            with suppress(KafkaDrainError):
                note_damage(archive, report)
        answer_report(options, archive, report, writes=False, unasked=str(error))
        raise
    report.kafka = cluster.named() if cluster is not None else None
    code = answer_report(
        options, archive, report, writes=acts(options), unwritten=unwritten, signer=signer
    )
    say_dry_run(options, "seal what is proven and write the report")
    return code


def _validated(
    options: argparse.Namespace, archive: Archive, validate: Callable[..., Report]
) -> tuple[Report, str]:
    """Return the report, and why it can't be written; empty if it can."""
    unwritten = why_not_writable(archive.root) if acts(options) else ""
    nothing = "nothing is sealed or noted"
    if not unwritten:
        try:
            return validate(writes=acts(options)), ""
        except NotWritableError as error:
            unwritten = str(error)
            nothing = "not everything is sealed and noted"
    # Whoever may only read an archive gets the same verdict.
    text = f"validate {archive.root}: {nothing}: {unwritten}"
    say(Line(text, Level.WARNING))
    return validate(writes=False), unwritten


def _describe(
    options: argparse.Namespace, archive: Archive, cluster: KafkaCluster | None
) -> Describe | None:
    given = options.describe_cluster
    if given is None:
        parts: list[str] = [*parts_before(archive.root)]
    else:
        parts = [] if given == "none" else [part.strip() for part in given.split(",")]
    unknown = [part for part in parts if part not in ASKED]
    if unknown:
        accepted = f"any of {', '.join(ASKED)}, separated by commas, or none"
        raise refuse("--describe-cluster", given, accepted)
    return describe_with(cluster.config, parts) if cluster is not None else None


def _by_spark(options: argparse.Namespace) -> ReadFiles:
    # Not at the top: few validations need Spark, and importing it takes longer than they do.
    from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
    from kafka_drain.cli.foreground import runner_of
    from kafka_drain.proof.executor_reading import read_by_spark

    return read_by_spark(
        pipeline_from(options),
        runner_of(options),
    )
