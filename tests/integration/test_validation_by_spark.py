"""Very many new files are read by Spark's executors, with the same verdict and receipt."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from benchmarks.synthetic import Linker, SyntheticArchive, SyntheticCluster, unseal_newest
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import SparkJobError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.output import heard_by
from kafka_drain.proof import open_generation
from kafka_drain.proof.committed_files import ReadFiles, read_committed_files
from kafka_drain.proof.executor_reading import read_by_spark
from kafka_drain.proof.open_generation import MANY_FILES
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.runner import runner_for
from kafka_drain.spark.submit import SparkApplication

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def new_batch(folder: Path, files: int) -> Archive:
    """Write an archive with one unsealed batch."""
    folder.mkdir()
    link = Linker(folder / "template.parquet")
    made = SyntheticArchive(folder, link.size, link)
    made.add_generation(1, sealed=0, files=8, unsealed=1, new_files=files)
    return made.archive


def pipeline_of(archive: Archive) -> Pipeline:
    return Pipeline(name="many", topics=["t"], archive=str(archive.root))


def by_spark(archive: Archive) -> ReadFiles:
    """Read files with a real spark-submit."""
    return read_by_spark(pipeline_of(archive), runner_for(SparkConnection("local[2]")))


def validate(
    archive: Archive, read_many: ReadFiles, cluster: KafkaCluster | None = None
) -> tuple[Report, list[str]]:
    """Validate an archive, always in the same way; return the output too."""
    said: list[str] = []
    with heard_by(said.append):
        report = validate_archive(
            archive, cluster, run="run", clock=lambda: NOW, read_many=read_many
        )
    return report, said


def test_validation_of_many_files(tmp_path: Path) -> None:
    """Among more than 10,000 files, a real application finds the truncated and the missing one."""
    archive = new_batch(tmp_path / "archive", MANY_FILES + 8)
    data = archive.generation(1).data
    cut, gone = sorted(archive.generation(1).list_data_files())[5_000:5_002]
    content = (data / cut).read_bytes()
    # With its original length: only its end reveals it.
    (data / cut).write_bytes(content[:-4] + b"\0\0\0\0")
    (data / gone).unlink()

    here, _ = validate(archive, read_committed_files)
    there, said = validate(
        archive,
        read_by_spark(
            pipeline_of(archive),
            runner_for(SparkConnection("local[2]")),
        ),
    )

    assert said[0] == "validate: reading 10,008 new files with Spark"
    assert {str(finding.reason) for finding in there.findings} >= {"file_corrupt", "file_missing"}
    assert there.findings == here.findings
    assert {**there.summary(), "seconds": 0} == {**here.summary(), "seconds": 0}


def test_validation_by_spark_seals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The receipt has the same bytes."""
    archive = new_batch(tmp_path / "archive", 24)
    generation = archive.generation(1)
    cluster = SyntheticCluster()
    here, _ = validate(archive, read_committed_files, cluster)
    (name,) = generation.receipt_names()
    receipt = (generation.folder / "receipts" / name).read_bytes()
    unseal_newest(tmp_path / "archive", 1)
    monkeypatch.setattr(open_generation, "MANY_FILES", 23)

    there, said = validate(archive, by_spark(archive), cluster)

    assert "reading 24 new files with Spark" in said[0]
    assert (here.complete, there.complete) == (True, True)
    assert (generation.folder / "receipts" / name).read_bytes() == receipt


def test_validation_by_spark_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Spark can't start, it is an error, and nothing is sealed."""
    archive = new_batch(tmp_path / "archive", 24)
    monkeypatch.setattr(open_generation, "MANY_FILES", 0)

    def fails(application: SparkApplication) -> None:
        """Exit without output."""

    says = "spark-submit exited before the file-reading job wrote a result"
    with pytest.raises(SparkJobError, match=says):
        validate(archive, read_by_spark(pipeline_of(archive), fails))

    assert archive.generation(1).receipt_names() == []
