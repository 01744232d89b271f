"""A real `kafka-drain` command in a process that may not live to its end.

Spark is the shared session of the process that waits for it: a command that submits an application
asks for it through a pipe, and is answered when the application has ended.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from kafka_drain.cli.main import main
from kafka_drain.errors import SparkJobError
from kafka_drain.maintenance.compact import SPARK_CONF
from kafka_drain.spark.job_spec import SPECS, DrainSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from tests.forks import PATIENCE, fork
from tests.histories.history import Ended
from tests.integration.killed_steps import kill_at_change

__all__ = ["Kill", "SparkKill", "run_command"]

#: What a SIGKILL of the driver leaves out of a batch: its manifest and its commit, or its commit.
SparkKill = Literal["before the manifest", "before the commit"]

#: Commands that submit an application, each in a module of its name.
_SUBMITTING = ("drain", "repair", "backfill", "maintain", "reprocess", "erase")


@dataclass(frozen=True)
class Kill:
    """When a command is killed.

    Attributes:
        change: At which change of the archive's file system; 0 for none.
        spark: What its Spark application hasn't done by then; None to leave that alone.
    """

    change: int = 0
    spark: SparkKill | None = None


def run_command(spark: Any, folder: str, kill: Kill, *arguments: str) -> Ended:
    """Run a command to its end, or to its death.

    Args:
        spark: The session that runs its applications.
        folder: The archive, whose changes are counted.
        kill: When it is killed.
        arguments: The command line.
    """
    ours, theirs = Pipe()
    with tempfile.TemporaryDirectory() as place:
        said = Path(place) / "said"
        process = fork(_command, list(arguments), folder, kill.change, theirs, str(said))
        theirs.close()
        try:
            while True:
                # Closed by the other side's end, however it ends.
                kind, spec_path = ours.recv()
                is_drain = kind == "drain"
                before = _newest_batch(spec_path) if is_drain else -1
                error = _run_application(spark, kind, spec_path)
                if kill.spark is not None and is_drain and _newest_batch(spec_path) > before:
                    process.kill()
                    _undo_commit(spec_path, kill.spark)
                ours.send(error)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            process.join(PATIENCE)
        assert process.exitcode is not None, f"{arguments} didn't end in {PATIENCE:g} s"
        return Ended(process.exitcode, said.read_text(errors="replace"))


def _command(
    arguments: Sequence[str], folder: str, change: int, spark: Connection, said: str
) -> None:
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)

    def run(application: SparkApplication) -> None:
        spark.send((application.kind, str(application.specs[0])))
        error = spark.recv()
        if error is not None:
            print(error)  # noqa: T201 - as spark-submit does
            raise SparkJobError("the application failed")

    for name in _SUBMITTING:
        import_module(f"kafka_drain.cli.commands.{name}").runner_of = lambda _: run  # type: ignore[attr-defined]
    kill_at_change(folder, change)
    try:
        code = main(arguments)
    except Exception:
        traceback.print_exc()
        code = 70
    sys.exit(code)


def _run_application(spark: Any, kind: str, spec_path: str) -> str | None:
    """Run an application as spark-submit does; return the error that it ends with, if any."""
    from kafka_drain_spark.job import JobFailed, failed_result
    from kafka_drain_spark.session import SPARK_ERRORS

    spec: Any = SPECS[kind].read(Path(spec_path))
    run = getattr(import_module(f"kafka_drain_spark.{kind}"), f"run_{kind}")
    conf = SPARK_CONF if kind == "compact" else {}
    before = {name: spark.conf.get(name) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    error = None
    try:
        result = run(spark, spec)
    except (JobFailed, *SPARK_ERRORS) as failure:
        result = failed_result(failure)
        error = str(result["error"])
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    write_private(Path(spec.result_path), result)
    return error


def _newest_batch(spec_path: str) -> int:
    """Return the id of the newest batch that the checkpoint has planned; -1 for none."""
    offsets = Path(DrainSpec.read(Path(spec_path)).writer_options["checkpointLocation"]) / "offsets"
    names = os.listdir(offsets) if offsets.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _undo_commit(spec_path: str, kill: SparkKill) -> None:
    """Take back what a batch commits last: the newest file of `commits`, and of the manifest."""
    options = DrainSpec.read(Path(spec_path)).writer_options
    newest = str(_newest_batch(spec_path))
    _remove(Path(options["checkpointLocation"]) / "commits" / newest)
    if kill == "before the manifest":
        for name in (newest, f"{newest}.compact"):
            _remove(Path(options["path"]) / "_spark_metadata" / name)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
