"""Validate a large number of files; executors read them with the same function as the worker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kafka_drain.background import Background
from kafka_drain.findings import Finding
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.progress import Progress
from kafka_drain.proof.committed_file import read_file
from kafka_drain.spark.job_spec import ValidateSpec
from kafka_drain_spark.executors import in_tasks
from kafka_drain_spark.session import cores_of
from kafka_drain_spark.tasks import finished_tasks

PROGRESS_SECONDS = 2.0
FILES_PER_TASK = 500


def run_validate(spark: SparkSession, spec: ValidateSpec) -> dict[str, Any]:
    """Read the files, and write their contents next to the result, in the manifest's order.

    Returns:
        files (the number that were read).

    Raises:
        Exception: One of `SPARK_ERRORS`, when a task used up its retries.
    """
    tasks = max(cores_of(spark), len(spec.files) // FILES_PER_TASK)
    read = partial(_read, spec.archive, spec.data_name, spec.file_format)
    reading = Background(in_tasks(spark, spec.files, tasks, read))
    progress = Progress("tasks", tasks)
    while not reading.ended(PROGRESS_SECONDS):
        print(progress.line("validate", finished_tasks(spark)), flush=True)
    answers = reading.result()
    path = Path(spec.answers_path)
    path.touch(mode=0o600)
    with path.open("w", encoding="utf-8") as lines:
        lines.writelines(f"{answer}\n" for answer in answers)
    return {"files": len(answers)}


def _read(
    archive: str, data_name: str, file_format: str, files: Iterable[dict[str, Any]]
) -> Iterator[str]:
    """Read files on an executor; yield a JSON object for each."""
    for file in files:
        found = read_file(archive, data_name, SinkFile(**file), file_format)
        kind = "finding" if isinstance(found, Finding) else "file"
        yield json.dumps({kind: found.to_dict()})
