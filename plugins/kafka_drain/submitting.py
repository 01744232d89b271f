"""Runs spark-submit in the foreground: what the commands and the class archive do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from kafka_drain.errors import SparkJobError
from kafka_drain.spark_submit import SparkApplication

__all__ = ["run_environment", "submit"]


def submit(application: SparkApplication, master: str, explain: Callable[[], object]) -> None:
    """Run spark-submit; its output goes to standard error."""
    environment = run_environment(application, master)
    ended = subprocess.run(application.command(master), env=environment, stdout=sys.stderr)
    if ended.returncode:
        # The result says what went wrong; without one, the exit code has to do.
        explain()
        raise SparkJobError(f"spark-submit ended with exit code {ended.returncode}")


def run_environment(application: SparkApplication, master: str) -> dict[str, str]:
    """Return the environment of spark-submit."""
    environment = {**os.environ, **application.environment}
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment
