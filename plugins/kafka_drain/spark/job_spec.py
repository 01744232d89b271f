"""What crosses from Airflow to a Spark job: a JSON file. Both sides read it; plain Python only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

__all__ = [
    "SPECS",
    "CompactSpec",
    "DrainSpec",
    "SendSpec",
    "SinkSpec",
    "ValidateSpec",
    "WarmUpSpec",
    "WindowSpec",
    "read_result",
    "write_private",
]


S = TypeVar("S", bound="JobSpec")


def write_private(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file that only this user can read (mode 0600)."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=2))


def read_result(path: Path) -> dict[str, Any] | None:
    """Read the result file of a job; None when the job ended before writing one."""
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result


@dataclass(frozen=True)
class JobSpec:
    """What every job spec can do."""

    def write(self, path: Path) -> None:
        """Write the spec, readable by this user only."""
        write_private(path, asdict(self))

    @classmethod
    def read(cls: type[S], path: Path) -> S:
        """Read a spec."""
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True)
class DrainSpec(JobSpec):
    """One drain, in Spark's own option names.

    Attributes:
        pipeline: The pipeline's name.
        reader_options: Options of the Kafka source, without secrets.
        file_format: Format of the data files.
        writer_options: Options of the file sink, with `path` and `checkpointLocation`.
        partition_by: Columns that folders are named by.
        columns: Spark SQL expression of each added partition column.
        log_levels: Level by full logger name.
        start: Offsets that the drain goes on from, in Spark's JSON form.
        planned_end: Offsets that it was planned to reach, in Spark's JSON form. Records that
            arrive until the query starts come on top.
        result_path: Where the job writes its result.
        secrets_path: File with the reader options that are secret; empty when there are none.
        values: How values are decoded: `encoding`, and `reader` with `writers` by id, or `columns`;
            None for not.
    """

    pipeline: str
    reader_options: dict[str, str]
    file_format: str
    writer_options: dict[str, str]
    partition_by: list[str]
    columns: dict[str, str]
    log_levels: dict[str, str]
    start: str
    planned_end: str
    result_path: str
    secrets_path: str = ""
    values: dict[str, Any] | None = None


@dataclass(frozen=True)
class WarmUpSpec(DrainSpec):
    """A drain of made-up records, for Java to write down the classes that a drain loads.

    Attributes:
        jars: Those of Spark's Kafka connector, whose classes are loaded as well.
    """

    jars: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class WindowSpec(JobSpec):
    """One bounded drain, in Spark's own option names.

    Attributes:
        window: The window's name.
        offsets: How many offsets it spans.
        reader_options: Options of the Kafka source, with where it starts and ends, no secrets.
        where: SQL condition for the offsets that are wanted of what is read.
        file_format: Format of the data files.
        writer_options: Options of the file sink.
        path: Folder of the data files.
        partition_by: Columns that folders are named by.
        columns: Spark SQL expression of each added partition column.
        log_levels: Level by full logger name.
        result_path: Where the job writes its result.
        secrets_path: File with the reader options that are secret; empty when there are none.
        values: How values are decoded, as in a drain.
    """

    window: str
    offsets: int
    reader_options: dict[str, str]
    where: str
    file_format: str
    writer_options: dict[str, str]
    path: str
    partition_by: list[str]
    columns: dict[str, str]
    log_levels: dict[str, str]
    result_path: str
    secrets_path: str = ""
    values: dict[str, Any] | None = None


@dataclass(frozen=True)
class CompactSpec(JobSpec):
    """Small files to be written as few large ones.

    Attributes:
        window: Name of the window that will hold them.
        sources: For each data folder: `data_folder`, `file_format`, and `files`, absolute paths.
        records: How many records they hold.
        files: About how many files are written.
        file_format: Format of the new files.
        writer_options: Options of the file sink.
        path: Folder of the new files.
        partition_by: Columns that folders are named by.
        columns: Spark SQL expression of each added partition column.
        log_levels: Level by full logger name.
        result_path: Where the job writes its result.
        values: How values are decoded, as in a drain.
    """

    window: str
    sources: list[dict[str, Any]]
    records: int
    files: int
    file_format: str
    writer_options: dict[str, str]
    path: str
    partition_by: list[str]
    columns: dict[str, str]
    log_levels: dict[str, str]
    result_path: str
    values: dict[str, Any] | None = None


@dataclass(frozen=True)
class ValidateSpec(JobSpec):
    """Committed files to be read by executors, for a validation.

    Attributes:
        archive: The archive's folder.
        data_name: The data folder, relative to the archive.
        file_format: Format of the files.
        files: The manifest's lines: path, size, modified, batch and log of each file.
        answers_path: Where what was read is written, a JSON object a line.
        log_levels: Level by full logger name.
        result_path: Where the job writes its result.
    """

    archive: str
    data_name: str
    file_format: str
    files: list[dict[str, Any]]
    answers_path: str
    log_levels: dict[str, str]
    result_path: str


@dataclass(frozen=True)
class SendSpec(JobSpec):
    """One republish, exactly once, with its shards as Spark's tasks.

    Attributes:
        run: Name of the run.
        groups: Groups of send jobs as JSON types, without their settings; those of a group are
            sent in turn.
        records: How many records the plan has.
        log_levels: Level by full logger name.
        result_path: Where the job writes its result.
        secrets_path: File with librdkafka's settings.
    """

    run: str
    groups: list[list[dict[str, Any]]]
    records: int
    log_levels: dict[str, str]
    result_path: str
    secrets_path: str


@dataclass(frozen=True)
class SinkSpec(JobSpec):
    """One republish by Spark's Kafka sink.

    Attributes:
        run: Name of the run.
        sources: For each data folder: `data_folder`, `file_format`, and `files`, the absolute
            paths of the committed ones.
        targets: Target topic by source topic.
        partitions: Source partitions that are sent, as `topic-partition`.
        records: How many records of theirs the files hold.
        writer_options: Options of the Kafka sink, without secrets.
        log_levels: Level by full logger name.
        result_path: Where the job writes its result.
        secrets_path: File with the writer options that are secret; empty when there are none.
    """

    run: str
    sources: list[dict[str, Any]]
    targets: dict[str, str]
    partitions: list[str]
    records: int
    writer_options: dict[str, str]
    log_levels: dict[str, str]
    result_path: str
    secrets_path: str = ""


#: The spec of each kind of job.
SPECS: dict[str, type[JobSpec]] = {
    "compact": CompactSpec,
    "drain": DrainSpec,
    "send": SendSpec,
    "sink": SinkSpec,
    "validate": ValidateSpec,
    "warm_up": WarmUpSpec,
    "window": WindowSpec,
}
