"""`kafka-drain drain`: drain what Kafka holds now."""

from __future__ import annotations

import argparse

from kafka_drain.cli.commands.arguments import (
    add_dry_run,
    add_job,
    cluster_from,
    registry_from,
)
from kafka_drain.cli.commands.pipeline_arguments import add_keys, pipeline_from
from kafka_drain.cli.commands.plan_answer import acts, answer_fields
from kafka_drain.cli.console import say_lines
from kafka_drain.cli.foreground import runner_of
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.config.offset_ranges import ACKNOWLEDGE
from kafka_drain.drain.drain import run_drain
from kafka_drain.drain.options import DrainOptions
from kafka_drain.drain.preflight import preflight


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_job(parser)
    add_keys(parser, "topics", "topic_pattern")
    add_options(parser, DrainOptions, ACKNOWLEDGE, "log_level")
    parser.add_argument("--pipeline", metavar="FILE", help="JSON file with pipeline keys")
    parser.add_argument(
        "--registry-config",
        metavar="FILE",
        help="JSON file with the Schema Registry's URL and credentials",
    )
    add_keys(parser, "immutable_days", "immutable_mode", "format", "compression", "partition_by")
    add_keys(parser, "source_options", "sink_options")
    add_dry_run(parser)


def run(options: argparse.Namespace) -> int:
    """Drain the records that Kafka holds now."""
    pipeline = pipeline_from(options)
    asked = options_from(options, DrainOptions)
    if asked.log_level:
        pipeline = pipeline.with_log_level(asked.log_level)
    cluster = cluster_from(options)
    if not acts(options):
        plan = preflight(pipeline, cluster, acknowledged=asked.acknowledged)
        say_lines(plan.lines())
        return answer_fields(options, plan.to_dict())
    _, result = run_drain(
        pipeline,
        cluster,
        runner_of(options),
        run="terminal",
        show=say_lines,
        acknowledged=asked.acknowledged,
        registry=registry_from(options),
    )
    return answer_fields(options, result)
