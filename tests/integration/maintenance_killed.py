"""Maintenance in a process that ends, as by SIGKILL, at a change of the file system."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka_drain.job_spec import CompactSpec, write_private
from kafka_drain.maintaining import run_maintenance
from kafka_drain.pipeline import Pipeline
from kafka_drain.spark_submit import SparkApplication

CHANGES = ("os.remove", "os.rmdir", "os.rename", "os.link", "os.mkdir")


def maintain_until(pipeline: Pipeline, number: int, written: Path) -> None:
    """Maintain an archive without Spark, until the nth change below its folder.

    Args:
        pipeline: Of the archive.
        number: Which change this process doesn't live to see; 0 for none.
        written: Folder with what Spark has written: `data` and `result.json`.
    """
    left = number

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        changes = event in CHANGES
        if event == "open" and isinstance(arguments[2], int):
            changes = bool(arguments[2] & os.O_ACCMODE)
        if changes and str(arguments[0]).startswith(pipeline.archive):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def submit(application: SparkApplication, explain: Callable[[], object]) -> None:
        spec = CompactSpec.read(Path(application.arguments[0]))
        shutil.copytree(written / "data", spec.path)
        write_private(Path(spec.result_path), json.loads((written / "result.json").read_text()))

    sys.addaudithook(count)
    run_maintenance(pipeline, None, submit, run="killed", say=print)
