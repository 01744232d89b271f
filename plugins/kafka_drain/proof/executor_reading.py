"""Read a large number of committed files with Spark's executors, for a validation."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.window import Window
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.errors import SparkJobError
from kafka_drain.findings import Finding
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.output import say
from kafka_drain.proof.committed_files import FilesRead, ReadFiles
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.job import SparkJob, private_folder
from kafka_drain.spark.job_spec import ValidateSpec
from kafka_drain.spark.submit import prepare_application


@dataclass(frozen=True)
class ReadingJob(SparkJob):
    """A Spark job that is ready to read committed files.

    Attributes:
        files: Number of files.
        answers_path: File for the contents that the application reads.
    """

    what = "file-reading job"

    files: int
    answers_path: Path


def read_by_spark(pipeline: Pipeline, runner: SparkRunner) -> ReadFiles:
    """Return a function that reads committed files with a Spark application.

    Args:
        pipeline: Provides Spark's configuration, jars and memory.
        runner: Runs Spark applications.

    Returns:
        The function. It raises SparkJobError when the application fails, and MachineError when
        Java or pyspark is missing.
    """

    def read(
        owner: Generation | Window, sink_files: Collection[SinkFile], file_format: str
    ) -> FilesRead:
        say(f"validate: reading {len(sink_files):,} new files with Spark")
        with private_folder() as folder:
            job = prepare_reading(owner, sink_files, file_format, pipeline, folder)
            job.run(runner)
            return finish_reading(job)

    return read


def prepare_reading(
    owner: Generation | Window,
    sink_files: Collection[SinkFile],
    file_format: str,
    pipeline: Pipeline,
    folder: Path,
) -> ReadingJob:
    """Write the job spec and assemble the application for spark-submit.

    Raises:
        MachineError: When Java or pyspark is missing.
    """
    spec_path = folder / "validate.json"
    answers_path, result_path = folder / "answers.jsonl", folder / "result.json"
    ValidateSpec(
        archive=str(owner.root),
        data_name=owner.data_name,
        file_format=file_format,
        files=[asdict(sink_file) for sink_file in sink_files],
        answers_path=str(answers_path),
        log_levels=pipeline.log_levels,
        result_path=str(result_path),
    ).write(spec_path)
    application = prepare_application(
        f"validate_{pipeline.name}",
        kind="validate",
        spec_path=spec_path,
        pipeline=pipeline,
        folder=folder,
        needs_connector=False,
    )
    return ReadingJob(application, result_path, len(sink_files), answers_path)


def finish_reading(job: ReadingJob) -> FilesRead:
    """Read the application's result.

    Raises:
        SparkJobError: When it failed, or finished without a result for every file.
    """
    job.result()
    files: list[CommittedFile] = []
    findings: list[Finding] = []
    with job.answers_path.open(encoding="utf-8") as lines:
        for line in lines:
            answer = json.loads(line)
            if "file" in answer:
                files.append(CommittedFile.from_dict(answer["file"]))
            else:
                findings.append(Finding.from_dict(answer["finding"]))
    if len(files) + len(findings) != job.files:
        raise SparkJobError(
            f"Spark returned results for {len(files) + len(findings):,} files; "
            f"expected {job.files:,}"
        )
    return files, findings
