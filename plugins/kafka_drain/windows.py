"""A window from the caller's side: plan it, write its spec, prove and seal what Spark drained.

Each attempt writes to a folder of its own: one that was believed dead changes nothing
of what a later one has sealed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from upath import UPath

from kafka_drain.archive import Archive
from kafka_drain.committed_files import read_committed_files
from kafka_drain.documents import create_document
from kafka_drain.errors import ArchiveError, ManifestInvalidError, SparkJobError
from kafka_drain.findings import errors
from kafka_drain.gap_explanation import explain_gaps, gap_findings
from kafka_drain.generation import list_data_files
from kafka_drain.job_spec import WindowSpec, read_result
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.manifest import SinkFile
from kafka_drain.offset_checks import check_duplicates, check_within, without_held
from kafka_drain.offsets import OffsetRange, TopicPartition, count, to_spark_json
from kafka_drain.pipeline import Pipeline
from kafka_drain.receipts import Receipt
from kafka_drain.sealing import Identity, seal_window
from kafka_drain.sink_options import PARTITION_COLUMNS
from kafka_drain.source_options import DEFAULTS, STARTING_POSITIONS
from kafka_drain.spark_submit import SparkApplication, kafka_options, prepare_application
from kafka_drain.window import Window, range_rows

__all__ = [
    "WindowJob",
    "finish_window",
    "open_window",
    "prepare_window",
    "prove_window",
    "seal_proven",
]

Ranges = Mapping[TopicPartition, Sequence[OffsetRange]]

# Of a streaming query; a bounded read has no use for them.
_STREAMING = {"maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "failOnDataLoss"}


@dataclass(frozen=True)
class WindowJob:
    """A window that is ready to be drained."""

    window: Window
    ranges: Mapping[TopicPartition, list[OffsetRange]]
    attempt: str
    application: SparkApplication
    result_path: Path

    @property
    def data(self) -> UPath:
        """Folder of this attempt's files."""
        return self.window.data / self.attempt


def open_window(
    archive: Archive, key: str, ranges: Ranges, *, pipeline: Pipeline, replaces: Sequence[str]
) -> Window:
    """Freeze a window's plan; one with the same plan that was never sealed is taken up again.

    Args:
        archive: The archive.
        key: Name of a new window.
        ranges: Its offsets, sorted and disjoint for each partition.
        pipeline: How files are written.
        replaces: Damaged files, relative to the archive, whose records it will hold instead.

    Raises:
        ArchiveError: When a window of that name has another plan.
    """
    plan: dict[str, Any] = {
        "ranges": range_rows(ranges),
        "replaces": sorted(replaces),
        "format": pipeline.format,
        "partition_by": pipeline.partition_by,
    }
    for window in archive.windows():
        if not window.is_sealed and window.plan().items() >= plan.items():
            return window
    window = Window(archive.root, key)
    opened_at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    if not create_document(window.folder / "plan.json", plan | {"opened_at": opened_at}):
        raise ArchiveError(
            f"{window.folder} is there already, with another plan; choose another name"
        )
    return window


def prepare_window(
    window: Window,
    ranges: Mapping[TopicPartition, list[OffsetRange]],
    *,
    pipeline: Pipeline,
    cluster: KafkaCluster,
    folder: Path,
) -> WindowJob:
    """Write the job spec of a window and put together what spark-submit needs.

    Args:
        window: The window, which says how files are written.
        ranges: The offsets to drain, sorted and disjoint for each partition.
        pipeline: How to read and write.
        cluster: Where from.
        folder: A private folder of this run (mode 0700); the spec and the secrets go there.

    Raises:
        MachineError: When Java, pyspark or a jar is missing.
    """
    spec_path, result_path = folder / "window.json", folder / "result.json"
    connection, secrets_path = kafka_options(cluster.config, folder)
    plan, attempt = window.plan(), uuid.uuid4().hex[:8]
    options = DEFAULTS | {name: str(value) for name, value in pipeline.source_options.items()}
    for name in (*STARTING_POSITIONS, "startingOffsetsByTimestampStrategy", *_STREAMING):
        options.pop(name, None)
    partitions: dict[str, list[int]] = {}
    for tp in ranges:
        partitions.setdefault(tp.topic, []).append(tp.partition)
    bounds = {
        "assign": json.dumps(partitions),
        "startingOffsets": to_spark_json({tp: rs[0].start for tp, rs in ranges.items()}),
        "endingOffsets": to_spark_json({tp: rs[-1].end for tp, rs in ranges.items()}),
        "failOnDataLoss": "true",
    }
    WindowSpec(
        window=window.key,
        offsets=sum(count(rs) for rs in ranges.values()),
        reader_options=options | bounds | connection,
        where=_condition(ranges),
        file_format=plan["format"],
        writer_options={
            "compression": pipeline.compression,
            **{name: str(value) for name, value in pipeline.sink_options.items()},
        },
        path=str(window.data / attempt),
        partition_by=plan["partition_by"],
        columns={column: PARTITION_COLUMNS[column] for column in plan["partition_by"]},
        log_levels=pipeline.log_levels,
        result_path=str(result_path),
        secrets_path=secrets_path,
    ).write(spec_path)
    application = prepare_application(
        f"window_{pipeline.name}",
        application="window",
        spec_path=spec_path,
        pipeline=pipeline,
        folder=folder,
    )
    return WindowJob(window, ranges, attempt, application, result_path)


def _condition(ranges: Ranges) -> str:
    """Return the SQL condition for offsets; what lies between two ranges is read and left out."""
    parts = []
    for tp, rs in ranges.items():
        offsets = " OR ".join(f"(offset >= {r.start} AND offset < {r.end})" for r in rs)
        # Topic names hold no quotes (org.apache.kafka.common.internals.Topic).
        parts.append(f"(topic = '{tp.topic}' AND partition = {tp.partition} AND ({offsets}))")
    return " OR ".join(parts)


def finish_window(
    job: WindowJob, cluster: KafkaCluster, identity: Identity, say: Callable[[str], None]
) -> Receipt:
    """Prove what Spark drained to a window, and seal it; as `prove_window` raises."""
    return seal_proven(job.window, prove_window(job, cluster, identity, say))


def seal_proven(window: Window, receipt: Receipt) -> Receipt:
    """Write a window's receipt; where another attempt was faster, its receipt counts."""
    window.write_receipt(receipt)
    return window.receipt()


def prove_window(
    job: WindowJob,
    cluster: KafkaCluster,
    identity: Identity,
    say: Callable[[str], None],
    acknowledged: Sequence[str] = (),
) -> Receipt:
    """Prove what Spark drained to a window, and return its receipt, which isn't written yet.

    Args:
        job: What was drained.
        cluster: Where the reasons of gaps are asked.
        identity: Whose offsets they are.
        say: Takes lines of progress.
        acknowledged: Expired ranges beside the window that somebody has accepted.

    Raises:
        SparkJobError: When the job failed, or ended without a result.
        ManifestInvalidError: When offsets of the window are missing or there twice.
        KafkaUnavailableError: When a gap has to be explained and Kafka doesn't answer.
    """
    result = read_result(job.result_path)
    if result is None:
        raise SparkJobError(
            "spark-submit ended before the window wrote a result; the reason is in the log above"
        )
    if "error" in result:
        raise SparkJobError(f"the window failed in Spark: {result['error']}")
    window, ranges, plan = job.window, job.ranges, job.window.plan()
    # A batch write has no manifest: what lies there when it has ended with _SUCCESS is its own.
    listing = list_data_files(job.data)
    sink_files = [
        SinkFile(f"{job.attempt}/{path}", size, 0, 0, "_SUCCESS")
        for path, size in sorted(listing.items())
    ]
    files, findings = read_committed_files(window, sink_files, plan["format"], say)
    findings += [*check_duplicates(files), *check_within(ranges, files, f"window {window.key}")]
    gaps = explain_gaps(
        without_held(ranges, files), identity=identity, cluster=cluster, windows={}, acknowledged={}
    )
    bad = errors([*findings, *gap_findings(gaps)])
    if bad:
        raise ManifestInvalidError(
            f"window {window.key} isn't complete: {'; '.join(str(f) for f in bad[:5])}; "
            "run it again"
        )
    return seal_window(
        [(tp, r) for tp in sorted(ranges) for r in ranges[tp]],
        files,
        gaps,
        identity=identity,
        window=window.key,
        replaces=plan["replaces"],
        fingerprint=result["fingerprint"],
        acknowledged=acknowledged,
        sealed_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
    )
