"""Run the Spark jobs of a command in the foreground, with their progress as a bar."""

from __future__ import annotations

import argparse
import os

from kafka_drain.cli.console import is_watched, say
from kafka_drain.spark.connect import TOKEN_VARIABLE
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.runner import runner_for


def runner_of(options: argparse.Namespace) -> SparkRunner:
    """Return a runner for a command's applications; a terminal shows their progress as a bar."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    connection = SparkConnection(options.master, token=token, deploy_mode=options.deploy_mode)
    return runner_for(connection, say if is_watched() else None)
