"""`kafka-drain drain`: drain what Kafka holds now."""

from __future__ import annotations

import argparse

from kafka_drain.cli.commands.arguments import (
    add_dry_run,
    add_format,
    add_job,
    add_source_option,
    cluster_from,
    registry_from,
)
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.cli.commands.plan_answer import acts, answer_fields
from kafka_drain.cli.console import say_lines
from kafka_drain.cli.foreground import runner_of
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.drain.drain import run_drain
from kafka_drain.drain.options import DrainOptions
from kafka_drain.drain.preflight import preflight


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    parser.add_argument(
        "--topic", action="append", default=[], help="topic to drain; can be repeated"
    )
    parser.add_argument("--topic-pattern", metavar="REGEX", help="drain the topics that match")
    add_options(parser, DrainOptions, "acknowledge_expired", "log_level")
    parser.add_argument("--pipeline", metavar="FILE", help="JSON file with pipeline keys")
    parser.add_argument(
        "--registry-config",
        metavar="FILE",
        help="JSON file with the Schema Registry's URL and credentials",
    )
    parser.add_argument(
        "--immutable-days",
        type=int,
        metavar="DAYS",
        help="have the object store refuse to delete what is sealed, for this long",
    )
    parser.add_argument(
        "--immutable-mode",
        choices=("governance", "compliance"),
        help="whether somebody may end such a lock early, or nobody (governance)",
    )
    add_format(parser, otherwise=("parquet", "topic date"))
    add_source_option(parser)
    parser.add_argument(
        "--sink-option",
        dest="sink_options",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="option of Spark's file sink; can be repeated",
    )
    add_dry_run(parser)


def run(options: argparse.Namespace) -> int:
    """Drain what Kafka holds now."""
    pipeline = pipeline_from(options)
    asked = options_from(options, DrainOptions)
    if asked.log_level:
        pipeline = pipeline.with_log_level(asked.log_level)
    cluster = cluster_from(options)
    if not acts(options):
        plan = preflight(pipeline, cluster, acknowledge_expired=asked.acknowledge_expired)
        say_lines(plan.lines())
        return answer_fields(options, plan.to_dict())
    _, result = run_drain(
        pipeline,
        cluster,
        runner_of(options),
        run="terminal",
        show=say_lines,
        acknowledge_expired=asked.acknowledge_expired,
        registry=registry_from(options),
    )
    return answer_fields(options, result)
