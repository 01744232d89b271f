"""A summary of an archive from documents, manifest, checkpoint and receipts, without its data."""

from __future__ import annotations

from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration


def inspect_archive(archive: Archive) -> dict[str, Any]:
    """Describe an archive.

    Returns:
        archive, pipeline, cluster_id, generations, each with its partitions, and sealed windows.

    Raises:
        ArchiveError: When the folder isn't an archive.
    """
    snapshot = archive.snapshot()
    return {
        "archive": str(archive.root),
        "pipeline": snapshot.document.pipeline,
        "cluster_id": snapshot.document.cluster_id,
        "generations": [_describe(generation) for generation in snapshot.generations],
        "windows": _describe_windows(snapshot),
    }


def _describe_windows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Describe the sealed windows, without files that a later window replaces."""
    described = []
    for window in snapshot.fold.windows:
        files = snapshot.fold.live(window.receipt.files)
        described.append(
            {
                "window": window.key,
                "format": window.plan.format,
                "files": len(files),
                "bytes": sum(file.bytes for file in files),
                "records": sum(content.records for file in files for content in file.contents),
            }
        )
    return described


def _describe(generation: SnapshotGeneration) -> dict[str, Any]:
    document, start = generation.document, generation.starting_offsets
    manifest, _ = generation.read_manifest()
    checkpoint, _ = generation.read_checkpoint(start)
    end = start
    if checkpoint.last_commit is not None:
        # Damage is reported by validation; the figures cover what can be read.
        end = checkpoint.ends.get(checkpoint.last_commit) or start
    elif names := generation.receipt_names():
        # A closed generation whose checkpoint was removed along with its replaced files.
        end = generation.read_receipt(names[-1]).ends
    return {
        "generation": generation.number,
        "opened_at": document.opened_at,
        "reason": document.reason,
        "format": document.format,
        "batches": 0 if manifest.last_batch is None else manifest.last_batch + 1,
        "files": len(manifest.files),
        "bytes": sum(sink_file.size for sink_file in manifest.files.values()),
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "start": start.get(tp, 0),
                "end": end[tp],
                "offsets": end[tp] - start.get(tp, 0),
            }
            for tp in sorted(end)
        ],
    }


def committed_files(archive: Archive, *, include_unsealed: bool = True) -> list[dict[str, Any]]:
    """List the data files that readers use: of all generations and windows, each offset once.

    Args:
        include_unsealed: Include committed files that no receipt proves yet.

    Returns:
        For each file: path (absolute), size in bytes, generation or window, whether it is sealed,
        and the number of records according to its receipt (null without a receipt).

    Raises:
        ArchiveError: When the folder isn't an archive.
        ManifestInvalidError: When manifest or receipts are damaged: the list would be incomplete.
    """
    return [
        {
            "path": str(archive.root / file.path),
            "size": file.bytes,
            **(
                {"generation": file.owner.number}
                if isinstance(file.owner, Generation)
                else {"window": file.owner.key}
            ),
            "sealed": file.sealed is not None,
            "records": file.records,
        }
        for file in archive_files(archive.snapshot())
        if include_unsealed or file.sealed
    ]
