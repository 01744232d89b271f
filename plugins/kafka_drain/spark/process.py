"""Runs spark-submit in the foreground."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from kafka_drain.errors import SparkJobError
from kafka_drain.spark.submit import SparkApplication

__all__ = ["run_environment", "submit"]


#: So long Spark has for its end when the command is interrupted.
_LAST_SECONDS = 2.0


def submit(
    application: SparkApplication,
    master: str,
    explain: Callable[[], object],
    say: Callable[[str], None] | None = None,
) -> None:
    """Run spark-submit.

    Args:
        application: What is started.
        master: The Spark master.
        explain: Called where it fails: raises what went wrong, if a result says that.
        say: Takes each line that is printed; None lets them pass to standard error.

    Raises:
        SparkJobError: When it fails, and `explain` has raised nothing.
    """
    command, environment = application.command(master), run_environment(application, master)
    if say is not None:
        code = _run_aloud(command, environment, say)
    else:
        code = subprocess.run(command, env=environment, stdout=sys.stderr).returncode
    if code:
        # The result says what went wrong; without one, the exit code has to do.
        explain()
        raise SparkJobError(f"spark-submit ended with exit code {code}")


def _run_aloud(
    command: Sequence[str], environment: Mapping[str, str], say: Callable[[str], None]
) -> int:
    """Run a program, say each line that it prints, and return its exit code."""
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                say(line.rstrip("\n"))
            return process.wait()
        except BaseException:
            # Whoever interrupts at a terminal interrupts Spark as well, which then cleans up.
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_LAST_SECONDS)
            process.kill()
            raise


def run_environment(application: SparkApplication, master: str) -> dict[str, str]:
    """Return the environment of spark-submit."""
    environment = {**os.environ, **application.environment}
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment
