"""A sink's manifest written anew from the receipts, in the form that Spark goes on from."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from urllib.parse import quote

from upath import UPath

from kafka_drain.documents import write_text
from kafka_drain.errors import ArchiveError
from kafka_drain.generation import Generation
from kafka_drain.manifest import log_name
from kafka_drain.receipts import Receipt, SealedFile

__all__ = ["rebuild_manifest"]

#: spark.sql.streaming.fileSink.log.compactInterval
COMPACT_INTERVAL = 10
BLOCK_BYTES = 32 << 20
DAMAGED = "_spark_metadata.damaged-"


def rebuild_manifest(generation: Generation) -> int:
    """Write `_spark_metadata` anew; the damaged one stays beside it, under another name.

    Files of batches up to the last compaction go into one `.compact` file, as Spark would have
    them, each later batch into a file of its own. Batches that no receipt seals keep theirs.

    Returns:
        How many sealed files the new manifest lists.

    Raises:
        ArchiveError: When nothing is sealed.
        ReceiptError: When a receipt is damaged.
    """
    receipts = list(generation.receipts())
    if not receipts:
        raise ArchiveError(
            f"{generation.folder} has no receipts to write a manifest from; restore it from a copy"
        )
    folder = generation.data / "_spark_metadata"
    beside = generation.data / f"_spark_metadata.new-{uuid.uuid4().hex[:8]}"
    for name, text in _logs(generation, receipts).items():
        write_text(beside / name, text)
    aside = _newest_damaged(generation)
    if folder.is_dir():
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
        aside = folder.rename(generation.data / f"{DAMAGED}{stamp}")
    if aside is not None:
        for entry in aside.iterdir():
            batch, is_compact = log_name(entry.name) or (-1, False)
            if batch > receipts[-1].last_batch and not is_compact:
                write_text(beside / entry.name, entry.read_text())
    beside.rename(folder)
    return sum(len(receipt.files) for receipt in receipts)


def _newest_damaged(generation: Generation) -> UPath | None:
    """Return what a rebuild that was killed has put aside."""
    return max(generation.data.glob(f"{DAMAGED}*"), key=lambda path: path.name, default=None)


def _logs(generation: Generation, receipts: Sequence[Receipt]) -> dict[str, str]:
    last = receipts[-1].last_batch
    compacted = (last + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1
    by_batch: dict[int, list[SealedFile]] = {batch: [] for batch in range(compacted + 1, last + 1)}
    early: list[SealedFile] = []
    for receipt in receipts:
        # What several forgotten batches wrote together counts as the last one's.
        is_early = receipt.last_batch <= compacted
        (early if is_early else by_batch[receipt.last_batch]).extend(receipt.files)
    logs = {str(batch): _log(generation, files) for batch, files in by_batch.items()}
    if compacted >= 0:
        logs[f"{compacted}.compact"] = _log(generation, early)
    return logs


def _log(generation: Generation, files: Iterable[SealedFile]) -> str:
    return "\n".join(["v1", *(_line(generation, file) for file in files)])


def _line(generation: Generation, file: SealedFile) -> str:
    path = generation.root / file.path
    local = generation.root.protocol in ("", "file")
    modified = int(path.stat().st_mtime * 1000) if path.exists() else 0
    entry = {
        "path": f"file://{quote(str(path), safe='/=:,+')}" if local else str(path),
        "size": file.bytes,
        "isDir": False,
        "modificationTime": modified,
        "blockReplication": 1,
        "blockSize": BLOCK_BYTES,
        "action": "add",
    }
    return json.dumps(entry, separators=(",", ":"))
