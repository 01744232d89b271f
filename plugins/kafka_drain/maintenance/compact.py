"""Compaction: many small files of closed segments become few large ones, sorted by offset.

    freeze     a window's plan.json: which segments, which files
    write      Spark reads the files and writes new ones, then reads these back
    prove      every offset, count and fingerprint as the old receipts say
    seal       the window's receipt: the moment in which readers change over

Killed before the seal, what was written is a copy that nobody reads, and the next run removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from uuid import uuid4

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.closed_segments import read_closed
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.archive.window import Window
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.sink_options import COMPRESSIONS, PARTITION_COLUMNS
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Reason
from kafka_drain.maintenance.compaction_plan import Compaction, plan_pieces
from kafka_drain.maintenance.compaction_proof import prove_compaction
from kafka_drain.proof.sealed_files import damage_of
from kafka_drain.proof.sealing import Identity, seal_window
from kafka_drain.schemas.decoding import frozen_values
from kafka_drain.spark.job import private_folder
from kafka_drain.spark.job_spec import CompactSpec
from kafka_drain.spark.runner import SparkRunner
from kafka_drain.spark.submit import prepare_application
from kafka_drain.storage.paths import hadoop_path
from kafka_drain.windows.obsolete_files import next_number
from kafka_drain.windows.window_jobs import (
    WindowJob,
    freeze_window,
    now_text,
    read_written,
    refuse_findings,
    seal_superseding,
)

__all__ = [
    "SPARK_CONF",
    "finish_compaction",
    "plan_compactions",
    "prepare_compaction",
    "run_compaction",
]

#: About so many records make a row group of a compacted Parquet file, within bounds in bytes: who
#: wants a range of time or offsets reads the row groups that have some of it.
ROW_GROUP_RECORDS = 20_000
ROW_GROUP_BYTES = (1 << 20, 16 << 20)

#: What Spark is told for a compaction, whatever the pipeline says.
SPARK_CONF = {
    # Rows come folder by folder: one open file at a time.
    "spark.sql.maxConcurrentOutputFileWriters": "0",
    # Else thousands of files are listed by as many tasks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}


def plan_compactions(
    snapshot: Snapshot,
    generations: Iterable[SnapshotGeneration],
    target_bytes: int,
    going: Collection[str] = (),
) -> list[Compaction]:
    """Say which files of closed generations and of windows are worth a compaction; changes nothing.

    Args:
        snapshot: The archive.
        generations: Its closed generations.
        target_bytes: How large a file should be.
        going: Files that are deleted before.

    Raises:
        ReceiptError: When a receipt is damaged.
    """
    closed = read_closed(snapshot, generations, going)
    return [found for segments in closed for found in plan_pieces(segments, target_bytes)]


def run_compaction(
    archive: Archive,
    compaction: Compaction,
    pipeline: Pipeline,
    runner: SparkRunner,
    *,
    run: str,
    say: Callable[[str], None],
) -> Receipt:
    """Write small files as large ones, prove them and seal them; the old files stay.

    Raises:
        SparkJobError: When Spark failed; the next run starts again.
        ManifestInvalidError: When the new files aren't what the old ones were.
        LockedError: When another run has replaced some of the files meanwhile.
        MachineError: When Java, pyspark or a jar is missing.
    """
    with private_folder() as folder:
        job = prepare_compaction(archive, compaction, pipeline, folder)
        job.run(runner)
        return finish_compaction(archive, compaction, job, run=run, say=say)


def prepare_compaction(
    archive: Archive, compaction: Compaction, pipeline: Pipeline, folder: Path
) -> WindowJob:
    """Freeze a compaction's window, and put together what spark-submit needs."""
    piece, snapshot = compaction.piece, archive.snapshot()
    window = Window(archive.root, f"compact_{next_number(snapshot):04d}")
    freeze_window(
        window,
        piece.ranges,
        replaces=piece.replaces,
        file_format=compaction.file_format,
        partition_by=compaction.partition_by,
        replaced=piece.replaced(),
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
        records=sum(piece.records.values()),
        files=compaction.new_files,
        file_format=compaction.file_format,
        writer_options=_writer_options(compaction, pipeline),
        path=hadoop_path(window.data / attempt),
        partition_by=list(compaction.partition_by),
        columns={column: PARTITION_COLUMNS[column] for column in compaction.partition_by},
        log_levels=pipeline.log_levels,
        result_path=str(result_path),
        values=frozen_values(snapshot, pipeline),
    ).write(spec_path)
    application = prepare_application(
        f"compact_{pipeline.name}",
        kind="compact",
        spec_path=spec_path,
        pipeline=pipeline,
        folder=folder,
        fixed=SPARK_CONF,
    )
    return WindowJob(application, result_path, window, piece.ranges, attempt)


def _writer_options(compaction: Compaction, pipeline: Pipeline) -> dict[str, str]:
    """Return the pipeline's options where it still writes this format, else the defaults."""
    file_format, piece = compaction.file_format, compaction.piece
    options = {"compression": COMPRESSIONS[file_format][0]}
    if pipeline.format == file_format:
        options = {"compression": pipeline.compression, **pipeline.sink_options}
        # How small the drain's files are is no measure for these.
        options.pop("maxRecordsPerFile", None)
    if file_format == "parquet":
        # Parquet bounds a row group by its size in memory, which is about that on disk.
        lowest, highest = ROW_GROUP_BYTES
        wanted = piece.bytes * ROW_GROUP_RECORDS // max(1, sum(piece.records.values()))
        options.setdefault("parquet.block.size", str(min(max(wanted, lowest), highest)))
    return options


def finish_compaction(
    archive: Archive,
    compaction: Compaction,
    job: WindowJob,
    *,
    run: str,
    say: Callable[[str], None],
) -> Receipt:
    """Prove that the new files hold what the old receipts say, each once, and seal them."""
    result, files, findings = read_written(job, say)
    snapshot = archive.snapshot()
    piece, window = compaction.piece, job.window
    topics = {name: id_ for receipt in piece.receipts for name, id_ in receipt.topics.items()}
    proof = prove_compaction(
        window.name, piece, job.ranges, files, result["fingerprint"], _deletions(snapshot, topics)
    )
    refuse_findings(window, [*findings, *proof.findings])
    if not proof.is_compared:
        _refuse_changed(archive, compaction)
    document = snapshot.document
    receipt = seal_window(
        [(tp, r) for tp in sorted(job.ranges) for r in job.ranges[tp]],
        files,
        proof.gaps,
        identity=Identity(document.pipeline, document.cluster_id, topics),
        window=window.key,
        replaces=piece.replaces,
        fingerprint=result["fingerprint"],
        acknowledged=[text for receipt in piece.receipts for text in receipt.acknowledged],
        provenance={receipt.where: receipt.sha256 for receipt in piece.receipts},
        sealed_at=now_text(),
    )
    return seal_superseding(archive, window, receipt, run=run, say=say)


def _refuse_changed(archive: Archive, compaction: Compaction) -> None:
    """Refuse what Spark read of files that aren't what was sealed: they are the only evidence.

    Raises:
        ManifestInvalidError: Names them; nothing was sealed, and nothing goes.
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
            f"{Reason.FILE_CHANGED.remedy}. Nothing was sealed"
        )


def _deletions(snapshot: Snapshot, topic_ids: Mapping[str, str]) -> list[Receipt]:
    """Return what retention has deleted of some topics."""
    sealed = (window.receipt for window in snapshot.sealed if window.is_maintained)
    return [r for r in sealed if not r.files and topic_ids.items() >= r.topics.items()]
