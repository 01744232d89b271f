"""Files that Spark's executors read for a validation: a function takes Spark's place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import DataFileError, SparkJobError
from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.proof import executor_reading
from kafka_drain.proof.committed_file import read_file
from kafka_drain.proof.committed_files import FilesRead, read_committed_files
from kafka_drain.proof.executor_reading import read_by_spark
from kafka_drain.spark.job_spec import ValidateSpec, write_private
from kafka_drain.spark.submit import SparkApplication
from tests.kafka_drain.fake_cluster import fake_application
from tests.kafka_drain.golden import END, add_batch, golden_pipeline, state_of


@pytest.fixture
def new(archive: Archive) -> Sequence[SinkFile]:
    """Two files of a batch, of which the second is gone."""
    _, gone = add_batch(archive.generation(1), 14, END, 50)
    gone.unlink()
    return state_of(archive.generation(1)).new


def read(
    archive: Archive,
    files: Sequence[SinkFile],
    monkeypatch: pytest.MonkeyPatch,
    *,
    left_out: int = 0,
    result: dict[str, Any] | None = None,
) -> FilesRead:
    """Read files as a validation by Spark does; executors leave some out."""
    pipeline = golden_pipeline(archive, partition_by=["topic"], log_levels={"kafka": "DEBUG"})

    def application(name: str, *, kind: str, spec_path: Path, **given: Any) -> SparkApplication:
        assert (kind, given["pipeline"], given["needs_connector"]) == ("validate", pipeline, False)
        return replace(fake_application(name), arguments=[str(spec_path)])

    def spark(application: SparkApplication) -> None:
        spec = ValidateSpec.read(Path(application.arguments[0]))
        assert spec.log_levels == pipeline.log_levels
        lines = []
        for each in spec.files[left_out:]:
            found = read_file(spec.archive, spec.data_name, SinkFile(**each), spec.file_format)
            kind = "finding" if isinstance(found, Finding) else "file"
            lines.append(json.dumps({kind: found.to_dict()}) + "\n")
        Path(spec.answers_path).write_text("".join(lines))
        write_private(Path(spec.result_path), {"files": len(lines)} if result is None else result)

    monkeypatch.setattr(executor_reading, "prepare_application", application)
    return read_by_spark(pipeline, spark)(archive.generation(1), files, "parquet")


def test_read_by_spark_as_one_process(
    archive: Archive, new: Sequence[SinkFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors find what a process finds: contents of the files, and what is wrong with others."""
    files, findings = read(archive, new, monkeypatch)

    assert (files, findings) == read_committed_files(archive.generation(1), new, "parquet")
    assert [file.path for file in files] == [f"generations/0001/data/{new[0].path}"]
    assert [finding.reason for finding in findings] == [Reason.FILE_MISSING]


@pytest.mark.parametrize("count", [1, 2])
def test_read_by_spark_too_few_answers(
    archive: Archive, new: Sequence[SinkFile], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Files without an answer aren't taken as read, whether what is left is a finding or not."""
    with pytest.raises(SparkJobError, match=f"results for {2 - count} files; expected 2"):
        read(archive, new, monkeypatch, left_out=count)


def test_read_by_spark_failed(
    archive: Archive, new: Sequence[SinkFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the application says went wrong is raised, whatever it had read before."""
    failed = {"error": "a store is gone", "error_type": "DataFileError"}

    with pytest.raises(DataFileError, match="a store is gone"):
        read(archive, new, monkeypatch, result=failed)
