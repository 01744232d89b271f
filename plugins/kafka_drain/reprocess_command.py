"""`kafka-drain reprocess`: drain archived offsets again, and replace the old files."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from kafka_drain.archive import Archive
from kafka_drain.reprocess_plan import parse_cut
from kafka_drain.reprocessing import (
    finish_piece,
    finish_reprocess,
    newest_generation,
    open_reprocess,
    plan_reprocess,
    prepare_piece,
)
from kafka_drain.terminal import OK, answer, print_fields, say, submit, the_cluster, the_pipeline

__all__ = ["add_reprocess", "reprocess_command"]


def reprocess_command(options: argparse.Namespace) -> int:
    """Show what a reprocess will do; with --apply, do it, or go on with one that was begun."""
    archive = Archive.at(options.archive)
    cut = parse_cut(
        options.from_batch,
        options.from_time,
        options.from_offset,
        newest_generation=lambda: newest_generation(archive),
    )
    archive.document()  # without one, there is no pipeline either
    pipeline, cluster = the_pipeline(options), the_cluster(options)
    plan = plan_reprocess(pipeline, cluster, cut)
    for line in plan.lines():
        say(line)
    removed: dict[str, int] = {}
    if options.apply:
        open_reprocess(plan, cluster, run="terminal", say=say)
        for key in plan.waiting:
            with tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder:
                job = prepare_piece(plan, key, pipeline, cluster, Path(folder))
                submit(
                    job.application,
                    options.master,
                    lambda job=job: finish_piece(plan, job, cluster, say),  # type: ignore[misc]
                )
                receipt = finish_piece(plan, job, cluster, say)
            say(f"reprocess {plan.archive.root}: window {key} holds {receipt.records:,} records")
        removed = finish_reprocess(plan, run="terminal", say=say)
    else:
        say("dry run: nothing was changed; --apply does it")
    document = plan.to_dict() | removed
    answer(options, document, print_fields(document))
    return OK


def add_reprocess(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument(
        "--from-batch",
        metavar="[GENERATION:]BATCH",
        help="the first batch that is drained again; of the newest generation if not said",
    )
    parser.add_argument(
        "--from-time", metavar="TIME", help="the batch with the first record of this time or later"
    )
    parser.add_argument(
        "--from-offset",
        metavar="TOPIC:PARTITION:OFFSET",
        action="append",
        default=[],
        help="the batch with this offset; can be repeated",
    )
    parser.add_argument("--format", help="of the new files: parquet, avro, json or orc (as it is)")
    parser.add_argument("--compression", help="zstd, or gzip for JSON, if not said")
    parser.add_argument(
        "--partition-by", nargs="*", metavar="COLUMN", help="topic, date, hour (as it is)"
    )
    parser.add_argument(
        "--apply", action="store_true", help="do it; without it the plan is shown, nothing changed"
    )
