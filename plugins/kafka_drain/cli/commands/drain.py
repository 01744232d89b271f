"""`kafka-drain drain`: drain what Kafka holds now."""

from __future__ import annotations

import argparse

from kafka_drain.cli.commands.arguments import (
    add_acknowledgement,
    add_archive,
    add_dry_run,
    add_kafka,
    add_spark,
    say_dry_run,
    the_cluster,
    the_registry,
)
from kafka_drain.cli.commands.pipeline_arguments import the_pipeline
from kafka_drain.cli.console import answer, print_fields, say, say_lines
from kafka_drain.cli.exit_codes import OK
from kafka_drain.cli.foreground import runner_of
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import run_drain
from kafka_drain.drain.preflight import preflight
from kafka_drain.kafka.cluster import KafkaCluster

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_kafka(parser)
    add_spark(parser)
    parser.add_argument(
        "--topic", action="append", default=[], help="topic to drain; can be repeated"
    )
    parser.add_argument("--topic-pattern", metavar="REGEX", help="drain the topics that match")
    add_acknowledgement(parser)
    parser.add_argument("--pipeline", metavar="FILE", help="JSON file with pipeline keys")
    parser.add_argument(
        "--registry-config",
        metavar="FILE",
        help="JSON file with the Schema Registry's URL and credentials",
    )
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        help="level of Spark's Kafka and sink classes, such as DEBUG",
    )
    parser.add_argument("--format", help="parquet, avro, json or orc (parquet)")
    parser.add_argument("--compression", help="default: zstd, or gzip for JSON")
    parser.add_argument(
        "--partition-by", nargs="*", metavar="COLUMN", help="topic, date, hour (topic date)"
    )
    parser.add_argument(
        "--source-option",
        dest="source_options",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="option of Spark's Kafka source; can be repeated",
    )
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
    pipeline = the_pipeline(options)
    if options.log_level:
        pipeline = pipeline.with_log_level(options.log_level)
    cluster = the_cluster(options)
    if options.dry_run:
        return _show_plan(options, pipeline, cluster)
    _, result = run_drain(
        pipeline,
        cluster,
        runner_of(options.master),
        run="terminal",
        say=say,
        show=say_lines,
        acknowledge_expired=options.acknowledge_expired,
        registry=the_registry(options),
    )
    answer(options, result, print_fields(result))
    return OK


def _show_plan(options: argparse.Namespace, pipeline: Pipeline, cluster: KafkaCluster) -> int:
    plan = preflight(pipeline, cluster, acknowledge_expired=options.acknowledge_expired)
    say_lines(plan.lines())
    answer(options, plan.to_dict(), print_fields(plan.to_dict()))
    say_dry_run("omit --dry-run to carry it out")
    return OK
