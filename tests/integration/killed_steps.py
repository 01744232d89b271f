"""Steps of maintenance and reprocess that end at a file system change, as if by SIGKILL.

For `run_forked`, because an audit hook stays until its process ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.maintain import run_maintenance
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.job_spec import CompactSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import finish_reprocess, open_reprocess, plan_reprocess
from kafka_drain.windows.reprocess.state import unfinished_reprocess

CHANGES = ("os.remove", "os.rmdir", "os.rename", "os.link", "os.mkdir")


def kill_at_change(folder: str, number: int) -> Callable[[], None]:
    """Kill this process at the nth change below a folder; 0 for never.

    Returns:
        What counts another change, to be called by who makes it.
    """
    left = number

    def change() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in CHANGES
        if event == "open" and isinstance(arguments[2], int):
            changes = bool(arguments[2] & os.O_ACCMODE)
        if changes and str(arguments[0]).startswith(folder):
            change()

    sys.addaudithook(count)
    return change


def maintain_until(pipeline: Pipeline, number: int, written: Path) -> None:
    """Maintain an archive without Spark, until its nth change.

    Args:
        pipeline: Pipeline of the archive.
        number: Number of the change; 0 for none.
        written: Folder with Spark's output: `data` and `result.json`.
    """
    kill_at_change(pipeline.archive, number)
    run_maintenance(pipeline, None, _rewritten(written), run="killed")


def _rewritten(written: Path) -> SparkRunner:
    """Return a runner that copies what Spark has written before."""

    def submit(application: SparkApplication) -> None:
        spec = CompactSpec.read(application.specs[0])
        shutil.copytree(written / "data", spec.path)
        write_private(Path(spec.result_path), json.loads((written / "result.json").read_text()))

    return submit


def open_reprocess_until(pipeline: Pipeline, number: int, cut: Cut, bootstrap_servers: str) -> None:
    """Plan and open a reprocess, up to the archive's nth change; 0 for no limit."""
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))
    plan = plan_reprocess(pipeline, cluster, cut)
    kill_at_change(pipeline.archive, number)
    open_reprocess(plan, cluster, run="killed")


def finish_reprocess_until(pipeline: Pipeline, number: int) -> None:
    """Finish a reprocess that was opened, up to the archive's nth change; 0 for no limit."""
    plan = unfinished_reprocess(Archive.at(pipeline.archive))
    assert plan is not None
    kill_at_change(pipeline.archive, number)
    finish_reprocess(plan, run="killed")
