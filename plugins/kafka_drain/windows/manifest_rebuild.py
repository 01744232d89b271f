"""Rebuild a sink's manifest from the receipts, in the form in which Spark can continue it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from types import MappingProxyType
from urllib.parse import quote

from upath import UPath

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import Receipt
from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.metadata_log.manifest import log_name, parse_log
from kafka_drain.storage.json_files import write_text
from kafka_drain.storage.paths import (
    exists,
    hadoop_path,
    is_file,
    is_local,
    list_folder,
    read_bytes,
)

#: spark.sql.streaming.fileSink.log.compactInterval
COMPACT_INTERVAL = 10
BLOCK_BYTES = 32 << 20
DAMAGED = "_spark_metadata.damaged-"


def rebuild_manifest(
    generation: Generation, forgotten: Mapping[str, str] = MappingProxyType({})
) -> int:
    """Rebuild `_spark_metadata`; the damaged folder is kept beside it under another name.

    Files of batches up to the last compaction go into one `.compact` file, as Spark would write
    it; each later batch gets its own file. Batches without a receipt keep their manifest lines.

    Args:
        forgotten: Lost receipts that were given up, by path.

    Returns:
        The number of sealed files that the new manifest lists.

    Raises:
        ArchiveError: When nothing is sealed.
        ReceiptError: When a receipt is damaged.
        LockedError: When another run has changed it meanwhile; it stays as it is.
    """
    receipts = list(generation.receipts(forgotten))
    if not receipts:
        raise ArchiveError(
            f"{generation.folder} has no receipts to rebuild the manifest from; restore it from a "
            "copy"
        )
    folder = generation.data / "_spark_metadata"
    there = list_folder(folder)
    damaged = folder if exists(folder) else newest_damaged(generation.data)
    later = _later_logs(damaged, receipts[-1].last_batch) if damaged is not None else {}
    logs = _logs(generation, receipts, later)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    aside = generation.data / f"{DAMAGED}{stamp}"
    if is_local(folder):
        _replace_folder(folder, logs, aside, there)
    else:
        _replace_objects(folder, logs, aside, there)
    return sum(len(receipt.files) for receipt in receipts)


def _refuse_changed(folder: UPath, there: Mapping[str, bool]) -> None:
    """Refuse a manifest that has other files than when it was read: this run was suspended."""
    if list_folder(folder) != there:
        raise LockedError(f"{folder}: the manifest was changed by another run; repair again")


def _replace_folder(
    folder: UPath, logs: Mapping[str, str], aside: UPath, there: Mapping[str, bool]
) -> None:
    """Swap the whole folders by renaming them."""
    beside = folder.with_name(f"{folder.name}.new-{uuid.uuid4().hex[:8]}")
    for name, text in logs.items():
        write_text(beside / name, text)
    _refuse_changed(folder, there)
    if folder.is_dir():
        folder.rename(aside)
    beside.rename(folder)


def _replace_objects(
    folder: UPath, logs: Mapping[str, str], aside: UPath, there: Mapping[str, bool]
) -> None:
    """Copy the old objects aside, write the new ones over them, remove leftover old ones.

    If killed at any point, a rerun has the same result: logs that no receipt covers keep their
    names.
    """
    old = [entry for entry in folder.iterdir() if is_file(entry)] if exists(folder) else []
    for entry in old:
        (aside / entry.name).write_bytes(read_bytes(entry))
    _refuse_changed(folder, there)
    for name, text in logs.items():
        write_text(folder / name, text)
    for entry in old:
        if entry.name not in logs:
            entry.unlink()


def newest_damaged(data: UPath) -> UPath | None:
    """Return the damaged manifest that a killed rebuild has already moved aside."""
    # By its listing: in a store, a pattern would also be that of the archive's own path.
    moved = [name for name in list_folder(data) if name.startswith(DAMAGED)]
    return data / max(moved) if moved else None


def _later_logs(folder: UPath, last_sealed: int) -> dict[str, bytes]:
    """Read the manifest files of batches without a receipt, by name."""
    logs = {entry.name: log_name(entry.name) for entry in folder.iterdir()}
    # Also what a compacted one stands for: that may be the damaged one.
    later = sorted((log, name) for name, log in logs.items() if log and log[0] > last_sealed)
    return {name: read_bytes(folder / name) for _, name in later}


def _logs(
    generation: Generation, receipts: Sequence[Receipt], later: Mapping[str, bytes]
) -> dict[str, str]:
    """Return the text of each manifest file by name."""
    last = receipts[-1].last_batch
    compacted = (last + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1
    unsealed: list[tuple[str, int]] = []
    plain: dict[str, str] = {}
    read = [found for name in later if (found := log_name(name))]
    newest = max((batch for batch, is_compact in read if is_compact), default=-1)
    compacted = max(compacted, newest)
    for name, content in later.items():
        batch, _ = log_name(name) or (0, False)
        if batch <= newest:
            # A compact log also lists sealed files; those are taken from the receipts.
            unsealed += _listed(generation, name, content)
        else:
            plain[name] = content.decode("utf-8", "replace")
    by_batch: dict[int, list[tuple[str, int]]] = {b: [] for b in range(compacted + 1, last + 1)}
    early: dict[str, int] = {}
    for receipt in receipts:
        files = [(file.path, file.bytes) for file in receipt.files]
        # Files written by several forgotten batches are listed under the last of these batches.
        if receipt.last_batch <= compacted:
            early.update(files)
        else:
            by_batch[receipt.last_batch] += files
    early = early | {path: size for path, size in unsealed if path not in early}
    logs = {str(batch): _log(generation, files) for batch, files in by_batch.items()}
    if compacted >= 0:
        logs[f"{compacted}.compact"] = _log(generation, early.items())
    return logs | plain


def _listed(generation: Generation, name: str, content: bytes) -> list[tuple[str, int]]:
    """Return path and size of every entry that can be parsed in a manifest file."""
    log, _ = parse_log(name, content, generation.data_name)
    return [(f"{generation.data_name}/{f.path}", f.size) for f in log.added] if log else []


def _log(generation: Generation, files: Iterable[tuple[str, int]]) -> str:
    return "\n".join(["v1", *(_line(generation, path, size) for path, size in files)])


def _line(generation: Generation, name: str, size: int) -> str:
    path = generation.root / name
    written = quote(hadoop_path(path), safe="/=:,+")
    modified = int(path.stat().st_mtime * 1000) if path.exists() else 0
    entry = {
        "path": f"file://{written}" if is_local(path) else written,
        "size": size,
        "isDir": False,
        "modificationTime": modified,
        "blockReplication": 1,
        "blockSize": BLOCK_BYTES,
        "action": "add",
    }
    return json.dumps(entry, separators=(",", ":"))
