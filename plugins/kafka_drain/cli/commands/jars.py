"""`kafka-drain jars`: fetch the jars that Spark needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from kafka_drain.cli.console import answer, print_fields, say
from kafka_drain.cli.exit_codes import OK
from kafka_drain.spark.jars import fetch as jars


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--broker", action="store_true", help="also those of the local broker")
    parser.add_argument("--gcs", action="store_true", help="also Google's, for archives on gs://")


def run(options: argparse.Namespace) -> int:
    """Fetch the jars."""
    problem = jars.not_offered(jars.S3)
    confs = [jars.CONNECTOR, *([] if problem else [jars.S3]), jars.ENCRYPTION]
    confs += [*([jars.GCS] if options.gcs else []), *([jars.BROKER] if options.broker else [])]
    found = {conf: [str(path) for path in jars.fetch(conf)] for conf in confs}
    folders = {conf: f"{len(paths)} in {Path(paths[0]).parent}" for conf, paths in found.items()}
    if problem:
        say(problem)
    answer(options, found, print_fields(folders))
    return OK
