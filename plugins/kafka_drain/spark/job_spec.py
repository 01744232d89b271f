"""The job spec: the JSON file that is passed to a Spark job. Plain Python; both sides import it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

#: Environment variable with the path of a JSON file for the client of a Spark Connect server:
#: `conf`, the session's configuration, and `py_files`, the zip with our packages.
CONNECT_VARIABLE = "KAFKA_DRAIN_CONNECT"

#: Environment variable with the id of the process that a driver on the same machine ends with.
PARENT_VARIABLE = "KAFKA_DRAIN_PARENT"

#: The option before the run folders of jobs, in the place of the paths of their specs.
RUN_OPTION = "--runs"

S = TypeVar("S", bound="JobSpec")


def write_private(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file that only this user can read (mode 0600)."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")


def read_result(path: Path) -> dict[str, Any] | None:
    """Read the result file of a job; return None when the job ended before writing all of it.

    Killed while it wrote, or on a full disk, it leaves an empty file, or the beginning of one.
    """
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return result


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """The base class of job specs.

    Attributes:
        log_levels: Level by full logger name.
        result_path: The file for the job's result.
    """

    log_levels: dict[str, str]
    result_path: str

    def write(self, path: Path) -> None:
        """Write the spec, readable by this user only."""
        write_private(path, asdict(self))

    @classmethod
    def read(cls: type[S], path: Path) -> S:
        """Read a spec."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True, kw_only=True)
class WritingSpec(JobSpec):
    """A job that writes data files, in Spark's option names.

    Attributes:
        file_format: Format of the data files.
        writer_options: Options of the file sink.
        partition_by: Partition columns.
        columns: Spark SQL expression of each added partition column.
        values: The decoding of values: `encoding`, and `reader` with `writers` by id, or `columns`;
            None when they aren't decoded.
        encryption: The archive's data keys, wrapped, as `keys_for_writing` returns them; None to
            encrypt nothing.
    """

    file_format: str
    writer_options: dict[str, str]
    partition_by: list[str]
    columns: dict[str, str]
    values: dict[str, Any] | None = None
    encryption: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ReadingSpec(WritingSpec):
    """A job that writes records read from Kafka, in Spark's option names.

    Attributes:
        reader_options: Options of the Kafka source, without secrets.
        poll_options: Limits of a poll, by what the records unpack to: these options replace those
            of the same names.
        secrets_path: File with the secret reader options; empty when there are none.
    """

    reader_options: dict[str, str]
    poll_options: dict[str, str] = field(default_factory=dict)
    secrets_path: str = ""

    @property
    def source_options(self) -> dict[str, str]:
        """Options of the Kafka source, without secrets."""
        return self.reader_options | self.poll_options


@dataclass(frozen=True, kw_only=True)
class DrainSpec(ReadingSpec):
    """A drain, in Spark's option names.

    Attributes:
        pipeline: The pipeline's name.
        start: Offsets that the drain resumes from, in Spark's JSON form.
        planned_end: Planned end offsets, in Spark's JSON form. Records that arrive before the query
            starts are drained as well.
        notes_path: Folder of the generation's notes, in Hadoop's form; empty to leave no notes
            while the query runs.
        first_unlisted: The first batch that the manifest doesn't list.
        skipped: Offsets that Kafka no longer has: topic, partition, start and end of each range.
        archive: The archive's folder.
        partitions_per_task: Number of small partitions that a task reads at most; None for the
            default.
    """

    pipeline: str
    start: str
    planned_end: str
    notes_path: str = ""
    first_unlisted: int = 0
    skipped: list[dict[str, Any]] = field(default_factory=list)
    archive: str = ""
    partitions_per_task: int | None = None

    @property
    def query_key(self) -> str:
        """Identify the query: drains with equal keys read and write the same in the same way."""
        decisive = {
            name: value for name, value in asdict(self).items() if name not in OF_ONE_ATTEMPT
        }
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


#: Fields that may differ between two attempts of a job that read and write the same.
OF_ONE_ATTEMPT = {
    "answers_path",
    "first_unlisted",
    "log_levels",
    "partitions_per_task",
    "path",
    "planned_end",
    "poll_options",
    "result_path",
    "secrets_path",
    "skipped",
    "start",
}


@dataclass(frozen=True, kw_only=True)
class WarmUpSpec(DrainSpec):
    """A drain of generated records, from which Java archives the classes that a drain loads.

    Attributes:
        jars: The jars of Spark's Kafka connector, whose classes are loaded as well.
    """

    jars: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class WindowSpec(ReadingSpec):
    """A bounded drain, in Spark's option names; its reader options have start and end offsets.

    Attributes:
        window: The window's name.
        offsets: Number of offsets that it spans.
        ranges: The wanted offsets of what is read: topic, partition, start and end of each range;
            none if all are wanted.
        path: Folder of the data files.
        erased: Offsets to leave out, because their records were erased on request: topic,
            partition, start and end of each range.
    """

    window: str
    offsets: int
    path: str
    ranges: list[dict[str, Any]] = field(default_factory=list)
    erased: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class CompactSpec(WritingSpec):
    """A compaction: many small files to be rewritten as a few large ones.

    Attributes:
        window: Name of the window that will hold the new files.
        sources: For each data folder: `data_folder`, `file_format`, and `files`, absolute paths.
        records: Number of records that the old files hold.
        files: Approximate number of new files.
        path: Folder of the new files.
        erased: Offsets whose records are to be erased: topic, partition, start and end of each
            range.
    """

    window: str
    sources: list[dict[str, Any]]
    records: int
    files: int
    path: str
    erased: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ValidateSpec(JobSpec):
    """Committed files to be read by executors, for a validation.

    Attributes:
        archive: The archive's folder.
        data_name: The data folder, relative to the archive.
        files: The manifest's entries: path, size, modified, batch and log of each file.
        answers_path: The file for what the job reads, one JSON object per line.
    """

    archive: str
    data_name: str
    file_format: str
    files: list[dict[str, Any]]
    answers_path: str


#: Among the secrets of a republish: the key of pseudonyms, in hexadecimal digits.
HASH_KEY = "kafka-drain.hash.key"


@dataclass(frozen=True, kw_only=True)
class SendSpec(JobSpec):
    """An exactly-once republish, with its shards as Spark tasks.

    Attributes:
        run: Name of the run.
        groups: Groups of send jobs as JSON types, without their settings; the jobs of a group are
            sent one after another.
        records: Number of records in the plan.
        secrets_path: File with librdkafka's settings, and the key of pseudonyms.
    """

    run: str
    groups: list[list[dict[str, Any]]]
    records: int
    secrets_path: str


@dataclass(frozen=True, kw_only=True)
class SinkSpec(JobSpec):
    """A republish with Spark's Kafka sink.

    Attributes:
        run: Name of the run.
        sources: For each data folder: `data_folder`, `file_format`, and `files`, the absolute
            paths of the committed files.
        targets: Target topic by source topic.
        partitions: Source partitions that are sent, as `topic-partition`.
        records: Number of their records in the files.
        writer_options: Options of the Kafka sink, without secrets.
        secrets_path: File with the secret writer options; empty when there are none.
    """

    run: str
    sources: list[dict[str, Any]]
    targets: dict[str, str]
    partitions: list[str]
    records: int
    writer_options: dict[str, str]
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
