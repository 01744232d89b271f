"""The caller's side of a window: plan it, write its spec, prove and seal Spark's result.

Each attempt writes to its own folder: an attempt presumed dead can't change anything that a later
one has sealed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import WindowPlan
from kafka_drain.archive.fold import WindowKind, owner_of
from kafka_drain.archive.generation import list_data_files
from kafka_drain.archive.incarnations import log_ends, offsets_in_log
from kafka_drain.archive.index import Query
from kafka_drain.archive.index_files import add_to_index
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.keys import keys_for_writing
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.segment_overlaps import claims_of, find_overlaps
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.soundness import SealedState, note_of_window, refuse_unsound, restricted
from kafka_drain.archive.topic_settings import noted_compaction
from kafka_drain.archive.window import Window, range_rows
from kafka_drain.clock import now_text, utc_now
from kafka_drain.config.offset_ranges import NOTHING, Accepted, range_name
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.sink_options import partition_columns
from kafka_drain.config.source_options import reader_options
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.errors import ArchiveError, ConfigError, LockedError, ManifestInvalidError
from kafka_drain.findings import Finding, Reason, errors
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import is_other_cluster
from kafka_drain.kafka.topic_watch import TopicWatch
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import (
    OffsetRange,
    Ranges,
    TopicPartition,
    count,
    merge,
    overlapping,
    subtract,
    to_spark_json,
)
from kafka_drain.output import Level, Line, say
from kafka_drain.proof.committed_files import read_committed_files
from kafka_drain.proof.content_checks import Tally, compare_content, content_of, difference
from kafka_drain.proof.gap_explanation import explain_gaps, gap_findings
from kafka_drain.proof.offset_checks import check_duplicates, check_within, without_held
from kafka_drain.proof.replacement import refuse_unequal
from kafka_drain.proof.sealed_files import NOT_DEEP
from kafka_drain.proof.sealing import Identity, seal_window
from kafka_drain.proof.topic_ids import refuse_other_incarnations
from kafka_drain.proof.window_checks import check_files, refuse_fewer
from kafka_drain.schemas.decoding import frozen_values
from kafka_drain.spark.job import SparkJob
from kafka_drain.spark.job_errors import too_far_records, unread_partitions
from kafka_drain.spark.job_spec import WindowSpec, read_result
from kafka_drain.spark.poll_sizes import poll_options, records_polled
from kafka_drain.spark.submit import for_offsets, kafka_options, prepare_application
from kafka_drain.storage.json_files import create_document
from kafka_drain.storage.lease import Lease, wait_for_lease
from kafka_drain.storage.object_retention import retain
from kafka_drain.storage.paths import hadoop_path, quoted, sync_files

_NOTHING: Ranges = MappingProxyType({})


@dataclass(frozen=True)
class WindowJob(SparkJob):
    """A window that is ready to be written by Spark.

    Attributes:
        plan: Its `plan.json`, which is written once.
        attempt: Name of this attempt's folder.
        cluster: The Kafka cluster to drain from; None if other files are read.
        erased: Those of its offsets whose records were erased: they are left out.
    """

    what = "window"

    window: Window
    plan: WindowPlan
    ranges: Ranges
    attempt: str
    cluster: KafkaCluster | None = None
    erased: Ranges = field(default_factory=dict)

    @property
    def data(self) -> UPath:
        """The folder of this attempt's files, or of an earlier attempt's that was followed."""
        followed = (read_result(self.result_path) or {}).get("attempt")
        return self.window.data / (followed or self.attempt)

    def watch(self) -> TopicWatch | None:
        """Return the topics that are read from Kafka."""
        if self.cluster is None:
            return None
        return TopicWatch(
            self.cluster,
            # A window's plan has no ids; those of the archive are compared before it is sealed.
            self.cluster.ids_of({tp.topic for tp in self.ranges}),
            f"while window {self.window.key} was being read from it. The window isn't sealed, and "
            "what it was to hold went with the topic; find out who deleted it",
        )

    def too_far(self) -> list[str]:
        """Name the records with a timestamp that Spark can't represent."""
        return too_far_records(self.cluster, self.ranges) if self.cluster else []

    def unread(self, offset: int) -> list[str]:
        """Name the partitions that don't deliver an offset."""
        return unread_partitions(self.cluster, self.ranges, offset) if self.cluster else []


def open_window(
    archive: Archive, key: str, ranges: Ranges, *, pipeline: Pipeline, replaces: Sequence[str]
) -> Window:
    """Freeze a window's plan, or reuse a window with the same plan that was never sealed.

    Args:
        key: Name for a new window, with a number after it if another window has it.
        ranges: Its offsets, sorted and disjoint for each partition.
        pipeline: Settings for writing files.
        replaces: Damaged files, relative to the archive, that it replaces.
    """
    plan = _plan(ranges, replaces, pipeline.format, pipeline.partition_by)
    begun = archive.snapshot().continuing(plan, WindowKind.REPAIR)
    if begun is not None:
        return Window(archive.root, begun.key)
    window, number = Window(archive.root, key), 1
    while not _create(window, {"kind": WindowKind.REPAIR.value} | plan):
        number += 1
        window = Window(archive.root, f"{key}_{number}")
    return window


def freeze_window(
    window: Window,
    ranges: Ranges,
    *,
    kind: WindowKind,
    replaces: Sequence[str],
    file_format: str,
    partition_by: Sequence[str],
    **more: Any,
) -> bool:
    """Write a window's `plan.json` if it has none: of several attempts, the first one counts.

    Args:
        ranges: Its offsets, sorted and disjoint for each partition.
        kind: Why it is written.
        replaces: Files, relative to the archive, that it replaces.
        partition_by: Partition columns of its folders.
        more: Further content of the plan, as JSON types.

    Returns:
        False if it already has a plan.
    """
    plan = _plan(ranges, replaces, file_format, partition_by)
    return _create(window, {"kind": kind.value} | more | plan)


def _plan(
    ranges: Ranges, replaces: Sequence[str], file_format: str, partition_by: Sequence[str]
) -> dict[str, Any]:
    return {
        "ranges": range_rows(ranges),
        "replaces": sorted(replaces),
        "format": file_format,
        "partition_by": list(partition_by),
    }


def _create(window: Window, plan: dict[str, Any]) -> bool:
    return create_document(window.folder / "plan.json", plan | {"opened_at": now_text()})


def prepare_window(
    window: Window, ranges: Ranges, *, pipeline: Pipeline, cluster: KafkaCluster, folder: Path
) -> WindowJob:
    """Write the job spec of a window and assemble the arguments of spark-submit.

    Args:
        window: The window, whose plan says how files are written.
        ranges: The offsets to drain, sorted and disjoint for each partition.
        pipeline: Settings for reading and writing.
        cluster: The Kafka cluster to drain from.
        folder: A private folder of this run (mode 0700) for the spec and the secrets.

    Raises:
        MachineError: When Java, pyspark or a jar is missing.
    """
    spec_path, result_path = folder / "window.json", folder / "result.json"
    connection, secrets_path = kafka_options(cluster.config, folder)
    plan, attempt = window.read_plan(), uuid.uuid4().hex[:8]
    partitions: dict[str, list[int]] = {}
    for tp in ranges:
        partitions.setdefault(tp.topic, []).append(tp.partition)
    bounds = {
        "assign": json.dumps(partitions),
        "startingOffsets": to_spark_json({tp: rs[0].start for tp, rs in ranges.items()}),
        "endingOffsets": to_spark_json({tp: rs[-1].end for tp, rs in ranges.items()}),
        "failOnDataLoss": "true",
    }
    if pipeline.encryption is not None and plan.format != "parquet":
        raise ConfigError(
            f"window {window.key} was begun in format {plan.format}, which isn't encrypted, but "
            "the pipeline has `encryption`; remove the window's folder, which isn't sealed, and "
            "run this again"
        )
    offsets = sum(count(rs) for rs in ranges.values())
    snapshot = Archive(window.root).snapshot()
    erased = _erased(snapshot, ranges)
    spec = WindowSpec(
        window=window.key,
        offsets=offsets,
        reader_options={
            **reader_options(pipeline.source_options, pipeline.name, is_bounded=True),
            **bounds,
            **connection,
        },
        ranges=_selected(ranges),
        file_format=plan.format,
        poll_options=poll_options(cluster, ranges, pipeline.source_options),
        writer_options=pipeline.writer_options,
        path=hadoop_path(window.data / attempt),
        partition_by=plan.partition_by,
        columns=partition_columns(plan.partition_by),
        log_levels=pipeline.log_levels,
        result_path=str(result_path),
        secrets_path=secrets_path,
        values=frozen_values(snapshot, pipeline),
        erased=range_rows(erased),
        encryption=keys_for_writing(window.root, pipeline.encryption),
    )
    spec.write(spec_path)
    application = prepare_application(
        f"window_{pipeline.name}",
        kind="window",
        spec_path=spec_path,
        pipeline=pipeline,
        folder=folder,
    )
    application = for_offsets(application, offsets)
    return WindowJob(
        application,
        result_path,
        window,
        plan,
        ranges,
        attempt,
        cluster,
        erased,
        polled=records_polled(spec.source_options),
    )


def _erased(snapshot: Snapshot, ranges: Ranges) -> dict[TopicPartition, list[OffsetRange]]:
    """Return those of some offsets whose records were erased: Kafka may still have them."""
    # The index names no window that has erased something.
    fold = restricted(snapshot, Query()).fold
    log = log_ends(snapshot, snapshot.topics_now, ranges) if fold.erased else {}
    held = offsets_in_log(fold.erased, log)
    found = {
        tp: [erased for r in rs for erased in overlapping(held.get(tp, ()), r)]
        for tp, rs in ranges.items()
    }
    return {tp: merge(rs) for tp, rs in found.items() if rs}


def _selected(ranges: Ranges) -> list[dict[str, Any]]:
    """Return the offsets to select among those that are read; none if they are the same."""
    is_exact = all(len(rs) == 1 for rs in ranges.values())
    return [] if is_exact else range_rows(ranges)


def seal_superseding(archive: Archive, window: Window, receipt: Receipt, *, run: str) -> Receipt:
    """Take the lease of `windows`, and seal a window; raises the errors of `seal_proven`."""
    with wait_for_lease(archive.root / "windows", run=run) as lease:
        return seal_proven(archive, window, receipt, lease)


def seal_proven(archive: Archive, window: Window, receipt: Receipt, lease: Lease) -> Receipt:
    """Write a window's receipt and note it; if another attempt was faster, its receipt counts.

    Args:
        lease: That of `windows`, which the caller holds.

    Raises:
        ManifestInvalidError: When something sealed is missing or changed, or the window's files
            were removed.
        LockedError: When another run has replaced some of the same files, or sealed some of the
            same offsets, in the meantime: readers would get records twice. A retry plans again.
            Also when the lease has expired, so that another run may be doing so.
    """
    state = refuse_taken(archive.snapshot(), receipt)
    paths = [file.path for file in receipt.files]
    sync_files(archive.root, paths)
    locks = state.snapshot.document.immutability
    retention = retain(archive.root, paths, locks, now=utc_now())
    # Suspended, this process may have been taken for dead, and its window have been removed.
    refuse_findings(window, check_files(window, receipt, deep=NOT_DEEP))
    lease.confirm()
    window.write_receipt(replace(receipt, journal=state.journal.newest).sealed(), retention)
    sealed = window.read_receipt()
    note_sealed(archive.root, state.there.plus(note_of_window(state.snapshot, window, sealed)))
    add_to_index(state.snapshot, window, sealed)
    return sealed


def refuse_taken(snapshot: Snapshot, receipt: Receipt) -> SealedState:
    """Refuse a window with offsets of another segment, unless it is sealed already.

    Changes nothing.

    Args:
        snapshot: The archive.
        receipt: The window's receipt; not written yet.

    Raises:
        ManifestInvalidError: When something sealed is missing or changed.
        LockedError: As `seal_proven` does.
    """
    state = refuse_unsound(snapshot, filling=True, query=_claimed(receipt))
    if not state.snapshot.is_sealed(receipt.window):
        _refuse_replaced(state, receipt)
        _refuse_overlap(state, receipt)
    return state


def _claimed(receipt: Receipt) -> Query:
    """Return the query for the segments that decide whether a window may be sealed.

    That is the window itself, what covers some of its offsets, the owners of the files that it
    replaces, and whoever else replaces files of all these.
    """
    offsets: dict[TopicPartition, list[OffsetRange]] = {}
    for part in receipt.partitions:
        offsets.setdefault(part.tp, []).append(part.range)
    return Query(
        offsets={tp: merge(ranges) for tp, ranges in offsets.items()},
        names=frozenset([f"windows/{receipt.window}", *map(owner_of, receipt.replaces)]),
        claimed=True,
    )


def _refuse_replaced(state: SealedState, receipt: Receipt) -> None:
    """Refuse a window if another one has replaced some of the same files, or was replaced."""
    key, snapshot = receipt.window, state.snapshot
    for other, files in snapshot.fold.taken(receipt.replaces).items():
        raise LockedError(
            f"window {key}: window {other} has replaced {len(files):,} of the same files in the "
            f"meantime, such as {min(files)}; nothing was sealed here"
        )
    removed = [
        path
        for path in receipt.replaces
        if path.startswith("windows/") and not snapshot.is_sealed(owner_of(path).split("/")[1])
    ]
    if removed:
        raise LockedError(
            f"window {key}: the window of {min(removed)} was replaced in the meantime; nothing "
            "was sealed here"
        )


def _refuse_overlap(state: SealedState, receipt: Receipt) -> None:
    """Refuse a window that overlaps a segment sealed after the window was planned."""
    overlaps = find_overlaps(claims_of(state.newest.values(), [*state.windows, receipt]))
    if overlaps:
        raise LockedError(
            f"window {receipt.window}: another run has sealed some of its offsets in the meantime "
            f"({'; '.join(f'{f.where} {f.detail}' for f in overlaps[:3])}); nothing was sealed "
            "here, a retry plans again"
        )


def prove_window(
    job: WindowJob,
    cluster: KafkaCluster,
    identity: Identity,
    acknowledged: Sequence[str] = (),
    accepts: Ranges = _NOTHING,
    *,
    held: Mapping[TopicPartition, int] = MappingProxyType({}),
    replaceable: Accepted = NOTHING,
    way_out: str = "",
) -> Receipt:
    """Prove Spark's result for a window, and return its receipt without writing it.

    If it replaces files, each of their records must be in it, with the same content.

    Args:
        job: The finished job.
        cluster: The Kafka cluster in which gaps are looked up.
        identity: The pipeline, cluster and topics that the offsets belong to.
        acknowledged: Expired ranges outside the window that the user has accepted.
        accepts: Offsets that the user accepts if they are gone, expired or unexplained.
        held: Number of records in the intact files that it replaces, by partition.
        replaceable: Offsets at which the user accepts other records than the replaced files'.
        way_out: The way out if the files can't be replaced; ends the error message.

    Raises:
        ConfigError: When a range isn't in that form.
        DataLossError: When Kafka has fewer records than the files, or other ones.
        SparkJobError: When the job failed, or ended without a result.
        ManifestInvalidError: When offsets of the window are missing or duplicated.
        ArchiveError: When the connection now leads to another cluster.
        TopicError: When a topic was recreated after the window was planned.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    window, ranges, plan = job.window, job.ranges, job.plan
    result, files, findings = read_written(job)
    _refuse_other_incarnations(job, cluster, identity)
    noted = noted_compaction(window.root, identity.topics)
    left = {
        tp: [rest for r in rs for rest in subtract(r, overlapping(job.erased.get(tp, ()), r))]
        for tp, rs in ranges.items()
    }
    # Kafka may still have them; a file with one would bring it back. What is erased meanwhile is
    # refused when the window is sealed, as both would hold the same offsets.
    findings += check_within(left, files, f"window {window.key}, without erased offsets,")
    gaps = explain_gaps(
        without_held(ranges, files),
        identity=identity,
        cluster=cluster,
        windows={},
        acknowledged=accepts,
        erased=job.erased,
        compacted={name: was for name, was in noted.was.items() if was},
        compacted_until=noted.ends,
    )
    refuse_findings(window, [*findings, *gap_findings(gaps)])
    receipt = seal_window(
        [(tp, r) for tp in sorted(ranges) for r in ranges[tp]],
        files,
        gaps,
        identity=identity,
        window=window.key,
        replaces=plan.replaces,
        fingerprint=result["fingerprint"],
        acknowledged=[
            *acknowledged,
            *(range_name(gap.tp, gap.range) for gap in gaps if gap.acknowledged),
        ],
        sealed_at=now_text(),
    )
    refuse_fewer(window, receipt, held, way_out)
    return _compared(receipt, window, plan.format, job.erased, replaceable, way_out)


def _compared(
    receipt: Receipt,
    window: Window,
    file_format: str,
    erased: Ranges,
    accepted: Ranges,
    way_out: str,
) -> Receipt:
    """Compare a window's records with those of the files that it replaces, and note differences.

    Raises:
        DataLossError: When a record differs that the user hasn't accepted.
    """
    snapshot = Archive(window.root).snapshot()
    # A faster attempt has been compared, and may have removed the files by now.
    if not receipt.replaces or snapshot.is_sealed(window.key):
        return receipt
    # Not at the top: few windows replace files, and importing pyarrow takes a while.
    from kafka_drain.proof.replaced_files import compare_replaced

    found = compare_replaced(snapshot, receipt, file_format, erased)
    refuse_unequal(window.key, found.but(accepted), way_out)
    for name in found.names:
        say(
            Line(
                f"window {window.key}: WARNING {name} is replaced by what Kafka holds now, as "
                "accepted; it isn't, or can't be proven to be, what was archived",
                Level.WARNING,
            )
        )
    return replace(receipt, changed=found.names)


def _refuse_other_incarnations(job: WindowJob, cluster: KafkaCluster, identity: Identity) -> None:
    """Refuse the records unless cluster and topics are still those of the plan."""
    cluster_id = cluster.cluster_id()
    if is_other_cluster(identity.cluster_id, cluster_id):
        raise ArchiveError(
            f"window {job.window.key} belongs to Kafka cluster {identity.cluster_id}, but the "
            f"connection leads to {cluster_id}; nothing was sealed: correct the connection"
        )
    meant = {tp.topic: identity.topics.get(tp.topic, "") for tp in job.ranges}
    refuse_other_incarnations(
        cluster,
        meant,
        f"window {job.window.key} isn't sealed. If the topic was recreated, `kafka-drain roll "
        f"{quoted(job.window.root)}` starts a generation at its beginning",
    )


def read_written(job: WindowJob) -> tuple[dict[str, Any], list[CommittedFile], list[Finding]]:
    """Read the files that Spark wrote to a window.

    Args:
        job: The finished job.

    Returns:
        The job's result, the content of the files, and findings: unreadable files, offsets that
        are duplicated or outside the window, records that differ from what Spark read.

    Raises:
        DataLossError: When Kafka no longer held offsets that the job needed.
        SourceRecordError: When a record can't be preserved as it was sent; names it.
        SparkJobError: When the job failed otherwise, or ended without a result.
    """
    result = job.result()
    # A batch write has no manifest: after _SUCCESS, every file in its folder was written by it.
    listing = list_data_files(job.data)
    sink_files = [
        SinkFile(f"{job.data.name}/{path}", size, 0, 0, "_SUCCESS")
        for path, size in sorted(listing.items())
    ]
    window = job.window
    files, findings = read_committed_files(window, sink_files, job.plan.format)
    who = f"window {window.key}"
    findings += [*check_duplicates(files), *check_within(job.ranges, files, who)]
    if not errors(findings):
        findings += _check_content(window, result, files)
    return result, files, findings


def _check_content(
    window: Window, result: Mapping[str, Any], files: Sequence[CommittedFile]
) -> list[Finding]:
    """Compare the records in a window's files with those that Spark read."""
    if locked := [file for file in files if file.locked]:
        detail = f"{len(locked):,} files couldn't be compared: {locked[0].locked}"
        return [Finding(Reason.KEY_UNAVAILABLE, window.name, detail)]
    read, held = Tally(result["records"], result["fingerprint"]), content_of(files)
    verdict = compare_content(read, held)
    if verdict.may_be_sealed:
        return []
    return [Finding(Reason.CONTENT_CHANGED, window.name, difference(verdict, read, held))]


def refuse_findings(window: Window, findings: Iterable[Finding]) -> None:
    """Refuse to seal a window with errors.

    Raises:
        ManifestInvalidError: Names the errors.
    """
    bad = errors(findings)
    if bad:
        raise ManifestInvalidError(
            f"window {window.key} isn't complete: {'; '.join(str(f) for f in bad[:5])}; "
            "run it again"
        )
