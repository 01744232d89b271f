"""Compact many small files of closed segments into few large ones, sorted by offset.

    freeze     a window's plan.json: which segments, which files
    write      Spark reads the files, writes new ones, then reads these back
    prove      every offset, count and fingerprint matches the old receipts
    seal       the window's receipt: readers switch over at the moment it is written

If killed before the seal, the new files are unused copies, which the next run removes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.closed_segments import read_closed
from kafka_drain.archive.fold import WindowKind, owner_of
from kafka_drain.archive.keys import keys_for_writing
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.archive.window import Window, range_rows
from kafka_drain.clock import now_text
from kafka_drain.config.offset_ranges import parse_ranges, range_name
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.sink_options import COMPRESSIONS, partition_columns
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import unlock
from kafka_drain.encryption.data_keys import data_key, read_keys
from kafka_drain.errors import (
    KEY_ERRORS,
    KeyUnavailableError,
    LockedError,
    ManifestInvalidError,
)
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.maintenance.compaction_plan import (
    Compaction,
    Gaps,
    known_gaps,
    plan_groups,
    split_gaps,
)
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge, overlapping
from kafka_drain.proof.erased_records import LOST_KEY
from kafka_drain.proof.offset_checks import without_held
from kafka_drain.proof.sealed_files import damage_of
from kafka_drain.proof.sealing import Identity, seal_window
from kafka_drain.republish.planning.documents import ThroughJson
from kafka_drain.republish.planning.follow import followers, has_sent
from kafka_drain.schemas.decoding import frozen_values
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.job import private_folder
from kafka_drain.spark.job_spec import CompactSpec
from kafka_drain.spark.submit import prepare_application
from kafka_drain.storage.paths import hadoop_path
from kafka_drain.windows.rewrite_groups import FileGroup
from kafka_drain.windows.window_jobs import (
    WindowJob,
    freeze_window,
    read_written,
    refuse_findings,
    seal_superseding,
)

#: Approximate number of records in a row group of a compacted Parquet file, within bounds in
#: bytes: a query for a range of time or offsets reads only the row groups that overlap it.
ROW_GROUP_RECORDS = 20_000
ROW_GROUP_BYTES = (1 << 20, 16 << 20)
#: Option that sizes the Bloom filter of a row group.
KEYS_IN_ROW_GROUP = "parquet.bloom.filter.expected.ndv#key"

#: Spark settings of a compaction; they override the pipeline's.
SPARK_CONF = {
    # Rows arrive folder by folder, so one open file at a time is enough.
    "spark.sql.maxConcurrentOutputFileWriters": "0",
    # Otherwise thousands of files are listed by as many tasks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}


def plan_compactions(
    snapshot: Snapshot,
    generations: Iterable[SnapshotGeneration],
    target_bytes: int,
    going: Collection[str] = (),
) -> list[Compaction]:
    """Plan the compaction of closed generations and windows, without changing anything.

    Args:
        snapshot: The archive.
        generations: Its closed generations.
        target_bytes: Target size of a file.
        going: Files that are deleted first.

    Raises:
        ReceiptError: When a receipt is damaged.
    """
    closed = read_closed(snapshot, generations, going)
    return [found for segments in closed for found in plan_groups(segments, target_bytes)]


def run_compaction(
    archive: Archive, compaction: Compaction, pipeline: Pipeline, runner: SparkRunner, *, run: str
) -> Receipt:
    """Rewrite small files as large ones, prove and seal these; the old files stay.

    Raises:
        SparkJobError: When Spark failed; the next run starts again.
        ManifestInvalidError: When the new files' content differs from the old files'.
        LockedError: When another run has replaced some of the files in the meantime, or a follower
            has sent only some of them.
        MachineError: When Java, pyspark or a jar is missing.
    """
    with private_folder() as folder:
        job = prepare_compaction(archive, compaction, pipeline, folder)
        job.run(runner)
        return finish_compaction(archive, compaction, job, run=run)


def prepare_compaction(
    archive: Archive, compaction: Compaction, pipeline: Pipeline, folder: Path
) -> WindowJob:
    """Freeze a compaction's window, and assemble the arguments of spark-submit."""
    group, snapshot = compaction.group, archive.snapshot()
    # Before the window is frozen, which a missing key would leave behind.
    refuse_locked(archive, compaction)
    encryption = keys_for_writing(archive.root, pipeline.encryption)
    window = Window(archive.root, f"{compaction.kind.value}_{snapshot.next_number:04d}")
    freeze_window(
        window,
        group.ranges,
        kind=compaction.kind,
        replaces=group.replaces,
        file_format=compaction.file_format,
        partition_by=compaction.partition_by,
        replaced=group.replaced(),
        **compaction.plan,
    )
    attempt = uuid4().hex[:8]
    spec_path, result_path = folder / "compact.json", folder / "result.json"
    sources: dict[tuple[str, str], list[str]] = {}
    for file in compaction.files:
        source = sources.setdefault((hadoop_path(file.owner.data), file.file_format), [])
        source.append(hadoop_path(archive.root / file.path))
    CompactSpec(
        window=window.key,
        sources=[
            {"data_folder": data_folder, "file_format": file_format, "files": files}
            for (data_folder, file_format), files in sources.items()
        ],
        records=sum(group.records.values()),
        files=compaction.new_files,
        file_format=compaction.file_format,
        writer_options=_writer_options(compaction, pipeline),
        path=hadoop_path(window.data / attempt),
        erased=range_rows(compaction.erased),
        partition_by=list(compaction.partition_by),
        columns=partition_columns(compaction.partition_by),
        log_levels=pipeline.log_levels,
        result_path=str(result_path),
        values=frozen_values(snapshot, pipeline),
        encryption=encryption if compaction.file_format == "parquet" else None,
    ).write(spec_path)
    application = prepare_application(
        f"compact_{pipeline.name}",
        kind="compact",
        spec_path=spec_path,
        pipeline=pipeline,
        folder=folder,
        fixed=SPARK_CONF,
    )
    return WindowJob(application, result_path, window, window.read_plan(), group.ranges, attempt)


def refuse_locked(archive: Archive, compaction: Compaction) -> None:
    """Refuse files that can't be read, as their master key can't be had; it may be lost for others.

    Raises:
        KeyUnavailableError: Names the first of them, and what to do.
        KmsUnavailableError: When a KMS doesn't answer, or is sealed or too busy.
    """
    try:
        for id_ in read_keys(archive.root):
            # It remembers a KMS that is silent, which each group would wait for.
            data_key(archive.root, id_)
    except KEY_ERRORS:
        # Only now: opening thousands of files takes long.
        for file in compaction.files:
            try:
                unlock(archive.root / file.path)
            except KeyUnavailableError as error:
                raise KeyUnavailableError(
                    f"{compaction.name}: {file.path} can't be written again: {error}. {LOST_KEY}"
                ) from error


def _writer_options(compaction: Compaction, pipeline: Pipeline) -> dict[str, str]:
    """Return the pipeline's options if it still writes this format, otherwise the defaults."""
    file_format, group = compaction.file_format, compaction.group
    options = {"compression": COMPRESSIONS[file_format][0]}
    if pipeline.format == file_format:
        options = {"compression": pipeline.compression, **pipeline.sink_options}
        # Numbers chosen for the drain's files and row groups don't suit compacted ones.
        options.pop("maxRecordsPerFile", None)
        options.pop(KEYS_IN_ROW_GROUP, None)
    if file_format == "parquet":
        block = options.get("parquet.block.size")
        options = row_groups(group.bytes, sum(group.records.values()), block) | options
    return options


def row_groups(size: int, records: int, block: str | None = None) -> dict[str, str]:
    """Return options for the row groups of compacted Parquet files.

    Besides their size, Bloom filters on keys: nearly free here, where nobody waits and the number
    of keys is known. Parquet leaves out those of row groups whose keys are all in a dictionary,
    because they repeat.

    Args:
        size: Number of bytes of the files that are compacted.
        records: Number of their records.
        block: The size of a row group in bytes, if the pipeline names one.
    """
    # Parquet limits a row group by its size in memory, which is close to its size on disk.
    lowest, highest = ROW_GROUP_BYTES
    wanted = min(max(size * ROW_GROUP_RECORDS // max(1, records), lowest), highest)
    # As many as a row group has records, if it is full; if there is only one, as all have.
    keys = min(records, int(block or wanted) * records // max(1, size))
    return {
        "parquet.block.size": block or str(wanted),
        "parquet.bloom.filter.enabled#key": "true",
        KEYS_IN_ROW_GROUP: str(max(1, keys)),
    }


def finish_compaction(
    archive: Archive, compaction: Compaction, job: WindowJob, *, run: str
) -> Receipt:
    """Prove that the new files hold the records of the old receipts, each once, and seal them."""
    result, files, findings = read_written(job)
    snapshot = archive.snapshot()
    group, window = compaction.group, job.window
    topics = {name: id_ for receipt in group.receipts for name, id_ in receipt.topics.items()}
    proof = prove_compaction(
        window.name,
        group,
        job.ranges,
        files,
        _all_read(result) if compaction.erased else result["fingerprint"],
        _with_topics(snapshot, WindowKind.RETENTION, topics),
        compaction.erased,
        is_as_read=not _holds_others(snapshot, compaction),
        repairs=_with_topics(snapshot, WindowKind.REPAIR, topics),
    )
    refuse_findings(window, [*findings, *proof.findings])
    if not proof.is_compared:
        _refuse_changed(archive, compaction)
    if who := half_sent(followers(archive), group):
        raise LockedError(
            f"{compaction.name} isn't compacted: follower {who} has sent only some of its segments "
            "since this was planned. Nothing was sealed; a retry plans again"
        )
    document = snapshot.document
    receipt = seal_window(
        [(tp, r) for tp in sorted(job.ranges) for r in job.ranges[tp]],
        files,
        proof.gaps,
        identity=Identity(document.pipeline, document.cluster_id, topics),
        window=window.key,
        replaces=group.replaces,
        fingerprint=result["fingerprint"],
        acknowledged=[
            *(text for receipt in group.receipts for text in receipt.acknowledged),
            *(range_name(gap.tp, gap.range) for gap in proof.gaps if gap.acknowledged),
        ],
        provenance={each.where: each.sha256 for each in (*group.receipts, *proof.repairs)},
        sealed_at=now_text(),
    )
    return seal_superseding(archive, window, receipt, run=run)


def half_sent(sent: Iterable[tuple[str, ThroughJson]], group: FileGroup) -> str:
    """Return the followers that have sent a part of a group: they send large files whole or not.

    Args:
        sent: The result of `followers`.
    """
    halves = {
        name
        for name, through in sent
        if len({has_sent(through, receipt) for receipt in group.receipts}) > 1
    }
    return ", ".join(sorted(halves))


def _all_read(result: Mapping[str, Any]) -> str:
    """Return the fingerprint of all records that Spark read, including those to be erased."""
    return f"{int(result['fingerprint'], 16) ^ int(result['erased']['fingerprint'], 16):016x}"


def _refuse_changed(archive: Archive, compaction: Compaction) -> None:
    """Refuse if a file that Spark read has changed since it was sealed: no other evidence exists.

    Raises:
        ManifestInvalidError: Names the files; nothing was sealed, and nothing is removed.
    """
    found = [
        damage_of(archive.root, file.sealed, file.sealed.bytes, deep=True)
        for file in compaction.files
        if file.sealed is not None
    ]
    changed = [str(finding) for finding in found if finding is not None]
    if changed:
        raise ManifestInvalidError(
            f"{compaction.name} isn't compacted: {'; '.join(changed[:5])}. What to do: "
            f"{Reason.FILE_CHANGED.remedy_of(archive.root)}. Nothing was sealed"
        )


def _with_topics(
    snapshot: Snapshot, kind: WindowKind, topic_ids: Mapping[str, str]
) -> list[Receipt]:
    """Return the receipts of windows of a kind, with the given topics only.

    One of them may have other topics too: a repair's files stand for several segments.
    """
    found = []
    for receipt in (window.receipt for window in snapshot.fold.of_kind(kind)):
        topics = dict(receipt.topics.items() & topic_ids.items())
        parts = tuple(part for part in receipt.partitions if part.tp.topic in topics)
        found.append(replace(receipt, topics=topics, partitions=parts))
    return found


def _holds_others(snapshot: Snapshot, compaction: Compaction) -> bool:
    """Return whether repairs may have put other records in the place of those that Spark read.

    Somebody has accepted that; or an earlier release, which compared numbers only, has sealed them.
    """
    repairs = {window.name: window.receipt for window in snapshot.fold.of_kind(WindowKind.REPAIR)}
    asked = {file.owner.name for file in compaction.files} & repairs.keys()
    seen = set[str]()
    while asked:
        if any(repairs[name].changed != () for name in asked):
            return True
        seen |= asked
        before = {owner_of(path) for name in asked for path in repairs[name].replaces}
        asked = (before & repairs.keys()) - seen
    return False


@dataclass(frozen=True)
class CompactionProof:
    """The result of checking a compaction's files.

    Attributes:
        gaps: Offsets that they don't hold, with the reasons that older receipts have sealed.
        findings: Differences; if there are any, nothing is sealed.
        is_compared: Whether the records were compared with what Spark read from Kafka. If not,
            only the old files' own hashes can prove that they are what was sealed.
        repairs: The receipts of repairs that say of some of the gaps why.
    """

    gaps: list[Gap]
    findings: list[Finding]
    is_compared: bool
    repairs: Sequence[Receipt] = ()


def prove_compaction(
    name: str,
    group: FileGroup,
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
    files: Sequence[CommittedFile],
    fingerprint: str,
    deletions: Iterable[Receipt] = (),
    erased: Mapping[TopicPartition, Sequence[OffsetRange]] = MappingProxyType({}),
    *,
    is_as_read: bool = True,
    repairs: Iterable[Receipt] = (),
) -> CompactionProof:
    """Compare a compaction's files with the receipts of the segments they replace.

    Each offset of the segments must be in a new file or in a gap that was sealed before. The new
    files must hold the same number of records of each partition as the old files, and their
    fingerprint must be the one that Spark computed when it read them from Kafka, if it did. An
    erasure's files hold none of the erased records, and all others: each erased record is one that
    the old files held, and its fingerprint combines with that of the others to the same one.

    Args:
        name: The window, for the findings.
        group: The group of segments that was compacted.
        ranges: The window's offsets, sorted and disjoint for each partition.
        files: The new files.
        fingerprint: The fingerprint of their records, combined with that of erased ones.
        deletions: Receipts of what retention has deleted, of topics with the same ids.
        erased: The offsets of the records that are erased, sorted and disjoint.
        is_as_read: Whether the old files hold what was read when the segments were sealed, as far
            as anybody knows.
        repairs: Receipts of repairs, of topics with the same ids: what was lost of damaged files,
            and that somebody has accepted it.
    """
    absent = without_held(ranges, files)
    gone, rest = split_gaps(absent, {tp: {GapReason.ERASED: rs} for tp, rs in erased.items()})
    gaps, rest = split_gaps(rest, known_gaps([*group.receipts, *deletions]))
    repairs = list(repairs)
    accepted, rest = split_gaps(rest, _accepted(repairs))
    gaps += [replace(gap, acknowledged=True) for gap in accepted]
    others, lost = split_gaps(rest, known_gaps(repairs))
    gaps += others
    findings = []
    records: dict[TopicPartition, int] = {}
    for file in files:
        for content in file.contents:
            records[content.tp] = records.get(content.tp, 0) + content.records
    for tp in sorted({*records, *group.records}):
        new, old = records.get(tp, 0), group.records.get(tp, 0)
        going = count(erased.get(tp, ()))
        if new + going != old:
            detail = f"holds {new:,} records, the old files held {old:,}"
            detail += f", of which {going:,} were to be erased" if going else ""
            findings.append(Finding(Reason.CONTENT_CHANGED, f"{name} {tp}", detail))
    for tp, missing in lost.items():
        detail = f"{', '.join(map(str, missing[:3]))} is in no new file, and wasn't a gap before"
        findings.append(Finding(Reason.OFFSET_MISSING, tp, detail))
    held = sum(group.records.values())
    sealed = sealed_fingerprint(group.receipts, held) if is_as_read else None
    if sealed is not None and fingerprint != sealed:
        detail = f"its records have fingerprint {fingerprint}, Spark read {sealed}"
        findings.append(Finding(Reason.CONTENT_CHANGED, name, detail))
    said = [*accepted, *others]
    used = [
        repair
        for repair in repairs
        if any(
            overlapping(ranges, gap.range)
            for gap in said
            for each in (_accepted([repair]), known_gaps([repair]))
            for ranges in each.get(gap.tp, {}).values()
        )
    ]
    return CompactionProof([*gone, *gaps], findings, sealed is not None, used)


def _accepted(repairs: Iterable[Receipt]) -> Gaps:
    """Return the offsets of damaged files that somebody has accepted as lost."""
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for receipt in repairs:
        for tp, ranges in parse_ranges("acknowledged", receipt.acknowledged).items():
            if tp.topic in receipt.topics:
                found.setdefault(tp, []).extend(ranges)
    return {tp: {GapReason.EXPIRED: merge(ranges)} for tp, ranges in found.items()}


def sealed_fingerprint(receipts: Iterable[Receipt], records: int) -> str | None:
    """Return the combined fingerprint of segments; None if it isn't known for exactly these.

    Args:
        receipts: The segments' receipts.
        records: Number of their records that readers get; fewer if retention has deleted some.
    """
    value = held = 0
    for receipt in receipts:
        if receipt.fingerprint is None or _is_repaired(receipt):
            return None
        value ^= int(receipt.fingerprint, 16)
        held += receipt.records
    return f"{value:016x}" if held == records else None


def _is_repaired(receipt: Receipt) -> bool:
    """Whether a window already held part of a segment when it was sealed."""
    return any(part.gaps.get(GapReason.WINDOW) for part in receipt.partitions)
